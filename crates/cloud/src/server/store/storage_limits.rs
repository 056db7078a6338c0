//! The limits of the bytes that are stored.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

pub(super) const MIB: i64 = 1024 * 1024;

/// A class of stored data that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum What {
    Objects,
    /// The objects of a cluster, which are part of its organization's.
    ClusterObjects,
    /// The audit log of an organization, or of what belongs to none, except what clusters change.
    Audit,
    Reports,
    Replays,
}

impl What {
    /// Its name in the database, the metrics and the settings.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::ClusterObjects => "clusterObjects",
            Self::Audit => "audit",
            Self::Reports => "reports",
            Self::Replays => "replays",
        }
    }

    /// The part of the audit log that has the changes of `actor` in `organization`, and its owner.
    pub(super) fn of_change<'a>(actor: &'a str, organization: &'a str) -> (Self, &'a str) {
        match actor.strip_prefix("cluster:") {
            Some(cluster) => (Self::Reports, cluster),
            None => (Self::Audit, organization),
        }
    }
}

/// The limits of what is stored, in MiB.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StorageLimits {
    /// The objects of an organization without its tokens.
    pub objects: NonZeroU32,
    /// The objects of a cluster.
    pub cluster_objects: NonZeroU32,
    /// The audit log of an organization, except what clusters change.
    pub audit: NonZeroU32,
    /// The changes by clusters, in the audit log.
    pub reports: NonZeroU32,
    /// The responses to the requests of a caller with an Idempotency-Key.
    pub replays: NonZeroU32,
}

impl Default for StorageLimits {
    fn default() -> Self {
        let mib = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        Self {
            objects: mib(1_024),
            cluster_objects: mib(256),
            audit: mib(1_024),
            reports: mib(512),
            replays: mib(16),
        }
    }
}

impl StorageLimits {
    /// In bytes.
    pub(super) fn of(&self, what: What) -> i64 {
        let limit = match what {
            What::Objects => self.objects,
            What::ClusterObjects => self.cluster_objects,
            What::Audit => self.audit,
            What::Reports => self.reports,
            What::Replays => self.replays,
        };
        i64::from(limit.get()) * MIB
    }
}
