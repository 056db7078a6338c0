//! A Node whose instance is in another group now than the one for which it was verified.
//!
//! Anyone who may change the group of an instance (its tag, its label, its managed instance group) would decide what
//! its Node gets, so the Node is held: it is refused (`GroupChanged`), keeps what it has, and stays in its group on
//! record. The operator may have Nodes follow such a change, but only to the labels of a file. The Node of a worker
//! never becomes one of the control plane by itself, whatever the setting, and not by another tag: what ran on it stays
//! there.

use tidewaiter_api::values::quoted;
use tidewaiter_api::{LabelSource, RecordedLabel};
use tidewaiter_identity::{GroupHold, Refusal};
use tidewaiter_kops::{NodeLabels, RejectedLabel, is_control_plane_label};

use super::observation::Finding;
use super::{OnGroupChange, Policy};
use crate::objects::Record;

/// Returns the finding of the Node of this uid, after the rule about changes of its group.
#[must_use]
pub(crate) fn judged(finding: Finding, record: Option<&Record>, uid: &str, policy: Policy) -> Finding {
    let (proven, labels) = match &finding {
        Finding::Defined(proven, labels) => (proven, Some(labels)),
        Finding::Undefined(proven, _) => (proven, None),
        Finding::Unclaimed | Finding::Malformed(_) | Finding::Refused(_) => return finding,
    };
    let identity = proven.identity();
    let Some((record, verified)) = record.and_then(|record| Some((record, record.group_of(uid)?))) else {
        return finding;
    };
    let is_of_tags = labels.is_some_and(|labels| {
        labels
            .wanted
            .iter()
            .any(|label| label.source == LabelSource::InstanceTag)
    });
    let recorded = record.labels_of(uid);
    if verified == identity.group {
        return match finding {
            Finding::Defined(proven, labels) if is_of_tags => Finding::Defined(proven, still_worker(labels, recorded)),
            other => other,
        };
    }
    let had = |key: &str| recorded.iter().any(|label| label.key.as_str() == key);
    let mut keys = labels
        .into_iter()
        .flat_map(|labels| &labels.wanted)
        .map(|label| label.key.as_str());
    let hold = if keys.any(|key| is_control_plane_label(key) && !had(key)) {
        GroupHold::ControlPlane
    } else if policy.on_group_change == OnGroupChange::Hold {
        GroupHold::Setting
    } else if labels.is_none() {
        // It may be a group of the control plane.
        GroupHold::Undefined
    } else if is_of_tags {
        // They are those of the group that launched it, and do not say whether the new one is of the control plane.
        GroupHold::Tags
    } else {
        return finding;
    };
    Finding::Refused(Refusal::GroupChanged {
        instance: identity.instance.clone(),
        mark: proven.mark(),
        verified,
        actual: identity.group.clone(),
        hold,
    })
}

