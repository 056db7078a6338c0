//! The place in which each cloud records the group of an instance, and its writers.

use tidewaiter_api::ProviderId;

/// The place in which a cloud records the cluster and the group of an instance: written by kOps, and not writable by
/// the instance. It tells how strong a proof is: see [`Mark::writers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mark {
    /// A tag of the instance.
    #[error("tag")]
    Tag,
    /// A label of the server.
    #[error("label")]
    Label,
    /// Metadata of the template that the instance is created from.
    #[error("template metadata")]
    Template,
}

impl Mark {
    /// Returns the place in which the cloud that `provider_id` names records the group of an instance.
    pub(crate) fn of(provider_id: &ProviderId) -> Self {
        match provider_id.scheme() {
            "gce" => Self::Template,
            "hcloud" => Self::Label,
            _ => Self::Tag,
        }
    }

    /// Returns the place and its writers as text: the strength of a proof follows from them.
    #[must_use]
    pub fn writers(self) -> &'static str {
        match self {
            Self::Tag => {
                "its group is a tag of the instance, which the EC2 API changes for IAM roles with ec2:CreateTags"
            }
            Self::Template => "its group is in its instance template, which nobody can change",
            Self::Label => "its group is a label of the server, which every API token with write permission can change",
        }
    }

    /// The remedy for a missing or invalid mark.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Tag => "Restore the tags that kOps sets on the instance: kops update cluster --yes.",
            Self::Label => "Restore the labels that kOps sets on the server: kops update cluster --yes.",
            Self::Template => {
                "Create a new instance template and replace the instance: kops update cluster --yes, then kops rolling-update cluster --yes."
            }
        }
    }
}
