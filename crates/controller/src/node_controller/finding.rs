//! The finding about a Node, and what the operator's policy makes of a proof: the source of the labels, and the rule
//! about a changed group.
//!
//! Labels come from the state store, or from the tags of the instance. An instance without such a tag for its group or
//! role was not tagged by kOps: its Node keeps its labels, or gets those of the files. Labels from files are replaced
//! by tags only if both are equal, or if the operator set `tags`: an instance has the tags of its launch, and the files
//! may have changed since.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_api::values::quoted;
use tidewaiter_api::{InvalidValue, LabelSource, RecordedLabel};
use tidewaiter_identity::{GroupHold, Identity, Proven, Refusal};
use tidewaiter_kops::{
    Definition, DefinitionError, Definitions, NodeLabels, OwnedKeys, RejectedLabel, is_control_plane_label,
    node_labels, tag_labels,
};

use crate::objects::Record;

/// The handling of a label on a proven Node whose key only other groups define.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignLabels {
    /// Publish an Event and keep the label.
    #[default]
    Report,
    /// Remove the label.
    Remove,
}

/// The handling of a Node that is refused for forgery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnForgery {
    /// Publish an Event and leave the Node as it is.
    #[default]
    Report,
    /// Remove the labels that only a proven Node may have, and taint the Node, unless the brake holds.
    Quarantine,
}

/// The source of the labels of a proven Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelsFrom {
    /// The definition of its group in the state store.
    #[default]
    Store,
    /// The tags of its instance. The state store is not read at all, so the labels of other groups are unknown.
    Tags,
    /// The state store; the tags where there never was a definition, neither since the start nor, by its record, for
    /// this Node.
    StoreThenTags,
    /// The tags. The state store if the instance has none, if the tags differ from the labels that the Node has from
    /// files, or if its group has changed.
    TagsThenStore,
    /// The tags where they gave the Node all that its record has; else as [`StoreThenTags`](Self::StoreThenTags). So
    /// no Node changes sides while it is not known which one the operator's kOps is on.
    AsRecorded,
}

/// The handling of a Node whose instance is in another group than the one for which it was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnGroupChange {
    /// Publish an Event and keep the labels of the old group.
    #[default]
    Hold,
    /// Give it the labels of the new group; a worker's Node never gets those of a group of the control plane.
    Follow,
}

/// The operator's policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The source of labels.
    pub labels_from: LabelsFrom,
    /// The handling of labels of other groups.
    pub foreign_labels: ForeignLabels,
    /// The handling of forged Nodes.
    pub on_forgery: OnForgery,
    /// The handling of Nodes whose group has changed.
    pub on_group_change: OnGroupChange,
}

/// The result of the identification of a Node.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    /// It claims nothing yet: the cloud controller manager sets its providerID.
    Unclaimed,
    /// Its providerID is malformed.
    Malformed(InvalidValue),
    /// The cloud or the proof refutes the claim, or the cloud could not be asked.
    Refused(Refusal),
    /// It is proven, and the definition of its group is not available.
    Undefined(Proven, DefinitionError),
    /// It is proven, and these are the labels of its group.
    Defined(Proven, NodeLabels),
}

/// The source of the labels of a proven Node.
#[derive(Debug)]
pub(crate) enum Given {
    /// The files of its group and cluster.
    Definition(Arc<Definition>),
    /// The tags of its instance.
    Tags,
    /// No source is available, for now.
    Nothing(DefinitionError),
}

/// Finds the source of the labels of a Node that has been given those of `recorded` before.
pub(crate) async fn given(
    from: LabelsFrom,
    definitions: &Definitions,
    proven: &Proven,
    recorded: &[RecordedLabel],
) -> Given {
    let identity = proven.identity();
    let tags_first = match from {
        LabelsFrom::Tags => true,
        // The tags are those of the group that launched the instance.
        _ if has_moved(identity, recorded) => false,
        LabelsFrom::TagsThenStore => tags_give(identity, recorded),
        LabelsFrom::AsRecorded => !recorded.is_empty() && tags_may_serve(identity, recorded),
        LabelsFrom::Store | LabelsFrom::StoreThenTags => false,
    };
    if tags_first {
        return Given::Tags;
    }
    match definitions.get(&identity.group).await {
        Ok(definition) => Given::Definition(definition),
        Err(_) if falls_back(from, recorded) && is_tagged(identity) => Given::Tags,
        Err(error) => Given::Nothing(error),
    }
}

