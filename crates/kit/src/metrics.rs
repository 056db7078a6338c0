//! The metrics that every role exports, each defined once, in one registry.
//!
//! Labels come from fixed sets (a controller's name, an error's class), never from an object or from outside, so that
//! the number of series is bounded.

use std::fmt::{self, Debug};
use std::time::Duration;

use jiff::Timestamp;
use prometheus::core::Collector;
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::clock::SharedClock;

mod counter_of;
mod process;
mod state_gauge;

use counter_of::CounterOf;
use process::ProcessCollector;
pub use state_gauge::StateGauge;

/// A metric that cannot be registered or shown.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// Two parts of the program define a metric of one name, or a name or label is not one.
    #[error("the metric {name} cannot be registered")]
    Register {
        /// The metric's name.
        name: String,
        /// The error of the registry.
        #[source]
        source: prometheus::Error,
    },
    /// The metrics cannot be written as text.
    #[error("the metrics cannot be written as text")]
    Encode(#[source] prometheus::Error),
}

/// The metrics that every role has, and the registry for those of its own. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    pub(crate) reconciles: IntCounterVec,
    pub(crate) reconcile_errors: IntCounterVec,
    pub(crate) reconcile_duration: HistogramVec,
    pub(crate) last_success: GaugeVec,
    pub(crate) watch_errors: IntCounterVec,
    pub(crate) undecodable: IntGaugeVec,
    pub(crate) cache_stale: IntGaugeVec,
    pub(crate) writes: IntCounterVec,
    pub(crate) leader: IntGauge,
    cloud_calls: IntCounterVec,
}

