//! Nodes that are drained before they are started. What kubelets do with the pods that are evicted is played.

use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::UpgradeStatus;
use tidewaiter_testkit::{ApiProxy, ApiRequest, Identity, Moment, eventually, every};

use crate::cluster::{MORE, coordinator, is_killed, kills};
use crate::world::{NEW, OLD, SOON, Script, World};

const MARK: &str = "tidewaiter.dev/cordoned-by";

/// The number of writes that drains add to those of an upgrade of two nodes, which are up to 8: for each the ledger,
/// the cordon and the uncordon, and of the status.
const WRITES: usize = 20;

impl World {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client(&Identity::Admin), "default")
    }

    /// A pod that runs and is Ready. `controller` is the kind of its controller; empty for none.
    pub async fn pod(&self, name: &str, node: &str, app: &str, controller: &str) {
        let owner = json!([{"apiVersion": "apps/v1", "kind": controller, "name": "x", "uid": "1", "controller": true}]);
        let owners = if controller.is_empty() { json!([]) } else { owner };
        let pod = json!({"metadata": {"name": name, "labels": {"app": app}, "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": [{"name": "a", "image": "example.com/a"}]}});
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
        let ready = json!({"type": "Ready", "status": "True"});
        let status = Patch::Merge(json!({"status": {"phase": "Running", "conditions": [ready]}}));
        self.pods()
            .patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }

    /// A budget for the pods of this app, with a status as the controller manager writes it.
    pub async fn budget(&self, name: &str, app: &str, disruptions_allowed: i32) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.cluster.client(&Identity::Admin), "default");
        let object = json!({"metadata": {"name": name}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}}});
        let object = serde_json::from_value(object).unwrap();
        budgets.create(&PostParams::default(), &object).await.unwrap();
        self.permits(name, disruptions_allowed).await;
    }

    async fn permits(&self, budget: &str, disruptions_allowed: i32) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.cluster.client(&Identity::Admin), "default");
        let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": disruptions_allowed,
            "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
        let status = Patch::Merge(status);
        budgets
            .patch_status(budget, &PatchParams::default(), &status)
            .await
            .unwrap();
    }

    /// Waits until the pod is being deleted; then its kubelet removes it.
    async fn leaves(&self, pod: &str) {
        eventually(format!("{pod} to be evicted"), SOON, async || {
            let found = self.pods().get(pod).await.unwrap();
            found.metadata.deletion_timestamp.map(drop).ok_or("it stays")
        })
        .await;
        self.remove(pod).await;
    }

    async fn remove(&self, pod: &str) {
        let at_once = DeleteParams::default().grace_period(0);
        self.pods().delete(pod, &at_once).await.unwrap();
    }

    async fn is_there(&self, pod: &str) -> bool {
        let found = self.pods().get_opt(pod).await.unwrap();
        found.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
    }

    async fn cordon(&self, node: &str, unschedulable: bool) {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": unschedulable}}));
        self.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    /// True if the node is cordoned, and the upgrade that did it.
    async fn cordoned(&self, node: &str) -> (bool, Option<String>) {
        let node: Node = self.nodes().get(node).await.unwrap();
        let mark = node.metadata.annotations.unwrap_or_default().remove(MARK);
        (node.spec.unwrap_or_default().unschedulable == Some(true), mark)
    }

    async fn finalizers(&self, upgrade: &str) -> Vec<String> {
        self.upgrades()
            .get(upgrade)
            .await
            .unwrap()
            .metadata
            .finalizers
            .unwrap_or_default()
    }

    async fn ledger(&self, upgrade: &str) -> Vec<String> {
        let progress = self
            .upgrades()
            .get(upgrade)
            .await
            .unwrap()
            .spec
            .status
            .unwrap_or_default();
        progress.cordons.into_keys().collect()
    }
}

fn drains(policy: &Value) -> Value {
    let mut drains = json!({"drain": true});
    drains
        .as_object_mut()
        .unwrap()
        .extend(policy.as_object().unwrap().clone());
    json!({ "policy": drains })
}

