//! The server's metrics, besides those of every process.

use std::time::Duration;

use http::StatusCode;
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGaugeVec};
use tidewaiter_kit::Metrics;
use tidewaiter_kit::metrics::MetricsError;

use super::endpoints::Endpoint;

/// The buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.002, 0.005, 0.01, 0.05, 0.2, 1.0, 5.0];

/// The metrics of requests, by the path of the endpoint without its parameters' values: no label value is chosen by a
/// caller.
pub(super) struct Requests {
    count: IntCounterVec,
    duration: HistogramVec,
    /// The objects that were refused because of a quota.
    pub(super) over_quota: IntCounterVec,
    /// The lists that were computed, and not taken from the cache.
    pub(super) lists: IntCounter,
    /// The rows that were read for lists.
    pub(super) rows: IntCounter,
}

impl Requests {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
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

    pub(super) fn count(&self, endpoint: &Endpoint, status: StatusCode, took: Duration) {
        let method = endpoint.method.as_str();
        self.count
            .with_label_values(&[method, &endpoint.path, status.as_str()])
            .inc();
        self.duration.with_label_values(&[method]).observe(took.as_secs_f64());
    }
}

/// The metrics of what is stored. No label names an organization: there may be thousands.
#[derive(Clone, Debug)]
pub(super) struct StorageMetrics {
    /// The changes that were refused because of a limit.
    pub(super) refused: IntCounterVec,
    /// The bytes of all organizations.
    pub(super) bytes: IntGaugeVec,
    /// The bytes of the organization, the cluster or the caller that has the most.
    pub(super) largest: IntGaugeVec,
    /// The changes that the audit log dropped because of its limit.
    pub(super) forgotten: IntCounterVec,
}

impl StorageMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            refused: metrics.counter_vec(
                "tidewaiter_cloud_over_storage_total",
                "Number of changes that were refused because of a limit of storageMiB, by limit.",
                &["limit"],
            )?,
            bytes: metrics.gauge_vec(
                "tidewaiter_cloud_stored_bytes",
                "Bytes in the database, by limit of storageMiB.",
                &["limit"],
            )?,
            largest: metrics.gauge_vec(
                "tidewaiter_cloud_largest_stored_bytes",
                "Bytes of the organization, cluster or caller that has the most, by limit of storageMiB.",
                &["limit"],
            )?,
            forgotten: metrics.counter_vec(
                "tidewaiter_cloud_audit_rows_dropped_total",
                "Number of rows that the audit log dropped because of a limit of storageMiB, by limit.",
                &["limit"],
            )?,
        })
    }
}
