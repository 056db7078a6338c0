//! The report of the cluster on itself: what the mirror has followed, holds and refuses, the plugins, and the summary
//! of what the agents report.
//!
//! It is sent when it differs from the one before in more than a time, at most once in [`PAUSE`], and otherwise every
//! [`HEARTBEAT`], so that the cloud knows when the cluster was last seen. What changes in between is one report. After
//! a restart, the first one is complete, and waits for the first lists. While the cloud does not answer, the loop
//! retries at the pace of all loops ([`Retries`]), with the last state alone.
//!
//! A report has no secret: the differences of a plugin's version are without the values of Secrets.

mod agents;
mod plugins;

use std::time::Duration;

use kube::Client;
use tidewaiter_api::containership::Plugin;
use tidewaiter_cloud::client::{ClientError, Method, Request};
use tidewaiter_cloud::models::ClusterReport;
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, ControllerContext, SharedClock};
use tracing::{info, warn};

use crate::cloud::Cloud;
use crate::decisions::Failures;
use crate::explained::explained;
use crate::loops;
use crate::mirror::MirrorState;
use crate::node::Node;
use crate::retries::Retries;
use agents::Agents;
use plugins::PluginSource;

/// The pause after a report.
const PAUSE: Duration = Duration::from_secs(10);

/// The longest time between two reports, with its jitter five minutes.
const HEARTBEAT: Duration = Duration::from_mins(4);

/// The wait before the first report, for the first lists.
const FIRST: Duration = Duration::from_secs(4);

/// The wait after an update of the mirror: several lists often change together, and the clusters of an organization
/// must not report a change all at once.
const SETTLE: Duration = Duration::from_millis(500);

const JITTER: f64 = 0.2;

/// Starts the loop.
pub(crate) fn start(
    cloud: &Cloud,
    ((mirror, failures), accepts_releases): ((MirrorState, Failures), bool),
    plugins: Cache<Plugin>,
    nodes: &Cache<Node>,
    role: &mut Role<'_>,
) {
    let client: Client = role.clients.for_controller("cluster-report", DEFAULT_IN_FLIGHT);
    let report = Reporter {
        cloud: cloud.clone(),
        mirror,
        failures,
        accepts_releases,
        plugins: PluginSource::new(plugins, client.clone()),
        agents: Agents::new(nodes.clone(), client),
        clock: role.context.kit.clock.clone(),
        sent: None,
        is_failing: false,
    };
    loops::run(role.tasks, "reports/cluster", report.run(role.context.clone()));
}

struct Reporter {
    cloud: Cloud,
    mirror: MirrorState,
    /// The releases and approvals that failed.
    failures: Failures,
    /// True if the cluster accepts releases and approvals from the cloud.
    accepts_releases: bool,
    plugins: PluginSource,
    agents: Agents,
    clock: SharedClock,
    /// The last report without its times, and when the next one is due; monotonic.
    sent: Option<(ClusterReport, Duration)>,
    /// True if it was logged that reports fail.
    is_failing: bool,
}

impl Reporter {
    async fn run(mut self, context: ControllerContext) {
        context.leadership.acquired().await;
        let mut updates = self.mirror.updates();
        let mut retries = Retries::new(&self.cloud.client, self.cloud.interval, self.clock.clone());
        self.clock.sleep(jittered(FIRST, JITTER)).await;
        loop {
            context.pause.until(false).await;
            let report = self.report().await;
            if self.is_due(&report) {
                retries.begin();
                if let Err(delay) = self.send(&report).await {
                    match delay {
                        Delay::Retry(asked) => retries.failed(asked).await,
                        Delay::Heartbeat => self.clock.sleep(jittered(HEARTBEAT, JITTER)).await,
                    }
                    continue;
                }
                retries.succeeded();
                self.clock.sleep(PAUSE).await;
            }
            tokio::select! {
                _ = updates.changed() => self.clock.sleep(jittered(SETTLE, 1.0)).await,
                () = self.clock.sleep(jittered(PAUSE, JITTER)) => {}
            }
        }
    }

    async fn report(&mut self) -> ClusterReport {
        let now = self.clock.now();
        let mut report = ClusterReport {
            plugins: self.plugins.report().await,
            agents: self.agents.report(self.clock.monotonic()).await,
            accepts_releases: self.accepts_releases,
            ..self.mirror.report(now)
        };
        self.failures.show(&mut report);
        report.bounded()
    }

    /// Returns true if the report differs from the last one, or that is old.
    fn is_due(&self, report: &ClusterReport) -> bool {
        let is_last = |(last, until): &(ClusterReport, Duration)| {
            self.clock.monotonic() < *until && *last == timeless(report.clone())
        };
        !self.sent.as_ref().is_some_and(is_last)
    }

    /// Sends one request, without a retry of its own.
    async fn send(&mut self, report: &ClusterReport) -> Result<(), Delay> {
        let mut request = Request::new(Method::PUT, self.cloud.cluster.report()).json(serde_json::json!(report));
        request.once = true;
        let Err(error) = self.cloud.client.request(&request).await else {
            let until = self.clock.monotonic().saturating_add(jittered(HEARTBEAT, JITTER));
            self.sent = Some((timeless(report.clone()), until));
            if std::mem::take(&mut self.is_failing) {
                info!("the cluster can be reported again");
            }
            return Ok(());
        };
        if !std::mem::replace(&mut self.is_failing, true) {
            let error = explained(&error, &self.cloud.client);
            warn!(error, "the cloud does not take the report of the cluster");
        }
        Err(match error {
            // An older cloud has no such path.
            ClientError::NotOurs { .. } | ClientError::Rejected { .. } => Delay::Heartbeat,
            error => Delay::Retry(error.retry_after().unwrap_or_default()),
        })
    }
}

/// The delay after a report that the cloud did not take.
enum Delay {
    /// As other loops wait, and at least for the pause that the cloud requires.
    Retry(Duration),
    /// Until the next heartbeat: the same report is refused again.
    Heartbeat,
}

/// The report without the times of the last lists, which differ with every poll.
fn timeless(mut report: ClusterReport) -> ClusterReport {
    for kind in &mut report.kinds {
        kind.last_success = None;
    }
    report
}