#[tokio::test]
async fn pods_leave_a_node_as_their_budgets_permit_and_the_node_is_uncordoned_afterwards() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2"] {
        world.join(name, OLD, &[]).await;
    }
    world.default_account("default").await;
    world.cordon("w2", true).await;
    world.pod("web", "w1", "web", "ReplicaSet").await;
    world.pod("log", "w1", "log", "DaemonSet").await;
    world.pod("other", "cp", "web", "ReplicaSet").await;
    world.budget("web", "web", 0).await;
    world.upgrade("u", drains(&json!({}))).await;
    let _running = world.run().await;
    // It is said before the first cordon.
    let keeps = "default/web: the PodDisruptionBudget default/web permits no disruption now";
    let note = world.event("u", "DrainForecast").await;
    assert_eq!(note, format!("Pods would not leave their nodes now: node w1: {keeps}."));
    world.waits("u", &format!("draining w1: {keeps}")).await;
    assert_eq!(world.cordoned("w1").await, (true, Some("u".to_owned())));
    assert_eq!(
        world.statuses("u").await,
        "",
        "no script runs before the pods have left"
    );
    assert!(world.is_there("web").await);
    world.permits("web", 1).await;
    world.leaves("web").await;
    world.waits("u", "upgrading w1").await;
    world.is_at("w1", NEW).await;
    world.waits("u", "upgrading w2").await;
    assert_eq!(world.cordoned("w1").await, (false, None));
    assert_eq!(
        world.cordoned("w2").await,
        (true, None),
        "it needs no mark: it was cordoned before"
    );
    assert_eq!(
        world.finalizers("u").await,
        ["clusterupgrade.finalizers.containership.io"]
    );
    world.is_at("w2", NEW).await;
    world.ends("u", UpgradeStatus::Success).await;
    assert_eq!(world.cordoned("w2").await, (true, None), "it stays cordoned");
    assert_eq!(world.ledger("u").await, [""; 0]);
    assert_eq!(world.finalizers("u").await, [""; 0]);
    assert!(world.is_there("log").await && world.is_there("other").await);
}

/// An eviction that a budget refuses is repeated every few seconds, and each list of pods would load the API server.
#[tokio::test]
async fn the_pods_of_a_node_that_is_drained_are_watched() {
    const EVICTIONS: usize = 6;
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    world.join("w1", OLD, &[]).await;
    world.default_account("default").await;
    world.pod("web", "w1", "web", "ReplicaSet").await;
    world.pod("log", "w1", "log", "DaemonSet").await;
    world.budget("web", "web", 0).await;
    let _running = world.run().await;
    world.upgrade("u", drains(&json!({}))).await;
    world.waits("u", "draining w1").await;
    let mark = world.cluster.audit_mark().await;
    let pods = async || world.cluster.audit().await.since(mark).by(&coordinator()).of("pods");
    eventually("evictions", SOON, async || {
        let pods = pods().await;
        let evictions = pods.filter(|entry| entry.object_ref.subresource == "eviction").count();
        if evictions >= EVICTIONS { Ok(()) } else { Err(evictions) }
    })
    .await;
    // The list of the watch, and one of a pass before that was complete; of some where the machine is busy.
    let lists = pods().await.verb("list").count();
    assert!(lists <= EVICTIONS / 2, "{lists} lists for {EVICTIONS} evictions");
    world.permits("web", 1).await;
    world.leaves("web").await;
    world.waits("u", "upgrading w1").await;
    let watches = pods().await.verb("watch");
    assert!(
        watches.iter().all(|entry| entry.uri.contains("spec.nodeName%3Dw1")),
        "{watches:?}"
    );
    world.is_at("w1", NEW).await;
    world.ends("u", UpgradeStatus::Success).await;
}

