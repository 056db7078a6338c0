//! Which label keys are whose: for each key, the InstanceGroups that define it, and what the Cluster's kubelets give.
//!
//! It rests on the last good version of each file. A group that is listed and was never readable makes it incomplete, and so
//! does a folder that was never listed: then a key that is not here may be somebody's all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewaiter_api::InstanceGroupName;
use tidewaiter_kit::Clock;
use tokio::sync::Mutex as Gate;

use super::error::DefinitionError;
use super::stale::{Moment, Stale};
use crate::cluster::Cluster;
use crate::instance_group::{GROUPS_FOLDER, InstanceGroup};
use crate::labels::{is_of_kops, keys_of_cluster, keys_of_group};
use crate::store::StoreError;

/// Whose the label keys of a cluster are. What every kubelet or cloud controller sets by itself is nobody's
/// ([`is_of_no_group`](tidewaiter_api::names::is_of_no_group)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedKeys {
    groups: BTreeMap<String, BTreeSet<InstanceGroupName>>,
    cluster: BTreeSet<String>,
    complete: bool,
}

impl OwnedKeys {
    /// What these groups and this Cluster define. `complete` says that these are all groups, each as it was last good.
    #[must_use]
    pub fn of<'a>(
        groups: impl IntoIterator<Item = &'a InstanceGroup>,
        cluster: Option<&Cluster>,
        complete: bool,
    ) -> Self {
        let mut owned = Self {
            complete: complete && cluster.is_some(),
            ..Self::default()
        };
        for group in groups {
            for key in keys_of_group(group) {
                owned
                    .groups
                    .entry(key.to_owned())
                    .or_default()
                    .insert(group.name.clone());
            }
        }
        owned.cluster = cluster
            .into_iter()
            .flat_map(keys_of_cluster)
            .map(str::to_owned)
            .collect();
        owned
    }

    /// The groups whose definition gives this key; none when nobody is known to define it.
    pub fn groups_of(&self, key: &str) -> impl Iterator<Item = &InstanceGroupName> {
        self.groups.get(key).into_iter().flatten()
    }

    /// Whether only a proven Node may have this key: a group or the Cluster's kubelets define it, or it is kOps' word for a
    /// group, a role or a lifecycle.
    #[must_use]
    pub fn needs_proof(&self, key: &str) -> bool {
        self.groups.contains_key(key) || self.cluster.contains(key) || is_of_kops(key)
    }

    /// Whether a key that is not here is nobody's.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}

/// The groups that there are, and the keys that follow; empty until somebody wants them.
#[derive(Default)]
pub(super) struct Groups {
    /// Held during the first look, which everybody waits for.
    pub(super) first: Gate<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// As the folder was last listed.
    listed: Option<BTreeSet<InstanceGroupName>>,
    /// Why it could not be listed the last time, and since when it could not for whatever reason.
    problem: Option<(StoreError, Moment)>,
    /// What was last told.
    told: Option<Arc<OwnedKeys>>,
}

impl Groups {
    /// What was last told, if anybody wanted it yet.
    pub(super) fn told(&self) -> Option<Arc<OwnedKeys>> {
        self.lock().told.clone()
    }

    /// Whether the group stands in the folder, as far as that is known.
    pub(super) fn is_listed(&self, group: &InstanceGroupName) -> bool {
        self.lock().listed.as_ref().is_some_and(|listed| listed.contains(group))
    }

    /// The groups of the last list that went well.
    pub(super) fn listed(&self) -> Option<BTreeSet<InstanceGroupName>> {
        self.lock().listed.clone()
    }

    /// As [`listed`](Self::listed), or why there never was such a list.
    pub(super) fn names(&self) -> Result<BTreeSet<InstanceGroupName>, DefinitionError> {
        let state = self.lock();
        state.listed.clone().ok_or_else(|| match &state.problem {
            Some((problem, _)) => problem.clone().into(),
            None => DefinitionError::Unavailable {
                file: GROUPS_FOLDER.to_owned(),
                detail: "it has not been asked for it yet".to_owned(),
            },
        })
    }

    /// Since when the last good list may be gone by, and why.
    pub(super) fn stale(&self, clock: &dyn Clock) -> Option<Stale> {
        let state = self.lock();
        state.listed.as_ref()?;
        let (problem, since) = state.problem.as_ref()?;
        Some(since.stale(problem.clone().into(), clock))
    }

    /// Takes in an answer of the store; the last good one stays when it is none.
    pub(super) fn take(&self, answer: Result<Vec<String>, StoreError>, clock: &dyn Clock) {
        let mut state = self.lock();
        match answer {
            // A file whose name no group can have is none of kOps'.
            Ok(names) => {
                if state.problem.take().is_some() {
                    tracing::info!("the InstanceGroups of the state store can be listed again");
                }
                state.listed = Some(names.iter().filter_map(|name| name.parse().ok()).collect());
            }
            Err(problem) => {
                let before = state.problem.take();
                if before.as_ref().is_none_or(|(before, _)| *before != problem) {
                    tracing::warn!(%problem, "the InstanceGroups of the state store cannot be listed; labels that only groups without a verified Node define may not be known");
                }
                let since = before.map_or_else(|| Moment::now(clock), |(_, since)| since);
                state.problem = Some((problem, since));
            }
        }
    }

    /// Tells this from now on. Says whether somebody was told anything else before.
    pub(super) fn tell(&self, owned: OwnedKeys) -> bool {
        let mut state = self.lock();
        let other = state.told.as_deref().is_some_and(|told| *told != owned);
        if other || state.told.is_none() {
            state.told = Some(Arc::new(owned));
        }
        other
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
