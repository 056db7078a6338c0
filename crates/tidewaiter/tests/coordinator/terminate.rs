//! `DELETE /terminate`: everything that the coordinator manages goes, nothing else does, and nothing comes back.

mod leftover;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt as _};
use serde_json::{Value, json};
use tidewaiter_api::containership::{AutoscalingPolicy, ClusterLabel, ClusterUpgrade, User};
use tidewaiter_api::{NodeUpgrade, PluginInventory};
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{Action, ApiProxy, ApiRequest, Identity, Kubelet, Moment, eventually, throughout};

use crate::cloud::Cloud;
use crate::{ACCOUNT, Replica, SOON, World, coordinator};

const CORE: &str = "containership-core";
const ID: &str = "33333333-3333-4333-8333-333333333333";

/// As an operator extends the role for `pullSecretServiceAccounts`.
pub(crate) const DEFAULT_ACCOUNTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: default-accounts}
rules: [{apiGroups: [""], resources: [serviceaccounts], resourceNames: [default], verbs: [get, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: default-accounts}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: default-accounts}
subjects: [{kind: ServiceAccount, name: tidewaiter-coordinator, namespace: containership-core}]
"#;

/// As an operator permits plugins of `ConfigMap`s alone.
const PLUGINS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: plugins}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list, watch, get, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: plugins}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: plugins}
subjects: [{kind: ServiceAccount, name: tidewaiter-coordinator, namespace: containership-core}]
"#;

/// Creates the objects that a coordinator leaves, each once as ours and once as somebody else's, and the request to
/// remove it: without the request, the mirror would undo what its cloud does not list.
async fn populate(world: &World) {
    let request = json!({"metadata": {"name": "tidewaiter-terminate"}, "data": {"requestedBy": "an administrator",
        "requestedAt": "2026-01-01T00:00:00Z", "state": "Requested"}});
    create(&world.marker(), request).await;
    for namespace in ["team-a", "team-b"] {
        world.namespace(namespace).await;
        for (name, labels) in [
            ("ours", json!({"containership.io/managed": "true"})),
            ("theirs", json!({})),
        ] {
            let secret = json!({"metadata": {"name": name, "labels": labels}, "stringData": {"a": "b"}});
            let secrets = Api::<Secret>::namespaced(world.cluster.client(&Identity::Admin), namespace);
            create(&secrets, secret).await;
        }
    }
    for (namespace, name) in [
        ("default", ACCOUNT),
        ("team-a", ACCOUNT),
        ("team-b", ACCOUNT),
        ("team-a", "other"),
    ] {
        let account = json!({"metadata": {"name": name, "labels": {"containership.io/managed": "true"}}});
        create(&world.accounts(namespace), account).await;
    }
    let attached = json!({"metadata": {"name": "default", "annotations": {"tidewaiter.dev/pull-secrets": "ours"}},
        "imagePullSecrets": [{"name": "theirs"}, {"name": "ours"}]});
    create(&world.accounts("team-b"), attached).await;
    let labels = [
        ("cluster.containership.io/env", "prod"),
        ("nodepool.containership.io/disk", "ssd"),
        ("example.com/team", "a"),
        ("containership.io/node-pool-id", "p"),
    ];
    let labelled = labels
        .iter()
        .fold(node("node-1"), |node, (key, value)| node.label(key, value));
    let admin: Api<Node> = Api::all(world.cluster.client(&Identity::Admin));
    admin.create(&PostParams::default(), &labelled.build()).await.unwrap();
    Kubelet::register(&world.cluster, &node("node-2").build()).await;
    world.apply_as("tidewaiter/sync-users", user(ID)).await;
    world
        .apply_as("kubectl", user("44444444-4444-4444-8444-444444444444"))
        .await;
    world.apply_as("tidewaiter/sync-upgrades", upgrade(ID)).await;
    // A person's, which the upgrade controller has written to.
    world.apply_as("kubectl", upgrade("mine")).await;
    world.apply_as("tidewaiter/upgrade", upgrade("mine")).await;
    // The order of a node of it goes.
    world.apply_as("tidewaiter/node-upgrade", order("node-1")).await;
    world.apply_as("tidewaiter/sync-autoscaling-policies", policy(ID)).await;
    plugin(world).await;
    world.apply_as("kubectl", policy("mine")).await;
}

