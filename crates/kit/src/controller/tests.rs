#![expect(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Mutex;

use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource as _, ResourceExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::*;
use crate::cache::Feed;
use crate::clock::{ManualClock, SharedClock};
use crate::events::Notice;
use crate::retry::{Category, Retry};
use crate::testing::{self, Lines, TokioClock, beside, kit_on, settle};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, thiserror::Error)]
#[error("refused")]
struct Refused(Retry);

impl ReconcileError for Refused {
    fn category(&self) -> Category {
        let note = "the instance is unknown";
        Category::new("refused", self.0).notify(Notice::warning("Refused", "Identify", note))
    }
}

type Answer = Result<Next, Refused>;

/// Answers each reconcile from a script, then with success; records what it was asked.
struct Scripted {
    clock: SharedClock,
    cache: Cache<Node>,
    answers: Mutex<HashMap<String, VecDeque<Answer>>>,
    /// Name, resourceVersion and whole seconds since the start of the test.
    calls: Mutex<Vec<(String, String, u64)>>,
    forgotten: Mutex<Vec<String>>,
    /// True if each reconcile waits outside first.
    outside: bool,
    /// A reconcile lasts until there is a permit for it.
    permits: Semaphore,
    busy: Mutex<Vec<String>>,
    most_busy: Mutex<usize>,
}

impl Reconciler for Scripted {
    const NAME: &'static str = "scripted";
    type Error = Refused;

    async fn reconcile(&self, pass: &mut Pass) -> Answer {
        let Some(node) = self.cache.get(pass.key()) else {
            self.forgotten.lock().unwrap().push(pass.key().to_string());
            return Ok(Next::UntilChanged);
        };
        let name = node.name_any();
        if !name.starts_with("alone") {
            pass.about(node.object_ref(&()));
        }
        {
            let at = (self.clock.monotonic() - ManualClock::ORIGIN).as_secs();
            self.calls
                .lock()
                .unwrap()
                .push((name.clone(), node.resource_version().unwrap_or_default(), at));
            let mut busy = self.busy.lock().unwrap();
            assert!(!busy.contains(&name), "two reconciles of {name} at once");
            busy.push(name.clone());
            let mut most = self.most_busy.lock().unwrap();
            *most = busy.len().max(*most);
        }
        if self.outside {
            pass.outside(self.permits.acquire()).await.unwrap().forget();
        } else {
            self.permits.acquire().await.unwrap().forget();
        }
        self.busy.lock().unwrap().retain(|other| *other != name);
        assert!(name != "boom", "no such {name}");
        let answer = self
            .answers
            .lock()
            .unwrap()
            .get_mut(&name)
            .and_then(VecDeque::pop_front);
        answer.unwrap_or(Ok(Next::UntilChanged))
    }
}

struct World {
    reconciler: Arc<Scripted>,
    feed: Option<Feed<Node>>,
    queue: Queue,
    context: ControllerContext,
    controller: JoinHandle<Result<(), ControllerError>>,
    pause: PauseSwitch,
    events: Arc<Mutex<Vec<String>>>,
}

/// A controller on an API server that takes every Event.
fn world(concurrency: usize, leading: bool) -> World {
    world_with(concurrency, leading, false)
}

fn world_with(concurrency: usize, leading: bool, outside: bool) -> World {
    let clock = TokioClock::shared();
    let kit = kit_on(Arc::clone(&clock));
    let published = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&published);
    let client = Client::new(
        tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let seen = Arc::clone(&seen);
            let created = r#"{"kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {}, "eventTime": null}"#;
            async move {
                let event = request.into_body().collect().await.unwrap().to_bytes();
                let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
                seen.lock()
                    .unwrap()
                    .push(event["regarding"]["uid"].as_str().unwrap().to_owned());
                let body = http_body_util::Full::new(bytes::Bytes::from(created));
                Ok::<_, Infallible>(http::Response::new(body))
            }
        }),
        "default",
    );
    let leadership = if leading {
        Leadership::always(Arc::clone(&clock))
    } else {
        Leadership::new(Arc::clone(&clock))
    };
    let switch = PauseSwitch::new(false);
    let context = ControllerContext {
        events: testing::events(client, &clock),
        kit,
        leadership,
        pause: switch.pause(),
        shutdown: CancellationToken::new(),
    };
    let queue = Queue::new();
    let (feed, cache) = Feed::new(&context.kit);
    cache.notify(queue.same_name());
    let reconciler = Arc::new(Scripted {
        clock,
        cache: cache.clone(),
        outside,
        answers: Mutex::default(),
        calls: Mutex::default(),
        forgotten: Mutex::default(),
        permits: Semaphore::new(Semaphore::MAX_PERMITS),
        busy: Mutex::default(),
        most_busy: Mutex::default(),
    });
    let controller = Controller::of(Arc::clone(&reconciler), queue.clone());
    let controller = controller
        .concurrency(concurrency)
        .backoff(Backoff::new(SECOND, 60 * SECOND));
    let controller = beside(controller.run(context.clone()));
    World {
        reconciler,
        feed: Some(feed),
        queue,
        context,
        controller,
        pause: switch,
        events: published,
    }
}

