//! One required file of the state store: its last valid content, and its current problem.
//!
//! A content has the fields that define labels and, from the same read, a summary. Only changes of the first are
//! announced, and an invalid summary costs no node its labels.
//!
//! Reads of one file never overlap, so an older response cannot follow a newer one, and concurrent callers cause one
//! read. A valid content is only ever replaced by a valid one. A change is announced in the same step in which it takes
//! effect, so that a caller that is dropped in between cannot lose it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tidewaiter_kit::Backoff;
use tokio::sync::Mutex as Gate;

use super::error::{DefinitionError, Moment, Stale};
use super::shared::{Changed, Shared};
use crate::document::InvalidFile;
use crate::store::{Etag, Read, StoreError};

/// After a failed first read, callers get that failure for this time before one of them reads again.
const AFTER_FAILURE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

type Parse<T, S> = Box<dyn Fn(&str, &[u8]) -> Result<Content<T, S>, InvalidFile> + Send + Sync>;

/// The result of one read of a file.
pub(super) struct Content<T, S> {
    pub(super) labels: T,
    pub(super) summary: Result<S, InvalidFile>,
}

/// A required file.
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
    /// The summary of the content in which `good` was last found.
    summary: Option<Result<Arc<S>, InvalidFile>>,
    /// The version that was read last, valid or not: its content need not be read again.
    version: Option<Etag>,
    /// The problem with the content of that version.
    content: Option<InvalidFile>,
    /// True if two responses in a row were invalid: one alone may be a write in progress.
    damaged: bool,
    /// The problem with access to the file.
    access: Option<StoreError>,
    since: Timestamp,
    /// The start of the current series of failures.
    failing: Option<Moment>,
    failures: u32,
    /// Monotonic time until which callers get the failure of the last read.
    ask_again: Duration,
    /// The monotonic time of the last request by a caller.
    wanted: Option<Duration>,
}

