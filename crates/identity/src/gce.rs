//! Google Compute Engine: identifies an instance through its managed instance group and its instance template.
//!
//! An instance may be permitted to change its own labels and metadata, so neither decides anything. The chain to its
//! group:
//!
//! 1. `gce://PROJECT/ZONE/NAME` of the Node: the project must be ours, otherwise no call is made. Another project is
//!    evidence of forgery only after an instance of the cluster was found in ours: until then our setting may be wrong.
//! 2. The instance: it runs, and its metadata entry `created-by` names the managed instance group to list. That is only
//!    a hint: the group must be in our project and in the instance's zone or region.
//! 3. The group's managed instances: the list contains this instance, by its numeric id, exactly once. An instance
//!    cannot add itself to that list. The row names the template that it was created from; two versions of one group
//!    have two templates.
//! 4. The template: its metadata names the cluster, which must be ours, and the `InstanceGroup`. A template never
//!    changes.
//!
//! The calls of a query: one listing of the instances (or, for a few, one call each), one of each managed instance
//! group, one read of each template that was not read lately. A failure affects only the claims that depend on it. No
//! retries: the controller queries a refused Node again, with a backoff that knows how often it has failed.

mod call;
mod connect;
mod credentials;
mod find;
mod group;
mod groups;
mod instance;
mod links;
mod names;
mod query;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;
use tidewaiter_api::ClusterName;
use tidewaiter_kit::{CloudCalls, SharedClock};

pub use connect::{Client, ClientError, ClientSettings, ProjectError, client, project};
pub use credentials::CredentialsSource;
pub use groups::InstanceGroupManagers;
pub use names::{InvalidProject, ProjectId};

use crate::failure::Failure;
use crate::identifier::{AnswerFn, Claim, Identifier};
use crate::refusal::{Mark, Refusal};
use call::Caller;
use group::Group;
use instance::Found;
use links::{InvalidLink, Mig, TemplateLink};
use query::{MAX_TEMPLATES, Query};

/// The methods that are called. `roles/compute.viewer` grants them.
pub mod api {
    /// Reads one instance by name.
    pub const GET_INSTANCE: &str = "gce:compute.instances.get";
    /// Lists the instances of all zones.
    pub const LIST_ALL_ZONES: &str = "gce:compute.instances.aggregatedList";
    /// Lists the instances of one zone.
    pub const LIST_ZONE: &str = "gce:compute.instances.list";
    /// Lists the managed instance groups of all zones and regions.
    pub const LIST_ALL_GROUPS: &str = "gce:compute.instanceGroupManagers.aggregatedList";
    /// Lists the instances of a zonal managed instance group.
    pub const LIST_ZONAL_GROUP: &str = "gce:compute.instanceGroupManagers.listManagedInstances";
    /// Lists the instances of a regional managed instance group.
    pub const LIST_REGIONAL_GROUP: &str = "gce:compute.regionInstanceGroupManagers.listManagedInstances";
    /// Reads a global template of the project.
    pub const GET_GLOBAL_TEMPLATE: &str = "gce:compute.instanceTemplates.get";
    /// Reads a regional template.
    pub const GET_REGIONAL_TEMPLATE: &str = "gce:compute.regionInstanceTemplates.get";
}

/// The label that kOps sets on the instances of a cluster, used to find them.
const CLUSTER_LABEL: &str = "k8s-io-cluster-name";

/// The time for which the zones are listed separately after the failure of one. The first success of all of them ends
/// this.
const ZONES_APART: Duration = Duration::from_mins(15);

/// The time for which a template is cached. It never changes, but after its deletion another one may get its name.
const TEMPLATE_EXPIRY: Duration = Duration::from_mins(15);

/// The templates that were read lately, each with the monotonic time at which it expires.
type Templates = HashMap<TemplateLink, (Duration, Arc<Group>)>;

/// The instances of a cluster on Compute Engine.
#[derive(Debug)]
pub struct Gce {
    caller: Caller,
    cluster: ClusterName,
    /// The filter for the cluster's instances.
    filter: String,
    clock: SharedClock,
    /// The monotonic time until which the zones are listed separately.
    zones_apart: Mutex<Duration>,
    templates: Mutex<Templates>,
    /// True if an instance of the cluster was found in the project, so that the setting of the project is correct.
    is_confirmed: AtomicBool,
}

impl Gce {
    /// A provider for the instances of `cluster` in `project`. Create the client with [`client`], whose timeouts bound
    /// each query.
    #[must_use]
    pub fn new(
        client: Client,
        project: ProjectId,
        cluster: ClusterName,
        clock: SharedClock,
        calls: CloudCalls,
    ) -> Self {
        // A cluster's name contains no character with a meaning in a filter.
        let label = cluster.as_str().replace('.', "-");
        Self {
            caller: Caller::new(client, project, cluster.clone(), calls),
            cluster,
            filter: format!("labels.{CLUSTER_LABEL}={label}"),
            clock,
            zones_apart: Mutex::default(),
            templates: Mutex::default(),
            is_confirmed: AtomicBool::default(),
        }
    }

    fn zones_are_apart(&self) -> bool {
        self.clock.monotonic() < *self.zones_apart.lock()
    }

