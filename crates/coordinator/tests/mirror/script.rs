//! A cloud that answers what a test tells it to.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::{Router, serve};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tidewaiter_testkit::leaks;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

pub use crate::objects::{CLUSTER, ORGANIZATION, id};

/// The answer at a path.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A list with an ETag.
    List(Vec<Value>),
    /// A list with this ETag, whatever the list is.
    Tagged(&'static str, Vec<Value>),
    /// Exactly this.
    Exactly(u16, Vec<(&'static str, &'static str)>, String),
    /// Half of a list, and then the end of the connection.
    Half(Vec<Value>),
    /// Nothing, for ever.
    Silence,
    /// Nothing to the first request, and then a list.
    FirstHangs(Vec<Value>),
}

#[derive(Default)]
struct Shared {
    /// By the end of the path.
    answers: HashMap<String, Answer>,
    /// The record of deletions.
    deleted: Vec<Value>,
    /// The number of requests of each path.
    requests: BTreeMap<String, usize>,
    /// The state of the change stream.
    stream: Stream,
}

impl Shared {
    fn show_deleted(&mut self) {
        let all = Answer::List(self.deleted.clone());
        self.answers.insert("/deletions".to_owned(), all);
    }
}

fn deletion(kind: &str, id: &Value) -> Value {
    json!({"kind": kind, "id": id, "at": "2026-01-01T00:00:00Z"})
}

/// A change stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    /// There is none.
    #[default]
    Absent,
    /// It announces each change.
    Good,
    /// It is open and announces nothing.
    Silent,
    /// It ends again and again, and what is announced in between is lost.
    CutEach(Duration),
    /// It announces that everything may have changed.
    Resets,
    /// It announces each change five times.
    Repeats,
    /// The connection is accepted, and nothing comes.
    Nothing,
    /// The connection is accepted, and not even the head of a response comes.
    Hangs,
    /// The server fails.
    Fails,
}

/// The cloud. Clones share it.
#[derive(Clone)]
pub struct Script {
    shared: Arc<Mutex<Shared>>,
    events: broadcast::Sender<String>,
    pub url: String,
}

impl Script {
    /// Every list is empty.
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    pub async fn start(streams: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let script = Self {
            shared: Arc::default(),
            events: broadcast::Sender::new(16),
            url: format!("http://{}", listener.local_addr().unwrap()),
        };
        script.lock().stream = if streams { Stream::Good } else { Stream::Absent };
        let router = Router::new().fallback(answer).with_state(script.clone());
        tokio::spawn(async move { serve(listener, router).await.unwrap() });
        script
    }

    /// Answers so at each path with this end.
    pub fn set(&self, end: impl Into<String>, answer: Answer) {
        self.lock().answers.insert(end.into(), answer);
    }

    /// Lists these objects at each path with this end.
    pub fn list(&self, end: impl Into<String>, objects: impl IntoIterator<Item = Value>) {
        self.set(end, Answer::List(objects.into_iter().collect()));
    }

    /// The same in place of what it listed before, of which it records the deletion.
    pub fn replace(&self, end: impl Into<String>, objects: impl IntoIterator<Item = Value>) {
        let (end, objects): (String, Vec<Value>) = (end.into(), objects.into_iter().collect());
        let is_listed = |id: &Value| objects.iter().any(|object| object["id"] == *id);
        let kind = match end.rsplit('/').next().unwrap_or_default() {
            "ssh-users" => "users",
            "labels" if end.contains("/node-pools/") => "node-pool-labels",
            kind => kind,
        };
        let mut shared = self.lock();
        if let Some(Answer::List(before)) = shared.answers.get(&end) {
            let missing = before.iter().filter(|object| !is_listed(&object["id"]));
            let missing: Vec<Value> = missing.map(|object| deletion(kind, &object["id"])).collect();
            shared.deleted.extend(missing);
        }
        shared.deleted.retain(|deletion| !is_listed(&deletion["id"]));
        shared.answers.insert(end, Answer::List(objects));
        shared.show_deleted();
    }

    /// Adds these objects of a kind, as the change stream names it, to the record of deletions.
    pub fn deleted(&self, kind: &str, numbers: impl IntoIterator<Item = usize>) {
        let deletions = numbers.into_iter().map(|number| deletion(kind, &json!(id(number))));
        let mut shared = self.lock();
        shared.deleted.extend(deletions);
        shared.show_deleted();
    }

    /// Sets the state of the change stream.
    pub fn streams(&self, stream: Stream) {
        self.lock().stream = stream;
    }

