//! The reasons why the identity of a Node is not confirmed. Every text is safe to print: bounded, escaped, without
//! secrets, and equal for equal causes.

mod remedy;

use std::net::IpAddr;

use tidewaiter_api::node_identity::VERIFIED;
use tidewaiter_api::values::quoted;
use tidewaiter_api::{ClusterName, ConditionStatus, InstanceGroupName, NodeIdentityStatus, NodeName, ProviderId};

use crate::proof::NodeNames;

/// The reason why a Node gets no labels. [`Identifier`](crate::Identifier) defines what each means and when to query
/// again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant describes its fields")]
pub enum Refusal {
    /// The providerID does not have the format of this cloud.
    #[error("providerID {} {rule}", quoted(.provider_id.as_str()))]
    InvalidProviderId {
        provider_id: ProviderId,
        /// The violated rule, in words.
        rule: &'static str,
    },
    /// The cloud does not list the instance.
    #[error("the cloud does not list instance {instance}")]
    NotFound { instance: String },
    /// The instance is neither running nor starting.
    #[error("instance {instance} is {state}")]
    NotRunning {
        instance: String,
        /// Its state, as the cloud names it.
        state: String,
    },
    /// The Node does not fit the instance, which is still starting.
    #[error("instance {instance} is starting, and the cloud may not know its name and addresses yet")]
    Starting { instance: String },
    /// The instance does not belong to this cluster.
    #[error("instance {instance} {}", owner(.theirs.as_deref(), .ours, *.mark))]
    ForeignProject {
        instance: String,
        /// The place in which the cluster of an instance is recorded.
        mark: Mark,
        /// The cluster or project that it belongs to, if recorded.
        theirs: Option<String>,
        ours: ClusterName,
    },
    /// The instance is in no group, or the recorded group name is invalid.
    #[error("instance {instance} {}", no_group(.value.as_deref(), *.mark))]
    NotInGroup {
        instance: String,
        /// The place in which the group of an instance is recorded.
        mark: Mark,
        /// The recorded value, which is not a valid group name, if there is one.
        value: Option<String>,
    },
    /// The instance is not a member of a managed instance group. Its reason is that of [`Refusal::NotInGroup`].
    #[error("instance {instance} {why}")]
    NotManaged {
        instance: String,
        /// The part of the chain from instance to group that is missing.
        why: NotManaged,
    },
    /// The Node's name is not one that the cloud gives the instance.
    #[error("node {node} is not instance {instance}: the name of its node must be one of {}", few(.names))]
    NameMismatch {
        instance: String,
        node: NodeName,
        /// The names that the cloud gives the instance.
        names: Vec<String>,
    },
    /// The Node's name is one that the cloud gives the instance, of the scheme that this cluster does not use.
    #[error("node {node} has a name of instance {instance}, but the Nodes of this cluster have {}", .names.scheme())]
    NameScheme {
        instance: String,
        node: NodeName,
        /// The rule of this cluster.
        names: NodeNames,
    },
    /// The Node lists addresses, and none of them belongs to the instance.
    ///
    /// The message does not repeat the addresses that the Node lists: a kubelet can change them at will, and each
    /// message is a write.
    #[error("none of the addresses that node {node} lists is one of instance {instance}, which has {}", few(.actual))]
    AddressMismatch {
        instance: String,
        node: NodeName,
        /// The addresses that the cloud gives the instance.
        actual: Vec<IpAddr>,
    },
    /// The providerID names another project than the setting `project`, and no instance of the cluster was found in the
    /// project of the setting: the setting may be wrong.
    #[error(
        "the providerID names project {claimed}, but the setting project is {ours}, and no instance of {cluster} was found there"
    )]
    ProjectMismatch {
        /// The project in the providerID.
        claimed: String,
        /// The project of the setting.
        ours: String,
        cluster: ClusterName,
    },
    /// The instance is now in another group than the one for which its Node was verified.
    #[error("the {mark} of instance {instance} names group {actual}, but its Node was verified for group {verified}")]
    GroupChanged {
        instance: String,
        /// The place in which the group of an instance is recorded.
        mark: Mark,
        /// The group for which the Node was verified.
        verified: InstanceGroupName,
        /// The group that is recorded now.
        actual: InstanceGroupName,
        /// The reason why the Node does not follow.
        hold: GroupHold,
    },
    /// The instance is in another zone than the one in the providerID.
    #[error("the providerID names zone {claimed}, but instance {instance} is in {actual}")]
    ZoneMismatch {
        instance: String,
        /// The zone in the providerID.
        claimed: String,
        /// The zone according to the cloud.
        actual: String,
    },
    /// Another Node claims the same instance, with equal evidence.
    #[error("instance {instance} is also claimed by {}", few(.rivals))]
    Duplicate { instance: String, rivals: Vec<NodeName> },
    /// The cloud throttles calls.
    #[error("{api} is throttled")]
    Throttled {
        /// The call, for example `ec2:DescribeInstances`.
        api: &'static str,
    },
    /// There was no usable response.
    #[error("{api}: {cause}{}", in_brackets(.detail))]
    Unavailable {
        /// The call, for example `ec2:DescribeInstances`.
        api: &'static str,
        cause: UnavailableCause,
        /// Details in words; may be empty.
        detail: String,
    },
}

