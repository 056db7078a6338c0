//! The rules of the plan as a table: one row a rule, both sides of its edge.

mod foreign;
mod quarantine;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde_json::json;
use tidewaiter_api::{Condition, LabelSource, Lifecycle, NodeIdentitySpec, NodeIdentityStatus, ProviderId};
use tidewaiter_identity::{Claim, GroupHold, Identity, Mark, NodeNames, UnavailableCause, prove};
use tidewaiter_kit::{Next, Retry};
use tidewaiter_kops::{Cluster, InstanceGroup, OwnedKeys, RejectedLabel, WantedLabel};

use super::super::census::Brake;
use super::super::{Policy, next};
use super::*;
use crate::objects::{Node, Record};

const CLAIM: &str = "aws:///us-east-1a/i-0123456789abcdef0";
const NAME: &str = "ip-10-0-0-1.ec2.internal";
const UID: &str = "uid-1";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The objects in the cluster, and the finding.
struct Seen {
    labels: &'static str,
    tainted: bool,
    record: Option<Recorded>,
    finding: Finding,
}

#[derive(Clone, Copy, Debug)]
struct Recorded {
    uid: &'static str,
    verified: (ConditionStatus, &'static str),
    labels: &'static str,
}

/// The expected writes, in short: labels as `a=1 b=2`, a recorded one that was 0 before as `a=1<0`, an absent write as
/// `-`.
#[derive(Debug, PartialEq)]
struct Expected {
    state: NodeState,
    record: String,
    set: String,
    remove: String,
    lifts_taint: bool,
    narrowed: String,
    notices: String,
}

const NOTHING: &str = "-";

fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_whitespace().filter_map(|pair| pair.split_once('='))
}

fn recorded(text: &str) -> Vec<RecordedLabel> {
    pairs(text)
        .map(|(key, value)| {
            let (value, before) = value
                .split_once('<')
                .map_or((value, None), |(value, before)| (value, Some(before)));
            RecordedLabel {
                key: key.parse().unwrap(),
                value: value.parse().unwrap(),
                source: LabelSource::GroupNodeLabels,
                file: "instancegroup/nodes".to_owned(),
                before: before.map(|before| before.parse().unwrap()),
            }
        })
        .collect()
}

fn defined(wanted: &str, rejected: &[&str]) -> Finding {
    let wanted = pairs(wanted).map(|(key, value)| WantedLabel {
        key: key.parse().unwrap(),
        value: value.parse().unwrap(),
        source: LabelSource::GroupNodeLabels,
        file: "instancegroup/nodes".to_owned(),
        field: format!("spec.nodeLabels[{key:?}]"),
    });
    let rejected = rejected.iter().map(|key| RejectedLabel {
        key: (*key).to_owned(),
        value: "\"no value\"".to_owned(),
        source: LabelSource::GroupNodeLabels,
        file: "instancegroup/nodes".to_owned(),
        field: format!("spec.nodeLabels[{key:?}]"),
        reason: "it holds a space".to_owned(),
    });
    Finding::Defined(
        proven(NodeNames::Enforce, NAME),
        NodeLabels {
            wanted: wanted.collect(),
            rejected: rejected.collect(),
        },
    )
}

fn proven(names: NodeNames, node: &str) -> Proven {
    let claim = Claim {
        node: node.parse().unwrap(),
        uid: UID.parse().unwrap(),
        provider_id: CLAIM.parse().unwrap(),
        addresses: Vec::new(),
        rivals: Vec::new(),
    };
    let identity = Identity {
        instance: "i-0123456789abcdef0".to_owned(),
        group: "nodes".parse().unwrap(),
        starting: false,
        zone: "us-east-1a".to_owned(),
        lifecycle: Lifecycle::OnDemand,
        names: vec![NAME.to_owned()],
        addresses: Vec::new(),
        tag_labels: Vec::new(),
    };
    prove(&claim, Arc::new(identity), names).unwrap()
}

fn refusal() -> Finding {
    Finding::Refused(Refusal::NotFound {
        instance: "i-0123456789abcdef0".to_owned(),
    })
}

