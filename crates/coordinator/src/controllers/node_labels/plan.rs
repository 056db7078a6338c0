//! Decides what to change on a Node. Pure.
//!
//! | a label of the Node | is |
//! | --- | --- |
//! | with a key that the Node should have | set to its value, also if another manager owns it |
//! | under a prefix, with a key that some resource names, for other nodes | removed, also if another manager owns it |
//! | under a prefix, with a key that no resource names, applied by another manager | left, and reported |
//! | under a prefix, with a key that no resource names | removed; left while a resource of the kind cannot be read |
//! | that of the node pool | set to the pool that the cloud says; removed where it contradicts the cloud |
//! | any other | left |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tidewaiter_api::LabelValue;
use tidewaiter_api::names::NODE_POOL_LABEL;
use tidewaiter_kit::Notice;

use crate::controllers::labels::Desired;
use crate::node::Node;
use crate::node_pools::Pool;

/// The input of a plan.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    /// The Node as it was last seen.
    pub(super) node: Arc<Node>,
    /// The labels that it should have, by kind. A kind of which that is not known is left out, and nothing under its
    /// prefix changes.
    pub(super) desired: Vec<Desired>,
    /// The keys of the Node that some resource names, for whichever nodes.
    pub(super) named: BTreeSet<String>,
    /// In which node pool the Node is.
    pub(super) pool: Pool,
}

/// The changes and the reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// The labels to set, and those to remove.
    pub(super) labels: BTreeMap<String, Option<LabelValue>>,
    /// True if the label of the node pool contradicts the cloud.
    pub(super) contradicted: bool,
    /// True if labels stay only because a resource cannot be read.
    pub(super) withheld: bool,
    /// Events to publish now.
    pub(super) notices: Vec<Notice>,
    /// Events to publish once the patch succeeds.
    pub(super) done: Vec<Notice>,
}

impl Plan {
    /// Returns true if anything is to be written.
    pub(super) fn writes(&self) -> bool {
        !self.labels.is_empty()
    }

    /// The JSON merge patch (RFC 7396), with only the keys that differ.
    pub(super) fn patch(&self) -> Value {
        json!({ "metadata": { "labels": self.labels } })
    }
}

pub(super) fn plan(seen: &Observation) -> Plan {
    let mut plan = Plan::default();
    for desired in &seen.desired {
        plan.make_exact(seen, desired);
    }
    plan.correct_pool(seen);
    plan
}

impl Plan {
    fn make_exact(&mut self, seen: &Observation, desired: &Desired) {
        let present = seen.node.labels();
        for (key, value) in &desired.labels {
            if present.get(key.as_str()).map(String::as_str) != Some(value.as_str()) {
                self.labels.insert(key.to_string(), Some(value.clone()));
            }
        }
        let others = present.keys().filter(|key| key.starts_with(desired.prefix));
        let mut foreign = false;
        for key in others.filter(|key| !desired.labels.contains_key(key.as_str())) {
            if !seen.named.contains(key) {
                if seen.node.is_applied_by_another(key) {
                    foreign = true;
                    continue;
                }
                if !desired.complete {
                    self.withheld = true;
                    continue;
                }
            }
            self.labels.insert(key.clone(), None);
        }
        if foreign {
            self.notices.push(foreign_labels(desired.prefix));
        }
    }

    fn correct_pool(&mut self, seen: &Observation) {
        let claim = seen.node.claimed_pool();
        self.contradicted = seen.pool.contradicts(claim);
        let label = match &seen.pool {
            Pool::ByCloud(pool) if claim != Some(pool.as_str()) => Some(pool.clone()),
            Pool::Refused => None,
            Pool::ByCloud(_) | Pool::ByLabel(_) | Pool::None | Pool::Unknown => return,
        };
        if self.contradicted {
            self.done.push(corrected(label.as_ref()));
        }
        self.labels.insert(NODE_POOL_LABEL.to_owned(), label);
    }
}

fn foreign_labels(prefix: &str) -> Notice {
    let note = format!(
        "Another manager has applied labels under {prefix} that the cloud does not name, and they were left. Create them in the cloud, or \
         remove them with the manager that applied them."
    );
    Notice::warning("ForeignLabels", "Label", note)
}

