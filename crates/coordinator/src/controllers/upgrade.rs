//! Upgrade controller: upgrades the nodes of the cluster, one after the other, as a `ClusterUpgrade` says.
//!
//! - `tidewaiter_upgrade::step` decides. This controller observes, writes what it orders, and says it in Events and
//!   conditions. It writes to Nodes, and evicts pods, only if the policy of the upgrade says so, and only after the
//!   progress says it.
//! - Everything is in the `ClusterUpgrade`, nothing in memory: the progress is in `spec.status`, where the Go
//!   coordinator wrote it. What the agents read, `node_upgrade` derives from it. A progress is written whole or not at
//!   all, on the condition that the upgrade is as it was observed. So a replica that is killed, or that does not lead
//!   any more, cannot make two nodes current.
//! - An upgrade is decided about on the newest state of itself, and on a state of the others that is at least as new.
//!   [`step`] depends on that.
//! - Conditions are for people. Nothing is decided by them.
//! - What cannot be read (health, pods) is unknown to [`step`], which then starts nothing. It does not end the pass:
//!   nodes in progress are settled, and deadlines, aborts and deletions take effect. The error is returned afterwards.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource as _};
use serde::{Deserialize, Serialize};
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Backoff, Cache, Controller, Events, Key, Next, Pass, Queue, Reconciler, SharedClock, Writer};
use tidewaiter_upgrade::{Effect, Health, Observation, Order, Step, Upgrade, form, step};

mod agents;
mod drain;
mod drain_watch;
mod error;
mod health;
mod metrics;
mod node;
mod node_upgrade;
mod patch;
mod preflight;
mod question;
mod status;

use agents::Agents;
use drain_watch::DrainWatches;
use error::UpgradeError;
use metrics::UpgradeMetrics;
use question::Answer;

pub use agents::{AgentReports, list_reports};
pub use drain::NodePods;
pub use health::read as read_health;
pub use node::{ComponentPod, UpgradeNode, observed};
pub use question::{Question, requires_health};

/// Our own write is not in the cache yet. A change of the progress starts a pass; one of the conditions starts none.
const CATCH_UP: Duration = Duration::from_millis(100);

/// A deadline takes effect this much later at most while something cannot be read.
const RETRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The namespace of the control plane's pods.
pub const CONTROL_PLANE_NAMESPACE: &str = "kube-system";

/// The labels of the pods of the control plane: as kubeadm sets them (source: the Go coordinator), and as kOps does
/// (source: its `model/components`).
pub const CONTROL_PLANE_PODS: [&str; 2] = [
    "tier=control-plane",
    "k8s-app in (kube-apiserver, kube-controller-manager, kube-scheduler)",
];

/// The setting of node upgrades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Upgrades {
    /// Nodes are not upgraded: what a `ClusterUpgrade` orders stays as it is.
    #[default]
    Disabled,
    /// Nodes are upgraded.
    Enabled,
}

struct UpgradeController {
    upgrades: Cache<ClusterUpgrade>,
    nodes: Cache<UpgradeNode>,
    pods: [Cache<ComponentPod>; 2],
    client: Client,
    writer: Writer,
    events: Events,
    agents: Agents,
    drains: DrainWatches,
    metrics: UpgradeMetrics,
    clock: SharedClock,
}