fn forgery() -> Finding {
    Finding::Refused(Refusal::NameMismatch {
        instance: "i-0123456789abcdef0".to_owned(),
        node: NAME.parse().unwrap(),
        names: vec!["other".to_owned()],
    })
}

/// A verified group is remembered, so that a server that is relabelled is not taken for one of its new group by the
/// next pass.
#[test]
fn a_changed_group_is_refused_and_the_old_one_stays_in_the_record() {
    let seen = observation(Seen {
        labels: "kops.k8s.io/instancegroup=nodes",
        tainted: false,
        record: Some(Recorded {
            uid: UID,
            verified: (ConditionStatus::True, "Proven"),
            labels: "kops.k8s.io/instancegroup=nodes",
        }),
        finding: Finding::Refused(Refusal::GroupChanged {
            instance: "42".to_owned(),
            mark: Mark::Label,
            verified: "nodes".parse().unwrap(),
            actual: "masters".parse().unwrap(),
            hold: GroupHold::Setting,
        }),
    });
    let plan = plan(&seen, Timestamp::UNIX_EPOCH);
    assert_eq!((plan.state, &plan.patch), (NodeState::Refused, &None));
    let record = plan.record.unwrap();
    assert_eq!(record.status.instance_group, Some("nodes".parse().unwrap()));
    let stored = Record {
        spec: record.spec,
        status: record.status,
        metadata: seen.record.as_ref().unwrap().metadata.clone(),
    };
    assert_eq!(stored.group_of(UID), Some("nodes".parse().unwrap()));
    assert_eq!(stored.group_of("another"), None);
    // After any other refusal the label that was set tells the group.
    let mut refused = stored;
    refused.status.instance_group = None;
    assert_eq!(refused.group_of(UID), Some("nodes".parse().unwrap()));
    refused.status.labels.clear();
    assert_eq!(refused.group_of(UID), None);
}

/// The lookup asks again about what may be too new, for all Nodes together.
#[test]
fn a_refused_node_has_a_backoff_of_its_own_unless_its_instance_may_be_too_new() {
    let instance = || "i".to_owned();
    for (finding, retry) in [
        (refusal(), Retry::Slow),
        (
            Finding::Refused(Refusal::Starting { instance: instance() }),
            Retry::Slow,
        ),
        (forgery(), Retry::Backoff),
    ] {
        let seen = observation(Seen {
            labels: "",
            tainted: false,
            record: None,
            finding,
        });
        assert_eq!(next(seen).unwrap(), Next::Refused(retry));
    }
}

fn outage() -> Finding {
    Finding::Refused(Refusal::Unavailable {
        api: "ec2:DescribeInstances",
        cause: UnavailableCause::Unreachable,
        detail: String::new(),
    })
}

fn observation(seen: Seen) -> Observation {
    let labels: BTreeMap<&str, &str> = pairs(seen.labels).collect();
    let taints = if seen.tainted {
        json!([{"key": "other", "effect": "NoExecute"}, {"key": "tidewaiter.dev/unidentified", "effect": "NoSchedule"}])
    } else {
        json!([{"key": "other", "effect": "NoExecute"}])
    };
    let node = json!({
        "metadata": {"name": NAME, "uid": UID, "resourceVersion": "7", "labels": labels},
        "spec": {"providerID": CLAIM, "taints": taints},
    });
    Observation {
        name: NAME.parse().unwrap(),
        uid: UID.parse().unwrap(),
        node: Arc::new(serde_json::from_value(node).unwrap()),
        record: seen.record.map(|record| Arc::new(record.content())),
        finding: seen.finding,
        fresh_for: None,
        owned: Arc::default(),
        brake: Brake::Unjudged,
        policy: Policy::default(),
    }
}

