//! The report of a cluster on itself: its progress behind the cloud, the changes that it holds, the objects that it
//! refuses, its plugins, and a summary of its agents. Every text in it was written in the cluster, so it is readable
//! text of a limited length.

use jiff::{SignedDuration, Timestamp};

use super::fields::model;
use super::values::{ChangeNumber, ClusterId, DecisionId, Description, PluginId, Slug};

/// The maximum size of a report, in bytes: somewhat less than a body may have.
pub const MAX_REPORT: usize = 60 * 1024;

/// The time in which a cluster can take a decision.
pub const DECISION_LIFETIME: SignedDuration = SignedDuration::from_mins(15);

model! {
    /// The report of a cluster. A field that is absent is empty, or not known.
    #[derive(Default)]
    ClusterReport, "the report of a cluster" =>
    /// True if the cluster is as the cloud lists it, for every kind.
    or_default synced: bool,
    /// The reason why it is not.
    or_default message: Description,
    /// The mirrored kinds, by the kind of the resources in the cluster.
    or_default kinds: Vec<KindReport>,
    or_default plugins: Vec<PluginReport>,
    /// `null` if the reports of the agents cannot be read.
    nullable agents: Option<AgentsReport>,
    /// True if parts were left out because the report would be too large.
    or_default truncated: bool,
    /// True if the cluster accepts releases and approvals from the cloud.
    or_default accepts_releases: bool,
}

model! {
    /// The progress of a cluster behind the cloud, for one kind.
    KindReport, "the report of a kind" =>
    /// The kind of the resources in the cluster: `User`.
    required kind: Slug,
    /// The kinds in the cloud, as the change stream names them, whose changes it follows.
    or_default follows: Vec<Slug>,
    /// The number of the change up to which the cluster has what the cloud lists, but for what is held or refused. The
    /// header `Tidewaiter-Change` of the response to a change has the number of that change.
    optional change: Option<ChangeNumber>,
    /// The revision of the list.
    or_default revision: Description,
    /// The time of the last successful response of the cloud.
    nullable last_success: Option<Timestamp>,
    /// The number of objects of the kind in the cluster.
    number_or(0, 0, u32::MAX) objects: u32 as Option<u32>,
    nullable held: Option<HeldReport>,
    /// The number of objects that were refused.
    number_or(0, 0, u32::MAX) refused_objects: u32 as Option<u32>,
    /// The first refused objects.
    or_default refused: Vec<RefusedReport>,
    /// The reason why the last list could not be used or applied, or why a release of what is held failed.
    or_default error: Description,
}

model! {
    /// The changes that a cluster holds until they are confirmed or released.
    HeldReport, "what is held" =>
    /// The revision that a release names.
    required revision: Slug,
    nullable since: Option<Timestamp>,
    /// The number of objects that would be deleted.
    number_or(0, 0, u32::MAX) deletions: u32 as Option<u32>,
    /// The number of objects that would be added, or that would give another permission.
    number_or(0, 0, u32::MAX) additions: u32 as Option<u32>,
    /// The first of their names.
    or_default names: Vec<Description>,
    or_default reason: Description,
}

model! {
    /// An object that a cluster refuses.
    RefusedReport, "a refused object" =>
    /// Its name in the cluster.
    or_default id: Description,
    or_default reason: Description,
}

model! {
    /// The state of a plugin.
    PluginReport, "the report of a plugin" =>
    required id: PluginId,
    /// Its type and implementation: `metrics/prometheus`.
    or_default name: Description,
    /// The version that the cloud lists.
    or_default version: Description,
    /// The version that was applied last.
    or_default applied_version: Description,
    /// True if the version is applied and healthy.
    or_default ready: bool,
    /// The reason for it, in one word.
    or_default state: Description,
    or_default message: Description,
    /// The version that awaits approval.
    nullable waiting: Option<WaitingVersion>,
}

model! {
    /// A version of a plugin that awaits approval.
    WaitingVersion, "a version that awaits approval" =>
    or_default version: Description,
    /// The digest that an approval names: of the manifests and of the changes that they would make.
    or_default digest: Description,
    number_or(0, 0, u32::MAX) creates: u32 as Option<u32>,
    number_or(0, 0, u32::MAX) changes: u32 as Option<u32>,
    number_or(0, 0, u32::MAX) deletes: u32 as Option<u32>,
    number_or(0, 0, u32::MAX) jobs: u32 as Option<u32>,
    /// The first lines of the changes, without the values of Secrets.
    or_default diff: Vec<Description>,
    /// True if lines were left out.
    or_default diff_truncated: bool,
}

model! {
    /// The summary of what the agents of the nodes report.
    #[derive(Default)]
    AgentsReport, "the report of the agents" =>
    /// The number of Nodes.
    number_or(0, 0, u32::MAX) nodes: u32 as Option<u32>,
    /// The number of Nodes with a report.
    number_or(0, 0, u32::MAX) reporting: u32 as Option<u32>,
    /// The number of Nodes whose `authorized_keys` differs from the users.
    number_or(0, 0, u32::MAX) not_applied: u32 as Option<u32>,
    /// The number of Nodes whose keys expire, because the mirror has not confirmed them.
    number_or(0, 0, u32::MAX) stale: u32 as Option<u32>,
    /// The number of Nodes on which lines of others let somebody log in.
    number_or(0, 0, u32::MAX) foreign_lines: u32 as Option<u32>,
}

