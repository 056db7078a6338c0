//! The one change stream from the cloud, which wakes every loop that asks the cloud for something.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt as _;
use parking_lot::Mutex;
use tidewaiter_cloud::client::{Client, Cluster, Wake};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Leadership, Metrics, Tasks};
use tokio::sync::Notify;

use crate::loops;

/// The subscribers of the change stream. Clones share it.
#[derive(Clone, Default)]
pub struct Changes(Arc<Mutex<Vec<Woken>>>);

struct Woken {
    by: &'static [Kind],
    asked: Arc<Asked>,
}

/// The changes that wake one loop.
#[derive(Debug, Default)]
pub struct Asked {
    notify: Notify,
    /// True if the stream named a kind of the loop.
    is_named: AtomicBool,
}

impl Asked {
    /// Wakes the loop.
    pub fn ask(&self) {
        self.notify.notify_one();
    }

    /// Completes when the loop is woken. Returns whether because the stream named one of its kinds: a list that does
    /// not show the change may be of another replica of the cloud, which had not received it yet.
    pub async fn asked(&self) -> bool {
        self.notify.notified().await;
        self.is_named.swap(false, Ordering::Relaxed)
    }
}

impl Changes {
    /// Follows the changes of `cluster` while this replica leads.
    ///
    /// # Errors
    /// When the metric's name is taken.
    pub fn start(
        client: Client,
        cluster: Cluster,
        leadership: Leadership,
        metrics: &Metrics,
        tasks: &mut Tasks,
    ) -> Result<Self, MetricsError> {
        let changes = Self::default();
        let connected = metrics.gauge(
            "tidewaiter_cloud_stream_connected",
            "1 while the change stream of the cloud is open; 0 while the cloud is polled instead, and on a replica that does not lead.",
        )?;
        let woken = changes.clone();
        loops::run(tasks, "cloud-changes", async move {
            leadership.acquired().await;
            let mut wakes = pin!(client.watch(cluster, move |open| connected.set(i64::from(open))));
            while let Some(wake) = wakes.next().await {
                woken.wake(&wake);
            }
        });
        Ok(changes)
    }

    /// Wakes after each change of one of these kinds, and after each interruption of the stream.
    #[must_use]
    pub fn of(&self, kinds: &'static [Kind]) -> Arc<Asked> {
        let asked = Arc::new(Asked::default());
        self.0.lock().push(Woken {
            by: kinds,
            asked: Arc::clone(&asked),
        });
        asked
    }

    fn wake(&self, wake: &Wake) {
        for woken in self.0.lock().iter().filter(|woken| woken.is_woken_by(wake)) {
            let is_named = matches!(wake, Wake::Changed(_));
            woken.asked.is_named.fetch_or(is_named, Ordering::Relaxed);
            woken.asked.ask();
        }
    }
}

impl Woken {
    fn is_woken_by(&self, wake: &Wake) -> bool {
        match wake {
            Wake::Everything => true,
            Wake::Changed(kinds) => self.by.iter().any(|kind| kinds.contains(kind)),
        }
    }
}
