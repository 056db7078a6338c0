//! The server's metrics, besides those of every process.

use std::time::Duration;

use http::StatusCode;
use prometheus::{HistogramVec, IntCounter, IntCounterVec};
use tidewaiter_kit::Metrics;
use tidewaiter_kit::metrics::MetricsError;

use super::endpoint::Endpoint;

/// The buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 1.0, 5.0];

/// The metrics of requests, by the path of the endpoint without its parameters' values: no label value is chosen by a
/// caller.
pub(crate) struct Requests {
    count: IntCounterVec,
    duration: HistogramVec,
    /// The objects that were refused because of a quota.
    pub(crate) over_quota: IntCounterVec,
    /// The lists that were computed, and not taken from the cache.
    pub(crate) lists: IntCounter,
    /// The rows that were read for lists.
    pub(crate) rows: IntCounter,
}

impl Requests {
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            count: metrics.counter_vec(
                "tidewaiter_cloud_requests_total",
                "Number of requests to the cloud API, by endpoint and status.",
                &["method", "path", "status"],
            )?,
            duration: metrics.histogram_vec(
                "tidewaiter_cloud_request_duration_seconds",
                "Time to respond to a request; for a stream, the time until it starts.",
                &["method"],
                &BUCKETS,
            )?,
            over_quota: metrics.counter_vec(
                "tidewaiter_cloud_over_quota_total",
                "Number of objects that were refused because the organization has the maximum, by kind.",
                &["kind"],
            )?,
            lists: metrics
                .counter_vec(
                    "tidewaiter_cloud_lists_computed_total",
                    "Number of lists that were read from the database, each for all requests that waited for it.",
                    &[],
                )?
                .with_label_values::<&str>(&[]),
            rows: metrics
                .counter_vec(
                    "tidewaiter_cloud_list_rows_read_total",
                    "Number of rows that were read from the database for lists and their pages.",
                    &[],
                )?
                .with_label_values::<&str>(&[]),
        })
    }

    pub(crate) fn count(&self, endpoint: &Endpoint, status: StatusCode, took: Duration) {
        let method = endpoint.method.as_str();
        self.count
            .with_label_values(&[method, &endpoint.path, status.as_str()])
            .inc();
        self.duration.with_label_values(&[method]).observe(took.as_secs_f64());
    }
}
