#![expect(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body as AnswerBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, WatchParams};
use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::Leadership;
use crate::clock::{Clock, SharedClock};
use crate::testing::{TokioClock, beside, kit, kit_on, serve};

/// Answers every request with the status in its path's last segment, or a Node.
async fn by_name(State(seen): State<Arc<AtomicUsize>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if to_bytes(body, usize::MAX).await.is_err() {
        return StatusCode::BAD_REQUEST.into_response();
    }
    seen.fetch_add(1, Ordering::SeqCst);
    let name = parts.uri.path().rsplit('/').next().unwrap_or_default();
    match name.parse().ok().and_then(|code| StatusCode::from_u16(code).ok()) {
        Some(code) if !code.is_success() => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16()});
            (code, axum::Json(status)).into_response()
        }
        _ => axum::Json(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})).into_response(),
    }
}

async fn server() -> (Config, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    (
        serve(Router::new().fallback(by_name).with_state(Arc::clone(&seen))).await,
        seen,
    )
}

async fn patch(client: &Client, name: &str) -> Result<Node, kube::Error> {
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    Api::<Node>::all(client.clone())
        .patch(name, &PatchParams::default(), &Patch::Merge(&change))
        .await
}

fn counted(kit: &Kit, verb: &str, outcome: &str) -> u64 {
    kit.metrics.writes.with_label_values(&[verb, "nodes", outcome]).get()
}

#[tokio::test]
async fn a_standby_reads_and_does_not_write() {
    let (config, seen) = server().await;
    let (kit, _) = kit();
    let client = fenced(&config, &Leadership::new(Arc::clone(&kit.clock)), &kit).unwrap();
    let nodes = Api::<Node>::all(client.clone());

    nodes.get("a").await.unwrap();
    let error = patch(&client, "a").await.unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert!(is_fenced(
        &nodes.delete("a", &DeleteParams::default()).await.unwrap_err()
    ));

    assert_eq!(seen.load(Ordering::SeqCst), 1, "only the read was sent");
    assert_eq!(
        (counted(&kit, "patch", "fenced"), counted(&kit, "delete", "fenced")),
        (1, 1)
    );
}

#[tokio::test]
async fn a_write_without_a_body_is_fenced_too() {
    let (config, seen) = server().await;
    let (kit, _) = kit();
    let client = fenced(&config, &Leadership::never(Arc::clone(&kit.clock)), &kit).unwrap();
    let delete = http::Request::delete("/api/v1/nodes/a").body(Vec::new()).unwrap();
    assert!(is_fenced(&client.request_text(delete).await.unwrap_err()));
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn counts_each_outcome() {
    let (config, _) = server().await;
    let (kit, _) = kit();
    let client = fenced(&config, &Leadership::always(Arc::clone(&kit.clock)), &kit).unwrap();
    for (name, outcome) in [
        ("a", "ok"),
        ("409", "conflict"),
        ("422", "rejected"),
        ("403", "rejected"),
        ("503", "error"),
    ] {
        let before = counted(&kit, "patch", outcome);
        let result = patch(&client, name).await;
        assert_eq!(result.is_ok(), outcome == "ok", "{result:?}");
        assert!(!result.is_err_and(|error| is_fenced(&error)));
        assert_eq!(counted(&kit, "patch", outcome), before + 1, "{name}");
    }
}

#[tokio::test]
async fn the_outcome_of_a_write_without_an_answer_is_unknown() {
    let router = Router::new().fallback(async |_: Request| -> Response { std::future::pending().await });
    let config = serve(router).await;
    let (kit, clock) = kit();
    let client = fenced(&config, &Leadership::always(Arc::clone(&kit.clock)), &kit).unwrap();
    let (result, ()) = futures::join!(patch(&client, "a"), async {
        clock.sleeping(1).await;
        clock.advance(REQUEST_TIMEOUT);
    });
    let error = result.unwrap_err();
    assert!(!is_fenced(&error), "{error:?}");
    assert_eq!(counted(&kit, "patch", "unknown"), 1);

    let dropped = beside(async move { patch(&client, "a").await });
    clock.sleeping(1).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert_eq!(counted(&kit, "patch", "unknown"), 2, "the caller went away");
}

/// Leads when it is asked for the first time, and is past its deadline when it is asked again.
#[derive(Debug)]
struct StoppedAfterFirstReading(AtomicU32);

impl Clock for StoppedAfterFirstReading {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(100 * u64::from(self.0.fetch_add(1, Ordering::SeqCst)))
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }
}

