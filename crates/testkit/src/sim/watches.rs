//! Watches: the log of a kind, as a stream of lines.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep_until};

use super::call::Call;
use super::faults::{WatchFault, happens};
use super::process::Process;
use super::requests::broken_off;
use super::selector::Selector;
use super::status::Refused;
use super::store::{Change, Stored};
use super::{BoxError, Shared, State, now};

/// The interval of bookmarks, as of a real server.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// Longer than any simulation.
const LONGER_THAN_ANY_SIMULATION: Duration = Duration::from_hours(24 * 365);

/// One watch.
pub(super) struct Watch {
    server: Arc<Shared>,
    process: Process,
    what: What,
    /// Everything up to this revision was looked at.
    revision: u64,
    /// Lines to send before anything else.
    first: VecDeque<Bytes>,
    ends: End,
    bookmark: Option<Instant>,
    /// An event on its way.
    under_way: Option<(Bytes, Instant)>,
    /// The server's count of interruptions when the watch began.
    interruptions: u64,
}

/// The watched objects, and their representation.
struct What {
    kind: usize,
    namespace: String,
    selector: Selector,
    metadata_only: bool,
}

/// The end of a watch.
#[derive(Clone, Copy, Debug)]
enum End {
    At {
        time: Instant,
        broken: bool,
    },
    /// Never, without a sign: the connection is gone, and the client does not know.
    Never,
    /// After the next line.
    Ended,
}

enum Next {
    Event { line: Bytes, due: Instant },
    Expired,
    Nothing,
}

impl What {
    fn has(&self, change: &Change, object: Option<&Arc<Stored>>) -> bool {
        let here = self.namespace.is_empty() || self.namespace == change.key.namespace;
        here && object.is_some_and(|object| self.selector.matches(&object.value))
    }

    /// The event that shows a change, if it is one of what is watched.
    fn event(&self, change: &Change) -> Option<Bytes> {
        let was = self.has(change, change.before.as_ref());
        let is = self.has(change, change.after.as_ref());
        let word = match (was, is) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        Some(self.line(word, &change.last))
    }

    fn line(&self, word: &str, object: &Stored) -> Bytes {
        let text = if self.metadata_only {
            metadata_only(&object.value).to_string().into()
        } else {
            object.text().clone()
        };
        [br#"{"type":""#, word.as_bytes(), br#"","object":"#, &text, b"}\n"]
            .concat()
            .into()
    }
}

/// An object as `PartialObjectMetadata`.
pub(super) fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn event(word: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": word, "object": object})).into()
}

impl Watch {
    /// Begins a watch.
    pub(super) fn begin(
        server: &Arc<Shared>,
        state: &mut State,
        process: &Process,
        call: &Call,
    ) -> Result<Self, Refused> {
        let fault = state.faults.watch(&mut state.random);
        if let Some(WatchFault::Refused(code)) = fault {
            return Err(Refused::server(code));
        }
        let expired = Refused::expired("too old resource version");
        if fault == Some(WatchFault::Expired) && state.random.bool() {
            return Err(expired);
        }
        let what = What {
            kind: call.kind,
            namespace: call.namespace.clone(),
            selector: Selector::read(call.query("labelSelector"), call.query("fieldSelector"))?,
            metadata_only: call.metadata_only,
        };
        let now = now();
        let lasts = Duration::from_secs(call.number("timeoutSeconds")?.unwrap_or(1800));
        let (time, broken) = match fault {
            Some(WatchFault::Ends { after, broken }) => (now + lasts.min(after), broken),
            _ => (now + lasts, false),
        };
        let bookmarks = call.flag("allowWatchBookmarks") && fault != Some(WatchFault::Silent);
        let from = call.number("resourceVersion")?.unwrap_or_default();
        let all = from == 0 || call.flag("sendInitialEvents");
        let mut watch = Self {
            server: Arc::clone(server),
            process: process.clone(),
            what,
            revision: if all { state.store.revision() } else { from },
            first: VecDeque::new(),
            ends: if fault == Some(WatchFault::Silent) {
                End::Never
            } else {
                End::At { time, broken }
            },
            bookmark: bookmarks.then_some(now + BOOKMARK_INTERVAL),
            under_way: None,
            interruptions: state.interruptions,
        };
        if fault == Some(WatchFault::Expired) {
            watch.first.push_back(event("ERROR", &expired.status()));
            watch.ends = End::Ended;
        } else if all {
            watch.first_events(state, call.flag("sendInitialEvents"));
        }
        Ok(watch)
    }

