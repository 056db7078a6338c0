//! The observations of a client that requests again and again, and the history of a Lease in the audit log.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidewaiter_testkit::{AuditMark, ControlPlane, RealNode};
use tokio::net::TcpStream;

use crate::{now, shown};

/// Between two requests.
const PERIOD: Duration = Duration::from_millis(50);

/// Asks a URL from a node, on a new connection each time, until it is told to stop.
pub struct Observer {
    stop: Arc<AtomicBool>,
    seen: Pin<Box<dyn Future<Output = Seen>>>,
}

/// The observations of an [`Observer`].
#[derive(Debug)]
pub struct Seen {
    pub requests: usize,
    pub failures: Vec<String>,
    /// The longest time between two successes.
    pub gap: Duration,
}

impl Observer {
    /// `client` makes the client, on the network of the node.
    pub fn start(from: &RealNode, url: String, client: impl FnOnce() -> reqwest::Client + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let seen = from.on_its_network(move || async move {
            let client = client();
            let mut period = tokio::time::interval(PERIOD);
            let (mut requests, mut failures) = (0, Vec::new());
            let (mut last, mut gap) = (now(), Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                period.tick().await;
                requests += 1;
                match ask(&client, &url).await {
                    Ok(()) => {
                        gap = gap.max(last.elapsed());
                        last = now();
                    }
                    Err(error) => failures.push(error),
                }
            }
            Seen {
                requests,
                failures,
                gap: gap.max(last.elapsed()),
            }
        });
        Self {
            stop,
            seen: Box::pin(seen),
        }
    }

    /// Stops it.
    pub async fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.seen.await
    }
}

impl Seen {
    /// Everything was answered.
    #[track_caller]
    pub fn is_complete(&self, what: &str) {
        println!("{} {what}, the longest gap {:?}", self.requests, self.gap);
        assert!(self.failures.is_empty(), "{what}: {self:?}");
        assert!(self.requests > 100, "{what}: {self:?}");
    }
}

async fn ask(client: &reqwest::Client, url: &str) -> Result<(), String> {
    let answer = client.get(url).send().await.map_err(shown)?;
    let answer = answer.error_for_status().map_err(shown)?;
    answer.bytes().await.map(drop).map_err(shown)
}

/// Connections that are opened from a node, and on which nothing is ever sent.
pub struct Idle {
    stop: Arc<AtomicBool>,
    open: Pin<Box<dyn Future<Output = usize>>>,
}

impl Idle {
    /// So many to each of these addresses.
    pub fn start(from: &RealNode, addresses: Vec<String>, number: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let open = from.on_its_network(move || async move {
            let mut open = Vec::new();
            for _ in 0..number {
                for address in &addresses {
                    open.extend(TcpStream::connect(address).await);
                }
            }
            let mut period = tokio::time::interval(PERIOD);
            while !stopped.load(Ordering::Relaxed) {
                period.tick().await;
            }
            open.len()
        });
        Self {
            stop,
            open: Box::pin(open),
        }
    }

    /// Closes them. Returns how many could be opened.
    pub async fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.open.await
    }
}

/// The longest time between two writes of a Lease that succeeded, since the mark.
pub async fn longest_silence(control_plane: &ControlPlane, since: AuditMark, lease: &str) -> Duration {
    let audit = control_plane.audit().await.since(since).writes();
    let writes = audit.iter().filter(|entry| {
        entry.object_ref.resource == "leases" && entry.object_ref.name == lease && entry.response_status.code < 300
    });
    let times: Vec<_> = writes.map(|entry| entry.stage_timestamp).collect();
    assert!(times.len() > 1, "nobody renews the Lease {lease}");
    let silences = times.windows(2).map(|pair| pair[1].duration_since(pair[0]));
    Duration::try_from(silences.max().unwrap()).unwrap_or_default()
}

/// Returns the time since then, in seconds.
pub fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}