/// A user who may create pods may choose their node.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the rate of passes is measured in real time")]
async fn pods_that_come_to_a_drained_node_and_leave_it_start_few_passes() {
    const PODS: usize = 300;
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    world.join("w1", OLD, &[]).await;
    world.default_account("default").await;
    world.pod("web", "w1", "web", "ReplicaSet").await;
    world.budget("web", "web", 0).await;
    let _running = world.run().await;
    world.upgrade("u", drains(&json!({}))).await;
    world.waits("u", "draining w1").await;
    let (mark, begun) = (world.cluster.audit_mark().await, Instant::now());
    for number in 0..PODS {
        let name = format!("other-{number}");
        world.pod(&name, "w1", "other", "ReplicaSet").await;
        world.remove(&name).await;
    }
    // Each pass lists the budgets.
    let audit = world.cluster.audit().await.since(mark).by(&coordinator());
    let (passes, time) = (audit.of("poddisruptionbudgets").verb("list").count(), begun.elapsed());
    let most = 15 + 3 * usize::try_from(time.as_secs()).unwrap() / 2;
    assert!(passes <= most, "{passes} passes for {PODS} pods in {time:?}");
    // The last pod is seen to leave.
    world.permits("web", 1).await;
    world.leaves("web").await;
    world.waits("u", "upgrading w1").await;
    world.is_at("w1", NEW).await;
    world.ends("u", UpgradeStatus::Success).await;
}

#[tokio::test]
async fn pods_that_stay_fail_their_node_or_are_deleted() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    world.join("w1", OLD, &[]).await;
    world.default_account("default").await;
    world.pod("alone", "w1", "alone", "").await;
    world.pod("web", "w1", "web", "ReplicaSet").await;
    world.budget("web", "web", 0).await;
    world.budget("web-too", "web", 0).await;
    let _running = world.run().await;
    world.upgrade("fails", drains(&json!({"drainTimeoutSeconds": 3}))).await;
    world.ends("fails", UpgradeStatus::Failed).await;
    let note = world.event("fails", "NodeUpgradeFailure").await;
    for words in [
        "no script was run: its pods did not leave it within drainTimeoutSeconds",
        "default/alone has no controller that would create it again",
        "default/web: several PodDisruptionBudgets select it, which no eviction passes: default/web, default/web-too",
    ] {
        assert!(note.contains(words), "{words}: {note}");
    }
    assert_eq!(world.cordoned("w1").await, (false, None));
    assert!(world.is_there("alone").await && world.is_there("web").await);
    let forced = drains(&json!({"drainTimeoutSeconds": 3, "onDrainTimeout": "force"}));
    world.upgrade("forced", forced).await;
    world.waits("forced", "upgrading w1").await;
    world.leaves("alone").await;
    world.leaves("web").await;
    world.is_at("w1", NEW).await;
    world.ends("forced", UpgradeStatus::Success).await;
    assert_eq!(world.cordoned("w1").await, (false, None));
}

#[tokio::test]
async fn an_upgrade_that_is_deleted_is_aborted_first() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2"] {
        world.join(name, OLD, &[]).await;
    }
    world.default_account("default").await;
    world.pod("web", "w1", "web", "ReplicaSet").await;
    world.budget("web", "web", 0).await;
    let running = world.run().await;
    world.upgrade("drains", drains(&json!({}))).await;
    world.waits("drains", "permits no disruption now").await;
    let gone = async |name: &str| {
        eventually(format!("{name} to be gone"), SOON, async || {
            let found = world.upgrades().get_opt(name).await.unwrap();
            found.map_or(Ok(()), |found| Err(format!("{:?}", found.spec.status)))
        })
        .await;
    };
    // While nobody looks: another coordinator goes on with it.
    running.stop().await;
    world
        .upgrades()
        .delete("drains", &DeleteParams::default())
        .await
        .unwrap();
    let _running = world.run().await;
    gone("drains").await;
    assert_eq!(world.cordoned("w1").await, (false, None));
    assert!(world.is_there("web").await);

    world.upgrade("runs", json!({})).await;
    world.waits("runs", "upgrading w1").await;
    world.upgrades().delete("runs", &DeleteParams::default()).await.unwrap();
    world.upgrade("next", json!({})).await;
    world.waits("next", "the upgrade runs goes first").await;
    world.is_at("w1", NEW).await;
    gone("runs").await;
    assert_eq!(
        world.play("next", |_| Script::Works).await,
        ["w2"],
        "the node that was in progress was finished"
    );
    world.ends("next", UpgradeStatus::Success).await;
}

