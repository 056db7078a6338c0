//! Events on objects: what the owner of an object should read in `kubectl describe`.
//!
//! Publishing never waits: a notice goes into a bounded queue, and one task sends the Events one after the other, so
//! that those of one object keep their order, and at a moderate rate, so that many of them give way to the work that
//! they report. The same words on the same object are published once in 50 minutes (the API server forgets an Event
//! after an hour), and no object gets more than a handful in a row, whatever somebody does to it. A failure to publish
//! is logged; it never fails the work that had something to report, and the next attempt may publish the same notice.
//!
//! Losses, each with a line in the log: notices that find the queue full, notices that are still queued when the
//! process resigns its leadership at shutdown, and notices after that. The next leader reports again what is still so.
//!
//! kube's own recorder is not used: within six minutes it takes a second Event of one reason for a repetition of the
//! first and drops its words.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::Tasks;
use crate::allowance::Allowance;
use crate::chain::Chain;
use crate::client::is_fenced;
use crate::clock::{SharedClock, timeout};

mod recent;

use recent::{Admitted, Recent};

/// The capacity of the queue of notices. A notice on each of 4,000 Nodes at once takes some 2 MiB.
const QUEUE_CAPACITY: usize = 4_096;

/// The rate at which notices are sent. The Events on a thousand new objects would be a quarter of all requests
/// otherwise.
const PUBLISH_RATE: Allowance = Allowance {
    burst: 50,
    refill: Duration::from_millis(50),
};

/// The time in which queued notices are sent at shutdown: less than the work under way has.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// The API server's limit for `note`, in bytes.
const NOTE_LIMIT: usize = 1024;
/// The API server's limit for a name, less the dot and the 16 digits after it.
const NAME_LIMIT: usize = 253 - 17;
/// The namespace of Events on objects without one, as for every other component.
const CLUSTER_SCOPED_NAMESPACE: &str = "default";

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// Something happened as it should.
    Normal,
    /// Somebody should look.
    Warning,
}

impl NoticeKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The content of an Event.
///
/// A notice contains no counts and no times: reason, object and note together are what is compared with the notices
/// before it, and whatever differs is another Event. A notice states what is so ("the quarantine is held"), and its
/// numbers are in a metric or a status.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// True if somebody should look.
    pub kind: NoticeKind,
    /// The reason, in CamelCase, from a fixed set, at most 128 characters: `kubectl describe` shows it as Reason.
    pub reason: Cow<'static, str>,
    /// The action that was done or tried, in CamelCase, at most 128 characters: `Label`, `Identify`.
    pub action: Cow<'static, str>,
    /// A sentence for a person, cut after 1,024 bytes: what is wrong and what to do. `kubectl describe` shows it as
    /// Message.
    pub note: String,
}

impl Notice {
    /// Something happened as it should.
    #[must_use]
    pub fn normal(
        reason: impl Into<Cow<'static, str>>,
        action: impl Into<Cow<'static, str>>,
        note: impl Into<String>,
    ) -> Self {
        Self {
            kind: NoticeKind::Normal,
            ..Self::warning(reason, action, note)
        }
    }

    /// Somebody should look.
    #[must_use]
    pub fn warning(
        reason: impl Into<Cow<'static, str>>,
        action: impl Into<Cow<'static, str>>,
        note: impl Into<String>,
    ) -> Self {
        Self {
            kind: NoticeKind::Warning,
            reason: reason.into(),
            action: action.into(),
            note: note.into(),
        }
    }
}

/// The publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// The role, or a controller of it as a qualified name: `tidewaiter-controller`, `tidewaiter/node`.
    pub controller: String,
    /// The replica: the name of its pod or host.
    pub instance: String,
}

/// Publishes notices as Events. Clones share the queue and what was published.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Queued>,
    shared: Arc<Shared>,
    reporter: Arc<Reporter>,
}

struct Shared {
    clock: SharedClock,
    recent: Mutex<Recent>,
    /// Notices that found the queue full, since it was last empty.
    dropped: AtomicU64,
}

/// A notice that waits to be sent.
struct Queued {
    reporter: Arc<Reporter>,
    regarding: ObjectReference,
    notice: Notice,
    time: MicroTime,
    admitted: Admitted,
}

impl Events {
    /// Starts the task that publishes through `client` ([`Clients::for_events`](crate::client::Clients::for_events)),
    /// which needs to create `events.k8s.io` Events in the namespaces of the objects, and in `default` for those
    /// without one.
    #[must_use]
    pub fn start(client: Client, clock: SharedClock, reporter: Reporter, tasks: &mut Tasks) -> Self {
        let (sender, queue) = mpsc::channel(QUEUE_CAPACITY);
        let shared = Arc::new(Shared {
            clock,
            recent: Mutex::default(),
            dropped: AtomicU64::new(0),
        });
        let publisher = Publisher {
            client,
            queue,
            shared: Arc::clone(&shared),
            last: 0,
            full_at: None,
        };
        tasks.spawn("events", publisher.run(tasks.shutdown_token()));
        Self {
            queue: sender,
            shared,
            reporter: Arc::new(reporter),
        }
    }