    /// Sends a change of these kinds.
    pub fn changed(&self, kinds: &[&str]) {
        let change = format!("event: change\nid: 1\ndata: {}\n\n", json!({ "kinds": kinds }));
        let stream = self.lock().stream;
        let sent = match stream {
            Stream::Absent | Stream::Silent | Stream::Nothing | Stream::Hangs | Stream::Fails => return,
            Stream::Good | Stream::CutEach(_) => change,
            Stream::Resets => "event: reset\nid: 1\ndata: {}\n\n".to_owned(),
            Stream::Repeats => change.repeat(5),
        };
        let _ = self.events.send(sent);
    }

    /// The number of requests of a path with this end.
    pub fn requests(&self, end: &str) -> usize {
        let shared = self.lock();
        let paths = shared.requests.iter().filter(|(path, _)| path.ends_with(end));
        paths.map(|(_, times)| times).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "a server in real time")]
    fn stream(&self, stream: Stream) -> Body {
        let hello = stream::iter(["event: hello\nid: 0\ndata: {}\n\n".to_owned()]);
        let changes = stream::unfold(self.events.subscribe(), async |mut events| {
            let event = events.recv().await.ok()?;
            Some((event, events))
        });
        let all = hello.chain(changes).map(Ok::<_, Infallible>);
        match stream {
            Stream::Nothing => Body::from_stream(stream::pending::<Result<String, Infallible>>()),
            Stream::CutEach(time) => Body::from_stream(all.take_until(tokio::time::sleep(time))),
            _ => Body::from_stream(all),
        }
    }
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let known = request.headers().get("if-none-match").cloned();
    let (found, stream, nth) = {
        let mut shared = script.lock();
        let requests = shared.requests.entry(path.clone()).or_default();
        *requests += 1;
        let nth = *requests;
        let found = shared.answers.iter().find(|(end, _)| path.ends_with(end.as_str()));
        let found = found.map_or_else(|| Answer::List(Vec::new()), |(_, answer)| answer.clone());
        (found, shared.stream, nth)
    };
    if path.ends_with("/events") {
        let response = Response::builder().header("content-type", "text/event-stream");
        return match stream {
            Stream::Absent => Response::builder().status(404).body(Body::empty()).unwrap(),
            Stream::Fails => Response::builder().status(500).body(Body::empty()).unwrap(),
            Stream::Hangs => std::future::pending().await,
            stream => response.body(script.stream(stream)).unwrap(),
        };
    }
    let response = Response::builder().header("content-type", "application/json");
    match found {
        Answer::FirstHangs(_) if nth == 1 => std::future::pending().await,
        Answer::List(objects) | Answer::FirstHangs(objects) => {
            let body = json!(objects).to_string();
            let etag = etag(&body);
            if known.is_some_and(|known| known == etag) {
                return Response::builder().status(304).body(Body::empty()).unwrap();
            }
            response.header("etag", etag).body(Body::from(body)).unwrap()
        }
        Answer::Tagged(tag, _) if known.is_some_and(|known| known == tag) => {
            Response::builder().status(304).body(Body::empty()).unwrap()
        }
        Answer::Tagged(tag, objects) => {
            let body = json!(objects).to_string();
            response.header("etag", tag).body(Body::from(body)).unwrap()
        }
        Answer::Exactly(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Body::from(body)).unwrap()
        }
        Answer::Half(objects) => {
            let body = json!(objects).to_string();
            let half = Bytes::copy_from_slice(&body.as_bytes()[..body.len() / 2]);
            let body_length = body.len();
            let broken = stream::iter([Ok(half), Err(std::io::Error::other("cut"))]);
            response
                .header("content-length", body_length)
                .body(Body::from_stream(broken))
                .unwrap()
        }
        Answer::Silence => std::future::pending().await,
    }
}

fn etag(body: &str) -> String {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    format!("\"{:x}\"", hasher.finish())
}

/// A user with an SSH key.
pub fn user(number: usize, name: &str) -> Value {
    json!({"id": id(number), "name": name, "email": "a@example.org", "avatar_url": null, "added_at": "1551441600000", "created_at": "1551441600000",
        "updated_at": "1551441600000", "ssh_keys": []})
}

/// A label of the cluster.
pub fn label(number: usize, value: &str) -> Value {
    json!({"id": id(number), "created_at": "1551441600000", "updated_at": "1551441600000",
        "key": format!("cluster.containership.io/key-{number}"), "value": value})
}

/// A registry with its credentials.
pub fn registry(number: usize, password: &str) -> Value {
    leaks::secret(password);
    json!({"id": id(number), "added_at": null, "created_at": "1551441600000", "updated_at": "1551441600000",
        "organization_id": ORGANIZATION, "owner": null, "description": "ours", "provider": "private",
        "serveraddress": "registry.example.org", "email": null,
        "credentials": {"username": "puller", "password": password}})
}

/// The interval of the tests' syncs.
pub const INTERVAL: Duration = Duration::from_secs(1);