/// The note does not repeat what the label said: a kubelet may change that at will, and each change would be another
/// Event.
fn corrected(pool: Option<&LabelValue>) -> Notice {
    let now = pool.map_or_else(
        || "The cloud has no node of this name in it, so the label was removed.".to_owned(),
        |pool| format!("The cloud has this Node in the node pool {pool}, so the label was corrected."),
    );
    let note = format!(
        "The label {NODE_POOL_LABEL} named another node pool than the cloud. {now} The Node got no labels of the other node pool. Unless the \
         node was moved in the cloud, find out what sets the label: its kubelet can."
    );
    Notice::warning("NodePoolCorrected", "Label", note)
}

#[cfg(test)]
mod tests {
    use tidewaiter_api::LabelKey;

    use super::*;
    use crate::node::tests::node;

    const CLUSTER: &str = "cluster.containership.io/";
    const POOL: &str = "nodepool.containership.io/";

    fn desired(prefix: &'static str, labels: &[(&str, &str)], complete: bool) -> Desired {
        let labels = labels.iter().map(|(key, value)| {
            let key: LabelKey = format!("{prefix}{key}").parse().unwrap();
            (key, value.parse().unwrap())
        });
        Desired {
            prefix,
            labels: labels.collect(),
            complete,
        }
    }

    fn pool(id: &str) -> LabelValue {
        id.parse().unwrap()
    }

    /// A Node that has these labels, and should have `env=prod` under the first prefix and `disk=ssd` under the second
    /// one.
    struct Case {
        labels: Vec<(&'static str, &'static str)>,
        applied: Vec<&'static str>,
        named: Vec<&'static str>,
        complete: bool,
        pool: Pool,
    }

    fn case(labels: &[(&'static str, &'static str)]) -> Case {
        Case {
            labels: labels.to_vec(),
            applied: vec![],
            named: vec![],
            complete: true,
            pool: Pool::ByCloud(pool("gpu")),
        }
    }

    impl Case {
        fn plan(&self) -> Plan {
            let mut kinds = vec![desired(CLUSTER, &[("env", "prod")], self.complete)];
            match &self.pool {
                Pool::Unknown => {}
                Pool::ByCloud(_) | Pool::ByLabel(_) => kinds.push(desired(POOL, &[("disk", "ssd")], self.complete)),
                Pool::None | Pool::Refused => kinds.push(desired(POOL, &[], self.complete)),
            }
            plan(&Observation {
                node: Arc::new(node(&self.labels, &self.applied)),
                desired: kinds,
                named: self.named.iter().map(ToString::to_string).collect(),
                pool: self.pool.clone(),
            })
        }

        /// The patch, as `key=value` and `key-`.
        fn patch(&self) -> Vec<String> {
            let labels = self.plan().labels.into_iter();
            labels
                .map(|(key, value)| value.map_or_else(|| format!("{key}-"), |value| format!("{key}={value}")))
                .collect()
        }
    }

    const ENV: (&str, &str) = ("cluster.containership.io/env", "prod");
    const DISK: (&str, &str) = ("nodepool.containership.io/disk", "ssd");
    const GPU: (&str, &str) = (NODE_POOL_LABEL, "gpu");

    #[test]
    fn a_patch_has_only_what_differs() {
        let all = [
            "cluster.containership.io/env=prod",
            "containership.io/node-pool-id=gpu",
            "nodepool.containership.io/disk=ssd",
        ];
        assert_eq!(case(&[]).patch(), all);
        assert_eq!(case(&[ENV]).patch(), all[1..]);
        assert_eq!(case(&[ENV, GPU]).patch(), all[2..]);
        assert_eq!(case(&[(ENV.0, "dev"), GPU, DISK]).patch(), all[..1]);
        let nothing = case(&[ENV, GPU, DISK]).plan();
        assert_eq!(nothing, Plan::default());
        assert!(!nothing.writes());
    }

    #[test]
    fn the_set_is_exact_within_the_prefix_and_nothing_outside_changes() {
        for (extra, patch) in [
            ("cluster.containership.io/old", &["cluster.containership.io/old-"][..]),
            ("nodepool.containership.io/old", &["nodepool.containership.io/old-"]),
            ("containership.io/node-id", &[]),
            ("kubernetes.io/os", &[]),
            ("cluster.containership.io.example.com/x", &[]),
        ] {
            assert_eq!(case(&[ENV, GPU, DISK, (extra, "x")]).patch(), patch, "{extra}");
        }
    }