/// The meaning of a store's response.
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
            damaged: false,
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

    /// Records that a caller requests it now.
    pub(super) fn want(&self) {
        self.state.lock().wanted = Some(self.shared.clock.monotonic());
    }

    /// The last valid content; reads the file if none was read yet.
    pub(super) async fn get(&self) -> Result<Arc<T>, DefinitionError> {
        if let Some(known) = self.known() {
            return known;
        }
        let _reading = self.reading.lock().await;
        // Another caller may have read it while this one waited for the gate.
        if let Some(known) = self.known() {
            return known;
        }
        self.read().await;
        let state = self.state.lock();
        match (&state.good, state.problem()) {
            (Some(good), _) => Ok(Arc::clone(good)),
            (None, Some(problem)) => Err(problem),
            (None, None) => Err(self.never_read().into()),
        }
    }

    /// The last valid content, from memory.
    pub(super) fn good(&self) -> Option<Arc<T>> {
        self.state.lock().good.clone()
    }

    /// The summary of the last valid content, from memory.
    pub(super) fn summary(&self) -> Result<Arc<S>, DefinitionError> {
        let state = self.state.lock();
        match (&state.summary, state.problem()) {
            (Some(summary), _) => summary.clone().map_err(DefinitionError::Invalid),
            (None, Some(problem)) => Err(problem),
            (None, None) => Err(self.never_read().into()),
        }
    }

    /// Since when the last valid content may be stale, and why.
    pub(super) fn stale(&self) -> Option<Stale> {
        let state = self.state.lock();
        state.good.as_ref()?;
        Some(state.failing?.stale(state.problem()?, &*self.shared.clock))
    }

    /// The problem with the content or the summary, if the file is damaged and was valid before.
    pub(super) fn damage(&self) -> Option<DefinitionError> {
        let state = self.state.lock();
        let invalid = state.invalid().filter(|_| state.damaged && state.good.is_some());
        invalid.cloned().map(DefinitionError::Invalid)
    }

    /// Returns true if the last response was invalid, and the one before was not.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.state.lock().is_in_doubt()
    }

    /// Requests the file if it has changed. Returns whether the store responded, with any result.
    pub(super) async fn refresh(&self) -> bool {
        let _reading = self.reading.lock().await;
        self.read().await
    }

    /// The current problem with the file, since when, and whether there is an earlier valid content.
    pub(super) fn problem(&self) -> Option<(DefinitionError, Timestamp, bool)> {
        let state = self.state.lock();
        state
            .problem()
            .map(|problem| (problem, state.since, state.good.is_some()))
    }

    /// Returns true if callers wait for it only because the store is unavailable.
    pub(super) fn awaits_store(&self) -> bool {
        let state = self.state.lock();
        let away = matches!(state.access, Some(StoreError::Unavailable { .. }));
        away && state.good.is_none() && state.wanted.is_some()
    }

    /// Returns true if callers require it, and no read of it has ended.
    pub(super) fn is_unread(&self) -> bool {
        let state = self.state.lock();
        state.wanted.is_some() && state.good.is_none() && state.problem().is_none()
    }

    /// Returns true if the store has answered that there is no such file.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.state.lock().access, Some(StoreError::Missing { .. }))
    }

    /// Returns true if a caller has requested it since the monotonic time `time`.
    pub(super) fn wanted_since(&self, time: Duration) -> bool {
        self.state.lock().wanted.is_some_and(|wanted| wanted >= time)
    }

    /// The result for callers that needs no read.
    fn known(&self) -> Option<Result<Arc<T>, DefinitionError>> {
        let state = self.state.lock();
        if let Some(good) = &state.good {
            return Some(Ok(Arc::clone(good)));
        }
        let is_recent = self.shared.clock.monotonic() < state.ask_again;
        state.problem().filter(|_| is_recent).map(Err)
    }

    /// Requires that the caller holds the gate.
    async fn read(&self) -> bool {
        let version = self.state.lock().version.clone();
        let answer = match self.shared.reads.read(&self.file, version.as_ref()).await {
            Ok(Read::Found { bytes, etag }) => Answer::Content {
                parsed: (self.parse)(&self.file, &bytes),
                version: etag,
            },
            Ok(Read::NotModified) if version.is_some() => Answer::SameVersion,
            Ok(Read::NotModified) => {
                Answer::Failed(self.unavailable("the store reports the file as unchanged, but never returned it"))
            }
            Err(error) => Answer::Failed(error),
        };
        let answered = !matches!(answer, Answer::Failed(StoreError::Unavailable { .. }));
        let mut state = self.state.lock();
        let (before, damaged, was_invalid) = (state.problem(), state.damaged, state.invalid().is_some());
        let failed = matches!(answer, Answer::Failed(_));
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
        if !failed {
            state.damaged = was_invalid && state.invalid().is_some();
        }
        if state.good.is_none() && !answered || state.is_in_doubt() {
            self.shared.away.notify_one();
        }
        if state.damaged != damaged {
            self.shared.damage.notify_one();
        }
        if before != after {
            state.since = self.shared.clock.now();
            self.log(after.as_ref(), state.good.is_some());
        }
        answered
    }

    fn log(&self, problem: Option<&DefinitionError>, good: bool) {
        match problem {
            Some(problem) if good => {
                tracing::warn!(%problem, "a file in the state store is unusable; its last valid version is used");
            }
            Some(problem) => tracing::warn!(%problem, "a file in the state store is unusable"),
            None => tracing::info!(file = self.file, "the file is usable again"),
        }
    }

    fn never_read(&self) -> StoreError {
        self.unavailable("not requested yet")
    }

    fn unavailable(&self, detail: &str) -> StoreError {
        StoreError::Unavailable {
            file: self.file.clone(),
            detail: detail.to_owned(),
        }
    }
}

impl<T: PartialEq, S> State<T, S> {
    /// Stores a response. Returns whether callers that already got a result now get another one; `bad` is whether
    /// callers have only ever got a problem.
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
    fn invalid(&self) -> Option<&InvalidFile> {
        let summary = || self.summary.as_ref()?.as_ref().err();
        self.content.as_ref().or_else(summary)
    }

    fn is_in_doubt(&self) -> bool {
        self.good.is_some() && self.access.is_none() && self.invalid().is_some() && !self.damaged
    }

    /// An access error takes precedence: the error of the content is only that of an earlier version.
    fn problem(&self) -> Option<DefinitionError> {
        let access = self.access.clone().map(DefinitionError::from);
        access.or_else(|| self.content.clone().map(DefinitionError::Invalid))
    }
}
