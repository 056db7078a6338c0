//! A Hetzner Cloud of our own, for scale and for faults: the part of its API (version 1) that says what a server is, over plain
//! HTTP, so that it is reached through the real client.
//!
//! It words its answers as the API does, after the public reference: servers in pages of at most 50 with `meta.pagination`,
//! selectors of labels, errors with a code. It checks that calls bring its token. Faults are set while it runs. Every call is
//! on record, with the servers that it was answered.

mod answer;
mod instance;
mod server;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use answer::Scripted;
pub use instance::{FakeServer, server};

use crate::fake_http::{Bucket, Port};
pub use crate::fake_http::{TokenBucket, nobody};

/// The token that calls have to bring.
pub const TOKEN: &str = "the-token-of-the-project";

/// A running fake. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeHetzner {
    shared: Arc<Shared>,
    port: Port,
}

/// One call as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The server that it named; none for a listing.
    pub id: Option<u64>,
    /// The selector of a listing.
    pub selector: Option<String>,
    /// The servers in the answer.
    pub rows: usize,
    /// What it was answered: `ok`, or the code of the error, or the name of the fault.
    pub outcome: String,
}

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    servers: BTreeMap<u64, FakeServer>,
    script: VecDeque<Scripted>,
    always: Option<Scripted>,
    bad_ids: HashMap<u64, Scripted>,
    latency: Duration,
    bucket: Option<Bucket>,
    calls: Vec<Call>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeHetzner {
    /// Starts one with nothing in its project, on a free port of 127.0.0.1.
    pub async fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let port = server::open(&shared).await;
        Self { shared, port }
    }

    /// Where it is, as an endpoint for the client.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// What a process of its own needs in its environment to be let in.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("HCLOUD_TOKEN", TOKEN.to_owned())]
    }

    /// Lists these from now on, each in place of the one with its id.
    pub fn launch(&self, servers: impl IntoIterator<Item = FakeServer>) {
        let keyed = servers.into_iter().map(|server| (server.id, server));
        self.shared.lock().servers.extend(keyed);
    }

    /// Lists the server no more.
    pub fn forget(&self, id: u64) {
        self.shared.lock().servers.remove(&id);
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.shared.lock().calls.clear();
    }

    /// The next calls get these answers, one each, before all else applies.
    pub fn script(&self, answers: impl IntoIterator<Item = Scripted>) {
        self.shared.lock().script.extend(answers);
    }

    /// From now on every call that the script leaves over gets this answer; `None` ends it.
    pub fn always(&self, answer: Option<Scripted>) {
        self.shared.lock().always = answer;
    }

    /// Every call that names this server gets this answer.
    pub fn fail_id(&self, id: u64, answer: Scripted) {
        self.shared.lock().bad_ids.insert(id, answer);
    }

    /// Ends what [`FakeHetzner::fail_id`] began.
    pub fn heal(&self) {
        self.shared.lock().bad_ids.clear();
    }

    /// Every answer takes this long.
    pub fn latency(&self, latency: Duration) {
        self.shared.lock().latency = latency;
    }

    /// Calls beyond this are refused with `rate_limit_exceeded`; `None` ends it.
    pub fn throttle(&self, shape: Option<TokenBucket>) {
        self.shared.lock().bucket = shape.map(Bucket::full);
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