/// Creates the objects of a plugin, and an object that is in its inventory and does not have its label.
async fn plugin(world: &World) {
    let client = || world.cluster.client(&Identity::Admin);
    let configs = Api::<ConfigMap>::namespaced(client(), "team-a");
    let labels = json!({"containership.io/plugin-id": ID});
    create(&configs, json!({"metadata": {"name": "ours", "labels": labels}})).await;
    create(&configs, json!({"metadata": {"name": "theirs"}})).await;
    let inventory = json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "PluginInventory", "metadata": {"name": ID},
        "spec": {"kinds": [{"version": "v1", "kind": "ConfigMap", "namespace": "team-a",
            "objects": [{"name": "ours"}, {"name": "theirs"}]}]}});
    let inventories = Api::<PluginInventory>::namespaced(client(), CORE);
    create(&inventories, inventory).await;
    // The Secrets of its versions; the mirror writes no such Secret.
    let stored = json!({"metadata": {"name": format!("tidewaiter-plugin-{ID}-0123456789abcdef"), "labels": {"tidewaiter.dev/plugin-store": ID}}});
    create(&Api::<Secret>::namespaced(client(), CORE), stored).await;
}

fn user(id: &str) -> Value {
    json!({"apiVersion": "containership.io/v3", "kind": "User", "metadata": {"name": id, "namespace": CORE},
        "spec": {"id": id, "name": "Alice", "avatar_url": "", "added_at": "", "ssh_keys": []}})
}

fn upgrade(name: &str) -> Value {
    json!({"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade", "metadata": {"name": name, "namespace": CORE},
        "spec": {"id": name, "type": "kubernetes", "addedAt": "1", "description": "", "targetVersion": "v1.30.1",
            "labelSelector": [], "nodeTimeoutSeconds": 60}})
}

fn order(node: &str) -> Value {
    json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "NodeUpgrade", "metadata": {"name": node, "namespace": CORE},
        "spec": {"upgrade": {"name": "mine", "uid": "u", "generation": 1}, "id": "mine", "targetVersion": "v1.30.1",
            "nodeTimeoutSeconds": 60, "since": "2026-01-01T00:00:00Z"}})
}

fn policy(name: &str) -> Value {
    json!({"apiVersion": "cerebral.containership.io/v1alpha1", "kind": "AutoscalingPolicy", "metadata": {"name": name},
        "spec": {"metricsBackend": "prometheus", "metric": "cpu", "metricConfiguration": {}, "pollInterval": 15, "samplePeriod": 60,
            "scalingPolicy": {}}})
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn names<K>(api: Api<K>) -> Vec<String>
where
    K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let list = api.list(&ListParams::default()).await.unwrap();
    list.items.iter().map(kube::ResourceExt::name_any).collect()
}

impl World {
    async fn with_kinds() -> Self {
        let world = Self::start().await;
        world.cluster.apply(DEFAULT_ACCOUNTS).await;
        world.cluster.apply(PLUGINS).await;
        world
    }