/// Of a Node that has the labels of a worker on record, tags define no label of the control plane.
fn still_worker(labels: NodeLabels, recorded: &[RecordedLabel]) -> NodeLabels {
    if recorded.is_empty() || recorded.iter().any(|label| is_control_plane_label(label.key.as_str())) {
        return labels;
    }
    let NodeLabels { wanted, mut rejected } = labels;
    let (refused, wanted) = wanted
        .into_iter()
        .partition(|label| is_control_plane_label(label.key.as_str()));
    rejected.extend(Vec::into_iter(refused).map(|label| {
        RejectedLabel {
            key: label.key.to_string(),
            value: quoted(label.value.as_str()),
            source: label.source,
            file: label.file,
            field: label.field,
            reason:
                "a tag does not make the Node of a worker one of the control plane: find out who set it, and remove it"
                    .to_owned(),
        }
    }));
    NodeLabels { wanted, rejected }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tidewaiter_api::Lifecycle;
    use tidewaiter_identity::{Claim, Identity, NodeNames, prove};
    use tidewaiter_kops::{DefinitionError, WantedLabel};

    use super::*;

    const ROLE: &str = "node-role.kubernetes.io/control-plane";
    const CLAIMS: [&str; 3] = ["aws:///a/i-1", "gce://p-roject/a/n", "hcloud://42"];

    /// A Node whose instance is in `group` now, with a label of this key in its definition; `None` for no definition.
    fn found(provider_id: &str, group: &str, key: Option<&str>, source: LabelSource) -> Finding {
        let claim = Claim {
            node: "n".parse().unwrap(),
            uid: "u".parse().unwrap(),
            provider_id: provider_id.parse().unwrap(),
            addresses: Vec::new(),
            rivals: Vec::new(),
        };
        let identity = Identity {
            instance: "i".to_owned(),
            group: group.parse().unwrap(),
            starting: false,
            zone: "a".to_owned(),
            lifecycle: Lifecycle::OnDemand,
            names: vec!["n".to_owned()],
            addresses: Vec::new(),
            tag_labels: Vec::new(),
        };
        let proven = prove(&claim, Arc::new(identity), NodeNames::Enforce).unwrap();
        let Some(key) = key else {
            let instance = "i".to_owned();
            return Finding::Undefined(proven, DefinitionError::Untagged { instance });
        };
        let wanted = WantedLabel {
            key: key.parse().unwrap(),
            value: "".parse().unwrap(),
            source,
            file: String::new(),
            field: String::new(),
        };
        let (wanted, rejected) = (vec![wanted], Vec::new());
        Finding::Defined(proven, NodeLabels { wanted, rejected })
    }

    /// A record of the Node with this uid, which was verified for the group `before` and has a label of this key.
    fn record(uid: &str, key: &str) -> Record {
        let labels = json!([{"key": key, "value": "", "source": "GroupNodeLabels"}]);
        let record = json!({"metadata": {"name": "n"}, "spec": {"nodeUID": uid},
            "status": {"instanceGroup": "before", "labels": labels}});
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_changed_group_is_held_on_every_cloud_and_a_worker_never_becomes_a_control_plane() {
        use OnGroupChange::{Follow, Hold};
        let (worker, master) = (|| Some(record("u", "team")), || Some(record("u", ROLE)));
        for (what, record, group, key, setting, expected) in [
            ("a first proof", None, "now", Some(ROLE), Hold, None),
            (
                "of another Node",
                Some(record("v", "team")),
                "now",
                Some(ROLE),
                Hold,
                None,
            ),
            ("the same group", worker(), "before", Some("team"), Hold, None),
            (
                "the same group has another role",
                worker(),
                "before",
                Some(ROLE),
                Hold,
                None,
            ),
            ("the same group is undefined", worker(), "before", None, Hold, None),
            ("held", worker(), "now", Some("team"), Hold, Some(GroupHold::Setting)),
            (
                "held and undefined",
                worker(),
                "now",
                None,
                Hold,
                Some(GroupHold::Setting),
            ),
            (
                "held as a control plane",
                master(),
                "now",
                Some(ROLE),
                Hold,
                Some(GroupHold::Setting),
            ),
            (
                "a worker, held",
                worker(),
                "now",
                Some(ROLE),
                Hold,
                Some(GroupHold::ControlPlane),
            ),
            ("followed", worker(), "now", Some("team"), Follow, None),
            ("followed as a control plane", master(), "now", Some(ROLE), Follow, None),
            (
                "followed by a control plane",
                master(),
                "now",
                Some("team"),
                Follow,
                None,
            ),
            (
                "a worker",
                worker(),
                "now",
                Some(ROLE),
                Follow,
                Some(GroupHold::ControlPlane),
            ),
            ("undefined", worker(), "now", None, Follow, Some(GroupHold::Undefined)),
        ] {
            let policy = Policy {
                on_group_change: setting,
                ..Policy::default()
            };
            for provider_id in CLAIMS {
                let finding = judged(
                    found(provider_id, group, key, LabelSource::GroupNodeLabels),
                    record.as_ref(),
                    "u",
                    policy,
                );
                let hold = match &finding {
                    Finding::Refused(Refusal::GroupChanged { hold, .. }) => Some(*hold),
                    _ => None,
                };
                assert_eq!(hold, expected, "{what}, {provider_id}: {finding:?}");
                if let Finding::Refused(refusal) = finding {
                    assert!(!refusal.is_forgery() && !refusal.is_transient());
                    let words = "of instance i names group now, but its Node was verified for group before";
                    assert!(refusal.to_string().ends_with(words), "{refusal}");
                }
            }
        }
    }

    #[test]
    fn labels_of_tags_follow_no_change_and_make_no_worker_a_control_plane() {
        use OnGroupChange::{Follow, Hold};
        let (worker, master) = (|| Some(record("u", "team")), || Some(record("u", ROLE)));
        for (what, record, group, key, setting, expected) in [
            ("a first proof", None, "now", ROLE, Follow, Ok(1)),
            ("the same group", worker(), "before", "team", Hold, Ok(1)),
            ("the same group, and a tag", worker(), "before", ROLE, Hold, Ok(0)),
            ("the same group, and a tag", worker(), "before", ROLE, Follow, Ok(0)),
            ("the same control plane", master(), "before", ROLE, Hold, Ok(1)),
            (
                "another role of it",
                master(),
                "before",
                "node-role.kubernetes.io/etcd",
                Hold,
                Ok(1),
            ),
            ("held", worker(), "now", "team", Hold, Err(GroupHold::Setting)),
            ("not followed", worker(), "now", "team", Follow, Err(GroupHold::Tags)),
            (
                "nor by a control plane",
                master(),
                "now",
                "team",
                Follow,
                Err(GroupHold::Tags),
            ),
            ("a worker", worker(), "now", ROLE, Follow, Err(GroupHold::ControlPlane)),
        ] {
            let policy = Policy {
                on_group_change: setting,
                ..Policy::default()
            };
            let found = found(CLAIMS[0], group, Some(key), LabelSource::InstanceTag);
            let judged = match judged(found, record.as_ref(), "u", policy) {
                Finding::Defined(_, labels) => {
                    assert_eq!(labels.wanted.len() + labels.rejected.len(), 1, "{what}");
                    Ok(labels.wanted.len())
                }
                Finding::Refused(Refusal::GroupChanged { hold, .. }) => Err(hold),
                other => panic!("{what}: {other:?}"),
            };
            assert_eq!(judged, expected, "{what}");
        }
    }
}
