//! One file of the state store that is in use: its last good content, and what is wrong with it now.
//!
//! A content is what decides labels and, from the same read, what a summary shows. Only the first is announced when it
//! changes, and a summary that is wrong costs nobody a label.
//!
//! Reads of one file never overlap, so an older answer cannot follow a newer one, and any number of callers cause one
//! read. Once there is a good content it is only ever replaced by a good one. A change is announced in the same step in
//! which it takes effect: no caller that goes away in between can lose it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_kit::{Backoff, SharedClock};
use tokio::sync::Mutex as Gate;

use super::Changed;
use super::announcements::Announcements;
use super::error::DefinitionError;
use super::reads::Reads;
use super::stale::{Moment, Stale};
use crate::document::InvalidFile;
use crate::store::{Etag, Read, StoreError};

/// After a first read that failed, callers are told of that failure for this long before one of them reads again.
const AFTER_FAILURE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

type Parse<T, S> = Box<dyn Fn(&str, &[u8]) -> Result<Content<T, S>, InvalidFile> + Send + Sync>;

/// What one read of a file gives.
pub(super) struct Content<T, S> {
    pub(super) labels: T,
    pub(super) summary: Result<S, InvalidFile>,
}

/// What all files share.
pub(super) struct Shared {
    pub(super) reads: Reads,
    pub(super) clock: SharedClock,
    pub(super) announcements: Announcements,
}

/// A file that is kept up to date.
pub(super) struct Tracked<T, S> {
    file: String,
    changed: Changed,
    parse: Parse<T, S>,
    shared: Arc<Shared>,
    reading: Gate<()>,
    state: Mutex<State<T, S>>,
}

struct State<T, S> {
    good: Option<Arc<T>>,
    /// Of the content that `good` was last found in.
    summary: Option<Result<Arc<S>, InvalidFile>>,
    /// The version that was read last, good or bad: what is known of it need not be read again.
    version: Option<Etag>,
    /// What is wrong with the content of that version.
    content: Option<InvalidFile>,
    /// What is wrong with getting at the file.
    access: Option<StoreError>,
    since: Timestamp,
    /// Since when anything has been wrong.
    failing: Option<Moment>,
    failures: u32,
    /// Monotonic: until then, callers are told of the failure of the last read.
    ask_again: Duration,
    /// Monotonic: when a caller last wanted it.
    wanted: Option<Duration>,
}

/// What a store's answer means.
enum Answer<T, S> {
    Content {
        parsed: Result<Content<T, S>, InvalidFile>,
        version: Option<Etag>,
    },
    SameVersion,
    Failed(StoreError),
}

impl<T: PartialEq, S> Tracked<T, S> {
    pub(super) fn new(
        file: String,
        changed: Changed,
        parse: impl Fn(&str, &[u8]) -> Result<Content<T, S>, InvalidFile> + Send + Sync + 'static,
        shared: Arc<Shared>,
    ) -> Self {
        let state = Mutex::new(State {
            good: None,
            summary: None,
            version: None,
            content: None,
            access: None,
            since: shared.clock.now(),
            failing: None,
            failures: 0,
            ask_again: Duration::ZERO,
            wanted: None,
        });
        Self {
            file,
            changed,
            parse: Box::new(parse),
            shared,
            reading: Gate::new(()),
            state,
        }
    }

    /// A caller wants it now.
    pub(super) fn want(&self) {
        self.lock().wanted = Some(self.shared.clock.monotonic());
    }

    /// The last good content; read now when it never was.
    pub(super) async fn get(&self) -> Result<Arc<T>, DefinitionError> {
        if let Some(known) = self.known() {
            return known;
        }
        let _reading = self.reading.lock().await;
        // Whoever had the gate before may have read it.
        if let Some(known) = self.known() {
            return known;
        }
        self.read().await;
        let state = self.lock();
        match (&state.good, state.problem()) {
            (Some(good), _) => Ok(Arc::clone(good)),
            (None, Some(problem)) => Err(problem),
            (None, None) => Err(self.never_read().into()),
        }
    }

    /// The last good content, from memory.
    pub(super) fn good(&self) -> Option<Arc<T>> {
        self.lock().good.clone()
    }

    /// What the last good content shows, from memory.
    pub(super) fn summary(&self) -> Result<Arc<S>, DefinitionError> {
        let state = self.lock();
        match (&state.summary, state.problem()) {
            (Some(summary), _) => summary.clone().map_err(DefinitionError::Invalid),
            (None, Some(problem)) => Err(problem),
            (None, None) => Err(self.never_read().into()),
        }
    }

