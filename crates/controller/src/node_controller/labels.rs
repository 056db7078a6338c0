//! The labels of a proven Node, from where the operator wants them: the state store, or the tags of its instance.
//!
//! An instance without a single such tag is one that nobody tagged yet: its Node keeps what it has. What was given from files
//! is never replaced by tags, because the two may differ and the files are only away.

use std::sync::Arc;

use tidewaiter_api::RecordedLabel;
use tidewaiter_identity::Proven;
use tidewaiter_kops::{Definition, DefinitionError, Definitions, OwnedKeys, node_labels, tag_labels};

use super::LabelsFrom;
use super::observation::Finding;

/// From where the labels of a proven Node come.
#[derive(Debug)]
pub(crate) enum Given {
    /// The files of its group and cluster.
    Definition(Arc<Definition>),
    /// The tags of its instance.
    Tags,
    /// From nowhere, for now.
    Nothing(DefinitionError),
}

/// Finds from where the labels of a Node come that has been given those of `recorded` before.
pub(crate) async fn given(
    from: LabelsFrom,
    definitions: &Definitions,
    proven: &Proven,
    recorded: &[RecordedLabel],
) -> Given {
    if from == LabelsFrom::Tags {
        return Given::Tags;
    }
    match definitions.get(&proven.identity().group).await {
        Ok(definition) => Given::Definition(definition),
        Err(_) if from == LabelsFrom::StoreThenTags && tags_may_serve(proven, recorded) => Given::Tags,
        Err(error) => Given::Nothing(error),
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

/// Whose each key is; with tags alone nobody knows.
pub(crate) async fn owned(from: LabelsFrom, definitions: &Definitions) -> Arc<OwnedKeys> {
    match from {
        LabelsFrom::Tags => Arc::default(),
        LabelsFrom::Store | LabelsFrom::StoreThenTags => definitions.owned_keys().await,
    }
}

/// Whether tags can stand in for a definition that is not to be had.
fn tags_may_serve(proven: &Proven, recorded: &[RecordedLabel]) -> bool {
    !proven.identity().tag_labels.is_empty() && recorded.iter().all(|label| label.file.is_empty())
}

fn of_tags(proven: Proven) -> Finding {
    let identity = proven.identity();
    if identity.tag_labels.is_empty() {
        let instance = identity.instance.clone();
        return Finding::Undefined(proven, DefinitionError::Untagged { instance });
    }
    let labels = tag_labels(&identity.group, identity.lifecycle, &identity.tag_labels);
    Finding::Defined(proven, labels)
}
