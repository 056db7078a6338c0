#![expect(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::BoxError;

use super::*;
use crate::client::by_hand::{self, Answer};
use crate::clock::{Clock, SimulatedClock, SystemClock};
use crate::testing::{Lines, beside, kit_on, settle};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// The fault of a write.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Answered with this status, nothing done.
    Status(u16),
    /// Never answered, nothing done.
    Hang,
    /// Done, and never answered.
    DoneUnheard,
    /// Done, and answered this much later.
    Slow(Duration),
    /// Answered 200 with an object that is none.
    Garbage,
}

#[derive(Default)]
struct Server {
    lease: Option<Value>,
    version: u64,
    faults: VecDeque<Fault>,
    /// The fault of every write for which `faults` has nothing.
    always: Option<Fault>,
    unreadable: bool,
    /// Reads are answered with this status.
    refuses_reads: Option<u16>,
    /// Reads are never answered.
    mute: bool,
    unwatchable: bool,
    watches: Vec<UnboundedSender<Bytes>>,
    reads: usize,
    /// Time since the start and holder of each write that arrived.
    writes: Vec<(Duration, String)>,
}

impl Server {
    fn store(&mut self, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.tell(if self.lease.is_some() { "MODIFIED" } else { "ADDED" }, &lease);
        self.lease = Some(lease.clone());
        lease
    }

    fn delete(&mut self) {
        let lease = self.lease.take().unwrap();
        self.tell("DELETED", &lease);
    }

    fn tell(&mut self, event: &str, lease: &Value) {
        let line = format!("{}\n", json!({"type": event, "object": lease}));
        self.watches
            .retain(|watch| watch.unbounded_send(line.clone().into()).is_ok());
    }

    fn holder(&self) -> &str {
        self.lease
            .as_ref()
            .and_then(|lease| lease["spec"]["holderIdentity"].as_str())
            .unwrap_or("missing")
    }

    fn spec(&self) -> Lease {
        serde_json::from_value(self.lease.clone().unwrap()).unwrap()
    }

    /// As an API server: 404, 409 on a wrong resourceVersion or on what exists, else the object as stored.
    fn write(&mut self, method: &Method, lease: Value) -> Result<Value, u16> {
        match (&self.lease, method) {
            (None, &Method::PUT) => Err(404),
            (Some(_), &Method::POST) => Err(409),
            (Some(old), _) if old["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] => Err(409),
            _ => Ok(self.store(lease)),
        }
    }
}

fn answer(result: Result<Value, u16>) -> Answer {
    let (code, body) = match result {
        Ok(object) => (200, object),
        Err(code) => (
            code,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}),
        ),
    };
    let body = Full::new(Bytes::from(body.to_string()))
        .map_err(Into::into)
        .boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// Some replicas and the API server that they share.
struct World {
    server: Arc<Mutex<Server>>,
    clock: SimulatedClock,
}

struct Replica {
    leadership: Leadership,
    shutdown: CancellationToken,
    run: JoinHandle<Result<(), LeaderError>>,
    kit: Kit,
}

impl World {
    fn new() -> Self {
        Self {
            server: Arc::default(),
            clock: SimulatedClock::new(),
        }
    }

    fn server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }

    /// The client of a replica, and the window that its writes need.
    fn client(&self, kit: &Kit) -> (Client, Window) {
        let window = Window::new(Arc::clone(&kit.clock));
        let (server, clock) = (Arc::clone(&self.server), self.clock.clone());
        let client = by_hand::client(
            move |request| handle(Arc::clone(&server), clock.clone(), request),
            window.fence(),
            kit,
        );
        (client, window)
    }

    fn replica(&self, identity: &str) -> Replica {
        let kit = kit_on(Arc::new(self.clock.clone()));
        let (client, window) = self.client(&kit);
        let (elector, leadership) = Elector::with(client, window, settings(identity), &kit);
        let shutdown = CancellationToken::new();
        let run = beside(elector.run(shutdown.clone()));
        Replica {
            leadership,
            shutdown,
            run,
            kit,
        }
    }

    /// A Lease of a replica that is not part of the test, last renewed long ago by its own clock.
    fn held_by(&self, holder: &str) {
        self.server().store(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "kops-controller-leader", "namespace": "kube-system", "labels": {"kept": "yes"}},
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 6,
                "acquireTime": "2001-01-01T00:00:00.000000Z", "renewTime": "2001-01-01T00:00:00.000000Z",
            },
        }));
    }

    fn renewed_by(&self, holder: &str) {
        let mut lease = self.server().lease.clone().unwrap();
        lease["spec"]["holderIdentity"] = json!(holder);
        lease["spec"]["renewTime"] = json!(format!("{:.6}", Timestamp::UNIX_EPOCH + self.clock.elapsed()));
        self.server().store(lease);
    }
}