/// The break of the chain from an instance to its managed instance group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant describes its fields")]
pub enum NotManaged {
    /// The instance does not name its creator.
    #[error("does not name the managed instance group that created it")]
    NoCreator,
    /// The creator is not a managed instance group that can contain the instance.
    #[error("claims to be created by {}, which is not a managed instance group of its zone or region", quoted(.0))]
    NoGroup(String),
    /// The managed instance group does not exist.
    #[error("claims to be created by {0}, which does not exist")]
    GroupGone(String),
    /// The managed instance group is about to stop managing the instance.
    #[error("is being abandoned by {0}")]
    Abandoned(String),
    /// The managed instance group does not list the instance: it was abandoned, or its claim is false.
    #[error("claims to be created by {0}, which does not list it")]
    NotListed(String),
    /// The instance template does not exist.
    #[error("is created from {0}, which does not exist")]
    TemplateGone(String),
    /// The instance template names no group, or an invalid one.
    #[error("is created from {template}, which {}", no_template_group(.group.as_deref()))]
    TemplateWithoutGroup {
        template: String,
        /// The recorded value, which is not a valid group name, if there is one.
        group: Option<String>,
    },
}

/// The reason why there is no usable response from the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnavailableCause {
    /// The caller is authenticated and lacks the permission.
    #[error("permission denied")]
    Denied,
    /// There are no credentials, or the cloud rejects them.
    #[error("no valid credentials")]
    Credentials,
    /// No connection, or timeout.
    #[error("not reachable")]
    Unreachable,
    /// The cloud reported an internal error.
    #[error("the cloud failed")]
    Failed,
    /// The response cannot be interpreted.
    #[error("unusable response")]
    Unusable,
}

impl UnavailableCause {
    /// The value of the label `outcome` in the metric of calls.
    pub(crate) fn outcome(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Credentials => "no_credentials",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
            Self::Unusable => "unusable",
        }
    }
}

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
}

/// The reason why a Node stays in the group for which it was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupHold {
    /// The setting says so.
    Setting,
    /// It would become a Node of the control plane.
    ControlPlane,
    /// The new group has no readable definition.
    Undefined,
    /// Its labels come from the tags of the instance, which are those of the group that launched it.
    Tags,
}

impl Refusal {
    /// The cloud gives no answer.
    pub(crate) fn unavailable(api: &'static str, cause: UnavailableCause, detail: &str) -> Self {
        let detail = detail.to_owned();
        Self::Unavailable { api, cause, detail }
    }

    /// The reason in conditions, Events and metrics, in `CamelCase`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidProviderId { .. } => "InvalidProviderId",
            Self::NotFound { .. } => "NotFound",
            Self::NotRunning { .. } => "NotRunning",
            Self::Starting { .. } => "Starting",
            Self::ForeignProject { .. } => "ForeignProject",
            Self::NotInGroup { .. } | Self::NotManaged { .. } => "NotInGroup",
            Self::NameMismatch { .. } => "NameMismatch",
            Self::NameScheme { .. } => "NameScheme",
            Self::AddressMismatch { .. } => "AddressMismatch",
            Self::ZoneMismatch { .. } => "ZoneMismatch",
            Self::ProjectMismatch { .. } => "ProjectMismatch",
            Self::GroupChanged { .. } => "GroupChanged",
            Self::Duplicate { .. } => "Duplicate",
            Self::Throttled { .. } => "Throttled",
            Self::Unavailable { .. } => "Unavailable",
        }
    }

    /// Returns true if this is evidence of a forged claim, as opposed to missing or broken configuration.
    #[must_use]
    pub fn is_forgery(&self) -> bool {
        matches!(
            self,
            Self::ForeignProject { theirs: Some(_), .. }
                | Self::NameMismatch { .. }
                | Self::AddressMismatch { .. }
                | Self::ZoneMismatch { .. }
        )
    }

    /// Returns true if a record says that its Node is refused as forged. A record of a version before the field
    /// `forged` says so by a reason that has no other meaning.
    #[must_use]
    pub fn is_recorded_forgery(status: &NodeIdentityStatus) -> bool {
        let mut conditions = status.conditions.iter();
        let is_forgery = |reason: &str| matches!(reason, "NameMismatch" | "AddressMismatch" | "ZoneMismatch");
        status.forged
            || conditions
                .any(|it| it.type_ == VERIFIED && it.status == ConditionStatus::False && is_forgery(&it.reason))
    }

    /// Returns true if the instance may be so new that the cloud does not list it yet, or not completely.
    #[must_use]
    pub fn may_be_too_new(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Starting { .. })
    }

    /// Returns true if the refusal is about the call only, not about the Node.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Throttled { .. } | Self::Unavailable { .. })
    }
}

fn owner(theirs: Option<&str>, ours: &ClusterName, mark: Mark) -> String {
    match theirs {
        Some(theirs) => format!("belongs to {}, not to {ours}", quoted(theirs)),
        None => format!("has no {mark} that assigns it to {ours}"),
    }
}

fn no_group(value: Option<&str>, mark: Mark) -> String {
    match value {
        Some(value) => format!(
            "has the {mark} {} for its instance group, which is not a valid name",
            quoted(value)
        ),
        None => format!("has no {mark} that names its instance group"),
    }
}

fn no_template_group(group: Option<&str>) -> String {
    match group {
        Some(group) => format!(
            "has {} for its instance group, which is not a valid name",
            quoted(group)
        ),
        None => "names no instance group".to_owned(),
    }
}

fn in_brackets(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    }
}

/// The first few items, so that an instance with hundreds of addresses does not fill an Event.
fn few<T: std::fmt::Display>(items: &[T]) -> String {
    const SHOWN: usize = 4;
    if items.is_empty() {
        return "none".to_owned();
    }
    let mut text = items
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if items.len() > SHOWN {
        text = format!("{text} and {} more", items.len() - SHOWN);
    }
    text
}

#[cfg(test)]
mod tests;