    async fn apply_as(&self, manager: &str, object: Value) {
        let object: kube::core::DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap();
        let kind = kube::core::GroupVersionKind::gvk(group, version, &types.kind);
        let plural = match types.kind.as_str() {
            "AutoscalingPolicy" => "autoscalingpolicies".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let resource = kube::core::ApiResource::from_gvk_with_plural(&kind, &plural);
        let client = self.cluster.client(&Identity::Admin);
        let api: Api<kube::core::DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let params = PatchParams::apply(manager).force();
        eventually("the kind to be served", SOON, async || {
            let applied = api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await;
            applied.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    fn marker(&self) -> Api<ConfigMap> {
        Api::namespaced(self.cluster.client(&Identity::Admin), CORE)
    }

    async fn removed(&self, replica: &Replica, token: &str) -> Value {
        eventually("everything to be removed", SOON, async || {
            let answer = self
                .delete(replica, "/terminate", token)
                .await
                .map_err(|error| error.to_string())?;
            let status = answer.status().as_u16();
            let said: Value = answer.json().await.unwrap();
            if status == 200 {
                Ok(said)
            } else {
                Err(format!("{status} {said}"))
            }
        })
        .await
    }

    /// Nothing of ours is there, and everything else is.
    async fn only_others_are_left(&self) {
        let client = || self.cluster.client(&Identity::Admin);
        for namespace in ["team-a", "team-b"] {
            let secrets = names(Api::<Secret>::namespaced(client(), namespace)).await;
            assert_eq!(secrets, ["theirs"], "{namespace}");
        }
        let accounts = Api::<ServiceAccount>::all(client())
            .list(&ListParams::default())
            .await
            .unwrap();
        let ours = accounts.items.iter().filter(|account| account.name_any() == ACCOUNT);
        assert_eq!(ours.count(), 0);
        assert!(self.accounts("team-a").get_opt("other").await.unwrap().is_some());
        assert_eq!(
            names(Api::<ConfigMap>::namespaced(client(), "team-a")).await,
            ["theirs"]
        );
        assert_eq!(names(Api::<PluginInventory>::namespaced(client(), CORE)).await, [""; 0]);
        let default = self.accounts("team-b").get("default").await.unwrap();
        let entries = default.image_pull_secrets.unwrap();
        let entries: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!((entries, default.metadata.annotations), (vec!["theirs"], None));
        let node = Api::<Node>::all(client()).get("node-1").await.unwrap();
        let labels = node.metadata.labels.unwrap();
        let left: Vec<_> = labels
            .keys()
            .filter(|key| key.contains("containership") || key.contains("example"))
            .collect();
        assert_eq!(left, ["containership.io/node-pool-id", "example.com/team"]);
        assert_eq!(
            names(Api::<User>::namespaced(client(), CORE)).await,
            ["44444444-4444-4444-8444-444444444444"]
        );
        assert_eq!(names(Api::<ClusterUpgrade>::namespaced(client(), CORE)).await, ["mine"]);
        assert_eq!(names(Api::<NodeUpgrade>::namespaced(client(), CORE)).await, [""; 0]);
        assert_eq!(names(Api::<AutoscalingPolicy>::all(client())).await, ["mine"]);
    }
}

#[tokio::test]
async fn everything_of_ours_goes_and_nothing_else_and_nothing_comes_back() {
    let (world, cloud) = (World::with_kinds().await, Cloud::start().await);
    populate(&world).await;
    let replica = world.coordinator_of(&cloud);
    let said = world.removed(&replica, &cloud.terminator().await).await;
    assert_eq!(said["requested_by"], "an administrator", "{said}");
    assert_eq!(said["removed"]["imagepullsecrets"], 1, "{said}");
    assert_eq!(said["removed"]["secrets"], 2, "{said}");
    assert_eq!(said["removed"]["nodelabels"], 1, "{said}");
    assert_eq!(said["removed"]["plugininventories"], 2, "{said}");
    assert_eq!(said["removed"]["pluginsecrets"], 1, "{said}");
    assert_eq!(said["removed"]["users"], 1, "{said}");
    assert_eq!(said["removed"]["nodeupgrades"], 1, "{said}");
    assert!(said["removed"]["serviceaccounts"].as_u64().unwrap() == 3, "{said}");
    world.only_others_are_left().await;

    // Nothing comes back: not by a new namespace, not after a restart, and what comes from elsewhere goes.
    replica.process.stop(SOON).await;
    let replica = world.coordinator_of(&cloud);
    world.namespace("late").await;
    let ours = json!({"metadata": {"name": "ours", "labels": {"containership.io/managed": "true"}}});
    let secrets = Api::<Secret>::namespaced(world.cluster.client(&Identity::Admin), "team-a");
    create(&secrets, ours).await;
    world.removed(&replica, &cloud.terminator().await).await;
    eventually("the late secret to be removed", 2 * SOON, async || {
        let secret = secrets.get_opt("ours").await.map_err(|error| error.to_string())?;
        if secret.is_some() {
            Err("it exists".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    throughout("nothing to come back", Duration::from_secs(2), async || {
        let account = world.accounts("late").get_opt(ACCOUNT).await;
        if account.unwrap().is_some() {
            Err("an account")
        } else {
            Ok(())
        }
    })
    .await;
    world.only_others_are_left().await;

    // Without the marker it begins again.
    world
        .marker()
        .delete("tidewaiter-terminate", &DeleteParams::default())
        .await
        .unwrap();
    for namespace in ["late", "default"] {
        world.has_account(namespace).await;
    }
}

#[tokio::test]
async fn a_standby_records_the_request_and_the_leader_acts() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let leader = world.coordinator_of(&cloud);
    world.has_account("default").await;
    let standby = world.coordinator_of(&cloud);
    eventually("the standby to serve", SOON, async || {
        let answer = world.get(&standby, "/metadata", &cloud.owner).await;
        answer.map(drop).map_err(|error| error.to_string())
    })
    .await;
    let first = world
        .delete(&standby, "/terminate", &cloud.terminator().await)
        .await
        .unwrap();
    assert_eq!(first.status().as_u16(), 202);
    world.removed(&standby, &cloud.terminator().await).await;
    world.removed(&leader, &cloud.terminator().await).await;
    // The standby takes over, and syncs nothing.
    leader.process.stop(SOON).await;
    let spaces: Api<Namespace> = world.namespaces();
    world.namespace("late").await;
    throughout("nothing to come back", Duration::from_secs(3), async || {
        for namespace in spaces.list(&ListParams::default()).await.unwrap() {
            if world
                .accounts(&namespace.name_any())
                .get_opt(ACCOUNT)
                .await
                .unwrap()
                .is_some()
            {
                return Err(namespace.name_any());
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn killed_at_any_deletion_it_goes_on() {
    let (world, cloud) = (World::with_kinds().await, Cloud::start().await);
    populate(&world).await;
    let proxy = ApiProxy::start(&world.cluster, &coordinator());
    let deletes = |request: &ApiRequest| request.method == "DELETE";
    // Until the test is ready to kill it.
    proxy.on(deletes, || Action::refuse(503, "ServiceUnavailable", "not yet"));
    let replica = world.replica(&cloud.variables(), Some(proxy.kubeconfig()));
    let process = Arc::clone(&replica.process);
    for (nth, moment) in [(1, Moment::Before), (1, Moment::After), (3, Moment::After)] {
        proxy.kill_at(&process, nth, moment, deletes);
        eventually("the process to be killed", SOON, async || {
            if process.is_running() { Err("it runs") } else { Ok(()) }
        })
        .await;
        world.expire_lease().await;
        process.start_again();
    }
    proxy.clear_hook();
    world.removed(&replica, &cloud.terminator().await).await;
    world.only_others_are_left().await;
}

#[tokio::test]
async fn what_cannot_be_removed_is_named_and_stops_nothing_else() {
    let (world, cloud) = (World::with_kinds().await, Cloud::start().await);
    populate(&world).await;
    let held = json!({"metadata": {"finalizers": ["example.com/keeps"]}});
    let secrets = Api::<Secret>::namespaced(world.cluster.client(&Identity::Admin), "team-a");
    secrets
        .patch("ours", &PatchParams::default(), &Patch::Merge(held))
        .await
        .unwrap();
    let replica = world.coordinator_of(&cloud);
    eventually("the request to be taken", SOON, async || {
        let answer = world.delete(&replica, "/terminate", &cloud.terminator().await).await;
        let status = answer.map_err(|error| error.to_string())?.status().as_u16();
        if status == 202 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    eventually("the finalizer to be named", SOON, async || {
        let answer = world
            .delete(&replica, "/terminate", &cloud.terminator().await)
            .await
            .unwrap();
        let said: Value = answer.json().await.unwrap();
        let message = said["message"].as_str().unwrap_or_default().to_owned();
        if message.contains("finalizers of 1 secrets") {
            Ok(())
        } else {
            Err(said.to_string())
        }
    })
    .await;
    let free = json!({"metadata": {"finalizers": null}});
    secrets
        .patch("ours", &PatchParams::default(), &Patch::Merge(free))
        .await
        .unwrap();
    world.removed(&replica, &cloud.terminator().await).await;
    world.only_others_are_left().await;
}

#[tokio::test]
async fn meanwhile_the_cloud_is_not_asked_what_there_should_be() {
    let (world, cloud) = (World::with_kinds().await, Cloud::start().await);
    let label = |key: &str| json!({"key": format!("cluster.containership.io/{key}"), "value": "v"});
    cloud.post("^/labels", label("before")).await;
    let mut variables = cloud.variables();
    variables.push(("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "1s".to_owned()));
    let replica = world.replica(&variables, None);
    let labels: Api<ClusterLabel> = Api::namespaced(world.cluster.client(&Identity::Admin), CORE);
    let has_labels = async |count: usize| {
        eventually(format!("{count} labels"), SOON, async || {
            let found = labels.list(&ListParams::default()).await;
            let found = found.map_err(|error| error.to_string())?.items.len();
            if found == count { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    };
    has_labels(1).await;
    world.removed(&replica, &cloud.terminator().await).await;
    has_labels(0).await;

    // Neither at its intervals nor when the change stream announces a change.
    let lists = || {
        let mut seen = cloud.seen("GET /v3/organizations/");
        seen.retain(|line| !line.ends_with("/events"));
        seen
    };
    let before = lists().len();
    cloud.post("^/labels", label("meanwhile")).await;
    cloud.pool().await;
    throughout("nothing to be listed", Duration::from_secs(6), async || {
        let now = lists();
        if now.len() == before {
            Ok(())
        } else {
            Err(format!("{:?}", &now[before..]))
        }
    })
    .await;
    world
        .marker()
        .delete("tidewaiter-terminate", &DeleteParams::default())
        .await
        .unwrap();
    has_labels(2).await;
}
