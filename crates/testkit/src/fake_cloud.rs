//! The common parts of all fake clouds: a server of their own, the answers and faults that a test orders while it runs,
//! a token bucket, and the record of calls. A fake adds its [`Protocol`] and what its cloud holds.
//!
//! The response to a call is decided by the first of these that applies: the order for the next call, for the next of
//! its method, for every call, for the names in it; the credentials; the token bucket; the zones in trouble; the
//! objects of the cloud.
#![expect(clippy::disallowed_methods, reason = "a server of its own, in real time")]

mod bucket;
mod protocol;
mod scripted;
mod server;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use parking_lot::Mutex;

pub use bucket::TokenBucket;
pub use protocol::{Call, Error, Protocol, Quota, Words};
pub use scripted::Scripted;
pub use server::Body;
pub(crate) use server::{Port, has_bearer, query, response};

use bucket::Bucket;
use server::Outcome;

const HTML: &str = "<!DOCTYPE html><html><body>Welcome! Please log in.</body></html>";
const GARBAGE: &str = "\u{0}\u{1}{]<&nonsense";

/// A running fake of the cloud `P`. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeCloud<P: Protocol> {
    shared: Arc<Shared<P>>,
    port: Port,
}

#[derive(Debug, Default)]
struct Shared<P>(Mutex<State<P>>);

#[derive(Debug, Default)]
struct State<P> {
    cloud: P,
    script: VecDeque<Scripted>,
    /// For one method each.
    scripts: HashMap<String, VecDeque<Scripted>>,
    always: Option<Scripted>,
    bad_names: HashMap<String, Scripted>,
    bad_zones: BTreeSet<String>,
    slow_zones: BTreeSet<String>,
    latency: Duration,
    bucket: Option<Bucket>,
    calls: Vec<Call>,
}

impl<P: Protocol> FakeCloud<P> {
    /// Starts one that holds nothing, on a free port of 127.0.0.1.
    pub async fn start() -> Self {
        let shared = Arc::<Shared<P>>::default();
        let served = Arc::clone(&shared);
        let port = Port::open(move |request| handle(Arc::clone(&served), request)).await;
        Self { shared, port }
    }

    /// Returns its address, as an endpoint for clients.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.port.address())
    }

    /// The next calls get these answers, one each, before all else applies.
    pub fn script(&self, answers: impl IntoIterator<Item = Scripted>) {
        self.shared.0.lock().script.extend(answers);
    }

    /// The next calls of this method get these answers, one each.
    pub fn script_for(&self, api: &str, answers: impl IntoIterator<Item = Scripted>) {
        let mut state = self.shared.0.lock();
        state.scripts.entry(api.to_owned()).or_default().extend(answers);
    }

    /// From now on every call that the scripts leave over gets this answer; `None` ends it.
    pub fn always(&self, answer: Option<Scripted>) {
        self.shared.0.lock().always = answer;
    }

    /// Every call that names this gets this answer. The names are those of [`Call::names`].
    pub fn fail(&self, name: &str, answer: Scripted) {
        self.shared.0.lock().bad_names.insert(name.to_owned(), answer);
    }

    /// Every call that depends on this zone fails.
    pub fn fail_zone(&self, zone: &str) {
        self.shared.0.lock().bad_zones.insert(zone.to_owned());
    }

    /// Every call that depends on this zone is never answered.
    pub fn hang_zone(&self, zone: &str) {
        self.shared.0.lock().slow_zones.insert(zone.to_owned());
    }

    /// Ends what `fail`, `fail_zone` and `hang_zone` began.
    pub fn heal(&self) {
        let mut state = self.shared.0.lock();
        state.bad_names.clear();
        state.bad_zones.clear();
        state.slow_zones.clear();
    }

    /// Every answer takes this long.
    pub fn latency(&self, latency: Duration) {
        self.shared.0.lock().latency = latency;
    }

    /// Calls beyond this are refused as too many; `None` ends it.
    pub fn throttle(&self, shape: Option<TokenBucket>) {
        self.shared.0.lock().bucket = shape.map(Bucket::full);
    }

    /// Refuses connections from now on and breaks those that stand.
    pub async fn away(&self) {
        self.port.away().await;
    }

    /// Takes connections again, on the same port.
    pub async fn back(&self) {
        self.port.back().await;
    }

    /// The calls so far, in the order in which they came.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.0.lock().calls.clone()
    }

    /// Removes and returns the recorded calls.
    #[must_use]
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.shared.0.lock().calls)
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.shared.0.lock().calls.clear();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Changes what the cloud holds.
    pub(crate) fn change_cloud(&self, change: impl FnOnce(&mut P)) {
        change(&mut self.shared.0.lock().cloud);
    }
}