impl World {
    fn script(&self, name: &str, answers: impl IntoIterator<Item = Answer>) {
        self.reconciler
            .answers
            .lock()
            .unwrap()
            .insert(name.to_owned(), answers.into_iter().collect());
    }

    fn calls(&self) -> Vec<(String, String, u64)> {
        self.reconciler.calls.lock().unwrap().clone()
    }

    /// The seconds at which there was a reconcile.
    fn times(&self) -> Vec<u64> {
        self.calls().into_iter().map(|(_, _, at)| at).collect()
    }

    fn change(&mut self, name: &str, version: &str) {
        self.feed().put(node(name, version));
    }

    fn feed(&mut self) -> &mut Feed<Node> {
        self.feed.as_mut().unwrap()
    }

    fn errors(&self) -> u64 {
        self.context
            .kit
            .metrics
            .reconcile_errors
            .with_label_values(&["scripted", "refused"])
            .get()
    }
}

fn node(name: &str, version: &str) -> Node {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{name}")),
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    };
    Node {
        metadata,
        ..Node::default()
    }
}

#[expect(clippy::disallowed_methods, reason = "tokio's paused clock")]
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn begins_when_it_leads_with_all_that_waited() {
    let mut world = world(16, false);
    world.feed().list([node("a", "1"), node("b", "1")]);
    world.change("a", "2");
    pass(SECOND).await;
    assert_eq!(world.calls(), []);
    world.context.leadership.lead_until(Duration::MAX);
    pass(SECOND).await;
    let mut calls = world.calls();
    calls.sort();
    assert_eq!(calls, [("a".into(), "2".into(), 1), ("b".into(), "1".into(), 1)]);
}