    /// Since when the last good content may be gone by, and why.
    pub(super) fn stale(&self) -> Option<Stale> {
        let state = self.lock();
        state.good.as_ref()?;
        Some(state.failing?.stale(state.problem()?, &*self.shared.clock))
    }

    /// Asks whether the file is another one by now. Says whether the store answered, with whatever.
    pub(super) async fn refresh(&self) -> bool {
        let _reading = self.reading.lock().await;
        self.read().await
    }

    /// What is wrong with the file now, since when, and whether there is an earlier good content.
    pub(super) fn problem(&self) -> Option<(DefinitionError, Timestamp, bool)> {
        let state = self.lock();
        state
            .problem()
            .map(|problem| (problem, state.since, state.good.is_some()))
    }

    /// Whether a caller has wanted it since `time`, which is monotonic.
    pub(super) fn wanted_since(&self, time: Duration) -> bool {
        self.lock().wanted.is_some_and(|wanted| wanted >= time)
    }

    /// What callers are told without a read.
    fn known(&self) -> Option<Result<Arc<T>, DefinitionError>> {
        let state = self.lock();
        if let Some(good) = &state.good {
            return Some(Ok(Arc::clone(good)));
        }
        let told = self.shared.clock.monotonic() < state.ask_again;
        state.problem().filter(|_| told).map(Err)
    }

    /// The caller holds the gate.
    async fn read(&self) -> bool {
        let version = self.lock().version.clone();
        let answer = match self.shared.reads.read(&self.file, version.as_ref()).await {
            Ok(Read::Found { bytes, etag }) => Answer::Content {
                parsed: (self.parse)(&self.file, &bytes),
                version: etag,
            },
            Ok(Read::NotModified) if version.is_some() => Answer::SameVersion,
            Ok(Read::NotModified) => {
                Answer::Failed(self.unavailable("the store says that the file has not changed, and never gave it"))
            }
            Err(error) => Answer::Failed(error),
        };
        let answered = !matches!(answer, Answer::Failed(StoreError::Unavailable { .. }));
        let mut state = self.lock();
        let before = state.problem();
        if state.take(answer, before.is_some()) {
            tracing::info!(file = self.file, "the definition has changed");
            self.shared.announcements.add(self.changed.clone());
        }
        let after = state.problem();
        state.failures = if after.is_some() {
            state.failures.saturating_add(1)
        } else {
            0
        };
        state.ask_again = self.shared.clock.monotonic() + AFTER_FAILURE.delay(state.failures);
        if after.is_none() {
            state.failing = None;
        } else if state.failing.is_none() {
            state.failing = Some(Moment::now(&*self.shared.clock));
        }
        if before != after {
            state.since = self.shared.clock.now();
            self.tell(after.as_ref(), state.good.is_some());
        }
        answered
    }

    fn tell(&self, problem: Option<&DefinitionError>, good: bool) {
        match problem {
            Some(problem) if good => {
                tracing::warn!(%problem, "a file of the state store cannot be used; its last good version stays in force");
            }
            Some(problem) => tracing::warn!(%problem, "a file of the state store cannot be used"),
            None => tracing::info!(file = self.file, "the file can be used again"),
        }
    }

    fn never_read(&self) -> StoreError {
        self.unavailable("it has not been asked for it yet")
    }

    fn unavailable(&self, detail: &str) -> StoreError {
        StoreError::Unavailable {
            file: self.file.clone(),
            detail: detail.to_owned(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: PartialEq, S> State<T, S> {
    /// Takes in an answer. Says whether callers who have been told something are told something else from now on; who has
    /// only ever been told of a problem was told `bad`.
    fn take(&mut self, answer: Answer<T, S>, bad: bool) -> bool {
        let (parsed, version) = match answer {
            Answer::Failed(error) => {
                self.access = Some(error);
                return false;
            }
            Answer::SameVersion => {
                self.access = None;
                return false;
            }
            Answer::Content { parsed, version } => (parsed, version),
        };
        self.access = None;
        self.version = version;
        match parsed {
            Ok(Content { labels, summary }) => {
                self.content = None;
                self.summary = Some(summary.map(Arc::new));
                let (first, other) = match &self.good {
                    None => (true, false),
                    Some(good) => (false, **good != labels),
                };
                if first || other {
                    self.good = Some(Arc::new(labels));
                }
                other || (first && bad)
            }
            Err(invalid) => {
                self.content = Some(invalid);
                false
            }
        }
    }
}

impl<T, S> State<T, S> {
    /// Not getting at the file comes first: what its content was is known only of the past.
    fn problem(&self) -> Option<DefinitionError> {
        let access = self.access.clone().map(DefinitionError::from);
        access.or_else(|| self.content.clone().map(DefinitionError::Invalid))
    }
}
