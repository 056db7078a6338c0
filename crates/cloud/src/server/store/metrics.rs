//! The metrics of what is stored.

use prometheus::{IntCounterVec, IntGaugeVec};
use tidewaiter_kit::Metrics;
use tidewaiter_kit::metrics::MetricsError;

/// The metrics of what is stored. No label names an organization: there may be thousands.
#[derive(Clone, Debug)]
pub(crate) struct StorageMetrics {
    /// The changes that were refused because of a limit.
    pub(crate) refused: IntCounterVec,
    /// The bytes of all organizations.
    pub(crate) bytes: IntGaugeVec,
    /// The bytes of the organization, the cluster or the caller that has the most.
    pub(crate) largest: IntGaugeVec,
    /// The changes that the audit log dropped because of its limit.
    pub(crate) forgotten: IntCounterVec,
}

impl StorageMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
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
