//! Reads an upgrade and what is decided about it once, for a person who asks. Nothing is written.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tidewaiter_api::NodeName;
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_coordinator::controllers::upgrade::{
    AgentReports, CONTROL_PLANE_NAMESPACE, CONTROL_PLANE_PODS, ComponentPod, NodePods, Question, UpgradeNode,
    list_reports, observed, read_health, requires_health,
};
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::client::optional;
use tidewaiter_kit::{Cacheable, Guarded};
use tidewaiter_upgrade::drain::RemainingPod;
use tidewaiter_upgrade::{Health, Node, Observation, Outlook, Upgrade, Version, form, outlook};

/// An upgrade, and what is decided about it.
#[derive(Debug)]
pub(super) struct SeenUpgrade {
    /// The object.
    pub(super) object: ClusterUpgrade,
    upgrade: Upgrade,
    upgrades: Vec<Upgrade>,
    nodes: Vec<Node>,
    api_server: Version,
    health: Health,
    left: BTreeMap<NodeName, Vec<RemainingPod>>,
    /// None if the reports could not be read.
    agents: Option<AgentReports>,
}

/// There is no upgrade of the requested name.
#[derive(Debug)]
pub(super) struct NotFound {
    asked: String,
    /// The existing names.
    known: String,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, known } = self;
        write!(
            f,
            "there is no ClusterUpgrade {asked} in the namespace {CONTAINERSHIP_NAMESPACE}: those that exist are {known}"
        )
    }
}

impl Error for NotFound {}

/// Reads the upgrade of this name. Fails with [`NotFound`] if it does not exist.
pub(super) async fn look_at_upgrade(client: &Client, name: &str) -> Result<SeenUpgrade> {
    let objects = list(client).await?;
    let upgrades: Vec<Upgrade> = objects.iter().map(form::read).collect();
    let found = objects
        .into_iter()
        .find(|object| object.metadata.name.as_deref() == Some(name));
    let Some(object) = found else {
        let known: Vec<&str> = upgrades.iter().map(|upgrade| upgrade.name.as_str()).collect();
        let known = match &known[..] {
            [] => "none".to_owned(),
            known => known.join(", "),
        };
        let asked = name.to_owned();
        return Err(NotFound { asked, known }.into());
    };
    look(client, object, upgrades).await
}

/// Reads what would be decided about an upgrade that is not created yet. One of its name is ignored.
pub(super) async fn look_ahead_at_upgrade(client: &Client, object: ClusterUpgrade) -> Result<SeenUpgrade> {
    let mut objects = list(client).await?;
    objects.retain(|other| other.metadata.name != object.metadata.name);
    let upgrades = objects.iter().chain([&object]).map(form::read).collect();
    look(client, object, upgrades).await
}

async fn list(client: &Client) -> Result<Vec<ClusterUpgrade>> {
    let api = Api::<Guarded<ClusterUpgrade>>::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE);
    let listed = read(optional(list_all(&api).await), "ClusterUpgrades")?;
    let listed = listed.context("the cluster has no definition of ClusterUpgrades: apply deploy/crds/coordinator")?;
    Ok(listed.0)
}

/// Reads everything that the decisions about `object`, one of `upgrades`, depend on.
async fn look(client: &Client, object: ClusterUpgrade, upgrades: Vec<Upgrade>) -> Result<SeenUpgrade> {
    let nodes: Vec<UpgradeNode> = all(Api::all(client.clone()), "Nodes").await?;
    let pods = Api::<Guarded<ComponentPod>>::namespaced(client.clone(), CONTROL_PLANE_NAMESPACE);
    let components = control_plane(&pods).await?;
    let version = read(client.apiserver_version().await, "the version of the API server")?;
    let health = match read_health(client).await {
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
        api_server: version
            .git_version
            .parse::<Version>()
            .context("the version of the API server is not valid")?,
        health,
        left: pods.left,
        agents,
        object,
    })
}

impl SeenUpgrade {
    /// Returns true if it has nodes, and the agent of none of them reports upgrades.
    pub(super) fn lacks_agents(&self, outlook: &Outlook) -> bool {
        let nodes = &outlook.nodes;
        let lacks = |agents: &AgentReports| nodes.iter().all(|node| agents.is_silent(&node.name));
        !nodes.is_empty() && self.agents.as_ref().is_some_and(lacks)
    }

    /// The upgrade in words, at this time.
    pub(super) fn outlook(&self, now: Timestamp) -> Outlook {
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

async fn all<K>(api: Api<Guarded<K>>, what: &'static str) -> Result<Vec<K>>
where
    K: Cacheable + Resource + DeserializeOwned,
{
    read(list_all(&api).await.map(|(all, _)| all), what)
}

/// The pods of the control plane. Of a managed control plane there are none.
async fn control_plane(api: &Api<Guarded<ComponentPod>>) -> Result<Vec<ComponentPod>> {
    let mut pods = Vec::new();
    for labels in CONTROL_PLANE_PODS {
        let params = kube::api::ListParams::default().labels(labels);
        let listed = read(api.list(&params).await, "the pods of the control plane in kube-system")?;
        pods.extend(listed.items.into_iter().filter_map(|Guarded(pod)| pod.ok()));
    }
    Ok(pods)
}

fn read<T>(found: kube::Result<T>, what: &'static str) -> Result<T> {
    found.with_context(|| format!("cannot list {what}"))
}