/// Returns the keys that these groups of workers define, as `name: key key`.
fn owned(groups: &[(&str, &str)], complete: bool) -> Arc<OwnedKeys> {
    let group = |(name, keys): &(&str, &str)| {
        let labels: BTreeMap<&str, &str> = keys.split_whitespace().map(|key| (key, "x")).collect();
        let file = json!({
            "apiVersion": "kops.k8s.io/v1alpha2",
            "kind": "InstanceGroup",
            "metadata": {"name": name},
            "spec": {"role": "Node", "nodeLabels": labels},
        });
        let (name, cluster) = (name.parse().unwrap(), "c.example.com".parse().unwrap());
        InstanceGroup::parse("f", file.to_string().as_bytes(), &name, &cluster).unwrap()
    };
    let cluster = json!({
        "apiVersion": "kops.k8s.io/v1alpha2",
        "kind": "Cluster",
        "metadata": {"name": "c.example.com"},
        "spec": {"kubelet": {"nodeLabels": {"everybody": "x"}}},
    });
    let cluster = Cluster::parse("f", cluster.to_string().as_bytes(), &"c.example.com".parse().unwrap()).unwrap();
    let groups: Vec<InstanceGroup> = groups.iter().map(group).collect();
    Arc::new(OwnedKeys::of(&groups, Some(&cluster), complete))
}

impl Recorded {
    fn content(self) -> Record {
        let (status, reason) = self.verified;
        let at = Timestamp::UNIX_EPOCH;
        let mut conditions = vec![Condition::new(VERIFIED, status, reason, "as before", &[], at)];
        if status == ConditionStatus::True {
            conditions.push(Condition::new(
                LABELS_VALID,
                ConditionStatus::True,
                "AllValid",
                "as before",
                &[],
                at,
            ));
        }
        Record {
            metadata: owned_by(self.uid),
            spec: NodeIdentitySpec {
                node_uid: self.uid.parse().unwrap(),
                provider_id: CLAIM.to_owned(),
            },
            status: NodeIdentityStatus {
                labels: recorded(self.labels),
                conditions,
                ..NodeIdentityStatus::default()
            },
        }
    }
}

fn owned_by(uid: &str) -> ObjectMeta {
    ObjectMeta {
        owner_references: Some(vec![OwnerReference {
            uid: uid.to_owned(),
            ..OwnerReference::default()
        }]),
        ..ObjectMeta::default()
    }
}

#[test]
fn a_record_that_lost_its_owner_gets_it_back() {
    let mut seen = observation(Seen {
        labels: "team=red",
        tainted: false,
        record: None,
        finding: defined("team=red", &[]),
    });
    let now = Timestamp::UNIX_EPOCH;
    let settled = plan(&seen, now).record.unwrap();
    let record = |metadata: ObjectMeta| Record {
        metadata,
        spec: settled.spec.clone(),
        status: settled.status.clone(),
    };
    for (owners, written) in [
        (owned_by(UID), false),
        (owned_by("of-another"), true),
        (ObjectMeta::default(), true),
    ] {
        seen.record = Some(Arc::new(record(owners)));
        let again = plan(&seen, now).record;
        assert_eq!(again, written.then(|| settled.clone()));
    }
}

