use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use futures::stream;
use kube::{Client, Config};
use serde_json::json;
use tidewaiter_kit::{Queue, SystemClock};
use tidewaiter_testkit::eventually;
use tokio::net::TcpListener;

use super::*;
use crate::controllers::plugin::cluster::Kind;

/// Counts down when the watch that holds it ends.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An API server whose watches say nothing, and the number of those that are open.
#[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
async fn server() -> (Client, Arc<AtomicUsize>) {
    let open = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&open);
    let router = Router::new().fallback(async move |request: Request| {
        if !request.uri().query().unwrap_or_default().contains("watch=true") {
            let list = json!({"apiVersion": "v1", "kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "1"}, "items": []});
            return list.to_string().into_response();
        }
        count.fetch_add(1, Ordering::SeqCst);
        let open = Open(Arc::clone(&count));
        let silence = stream::once(async move {
            let _open = open;
            std::future::pending::<Result<String, Infallible>>().await
        });
        Body::from_stream(silence).into_response()
    });
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
    (client, open)
}

#[tokio::test]
async fn the_watch_of_a_place_ends_when_the_last_plugin_leaves_it() {
    let (client, open) = server().await;
    let clock: SharedClock = SystemClock::shared();
    let mut tasks = Tasks::new(Arc::clone(&clock));
    let wakes = Wakes::start(Queue::new(), Arc::clone(&clock), &mut tasks);
    let followed = Followed::start(wakes, clock, &mut tasks);
    let cluster = Cluster::new(&client, Some("n/account".parse().unwrap()));
    let place = |namespace: &str| Place {
        kind: Kind {
            resource: ApiResource {
                group: String::new(),
                version: "v1".to_owned(),
                api_version: "v1".to_owned(),
                kind: "ConfigMap".to_owned(),
                plural: "configmaps".to_owned(),
            },
            namespaced: true,
        },
        namespace: Some(namespace.to_owned()),
    };
    let is_open = async |wanted: usize| {
        eventually(format!("{wanted} watches"), Duration::from_mins(1), async || {
            let found = open.load(Ordering::SeqCst);
            if found == wanted {
                Ok(())
            } else {
                Err(found.to_string())
            }
        })
        .await;
    };
    followed.add_all("a", &cluster, &[place("one"), place("two")]);
    followed.add_all("b", &cluster, &[place("two")]);
    followed.add_all("a", &cluster, &[place("three")]);
    followed.succeeds("a");
    is_open(3).await;
    // A pass that observes nothing, or fails, has not left anything.
    followed.begins("a");
    followed.succeeds("a");
    followed.begins("a");
    followed.add_all("a", &cluster, &[place("one")]);
    followed.begins("a");
    followed.succeeds("a");
    assert_eq!(followed.watched.lock().len(), 3);
    followed.begins("a");
    followed.add_all("a", &cluster, &[place("one"), place("two")]);
    followed.succeeds("a");
    is_open(2).await;
    followed.forget("a");
    is_open(1).await;
    followed.forget("b");
    is_open(0).await;
    // And again.
    followed.add_all("b", &cluster, &[place("two")]);
    is_open(1).await;
}
