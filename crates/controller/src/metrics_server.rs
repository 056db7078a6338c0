//! MetricsServer: the cluster's health for Prometheus, by the logic of `kops validate cluster`.
//!
//! `/metrics` on a port of its own, on every replica. What it answers was made when the verdict or the components
//! changed, so a scrape costs nothing and is answered whatever else is away. A gauge whose value is not known is
//! absent, and all of them are when no verdict has been made for a while: it never shows an outdated value.

pub(crate) mod components;
pub(crate) mod gauges;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName};
use kube::Client;
use parking_lot::RwLock;
use tidewaiter_api::ClusterName;
use tidewaiter_kit::{Chain, Kit, SharedClock, Tasks};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::verdicts::{Judged, Latest};
use components::{Components, Watched};

/// Maximum age of a verdict that is shown. One is made at least every half minute.
const LIMIT: Duration = Duration::from_mins(2);

/// Serves `/metrics`.
pub struct MetricsServer {
    cluster: ClusterName,
    clock: SharedClock,
    page: RwLock<Option<Page>>,
}

/// All gauges but the age, as text.
struct Page {
    /// The monotonic time of the verdict.
    judged: Duration,
    text: String,
}

impl MetricsServer {
    /// Starts what makes the answers; [`router`](Self::router) gives them. `client` must be allowed to list
    /// ComponentStatuses, and to read `/readyz` and the Leases of the scheduler and the controller manager.
    #[must_use]
    pub fn start(cluster: ClusterName, client: Client, latest: Latest, tasks: &mut Tasks, kit: &Kit) -> Arc<Self> {
        let server = Arc::new(Self {
            cluster,
            clock: Arc::clone(&kit.clock),
            page: RwLock::default(),
        });
        let watched = Watched::new(client, Arc::clone(&kit.clock));
        let known = watched.subscribe();
        tasks.spawn("metrics-server/components", watched.keep_asking(tasks.shutdown_token()));
        let making = Arc::clone(&server).keep_making(latest, known, tasks.shutdown_token());
        tasks.spawn("metrics-server", making);
        server
    }

    /// `GET /metrics`.
    pub fn router(self: Arc<Self>) -> Router {
        Router::new().route("/metrics", get(metrics)).with_state(self)
    }

    async fn keep_making(
        self: Arc<Self>,
        mut latest: Latest,
        mut components: watch::Receiver<Option<Components>>,
        shutdown: CancellationToken,
    ) -> Result<(), Infallible> {
        let making = async {
            // Both live as long as the tasks that feed them, which end with this one.
            while let Ok(()) = tokio::select! {
                changed = latest.changed() => changed,
                changed = components.changed() => changed,
            } {
                if let Some(judged) = &*latest.borrow_and_update() {
                    self.make(judged, *components.borrow_and_update());
                }
            }
            std::future::pending::<()>().await;
        };
        shutdown.run_until_cancelled(making).await;
        Ok(())
    }

    fn make(&self, judged: &Judged, components: Option<Components>) {
        match gauges::page(&self.cluster, &judged.verdict, components) {
            Ok(text) => {
                let page = Page {
                    judged: judged.monotonic,
                    text,
                };
                *self.page.write() = Some(page);
            }
            Err(error) => error!(error = %Chain(&error), "the gauges cannot be written as text"),
        }
    }

    fn answer(&self) -> Result<String, prometheus::Error> {
        let now = self.clock.monotonic();
        let page = self.page.read();
        // Nothing at all before the first verdict: a scrape that succeeds with nothing in it.
        let Some(page) = &*page else { return Ok(String::new()) };
        let age = now.saturating_sub(page.judged);
        let age_text = gauges::age(&self.cluster, age)?;
        Ok(if age > LIMIT {
            age_text
        } else {
            page.text.clone() + &age_text
        })
    }
}

async fn metrics(
    State(server): State<Arc<MetricsServer>>,
) -> Result<([(HeaderName, &'static str); 1], String), StatusCode> {
    let text = server.answer().map_err(|error| {
        error!(error = %Chain(&error), "the gauges cannot be written as text");
        StatusCode::INTERNAL_SERVER_ERROR
    })?;
    Ok(([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text))
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::ManualClock;
    use tidewaiter_validation::verdict::Counts;

    use super::*;
    use crate::verdicts::by_hand::verdict;

    #[test]
    fn a_verdict_is_told_for_two_minutes_and_its_age_for_ever() {
        let clock = ManualClock::default();
        let cluster: ClusterName = "cluster.example.com".parse().unwrap();
        let server = MetricsServer {
            cluster: cluster.clone(),
            clock: clock.shared(),
            page: RwLock::default(),
        };
        assert_eq!(server.answer().unwrap(), "", "nothing was judged yet");
        let counts = Counts {
            nodes_ready: Some(3),
            ..Counts::default()
        };
        let verdict = verdict(cluster.as_str(), counts);
        let judged = Judged {
            verdict,
            at: server.clock.now(),
            monotonic: server.clock.monotonic(),
        };
        server.make(&judged, None);
        clock.advance(LIMIT);
        let text = server.answer().unwrap();
        assert!(
            text.contains("\nkops_node_ready{cluster_name=\"cluster.example.com\"} 3\n"),
            "{text}"
        );
        assert!(
            text.ends_with("verdict_age_seconds{cluster_name=\"cluster.example.com\"} 120\n"),
            "{text}"
        );
        clock.advance(Duration::from_secs(1));
        let text = server.answer().unwrap();
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            series,
            ["tidewaiter_cluster_verdict_age_seconds{cluster_name=\"cluster.example.com\"} 121"]
        );
    }
}