fn planned(plan: &Plan) -> Expected {
    let patch = plan.patch.clone().unwrap_or_default();
    let set: Vec<String> = patch.set.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let lifted = patch
        .taints
        .is_some_and(|taints| taints == [json!({"key": "other", "effect": "NoExecute"})]);
    Expected {
        state: plan.state,
        record: content(plan.record.as_ref()),
        set: set.join(" "),
        remove: patch.remove.into_iter().collect::<Vec<_>>().join(" "),
        lifts_taint: lifted,
        narrowed: content(plan.narrowed.as_ref()),
        notices: plan
            .notices
            .iter()
            .chain(&plan.done)
            .map(|notice| notice.reason.to_string())
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// `Verified's reason: labels`.
fn content(content: Option<&RecordContent>) -> String {
    let Some(RecordContent { status, .. }) = content else {
        return NOTHING.to_owned();
    };
    let verified = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == VERIFIED)
        .unwrap();
    let labels: Vec<String> = status
        .labels
        .iter()
        .map(|label| {
            let before = label.before.as_ref().map(|before| format!("<{before}"));
            format!("{}={}{}", label.key, label.value, before.unwrap_or_default())
        })
        .collect();
    format!("{:?} {}: {}", verified.status, verified.reason, labels.join(" "))
        .trim_end()
        .to_owned()
}

fn verified(labels: &'static str) -> Recorded {
    Recorded {
        uid: UID,
        verified: (ConditionStatus::True, "Proven"),
        labels,
    }
}

fn row(state: NodeState, record: &str, set: &str, remove: &str, narrowed: &str, notices: &str) -> Expected {
    Expected {
        state,
        record: record.to_owned(),
        set: set.to_owned(),
        remove: remove.to_owned(),
        lifts_taint: false,
        narrowed: narrowed.to_owned(),
        notices: notices.to_owned(),
    }
}

type Row = (&'static str, Seen, Expected);

/// `(what, (what stands in the cluster and was found out), what is to be written)`.
#[rustfmt::skip]
fn table() -> Vec<Row> {
    use NodeState::{Forged, Refused, Unanswered, Verified};
    let seen = |labels, record, finding| Seen { labels, tainted: false, record, finding };
    let before = |labels| Some(verified(labels));
    let earlier = Some(Recorded { uid: "uid-0", verified: (ConditionStatus::True, "Proven"), labels: "gone=1" });
    let was_refused = Some(Recorded { uid: UID, verified: (ConditionStatus::False, "NotFound"), labels: "" });
    vec![
        // What a proven Node gets.
        ("a new node gets all labels", seen("own=x", None, defined("a=1 b=2", &[])),
            row(Verified, "True Proven: a=1 b=2", "a=1 b=2", "", NOTHING, "")),
        ("only what differs is patched", seen("a=1 b=x own=x", before("a=1 b=2"), defined("a=1 b=2", &[])),
            row(Verified, "True Proven: a=1 b=2", "b=2", "", NOTHING, "")),
        ("a changed value changes", seen("a=1", before("a=1"), defined("a=2", &[])),
            row(Verified, "True Proven: a=2", "a=2", "", NOTHING, "")),
        ("a key that left the definition leaves the node, then the record", seen("a=1 b=2", before("a=1 b=2"), defined("a=1", &[])),
            row(Verified, "True Proven: a=1 b=2", "", "b", "True Proven: a=1", "LabelsRemoved")),
        ("old and new keys stand in the record together", seen("a=1", before("a=1"), defined("b=2", &[])),
            row(Verified, "True Proven: a=1 b=2", "b=2", "a", "True Proven: b=2", "LabelsRemoved")),
        ("a key leaves the record only with a patch, seen on the node or not", seen("a=1", before("a=1 b=2"), defined("a=1", &[])),
            row(Verified, "True Proven: a=1 b=2", "", "b", "True Proven: a=1", "")),
        ("a key that we never set stays", seen("a=1 mine=1", before("a=1"), defined("a=1", &[])),
            row(Verified, "True Proven: a=1", "", "", NOTHING, "")),
        ("what an earlier node of that name had is not this one's", seen("gone=1", earlier, defined("a=1", &[])),
            row(Verified, "True Proven: a=1", "a=1", "", NOTHING, "")),
        // Role labels, no matter who set them.
        ("a role that is not wanted goes", seen("a=1 node-role.kubernetes.io/control-plane=", None, defined("a=1", &[])),
            row(Verified, "True Proven: a=1<1", "", CONTROL_PLANE, NOTHING, "LabelsRemoved")),
        ("a role that is wanted stays", seen("node-role.kubernetes.io/node=", None, defined("node-role.kubernetes.io/node=", &[])),
            row(Verified, "True Proven: node-role.kubernetes.io/node=<", "", "", NOTHING, "")),
        ("any other role label stays", seen("a=1 node-role.kubernetes.io/mine=", None, defined("a=1", &[])),
            row(Verified, "True Proven: a=1<1", "", "", NOTHING, "")),
        // What was there before us.
        ("who had a key first stays on record", seen("a=0 b=2", None, defined("a=1 b=2", &[])),
            row(Verified, "True Proven: a=1<0 b=2<2", "a=1", "", NOTHING, "")),
        ("what was set since counts for nothing", seen("a=0", before("a=1"), defined("a=1", &[])),
            row(Verified, "True Proven: a=1", "a=1", "", NOTHING, "")),
        ("it stays on record with another value, and with one that is refused", seen("a=1 b=1", before("a=1<0 b=1<0"), defined("a=2", &["b"])),
            row(Verified, "True Proven: a=2<0 b=1<0", "a=2", "", NOTHING, "LabelRejected")),
        ("it is given back", seen("a=1 b=2", before("a=1<0 b=2<2"), defined("", &[])),
            row(Verified, "True Proven: a=1<0 b=2<2", "a=0 b=2", "", "True Proven:", "LabelsRemoved")),
        ("that nothing changes is no news, and confirmed", seen("b=2", before("b=2<2"), defined("", &[])),
            row(Verified, "True Proven: b=2<2", "b=2", "", "True Proven:", "")),
        ("a role goes all the same", seen("node-role.kubernetes.io/control-plane=", before("node-role.kubernetes.io/control-plane=<"), defined("", &[])),
            row(Verified, "True Proven: node-role.kubernetes.io/control-plane=<", "", CONTROL_PLANE, "True Proven:", "LabelsRemoved")),
        ("what kubelets set never goes", seen("kubernetes.io/os=linux topology.kubernetes.io/zone=a", before("kubernetes.io/os=linux topology.kubernetes.io/zone=b<a"), defined("", &[])),
            row(Verified, "True Proven: kubernetes.io/os=linux topology.kubernetes.io/zone=b<a", "topology.kubernetes.io/zone=a", "", "True Proven:", "")),
        ("nor does what an earlier version took from the coordinator", seen("cluster.containership.io/env=x", before("cluster.containership.io/env=x"), defined("", &[])),
            row(Verified, "True Proven: cluster.containership.io/env=x", "", "", "True Proven:", "")),
        // A label that Kubernetes refuses.
        ("a rejected label does not hold back the others", seen("", None, defined("a=1", &["b"])),
            row(Verified, "True Proven: a=1", "a=1", "", NOTHING, "LabelRejected")),
        ("a rejected label keeps its last good value", seen("a=1 b=2", before("a=1 b=2"), defined("a=1", &["b"])),
            row(Verified, "True Proven: a=1 b=2", "", "", NOTHING, "LabelRejected")),
        // Refusals.
        ("a refused node gets nothing", seen("", None, refusal()),
            row(Refused, "False NotFound:", "", "", NOTHING, "NotFound")),
        ("a refused node loses nothing", seen("a=1 node-role.kubernetes.io/control-plane=", before("a=1"), refusal()),
            row(Refused, "False NotFound: a=1", "", "", NOTHING, "NotFound")),
        ("a forged node is counted apart", seen("", None, forgery()),
            row(Forged, "False NameMismatch:", "", "", NOTHING, "NameMismatch")),
        ("a refusal forgets what an earlier node had", seen("", earlier, refusal()),
            row(Refused, "False NotFound:", "", "", NOTHING, "NotFound")),
        ("who was refused and is proven is told so", seen("a=1", was_refused, defined("a=1", &[])),
            row(Verified, "True Proven: a=1<1", "", "", NOTHING, "Verified")),
        // Outages.
        ("an outage is written for a new node", seen("", None, outage()),
            row(Unanswered, "Unknown Unavailable:", "", "", NOTHING, "Unavailable")),
        ("an outage changes nothing for a verified one", seen("a=x", before("a=1 b=2"), outage()),
            row(Unanswered, NOTHING, "", "", NOTHING, "Unavailable")),
        ("nor for a refused one", seen("", was_refused, outage()),
            row(Unanswered, NOTHING, "", "", NOTHING, "Unavailable")),
        ("an earlier node's record does not count as an answer", seen("", earlier, outage()),
            row(Unanswered, "Unknown Unavailable:", "", "", NOTHING, "Unavailable")),
    ]
}

#[test]
fn the_table_holds() {
    for (what, seen, expected) in table() {
        assert_eq!(
            planned(&plan(&observation(seen), Timestamp::UNIX_EPOCH)),
            expected,
            "{what}"
        );
    }
}

/// The world as the plan leaves it.
fn carried_out(mut seen: Observation, plan: &Plan) -> Observation {
    if let Some(patch) = &plan.patch {
        let mut node = Node::clone(&seen.node);
        let labels = node.metadata.labels.get_or_insert_default();
        labels.retain(|key, _| !patch.remove.contains(key));
        labels.extend(
            patch
                .set
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string())),
        );
        if patch.taints.is_some() {
            node.spec.taints.clone_from(&patch.taints);
        }
        seen.node = Arc::new(node);
    }
    if let Some(RecordContent { spec, status }) = plan.narrowed.clone().or(plan.record.clone()) {
        seen.record = Some(Arc::new(Record {
            metadata: owned_by(UID),
            spec,
            status,
        }));
    }
    seen
}

