use std::future::pending;
use std::sync::Mutex;

use futures::FutureExt as _;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tidewaiter_kit::ManualClock;
use tower::{BoxError, service_fn};

use super::*;
use crate::objects::{Pod, is_judged};

/// An API server with one scripted response per request, and none after the last. Records the queries.
#[derive(Clone)]
struct Server {
    answers: Arc<Mutex<Vec<(u16, Value)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(answers: &[(u16, Value)]) -> Self {
        let answers = answers.iter().rev().cloned().collect();
        Self {
            answers: Arc::new(Mutex::new(answers)),
            asked: Arc::default(),
        }
    }

    async fn list(&self, clock: &ManualClock) -> Result<Vec<String>, String> {
        let server = self.clone();
        let answer = move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let query = request.uri().query().unwrap_or_default().to_owned();
                server.asked.lock().unwrap().push(query);
                let next = server.answers.lock().unwrap().pop();
                let Some((code, body)) = next else {
                    return pending().await;
                };
                let answer = Response::builder()
                    .status(code)
                    .body(Body::from(body.to_string().into_bytes()));
                Ok::<_, BoxError>(answer?)
            }
        };
        let client = Client::new(service_fn(answer), "default");
        let pods = all::<Pod, Pod>(&client, clock, is_judged)
            .await
            .map_err(|error| error.to_string())?;
        Ok(pods.iter().map(|pod| pod.name().to_owned()).collect())
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn page(names: &[&str], next: &str) -> (u16, Value) {
    let item = |name: &&str| {
        let class = if name.starts_with("own") {
            "batch"
        } else {
            "system-node-critical"
        };
        json!({"metadata": {"name": name, "namespace": "kube-system"}, "spec": {"priorityClassName": class}})
    };
    let items: Vec<Value> = names.iter().map(item).collect();
    (
        200,
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"continue": next}, "items": items}),
    )
}

fn error(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message});
    (code, status)
}

#[tokio::test]
async fn pages_follow_each_other_and_pods_that_nobody_judges_are_dropped() {
    let server = Server::new(&[page(&["a", "own"], "n1"), page(&[], "n2"), page(&["b"], "")]);
    assert_eq!(server.list(&ManualClock::default()).await.unwrap(), ["a", "b"]);
    let queries = ["&limit=500", "&limit=500&continue=n1", "&limit=500&continue=n2"];
    assert_eq!(server.asked(), queries);
}

#[tokio::test]
async fn a_list_whose_moment_is_forgotten_begins_anew_once() {
    let gone = error(410, "Expired", "too old");
    let server = Server::new(&[page(&["a"], "n1"), gone.clone(), page(&["b"], "n2"), page(&["c"], "")]);
    assert_eq!(
        server.list(&ManualClock::default()).await.unwrap(),
        ["b", "c"],
        "nothing of the first list stays"
    );
    let server = Server::new(&[page(&["a"], "n1"), gone.clone(), page(&["b"], "n2"), gone.clone()]);
    let said = server.list(&ManualClock::default()).await.unwrap_err();
    assert_eq!(
        said,
        "pods cannot be listed: the continue token of the list expired twice"
    );
    assert_eq!(server.asked().len(), 4);
    let server = Server::new(&[gone]);
    assert!(server.list(&ManualClock::default()).await.is_err());
    assert_eq!(server.asked().len(), 1, "a first page has no moment to forget");
}

#[tokio::test]
async fn what_the_server_refuses_is_said_with_what_helps() {
    let forbidden = error(
        403,
        "Forbidden",
        "pods is forbidden: User \"a\" cannot list resource \"pods\"",
    );
    let said = Server::new(&[forbidden])
        .list(&ManualClock::default())
        .await
        .unwrap_err();
    assert!(
        said.starts_with("permission to list pods is missing: ") && said.contains("User \"a\""),
        "{said}"
    );
    let expired = error(401, "Unauthorized", "Unauthorized");
    let said = Server::new(&[expired]).list(&ManualClock::default()).await.unwrap_err();
    assert!(
        said.contains("have expired")
            && said.contains("kops export kubeconfig --admin")
            && !said.contains("permission"),
        "{said}"
    );
    let broken = error(500, "InternalError", "etcd is away");
    let said = Server::new(&[page(&["a"], "n"), broken])
        .list(&ManualClock::default())
        .await
        .unwrap_err();
    assert_eq!(
        said,
        "pods cannot be listed: the API server answered 500 InternalError: etcd is away"
    );
}

#[tokio::test]
async fn a_page_that_does_not_come_ends_the_list() {
    let clock = ManualClock::default();
    let server = Server::new(&[page(&["a"], "n1")]);
    let mut list = Box::pin(server.list(&clock));
    assert!(list.as_mut().now_or_never().is_none());
    clock.advance(Duration::from_secs(9));
    assert!(list.as_mut().now_or_never().is_none());
    clock.advance(Duration::from_secs(1));
    let said = list.now_or_never().expect("its time is over").unwrap_err();
    assert_eq!(said, "the API server did not return pods within 10s");
}
