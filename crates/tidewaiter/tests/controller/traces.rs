//! Traces: with an endpoint set, each reconcile arrives there as a span, and nothing that is secret does.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use tidewaiter_testkit::eventually;
use tokio::net::TcpListener;

use crate::world::{SOON, World};

type Received = Arc<Mutex<Vec<u8>>>;

/// Starts an endpoint for traces (OTLP over HTTP, protobuf), which collects the requests one after the other.
#[expect(
    clippy::disallowed_methods,
    reason = "a server of its own, which ends with the test's runtime"
)]
async fn collector() -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let received = Received::default();
    let traces = post(async |State(received): State<Received>, body: Bytes| {
        received.lock().unwrap().extend(body);
    });
    let router = Router::new()
        .route("/v1/traces", traces)
        .with_state(Arc::clone(&received));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (endpoint, received)
}

fn holds(received: &Received, words: &str) -> bool {
    let bytes = received.lock().unwrap();
    bytes.windows(words.len()).any(|window| window == words.as_bytes())
}

#[tokio::test]
async fn each_reconcile_is_a_span_where_an_endpoint_is_set() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let (endpoint, received) = collector().await;
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("AWS_SECRET_ACCESS_KEY", "the-secret-of-the-cloud"),
    ];
    let controller = world.controller_with(&environment).await;
    let kubelet = world.join(3, "nodes").await;
    for words in ["tidewaiter-controller", "reconcile", kubelet.name()] {
        eventually(&format!("a span that says {words}"), SOON, async || {
            if holds(&received, words) {
                Ok(())
            } else {
                Err("none yet")
            }
        })
        .await;
    }
    // Spans that were not sent yet are sent when it ends.
    let late = world.join(4, "nodes").await;
    world
        .has_labels(
            late.name(),
            &[
                ("team", "red"),
                ("kops.k8s.io/instancegroup", "nodes"),
                ("node-role.kubernetes.io/node", ""),
            ],
        )
        .await;
    controller.process.stop(SOON).await;
    assert!(holds(&received, late.name()));
    assert!(!holds(&received, "the-secret-of-the-cloud"));
}