#[test]
fn the_pass_after_plans_no_write() {
    let findings = [defined("a=1 b=2", &["c"]), refusal(), forgery(), outage()];
    let records = [
        None,
        Some(verified("a=1 c=3 d=4")),
        Some(Recorded {
            uid: "uid-0",
            verified: (ConditionStatus::True, "Proven"),
            labels: "a=1",
        }),
    ];
    for finding in findings {
        for record in records {
            let seen = observation(Seen {
                labels: "a=x d=4 node-role.kubernetes.io/control-plane=",
                tainted: true,
                record,
                finding: finding.clone(),
            });
            let after = carried_out(seen.clone(), &plan(&seen, Timestamp::UNIX_EPOCH));
            let again = plan(&after, "2026-01-01T00:00:00Z".parse().unwrap());
            assert_eq!(
                (again.record, again.patch, again.narrowed),
                (None, None, None),
                "{finding:?}"
            );
        }
    }
}

#[test]
fn the_startup_taint_goes_with_the_labels_and_never_before() {
    let seen = |finding, record| {
        observation(Seen {
            labels: "",
            tainted: true,
            record,
            finding,
        })
    };
    let lifts = |seen: &Observation| planned(&plan(seen, Timestamp::UNIX_EPOCH)).lifts_taint;
    assert!(lifts(&seen(defined("a=1", &[]), None)));
    assert!(
        lifts(&seen(defined("", &[]), Some(verified("")))),
        "also where the group gives no label"
    );
    assert!(!lifts(&seen(refusal(), None)));
    assert!(!lifts(&seen(forgery(), Some(verified("a=1")))));
    assert!(!lifts(&seen(outage(), Some(verified("a=1")))));
}

