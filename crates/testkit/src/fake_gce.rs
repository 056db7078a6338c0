//! A Compute Engine of our own, for scale and for faults: the part of the REST API (version 1) that says what an
//! instance is and which managed instance group made it, over plain HTTP, so that it is reached through the real
//! client. The metadata server (project, token) is on the same port.
//!
//! It words its answers as Compute Engine does, after the public reference: ids are numbers in strings, links are whole
//! URLs that name the project by its id, `created-by` names it by its number; `listManagedInstances` heeds pages only
//! when the group says so; a listing of all zones fails as a whole when one zone does, unless that zone is only
//! `unreachable`. It checks that calls bring its token.

mod answer;
mod group;
mod instance;
mod protocol;
mod route;
mod template;

use std::collections::{BTreeMap, BTreeSet};

pub use answer::error_info;
pub use group::{FakeGroup, regional_group, zonal_group};
pub use instance::{FakeInstance, instance};
pub use template::{FakeTemplate, regional_template, template};

use crate::fake_cloud::FakeCloud;

/// The project that it holds.
pub const PROJECT: &str = "our-project";

/// The number of that project.
pub const PROJECT_NUMBER: &str = "123456789012";

/// The region of the zones that builders use.
pub const REGION: &str = "us-central1";

/// The token that its metadata server gives out, and that calls have to bring.
pub const TOKEN: &str = "the-access-token";

/// A Compute Engine, with the metadata server of its machines. Its calls name an instance `ZONE/NAME`, a group or
/// template `ZONE|REGION|global/NAME`, a zone, or nothing. A call for all zones depends on each of them.
pub type FakeGce = FakeCloud<Gce>;

/// The contents of Compute Engine.
#[derive(Debug)]
pub struct Gce {
    /// By zone and name.
    instances: Places<FakeInstance>,
    /// By zone or region, and name.
    groups: Places<FakeGroup>,
    /// By region or `global`, and name.
    templates: Places<FakeTemplate>,
    unreachable_zones: BTreeSet<String>,
    metadata_project: String,
    metadata_away: bool,
    token: String,
}

type Places<T> = BTreeMap<(String, String), T>;

impl Default for Gce {
    fn default() -> Self {
        Self {
            instances: BTreeMap::new(),
            groups: BTreeMap::new(),
            templates: BTreeMap::new(),
            unreachable_zones: BTreeSet::new(),
            metadata_project: PROJECT.to_owned(),
            metadata_away: false,
            token: TOKEN.to_owned(),
        }
    }
}

impl FakeGce {
    /// Returns the environment with which a process gets its credentials and its project from here.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("GCE_METADATA_HOST", self.address().to_string())]
    }

    /// Lists these from now on, each in place of the one of its zone and name.
    pub fn launch(&self, instances: impl IntoIterator<Item = FakeInstance>) {
        let keyed = instances
            .into_iter()
            .map(|instance| ((instance.zone.clone(), instance.name.clone()), instance));
        self.change_cloud(|gce| gce.instances.extend(keyed));
    }

    /// Has these managed instance groups from now on, each in place of the one of its place and name.
    pub fn groups(&self, groups: impl IntoIterator<Item = FakeGroup>) {
        let keyed = groups
            .into_iter()
            .map(|group| ((group.place().to_owned(), group.name.clone()), group));
        self.change_cloud(|gce| gce.groups.extend(keyed));
    }

    /// Has these templates from now on, each in place of the one of its place and name.
    pub fn templates(&self, templates: impl IntoIterator<Item = FakeTemplate>) {
        let keyed = templates
            .into_iter()
            .map(|template| ((template.place().to_owned(), template.name.clone()), template));
        self.change_cloud(|gce| gce.templates.extend(keyed));
    }

    /// Lists the instance no more.
    pub fn forget(&self, zone: &str, name: &str) {
        self.change_cloud(|gce| remove(&mut gce.instances, zone, name));
    }

    /// Has the managed instance group no more.
    pub fn forget_group(&self, place: &str, name: &str) {
        self.change_cloud(|gce| remove(&mut gce.groups, place, name));
    }

    /// From now on every call that names this zone fails; a call for all zones is answered without it, and says so.
    pub fn leave_out_zone(&self, zone: &str) {
        self.change_cloud(|gce| {
            gce.unreachable_zones.insert(zone.to_owned());
        });
    }

    /// Sets the project in its metadata server.
    pub fn metadata_project(&self, project: &str) {
        self.change_cloud(|gce| project.clone_into(&mut gce.metadata_project));
    }

    /// Revokes the token: from now on calls have to bring this one, which its metadata server gives out.
    pub fn revoke_token(&self, next: &str) {
        self.change_cloud(|gce| next.clone_into(&mut gce.token));
    }

    /// Makes its metadata server return nothing, no token above all.
    pub fn metadata_away(&self, away: bool) {
        self.change_cloud(|gce| gce.metadata_away = away);
    }
}

fn remove<T>(from: &mut Places<T>, place: &str, name: &str) {
    from.remove(&(place.to_owned(), name.to_owned()));
}

/// The URL of something in the project, as answers write it.
fn link(path: &str) -> String {
    format!("https://www.googleapis.com/compute/v1/projects/{PROJECT}/{path}")
}
