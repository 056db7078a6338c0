//! A simulated Kubernetes API server, for whole roles in simulated time.
//!
//! A [`kube::Client`] of it sends its requests to a deterministic state machine instead of a socket: the same seed
//! gives the same history, byte by byte ([`ApiServer::log`]). Run it on a `current_thread` runtime with paused time,
//! which tokio moves to the next timer whenever every task waits. Whatever decides the order of events has to be drawn
//! from a seeded generator and must not depend on the order of a `HashMap`.
//!
//! It serves what Tidewaiter requests of a real server: get, list (pages, selectors, older revisions), watch
//! (bookmarks, initial events, selectors), metadata only, create, replace, merge patch, server-side apply, delete and
//! deletecollection, preconditions on uid and resourceVersion, generateName, status subresources, finalizers,
//! Namespaces, and errors as `Status`. It has no admission, no RBAC, no validation of schemas, no defaults; whatever it
//! does not know it refuses. The garbage collector runs when a test calls it.
//!
//! It is served over HTTP too, in real time, to a program that runs as a process of its own ([`Served`]).
//!
//! A client belongs to a [`Process`], which can be killed at any write and stopped for a while. What goes wrong on the
//! way is drawn from the seed ([`Faults`]). A write that is on its way arrives although its client has given up, or has
//! died.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

mod call;
mod client;
mod faults;
mod kind;
mod log;
mod ownership;
mod process;
mod requests;
mod seeds;
mod selector;
mod served;
mod status;
mod store;
mod watches;

pub use call::Verb;
pub use client::{AnswerBody, Connection};
pub use faults::Faults;
pub use kind::Kind;
pub use log::{Objects, Observer, SentRequest, Write};
pub use process::{Crash, Process};
pub use seeds::Seeds;
pub use served::Served;
use status::Refused;
use store::{Done, Key, Store};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The server. Clones are the same one.
#[derive(Clone)]
pub struct ApiServer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Wakes the watches: an object has changed, or they are interrupted.
    /// Not tokio's watch channel, which wakes its receivers in an order of its own.
    changed: Notify,
    start: Instant,
}

struct State {
    store: Store,
    faults: Faults,
    random: fastrand::Rng,
    away: bool,
    /// The plurals of the kinds whose writes are rejected.
    rejected: BTreeSet<String>,
    /// The plurals and namespaces in which nothing can be created.
    refused: BTreeMap<(String, String), Refused>,
    /// The number of times that all watches were broken off.
    interruptions: u64,
    log: Vec<Write>,
    requests: Vec<SentRequest>,
    observer: Option<Box<dyn Observer>>,
}