/// A standby may live for months, in which Nodes come and go.
#[tokio::test(start_paused = true)]
async fn a_standby_queues_no_name_and_begins_with_the_objects_that_exist() {
    let mut world = world(16, false);
    world.feed().list([node("a", "1")]);
    for number in 0..100 {
        let name = format!("n{number}");
        world.change(&name, "1");
        world.feed().delete(node(&name, "2"));
    }
    world.change("b", "1");
    settle().await;
    assert!(world.queue.is_empty(), "{:?}", world.queue);
    world.context.leadership.lead_until(Duration::MAX);
    pass(SECOND).await;
    let mut names: Vec<String> = world.calls().into_iter().map(|(name, ..)| name).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    assert!(world.reconciler.forgotten.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn begins_no_pass_while_it_pauses_and_loses_no_key() {
    let mut world = world(16, true);
    world.pause.update(|| true);
    world.feed().list([node("a", "1")]);
    pass(SECOND).await;
    assert_eq!(world.calls(), []);
    world.pause.update(|| false);
    pass(SECOND).await;
    assert_eq!(world.times(), [1]);
    world.script("a", [Ok(Next::After(SECOND))]);
    world.change("a", "2");
    settle().await;
    world.pause.update(|| true);
    world.change("a", "3");
    pass(10 * SECOND).await;
    assert_eq!(world.times(), [1, 2], "neither a change nor what is due begins one");
    world.pause.update(|| false);
    pass(SECOND).await;
    assert_eq!(world.times(), [1, 2, 12]);
}

#[tokio::test(start_paused = true)]
async fn reconciles_nothing_before_the_first_list_is_complete() {
    let mut world = world(16, true);
    world.queue.push(Key::new("a"));
    pass(SECOND).await;
    assert_eq!(
        (world.calls().len(), world.reconciler.forgotten.lock().unwrap().len()),
        (0, 0)
    );
    world.feed().list([node("a", "1")]);
    pass(SECOND).await;
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_backoff_is_tried_at_once_and_only_success_resets() {
    let mut world = world(16, true);
    let refused = || Err(Refused(Retry::Backoff));
    world.script("a", [refused(), refused(), refused(), refused()]);
    world.feed().list([node("a", "1")]);
    // Failures at 0, within (0.5, 1], within (1.5, 3]: the next is due 2 to 4 s after that.
    pass(Duration::from_millis(3100)).await;
    assert_eq!(world.calls().len(), 3, "{:?}", world.calls());
    world.change("a", "2");
    settle().await;
    assert_eq!(world.calls().len(), 4, "the change was tried at once");
    // That failure leaves the wait as it was, which ends 4 s after the third one at the latest.
    pass(Duration::from_millis(4100)).await;
    assert_eq!(world.calls().len(), 5);
    pass(600 * SECOND).await;
    assert_eq!(world.calls().len(), 5, "after a success nothing is due");
    assert_eq!(world.errors(), 4);

    world.script("a", [refused()]);
    world.change("a", "3");
    pass(Duration::from_millis(1100)).await;
    assert_eq!(
        world.calls().len(),
        7,
        "the success reset the count: the next failure waits at most a second"
    );
}

/// A write of a pass that partly fails is a change, which starts the next one.
#[tokio::test(start_paused = true)]
async fn changes_neither_drive_an_object_that_fails_nor_delay_its_retry() {
    for retry in [Retry::Backoff, Retry::Slow] {
        let mut world = world(16, true);
        world.script("a", (0..100).map(|_| Err(Refused(retry))));
        world.feed().list([node("a", "1")]);
        for version in 2..30 {
            pass(Duration::from_millis(50)).await;
            world.change("a", &version.to_string());
        }
        settle().await;
        assert!((2..=4).contains(&world.calls().len()), "{retry:?}: {:?}", world.calls());
        // The cause is corrected, and nothing changes any more.
        world.script("a", []);
        pass(3 * SECOND).await;
        assert!((3..=6).contains(&world.calls().len()), "{retry:?}: {:?}", world.calls());
        world.change("a", "30");
        settle().await;
        let (_, version, _) = world.calls().pop().unwrap();
        assert_eq!(
            version, "30",
            "{retry:?}: after a success a change is reconciled at once"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_a_change_helps_is_retried_slowly_all_the_same() {
    let mut world = world(16, true);
    world.script("a", [Err(Refused(Retry::Slow)), Err(Refused(Retry::Slow))]);
    world.feed().list([node("a", "1")]);
    pass(200 * SECOND).await;
    world.change("a", "2");
    pass(200 * SECOND).await;
    assert_eq!(world.times(), [0, 200], "a change is tried at once");
    pass(3600 * SECOND).await;
    let times = world.times();
    assert!(
        matches!(times[..], [0, 200, 440..=560]),
        "nothing waits forever: {times:?}"
    );
    assert_eq!(
        world.events.lock().unwrap().len(),
        1,
        "the same notice is published once"
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_success_after_failures_lets_all_try_that_failed_alike() {
    let mut world = world(16, true);
    world.script("a", [Err(Refused(Retry::Backoff))]);
    let others = ["b", "c", "d"];
    for name in others {
        world.script(name, [Err(Refused(Retry::Slow))]);
    }
    world
        .feed()
        .list(["a", "b", "c", "d", "well"].map(|name| node(name, "1")));
    pass(2 * SECOND).await;
    let tries = |name: &str| world.calls().iter().filter(|(other, ..)| other == name).count();
    assert_eq!(others.map(tries), [2, 2, 2], "{:?}", world.calls());
    assert_eq!((tries("a"), tries("well")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pending_pass_is_no_success_and_a_refusal_no_error() {
    let mut world = world(16, true);
    world.script(
        "a",
        [
            Ok(Next::Pending(SECOND)),
            Ok(Next::Refused(Retry::Backoff)),
            Ok(Next::Refused(Retry::Slow)),
        ],
    );
    world.feed().list([node("a", "1")]);
    pass(10 * SECOND).await;
    assert_eq!(world.calls().len(), 3, "a refused object is tried again");
    let metrics = &world.context.kit.metrics;
    let count = |outcome| metrics.reconciles.with_label_values(&["scripted", outcome]).get();
    assert_eq!(
        (count("pending"), count("refused"), count("ok"), world.errors()),
        (1, 2, 0, 0)
    );
    assert!(metrics.last_success.with_label_values(&["scripted"]).get() < 1.0);
    pass(600 * SECOND).await;
    assert_eq!((count("ok"), world.calls().len()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_met_and_does_not_delay_a_change() {
    let mut world = world(16, true);
    world.script(
        "a",
        [
            Ok(Next::After(600 * SECOND)),
            Ok(Next::After(600 * SECOND)),
            Err(Refused(Retry::After(7 * SECOND))),
        ],
    );
    world.feed().list([node("a", "1")]);
    pass(10 * SECOND).await;
    world.change("a", "2");
    pass(2000 * SECOND).await;
    assert_eq!(world.times(), [0, 10, 610, 617]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_when_is_not_asked_before_and_not_by_all_at_once() {
    let mut world = world(16, true);
    let later = |seconds| Err(Refused(Retry::BackoffAfter(seconds * SECOND)));
    world.script("a", [later(7), later(7), later(3600)]);
    world.feed().list([node("a", "1")]);
    pass(2000 * SECOND).await;
    let times = world.times();
    let waits: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((7..=8).contains(&waits[0]) && (8..=9).contains(&waits[1]), "{waits:?}");
    assert_eq!(waits[2..], [300]);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_reconcile_is_reconciled_after_it() {
    let mut world = world(16, true);
    world.reconciler.permits.forget_permits(Semaphore::MAX_PERMITS);
    world.script("a", [Ok(Next::After(600 * SECOND))]);
    world.feed().list([node("a", "1")]);
    settle().await;
    world.change("a", "2");
    world.change("a", "3");
    settle().await;
    assert_eq!(world.calls().len(), 1, "the first is still under way");
    world.reconciler.permits.add_permits(100);
    pass(SECOND).await;
    let versions: Vec<String> = world.calls().into_iter().map(|(_, version, _)| version).collect();
    assert_eq!(versions, ["1", "3"]);
}

#[tokio::test(start_paused = true)]
async fn never_more_at_once_than_allowed() {
    let mut world = world(3, true);
    world.reconciler.permits.forget_permits(Semaphore::MAX_PERMITS);
    world.feed().list((0..20).map(|n| node(&format!("n{n}"), "1")));
    pass(SECOND).await;
    assert_eq!(world.calls().len(), 3);
    world.reconciler.permits.add_permits(20);
    pass(SECOND).await;
    assert_eq!(
        (world.calls().len(), *world.reconciler.most_busy.lock().unwrap()),
        (20, 3)
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_runner_holds_no_slot() {
    let mut world = world_with(1, true, true);
    world.reconciler.permits.forget_permits(Semaphore::MAX_PERMITS);
    world.feed().list([node("a", "1")]);
    pass(SECOND).await;
    world.reconciler.permits.add_permits(1);
    pass(SECOND).await;
    assert!(
        world.reconciler.busy.lock().unwrap().is_empty(),
        "the pass has its slot back"
    );
}

#[tokio::test(start_paused = true)]
async fn passes_that_wait_outside_hold_no_slot() {
    let mut world = world_with(3, true, true);
    world.reconciler.permits.forget_permits(Semaphore::MAX_PERMITS);
    world.feed().list((0..20).map(|n| node(&format!("n{n}"), "1")));
    pass(SECOND).await;
    assert_eq!(world.calls().len(), 20, "all wait together");
    world.reconciler.permits.add_permits(20);
    pass(SECOND).await;
    assert!(world.reconciler.busy.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_forgotten() {
    let mut world = world(16, true);
    world.script("a", [Err(Refused(Retry::Backoff))]);
    world.feed().list([node("a", "1"), node("b", "1")]);
    settle().await;
    world.feed().delete(node("a", "2"));
    pass(600 * SECOND).await;
    assert_eq!(*world.reconciler.forgotten.lock().unwrap(), ["a"]);
    assert_eq!(world.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_the_controller_and_names_the_object() {
    let mut world = world(16, true);
    world.feed().list([node("a", "1"), node("boom", "1")]);
    let error = world.controller.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the reconcile of boom by the controller scripted panicked: no such boom"
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_what_is_under_way_and_begins_nothing() {
    let mut world = world(1, true);
    world.reconciler.permits.forget_permits(Semaphore::MAX_PERMITS);
    world.feed().list([node("a", "1"), node("b", "1")]);
    settle().await;
    assert_eq!(world.calls().len(), 1);
    world.context.shutdown.cancel();
    settle().await;
    assert!(!world.controller.is_finished());
    assert!(
        world.context.leadership.worked().now_or_never().is_none(),
        "the Lease is kept for it"
    );
    world.reconciler.permits.add_permits(100);
    world.controller.await.unwrap().unwrap();
    assert_eq!(world.reconciler.calls.lock().unwrap().len(), 1);
    assert!(world.context.leadership.worked().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_finishes_what_is_under_way_and_leaves_the_end_to_the_elector() {
    let mut world = world(1, true);
    world.reconciler.permits.forget_permits(Semaphore::MAX_PERMITS);
    world.feed().list([node("a", "1"), node("b", "1")]);
    settle().await;
    world.context.leadership.end_work();
    settle().await;
    assert!(world.context.leadership.worked().now_or_never().is_none());
    world.reconciler.permits.add_permits(100);
    settle().await;
    assert!(
        world.context.leadership.worked().now_or_never().is_some(),
        "the Lease can be released"
    );
    assert_eq!(world.calls().len(), 1);
    assert!(!world.controller.is_finished());
    world.context.shutdown.cancel();
    world.controller.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_leader_reconciles_nothing() {
    let mut world = world(16, true);
    world.script("a", [Err(Refused(Retry::Backoff))]);
    world.feed().list([node("a", "1")]);
    settle().await;
    world.context.leadership.resign();
    world.change("a", "2");
    pass(600 * SECOND).await;
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_gone_is_an_error() {
    let mut world = world(16, true);
    world.feed = None;
    let error = world.controller.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the controller scripted cannot read its caches");
}

#[tokio::test(start_paused = true)]
async fn shows_its_numbers() {
    let mut world = world(16, true);
    world.script("a", [Err(Refused(Retry::Slow))]);
    world.feed().list([node("a", "1"), node("b", "1")]);
    pass(SECOND).await;
    let text = world.context.kit.metrics.encode().unwrap();
    for line in [
        "tidewaiter_reconciles_total{controller=\"scripted\",outcome=\"ok\"} 1",
        "tidewaiter_reconciles_total{controller=\"scripted\",outcome=\"error\"} 1",
        "tidewaiter_reconcile_errors_total{class=\"refused\",controller=\"scripted\"} 1",
        "tidewaiter_last_success_timestamp_seconds{controller=\"scripted\"} 3600",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_told_of_the_object_that_it_befell_and_of_no_other_of_its_name() {
    for made_again in [false, true] {
        let mut world = world(16, true);
        world.reconciler.permits.forget_permits(Semaphore::MAX_PERMITS);
        world.script("a", [Err(Refused(Retry::Slow))]);
        world.feed().list([node("a", "1")]);
        settle().await;
        let mut newer = node("a", "2");
        if made_again {
            newer.metadata.uid = Some("another".to_owned());
        }
        world.feed().put(newer);
        world.reconciler.permits.add_permits(100);
        pass(SECOND).await;
        assert_eq!(world.calls().len(), 2, "the newer state was reconciled too");
        assert_eq!(*world.events.lock().unwrap(), ["uid-a"], "made again: {made_again}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_without_an_object_for_its_event_is_logged_with_the_note_for_a_few() {
    let (lines, _guard) = Lines::collect();
    let mut world = world(16, true);
    let names: Vec<String> = (0..20).map(|number| format!("alone{number}")).collect();
    for name in &names {
        world.script(name, [Err(Refused(Retry::Slow))]);
    }
    world.feed().list(names.iter().map(|name| node(name, "1")));
    pass(SECOND).await;
    let logged = lines.text();
    assert_eq!(logged.matches("the instance is unknown").count(), 10, "{logged}");
    assert!(world.events.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_latest_deadline_that_there_is_harms_nobody() {
    let mut world = world(16, true);
    world.script("a", [Ok(Next::After(Duration::MAX))]);
    world.feed().list([node("a", "1")]);
    pass(SECOND).await;
    world.change("a", "2");
    pass(SECOND).await;
    assert_eq!(world.times(), [0, 1]);
    assert!(!world.controller.is_finished());
}