/// Returns true if tags may replace an unavailable definition, for a Node with these recorded labels.
pub(crate) fn falls_back(from: LabelsFrom, recorded: &[RecordedLabel]) -> bool {
    matches!(from, LabelsFrom::StoreThenTags | LabelsFrom::AsRecorded) && none_from_files(recorded)
}

/// Returns true if the labels of a Node with these recorded labels depend on the tags of its instance.
pub(crate) fn needs_tags(from: LabelsFrom, recorded: &[RecordedLabel]) -> bool {
    match from {
        LabelsFrom::Tags | LabelsFrom::TagsThenStore => true,
        LabelsFrom::AsRecorded => !recorded.is_empty() && none_from_files(recorded),
        LabelsFrom::Store | LabelsFrom::StoreThenTags => false,
    }
}

impl Given {
    /// The labels themselves.
    pub(crate) fn finding(self, proven: Proven) -> Finding {
        match self {
            Self::Definition(definition) => {
                let identity = proven.identity();
                let labels = node_labels(&definition, identity.lifecycle, &identity.tag_labels);
                Finding::Defined(proven, labels)
            }
            Self::Tags => of_tags(proven),
            Self::Nothing(error) => Finding::Undefined(proven, error),
        }
    }
}

/// Returns the label keys of each InstanceGroup; empty when labels come from tags.
pub(crate) async fn owned(from: LabelsFrom, definitions: &Definitions) -> Arc<OwnedKeys> {
    match from {
        LabelsFrom::Tags => Arc::default(),
        _ => definitions.owned_keys().await,
    }
}

/// Returns true if kOps has tagged the instance, which it always does with group or role. People add tags for
/// cluster-autoscaler, too: if those counted as all labels, the Node would lose its role labels.
fn is_tagged(identity: &Identity) -> bool {
    let mut keys = identity.tag_labels.iter().map(|(key, _)| &**key);
    keys.any(|key| key == INSTANCE_GROUP_LABEL || key.starts_with("node-role.kubernetes.io/"))
}

/// Returns true if kOps has tagged the instance, and its Node has no label from files.
fn tags_may_serve(identity: &Identity, recorded: &[RecordedLabel]) -> bool {
    is_tagged(identity) && none_from_files(recorded)
}

fn none_from_files(recorded: &[RecordedLabel]) -> bool {
    recorded.iter().all(|label| label.file.is_empty())
}

/// Returns true if the Node was labelled for another group than that of its instance.
fn has_moved(identity: &Identity, recorded: &[RecordedLabel]) -> bool {
    let mut labels = recorded.iter();
    labels.any(|label| label.key.as_str() == INSTANCE_GROUP_LABEL && label.value.as_str() != identity.group.as_str())
}

/// Returns true if the tags define exactly the recorded labels, so that the Node does not change.
fn tags_give(identity: &Identity, recorded: &[RecordedLabel]) -> bool {
    if tags_may_serve(identity, recorded) {
        return true;
    }
    let given = labels_of_tags(identity).wanted;
    let given: BTreeSet<_> = given.iter().map(|label| (&label.key, &label.value)).collect();
    let recorded = recorded.iter().map(|label| (&label.key, &label.value));
    is_tagged(identity) && given == recorded.collect()
}

fn labels_of_tags(identity: &Identity) -> NodeLabels {
    tag_labels(&identity.group, identity.lifecycle, &identity.tag_labels)
}

fn of_tags(proven: Proven) -> Finding {
    let identity = proven.identity();
    if !is_tagged(identity) {
        let instance = identity.instance.clone();
        return Finding::Undefined(proven, DefinitionError::Untagged { instance });
    }
    let labels = labels_of_tags(identity);
    Finding::Defined(proven, labels)
}

/// Returns the finding of the Node of this uid, after the rule about a Node whose instance is in another group now than
/// the one for which it was verified.
///
/// Anyone who may change the group of an instance (its tag, its label, its managed instance group) would decide what
/// its Node gets, so the Node is held: it is refused (`GroupChanged`), keeps what it has, and stays in its group on
/// record. The operator may have Nodes follow such a change, but only to the labels of a file. The Node of a worker
/// never becomes one of the control plane by itself, whatever the setting, and not by another tag: what ran on it stays
/// there.
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
        // They are those of the group that launched it, and do not show whether the new one is of the control plane.
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
    use super::*;
    use serde_json::json;
    use std::sync::Arc;
    use tidewaiter_api::Lifecycle;
    use tidewaiter_identity::{Claim, Identity, NodeNames, prove};
    use tidewaiter_kops::{DefinitionError, WantedLabel};

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