impl ApiServer {
    /// A server of these kinds, with nothing in it. What is random is drawn from `seed`. Its time is tokio's, from now
    /// on.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Kind>, seed: u64) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State {
                store: Store::new(kinds.into_iter().collect()),
                faults: Faults::none(),
                random: fastrand::Rng::with_seed(seed),
                away: false,
                rejected: BTreeSet::new(),
                refused: BTreeMap::new(),
                interruptions: 0,
                log: Vec::new(),
                requests: Vec::new(),
                observer: None,
            }),
            changed: Notify::new(),
            start: now(),
        }))
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    /// The observer of each write from now on.
    pub fn observe(&self, observer: impl Observer + 'static) {
        self.0.lock().observer = Some(Box::new(observer));
    }

    /// The server does not answer from now on, and all watches break off; or it is back.
    pub fn set_away(&self, away: bool) {
        self.0.lock().away = away;
        if away {
            self.break_watches();
        }
    }

    /// Rejects every write of a process to this kind with 422, as an admission policy does; or no more.
    pub fn set_rejected(&self, resource: &str, rejected: bool) {
        let mut state = self.0.lock();
        if rejected {
            state.rejected.insert(resource.to_owned());
        } else {
            state.rejected.remove(resource);
        }
    }

    /// Refuses every creation of this kind by a process in one namespace, with this status, as a quota (403) or a
    /// policy (422) does.
    pub fn refuse(&self, resource: &str, namespace: &str, code: u16, message: &str) {
        let refused = Refused::new(code, "Forbidden", message);
        let place = (resource.to_owned(), namespace.to_owned());
        self.0.lock().refused.insert(place, refused);
    }

    /// Refuses no creation of this kind in this namespace any more.
    pub fn permit(&self, resource: &str, namespace: &str) {
        let place = (resource.to_owned(), namespace.to_owned());
        self.0.lock().refused.remove(&place);
    }

    /// Breaks off all watches.
    pub fn break_watches(&self) {
        self.0.lock().interruptions += 1;
        self.0.changed.notify_waiters();
    }

    /// Forgets what happened until now: a watch or a list that goes on from before is answered 410.
    pub fn compact(&self) {
        self.0.lock().store.compact();
    }

    /// The time since the server's start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Reads the objects as they are now.
    pub fn read<T>(&self, read: impl FnOnce(Objects<'_>) -> T) -> T {
        read(Objects(&self.0.lock().store))
    }

    /// Creates an object, which names its own type, without a fault on the way; `by` is who does it. Says whether it
    /// was accepted.
    #[expect(clippy::must_use_candidate, reason = "a history does not care")]
    pub fn create(&self, by: &str, object: &Value) -> bool {
        self.0.write(by, Verb::Create, |store| {
            let kind = store.kind_of(object);
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let key = Key::new(kind, namespace, object["metadata"]["name"].as_str().unwrap_or_default());
            (key.clone(), store.create(&key, object))
        })
    }

    /// Changes an object in place, its status included, without a fault on the way. Says whether it was there.
    pub fn edit(&self, by: &str, resource: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) -> bool {
        self.0.write(by, Verb::Update, |store| {
            let key = Key::new(store.plural(resource), namespace, name);
            let done = store.edit(&key, change);
            (key, done)
        })
    }

    /// Deletes an object without a fault on the way. Says whether it was there.
    #[expect(clippy::must_use_candidate, reason = "a history does not care")]
    pub fn delete(&self, by: &str, resource: &str, namespace: &str, name: &str) -> bool {
        self.0.write(by, Verb::Delete, |store| {
            let key = Key::new(store.plural(resource), namespace, name);
            let done = store.delete(&key, &Value::Null);
            (key, done)
        })
    }

    /// Deletes the objects whose owners are all gone, and what is in Namespaces that are being deleted.
    pub fn collect_garbage(&self) {
        let mut state = self.0.lock();
        state.store.now = self.0.elapsed();
        for done in state.store.collect_garbage() {
            state.note("garbage-collector", Verb::Delete, &done.key.clone(), &Ok(done));
        }
        drop(state);
        self.0.changed.notify_waiters();
    }

    /// Every write that arrived so far, refused ones too.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.0.lock().log.clone()
    }

    /// Every request that processes have sent so far.
    #[must_use]
    pub fn requests(&self) -> Vec<SentRequest> {
        self.0.lock().requests.clone()
    }

    /// Every write that arrived so far, a line for each. The same seed gives the same text.
    #[must_use]
    pub fn log(&self) -> String {
        let state = self.0.lock();
        let lines: Vec<String> = state.log.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }
}

impl Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = &self.0.lock().store.kinds;
        f.debug_struct("ApiServer")
            .field("kinds", kinds)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Does a write now, notes it, and wakes the watches. Says whether it was accepted.
    fn write(&self, by: &str, verb: Verb, write: impl FnOnce(&mut Store) -> (Key, Result<Done, Refused>)) -> bool {
        self.result_of(by, verb, write).is_ok()
    }

    fn result_of(
        &self,
        by: &str,
        verb: Verb,
        write: impl FnOnce(&mut Store) -> (Key, Result<Done, Refused>),
    ) -> Result<Done, Refused> {
        let mut state = self.lock();
        state.store.now = self.elapsed();
        let (key, result) = write(&mut state.store);
        state.note(by, verb, &key, &result);
        drop(state);
        self.changed.notify_waiters();
        result
    }
}

impl State {
    /// Enters a write into the log and shows it to the observer.
    fn note(&mut self, by: &str, verb: Verb, key: &Key, result: &Result<Done, Refused>) {
        let write = Write::new(by, verb, key, result, &self.store);
        if let Some(observer) = &mut self.observer {
            observer.written(&write, Objects(&self.store));
        }
        self.log.push(write);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "tokio's own clock is the one that is simulated"
)]
fn now() -> Instant {
    Instant::now()
}
