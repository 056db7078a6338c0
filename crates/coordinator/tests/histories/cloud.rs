//! A cloud that answers from the truth, and may be slow, throttling, silent, broken or away.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use reqwest::Body;
use serde_json::json;
use tidewaiter_testkit::sim::Process;
use tokio::sync::Notify;

use crate::deletions::Wrong;
use crate::events::{self, Announces};
use crate::objects::{KINDS, ORGANIZATION};
use crate::truth::Truth;
use crate::world::sleep;

/// The state of the cloud's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Accepts requests and never answers.
    Silent,
    /// Accepts no connection.
    Refuses,
    /// 500, 502, 503.
    Errors,
    /// 429 with Retry-After.
    Throttles,
    /// 200 with something that is no list: HTML, half of a list, nothing.
    Garbage,
    /// Any of these, for each request.
    Patchy,
}

/// The faults while the cloud is away.
pub const BAD: [Mood; 5] = [
    Mood::Silent,
    Mood::Refuses,
    Mood::Errors,
    Mood::Throttles,
    Mood::Garbage,
];

/// Seconds of Retry-After.
pub const RETRY_AFTER: u64 = 20;

/// A request of a process.
#[derive(Clone, Debug)]
pub struct Asked {
    pub at: Duration,
    /// Below the organization.
    pub path: String,
}

#[derive(Debug)]
pub struct State {
    pub truth: Truth,
    pub mood: Mood,
    /// The fault of each list of a mirrored kind.
    pub wrong: Option<Wrong>,
    /// True if it has a record of deletions, which older ones do not.
    pub has_record: bool,
    pub latency: Duration,
    pub announces: Announces,
    /// The number of times that the way in which it announces became another.
    pub epoch: u64,
    /// The kinds that changed, one after another.
    pub changes: Vec<&'static str>,
    pub asked: Vec<Asked>,
    random: fastrand::Rng,
    start: tokio::time::Instant,
}