#[tokio::test]
async fn a_process_stopped_between_call_and_send_writes_nothing() {
    let (config, seen) = server().await;
    let (kit, _) = kit();
    let clock: SharedClock = Arc::new(StoppedAfterFirstReading(AtomicU32::new(0)));
    let leadership = Leadership::new(clock);
    leadership.lead_until(Duration::from_secs(50));
    let client = fenced(&config, &leadership, &kit).unwrap();

    let error = patch(&client, "a").await.unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 0, "no whole request arrived");
    assert_eq!(counted(&kit, "patch", "fenced"), 1);
}

#[tokio::test]
async fn writes_that_wait_for_their_turn_are_fenced_too() {
    let release = Arc::new(Notify::new());
    let arrived = Arc::new(AtomicUsize::new(0));
    let (gate, count) = (Arc::clone(&release), Arc::clone(&arrived));
    let router = Router::new().fallback(async move |request: Request| {
        count.fetch_add(1, Ordering::SeqCst);
        gate.notified().await;
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        axum::Json(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}}))
    });
    let config = serve(router).await;
    let (kit, _) = kit();
    let leadership = Leadership::always(Arc::clone(&kit.clock));
    let client = fenced(&config, &leadership, &kit).unwrap();

    let writes = join_all((0..IN_FLIGHT + 8).map(|n| {
        let client = client.clone();
        async move { patch(&client, &format!("n{n}")).await }
    }));
    let (results, ()) = futures::join!(writes, async {
        while arrived.load(Ordering::SeqCst) < IN_FLIGHT {
            tokio::task::yield_now().await;
        }
        leadership.resign();
        release.notify_waiters();
    });
    let refused = results
        .iter()
        .filter(|result| result.as_ref().is_err_and(is_fenced))
        .count();
    assert_eq!(
        (results.iter().filter(|result| result.is_ok()).count(), refused),
        (IN_FLIGHT, 8)
    );
    assert_eq!(arrived.load(Ordering::SeqCst), IN_FLIGHT);
}

#[tokio::test]
async fn resigning_waits_for_the_writes_that_were_sent() {
    let release = Arc::new(Notify::new());
    let arrived = Arc::new(Notify::new());
    let (gate, here) = (Arc::clone(&release), Arc::clone(&arrived));
    let router = Router::new().fallback(async move |_: Request| {
        here.notify_one();
        gate.notified().await;
        axum::Json(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}}))
    });
    let config = serve(router).await;
    let (kit, _) = kit();
    let leadership = Leadership::always(Arc::clone(&kit.clock));
    let client = fenced(&config, &leadership, &kit).unwrap();
    let write = beside(async move { patch(&client, "a").await });
    arrived.notified().await;

    leadership.resign();
    let mut written = leadership.written().boxed();
    assert!(futures::poll!(&mut written).is_pending());
    // A notification before the handler waits is kept for it.
    release.notify_one();
    write.await.unwrap().unwrap();
    written.await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_not_asked_for_without_end() {
    let (config, seen) = {
        let seen = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&seen);
        let router = Router::new().fallback(async move |_: Request| {
            count.fetch_add(1, Ordering::SeqCst);
            AnswerBody::empty()
        });
        (serve(router).await, seen)
    };
    let clock = TokioClock::shared();
    let kit = kit_on(Arc::clone(&clock));
    let client = fenced(&config, &Leadership::always(Arc::clone(&clock)), &kit).unwrap();
    let nodes = Api::<Node>::all(client);
    let start = clock.monotonic();
    let mut version = 0;
    while clock.monotonic() - start < Duration::from_secs(30) {
        version += 1;
        let mut events = nodes
            .watch(&WatchParams::default(), &version.to_string())
            .await
            .unwrap()
            .boxed();
        assert!(events.next().await.is_none());
    }
    let seen = seen.load(Ordering::SeqCst);
    assert!((5..=14).contains(&seen), "{seen} requests in 30 s");
}
