//! A Compute Engine of our own, for scale and for faults: the part of the REST API (version 1) that says what an instance is
//! and which managed instance group made it, over plain HTTP, so that it is reached through the real client. The metadata
//! server (project, token) is on the same port.
//!
//! It words its answers as Compute Engine does, after the public reference: ids are numbers in strings, links are whole URLs
//! that name the project by its id, `created-by` names it by its number; `listManagedInstances` heeds pages only when the group
//! says so; a listing of all zones fails as a whole when one zone does, unless that zone is only `unreachable`. It checks that
//! calls bring its token. Faults are set while it runs. Every call is on record, with the rows that it was answered.

mod answer;
mod group;
mod instance;
mod route;
mod server;
mod template;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use answer::Scripted;
pub use group::{FakeGroup, regional_group, zonal_group};
pub use instance::{FakeInstance, instance};
pub use template::{FakeTemplate, regional_template, template};

use crate::fake_http::{Bucket, Port};
pub use crate::fake_http::{TokenBucket, nobody};

/// The project that it holds.
pub const PROJECT: &str = "our-project";

/// The number of that project.
pub const PROJECT_NUMBER: &str = "123456789012";

/// The region of the zones that builders use.
pub const REGION: &str = "us-central1";

/// The token that its metadata server gives out, and that calls have to bring.
pub const TOKEN: &str = "the-access-token";

/// A running fake. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeGce {
    shared: Arc<Shared>,
    port: Port,
}