#[test]
fn a_node_that_claims_nothing_or_is_going_is_left_alone() {
    let mut seen = observation(Seen {
        labels: "node-role.kubernetes.io/control-plane=",
        tainted: true,
        record: Some(verified("a=1")),
        finding: Finding::Unclaimed,
    });
    let waits = |seen: &Observation| {
        let plan = plan(seen, Timestamp::UNIX_EPOCH);
        matches!(plan.state, NodeState::Waiting(_))
            && plan.record.is_none()
            && plan.patch.is_none()
            && plan.notices.is_empty()
            && plan.done.is_empty()
    };
    assert!(waits(&seen));
    let mut node = Node::clone(&seen.node);
    node.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        Timestamp::UNIX_EPOCH,
    ));
    seen.node = Arc::new(node);
    seen.finding = defined("a=1", &[]);
    assert!(waits(&seen));
}

#[test]
fn junk_for_a_provider_id_is_shown_short_and_safe() {
    let junk = "\u{1b}[31m\n".repeat(2_000);
    let error = junk.parse::<ProviderId>().unwrap_err();
    let seen = observation(Seen {
        labels: "",
        tainted: false,
        record: None,
        finding: Finding::Malformed(error),
    });
    let plan = plan(&seen, Timestamp::UNIX_EPOCH);
    let record = plan.record.unwrap();
    assert!(
        record.spec.provider_id.len() <= 1024 && !record.spec.provider_id.contains('\n'),
        "{:?}",
        record.spec
    );
    assert_eq!(plan.notices[0].reason, "InvalidProviderId");
    assert!(plan.notices[0].note.len() < 600, "{}", plan.notices[0].note);
}

#[test]
fn under_warn_a_node_of_another_name_is_verified_and_told_apart() {
    let finding = Finding::Defined(proven(NodeNames::Warn, "of-its-own"), NodeLabels::default());
    let plan = plan(
        &observation(Seen {
            labels: "",
            tainted: false,
            record: None,
            finding,
        }),
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(
        planned(&plan),
        row(
            NodeState::Verified,
            "True NameNotEnforced:",
            "",
            "",
            NOTHING,
            "NameNotEnforced"
        )
    );
}
