//! The labels of a proven Node, from where the operator wants them: the state store, or the tags of its instance.
//!
//! An instance without such a tag for its group or role was not tagged by kOps: its Node keeps its labels, or gets
//! those of the files. Labels from files are replaced by tags only if both are equal, or if the operator set `tags`: an
//! instance has the tags of its launch, and the files may have changed since.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidewaiter_api::RecordedLabel;
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_identity::{Identity, Proven};
use tidewaiter_kops::{Definition, DefinitionError, Definitions, NodeLabels, OwnedKeys, node_labels, tag_labels};

use super::LabelsFrom;
use super::observation::Finding;

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
