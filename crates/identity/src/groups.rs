//! What the cloud says of the groups of instances that a cluster has: their sizes, and how each instance stands to its group.
//!
//! One question for the whole cluster. Nothing is kept and nothing is tried again here: whoever asks knows how old an answer may
//! be, and how patient it is.

use std::time::Duration;

use async_trait::async_trait;
use tidewaiter_api::{InstanceGroupName, NodeName};

use crate::refusal::Refusal;

/// The longest that a question may take, however many calls it is made of.
const DEADLINE: Duration = Duration::from_secs(30);

/// A group of instances as the cloud has it: an Auto Scaling group, a managed instance group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudGroup {
    /// Its name in the cloud, unique among the cluster's.
    pub name: String,
    /// The InstanceGroup that it was made for. Several may be made for one (on GCE, one for each zone).
    pub instance_group: InstanceGroupName,
    /// How many instances the cloud means to have now.
    pub target_size: u32,
    /// The fewest that it may mean to have.
    pub min_size: u32,
    /// The most that it may mean to have.
    pub max_size: u32,
    /// Its instances but those that are being terminated; detached ones and those of its warm pool are among them.
    pub members: Vec<Member>,
}

/// An instance of a [`CloudGroup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The end of the providerID that its Node has, from some `/` on: `i-0123456789abcdef0` on EC2, `PROJECT/ZONE/NAME` on GCE.
    pub id: String,
    /// The name that its Node must have, if the cloud tells.
    pub node_name: Option<NodeName>,
    /// How it stands to its group.
    pub status: MemberStatus,
    /// Whether it waits in the group's warm pool, and so is no Node yet.
    pub warm_pool: bool,
}

/// How an instance stands to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStatus {
    /// It was made from the group's present definition.
    UpToDate,
    /// It was made from an older one.
    NeedsUpdate,
    /// Who asks may not read what the present definition is; whether the instance is in service is known all the same.
    Unresolved,
    /// It was taken out of the group to be replaced, and does not count.
    Detached,
}

/// The cloud did not say which groups there are: it could not be asked, or its answer cannot be used whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGroups(
    /// Why, in words for an operator: what failed, at which call, and what helps. No secret, no URL, and nothing that changes with
    /// each call, so that equal troubles read the same.
    pub String,
);

/// A cloud that can say which groups of instances a cluster has.
#[async_trait]
pub trait CloudGroups: Send + Sync {
    /// The groups that belong to the cluster, in no order: all of them with all their instances, or none. A group that names no
    /// InstanceGroup of ours in a way that an instance cannot forge is left out.
    ///
    /// # Errors
    /// When any part of the answer is missing, refused or not understood, but for what the present definition of a group is:
    /// that may be denied. It ends in time, whatever the cloud does.
    async fn groups(&self) -> Result<Vec<CloudGroup>, NoGroups>;
}

/// Asks, and answers in time.
pub(crate) async fn in_time(
    question: impl Future<Output = Result<Vec<CloudGroup>, Refusal>>,
) -> Result<Vec<CloudGroup>, NoGroups> {
    within(DEADLINE, question).await
}

async fn within(
    deadline: Duration,
    question: impl Future<Output = Result<Vec<CloudGroup>, Refusal>>,
) -> Result<Vec<CloudGroup>, NoGroups> {
    match tokio::time::timeout(deadline, question).await {
        Ok(answer) => answer.map_err(|refusal| NoGroups(format!("{refusal}. {}", refusal.remedy()))),
        Err(_) => Err(NoGroups(format!(
            "the cloud did not name all groups with their instances within {deadline:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_that_never_ends_is_answered() {
        let Err(NoGroups(words)) = within(Duration::from_millis(1), std::future::pending()).await else {
            panic!("an answer to a question that never ends");
        };
        assert_eq!(
            words,
            "the cloud did not name all groups with their instances within 1ms"
        );
    }
}
