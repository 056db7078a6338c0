//! Reads an upgrade and what is decided about it once, for a person who asks. Nothing is written.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tidewaiter_api::NodeName;
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::client::optional;
use tidewaiter_kit::{Cacheable, Guarded};
use tidewaiter_upgrade::drain::RemainingPod;
use tidewaiter_upgrade::{Health, InvalidVersion, Node, Observation, Outlook, Upgrade, Version, form, outlook};

use super::agents::{AgentReports, list_reports};
use super::drain::NodePods;
use super::node::{ComponentPod, UpgradeNode, observed};
use super::question::{Question, requires_health};
use super::{CONTROL_PLANE_NAMESPACE, CONTROL_PLANE_PODS, health};

/// An upgrade, and what is decided about it.
#[derive(Debug)]
pub struct SeenUpgrade {
    /// The object.
    pub object: ClusterUpgrade,
    upgrade: Upgrade,
    upgrades: Vec<Upgrade>,
    nodes: Vec<Node>,
    api_server: Version,
    health: Health,
    left: BTreeMap<NodeName, Vec<RemainingPod>>,
    /// None if the reports could not be read.
    agents: Option<AgentReports>,
}

/// The reason why an upgrade cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// There is no such upgrade.
    #[error(
        "there is no ClusterUpgrade {asked} in the namespace {CONTAINERSHIP_NAMESPACE}: those that exist are {known}"
    )]
    NotFound {
        /// The requested name.
        asked: String,
        /// The existing names.
        known: String,
    },
    /// The kind is not defined.
    #[error("the cluster has no definition of ClusterUpgrades: apply deploy/crds/coordinator")]
    NoDefinition,
    /// The API server does not answer, or does not permit it.
    #[error("cannot list {what}")]
    Read {
        /// The objects that could not be read.
        what: &'static str,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// The API server has a version that cannot be read.
    #[error("the version of the API server is not valid")]
    Version(#[from] InvalidVersion),
}

/// Reads the upgrade of this name.
///
/// # Errors
/// [`LookError`].
pub async fn look_at_upgrade(client: &Client, name: &str) -> Result<SeenUpgrade, LookError> {
    let objects = list(client).await?;
    let upgrades: Vec<Upgrade> = objects.iter().map(form::read).collect();
    let found = objects
        .into_iter()
        .find(|object| object.metadata.name.as_deref() == Some(name));
    let Some(object) = found else {
        let known: Vec<&str> = upgrades.iter().map(|upgrade| upgrade.name.as_str()).collect();
        return Err(LookError::NotFound {
            asked: name.to_owned(),
            known: if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            },
        });
    };
    look(client, object, upgrades).await
}

/// Reads what would be decided about an upgrade that is not created yet. One of its name is ignored.
///
/// # Errors
/// [`LookError`].
pub async fn look_ahead_at_upgrade(client: &Client, object: ClusterUpgrade) -> Result<SeenUpgrade, LookError> {
    let mut objects = list(client).await?;
    objects.retain(|other| other.metadata.name != object.metadata.name);
    let upgrades = objects.iter().chain([&object]).map(form::read).collect();
    look(client, object, upgrades).await
}

async fn list(client: &Client) -> Result<Vec<ClusterUpgrade>, LookError> {
    let api = Api::<Guarded<ClusterUpgrade>>::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE);
    let listed = read(optional(list_all(&api).await), "ClusterUpgrades")?;
    Ok(listed.ok_or(LookError::NoDefinition)?.0)
}

/// Reads everything that the decisions about `object`, one of `upgrades`, depend on.
async fn look(client: &Client, object: ClusterUpgrade, upgrades: Vec<Upgrade>) -> Result<SeenUpgrade, LookError> {
    let nodes: Vec<UpgradeNode> = all(Api::all(client.clone()), "Nodes").await?;
    let pods = Api::<Guarded<ComponentPod>>::namespaced(client.clone(), CONTROL_PLANE_NAMESPACE);
    let components = control_plane(&pods).await?;
    let version = read(client.apiserver_version().await, "the version of the API server")?;
    let health = match health::read(client).await {
        Err(error) if requires_health(&object) => {
            read(Err(error), "the health of the cluster (ClusterHealths, /readyz)")?
        }
        // It is only warned of.
        health => health.unwrap_or_default(),
    };
    let drains = object.spec.policy.as_ref().is_some_and(|policy| policy.drain);
    let pods = if drains {
        read(NodePods::read_all(client).await, "all pods and PodDisruptionBudgets")?
    } else {
        NodePods::default()
    };
    let question = Question::about(&object);
    let agents = match list_reports(client).await {
        Err(error) if question.all || !question.in_progress.is_empty() => read(Err(error), "the NodeReports")?,
        // It is only warned of.
        agents => agents.ok(),
    };
    let reports = agents.clone().unwrap_or_default();
    let mut nodes = observed(&nodes, &components, &reports, form::id(&object));
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(SeenUpgrade {
        upgrade: form::read(&object),
        upgrades,
        nodes,
        api_server: version.git_version.parse()?,
        health,
        left: pods.left,
        agents,
        object,
    })
}

impl SeenUpgrade {
    /// The pods that would have to leave a node, and what the eviction API would say of them now. Empty if the upgrade
    /// does not drain.
    #[must_use]
    pub fn left(&self, node: &NodeName) -> &[RemainingPod] {
        self.left.get(node).map_or(&[], Vec::as_slice)
    }

    /// Returns true if it has nodes, and the agent of none of them reports upgrades.
    #[must_use]
    pub fn lacks_agents(&self, outlook: &Outlook) -> bool {
        let nodes = &outlook.nodes;
        let lacks = |agents: &AgentReports| nodes.iter().all(|node| agents.of(&node.name).is_none());
        !nodes.is_empty() && self.agents.as_ref().is_some_and(lacks)
    }

    /// The upgrade in words, at this time.
    #[must_use]
    pub fn outlook(&self, now: Timestamp) -> Outlook {
        outlook(&Observation {
            upgrade: &self.upgrade,
            upgrades: &self.upgrades,
            nodes: &self.nodes,
            api_server: &self.api_server,
            health: &self.health,
            left: &self.left,
            now,
        })
    }
}

async fn all<K>(api: Api<Guarded<K>>, what: &'static str) -> Result<Vec<K>, LookError>
where
    K: Cacheable + Resource + DeserializeOwned,
{
    read(list_all(&api).await.map(|(all, _)| all), what)
}

/// The pods of the control plane. Of a managed control plane there are none.
async fn control_plane(api: &Api<Guarded<ComponentPod>>) -> Result<Vec<ComponentPod>, LookError> {
    let mut pods = Vec::new();
    for labels in CONTROL_PLANE_PODS {
        let params = kube::api::ListParams::default().labels(labels);
        let listed = read(api.list(&params).await, "the pods of the control plane in kube-system")?;
        pods.extend(listed.items.into_iter().filter_map(|Guarded(pod)| pod.ok()));
    }
    Ok(pods)
}

fn read<T>(found: kube::Result<T>, what: &'static str) -> Result<T, LookError> {
    found.map_err(|source| LookError::Read { what, source })
}
