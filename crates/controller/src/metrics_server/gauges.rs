//! A verdict as gauges. Pure: the same verdict gives the same text.
//!
//! The eight names that begin with `kops_` are the seed's, to the letter, help and camelCase included: dashboards are
//! written for them. What they do not say has names of its own, that begin with `tidewaiter_`.

use std::time::Duration;

use prometheus::{Gauge, GaugeVec, Opts, Registry, TextEncoder};
use tidewaiter_api::ClusterName;
use tidewaiter_validation::verdict::GroupCounts;
use tidewaiter_validation::{FailureKind, GroupRow, Outcome, PartName, Verdict};

use super::components::Components;

const CLUSTER_NAME: &str = "cluster_name";
const INSTANCE_GROUP: &str = "instance_group";

/// All gauges of a verdict, in Prometheus' text format.
pub(crate) fn page(
    cluster: &ClusterName,
    verdict: &Verdict,
    components: Option<Components>,
) -> Result<String, prometheus::Error> {
    let page = Gauges::of(cluster);
    page.seed(verdict, components)?;
    page.verdict(verdict, components.is_some())?;
    page.groups(&verdict.groups)?;
    page.text()
}

/// Returns the gauge of the verdict's age.
pub(super) fn age(cluster: &ClusterName, age: Duration) -> Result<String, prometheus::Error> {
    let gauges = Gauges::of(cluster);
    gauges.gauge(
        "tidewaiter_cluster_verdict_age_seconds",
        "Seconds since the cluster was last validated.",
        Some(age.as_secs_f64()),
    )?;
    gauges.text()
}

/// Gauges that all carry the name of the cluster.
struct Gauges<'a> {
    cluster: &'a ClusterName,
    registry: Registry,
}

impl<'a> Gauges<'a> {
    fn of(cluster: &'a ClusterName) -> Self {
        let registry = Registry::new();
        Self { cluster, registry }
    }

    fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_label(CLUSTER_NAME, self.cluster.as_str())
    }

    /// A gauge that is absent when its value is not known.
    fn gauge(&self, name: &str, help: &str, value: Option<impl Into<f64>>) -> Result<(), prometheus::Error> {
        let Some(value) = value else { return Ok(()) };
        let gauge = Gauge::with_opts(self.opts(name, help))?;
        gauge.set(value.into());
        self.registry.register(Box::new(gauge))
    }

    fn by<L: AsRef<str>>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, u32)>,
    ) -> Result<(), prometheus::Error> {
        let gauges = GaugeVec::new(self.opts(name, help), &[label])?;
        for (value, number) in values {
            gauges.with_label_values(&[value.as_ref()]).set(number.into());
        }
        self.registry.register(Box::new(gauges))
    }

    /// Source: the seed, kOps' MetricsServer (kops #10175).
    fn seed(&self, verdict: &Verdict, components: Option<Components>) -> Result<(), prometheus::Error> {
        let counts = &verdict.counts;
        for (name, help, value) in [
            (
                "kops_component_healthy",
                "Healthy components of the kubernetes cluster.",
                components.map(|components| components.healthy),
            ),
            (
                "kops_component_unhealthy",
                "Unhealthy components of the kubernetes cluster.",
                components.map(|components| components.unhealthy),
            ),
            (
                "kops_node_notReady",
                "Not ready nodes in the kubernetes cluster.",
                counts.nodes_not_ready,
            ),
            (
                "kops_node_ready",
                "Ready nodes in the kubernetes cluster.",
                counts.nodes_ready,
            ),
            (
                "kops_pod_missing",
                "Missing pods in the kubernetes cluster.",
                counts.pods_missing,
            ),
            (
                "kops_pod_notReady",
                "Not ready pods in the kubernetes cluster.",
                counts.pods_not_ready,
            ),
            (
                "kops_pod_pending",
                "Pending pods in the kubernetes cluster.",
                counts.pods_pending,
            ),
            (
                "kops_pod_unknown",
                "Unknown pods in the kubernetes cluster.",
                counts.pods_unknown,
            ),
        ] {
            self.gauge(name, help, value)?;
        }
        Ok(())
    }

    fn verdict(&self, verdict: &Verdict, components: bool) -> Result<(), prometheus::Error> {
        self.by(
            "tidewaiter_cluster_failures",
            "Failures of the validation of the cluster, by kind of object, as kops validate cluster counts them.",
            "kind",
            FailureKind::ALL.map(|kind| (kind.as_str(), count(verdict.failures_of(kind)))),
        )?;
        let outcomes = [
            ("ready", Outcome::Ready),
            ("failed", Outcome::Failed),
            ("unknown", Outcome::Unknown),
        ];
        self.by(
            "tidewaiter_cluster_verdict",
            "1 for the current verdict on the cluster, 0 for the others: ready, failed, unknown.",
            "verdict",
            outcomes.map(|(name, outcome)| (name, u32::from(verdict.outcome() == outcome))),
        )?;
        let known = |part| u32::from(verdict.unknown.iter().all(|unknown| unknown.part != part));
        let parts = PartName::ALL.map(|part| (part.to_string(), known(part)));
        self.by(
            "tidewaiter_cluster_observed",
            "1 if this part of the cluster can be observed, else 0; gauges that depend on it are then absent.",
            "part",
            parts
                .into_iter()
                .chain([("components".to_owned(), u32::from(components))]),
        )
    }

    /// Asked for in kops #9370.
    fn groups(&self, rows: &[GroupRow]) -> Result<(), prometheus::Error> {
        type Read = fn(&GroupCounts) -> Option<u32>;
        let gauges: [(&str, &str, Read); 6] = [
            (
                "tidewaiter_instance_group_current_instances",
                "Instances in the instance group, excluding detached ones.",
                |cloud| Some(cloud.current),
            ),
            (
                "tidewaiter_instance_group_ready_nodes",
                "Instances of the instance group whose Node is ready.",
                |cloud| cloud.ready,
            ),
            (
                "tidewaiter_instance_group_outdated_instances",
                "Instances of the instance group that were created from an older definition and need a rolling update.",
                |cloud| cloud.needs_update,
            ),
            (
                "tidewaiter_instance_group_target_instances",
                "Desired number of instances in the instance group, absent if the cloud has no such group.",
                |cloud| cloud.target,
            ),
            (
                "tidewaiter_instance_group_min_instances",
                "Minimum size of the instance group, absent if the cloud has no such group.",
                |cloud| cloud.min,
            ),
            (
                "tidewaiter_instance_group_max_instances",
                "Maximum size of the instance group, absent if the cloud has no such group.",
                |cloud| cloud.max,
            ),
        ];
        for (name, help, read) in gauges {
            let known = rows
                .iter()
                .filter_map(|row| Some((row.group.name.as_str(), row.cloud.as_ref().and_then(read)?)));
            let known: Vec<_> = known.collect();
            if !known.is_empty() {
                self.by(name, help, INSTANCE_GROUP, known)?;
            }
        }
        Ok(())
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use tidewaiter_kops::{GroupSummary, Role};
    use tidewaiter_validation::Unknown;
    use tidewaiter_validation::verdict::Counts;

    use super::*;
    use crate::verdicts::by_hand;

    const CLUSTER: &str = "clustername.mydomain.com";

    /// The seed's sample, without its values.
    const SEED: &str = r#"# HELP kops_component_healthy Healthy components of the kubernetes cluster.
# TYPE kops_component_healthy gauge
kops_component_healthy{cluster_name="clustername.mydomain.com"} 4
# HELP kops_component_unhealthy Unhealthy components of the kubernetes cluster.
# TYPE kops_component_unhealthy gauge
kops_component_unhealthy{cluster_name="clustername.mydomain.com"} 0
# HELP kops_node_notReady Not ready nodes in the kubernetes cluster.
# TYPE kops_node_notReady gauge
kops_node_notReady{cluster_name="clustername.mydomain.com"} 0
# HELP kops_node_ready Ready nodes in the kubernetes cluster.
# TYPE kops_node_ready gauge
kops_node_ready{cluster_name="clustername.mydomain.com"} 2
# HELP kops_pod_missing Missing pods in the kubernetes cluster.
# TYPE kops_pod_missing gauge
kops_pod_missing{cluster_name="clustername.mydomain.com"} 0
# HELP kops_pod_notReady Not ready pods in the kubernetes cluster.
# TYPE kops_pod_notReady gauge
kops_pod_notReady{cluster_name="clustername.mydomain.com"} 0
# HELP kops_pod_pending Pending pods in the kubernetes cluster.
# TYPE kops_pod_pending gauge
kops_pod_pending{cluster_name="clustername.mydomain.com"} 0
# HELP kops_pod_unknown Unknown pods in the kubernetes cluster.
# TYPE kops_pod_unknown gauge
kops_pod_unknown{cluster_name="clustername.mydomain.com"} 0
"#;

    const FOUR: Components = Components {
        healthy: 4,
        unhealthy: 0,
    };

    fn group(name: &str, cloud: Option<GroupCounts>) -> GroupRow {
        let group = GroupSummary {
            name: name.parse().unwrap(),
            role: Role::Node,
            machine_type: String::new(),
            min_size: None,
            max_size: None,
            subnets: vec![],
            karpenter: false,
        };
        GroupRow { group, cloud }
    }

    fn verdict() -> Verdict {
        let counts = Counts {
            nodes_ready: Some(2),
            nodes_not_ready: Some(0),
            pods_missing: Some(0),
            pods_not_ready: Some(0),
            pods_pending: Some(0),
            pods_unknown: Some(0),
        };
        by_hand::verdict(CLUSTER, counts)
    }

    fn shown(verdict: &Verdict, components: Option<Components>) -> String {
        page(&CLUSTER.parse().unwrap(), verdict, components).unwrap()
    }

    #[test]
    fn begins_as_the_seed_says() {
        let text = shown(&verdict(), Some(FOUR));
        assert!(text.starts_with(SEED), "{text}");
        let own = text[SEED.len()..].lines().filter(|line| line.contains("kops_"));
        assert_eq!(own.count(), 0, "no other gauge has the seed's prefix: {text}");
    }

    #[test]
    fn what_is_not_known_is_absent_and_said_to_be() {
        let mut unknown = verdict();
        unknown.counts.nodes_ready = None;
        unknown.unknown.push(Unknown {
            part: PartName::Nodes,
            reason: "x".to_owned(),
        });
        let text = shown(&unknown, None);
        for absent in ["kops_component_healthy", "kops_component_unhealthy", "kops_node_ready"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
        let observed = |part: &str, value: u32| {
            let line = format!("tidewaiter_cluster_observed{{cluster_name=\"{CLUSTER}\",part=\"{part}\"}} {value}\n");
            assert!(text.contains(&line), "{line}: {text}");
        };
        observed("Nodes", 0);
        observed("components", 0);
        observed("Pods", 1);
        assert!(
            text.contains("verdict=\"unknown\"} 1\n") && text.contains("verdict=\"ready\"} 0\n"),
            "{text}"
        );
    }

    #[test]
    fn groups_show_what_the_cloud_has() {
        let mut grouped = verdict();
        let counts = GroupCounts {
            current: 3,
            ready: Some(2),
            needs_update: Some(1),
            target: Some(4),
            min: Some(1),
            max: Some(9),
        };
        let missing = GroupCounts {
            ready: Some(0),
            ..GroupCounts::default()
        };
        grouped.groups = vec![
            group("nodes-a", Some(counts)),
            group("nodes-b", None),
            group("missing", Some(missing)),
        ];
        let text = shown(&grouped, None);
        for (name, value) in [
            ("current_instances", 3),
            ("ready_nodes", 2),
            ("outdated_instances", 1),
            ("target_instances", 4),
            ("min_instances", 1),
            ("max_instances", 9),
        ] {
            let line = format!(
                "tidewaiter_instance_group_{name}{{cluster_name=\"{CLUSTER}\",instance_group=\"nodes-a\"}} {value}\n"
            );
            assert!(text.contains(&line), "{line}: {text}");
        }
        assert!(!text.contains("nodes-b"), "{text}");
        let of_missing: Vec<_> = text.lines().filter(|line| line.contains("missing\"}")).collect();
        let zero = |name: &str| {
            format!("tidewaiter_instance_group_{name}{{cluster_name=\"{CLUSTER}\",instance_group=\"missing\"}} 0")
        };
        assert_eq!(of_missing, [zero("current_instances"), zero("ready_nodes")]);
    }

    #[test]
    fn the_age_is_in_seconds() {
        let text = age(&CLUSTER.parse().unwrap(), Duration::from_millis(1500)).unwrap();
        assert!(
            text.ends_with("\ntidewaiter_cluster_verdict_age_seconds{cluster_name=\"clustername.mydomain.com\"} 1.5\n"),
            "{text}"
        );
    }
}
