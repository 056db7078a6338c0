//! The instance groups of a cluster according to the cloud: their sizes, and the status of each instance in its group.
//!
//! One query covers the whole cluster. Nothing is cached and nothing is retried here: the caller decides how old an
//! answer may be and how often to query.

use std::time::Duration;

use async_trait::async_trait;
use tidewaiter_api::values::Role;
use tidewaiter_api::{InstanceGroupName, NodeName, ProviderId};

use crate::refusal::Refusal;

/// The timeout of a query, which may need many calls.
const DEADLINE: Duration = Duration::from_secs(30);

/// The instances of one InstanceGroup: those of an Auto Scaling group or a managed instance group, or without such a
/// group those with a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudGroup {
    /// Its name in the cloud, unique within the cluster.
    pub name: String,
    /// The InstanceGroup that it was created for. One InstanceGroup may have several (on GCE, one per zone).
    pub instance_group: InstanceGroupName,
    /// The role of the InstanceGroup, if the cloud says it in a way that an instance cannot forge: on AWS. Of an
    /// InstanceGroup that has several, the first.
    pub role: Option<Role>,
    /// Its sizes.
    pub sizes: Sizes,
    /// Its instances, including detached ones and those of its warm pool, but without those that are being terminated.
    pub members: Vec<Member>,
}

/// The sizes of a [`CloudGroup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// The cloud keeps as many instances.
    OfCloud {
        /// The current target.
        target: u32,
        /// The minimum target.
        min: u32,
        /// The maximum target.
        max: u32,
    },
    /// None: on AWS, instances that name the InstanceGroup and are in no Auto Scaling group. Karpenter makes as many as
    /// pods need.
    Unmanaged,
    /// The sizes of the InstanceGroup, because the cloud has no groups (Hetzner Cloud).
    OfInstanceGroup,
}

/// An instance of a [`CloudGroup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id in messages: `i-0123456789abcdef0` on EC2, `PROJECT/ZONE/NAME` on GCE.
    pub id: String,
    /// The providerID of its Node, to the letter: the cloud, the project or zone, and the id.
    pub provider_id: ProviderId,
    /// The name that its Node must have, if the cloud provides it.
    pub node_name: Option<NodeName>,
    /// Its status in the group.
    pub status: MemberStatus,
    /// True if it is in the group's warm pool and therefore has no Node yet.
    pub warm_pool: bool,
}

/// The status of an instance in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStatus {
    /// Created from the group's current definition.
    UpToDate,
    /// Created from an older definition.
    NeedsUpdate,
    /// In service, but it is not known from which definition: the permission to read it is missing, or Karpenter has
    /// it.
    Unresolved,
    /// Detached from the group to be replaced; it does not count.
    Detached,
}

/// The groups are unknown: the cloud is unavailable, or its response is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GroupsUnavailable(
    /// The reason for an operator: the error, the call and the remedy. It contains no secret, no URL, and nothing that
    /// differs between calls, so that equal errors have equal texts.
    pub String,
);

impl From<Refusal> for GroupsUnavailable {
    fn from(refusal: Refusal) -> Self {
        Self(format!("{refusal}. {}", refusal.remedy()))
    }
}

/// A cloud that can list the instance groups of a cluster.
#[async_trait]
pub trait CloudGroups: Send + Sync {
    /// All groups of the cluster with all their instances, in no particular order. A group is left out unless it names
    /// one of our InstanceGroups in a way that an instance cannot forge.
    ///
    /// # Errors
    /// If any part of the response is missing, denied or malformed, or if a group of ours cannot be read completely.
    /// Only the permission to read the current definition of a group may be missing. The query always ends within its
    /// timeout.
    async fn groups(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable>;

    /// Returns the place in which it looks for groups, for messages: `region us-east-1`, `project my-project-42`. None
    /// if it is not known.
    fn location(&self) -> Option<String>;
}

/// Applies the timeout to a query.
pub(crate) async fn in_time(
    query: impl Future<Output = Result<Vec<CloudGroup>, GroupsUnavailable>>,
) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
    within(DEADLINE, query).await
}

async fn within(
    deadline: Duration,
    query: impl Future<Output = Result<Vec<CloudGroup>, GroupsUnavailable>>,
) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
    match tokio::time::timeout(deadline, query).await {
        Ok(answer) => answer,
        Err(_) => Err(GroupsUnavailable(format!(
            "listing all instance groups took longer than {deadline:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_query_that_never_ends_is_answered() {
        let Err(GroupsUnavailable(words)) = within(Duration::from_millis(1), std::future::pending()).await else {
            panic!("an answer to a query that never ends");
        };
        assert_eq!(words, "listing all instance groups took longer than 1ms");
    }
}