    #[test]
    fn a_label_that_another_manager_applied_is_taken_over_only_if_the_cloud_names_its_key() {
        let (other, wrong) = ("nodepool.containership.io/other", (DISK.0, "hdd"));
        let labels = [ENV, GPU, wrong, (other, "x")];
        // Named for this Node: its value is corrected. Not named: left.
        let mut seen = Case {
            applied: vec![other, DISK.0],
            named: vec![DISK.0],
            ..case(&labels)
        };
        assert_eq!(seen.patch(), ["nodepool.containership.io/disk=ssd"]);
        let reasons: Vec<_> = seen.plan().notices.into_iter().map(|notice| notice.reason).collect();
        assert_eq!(reasons, ["ForeignLabels"]);
        // Named for other nodes: removed.
        seen.named.push(other);
        assert_eq!(
            seen.patch(),
            ["nodepool.containership.io/disk=ssd", "nodepool.containership.io/other-"]
        );
        assert!(seen.plan().notices.is_empty());
    }

    #[test]
    fn while_a_resource_cannot_be_read_unknown_labels_stay() {
        let labels = [
            (ENV.0, "dev"),
            GPU,
            DISK,
            ("cluster.containership.io/old", "x"),
            ("cluster.containership.io/of-others", "x"),
        ];
        let seen = Case {
            complete: false,
            named: vec!["cluster.containership.io/of-others"],
            ..case(&labels)
        };
        assert_eq!(
            seen.patch(),
            [
                "cluster.containership.io/env=prod",
                "cluster.containership.io/of-others-"
            ]
        );
        assert!(seen.plan().withheld);
        assert!(!case(&labels).plan().withheld);
    }

    #[test]
    fn the_label_of_the_pool_follows_the_cloud() {
        let wrong = (NODE_POOL_LABEL, "web");
        let by_label = || Pool::ByLabel(pool("web"));
        for (decided, claim, patch, contradicted) in [
            (Pool::ByCloud(pool("gpu")), Some(GPU), None, false),
            (
                Pool::ByCloud(pool("gpu")),
                None,
                Some("containership.io/node-pool-id=gpu"),
                false,
            ),
            (
                Pool::ByCloud(pool("gpu")),
                Some(wrong),
                Some("containership.io/node-pool-id=gpu"),
                true,
            ),
            (Pool::Refused, Some(wrong), Some("containership.io/node-pool-id-"), true),
            (by_label(), Some(wrong), None, false),
            (Pool::None, None, None, false),
            (Pool::Unknown, Some(wrong), None, false),
        ] {
            let mut labels = vec![ENV];
            labels.extend(claim);
            let seen = Case {
                pool: decided,
                ..case(&labels)
            };
            let row = format!("{:?} {claim:?}", seen.pool);
            let written: Vec<_> = seen
                .patch()
                .into_iter()
                .filter(|it| it.starts_with(NODE_POOL_LABEL))
                .collect();
            assert_eq!(written, patch.into_iter().collect::<Vec<_>>(), "{row}");
            let plan = seen.plan();
            assert_eq!(
                (plan.contradicted, plan.done.len()),
                (contradicted, usize::from(contradicted)),
                "{row}"
            );
            // What the label said is in no Event.
            assert!(plan.done.iter().all(|notice| !notice.note.contains("web")), "{row}");
        }
    }

    #[test]
    fn a_node_that_contradicts_the_cloud_gets_no_labels_of_that_pool() {
        let wrong = (NODE_POOL_LABEL, "gpu");
        let refused = Case {
            pool: Pool::Refused,
            named: vec![DISK.0],
            ..case(&[ENV, wrong, DISK])
        };
        assert_eq!(
            refused.patch(),
            ["containership.io/node-pool-id-", "nodepool.containership.io/disk-"]
        );
        // Before the cloud has been read, nothing of a pool changes.
        let unknown = Case {
            pool: Pool::Unknown,
            ..case(&[wrong, ("nodepool.containership.io/old", "x")])
        };
        assert_eq!(unknown.patch(), ["cluster.containership.io/env=prod"]);
    }
}
