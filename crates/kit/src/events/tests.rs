use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Mutex;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::*;
use crate::client::by_hand;
use crate::clock::ManualClock;
use crate::leader::Leadership;
use crate::tasks::TaskEnded;
use crate::testing::{beside, kit, settle};

/// Path and object of each Event that arrived at the API server.
type Created = Arc<Mutex<Vec<(String, Value)>>>;

struct World {
    events: Events,
    created: Created,
    answer: Arc<Mutex<StatusCode>>,
    /// The API server answers as many requests as there are permits.
    answers: Arc<Semaphore>,
    leadership: Leadership,
    clock: ManualClock,
    shutdown: CancellationToken,
    tasks: JoinHandle<Result<(), TaskEnded>>,
}

fn world() -> World {
    let (kit, clock) = kit();
    let created = Created::default();
    let answer = Arc::new(Mutex::new(StatusCode::CREATED));
    let answers = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    let leadership = Leadership::always(clock.shared());
    let (log, code, permits) = (Arc::clone(&created), Arc::clone(&answer), Arc::clone(&answers));
    let handle = move |request: Request<Bytes>| {
        let event: Value = serde_json::from_slice(request.body()).unwrap();
        let code = *code.lock().unwrap();
        log.lock()
            .unwrap()
            .push((request.uri().path().to_owned(), event.clone()));
        let body = if code.is_success() {
            event
        } else {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16()})
        };
        let body = Full::new(Bytes::from(body.to_string()))
            .map_err(Into::into)
            .boxed_unsync();
        let permits = Arc::clone(&permits);
        async move {
            permits.acquire().await.unwrap().forget();
            Ok(Response::builder().status(code).body(body).unwrap())
        }
    };
    let client = by_hand::clients(handle, &leadership, &kit).for_events();
    let reporter = Reporter {
        controller: "tidewaiter-controller".to_owned(),
        instance: "control-plane-1".to_owned(),
    };
    let mut tasks = Tasks::new(clock.shared());
    let shutdown = tasks.shutdown_token();
    World {
        events: Events::start(client, clock.shared(), reporter, &mut tasks),
        created,
        answer,
        answers,
        leadership,
        clock,
        shutdown,
        tasks: beside(tasks.run_until(pending())),
    }
}

impl World {
    /// Publishes, and waits until it was sent.
    async fn publish(&self, regarding: &ObjectReference, notice: Notice) {
        self.events.publish(regarding, notice);
        settle().await;
    }

    /// The names of the objects and the notes of what arrived.
    fn arrived(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let created = self.created.lock().unwrap();
        created
            .iter()
            .map(|(_, event)| (text(&event["regarding"]["name"]), text(&event["note"])))
            .collect()
    }
}

fn node() -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some("ip-10-0-0-1".to_owned()),
        uid: Some("u-1".to_owned()),
        resource_version: Some("77".to_owned()),
        ..ObjectReference::default()
    }
}

fn notice(note: &str) -> Notice {
    Notice::warning("NotFound", "Identify", note)
}

fn named(name: &str) -> ObjectReference {
    ObjectReference {
        name: Some(name.to_owned()),
        uid: Some(format!("uid of {name}")),
        ..node()
    }
}

#[tokio::test]
async fn publishes_what_kubectl_describe_shows() {
    let world = world();
    world.publish(&node(), notice("no instance i-1")).await;
    let created = world.created.lock().unwrap();
    let (path, event) = &created[0];
    assert_eq!(path, "/apis/events.k8s.io/v1/namespaces/default/events");
    assert_eq!(event["type"], "Warning");
    assert_eq!(
        (&event["reason"], &event["action"], &event["note"]),
        (&json!("NotFound"), &json!("Identify"), &json!("no instance i-1"))
    );
    assert_eq!(
        event["regarding"],
        json!({"apiVersion": "v1", "kind": "Node", "name": "ip-10-0-0-1", "uid": "u-1"})
    );
    assert_eq!(event["reportingController"], "tidewaiter-controller");
    assert_eq!(event["reportingInstance"], "control-plane-1");
    assert!(event["metadata"]["name"].as_str().unwrap().starts_with("ip-10-0-0-1."));
    assert!(event["eventTime"].is_string());
}

#[tokio::test]
async fn each_controller_reports_under_its_own_name() {
    let world = world();
    world.events.of("node").publish(&node(), notice("x"));
    settle().await;
    let created = world.created.lock().unwrap();
    assert_eq!(created[0].1["reportingController"], "tidewaiter/node");
    assert_eq!(created[0].1["reportingInstance"], "control-plane-1");
}

#[tokio::test]
async fn an_object_with_a_namespace_has_its_events_there() {
    let world = world();
    let regarding = ObjectReference {
        namespace: Some("kube-system".to_owned()),
        ..node()
    };
    world.publish(&regarding, notice("x")).await;
    assert_eq!(
        world.created.lock().unwrap()[0].0,
        "/apis/events.k8s.io/v1/namespaces/kube-system/events"
    );
}