impl Metrics {
    /// A registry with the common metrics at zero. `clock` gives the process's start time.
    ///
    /// # Errors
    /// Only if two of the common metrics had one name.
    pub fn new(clock: &SharedClock) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        register(&registry, "process", ProcessCollector::new(clock))?;
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, name, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, name, IntGaugeVec::new(Opts::new(name, help), labels))
        };
        let durations = |name: &str, help: &str, labels: &[&str]| {
            let opts = HistogramOpts::new(name, help).buckets(vec![0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0]);
            register(&registry, name, HistogramVec::new(opts, labels))
        };
        let times = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, name, GaugeVec::new(Opts::new(name, help), labels))
        };
        Ok(Self {
            reconciles: counters(
                "tidewaiter_reconciles_total",
                "Reconciles by controller and outcome: ok; pending (nothing was decided yet); refused (the object was refused, as designed); error.",
                &["controller", "outcome"],
            )?,
            reconcile_errors: counters(
                "tidewaiter_reconcile_errors_total",
                "Failed reconciles by controller and class of error.",
                &["controller", "class"],
            )?,
            reconcile_duration: durations(
                "tidewaiter_reconcile_duration_seconds",
                "Duration of a reconcile in seconds.",
                &["controller"],
            )?,
            last_success: times(
                "tidewaiter_last_success_timestamp_seconds",
                "Unix time of the controller's last successful reconcile, in seconds.",
                &["controller"],
            )?,
            watch_errors: counters(
                "tidewaiter_watch_errors_total",
                "Lists and watches that failed, by kind. Each was tried again.",
                &["kind"],
            )?,
            undecodable: gauges(
                "tidewaiter_undecodable_objects",
                "Objects that cannot be decoded, by kind. Their last good version is used, if there is one; the log and an Event name each.",
                &["kind"],
            )?,
            cache_stale: gauges(
                "tidewaiter_cache_stale_seconds",
                "Seconds since lists or watches of this cache began to fail, as of the last failure; 0 while it is up to date.",
                &["cache"],
            )?,
            writes: counters(
                "tidewaiter_writes_total",
                "Writes to the API server by verb, resource and outcome (ok, conflict, rejected, error, unknown, fenced).",
                &["verb", "resource", "outcome"],
            )?,
            leader: register(
                &registry,
                "tidewaiter_leader",
                IntGauge::new("tidewaiter_leader", "1 while this replica is the leader, else 0."),
            )?,
            cloud_calls: counters(
                "tidewaiter_cloud_calls_total",
                "Requests to the cloud's API by call and outcome. Retries by the SDK are not counted.",
                &["api", "outcome"],
            )?,
            registry,
        })
    }

    /// A new counter with labels, registered.
    ///
    /// # Errors
    /// [`MetricsError`], if the name is taken or is not a metric's name.
    pub fn counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, MetricsError> {
        register(&self.registry, name, IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// A counter whose value `count` gives on each scrape, registered. It must never decrease.
    ///
    /// # Errors
    /// [`MetricsError`], if the name is taken or is not a metric's name.
    pub fn counter_of(
        &self,
        name: &str,
        help: &str,
        count: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<(), MetricsError> {
        let failed = |source| MetricsError::Register {
            name: name.to_owned(),
            source,
        };
        let counter = CounterOf::new(Opts::new(name, help), count).map_err(failed)?;
        self.registry.register(Box::new(counter)).map_err(failed)
    }

    /// A new gauge with labels, registered.
    ///
    /// # Errors
    /// [`MetricsError`], if the name is taken or is not a metric's name.
    pub fn gauge_vec(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricsError> {
        register(&self.registry, name, IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// A new gauge without labels, registered.
    ///
    /// # Errors
    /// [`MetricsError`], if the name is taken or is not a metric's name.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
        register(&self.registry, name, IntGauge::new(name, help))
    }

    /// A new histogram with labels, registered; `buckets` are upper bounds in the metric's unit, ascending.
    ///
    /// # Errors
    /// [`MetricsError`], if the name is taken or is not a metric's name.
    pub fn histogram_vec(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, MetricsError> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        register(&self.registry, name, HistogramVec::new(opts, labels))
    }

    /// The counter of requests to the cloud, for a provider to hold.
    #[must_use]
    pub fn cloud_calls(&self) -> CloudCalls {
        CloudCalls(self.cloud_calls.clone())
    }

    /// Everything in Prometheus' text format, version 0.0.4.
    ///
    /// # Errors
    /// When a collector gives a family that cannot be written.
    pub fn encode(&self) -> Result<String, MetricsError> {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .map_err(MetricsError::Encode)
    }

    pub(crate) fn reconciled(&self, controller: &str, took: Duration, outcome: Outcome, at: Timestamp) {
        self.reconciles.with_label_values(&[controller, outcome.word()]).inc();
        self.reconcile_duration
            .with_label_values(&[controller])
            .observe(took.as_secs_f64());
        match outcome {
            Outcome::Ok => self
                .last_success
                .with_label_values(&[controller])
                .set(at.as_duration().as_secs_f64()),
            Outcome::Error(class) => self.reconcile_errors.with_label_values(&[controller, class]).inc(),
            Outcome::Pending | Outcome::Refused => {}
        }
    }
}

/// The outcome of a reconcile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Ok,
    Pending,
    Refused,
    /// With the error's class.
    Error(&'static str),
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Pending => "pending",
            Self::Refused => "refused",
            Self::Error(_) => "error",
        }
    }
}

impl Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Counts requests to a cloud's API in `tidewaiter_cloud_calls_total`.
#[derive(Clone, Debug)]
pub struct CloudCalls(IntCounterVec);

impl CloudCalls {
    /// Counts one request. `api` is the call as the cloud names it (`DescribeInstances`); `outcome` is `ok` or one of
    /// the provider's own few words for what went wrong (`throttled`, `not_found`, `unavailable`).
    pub fn count(&self, api: &'static str, outcome: &'static str) {
        self.0.with_label_values(&[api, outcome]).inc();
    }

    /// The requests counted so far, for tests and reports.
    #[must_use]
    pub fn counted(&self, api: &str, outcome: &str) -> u64 {
        self.0.with_label_values(&[api, outcome]).get()
    }
}

/// Registers what was made, naming the metric in the error.
fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    name: &str,
    made: prometheus::Result<C>,
) -> Result<C, MetricsError> {
    let registered = made.and_then(|made| registry.register(Box::new(made.clone())).map(|()| made));
    registered.map_err(|source| MetricsError::Register {
        name: name.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn metrics() -> Metrics {
        Metrics::new(&ManualClock::default().shared()).unwrap()
    }

    #[test]
    fn writes_the_text_format() {
        let metrics = metrics();
        let took = Duration::from_millis(3);
        metrics.reconciled("node", took, Outcome::Ok, Timestamp::UNIX_EPOCH);
        metrics.reconciled("node", took, Outcome::Error("conflict"), Timestamp::UNIX_EPOCH);
        metrics.cloud_calls().count("DescribeInstances", "throttled");
        let text = metrics.encode().unwrap();
        for line in [
            "tidewaiter_reconciles_total{controller=\"node\",outcome=\"ok\"} 1",
            "tidewaiter_reconcile_errors_total{class=\"conflict\",controller=\"node\"} 1",
            "tidewaiter_reconcile_duration_seconds_count{controller=\"node\"} 2",
            "tidewaiter_cloud_calls_total{api=\"DescribeInstances\",outcome=\"throttled\"} 1",
            "# TYPE tidewaiter_leader gauge",
            "tidewaiter_leader 0",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    }

    #[test]
    fn a_name_is_taken_once() {
        let metrics = metrics();
        metrics.gauge("tidewaiter_test", "Test.").unwrap();
        let error = metrics.gauge("tidewaiter_test", "Test.").unwrap_err();
        assert_eq!(error.to_string(), "the metric tidewaiter_test cannot be registered");
    }

    #[test]
    fn shows_this_process() {
        let metrics = metrics();
        let value = |name: &str| -> f64 {
            let text = metrics.encode().unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        let (open, most) = (value("process_open_fds"), value("process_max_fds"));
        assert!(open > 2.0 && open < most, "{open} of {most}");
        let before = value("process_cpu_seconds_total");
        assert!(before > 0.0);
        // Fractions of a second count: an idle role uses a hundredth of a core.
        while value("process_cpu_seconds_total") <= before {}
        assert!(value("process_cpu_seconds_total") < before + 1.0);
        let text = metrics.encode().unwrap();
        assert!(text.contains("# TYPE process_cpu_seconds_total counter"), "{text}");
    }
}