model! {
    /// The last report of a cluster.
    ReportedCluster, "the last report of a cluster" =>
    required cluster_id: ClusterId,
    /// The time of the last report. A cluster reports at least every five minutes while it can.
    required reported_at: Timestamp,
    flatten report: ClusterReport,
}

model! {
    /// The release of what a cluster holds of a kind, as its report names it.
    ReleaseSpec, "a release" =>
    /// The kind: `User`.
    required kind: Slug,
    /// The revision that is held.
    required revision: Slug,
}

model! {
    /// The approval of a version of a plugin, as the report of its cluster names it.
    ApprovalSpec, "an approval" =>
    required plugin: PluginId,
    /// The digest of the version that awaits approval.
    required digest: Description,
}

model! {
    /// A release or an approval that the cluster has yet to take.
    ClusterDecision, "a decision" =>
    required id: DecisionId,
    nullable release: Option<ReleaseSpec>,
    nullable approval: Option<ApprovalSpec>,
}

impl ClusterReport {
    /// Returns the report without what makes it larger than [`MAX_REPORT`], and with the mark that it is so: first the
    /// diffs are cut, then the names and refused objects, then the last plugins.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        while size(&self) > MAX_REPORT {
            self.truncated = true;
            if !self.shorten() {
                return Self {
                    truncated: true,
                    accepts_releases: self.accepts_releases,
                    ..Self::default()
                };
            }
        }
        self
    }

    /// Removes the least important part. Returns false if nothing is left to remove.
    fn shorten(&mut self) -> bool {
        let waiting = self.plugins.iter_mut().filter_map(|plugin| plugin.waiting.as_mut());
        if let Some(longest) = waiting.max_by_key(|waiting| waiting.diff.len())
            && !longest.diff.is_empty()
        {
            longest.diff.truncate(longest.diff.len() / 2);
            longest.diff_truncated = true;
            return true;
        }
        if self.kinds.iter().any(|kind| !kind.refused.is_empty()) {
            self.kinds.iter_mut().for_each(|kind| kind.refused.clear());
            return true;
        }
        let mut held = self.kinds.iter().filter_map(|kind| kind.held.as_ref());
        if held.any(|held| !held.names.is_empty()) {
            let held = self.kinds.iter_mut().filter_map(|kind| kind.held.as_mut());
            held.for_each(|held| held.names.clear());
            return true;
        }
        let count = self.plugins.len();
        self.plugins.truncate(count / 2);
        count > 0
    }
}

fn size(report: &ClusterReport) -> usize {
    serde_json::to_string(report).map_or(usize::MAX, |text| text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{MAX_SPEC, Unknown, parse};

    fn plugin(lines: usize) -> PluginReport {
        let line = Description::of(&"x".repeat(1024));
        PluginReport {
            id: "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e".parse().unwrap(),
            name: Description::of("metrics/prometheus"),
            version: Description::default(),
            applied_version: Description::default(),
            ready: false,
            state: Description::default(),
            message: line.clone(),
            waiting: Some(WaitingVersion {
                version: Description::default(),
                digest: Description::of("abc"),
                creates: 1,
                changes: 0,
                deletes: 0,
                jobs: 0,
                diff: vec![line; lines],
                diff_truncated: false,
            }),
        }
    }

    #[test]
    fn a_report_is_bounded_says_what_it_lacks_and_keeps_the_digest_of_what_waits() {
        let report = ClusterReport {
            plugins: vec![plugin(200), plugin(3)],
            ..ClusterReport::default()
        };
        let bounded = report.bounded();
        assert!(bounded.truncated && size(&bounded) <= MAX_REPORT);
        let waiting = |place: usize| bounded.plugins[place].waiting.as_ref().unwrap();
        assert!(waiting(0).diff_truncated && !waiting(0).diff.is_empty());
        assert_eq!((waiting(1).diff.len(), waiting(1).diff_truncated), (3, false));
        assert_eq!(waiting(0).digest.as_str(), "abc");
        let text = serde_json::to_string(&bounded).unwrap();
        assert!(text.len() < MAX_SPEC);
        assert_eq!(
            parse::<ClusterReport>(text.as_bytes(), Unknown::Refuse).unwrap(),
            bounded
        );

        let small = ClusterReport {
            plugins: vec![plugin(3)],
            ..ClusterReport::default()
        };
        assert_eq!(small.clone().bounded(), small);
        let many = ClusterReport {
            plugins: (0..200).map(|_| plugin(0)).collect(),
            ..ClusterReport::default()
        };
        let many = many.bounded();
        assert!(many.truncated && size(&many) <= MAX_REPORT && !many.plugins.is_empty());
    }
}