    /// The same queue for one controller of the role: its Events name `tidewaiter/<controller>` as their reporter, as
    /// its writes name their field manager.
    #[must_use]
    pub fn of(&self, controller: &str) -> Self {
        let reporter = Reporter {
            controller: format!("tidewaiter/{controller}"),
            instance: self.reporter.instance.clone(),
        };
        Self {
            reporter: Arc::new(reporter),
            ..self.clone()
        }
    }

    /// Queues `notice` on the object, unless it was published already, or the object has had its share.
    pub fn publish(&self, regarding: &ObjectReference, notice: Notice) {
        let Shared { clock, dropped, .. } = &*self.shared;
        let admitted = self.shared.recent.lock().admit(regarding, &notice, clock.monotonic());
        let Some(admitted) = admitted else {
            debug!(object = regarding.name, reason = %notice.reason, "not published again");
            return;
        };
        let queued = Queued {
            reporter: Arc::clone(&self.reporter),
            regarding: regarding.clone(),
            notice,
            time: MicroTime(clock.now()),
            admitted,
        };
        let Err(refused) = self.queue.try_send(queued) else {
            return;
        };
        self.shared.recent.lock().withdraw(admitted);
        match refused {
            TrySendError::Full(_) if dropped.fetch_add(1, Ordering::Relaxed) == 0 => {
                warn!(
                    queued = QUEUE_CAPACITY,
                    "Events are dropped: the API server takes them too slowly"
                );
            }
            TrySendError::Full(_) => {}
            TrySendError::Closed(queued) => {
                info!(object = regarding.name, reason = %queued.notice.reason, "Event not published: stopping");
            }
        }
    }
}

impl Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("reporter", &self.reporter)
            .finish_non_exhaustive()
    }
}

/// The task that sends what is queued.
struct Publisher {
    client: Client,
    queue: mpsc::Receiver<Queued>,
    shared: Arc<Shared>,
    /// The nanosecond in the name of the last Event. The next one gets another, however coarse the clock is.
    last: i128,
    /// When as many as in a burst may be sent again.
    full_at: Option<Duration>,
}

impl Publisher {
    async fn run(mut self, shutdown: CancellationToken) -> Result<(), Infallible> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(queued) = self.next() => self.send(queued).await,
            };
            if self.queue.is_empty() {
                self.report_dropped();
            }
        }
        self.queue.close();
        let clock = Arc::clone(&self.shared.clock);
        if timeout(&*clock, DRAIN_TIMEOUT, self.drain()).await.is_err() {
            info!("the queued Events are not published: the API server takes them too slowly");
        }
        Ok(())
    }

    /// The next notice, as soon as it may be sent.
    async fn next(&mut self) -> Option<Queued> {
        let clock = Arc::clone(&self.shared.clock);
        while let Err(wait) = PUBLISH_RATE.take(self.full_at, clock.monotonic()) {
            clock.sleep(wait).await;
        }
        let queued = self.queue.recv().await;
        self.full_at = PUBLISH_RATE.take(self.full_at, clock.monotonic()).ok();
        queued
    }

    /// Sends what is queued at shutdown.
    async fn drain(&mut self) {
        let mut lost = 0_u64;
        while let Some(queued) = self.queue.recv().await {
            lost += u64::from(!self.send(queued).await);
        }
        if lost > 0 {
            info!(lost, "Events are not published: no longer the leader");
        }
    }

    /// True if it was published. If not, the next attempt may.
    async fn send(&mut self, queued: Queued) -> bool {
        self.last = queued.time.0.as_nanosecond().max(self.last + 1);
        let event = event(
            queued.regarding,
            queued.notice,
            &queued.reporter,
            queued.time,
            self.last,
        );
        let object = event.metadata.name.as_deref().unwrap_or_default();
        let namespace = event.metadata.namespace.as_deref().unwrap_or(CLUSTER_SCOPED_NAMESPACE);
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => return true,
            Err(error) if is_fenced(&error) => debug!(object, "Event not published: not the leader"),
            Err(error) => warn!(object, reason = event.reason, error = %Chain(&error), "Event not published"),
        }
        self.shared.recent.lock().withdraw(queued.admitted);
        false
    }

    fn report_dropped(&self) {
        let dropped = self.shared.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            warn!(dropped, "Events were dropped while the queue was full");
        }
    }
}

/// `nanos` makes the name unique.
fn event(regarding: ObjectReference, notice: Notice, reporter: &Reporter, time: MicroTime, nanos: i128) -> Event {
    let object = regarding.name.as_deref().unwrap_or("unknown");
    let name = format!("{}.{:x}", cut(object, NAME_LIMIT), nanos);
    let namespace = regarding
        .namespace
        .as_deref()
        .unwrap_or(CLUSTER_SCOPED_NAMESPACE)
        .to_owned();
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(time),
        type_: Some(notice.kind.as_str().to_owned()),
        reason: Some(notice.reason.into_owned()),
        action: Some(notice.action.into_owned()),
        note: Some(cut(&notice.note, NOTE_LIMIT).to_owned()),
        regarding: Some(ObjectReference {
            resource_version: None,
            ..regarding
        }),
        reporting_controller: Some(reporter.controller.clone()),
        reporting_instance: Some(cut(&reporter.instance, 128).to_owned()),
        ..Event::default()
    }
}

/// The longest start of `text` that fits into `limit` bytes.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests;
