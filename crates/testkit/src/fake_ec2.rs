//! An EC2 of our own, for scale and for faults: `DescribeInstances` of the EC2 Query API over plain HTTP, so that it is
//! reached through the real SDK. The instance metadata service (version 2, the region only) is on the same port.
//!
//! It words its answers as EC2 does: an id that it does not know fails the whole call and is named; a filter leaves out what it
//! does not know; a zone in trouble fails every call that names one of its instances, or that names none at all. It checks that
//! requests are signed, not by whom. Faults are set while it runs: a queue of scripted answers, ids and zones that fail,
//! latency, a token bucket. Every call is on record.

mod answer;
mod instance;
mod server;

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use answer::Scripted;
pub use instance::{FakeInstance, instance};

use crate::fake_http::{Bucket, Port};
pub use crate::fake_http::{TokenBucket, nobody};

/// The region that it says it is.
pub const REGION: &str = "us-east-1";

/// A running fake. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeEc2 {
    shared: Arc<Shared>,
    port: Port,
}

/// One call as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// How it named the instances.
    pub by: NamedBy,
    /// The ids that it named, in its order.
    pub ids: Vec<String>,
    /// What it was answered: `ok`, or the code of the error, or the name of the fault.
    pub outcome: String,
}

/// How a call named instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// `InstanceId.N`
    Ids,
    /// The filter `instance-id`.
    Filter,
    /// Not at all: by tags, or everything.
    Nothing,
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    instances: BTreeMap<String, instance::Listed>,
    script: VecDeque<Scripted>,
    always: Option<Scripted>,
    bad_ids: HashSet<String>,
    bad_zones: BTreeSet<String>,
    slow_zones: BTreeSet<String>,
    latency: Duration,
    bucket: Option<Bucket>,
    calls: Vec<Call>,
    metadata_region: String,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeEc2 {
    /// Starts one without instances on a free port of 127.0.0.1.
    pub async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        REGION.clone_into(&mut shared.lock().metadata_region);
        let port = server::open(&shared).await;
        Self { shared, port }
    }

    /// Where it is, as an endpoint for the SDK.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// What a process of its own needs in its environment to reach it through the SDK.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL_EC2", self.endpoint()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIDFAKE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "fake-secret".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// Lists these from now on, each in place of the one with its id.
    pub fn launch(&self, instances: impl IntoIterator<Item = FakeInstance>) {
        let listed = instances
            .into_iter()
            .map(|instance| (instance.id.clone(), instance::Listed::new(instance)));
        self.shared.lock().instances.extend(listed);
    }

    /// Changes the instance `id`, which has to be listed.
    pub fn change(&self, id: &str, change: impl FnOnce(FakeInstance) -> FakeInstance) {
        let mut state = self.shared.lock();
        let listed = state
            .instances
            .get_mut(id)
            .unwrap_or_else(|| panic!("no instance {id} to change"));
        *listed = instance::Listed::new(change(listed.instance.clone()));
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.shared.lock().calls.clear();
    }

    /// Lists the instance `id` no more, as EC2 does about an hour after an instance has terminated.
    pub fn forget(&self, id: &str) {
        self.shared.lock().instances.remove(id);
    }

    /// The next calls get these answers, one each, before all else applies.
    pub fn script(&self, answers: impl IntoIterator<Item = Scripted>) {
        self.shared.lock().script.extend(answers);
    }

    /// From now on every call that the script leaves over gets this answer; `None` ends it.
    pub fn always(&self, answer: Option<Scripted>) {
        self.shared.lock().always = answer;
    }

    /// Every call that names this id fails, by id and by filter.
    pub fn fail_id(&self, id: &str) {
        self.shared.lock().bad_ids.insert(id.to_owned());
    }

    /// Every call that names an instance of this zone fails, and every call that names none.
    pub fn fail_zone(&self, zone: &str) {
        self.shared.lock().bad_zones.insert(zone.to_owned());
    }

    /// Every call that names an instance of this zone is never answered.
    pub fn hang_zone(&self, zone: &str) {
        self.shared.lock().slow_zones.insert(zone.to_owned());
    }

    /// Ends what [`FakeEc2::fail_id`], [`FakeEc2::fail_zone`] and [`FakeEc2::hang_zone`] began.
    pub fn heal(&self) {
        let mut state = self.shared.lock();
        state.bad_ids.clear();
        state.bad_zones.clear();
        state.slow_zones.clear();
    }

    /// Every answer takes this long.
    pub fn latency(&self, latency: Duration) {
        self.shared.lock().latency = latency;
    }

    /// Calls beyond this are refused with `RequestLimitExceeded`; `None` ends it.
    pub fn throttle(&self, shape: Option<TokenBucket>) {
        self.shared.lock().bucket = shape.map(Bucket::full);
    }

    /// What its instance metadata service says is the region.
    pub fn metadata_region(&self, region: &str) {
        region.clone_into(&mut self.shared.lock().metadata_region);
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