/// Starts the controllers of upgrades. A change of an upgrade concerns all of them, because one is in progress at a
/// time; so does a change of a node.
///
/// # Errors
/// A metric's name is taken.
pub fn start(role: &mut Role<'_>) -> Result<(), MetricsError> {
    let reader = role.clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let (context, clients, tasks) = (&role.context, &role.clients, &mut *role.tasks);
    let (queue, kit) = (Queue::new(), &context.kit);
    // Optional: a cluster may not have the definition yet.
    let upgrades = Cache::<ClusterUpgrade>::namespaced(reader.clone(), CONTAINERSHIP_NAMESPACE)
        .named("upgrade-controller")
        .optional()
        .start(tasks, kit);
    let nodes = Cache::<UpgradeNode>::all(reader.clone())
        .named("upgrade-nodes")
        .packed()
        .start(tasks, kit);
    let mut pods = |labels, name| {
        Cache::<ComponentPod>::namespaced(reader.clone(), CONTROL_PLANE_NAMESPACE)
            .labels(labels)
            .named(name)
            .optional()
            .start(tasks, kit)
    };
    let [kubeadm, kops] = CONTROL_PLANE_PODS;
    let pods = [pods(kubeadm, "upgrade-pods"), pods(kops, "upgrade-pods-kops")];
    upgrades.notify(queue.all_keys(&upgrades).unless(status::differs_in_conditions));
    nodes.notify(queue.all_keys(&upgrades).unless(UpgradeNode::is_as).changes_only());
    for pods in &pods {
        pods.notify(queue.all_keys(&upgrades).unless(ComponentPod::is_as).changes_only());
    }
    let client = clients.for_controller(UpgradeController::NAME, DEFAULT_IN_FLIGHT);
    let writer = Writer::new(client.clone(), UpgradeController::NAME, Arc::clone(&kit.clock));
    writer.follow(&upgrades);
    writer.follow(&nodes);
    let controller = UpgradeController {
        upgrades: upgrades.clone(),
        nodes,
        pods,
        writer,
        client,
        events: context.events.of(UpgradeController::NAME),
        agents: Agents::default(),
        drains: DrainWatches::start(reader.clone(), queue.clone(), Arc::clone(&kit.clock), tasks),
        metrics: UpgradeMetrics::new(&kit.metrics)?,
        clock: Arc::clone(&kit.clock),
    };
    Controller::new(controller, queue)
        .backoff(RETRIES)
        .start(context.clone(), tasks);
    node_upgrade::start(&upgrades, reader, role);
    Ok(())
}

impl Reconciler for UpgradeController {
    const NAME: &'static str = "upgrade";
    type Error = UpgradeError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, UpgradeError> {
        let Some(object) = self.upgrades.get(pass.key()) else {
            self.drains.set(pass.key(), &[]);
            self.metrics.remove(pass.key());
            return Ok(Next::UntilChanged);
        };
        self.metrics.set(pass.key(), &object);
        if status::is_reported(&object) {
            self.drains.set(pass.key(), &[]);
            return Ok(Next::UntilChanged);
        }
        let question = Question::about(&object);
        self.drains.set(pass.key(), &question.drained);
        let Answer {
            api_server,
            health,
            pods,
            agents,
            unread,
        } = pass.outside(self.ask(&question)).await?;
        let Some(object) = self.upgrades.get(pass.key()) else {
            return Ok(Next::UntilChanged);
        };
        if Question::about(&object) != question {
            return Ok(Next::Pending(CATCH_UP));
        }
        pass.about(object.object_ref(&()));
        if self.writer.awaits::<ClusterUpgrade>(pass.key(), Some(&object.metadata)) {
            return Ok(Next::Pending(CATCH_UP));
        }
        // After the upgrade itself, so that the others are at least as new.
        let upgrades: Vec<Upgrade> = self.upgrades.iter().map(|object| form::read(&object)).collect();
        let (upgrade, nodes) = (
            form::read(&object),
            observed(
                self.nodes.iter(),
                self.pods.iter().flat_map(Cache::iter),
                &agents,
                form::id(&object),
            ),
        );
        let seen = Observation {
            upgrade: &upgrade,
            upgrades: &upgrades,
            nodes: &nodes,
            api_server: &api_server,
            health: &health,
            left: &pods.left,
            now: self.clock.now(),
        };
        let step = step(&seen);
        let forecast = self.perform(&object, &seen, &step).await?;
        let affected = self.affect(&seen, &step, &pods).await;
        unread.map_or(Ok(()), Err).and(affected).and(forecast)?;
        let now = self.clock.now();
        let wait = step
            .wake
            .map(|wake| Duration::try_from(wake.duration_since(now)).unwrap_or_default());
        Ok(wait.map_or(Next::UntilChanged, Next::After))
    }
}