/// Clones are the same one.
#[derive(Clone, Debug)]
pub struct Cloud {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Cloud {
    pub fn new(random: fastrand::Rng) -> Self {
        let state = State {
            truth: Truth::default(),
            mood: Mood::Well,
            wrong: None,
            has_record: true,
            latency: Duration::from_millis(20),
            announces: Announces::Well,
            epoch: 0,
            changes: Vec::new(),
            asked: Vec::new(),
            random,
            start: sleep(Duration::ZERO).deadline(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::default(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Notifies when the change stream has something to do.
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Changes what the cloud says, and announces it.
    pub fn change(&self, word: &'static str, change: impl FnOnce(&mut Truth) -> bool) -> bool {
        let mut state = self.lock();
        let differs = change(&mut state.truth);
        if differs {
            state.changes.push(word);
        }
        drop(state);
        self.changed.notify_waiters();
        differs
    }

    pub fn announce(&self, announces: Announces) {
        let mut state = self.lock();
        if state.announces != announces {
            state.announces = announces;
            state.epoch += 1;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Ends every connection of the change stream.
    pub fn interrupt(&self) {
        self.lock().epoch += 1;
        self.changed.notify_waiters();
    }

    /// Answers a request of a process.
    pub async fn answer(self, process: Process, request: reqwest::Request) -> reqwest::Result<reqwest::Response> {
        if process.is_dead() {
            std::future::pending::<()>().await;
        }
        let path = request.url().path();
        let path = path
            .strip_prefix(&format!("/v3/organizations/{ORGANIZATION}/"))
            .unwrap_or(path);
        let path = path.to_owned();
        let header = |name: &str| Some(request.headers().get(name)?.to_str().unwrap().to_owned());
        let (known, cursor) = (header("if-none-match"), header("last-event-id"));
        let (there, back) = self.ask(&path);
        sleep(there).await;
        let answer = if path.ends_with("/events") {
            self.stream(&process, cursor.and_then(|cursor| cursor.parse().ok()))
                .await
        } else {
            self.list(&path, known.as_deref()).await
        };
        sleep(back).await;
        process.running().await;
        match answer {
            Some(answer) => Ok(reqwest::Response::from(answer)),
            None => Err(broken().await),
        }
    }

    fn ask(&self, path: &str) -> (Duration, Duration) {
        let mut state = self.lock();
        let at = state.start.elapsed();
        state.asked.push(Asked {
            at,
            path: path.to_owned(),
        });
        let longest = u64::try_from(state.latency.as_micros()).unwrap();
        let mut way = || Duration::from_micros(state.random.u64(1..=longest));
        (way(), way())
    }

    /// The mood for one request.
    fn mood(&self) -> Mood {
        let mut state = self.lock();
        let mood = state.mood;
        match mood {
            Mood::Patchy if state.random.bool() => Mood::Well,
            Mood::Patchy => BAD[state.random.usize(..BAD.len())],
            mood => mood,
        }
    }

    async fn list(&self, path: &str, known: Option<&str>) -> Option<http::Response<Body>> {
        let response = |status: u16, body: String| {
            let response = http::Response::builder().status(status);
            response
                .header("content-type", "application/json")
                .body(Body::from(body))
                .unwrap()
        };
        match self.mood() {
            Mood::Silent => std::future::pending().await,
            Mood::Refuses => None,
            Mood::Errors => {
                let status = [500, 502, 503][self.lock().random.usize(..3)];
                Some(response(status, "<html>sorry</html>".to_owned()))
            }
            Mood::Throttles => {
                let mut response = response(429, String::new());
                response.headers_mut().insert("retry-after", RETRY_AFTER.into());
                Some(response)
            }
            Mood::Garbage => {
                let garbage = ["<html>log in</html>", "", "null", "[{\"id\":", "{}"];
                Some(response(
                    200,
                    garbage[self.lock().random.usize(..garbage.len())].to_owned(),
                ))
            }
            Mood::Well | Mood::Patchy => {
                let Some((status, body)) = self.well(path) else {
                    return Some(response(404, json!({"code": 404, "message": "not found"}).to_string()));
                };
                if status != 200 {
                    return Some(response(status, body));
                }
                let mut hasher = DefaultHasher::new();
                body.hash(&mut hasher);
                let etag = format!("\"{:x}\"", hasher.finish());
                let mut response = if known == Some(&etag) {
                    response(304, String::new())
                } else {
                    response(200, body)
                };
                response.headers_mut().insert("etag", etag.parse().unwrap());
                Some(response)
            }
        }
    }

    /// The status and the body of a list.
    fn well(&self, path: &str) -> Option<(u16, String)> {
        let state = self.lock();
        if path.ends_with("/deletions") && !state.has_record {
            return None;
        }
        let list = state.truth.list(path);
        let Some(wrong) = state
            .wrong
            .filter(|_| !path.ends_with("/deletions") && !path.ends_with("/nodes"))
        else {
            return Some((200, json!(list?).to_string()));
        };
        let nth = state.asked.iter().filter(|asked| asked.path == path).count();
        match list {
            Some(list) if KINDS.iter().any(|kind| kind.path() == path) => Some(wrong.response(&list, nth)),
            list => Some((200, json!(list.unwrap_or_default()).to_string())),
        }
    }

    async fn stream(&self, process: &Process, known: Option<usize>) -> Option<http::Response<Body>> {
        let announces = self.lock().announces;
        let response = http::Response::builder();
        match (announces, self.mood()) {
            (Announces::Hangs, _) | (_, Mood::Silent) => std::future::pending().await,
            (_, Mood::Refuses) => None,
            (Announces::Absent, _) => Some(response.status(404).body(Body::from("")).unwrap()),
            (_, Mood::Errors | Mood::Throttles | Mood::Garbage) => {
                Some(response.status(503).body(Body::from("")).unwrap())
            }
            (_, Mood::Well | Mood::Patchy) => {
                let bytes = events::bytes(self.clone(), process.clone(), known);
                let response = response.header("content-type", "text/event-stream");
                Some(response.body(Body::wrap_stream(bytes)).unwrap())
            }
        }
    }
}

/// The error of a connection that broke. No other way makes one.
async fn broken() -> reqwest::Error {
    let cut = stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
    let response = reqwest::Response::from(http::Response::new(Body::wrap_stream(cut)));
    response.bytes().await.unwrap_err()
}