    /// Starts listing the zones separately if some of them failed, and ends it if none did.
    fn note_zones(&self, ends: &[Result<(), Failure>]) {
        let failed = ends
            .iter()
            .filter(|end| end.as_ref().is_err_and(Failure::may_depend_on_target))
            .count();
        let until = match failed {
            0 => Duration::ZERO,
            failed if failed < ends.len() => self.clock.monotonic() + ZONES_APART,
            // All zones failed, or the only one: the failure may not depend on the zone.
            _ => return,
        };
        *self.zones_apart.lock() = until;
    }

    /// Answers running instances from the listing of the group that each names.
    async fn group(&self, running: Vec<Found>, query: &Query<'_>) {
        let mut by_mig: HashMap<Mig, Vec<Found>> = HashMap::new();
        for found in running {
            by_mig.entry(found.mig.clone()).or_default().push(found);
        }
        let mut migs: Vec<(Mig, Vec<Found>)> = by_mig.into_iter().collect();
        // If there are too many groups, those named by the fewest instances are refused: an instance can name any
        // group.
        migs.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
        join_all(migs.iter().map(|(mig, found)| self.members(mig, found, query))).await;
    }

    /// Answers instances that name the same group. Its listing names the template of each.
    async fn members(&self, mig: &Mig, found: &[Found], query: &Query<'_>) {
        let Some(cell) = query.migs.cell(mig) else {
            let failure = Failure::unusable(mig.api(), "too many groups for one query");
            return refuse_each(found, query, |_| failure.refusal());
        };
        let members = match cell.get_or_init(|| self.caller.members(mig)).await {
            Ok(members) => members,
            Err(failure) => return refuse_each(found, query, |found| group::no_listing(found, mig, failure)),
        };
        let mut by_template: HashMap<TemplateLink, Vec<&Found>> = HashMap::new();
        for found in found {
            match self.template(members, mig, found) {
                Ok(link) => by_template.entry(link).or_default().push(found),
                Err(refusal) => query.refuse(&found.target, refusal),
            }
        }
        join_all(
            by_template
                .iter()
                .map(|(link, found)| self.made_from(link, found, query)),
        )
        .await;
    }

    /// The template that the group lists for an instance. It must be in our project: instances cannot be created from
    /// another's.
    fn template(&self, members: &group::Members, mig: &Mig, found: &Found) -> Result<TemplateLink, Refusal> {
        let url = members.template(mig.api(), found)?;
        TemplateLink::read(url, found.target.zone.region(), self.caller.project()).map_err(|astray| match astray {
            InvalidLink::Foreign(theirs) => Refusal::ForeignProject {
                instance: found.target.to_string(),
                mark: Mark::Template,
                theirs: Some(theirs),
                ours: self.cluster.clone(),
            },
            InvalidLink::NotFound => {
                Failure::unusable(mig.api(), format!("{} is listed without a template", found.target)).refusal()
            }
        })
    }

    /// Answers instances that were created from one template.
    async fn made_from(&self, link: &TemplateLink, found: &[&Found], query: &Query<'_>) {
        let found = found.iter().copied();
        let Some(cell) = query.templates.cell(link) else {
            let failure = Failure::unusable(link.api(), "too many templates for one query");
            return refuse_each(found, query, |_| failure.refusal());
        };
        match cell.get_or_init(|| self.read_template(link)).await {
            Ok(group) => {
                for found in found {
                    let identity = group.identity(found, link, &self.cluster);
                    self.is_confirmed.fetch_or(identity.is_ok(), Ordering::Relaxed);
                    query.answer(&found.target, &identity);
                }
            }
            Err(failure) => refuse_each(found, query, |found| group::no_template(found, link, failure)),
        }
    }

    /// Reads a template, from the cache or the cloud.
    async fn read_template(&self, link: &TemplateLink) -> Result<Arc<Group>, Failure> {
        let templates = || self.templates.lock();
        let now = self.clock.monotonic();
        let cached = templates().get(link).filter(|(until, _)| *until > now).cloned();
        if let Some((_, group)) = cached {
            return Ok(group);
        }
        let group = Arc::new(self.caller.template(link).await?);
        let mut templates = templates();
        templates.retain(|_, (until, _)| *until > now);
        if templates.len() < MAX_TEMPLATES {
            templates.insert(link.clone(), (now + TEMPLATE_EXPIRY, Arc::clone(&group)));
        }
        Ok(group)
    }
}

fn refuse_each<'a>(found: impl IntoIterator<Item = &'a Found>, query: &Query<'_>, refusal: impl Fn(&Found) -> Refusal) {
    for found in found {
        query.refuse(&found.target, refusal(found));
    }
}

#[async_trait]
impl Identifier for Gce {
    fn scheme(&self) -> &'static str {
        "gce"
    }

    /// All: a listing returns every instance, so each part of a split query would cost as much as the whole.
    fn max_batch(&self) -> usize {
        usize::MAX
    }

    async fn identify(&self, claims: &[Claim], answers: &AnswerFn<'_>) {
        let query = Query::new(claims, answers, self.caller.project(), &self.cluster);
        let project = self.caller.project();
        let is_confirmed = || self.is_confirmed.load(Ordering::Relaxed);
        let known = is_confirmed();
        if known {
            query.refuse_foreign(project, true);
        }
        self.find(query.targets(), &query).await;
        if !known {
            query.refuse_foreign(project, is_confirmed());
        }
    }
}