impl UpgradeController {
    /// Performs the live reads. Every client may read the version; if it cannot be read, nothing can be written
    /// either.
    async fn ask(&self, question: &Question) -> Result<Answer, UpgradeError> {
        let version = self
            .client
            .apiserver_version()
            .await
            .map_err(UpgradeError::Unanswered)?;
        let mut answer = Answer {
            api_server: version.git_version.parse()?,
            health: Health::default(),
            pods: NodePods::default(),
            agents: AgentReports::default(),
            unread: None,
        };
        let about = (&*question.upgrade, &*question.in_progress);
        let reports = self.agents.reports(&self.client, &*self.clock, about, question.all);
        match reports.await {
            Ok(agents) => answer.agents = agents,
            Err(error) => answer.unread = Some(UpgradeError::Agents(error)),
        }
        match NodePods::read(&self.client, &question.drained, &self.drains).await {
            Ok(pods) => answer.pods = pods,
            Err(error) => answer.unread = Some(UpgradeError::Drain(error)),
        }
        if question.health {
            match health::read(&self.client).await {
                Ok(health) => answer.health = health,
                Err(error) => {
                    answer.health.is_unknown = true;
                    answer.unread = Some(UpgradeError::Health(error));
                }
            }
        }
        Ok(answer)
    }

    /// Performs the effects on Nodes and pods, after the progress was written. One that fails does not prevent the
    /// others; the first error is returned.
    async fn affect(&self, seen: &Observation<'_>, step: &Step, pods: &NodePods) -> Result<(), UpgradeError> {
        let mut first = Ok(());
        for effect in &step.effects {
            first = first.and(self.take_effect(seen, effect, pods).await);
        }
        first
    }

    async fn take_effect(&self, seen: &Observation<'_>, effect: &Effect, pods: &NodePods) -> Result<(), UpgradeError> {
        let (Effect::Cordon(name) | Effect::Evict(name) | Effect::Delete(name) | Effect::Uncordon(name)) = effect;
        let key = Key::new(name.as_str());
        let node = self.nodes.get(&key);
        // Our own write of it is not in the cache yet.
        let node = node.filter(|node| !self.writer.awaits::<UpgradeNode>(&key, Some(node.meta())));
        match (effect, node) {
            (Effect::Cordon(_), Some(node)) => drain::cordon(&self.writer, &node, &seen.upgrade.name).await?,
            (Effect::Uncordon(_), Some(node)) => drain::uncordon(&self.writer, &node).await?,
            (Effect::Cordon(_) | Effect::Uncordon(_), None) => {}
            (Effect::Evict(name), _) => pods.evict(&self.client, name).await.map_err(UpgradeError::Drain)?,
            (Effect::Delete(name), _) => pods.delete(&self.client, name).await.map_err(UpgradeError::Drain)?,
        }
        Ok(())
    }

    /// Writes the progress, then the Events, then the conditions, which may be lost with the process. Returns whether
    /// the forecast could be made, which decides nothing.
    async fn perform(
        &self,
        object: &ClusterUpgrade,
        seen: &Observation<'_>,
        step: &Step,
    ) -> Result<Result<(), UpgradeError>, UpgradeError> {
        let mut upgrade = seen.upgrade.clone();
        for order in &step.orders {
            upgrade.progress.apply(order, seen.now);
        }
        // The second write follows the first one: a cache that shows the state between them is awaited, too.
        let mut seen_last = object.metadata.clone();
        let patch = patch::patch(object.spec.status.as_ref(), &upgrade.progress);
        if let Some(patch) = patch::with_finalizer(patch, &object.metadata, upgrade.is_in_progress()) {
            seen_last = self.writer.patch::<ClusterUpgrade>(&seen_last, patch).await?;
            upgrade.generation = seen_last.generation.unwrap_or(upgrade.generation);
        }
        let about: ObjectReference = object.object_ref(&());
        for notice in status::notices(seen.upgrade, step) {
            self.events.publish(&about, notice);
        }
        let forecast = match &seen.upgrade.spec {
            Ok(spec) if step.orders.contains(&Order::Begin) => self.preflight(&about, spec, seen).await,
            _ => Ok(()),
        };
        if object.metadata.deletion_timestamp.is_some() && !upgrade.is_in_progress() {
            // It is gone: nothing keeps it any more.
            return Ok(forecast);
        }
        let before = object.status.clone().unwrap_or_default();
        let after = Observation {
            upgrade: &upgrade,
            ..*seen
        };
        let status = status::status(&after, step, &before);
        if status != before {
            let desired = ClusterUpgrade {
                status: Some(status),
                ..object.clone()
            };
            self.writer.apply_status(&desired, &seen_last).await?;
            self.metrics.set(&Key::of(&desired), &desired);
        }
        Ok(forecast)
    }
}
