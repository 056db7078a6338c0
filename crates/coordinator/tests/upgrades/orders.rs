//! The orders that the agents of the nodes read, and what a write of the progress costs an agent.

use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::UpgradeStatus;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_api::{NodeUpgrade, NodeUpgradeSpec};
use tidewaiter_testkit::{Identity, eventually};

use crate::cluster::deploy;
use crate::world::{NEW, OLD, SOON, Script, World};

/// Nodes that an upgrade of a large cluster has behind it.
const MANY: usize = 5000;

/// The bytes of an order that comes and goes: two events, most of it the record of who wrote which field.
const ORDER: usize = 6000;

impl World {
    pub fn orders(&self) -> Api<NodeUpgrade> {
        Api::namespaced(self.cluster.client(&Identity::Admin), CONTAINERSHIP_NAMESPACE)
    }

    /// The names of the nodes that have an order.
    pub async fn ordered(&self) -> Vec<String> {
        let orders = self.orders().list(&ListParams::default()).await.unwrap();
        orders.into_iter().filter_map(|order| order.metadata.name).collect()
    }

    /// Waits until these nodes have orders and no others.
    pub async fn orders_are(&self, nodes: &[&str]) {
        eventually(format!("orders for {nodes:?}"), SOON, async || {
            let found = self.ordered().await;
            if found == nodes {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// Waits until the node has an order, as its agent does; returns it.
    pub async fn order(&self, node: &str) -> NodeUpgrade {
        eventually(format!("an order for {node}"), SOON, async || {
            let found = self.orders().get_opt(node).await.map_err(|error| error.to_string())?;
            found.ok_or_else(|| "none".to_owned())
        })
        .await
    }

    /// Waits until the order of the node is this one.
    async fn order_is(&self, node: &str, expected: &NodeUpgradeSpec) {
        eventually(format!("the order for {node} to be as before"), SOON, async || {
            let NodeUpgrade {
                metadata, spec: found, ..
            } = self.order(node).await;
            let owners = metadata.owner_references.unwrap_or_default();
            let is_owned = owners.iter().any(|owner| owner.uid == expected.upgrade.uid);
            let generation = expected.upgrade.generation;
            let is_newer = found.upgrade.generation >= generation && found.upgrade.generation < generation + 100;
            let mut same = expected.clone();
            same.upgrade.generation = found.upgrade.generation;
            if is_newer && is_owned && found == same {
                Ok(())
            } else {
                Err(format!("{found:?}, owned by {owners:?}"))
            }
        })
        .await;
    }

    async fn edit(&self, node: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.orders()
            .patch(node, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// The bytes and the number of the events that a watch of this path gets of what happened since `version`.
    async fn watched(&self, identity: &Identity, path: &str, version: &str) -> (usize, usize) {
        let uri = format!("/apis/{path}&watch=true&resourceVersion={version}&timeoutSeconds=2");
        let request = http::Request::get(uri).body(Vec::new()).unwrap();
        let events = self.cluster.client(identity).request_text(request).await.unwrap();
        (events.len(), events.lines().count())
    }
}

#[tokio::test]
async fn a_node_has_an_order_while_it_is_in_progress_and_edits_of_it_are_undone() {
    let world = World::start().await;
    for name in ["w1", "w2"] {
        world.join(name, OLD, &[]).await;
    }
    let running = world.run().await;
    world.upgrade("u", json!({"id": "", "nodeTimeoutSeconds": 700})).await;
    let order = world.order("w1").await;
    let upgrade = world.upgrades().get("u").await.unwrap();
    let progress = upgrade.spec.status.unwrap();
    let spec = &order.spec;
    assert_eq!(
        (
            spec.id.as_str(),
            spec.target_version.as_str(),
            spec.node_timeout_seconds
        ),
        ("u", NEW, 700)
    );
    assert_eq!(
        (spec.upgrade.name.as_str(), Some(&spec.upgrade.uid)),
        ("u", upgrade.metadata.uid.as_ref())
    );
    assert!(spec.upgrade.generation <= upgrade.metadata.generation.unwrap());
    assert_eq!(
        spec.since.strftime("%a %b %e %H:%M:%S UTC %Y").to_string(),
        progress.current_start_time
    );
    assert_eq!(order.metadata.owner_references.unwrap()[0].uid, spec.upgrade.uid);
    assert_eq!(world.ordered().await, ["w1"]);
    world.is_quiet().await;

    for patch in [
        json!({"spec": {"upgrade": {"generation": 4_000_000_000_000_i64}}}),
        json!({"spec": {"upgrade": {"generation": 0}}}),
        json!({"spec": {"upgrade": {"uid": "other"}}}),
        json!({"spec": {"since": "2026-01-01T00:00:00Z", "nodeTimeoutSeconds": 86_400}}),
        json!({"spec": {"targetVersion": "v1.30.0", "id": "other"}}),
        json!({"metadata": {"ownerReferences": null}}),
    ] {
        println!("{patch}");
        world.edit("w1", patch).await;
        world.order_is("w1", spec).await;
    }
    let delete = DeleteParams::default();
    world.orders().delete("w1", &delete).await.unwrap();
    world.order_is("w1", spec).await;
    // Nobody has ordered this one.
    let forged = NodeUpgrade::of_node("w2", spec.clone());
    world.orders().create(&PostParams::default(), &forged).await.unwrap();
    world.orders_are(&["w1"]).await;
    world.is_quiet().await;
    // A coordinator that starts writes nothing, also while a node is in progress.
    running.stop().await;
    let mark = world.cluster.audit_mark().await;
    let _running = world.run().await;
    world.is_quiet().await;
    assert_eq!(world.written_since(mark).await, [""; 0]);

    // What changes for the node changes its order.
    world.change("u", json!({"spec": {"nodeTimeoutSeconds": 800}})).await;
    let mut longer = spec.clone();
    longer.node_timeout_seconds = 800;
    world.order_is("w1", &longer).await;
    world.is_at("w1", NEW).await;
    world.orders_are(&["w2"]).await;
    world.is_at("w2", NEW).await;
    world.ends("u", UpgradeStatus::Success).await;
    world.orders_are(&[]).await;
    world.is_quiet().await;
}

/// An agent would follow none of two upgrades that name its node, and here it sees none.
#[tokio::test]
async fn a_node_in_two_upgrades_has_no_order_and_neither_has_one_of_an_upgrade_that_is_gone() {
    let world = World::start().await;
    world.join("w1", OLD, &[]).await;
    let claim = json!({"clusterStatus": "InProgress", "currentNode": "w1", "nodeStatuses": {"w1": "InProgress"},
        "currentStartTime": "Sun Nov 22 05:29:17 UTC 2099"});
    world.upgrade("a", json!({ "status": claim })).await;
    let _running = world.run().await;
    let order = world.order("w1").await;
    assert_eq!(order.spec.upgrade.name, "a");
    world.upgrade("b", json!({ "status": claim })).await;
    world.orders_are(&[]).await;
    // One of them is taken away, whatever keeps it.
    world.change("a", json!({"metadata": {"finalizers": null}})).await;
    world.upgrades().delete("a", &DeleteParams::default()).await.unwrap();
    eventually("the order of the other one", SOON, async || {
        let order = world.order("w1").await.spec.upgrade.name;
        if order == "b" { Ok(()) } else { Err(order) }
    })
    .await;
}

/// The cost of a write of the progress for the agents: the one whose node it concerns gets its order, whose size does
/// not depend on the upgrade, and the others get nothing.
#[tokio::test]
async fn a_write_of_the_progress_costs_an_agent_the_same_in_a_large_cluster() {
    let world = World::start().await;
    for folder in ["crds/agent", "agent"] {
        world.cluster.apply_manifests(deploy(folder)).await;
    }
    let agent = Identity::service_account("tidewaiter-agent", "tidewaiter-agent");
    let path = |node: &str| {
        format!(
            "tidewaiter.dev/v1alpha1/namespaces/{CONTAINERSHIP_NAMESPACE}/nodeupgrades?fieldSelector=metadata.name%3D{node}"
        )
    };
    let whole = format!("provision.containership.io/v3/namespaces/{CONTAINERSHIP_NAMESPACE}/clusterupgrades?");
    let _running = world.run().await;
    let mut costs = Vec::new();
    for (upgrade, many) in [("small", 0), ("large", MANY)] {
        for name in ["w1", "w2"] {
            world.join(name, OLD, &[]).await;
        }
        let version = world.orders().list(&ListParams::default()).await.unwrap();
        let version = version.metadata.resource_version.unwrap();
        let done: serde_json::Map<String, Value> = (0..many)
            .map(|number| (format!("done-{number:04}.example.com"), json!("Success")))
            .collect();
        let status = json!({"clusterStatus": "InProgress", "nodeStatuses": done});
        world.upgrade(upgrade, json!({ "status": status })).await;
        assert_eq!(world.play(upgrade, |_| Script::Works).await, ["w1", "w2"]);
        world.ends(upgrade, UpgradeStatus::Success).await;
        world.orders_are(&[]).await;
        for name in ["w1", "w2"] {
            world.delete_node(name).await;
        }
        let [first, second, other] = [
            world.watched(&agent, &path("w1"), &version).await,
            world.watched(&agent, &path("w2"), &version).await,
            world.watched(&agent, &path("w3"), &version).await,
        ];
        let before = world.watched(&Identity::Admin, &whole, &version).await;
        println!(
            "{many} nodes: w1 {first:?}, w2 {second:?}, w3 {other:?} bytes and events; of whole upgrades {before:?}"
        );
        assert_eq!((first.1, second.1, other), (2, 2, (0, 0)), "an order comes and goes");
        costs.push((first.0, before.0));
    }
    let [(small, _), (large, whole)] = costs[..] else {
        panic!("{costs:?}")
    };
    // Names, versions and times have other lengths.
    assert!(small < ORDER && large.abs_diff(small) < 100, "{small} {large}");
    assert!(whole > 100 * large, "{whole} {large}");
}