/// One call as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method, for example `instances.aggregatedList`.
    pub api: &'static str,
    /// What it named: an instance `ZONE/NAME`, a group or template `ZONE|REGION|global/NAME`, a zone, or nothing.
    pub what: String,
    /// The filter of a listing.
    pub filter: Option<String>,
    /// The instances, managed instances or templates in the answer.
    pub rows: usize,
    /// What it was answered: `ok`, or the reason of the error, or the name of the fault.
    pub outcome: String,
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By zone and name.
    instances: BTreeMap<(String, String), FakeInstance>,
    /// By zone or region, and name.
    groups: BTreeMap<(String, String), FakeGroup>,
    /// By region or `global`, and name.
    templates: BTreeMap<(String, String), FakeTemplate>,
    script: VecDeque<Scripted>,
    /// For one method each.
    scripts: HashMap<String, VecDeque<Scripted>>,
    always: Option<Scripted>,
    bad_names: HashMap<String, Scripted>,
    bad_zones: BTreeSet<String>,
    slow_zones: BTreeSet<String>,
    unreachable_zones: BTreeSet<String>,
    latency: Duration,
    bucket: Option<Bucket>,
    calls: Vec<Call>,
    metadata_project: String,
    metadata_away: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeGce {
    /// Starts one with nothing in its project, on a free port of 127.0.0.1.
    pub async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        PROJECT.clone_into(&mut shared.lock().metadata_project);
        let port = server::open(&shared).await;
        Self { shared, port }
    }

    /// Where it is, as an endpoint for the client and as the address of the metadata server.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// What a process of its own needs in its environment to get its credentials and its project from here.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("GCE_METADATA_HOST", self.port.address().to_string())]
    }

    /// Lists these from now on, each in place of the one of its zone and name.
    pub fn launch(&self, instances: impl IntoIterator<Item = FakeInstance>) {
        let keyed = instances
            .into_iter()
            .map(|instance| ((instance.zone.clone(), instance.name.clone()), instance));
        self.shared.lock().instances.extend(keyed);
    }

    /// Has these managed instance groups from now on, each in place of the one of its place and name.
    pub fn groups(&self, groups: impl IntoIterator<Item = FakeGroup>) {
        let keyed = groups
            .into_iter()
            .map(|group| ((group.place().to_owned(), group.name.clone()), group));
        self.shared.lock().groups.extend(keyed);
    }

    /// Has these templates from now on, each in place of the one of its place and name.
    pub fn templates(&self, templates: impl IntoIterator<Item = FakeTemplate>) {
        let keyed = templates
            .into_iter()
            .map(|template| ((template.place().to_owned(), template.name.clone()), template));
        self.shared.lock().templates.extend(keyed);
    }

    /// Lists the instance no more.
    pub fn forget(&self, zone: &str, name: &str) {
        self.shared.lock().instances.remove(&(zone.to_owned(), name.to_owned()));
    }

    /// Has the managed instance group no more.
    pub fn forget_group(&self, place: &str, name: &str) {
        self.shared.lock().groups.remove(&(place.to_owned(), name.to_owned()));
    }

    /// Has the template no more.
    pub fn forget_template(&self, place: &str, name: &str) {
        self.shared
            .lock()
            .templates
            .remove(&(place.to_owned(), name.to_owned()));
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.shared.lock().calls.clear();
    }

    /// The next calls get these answers, one each, before all else applies.
    pub fn script(&self, answers: impl IntoIterator<Item = Scripted>) {
        self.shared.lock().script.extend(answers);
    }

    /// The next calls of this method get these answers, one each.
    pub fn script_for(&self, api: &str, answers: impl IntoIterator<Item = Scripted>) {
        let mut state = self.shared.lock();
        state.scripts.entry(api.to_owned()).or_default().extend(answers);
    }

    /// From now on every call that the scripts leave over gets this answer; `None` ends it.
    pub fn always(&self, answer: Option<Scripted>) {
        self.shared.lock().always = answer;
    }

    /// Every call for the one instance, group or template of this name gets this answer.
    pub fn fail_name(&self, name: &str, answer: Scripted) {
        self.shared.lock().bad_names.insert(name.to_owned(), answer);
    }

    /// Every call that names this zone fails, and every call for all zones.
    pub fn fail_zone(&self, zone: &str) {
        self.shared.lock().bad_zones.insert(zone.to_owned());
    }

    /// Every call that names this zone is never answered, and none for all zones.
    pub fn hang_zone(&self, zone: &str) {
        self.shared.lock().slow_zones.insert(zone.to_owned());
    }

    /// Every call that names this zone fails; a call for all zones is answered without it, and says so.
    pub fn leave_out_zone(&self, zone: &str) {
        self.shared.lock().unreachable_zones.insert(zone.to_owned());
    }

    /// Ends what `fail_name`, `fail_zone`, `hang_zone` and `leave_out_zone` began.
    pub fn heal(&self) {
        let mut state = self.shared.lock();
        state.bad_names.clear();
        state.bad_zones.clear();
        state.slow_zones.clear();
        state.unreachable_zones.clear();
    }

    /// Every answer takes this long.
    pub fn latency(&self, latency: Duration) {
        self.shared.lock().latency = latency;
    }

    /// Calls beyond this are refused with `rateLimitExceeded`; `None` ends it.
    pub fn throttle(&self, shape: Option<TokenBucket>) {
        self.shared.lock().bucket = shape.map(Bucket::full);
    }

    /// What its metadata server says is the project.
    pub fn metadata_project(&self, project: &str) {
        project.clone_into(&mut self.shared.lock().metadata_project);
    }

    /// Whether its metadata server has nothing to say, no token above all.
    pub fn metadata_away(&self, away: bool) {
        self.shared.lock().metadata_away = away;
    }

    /// Refuses connections from now on and breaks those that stand.
    pub async fn away(&mut self) {
        self.port.away().await;
    }

    /// Takes connections again, on the same port.
    pub async fn back(&mut self) {
        self.port.back().await;
    }

    /// The calls so far, in the order in which they came.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.lock().calls.clone()
    }

    /// The calls since the last time that this was asked. What is returned is no longer on record.
    #[must_use]
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.shared.lock().calls)
    }
}

/// The URL of something in the project, as answers write it.
fn link(path: &str) -> String {
    format!("https://www.googleapis.com/compute/v1/projects/{PROJECT}/{path}")
}
