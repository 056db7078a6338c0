//! Follows a watch until shutdown: how its errors are retried.
//!
//! kube's watcher resumes from its resourceVersion after any error except a 410 inside the stream. A server that
//! rejects that resourceVersion in another way would be asked for it forever, so such a watch is restarted with a list.
//! A watch that was established before its connection was cut is a success: a proxy may cut each of them within a
//! minute.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::health::{Health, QUIET, TroubleCause};
use super::mirror::Mirror;
use super::{Cacheable, Events};
use crate::Kit;
use crate::backoff::Backoff;
use crate::chain::Chain;
use crate::client::{retry_after, retry_after_status};

/// Away for 30 s is 7 requests, and at most 8 s until it is noticed that the server is back.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));

/// A watch that is cut this long after it was tried again was established, so it showed all that the last one missed.
/// Longer than `client/pace.rs` delays one that ends at once.
const ESTABLISHED: Duration = Duration::from_secs(10);

/// So many refusals by the server in a row, whatever they say, and the next attempt begins with a list.
const REFUSALS_BEFORE_LIST: u32 = 6;

pub(super) async fn follow<K: Cacheable>(
    connect: impl Fn() -> Events<K> + Send + 'static,
    mut mirror: Mirror<K>,
    health: Health,
    kit: Kit,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let kind = K::kind(&());
    let errors = kit.metrics.watch_errors.with_label_values(&[&kind]);
    let mut events = connect();
    let mut trouble = Failures::default();
    // What was said of it: once, however often it is tried.
    let mut told = None;
    // When the watch was last tried again; monotonic.
    let mut tried = kit.clock.monotonic();
    // From the first page that is asked for to the last: a list may take longer than a minute and fail all the same.
    let mut listing = true;
    loop {
        let event = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            event = events.next() => event,
            () = quiet(&health, &kit), if !listing => {
                health.recovered();
                continue;
            }
        };
        let wait = match event {
            Some(Ok(event)) => {
                if trouble.over(&event) {
                    told = None;
                    info!(kind = %kind, "the watch goes on");
                }
                match event {
                    Event::Init => listing = true,
                    Event::InitDone => listing = false,
                    Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
                }
                // A list says what there is only at its end.
                if matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_)) {
                    health.recovered();
                }
                mirror.apply(event);
                continue;
            }
            Some(Err(error)) => {
                errors.inc();
                let now = kit.clock.monotonic();
                if is_cut(&error) && now.saturating_sub(tried) >= ESTABLISHED {
                    health.recovered();
                    trouble = Failures::default();
                }
                let said = said::<K>(&error);
                health.failed(said.clone(), cause(&error));
                let (list, wait) = trouble.more(&error, now);
                let wait_ms = wait.as_millis();
                if told.as_ref() == Some(&said) {
                    debug!(kind = %kind, list, wait_ms, error = said, "the watch failed");
                } else {
                    warn!(kind = %kind, list, wait_ms, error = said, "the watch failed; it is tried again until it goes on");
                    told = Some(said);
                }
                if list {
                    events = connect();
                }
                wait
            }
            // kube's watcher never ends.
            None => {
                events = connect();
                BACKOFF.cap
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            () = kit.clock.sleep(wait) => {}
        }
        tried = kit.clock.monotonic();
    }
}

/// The text of a failure. A kind that the API server does not have is named, because the answer of the server does not
/// name it.
fn said<K: Cacheable>(error: &watcher::Error) -> String {
    if is_undefined(error) {
        let (plural, version, group) = (K::plural(&()), K::api_version(&()), K::group(&()));
        let remedy = if group.contains('.') && !group.ends_with(".k8s.io") {
            "apply the CustomResourceDefinitions in deploy/crds (controller) or deploy/crds/coordinator (coordinator)"
        } else {
            "it is no Kubernetes API server, or a proxy is in front of it: correct the server in the kubeconfig"
        };
        return format!("the API server does not know {plural} ({version}): {remedy}");
    }
    let said = Chain(error).to_string();
    match cause(error) {
        TroubleCause::Denied => format!("{said} (apply Tidewaiter's role from deploy/)"),
        _ => said,
    }
}

fn cause(error: &watcher::Error) -> TroubleCause {
    match error {
        error if is_undefined(error) => TroubleCause::Undefined,
        watcher::Error::WatchError(status)
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
            if status.code == 403 =>
        {
            TroubleCause::Denied
        }
        _ => TroubleCause::Other,
    }
}

/// True if the API server does not have the kind.
fn is_undefined(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// True if the connection of a watch ended in the middle, as by a reset.
fn is_cut(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchFailed(kube::Error::ReadEvents(_)))
}

/// Completes after a minute without another failure; never while there was none.
async fn quiet(health: &Health, kit: &Kit) {
    if health.has_failed() {
        kit.clock.sleep(QUIET).await;
    } else {
        std::future::pending::<()>().await;
    }
}

/// The failures of the watch in a row.
#[derive(Debug, Default)]
struct Failures {
    /// All of them, in a row.
    count: u32,
    /// The number of them that began with a list. Counted apart, so that a server that was away and comes back without
    /// the old events is asked for a list at once, while one that never serves a watch after a list is not asked
    /// without end.
    lists: u32,
    last: Duration,
    told: bool,
}

impl Failures {
    /// One more failure at `now`: whether to begin with a list, and how long to wait before.
    fn more(&mut self, error: &watcher::Error, now: Duration) -> (bool, Duration) {
        if now.saturating_sub(self.last) > QUIET {
            *self = Self::default();
        }
        self.last = now;
        self.told = true;
        self.count = self.count.saturating_add(1);
        let list = needs_list(error, self.count);
        if list {
            self.lists = self.lists.saturating_add(1);
        }
        let backoff = BACKOFF.delay(if list { self.lists } else { self.count });
        (list, not_before(error).unwrap_or_default().saturating_add(backoff))
    }

    /// True if `event` is the first sign that the watch goes on.
    fn over<K>(&mut self, event: &Event<K>) -> bool {
        match event {
            // Said before anything was asked of the server.
            Event::Init => return false,
            // A list that was answered; the watch after it may yet fail.
            Event::InitApply(_) | Event::InitDone => {}
            Event::Apply(_) | Event::Delete(_) => (self.count, self.lists) = (0, 0),
        }
        std::mem::take(&mut self.told)
    }
}

/// The time before which the server wants no other attempt.
fn not_before(error: &watcher::Error) -> Option<Duration> {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => retry_after(error),
        watcher::Error::WatchError(status) => retry_after_status(status),
        watcher::Error::NoResourceVersion => None,
    }
}

/// As client-go's reflector: whatever the server says that is not "later" makes the place in the stream doubtful.
fn needs_list(error: &watcher::Error, failures: u32) -> bool {
    let status = match error {
        watcher::Error::WatchError(status)
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status,
        // An event that cannot be read: the watcher would have gone past it, and missed it.
        watcher::Error::WatchFailed(kube::Error::SerdeError(_)) => return true,
        _ => return false,
    };
    match status.code {
        // Not allowed (any more), too many requests, or trouble of its own: the place in the stream is still good.
        401 | 403 | 408 | 429 | 500.. => failures.is_multiple_of(REFUSALS_BEFORE_LIST),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
