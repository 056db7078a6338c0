use std::sync::Mutex;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use super::*;
use crate::client::by_hand;
use crate::leader::Leadership;
use crate::testing::kit;

struct World {
    events: Events,
    /// Path and object of each that arrived.
    created: Arc<Mutex<Vec<(String, Value)>>>,
    answer: Arc<Mutex<StatusCode>>,
    leadership: Leadership,
}

fn world() -> World {
    let (kit, clock) = kit();
    let created = Arc::new(Mutex::new(Vec::new()));
    let answer = Arc::new(Mutex::new(StatusCode::CREATED));
    let leadership = Leadership::always(clock.shared());
    let (log, code) = (Arc::clone(&created), Arc::clone(&answer));
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
        std::future::ready(Ok(Response::builder().status(code).body(body).unwrap()))
    };
    let client = by_hand::client(handle, &leadership, &kit);
    let reporter = Reporter {
        controller: "tidewaiter.dev/node-controller".to_owned(),
        instance: "control-plane-1".to_owned(),
    };
    World {
        events: Events::new(client, clock.shared(), reporter),
        created,
        answer,
        leadership,
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
    Notice {
        kind: NoticeKind::Warning,
        reason: "NotFound".into(),
        action: "Identify".into(),
        note: note.to_owned(),
    }
}

#[tokio::test]
async fn publishes_what_kubectl_describe_shows() {
    let world = world();
    world.events.publish(&node(), notice("no instance i-1")).await;
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
    assert_eq!(event["reportingController"], "tidewaiter.dev/node-controller");
    assert_eq!(event["reportingInstance"], "control-plane-1");
    assert!(event["metadata"]["name"].as_str().unwrap().starts_with("ip-10-0-0-1."));
    assert!(event["eventTime"].is_string());
}

#[tokio::test]
async fn an_object_with_a_namespace_has_its_events_there() {
    let world = world();
    let regarding = ObjectReference {
        namespace: Some("kube-system".to_owned()),
        ..node()
    };
    world.events.publish(&regarding, notice("x")).await;
    assert_eq!(
        world.created.lock().unwrap()[0].0,
        "/apis/events.k8s.io/v1/namespaces/kube-system/events"
    );
}

#[tokio::test]
async fn says_the_same_once() {
    let world = world();
    for note in ["a", "a", "b", "a"] {
        world.events.publish(&node(), notice(note)).await;
    }
    let notes: Vec<_> = world
        .created
        .lock()
        .unwrap()
        .iter()
        .map(|(_, event)| event["note"].clone())
        .collect();
    assert_eq!(notes, ["a", "b"]);
}

#[tokio::test]
async fn a_failure_is_survived_and_the_next_attempt_made() {
    let world = world();
    *world.answer.lock().unwrap() = StatusCode::FORBIDDEN;
    world.events.publish(&node(), notice("a")).await;
    *world.answer.lock().unwrap() = StatusCode::CREATED;
    world.events.publish(&node(), notice("a")).await;
    world.events.publish(&node(), notice("a")).await;
    assert_eq!(world.created.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn nothing_is_published_without_leadership() {
    let world = world();
    world.leadership.resign();
    world.events.publish(&node(), notice("a")).await;
    assert!(world.created.lock().unwrap().is_empty());
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
    let event = event(&regarding, notice(&long), &reporter, time);
    assert_eq!(event.note.unwrap().len(), 1024);
    assert!(event.metadata.name.unwrap().len() <= 253);
    assert!(event.reporting_instance.unwrap().len() <= 128);
}