/// The upgrade waits for nothing that it cannot read: deadline, abort and deletion take effect, and the node is in
/// service again.
#[tokio::test]
async fn without_the_permission_to_drain_a_node_fails_in_time_and_nothing_is_kept_from_its_end() {
    let world = World::start().await;
    let bindings: Api<ClusterRoleBinding> = Api::all(world.cluster.client(&Identity::Admin));
    bindings
        .delete("tidewaiter-coordinator-drain", &DeleteParams::default())
        .await
        .unwrap();
    world.join("cp", NEW, &[]).await;
    world.join("w1", OLD, &[]).await;
    let _running = world.run().await;
    world.upgrade("fails", drains(&json!({"drainTimeoutSeconds": 2}))).await;
    let note = world.event("fails", "DrainFailed").await;
    assert!(
        note.contains("deploy/coordinator/drain") && note.contains("forbidden"),
        "{note}"
    );
    world.ends("fails", UpgradeStatus::Failed).await;
    let note = world.event("fails", "NodeUpgradeFailure").await;
    assert!(note.contains("the pods on it could not be read"), "{note}");
    assert_eq!(world.cordoned("w1").await, (false, None));

    let is_cordoned = async |upgrade: &str| {
        eventually("w1 to be cordoned", SOON, async || {
            let found = world.cordoned("w1").await;
            let expected = (true, Some(upgrade.to_owned()));
            (found == expected).then_some(()).ok_or(format!("{found:?}"))
        })
        .await;
    };
    world.upgrade("aborted", drains(&json!({}))).await;
    is_cordoned("aborted").await;
    world
        .change("aborted", json!({"spec": {"policy": {"aborted": true}}}))
        .await;
    world.ends("aborted", UpgradeStatus::Failed).await;
    assert_eq!(world.cordoned("w1").await, (false, None));

    world.upgrade("deleted", drains(&json!({}))).await;
    is_cordoned("deleted").await;
    world
        .upgrades()
        .delete("deleted", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the upgrade to be gone", SOON, async || {
        let found = world.upgrades().get_opt("deleted").await.unwrap();
        found.map_or(Ok(()), |found| Err(format!("{:?}", found.spec.status)))
    })
    .await;
    assert_eq!(world.cordoned("w1").await, (false, None));
    world.upgrade("next", json!({})).await;
    assert_eq!(world.play("next", |_| Script::Works).await, ["w1"]);
    world.ends("next", UpgradeStatus::Success).await;
}

#[tokio::test]
async fn killed_at_any_write_every_node_is_in_service_again() {
    for moment in [Moment::Before, Moment::After] {
        let world = World::start().await;
        let proxy = ApiProxy::start(&world.cluster, &coordinator());
        let config = kube::Config::new(proxy.url().parse().unwrap());
        for nth in (1..).step_by(every(3)) {
            assert!(nth <= WRITES + MORE, "more writes than {nth}");
            for name in ["w1", "w2"] {
                world.join(name, OLD, &[]).await;
            }
            world.cordon("w2", true).await;
            let name = format!("upgrade-{nth}");
            let running = world.run_with(&config).await;
            let killed = kills(&proxy, &running, nth, moment, is_counted);
            world.upgrade(&name, drains(&json!({}))).await;
            let is_done = async || world.says_the_end(&name).await;
            let restart = async {
                let was_killed = is_killed(&killed, format!("{moment:?} write {nth}"), nth >= 10, is_done).await;
                proxy.clear_hook();
                let restarted = if was_killed {
                    Some(world.run_with(&config).await)
                } else {
                    None
                };
                (was_killed, restarted)
            };
            let (order, (was_killed, restarted)) = tokio::join!(world.play(&name, |_| Script::Works), restart);
            assert_eq!(order, ["w1", "w2"], "{moment:?} write {nth}");
            world.ends(&name, UpgradeStatus::Success).await;
            for (node, cordoned) in [("w1", false), ("w2", true)] {
                assert_eq!(
                    world.cordoned(node).await,
                    (cordoned, None),
                    "{node}, {moment:?} write {nth}"
                );
            }
            assert_eq!(world.ledger(&name).await, [""; 0], "{moment:?} write {nth}");
            drop((running, restarted));
            for name in ["w1", "w2"] {
                world.delete_node(name).await;
            }
            if !was_killed {
                break;
            }
        }
    }
}

/// Counts decisions and their effects: Events are reports.
fn is_counted(request: &ApiRequest) -> bool {
    request.is_write() && matches!(request.resource(), "clusterupgrades" | "nodes")
}