    /// Every object, and a bookmark after them when the request wants these events.
    fn first_events(&mut self, state: &State, asked: bool) {
        for (key, object) in state.store.of_kind(self.what.kind) {
            let here = self.what.namespace.is_empty() || self.what.namespace == key.namespace;
            if here && self.what.selector.matches(&object.value) {
                self.first.push_back(self.what.line("ADDED", object));
            }
        }
        if asked {
            let mut bookmark = self.bookmark_of(state);
            bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            self.first.push_back(event("BOOKMARK", &bookmark));
        }
    }

    fn bookmark_of(&self, state: &State) -> Value {
        let kind = &state.store.kinds[self.what.kind];
        let metadata = json!({"resourceVersion": self.revision.to_string(), "creationTimestamp": null});
        json!({"kind": kind.name, "apiVersion": kind.api_version(), "metadata": metadata, "spec": {}, "status": {}})
    }

    /// The body of the answer.
    pub(super) fn body(self) -> UnsyncBoxBody<Bytes, BoxError> {
        let lines = stream::unfold(self, async |mut watch| {
            let line = watch.next().await?;
            Some((line.map(Frame::data), watch))
        });
        StreamBody::new(lines).boxed_unsync()
    }

    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        let server = Arc::clone(&self.server);
        loop {
            self.process.running().await;
            if let Some(line) = self.first.pop_front() {
                return Some(Ok(line));
            }
            let mut changed = pin!(server.changed.notified());
            // Later events wake it.
            changed.as_mut().enable();
            let (next, now) = match self.ends {
                End::Ended => return None,
                End::At { .. } => self.look(),
                End::Never => (Next::Nothing, now()),
            };
            let (time, broken) = match self.ends {
                End::At { time, broken } => (time, broken),
                End::Never | End::Ended => (now + LONGER_THAN_ANY_SIMULATION, true),
            };
            if self.is_interrupted() || now >= time {
                let broken = broken || self.is_interrupted();
                self.ends = End::Ended;
                return broken.then(|| Err(broken_off()));
            }
            let wake = match next {
                Next::Event { line, due } if due <= now => {
                    self.first.push_back(line);
                    continue;
                }
                // Nothing overtakes it, but for the end of the watch.
                Next::Event { line, due } => {
                    self.under_way = Some((line, due));
                    due.min(time)
                }
                Next::Expired => {
                    self.ends = End::Ended;
                    let expired = Refused::expired("too old resource version");
                    self.first.push_back(event("ERROR", &expired.status()));
                    continue;
                }
                Next::Nothing => self.bookmark.map_or(time, |bookmark| bookmark.min(time)),
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(wake) => self.remark(wake),
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        self.server.lock().interruptions != self.interruptions
    }

    /// The next event that concerns this watch.
    fn look(&mut self) -> (Next, Instant) {
        let now = now();
        if let Some((line, due)) = self.under_way.take() {
            return (Next::Event { line, due }, now);
        }
        let server = Arc::clone(&self.server);
        let mut state = server.lock();
        let found = {
            let Some(log) = state.store.log(self.what.kind, self.revision) else {
                return (Next::Expired, now);
            };
            let found = log
                .iter()
                .find_map(|change| Some((change.revision, change.at, self.what.event(change)?)));
            self.revision = found
                .as_ref()
                .map_or(state.store.revision(), |(revision, ..)| *revision);
            found
        };
        let next = match found {
            None => Next::Nothing,
            Some((_, at, line)) => {
                let State { faults, random, .. } = &mut *state;
                let due = server.start + at + faults.event(random);
                Next::Event { line, due }
            }
        };
        (next, now)
    }

    /// Queues a bookmark, if its time has come.
    fn remark(&mut self, now: Instant) {
        let due = self.bookmark.is_some_and(|bookmark| bookmark <= now) && self.under_way.is_none();
        if !due {
            return;
        }
        self.bookmark = Some(now + BOOKMARK_INTERVAL);
        let server = Arc::clone(&self.server);
        let mut state = server.lock();
        let State { faults, random, .. } = &mut *state;
        let often = if faults.repeated_bookmarks && happens(500, random) {
            2
        } else {
            1
        };
        let line = event("BOOKMARK", &self.bookmark_of(&state));
        self.first.extend(std::iter::repeat_n(line, often));
    }
}