fn settings(identity: &str) -> LeaseSettings {
    LeaseSettings {
        namespace: "kube-system".to_owned(),
        name: "kops-controller-leader".to_owned(),
        identity: identity.to_owned(),
        timing: Timing::default(),
    }
}

async fn handle(
    server: Arc<Mutex<Server>>,
    clock: SimulatedClock,
    request: Request<Bytes>,
) -> Result<Answer, BoxError> {
    let hang = || std::future::pending::<Result<Answer, BoxError>>();
    if request.method() == Method::GET && request.uri().query().is_some_and(|query| query.contains("watch=true")) {
        let mut server = server.lock().unwrap();
        if server.unwatchable {
            return Ok(answer(Err(403)));
        }
        let (sender, lines) = unbounded();
        server.watches.push(sender);
        let body = StreamBody::new(lines.map(|line| Ok::<_, BoxError>(Frame::data(line)))).boxed_unsync();
        return Ok(Response::new(body));
    }
    if request.method() == Method::GET && server.lock().unwrap().mute {
        return hang().await;
    }
    if request.method() == Method::GET {
        let mut server = server.lock().unwrap();
        server.reads += 1;
        let found = server.lease.clone().ok_or(404);
        let refused = server.unreadable.then_some(503).or(server.refuses_reads);
        return Ok(answer(refused.map_or(found, Err)));
    }
    let lease: Value = serde_json::from_slice(request.body()).unwrap();
    let fault = {
        let mut server = server.lock().unwrap();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        server.writes.push((clock.elapsed(), holder));
        server.faults.pop_front().or(server.always)
    };
    let write = || server.lock().unwrap().write(request.method(), lease);
    match fault {
        None => Ok(answer(write())),
        Some(Fault::Status(code)) => Ok(answer(Err(code))),
        Some(Fault::Hang) => hang().await,
        Some(Fault::DoneUnheard) => {
            let _ = write();
            hang().await
        }
        Some(Fault::Slow(time)) => {
            let done = write();
            clock.sleep(time).await;
            Ok(answer(done))
        }
        Some(Fault::Garbage) => Ok(answer(Ok(json!({"metadata": {}})))),
    }
}

async fn pass(time: Duration) {
    SystemClock.sleep(time).await;
    settle().await;
}