#[tokio::test]
async fn says_the_same_once() {
    let world = world();
    for note in ["a", "a", "b", "a"] {
        world.publish(&node(), notice(note)).await;
    }
    let notes: Vec<_> = world.arrived().into_iter().map(|(_, note)| note).collect();
    assert_eq!(notes, ["a", "b"]);
}

#[tokio::test]
async fn events_of_one_instant_have_different_names() {
    let world = world();
    for note in ["a", "b", "c"] {
        world.publish(&node(), notice(note)).await;
    }
    let created = world.created.lock().unwrap();
    let names: BTreeSet<_> = created
        .iter()
        .map(|(_, event)| event["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[tokio::test]
async fn a_failure_is_survived_and_the_next_attempt_made() {
    let world = world();
    *world.answer.lock().unwrap() = StatusCode::FORBIDDEN;
    world.publish(&node(), notice("a")).await;
    *world.answer.lock().unwrap() = StatusCode::CREATED;
    world.publish(&node(), notice("a")).await;
    world.publish(&node(), notice("a")).await;
    assert_eq!(world.created.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn nothing_is_published_without_leadership() {
    let world = world();
    world.leadership.resign();
    world.publish(&node(), notice("a")).await;
    assert!(world.created.lock().unwrap().is_empty());
}

#[tokio::test]
async fn publishing_does_not_wait_and_each_object_keeps_its_order() {
    let world = world();
    world.answers.forget_permits(Semaphore::MAX_PERMITS);
    let mut expected = Vec::new();
    for note in ["first", "second", "third"] {
        for object in ["a", "b"] {
            world.events.publish(&named(object), notice(note));
            expected.push((object.to_owned(), note.to_owned()));
        }
    }
    settle().await;
    assert_eq!(world.arrived().len(), 1, "one at a time");
    world.answers.add_permits(100);
    settle().await;
    assert_eq!(world.arrived(), expected);
}

#[tokio::test]
async fn many_give_way_to_other_work() {
    let world = world();
    for n in 0..150 {
        world.events.publish(&named(&n.to_string()), notice("x"));
    }
    let burst = usize::try_from(PUBLISH_RATE.burst).unwrap();
    while world.arrived().len() < burst {
        settle().await;
    }
    for arrived in [burst, burst + 1, burst + 2] {
        settle().await;
        assert_eq!(world.arrived().len(), arrived);
        world.clock.sleeping(1).await;
        world.clock.advance(PUBLISH_RATE.refill);
        settle().await;
    }
}

#[tokio::test]
async fn a_notice_that_found_the_queue_full_may_be_published_again() {
    let world = world();
    world.answers.forget_permits(Semaphore::MAX_PERMITS);
    // One is under way, the others wait.
    world.publish(&named("under-way"), notice("x")).await;
    for n in 0..QUEUE_CAPACITY {
        world.events.publish(&named(&n.to_string()), notice("x"));
    }
    world.events.publish(&named("dropped"), notice("x"));
    assert_eq!(world.events.shared.dropped.load(Ordering::Relaxed), 1);
    world.answers.add_permits(Semaphore::MAX_PERMITS);
    while world.arrived().len() < QUEUE_CAPACITY + 1 {
        world.clock.advance(PUBLISH_RATE.refill);
        settle().await;
    }
    settle().await;
    assert_eq!(world.events.shared.dropped.load(Ordering::Relaxed), 0, "it was logged");
    world.clock.advance(PUBLISH_RATE.refill);
    world.publish(&named("dropped"), notice("x")).await;
    assert_eq!(world.arrived().last().unwrap().0, "dropped");
}

#[tokio::test]
async fn what_is_queued_at_shutdown_is_published_while_this_replica_leads() {
    for leads in [true, false] {
        let world = world();
        world.answers.forget_permits(Semaphore::MAX_PERMITS);
        for object in ["a", "b", "c"] {
            world.publish(&named(object), notice("x")).await;
        }
        world.shutdown.cancel();
        settle().await;
        if !leads {
            world.leadership.resign();
        }
        world.answers.add_permits(100);
        world.tasks.await.unwrap().unwrap();
        let arrived = world.created.lock().unwrap().len();
        assert_eq!(arrived, if leads { 3 } else { 1 }, "the one under way is answered");
        // Nobody is there to send it.
        world.events.publish(&named("late"), notice("x"));
        assert_eq!(world.created.lock().unwrap().len(), arrived);
    }
}

#[test]
fn keeps_within_the_limits_of_the_api() {
    let long = "ä".repeat(1000);
    let reporter = Reporter {
        controller: "c".to_owned(),
        instance: long.clone(),
    };
    let regarding = ObjectReference {
        name: Some("n".repeat(253)),
        ..node()
    };
    let time = MicroTime("2026-01-01T00:00:00Z".parse().unwrap());
    let event = event(regarding, notice(&long), &reporter, time, i128::from(i64::MAX));
    assert_eq!(event.note.unwrap().len(), 1024);
    assert!(event.metadata.name.unwrap().len() <= 253);
    assert!(event.reporting_instance.unwrap().len() <= 128);
}
