//! The owners of label keys: the InstanceGroups that define each key, and the keys of the Cluster's kubelets.
//!
//! Based on the last valid version of each file. It is incomplete if a listed group was never readable, or if the
//! folder was never listed: then a key without a known owner may still have one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tidewaiter_api::InstanceGroupName;
use tidewaiter_kit::Clock;
use tokio::sync::Mutex as Gate;

use super::error::{DefinitionError, Moment, Stale};
use crate::cluster::Cluster;
use crate::instance_group::{GROUPS_FOLDER, InstanceGroup};
use crate::labels::{is_of_kops, keys_of_cluster, keys_of_group};
use crate::store::StoreError;

/// The owners of a cluster's label keys. Labels that every kubelet or cloud controller sets have no owner
/// ([`belongs_to_no_group`](tidewaiter_api::names::belongs_to_no_group)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedKeys {
    groups: BTreeMap<String, BTreeSet<InstanceGroupName>>,
    cluster: BTreeSet<String>,
    complete: bool,
}

impl OwnedKeys {
    /// The keys that these groups and this Cluster define. `complete` means that these are all groups, each in its last
    /// valid version.
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
            for key in keys_of_group(group, cluster) {
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

    /// The groups that define this key; empty if none is known.
    pub fn groups_of(&self, key: &str) -> impl Iterator<Item = &InstanceGroupName> {
        self.groups.get(key).into_iter().flatten()
    }

    /// Returns true if only a proven Node may have this key: a group or the Cluster's kubelets define it, or it is one
    /// of kOps' keys for group, role, lifecycle or containerd's features.
    #[must_use]
    pub fn needs_proof(&self, key: &str) -> bool {
        self.groups.contains_key(key) || self.cluster.contains(key) || is_of_kops(key)
    }

    /// Returns true if a key without a known owner certainly has none.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }
}

/// The existing groups and the owners of their keys; empty until a caller needs them.
#[derive(Default)]
pub(super) struct Groups {
    /// Locked during the first listing, for which all callers wait.
    pub(super) first: Gate<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last successful listing of the folder.
    listed: Option<BTreeSet<InstanceGroupName>>,
    /// The error of the last listing, and the start of the current series of failures.
    problem: Option<(StoreError, Moment)>,
    /// The last announced value.
    announced: Option<Arc<OwnedKeys>>,
}

impl Groups {
    /// The last announced value, if a caller has needed it.
    pub(super) fn announced(&self) -> Option<Arc<OwnedKeys>> {
        self.state.lock().announced.clone()
    }

    /// Returns true if the last successful listing contains the group.
    pub(super) fn is_listed(&self, group: &InstanceGroupName) -> bool {
        let state = self.state.lock();
        state.listed.as_ref().is_some_and(|listed| listed.contains(group))
    }

    /// Returns true if the last listing succeeded and does not contain the group. An empty one says nothing: no cluster
    /// has no group.
    pub(super) fn is_deleted(&self, group: &InstanceGroupName) -> bool {
        let state = self.state.lock();
        let listed = state.listed.as_ref().filter(|listed| !listed.is_empty());
        state.problem.is_none() && listed.is_some_and(|listed| !listed.contains(group))
    }

    /// The groups in the last successful listing.
    pub(super) fn listed(&self) -> Option<BTreeSet<InstanceGroupName>> {
        self.state.lock().listed.clone()
    }

    /// Like [`listed`](Self::listed), or the reason why there has never been a listing.
    pub(super) fn names(&self) -> Result<BTreeSet<InstanceGroupName>, DefinitionError> {
        let state = self.state.lock();
        state.listed.clone().ok_or_else(|| match &state.problem {
            Some((problem, _)) => problem.clone().into(),
            None => DefinitionError::Unavailable {
                file: GROUPS_FOLDER.to_owned(),
                detail: "not requested yet".to_owned(),
            },
        })
    }

    /// Since when the last successful listing may be stale, and why.
    pub(super) fn stale(&self, clock: &dyn Clock) -> Option<Stale> {
        let state = self.state.lock();
        state.listed.as_ref()?;
        let (problem, since) = state.problem.as_ref()?;
        Some(since.stale(problem.clone().into(), clock))
    }

    /// Stores a response of the store. The last successful listing stays if this one failed.
    pub(super) fn take(&self, answer: Result<Vec<String>, StoreError>, clock: &dyn Clock) {
        let mut state = self.state.lock();
        match answer {
            // Files with names that are invalid for a group do not belong to kOps.
            Ok(names) => {
                if state.problem.take().is_some() {
                    tracing::info!("the InstanceGroups in the state store can be listed again");
                }
                state.listed = Some(names.iter().filter_map(|name| name.parse().ok()).collect());
            }
            Err(problem) => {
                let before = state.problem.take();
                if before.as_ref().is_none_or(|(before, _)| *before != problem) {
                    tracing::warn!(%problem, "cannot list the InstanceGroups in the state store; the labels of groups without a verified Node may be unknown");
                }
                let since = before.map_or_else(|| Moment::now(clock), |(_, since)| since);
                state.problem = Some((problem, since));
            }
        }
    }

    /// Announces this value. Returns whether another one was announced before.
    pub(super) fn announce(&self, owned: OwnedKeys) -> bool {
        let mut state = self.state.lock();
        let other = state.announced.as_deref().is_some_and(|announced| *announced != owned);
        if other || state.announced.is_none() {
            state.announced = Some(Arc::new(owned));
        }
        other
    }
}