/// The end of the run: `None` without loss.
async fn loss(replica: Replica) -> Option<Loss> {
    match replica.run.await.unwrap() {
        Ok(()) => None,
        Err(LeaderError::Lost { loss, .. }) => Some(loss),
        Err(error @ LeaderError::Rewound { .. }) => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn creates_a_lease_that_is_not_there_and_renews_it() {
    let world = World::new();
    let a = world.replica("a");
    pass(MS).await;
    assert!(a.leadership.is_leader());
    assert_eq!(a.kit.metrics.leader.get(), 1);
    assert_eq!(world.server().spec().spec.unwrap().lease_transitions, Some(0));
    pass(60 * SECOND).await;
    assert!(a.leadership.is_leader() && !a.run.is_finished());
    let writes: Vec<u64> = world.server().writes.iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(writes, (0..=60).step_by(2).collect::<Vec<_>>());
    assert_eq!(world.server().reads, 1, "a leader does not read what it writes");
    let spec = world.server().spec().spec.unwrap();
    assert!(
        spec.renew_time
            .unwrap()
            .0
            .duration_since(spec.acquire_time.unwrap().0)
            .as_secs()
            == 60
    );
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_lease_is_taken_when_it_has_not_changed_for_its_duration() {
    let world = World::new();
    world.held_by("b");
    let a = world.replica("a");
    // Its renewTime lies 25 years back; what counts is when this replica saw it.
    pass(15 * SECOND - MS).await;
    assert!(!a.leadership.is_leader());
    assert_eq!(world.server().writes, []);
    pass(2 * MS).await;
    assert!(a.leadership.is_leader());
    let lease = world.server().spec();
    assert_eq!(lease.spec.unwrap().lease_transitions, Some(7));
    assert_eq!(lease.metadata.labels.unwrap()["kept"], "yes");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_is_left_alone() {
    for unwatchable in [false, true] {
        let world = World::new();
        world.server().unwatchable = unwatchable;
        world.held_by("b");
        let a = world.replica("a");
        for _ in 0..20 {
            pass(9 * SECOND).await;
            world.renewed_by("b");
        }
        assert!(!a.leadership.is_leader());
        assert_eq!(world.server().writes, []);
        // Then it dies: 15 s after its last renewal was seen, which without a watch is one look later.
        let death = world.clock.elapsed();
        a.leadership.acquired().await;
        let took = world.clock.elapsed() - death;
        let limit = if unwatchable {
            Duration::from_millis(17_500)
        } else {
            Duration::from_millis(15_001)
        };
        assert!(took >= 15 * SECOND - MS && took <= limit, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_given_back_is_taken_at_once() {
    for (unwatchable, limit) in [(false, 50 * MS), (true, Duration::from_millis(2_500))] {
        let world = World::new();
        world.server().unwatchable = unwatchable;
        world.held_by("b");
        let a = world.replica("a");
        pass(7 * SECOND).await;
        let given_back = world.clock.elapsed();
        world.renewed_by("");
        a.leadership.acquired().await;
        assert!(
            world.clock.elapsed() - given_back <= limit,
            "{:?}",
            world.clock.elapsed() - given_back
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_is_begun_again() {
    let world = World::new();
    world.held_by("b");
    let a = world.replica("a");
    for _ in 0..3 {
        pass(5 * SECOND).await;
        world.renewed_by("b");
        world.server().watches.clear();
    }
    pass(SECOND).await;
    assert_eq!(world.server().watches.len(), 1);
    let given_back = world.clock.elapsed();
    world.renewed_by("");
    a.leadership.acquired().await;
    assert!(world.clock.elapsed() - given_back < 50 * MS);
}

#[tokio::test(start_paused = true)]
async fn of_several_one_leads() {
    let world = World::new();
    world.held_by("old");
    let replicas: Vec<Replica> = ["a", "b", "c"].map(|name| world.replica(name)).into();
    pass(16 * SECOND).await;
    let leads = |replicas: &[Replica]| replicas.iter().filter(|replica| replica.leadership.is_leader()).count();
    assert_eq!(leads(&replicas), 1);
    pass(60 * SECOND).await;
    assert_eq!(leads(&replicas), 1);
    assert_eq!(world.server().spec().spec.unwrap().lease_transitions, Some(7));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_renewed_is_lost_at_the_deadline() {
    for fault in [Fault::Status(500), Fault::Status(403), Fault::Hang, Fault::Garbage] {
        let world = World::new();
        let a = world.replica("a");
        pass(5 * SECOND).await;
        // The last success began at 4 s.
        world.server().always = Some(fault);
        pass(9 * SECOND - MS).await;
        assert!(a.leadership.is_leader() && !a.run.is_finished(), "{fault:?}");
        pass(MS).await;
        assert!(!a.leadership.is_leader(), "{fault:?}");
        assert_eq!(a.kit.metrics.leader.get(), 0);
        assert_eq!(loss(a).await, Some(Loss::Deadline(10 * SECOND)));
        let attempts = world.server().writes.iter().filter(|(at, _)| *at > 5 * SECOND).count();
        assert!((2..=8).contains(&attempts), "{fault:?}: {attempts} attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_back_shortly_before_the_deadline_is_used() {
    let world = World::new();
    let a = world.replica("a");
    pass(5 * SECOND).await;
    // The last success began at 4 s.
    world.server().always = Some(Fault::Status(503));
    pass(8 * SECOND + 600 * MS).await;
    world.server().always = None;
    pass(SECOND).await;
    assert!(a.leadership.is_leader() && !a.run.is_finished());
}

#[tokio::test(start_paused = true)]
async fn nothing_that_a_renewal_waits_for_outlasts_the_deadline() {
    let world = World::new();
    let a = world.replica("a");
    pass(5 * SECOND).await;
    // Every renewal conflicts, and what is there cannot be found out.
    world.server().always = Some(Fault::Status(409));
    world.server().mute = true;
    assert!(loss(a).await.is_some());
    assert_eq!(world.clock.elapsed(), 14 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_start_of_a_renewal() {
    let world = World::new();
    let a = world.replica("a");
    pass(SECOND).await;
    // Begun at 2 s and answered at 6 s; all that follow fail.
    world.server().faults.push_back(Fault::Slow(4 * SECOND));
    world.server().always = Some(Fault::Status(500));
    pass(11 * SECOND - MS).await;
    assert!(a.leadership.is_leader());
    pass(MS).await;
    assert!(!a.leadership.is_leader());
    assert!(loss(a).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_is_no_success_and_no_loss() {
    let world = World::new();
    let a = world.replica("a");
    pass(SECOND).await;
    world.server().faults.push_back(Fault::DoneUnheard);
    pass(30 * SECOND).await;
    assert!(a.leadership.is_leader() && !a.run.is_finished());
    assert_eq!(world.server().spec().spec.unwrap().lease_transitions, Some(0));

    // Answers that never come again: what was stored meanwhile counts for nothing.
    world.server().always = Some(Fault::DoneUnheard);
    pass(10 * SECOND).await;
    assert!(!a.leadership.is_leader());
    assert!(loss(a).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_is_lost_or_no_lease_is_no_success() {
    for fault in [
        Fault::DoneUnheard,
        Fault::Garbage,
        Fault::Slow(Duration::from_millis(10_001)),
    ] {
        let world = World::new();
        world.held_by("");
        world.server().faults.push_back(fault);
        let a = world.replica("a");
        pass(SECOND).await;
        assert!(!a.leadership.is_leader(), "{fault:?}");
        a.leadership.acquired().await;
        assert!(world.clock.elapsed() < 9 * SECOND, "{fault:?}");
        assert_eq!(
            world.server().spec().spec.unwrap().lease_transitions,
            Some(7),
            "{fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn another_holder_ends_leadership_at_once() {
    for taker in ["b", ""] {
        let world = World::new();
        let a = world.replica("a");
        pass(3 * SECOND).await;
        world.renewed_by(taker);
        pass(SECOND).await;
        assert!(!a.leadership.is_leader());
        assert_eq!(loss(a).await, Some(Loss::Taken(taker.to_owned())));
        assert_eq!(world.server().holder(), taker);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_past_its_deadline_writes_nothing_more() {
    let world = World::new();
    let a = world.replica("a");
    pass(3 * SECOND).await;
    let before = world.server().writes.len();
    world.clock.stop_for(11 * SECOND);
    assert!(!a.leadership.is_leader(), "at the very instant at which it goes on");
    assert_eq!(loss(a).await, Some(Loss::Deadline(10 * SECOND)));
    assert_eq!(world.server().writes.len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_during_a_renewal_writes_nothing_more() {
    let world = World::new();
    let a = world.replica("a");
    pass(3 * SECOND).await;
    world.server().faults.push_back(Fault::Slow(SECOND));
    pass(SECOND + 500 * MS).await;
    let before = world.server().writes.len();
    world.clock.stop_for(11 * SECOND);
    assert!(!a.leadership.is_leader());
    // The answer, a success, is read after it goes on: it is older than the deadline.
    assert_eq!(loss(a).await, Some(Loss::Deadline(10 * SECOND)));
    assert_eq!(world.server().writes.len(), before);
}

/// The leadership of this replica, each time that somebody looked, and whether a write was refused after it had led.
#[derive(Default)]
struct History {
    led: Vec<bool>,
    refused: bool,
}

impl History {
    fn look(&mut self, leadership: &Leadership) {
        let write = leadership.begin_write().is_some();
        self.led.push(write);
        self.refused |= !write;
    }

    /// Leadership that was lost did not come back.
    fn check(&self, name: &str) {
        let came_back = self.led.windows(2).any(|pair| pair == [false, true]);
        assert!(!came_back, "{name}: {:?}", self.led);
    }
}

/// A leader is stopped for 1 s to 20 s, between renewals or while the response to one is on its way, and goes on with
/// or without somebody looking at its leadership before the elector runs.
#[tokio::test(start_paused = true)]
async fn leadership_that_lapsed_does_not_come_back() {
    for stop in 1..=20 {
        for (slow, looks) in [(false, false), (false, true), (true, false), (true, true)] {
            let name = format!("stopped for {stop} s, renewal under way: {slow}, looked at: {looks}");
            let world = World::new();
            let a = world.replica("a");
            let mut history = History::default();
            pass(3 * SECOND).await;
            if slow {
                // Sent at 4 s; the response is on its way when the process is stopped.
                world.server().faults.push_back(Fault::Slow(SECOND));
            }
            pass(SECOND + 500 * MS).await;
            history.look(&a.leadership);
            world.clock.stop_for(stop * SECOND);
            if looks {
                history.look(&a.leadership);
            }
            settle().await;
            history.look(&a.leadership);
            for _ in 0..15 {
                pass(SECOND).await;
                history.look(&a.leadership);
            }
            history.check(&name);
            // Last renewed by the request of 4 s, or by that of 2 s while the response to the next one was not there.
            let deadline = if slow { 12 * SECOND } else { 14 * SECOND };
            if SECOND * stop + 4_500 * MS >= deadline {
                assert!(!looks || history.refused, "{name}");
                assert!(
                    a.run.is_finished(),
                    "{name}: a write was refused and the process leads on"
                );
                assert_eq!(loss(a).await, Some(Loss::Deadline(10 * SECOND)), "{name}");
            } else {
                assert!(a.leadership.is_leader() && !a.run.is_finished(), "{name}");
                a.run.abort();
            }
        }
    }
}

/// The clock of a machine that was suspended: its timers come late.
#[derive(Debug)]
struct LateTimers(SimulatedClock);

impl Clock for LateTimers {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_somebody_wrote_into_the_lease_it_is_taken_over() {
    let deep = (0..200).fold(json!({}), |inner, _| json!({ "f:a": inner }));
    let managed = json!([{"manager": "x", "operation": "Update", "fieldsV1": deep}]);
    for (field, value) in [
        ("/spec/renewTime", json!("9999-12-31T23:59:59Z")),
        ("/spec/acquireTime", json!("9999-12-31T23:59:59Z")),
        ("/metadata/managedFields", managed),
        ("/spec/holderIdentity", json!("x".repeat(900_000))),
    ] {
        let world = World::new();
        world.held_by("x");
        let (parent, name) = field.rsplit_once('/').unwrap();
        world.server().lease.as_mut().unwrap().pointer_mut(parent).unwrap()[name] = value;
        let a = world.replica("a");
        pass(20 * SECOND).await;
        assert!(a.leadership.is_leader(), "{field}");
    }
}

#[test]
fn a_loss_shows_the_start_of_a_long_name() {
    let shown = Loss::Taken("x".repeat(900_000)).to_string();
    assert!(shown.len() < 300, "{}", shown.len());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_held_up_by_a_stop_is_not_sent() {
    let world = World::new();
    world.held_by("a");
    let lease = world.server().spec();
    let kit = kit_on(Arc::new(LateTimers(world.clock.clone())));
    let (client, window) = world.client(&kit);
    let access = Access::new("kube-system", "kops-controller-leader", Arc::clone(&kit.clock));
    let requests = Requests::new(client, window, &settings("a"), &kit.clock, access);
    let mut renewal = Box::pin(requests.put(&lease, false, kit.clock.monotonic() + 10 * SECOND));
    // Under way, and not yet at the connection.
    assert!(futures::poll!(&mut renewal).is_pending());
    world.clock.stop_for(11 * SECOND);
    let error = renewal.await.unwrap_err();
    assert!(
        matches!(&error, Failure::Refused(error) if crate::is_fenced(error)),
        "{error:?}"
    );
    assert_eq!(world.server().writes, []);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_during_its_claim_claims_again() {
    let world = World::new();
    world.held_by("");
    world.server().faults.push_back(Fault::Slow(SECOND));
    let a = world.replica("a");
    pass(500 * MS).await;
    world.clock.stop_for(11 * SECOND);
    pass(5 * SECOND).await;
    assert!(a.leadership.is_leader() && !a.run.is_finished());
}

#[tokio::test(start_paused = true)]
async fn shutdown_gives_the_lease_back() {
    let world = World::new();
    let a = world.replica("a");
    let b = world.replica("b");
    pass(5 * SECOND).await;
    let (leader, standby) = if a.leadership.is_leader() { (a, b) } else { (b, a) };
    let told = world.clock.elapsed();
    leader.shutdown.cancel();
    standby.leadership.acquired().await;
    assert!(!leader.leadership.is_leader());
    assert!(
        world.clock.elapsed() - told < 50 * MS,
        "{:?}",
        world.clock.elapsed() - told
    );
    assert_eq!(leader.kit.metrics.leader.get(), 0);
    assert_eq!(loss(leader).await, None);
    assert_eq!(world.server().spec().spec.unwrap().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_given_back_says_so() {
    let world = World::new();
    let a = world.replica("a");
    pass(5 * SECOND).await;
    a.shutdown.cancel();
    assert_eq!(loss(a).await, None);
    let spec = world.server().spec().spec.unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_duration_seconds),
        (Some(""), Some(1))
    );
    assert_eq!(spec.acquire_time, spec.renew_time);
}

#[tokio::test(start_paused = true)]
async fn controllers_may_finish_before_the_lease_is_given_back_but_not_for_long() {
    let world = World::new();
    let a = world.replica("a");
    pass(5 * SECOND).await;
    let work = a.leadership.begin_work();
    a.shutdown.cancel();
    pass(100 * MS).await;
    assert!(a.leadership.is_leader());
    assert_eq!(world.server().holder(), "a");
    drop(work);
    settle().await;
    assert_eq!(world.server().holder(), "");
    assert_eq!(loss(a).await, None);

    let b = world.replica("b");
    b.leadership.acquired().await;
    let _endless = b.leadership.begin_work();
    b.shutdown.cancel();
    pass(WORK_TIMEOUT + MS).await;
    assert_eq!(world.server().holder(), "");
}

#[tokio::test(start_paused = true)]
async fn with_a_write_unanswered_the_lease_is_left_to_expire() {
    let world = World::new();
    let a = world.replica("a");
    pass(5 * SECOND).await;
    let write = a.leadership.begin_write().unwrap();
    a.shutdown.cancel();
    pass(10 * MS).await;
    assert!(!a.leadership.is_leader(), "no further write begins");
    assert!(a.leadership.begin_write().is_none());
    pass(SECOND).await;
    assert!(a.run.is_finished());
    assert_eq!(world.server().holder(), "a");
    drop(write);
}

#[tokio::test(start_paused = true)]
async fn after_an_abandoned_write_the_lease_is_left_to_expire() {
    for (waits, holder) in [(SECOND, "a"), (16 * SECOND, "")] {
        let world = World::new();
        let a = world.replica("a");
        pass(5 * SECOND).await;
        a.leadership.begin_write().unwrap().answered();
        drop(a.leadership.begin_write().unwrap());
        pass(waits).await;
        a.shutdown.cancel();
        assert_eq!(loss(a).await, None);
        assert_eq!(world.server().holder(), holder, "{waits:?} after it");
    }
}

#[tokio::test(start_paused = true)]
async fn giving_back_finds_out_what_became_of_a_renewal() {
    let world = World::new();
    let a = world.replica("a");
    pass(SECOND).await;
    world.server().faults.push_back(Fault::DoneUnheard);
    pass(SECOND + 100 * MS).await;
    let told = world.clock.elapsed();
    a.shutdown.cancel();
    assert_eq!(loss(a).await, None);
    assert_eq!(world.server().holder(), "");
    assert!(world.clock.elapsed() - told < 900 * MS);
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_over_in_time_when_the_server_is_away() {
    let world = World::new();
    let a = world.replica("a");
    pass(5 * SECOND).await;
    world.server().always = Some(Fault::Hang);
    pass(1500 * MS).await;
    let told = world.clock.elapsed();
    a.shutdown.cancel();
    assert_eq!(loss(a).await, None);
    assert!(world.clock.elapsed() - told < 900 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_standby_stops_without_a_write() {
    let world = World::new();
    world.held_by("b");
    let a = world.replica("a");
    pass(5 * SECOND).await;
    a.shutdown.cancel();
    assert_eq!(loss(a).await, None);
    assert_eq!(world.server().writes, []);
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_stops_in_the_middle_of_a_claim_does_not_keep_the_lease() {
    let world = World::new();
    world.held_by("");
    world.server().faults.push_back(Fault::DoneUnheard);
    let a = world.replica("a");
    pass(SECOND).await;
    assert_eq!(world.server().holder(), "a");
    a.shutdown.cancel();
    assert_eq!(loss(a).await, None);
    assert_eq!(world.server().holder(), "");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deleted_is_created_again() {
    let world = World::new();
    let a = world.replica("a");
    pass(5 * SECOND).await;
    world.server().delete();
    pass(5 * SECOND).await;
    assert!(a.leadership.is_leader());
    assert_eq!(world.server().holder(), "a");
}

/// The storage of the API server goes back by this many versions.
fn rewinds(world: &World, versions: u64) {
    let mut server = world.server();
    server.version -= versions;
    let version = server.version.to_string();
    if let Some(lease) = &mut server.lease {
        lease["metadata"]["resourceVersion"] = json!(version);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_ends_when_the_storage_of_the_api_server_goes_back() {
    for deleted in [false, true] {
        let world = World::new();
        let a = world.replica("a");
        pass(20 * SECOND).await;
        assert!(a.leadership.is_leader());
        rewinds(&world, 5);
        if deleted {
            world.server().lease = None;
        }
        pass(3 * SECOND).await;
        assert!(!a.leadership.is_leader(), "lease deleted: {deleted}");
        let error = a.run.await.unwrap().unwrap_err().to_string();
        let words = "went back in time, so this replica starts anew: the Lease kube-system/kops-controller-leader has the version";
        assert!(error.contains(words), "{error}");
        assert_eq!(a.kit.metrics.leader.get(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_ends_when_the_storage_of_the_api_server_goes_back() {
    let world = World::new();
    world.held_by("another");
    let a = world.replica("a");
    for _ in 0..10 {
        pass(SECOND).await;
        world.renewed_by("another");
    }
    assert!(!a.run.is_finished());
    rewinds(&world, 5);
    pass(3 * SECOND).await;
    assert!(a.run.is_finished(), "it goes on");
    let LeaderError::Rewound { version, newest, .. } = a.run.await.unwrap().unwrap_err() else {
        panic!("it is not told");
    };
    assert!(version < newest, "{version} after {newest}");
    assert!(!a.leadership.is_leader());
}

/// The watch of an API server may be behind the one that answered a read.
#[tokio::test(start_paused = true)]
async fn a_late_event_of_the_watch_does_not_end_a_standby() {
    let world = World::new();
    world.held_by("another");
    let a = world.replica("a");
    pass(SECOND).await;
    let old = world.server().lease.clone().unwrap();
    for _ in 0..5 {
        world.renewed_by("another");
        pass(2 * SECOND).await;
    }
    world.server().tell("MODIFIED", &old);
    pass(5 * SECOND).await;
    assert!(!a.run.is_finished());
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_label_does_not_end_leadership() {
    let world = World::new();
    let a = world.replica("a");
    pass(5 * SECOND).await;
    let mut lease = world.server().lease.clone().unwrap();
    lease["metadata"]["labels"] = json!({"team": "x"});
    world.server().store(lease);
    pass(5 * SECOND).await;
    assert!(a.leadership.is_leader());
    assert_eq!(world.server().spec().metadata.labels.unwrap()["team"], "x");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_asked_at_a_bounded_rate_and_then_used() {
    let world = World::new();
    world.held_by("b");
    {
        let mut server = world.server();
        server.unreadable = true;
        server.unwatchable = true;
        server.always = Some(Fault::Status(503));
    }
    let a = world.replica("a");
    pass(30 * SECOND).await;
    {
        let mut server = world.server();
        assert!(
            server.reads <= 20 && server.writes.len() <= 20,
            "{} {}",
            server.reads,
            server.writes.len()
        );
        server.unreadable = false;
        server.always = None;
    }
    world.renewed_by("b");
    pass(10 * SECOND).await;
    assert!(!a.leadership.is_leader());
    pass(10 * SECOND).await;
    assert!(a.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_standby_without_a_watch_looks_no_more_often_for_that() {
    for unreadable in [true, false] {
        let world = World::new();
        world.held_by("b");
        let _a = world.replica("a");
        pass(5 * SECOND).await;
        let before = {
            let mut server = world.server();
            server.unwatchable = true;
            server.unreadable = unreadable;
            server.always = Some(Fault::Status(503));
            server.watches.clear();
            server.reads
        };
        pass(30 * SECOND).await;
        let looked = world.server().reads - before;
        assert!((10..=20).contains(&looked), "{looked}");
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_without_end_do_not_make_a_standby_spin() {
    let world = World::new();
    world.held_by("");
    world.server().always = Some(Fault::Status(409));
    let a = world.replica("a");
    pass(30 * SECOND).await;
    assert!(!a.leadership.is_leader());
    assert!(world.server().writes.len() <= 30, "{}", world.server().writes.len());
}

#[test]
fn no_two_processes_have_one_identity() {
    let (one, other) = (identity("node-1"), identity("node-1"));
    assert!(one.starts_with("node-1_") && one != other);
}

/// A check of a replica that a test makes pass and fail.
#[derive(Clone, Default)]
struct Passes(Arc<AtomicBool>);

impl Passes {
    fn set(&self, passes: bool) {
        self.0.store(passes, Ordering::SeqCst);
    }

    fn check(&self) -> impl Fn() -> Result<(), String> + Send + Sync + use<> {
        let passes = Arc::clone(&self.0);
        move || {
            let passes = passes.load(Ordering::SeqCst);
            passes.then_some(()).ok_or_else(|| "access denied".to_owned())
        }
    }
}

impl Replica {
    /// Adds a check that fails so far.
    fn is_checked(&self) -> Passes {
        let passes = Passes::default();
        self.kit.checks.prefer("state-store", passes.check());
        passes
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_could_do_nothing_does_not_stand() {
    let world = World::new();
    let a = world.replica("a");
    let listed = Passes::default();
    a.kit.checks.require("cache/node", listed.check());
    pass(600 * SECOND).await;
    assert_eq!(world.server().writes, []);
    assert!(world.server().reads < 600, "{}", world.server().reads);
    listed.set(true);
    pass(200 * MS).await;
    assert!(a.leadership.is_leader());
    // Its cached objects are still there.
    listed.set(false);
    pass(600 * SECOND).await;
    assert!(a.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_not_fit_stands_when_nobody_else_does() {
    let world = World::new();
    world.held_by("x");
    let a = world.replica("a");
    let _never = a.is_checked();
    // It is free after 15 s.
    pass(29 * SECOND).await;
    assert_eq!(world.server().writes, []);
    pass(2 * SECOND).await;
    assert!(a.leadership.is_leader());

    let other = World::new();
    other.held_by("x");
    let (unfit, fit) = (other.replica("unfit"), other.replica("fit"));
    let _never = unfit.is_checked();
    pass(31 * SECOND).await;
    assert!(fit.leadership.is_leader() && !unfit.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_not_fit_hands_over_to_a_replica_that_is() {
    let world = World::new();
    let a = world.replica("a");
    let passes = a.is_checked();
    passes.set(true);
    pass(5 * SECOND).await;
    let (leadership, work) = (a.leadership.clone(), a.leadership.begin_work());
    let finished = beside(async move {
        leadership.ending().await;
        drop(work);
    });
    let b = world.replica("b");
    let unfit = world.replica("unfit");
    let _never = unfit.is_checked();
    pass(5 * SECOND).await;
    passes.set(false);
    pass(29 * SECOND).await;
    passes.set(true);
    pass(5 * SECOND).await;
    passes.set(false);
    pass(29 * SECOND).await;
    assert!(a.leadership.is_leader(), "not for so short a time");
    pass(8 * SECOND).await;
    assert!(b.leadership.is_leader() && !a.leadership.is_leader() && !unfit.leadership.is_leader());
    assert!(finished.is_finished(), "the controllers are asked to end");
    let expected = Loss::HandedOver {
        successor: "b".to_owned(),
        reason: "state-store: access denied".to_owned(),
    };
    assert_eq!(loss(a).await, Some(expected));
    assert_eq!(
        world.server().lease.as_ref().unwrap()["metadata"]["annotations"],
        Value::Null
    );
    assert!(!b.run.is_finished() && !unfit.run.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_not_fit_leads_on_while_no_replica_is() {
    let world = World::new();
    let a = world.replica("a");
    let passes = a.is_checked();
    passes.set(true);
    pass(5 * SECOND).await;
    let b = world.replica("b");
    let fit = b.is_checked();
    passes.set(false);
    pass(3600 * SECOND).await;
    assert!(a.leadership.is_leader() && !a.run.is_finished());
    let annotation =
        || world.server().lease.clone().unwrap()["metadata"]["annotations"]["tidewaiter.dev/unfit-holder"].clone();
    assert_eq!(annotation(), "a");
    let mut renewals = world.server().writes.clone();
    renewals.retain(|(_, holder)| holder == "a");
    assert_eq!(renewals.len(), world.server().writes.len(), "nobody else writes");

    // Fit again, it asks no more, and a replica that is fit then does not offer.
    passes.set(true);
    pass(3 * SECOND).await;
    assert_eq!(annotation(), Value::Null);
    fit.set(true);
    pass(600 * SECOND).await;
    assert!(a.leadership.is_leader() && !b.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_permitted_fails_readiness_and_names_the_remedy() {
    let report = |replica: &Replica| replica.kit.checks.report();
    for verb in ["read", "write"] {
        let world = World::new();
        match verb {
            "read" => {
                world.held_by("x");
                world.server().refuses_reads = Some(403);
            }
            _ => world.server().always = Some(Fault::Status(403)),
        }
        let a = world.replica("a");
        pass(5 * SECOND).await;
        let (ready, text) = report(&a);
        assert!(!ready);
        let expected =
            format!("[-]leader-election failed: cannot {verb} the Lease kube-system/kops-controller-leader: ");
        assert!(
            text.starts_with(&expected) && text.contains("Apply Tidewaiter's role"),
            "{text}"
        );
        {
            let mut server = world.server();
            server.refuses_reads = None;
            server.always = None;
        }
        pass(40 * SECOND).await;
        assert!(a.leadership.is_leader(), "{verb}");
        assert!(report(&a).0, "{verb}");
    }

    // A server that is away, and a conflict, say nothing about permission.
    for code in [409, 503] {
        let world = World::new();
        world.server().always = Some(Fault::Status(code));
        let a = world.replica("a");
        pass(10 * SECOND).await;
        assert!(report(&a).0, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_respond_fails_readiness_at_the_start_and_after_a_minute() {
    let world = World::new();
    world.server().unreadable = true;
    world.server().always = Some(Fault::Status(503));
    let a = world.replica("a");
    pass(5 * SECOND).await;
    let (ready, text) = a.kit.checks.report();
    assert!(!ready);
    let expected = "[-]leader-election failed: cannot write the Lease kube-system/kops-controller-leader: ";
    assert!(
        text.starts_with(expected) || text.starts_with(&expected.replace("write", "read")),
        "{text}"
    );

    world.server().unreadable = false;
    world.server().always = None;
    pass(40 * SECOND).await;
    assert!(a.kit.checks.report().0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_could_not_be_read_is_not_called_free() {
    let (lines, _guard) = Lines::collect();
    let logged = || lines.text();

    let world = World::new();
    world.held_by("");
    world.server().refuses_reads = Some(403);
    let a = world.replica("a");
    let _passes = a.is_checked();
    pass(5 * SECOND).await;
    // Once, although it is read every two seconds.
    assert_eq!(logged().matches("cannot read the Lease").count(), 1, "{}", logged());
    assert!(!logged().contains("the Lease is free"), "{}", logged());
    world.server().refuses_reads = None;
    pass(5 * SECOND).await;
    assert!(logged().contains("the Lease is free"), "{}", logged());
}