async fn handle<P: Protocol>(shared: Arc<Shared<P>>, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let (latency, outcome, quota) = {
        let mut state = shared.0.lock();
        let (latency, outcome) = state.receive(&Request::from_parts(head, body));
        (latency, outcome, state.bucket.as_ref().map(Bucket::quota))
    };
    if latency > Duration::ZERO {
        tokio::time::sleep(latency).await;
    }
    let mut answer = outcome.carry_out(P::CONTENT_TYPE).await?;
    for (name, value) in quota.map(P::quota).unwrap_or_default() {
        let value = HeaderValue::try_from(value).map_err(io::Error::other)?;
        answer.headers_mut().insert(name, value);
    }
    Ok(answer)
}

impl<P: Protocol> State<P> {
    fn receive(&mut self, request: &Request<Bytes>) -> (Duration, Outcome) {
        if let Some(answer) = self.cloud.aside(request) {
            return (Duration::ZERO, Outcome::Aside(answer));
        }
        let Some((call, parameters)) = P::read(request) else {
            let page = "<html>404 page not found".to_owned();
            return (
                Duration::ZERO,
                Outcome::Aside(response(StatusCode::NOT_FOUND, "text/html", page)),
            );
        };
        let (rows, word, outcome) = match self.decide(self.cloud.knows(request), &call, &parameters) {
            Ok((rows, body)) => (rows, "ok".to_owned(), Outcome::Reply(200, body)),
            Err(scripted) => {
                let (word, outcome) = follow::<P>(call.api, scripted);
                (0, word, outcome)
            }
        };
        self.calls.push(Call {
            rows,
            outcome: word,
            ..call
        });
        (self.latency, outcome)
    }

    fn decide(&mut self, known: bool, call: &Call, parameters: &P::Parameters) -> Result<(usize, String), Scripted> {
        if let Some(ordered) = self.ordered(call) {
            return Err(ordered);
        }
        if !known {
            return Err(Scripted::Unauthenticated);
        }
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.take()) {
            return Err(Scripted::Throttled);
        }
        if self.cloud.depends_on(parameters, &self.slow_zones) {
            return Err(Scripted::Hang);
        }
        if self.cloud.depends_on(parameters, &self.bad_zones) {
            return Err(Scripted::Failed);
        }
        self.cloud.answer(parameters)
    }

    fn ordered(&mut self, call: &Call) -> Option<Scripted> {
        let bad = |name: &String| self.bad_names.get(name).cloned();
        self.script
            .pop_front()
            .or_else(|| self.scripts.get_mut(call.api)?.pop_front())
            .or_else(|| self.always.clone())
            .or_else(|| call.names.iter().find_map(bad))
    }
}

/// The name of an answer on record, and what it is.
fn follow<P: Protocol>(api: &str, scripted: Scripted) -> (String, Outcome) {
    let error = |error: Error<'_>| (error.1.to_owned(), Outcome::Reply(error.0, P::error(api, error)));
    let raw = |status, body| ("raw".to_owned(), Outcome::Reply(status, body));
    match scripted {
        Scripted::Throttled => error(P::WORDS.throttled),
        Scripted::Failed => error(P::WORDS.failed),
        Scripted::Denied => error(P::WORDS.denied),
        Scripted::Unauthenticated => error(P::WORDS.unauthenticated),
        Scripted::Error { status, code, message } => error((status, code, &message)),
        Scripted::Raw { status, body } => raw(status, body),
        Scripted::Html => raw(200, HTML.to_owned()),
        Scripted::Garbage => raw(200, GARBAGE.to_owned()),
        Scripted::Drop => ("drop".to_owned(), Outcome::Drop),
        Scripted::BreakOff => ("break-off".to_owned(), Outcome::BreakOff(P::BEGINNING)),
        Scripted::Hang => ("hang".to_owned(), Outcome::Hang),
    }
}
