//! Follows a watch until shutdown: how its errors are retried.
//!
//! kube's watcher resumes from its resourceVersion after any error except a 410 inside the stream. A server that
//! rejects that resourceVersion in another way would be asked for it forever, so such a watch is restarted with a list.
//! A watch that was established before its connection was cut is a success: a proxy may cut each of them within a
//! minute.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt as _;
use kube::core::Status;
use kube::runtime::watcher::{self, Event};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::health::{Health, QUIET, TroubleCause};
use super::mirror::Mirror;
use super::{Cacheable, Events};
use crate::Kit;
use crate::backoff::Backoff;
use crate::chain::Chain;
use crate::client::retry_after_status;

/// A server that is away for 30 s gets 7 requests, and its return is noticed after at most 8 s.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));

/// A watch that is cut this long after it was tried again was established, so it showed all that the last one missed.
/// Longer than `client/pace.rs` delays one that ends at once.
const ESTABLISHED: Duration = Duration::from_secs(10);

/// The errors of the API server in a row, of any status, after which the next attempt is a relist.
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
    let mut failures = Failures::default();
    // The last error logged at WARN; repeats are logged at DEBUG.
    let mut last_logged = None;
    // The monotonic time of the last attempt.
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
                if failures.are_over(&event) {
                    last_logged = None;
                    info!(kind = %kind, "the watch goes on");
                }
                match event {
                    Event::Init => listing = true,
                    Event::InitDone => listing = false,
                    Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
                }
                // A list is complete only at its end.
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
                    failures = Failures::default();
                }
                let text = describe::<K>(&error);
                health.failed(text.clone(), cause(&error));
                let (list, wait) = failures.add(&error, now);
                let wait_ms = wait.as_millis();
                if last_logged.as_ref() == Some(&text) {
                    debug!(kind = %kind, list, wait_ms, error = text, "the watch failed");
                } else {
                    warn!(kind = %kind, list, wait_ms, error = text, "the watch failed; it is tried again until it goes on");
                    last_logged = Some(text);
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
fn describe<K: Cacheable>(error: &watcher::Error) -> String {
    match cause(error) {
        TroubleCause::Undefined => {
            let (plural, version, group) = (K::plural(&()), K::api_version(&()), K::group(&()));
            let remedy = if group.contains('.') && !group.ends_with(".k8s.io") {
                "apply the CustomResourceDefinitions in deploy/crds (controller) or deploy/crds/coordinator (coordinator)"
            } else {
                "it is no Kubernetes API server, or a proxy is in front of it: correct the server in the kubeconfig"
            };
            format!("the API server does not know {plural} ({version}): {remedy}")
        }
        TroubleCause::Denied => format!("{} (apply Tidewaiter's role from deploy/)", Chain(error)),
        TroubleCause::Other => Chain(error).to_string(),
    }
}

fn cause(error: &watcher::Error) -> TroubleCause {
    let is_list = matches!(error, watcher::Error::InitialListFailed(_));
    match status(error).map(|status| status.code) {
        // The API server does not have the kind.
        Some(404) if is_list => TroubleCause::Undefined,
        Some(403) => TroubleCause::Denied,
        _ => TroubleCause::Other,
    }
}

/// The answer of the API server.
fn status(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::WatchError(status)
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
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
    count: u32,
    /// The number of them that lead to a relist. Counted apart, so that a server that was away and comes back without
    /// the old events is relisted at once, while one that never serves a watch after a list is not relisted without
    /// end.
    lists: u32,
    last: Duration,
    /// True until the first event after a failure.
    is_failing: bool,
}

impl Failures {
    /// Counts a failure at `now`. Returns true if the next attempt is a relist, and the wait before it.
    fn add(&mut self, error: &watcher::Error, now: Duration) -> (bool, Duration) {
        if now.saturating_sub(self.last) > QUIET {
            *self = Self::default();
        }
        self.last = now;
        self.is_failing = true;
        self.count = self.count.saturating_add(1);
        let list = needs_list(error, self.count);
        if list {
            self.lists = self.lists.saturating_add(1);
        }
        let backoff = BACKOFF.delay(if list { self.lists } else { self.count });
        let least = status(error).and_then(retry_after_status).unwrap_or_default();
        (list, least.saturating_add(backoff))
    }

    /// True if `event` is the first one after a failure that shows that the watch works.
    fn are_over<K>(&mut self, event: &Event<K>) -> bool {
        match event {
            // Emitted before the LIST is sent.
            Event::Init => return false,
            // The LIST succeeded; the watch after it may yet fail.
            Event::InitApply(_) | Event::InitDone => {}
            Event::Apply(_) | Event::Delete(_) => (self.count, self.lists) = (0, 0),
        }
        std::mem::take(&mut self.is_failing)
    }
}

/// True for any error of the API server except throttling, authorization and 5xx, as client-go's reflector relists.
fn needs_list(error: &watcher::Error, failures: u32) -> bool {
    match error {
        watcher::Error::InitialListFailed(_) => return false,
        // An event that cannot be read: the watcher would have gone past it, and missed it.
        watcher::Error::WatchFailed(kube::Error::SerdeError(_)) => return true,
        _ => {}
    }
    match status(error).map(|status| status.code) {
        // Authorization, throttling, or an error of the server: the resourceVersion is still good.
        Some(401 | 403 | 408 | 429 | 500..) => failures.is_multiple_of(REFUSALS_BEFORE_LIST),
        code => code.is_some(),
    }
}

#[cfg(test)]
mod tests;
