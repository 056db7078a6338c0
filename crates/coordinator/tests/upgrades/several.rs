//! Several workers at once, where the policy and their agents permit it.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_api::NodeReport;
use tidewaiter_api::containership::{ClusterUpgrade, UpgradeStatus};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, NODE_POOL_LABEL};
use tidewaiter_testkit::Identity;

use crate::cluster::deploy;
use crate::world::{NEW, OLD, World};

impl World {
    /// Upgrades as they are sent, whatever they have.
    fn dynamic(&self) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<ClusterUpgrade>(&());
        Api::namespaced_with(self.cluster.client(&Identity::Admin), CONTAINERSHIP_NAMESPACE, &kind)
    }

    /// Changes it as kubectl does, which asks for strict validation.
    pub async fn change_strictly(&self, name: &str, patch: serde_json::Value) -> Result<(), String> {
        let params = PatchParams::default().validation_strict();
        let patched = self.dynamic().patch(name, &params, &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| error.to_string())
    }

    /// The agent of the node reports that it follows the status of its own node.
    async fn follows_own_status(&self, node: &str) {
        self.host_reports(node, "None").await;
    }

    /// The agent of the node reports this of the upgrade `u`.
    pub async fn host_reports(&self, node: &str, state: &str) {
        let upgrade = json!({"id": "u", "state": state, "message": "of the host", "followsOwnStatus": true});
        self.agent_reports(node, &json!({ "upgrade": upgrade })).await;
    }

    /// The script of the upgrade `u` ends well.
    async fn succeeds(&self, node: &str) {
        self.host_reports(node, "Succeeded").await;
        self.is_at(node, NEW).await;
    }

    /// The agent of the node reports this.
    pub async fn agent_reports(&self, node: &str, status: &serde_json::Value) {
        let reports: Api<NodeReport> = Api::all(self.cluster.client(&Identity::Admin));
        let report = json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "NodeReport", "metadata": {"name": node}, "spec": {}, "status": status});
        let object = serde_json::from_value(report.clone()).unwrap();
        match reports.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let patch = Patch::Merge(report);
                reports.patch(node, &PatchParams::default(), &patch).await.unwrap();
            }
            created => drop(created.unwrap()),
        }
    }
}

#[tokio::test]
async fn workers_of_each_pool_are_upgraded_at_once_and_one_with_an_old_agent_alone() {
    let world = World::start().await;
    world.cluster.apply_manifests(deploy("crds/agent")).await;
    world.join("cp", OLD, &[]).await;
    for (name, pool) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")] {
        world.join(name, OLD, &[(NODE_POOL_LABEL, pool)]).await;
    }
    for name in ["cp", "a1", "a2", "b1"] {
        world.follows_own_status(name).await;
    }
    for bad in [json!(0), json!("0%"), json!("101%"), json!("two"), json!(1.5)] {
        let spec = json!({"type": "kubernetes", "targetVersion": NEW, "policy": {"maxUnavailable": bad}});
        let object = json!({"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade", "metadata": {"name": "bad"}, "spec": spec});
        let refused = world
            .dynamic()
            .create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await;
        assert!(refused.is_err(), "{bad}");
    }
    let running = world.run().await;
    world.upgrade("u", json!({"policy": {"maxUnavailable": "50%"}})).await;
    world.waits("u", "upgrading cp;").await;
    world.succeeds("cp").await;
    world.waits("u", "upgrading a1, b1;").await;
    let progress = world.upgrades().get("u").await.unwrap().spec.status.unwrap();
    assert_eq!(progress.current_node, "b1");
    assert_eq!(progress.starts.keys().collect::<Vec<_>>(), ["a1"]);
    world.orders_are(&["a1", "b1"]).await;
    let order = world.order("b1").await;
    // Another coordinator goes on with both.
    running.stop().await;
    let _running = world.run().await;
    world.succeeds("a1").await;
    world.waits("u", "upgrading a2, b1;").await;
    world.orders_are(&["a2", "b1"]).await;
    assert_eq!(
        world.order("b1").await,
        order,
        "the progress of the others does not concern it"
    );
    // The agent of b2 looks at the current node alone.
    world.succeeds("b1").await;
    world.waits("u", "upgrading a2; 3 of 5 nodes").await;
    world.succeeds("a2").await;
    world.waits("u", "upgrading b2;").await;
    world.is_at("b2", NEW).await;
    world.ends("u", UpgradeStatus::Success).await;
    assert_eq!(
        world
            .upgrades()
            .get("u")
            .await
            .unwrap()
            .spec
            .status
            .unwrap()
            .starts
            .len(),
        0
    );
}

/// The agents say it; nothing is decided by that.
#[tokio::test]
async fn hosts_that_would_refuse_the_script_are_named_when_an_upgrade_begins() {
    let world = World::start().await;
    world.cluster.apply_manifests(deploy("crds/agent")).await;
    for name in ["w1", "w2", "w3", "w4"] {
        world.join(name, OLD, &[]).await;
    }
    world.agent_reports("w1", &json!({"upgrade": {}})).await;
    world
        .agent_reports("w2", &json!({"upgrade": {"hostProblem": "nothing\u{9b}31m is pinned"}}))
        .await;
    world.agent_reports("w3", &json!({"kernel": "6"})).await;
    let _running = world.run().await;
    world.upgrade("u", json!({})).await;
    world.waits("u", "upgrading w1").await;
    let note = world.event("u", "HostsUnprepared").await;
    let named = "and fail when it is their turn: w2: \"nothing\\u{9b}31m is pinned\"; w3: \"its agent has upgrades disabled (agent.settings.upgrades)\".";
    assert!(note.ends_with(named), "{note}");
}
