//! A cluster, its nodes, and the controller.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::ConditionStatus;
use tidewaiter_api::containership::{ClusterUpgrade, UpgradeStatus};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, MANAGED_LABEL, ROLE_CONTROL_PLANE_LABEL};
use tidewaiter_coordinator::controllers;
use tidewaiter_kit::Pause;
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{AuditMark, ControlPlane, Identity, Reused, eventually, leaks, settled, throughout};

use crate::cluster::{self, Wiring, coordinator};
pub use crate::cluster::{Running, SOON};

/// The version of the nodes.
pub const OLD: &str = "v1.35.4";
/// The version of the API server, and the target of upgrades.
pub const NEW: &str = "v1.36.3";

/// The effect of an upgrade's script on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    Works,
    /// The node is at the version then, and not Ready.
    NeverReady,
    Hangs,
}

/// A cluster of a test's own. Dropped, it searches what it showed for the secrets of the tests.
pub struct World {
    pub cluster: Reused,
}

impl Drop for World {
    fn drop(&mut self) {
        leaks::search(&self.cluster, None);
    }
}

impl World {
    pub async fn start() -> Self {
        leaks::capture_logs();
        Self {
            cluster: ControlPlane::reused(async |cluster| {
                cluster::prepare(cluster).await;
                for folder in ["upgrades", "drain"] {
                    let folder = format!("coordinator/{folder}");
                    cluster.apply_manifests(cluster::deploy(&folder)).await;
                }
            })
            .await,
        }
    }

    pub async fn run(&self) -> Running {
        self.run_with(&self.cluster.config(&coordinator())).await
    }

    /// Starts the controller, which reaches the API server as `config` says.
    pub async fn run_with(&self, config: &kube::Config) -> Running {
        let mut role = Wiring::new(config, Pause::never()).await;
        controllers::upgrade_nodes(&mut role.role()).unwrap();
        role.run()
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client(&Identity::Admin))
    }

    pub fn upgrades(&self) -> Api<ClusterUpgrade> {
        Api::namespaced(self.cluster.client(&Identity::Admin), CONTAINERSHIP_NAMESPACE)
    }

    /// A Node at the version, with these labels besides the one that permits upgrades. A name that begins with `cp` is
    /// one of the control plane.
    pub async fn join(&self, name: &str, version: &str, labels: &[(&str, &str)]) {
        let mut builder = node(name).label(MANAGED_LABEL, "true");
        if name.starts_with("cp") {
            builder = builder.label(ROLE_CONTROL_PLANE_LABEL, "");
        }
        let built = labels
            .iter()
            .fold(builder, |builder, (key, value)| builder.label(key, value))
            .build();
        self.nodes().create(&PostParams::default(), &built).await.unwrap();
        self.reports(name, json!({"nodeInfo": {"kubeletVersion": version}}))
            .await;
    }

    /// The account of pods, which the controller manager would create.
    pub async fn default_account(&self, namespace: &str) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cluster.client(&Identity::Admin), namespace);
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
    }

    pub async fn delete_node(&self, name: &str) {
        self.nodes().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The kubelet reports this status.
    async fn reports(&self, name: &str, status: Value) {
        let patch = Patch::Strategic(json!({ "status": status }));
        self.nodes()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub async fn is_at(&self, name: &str, version: &str) {
        self.reports(name, json!({"nodeInfo": {"kubeletVersion": version}}))
            .await;
    }

    pub async fn is_ready(&self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        self.reports(name, json!({"conditions": [{"type": "Ready", "status": status}]}))
            .await;
    }

    /// A pod of the control plane on this node, with this image. The kubelet has it from a file.
    pub async fn component(&self, node: &str, image: &str) {
        self.component_with(node, image, json!({"tier": "control-plane"})).await;
    }

    /// The same, with these labels.
    pub async fn component_with(&self, node: &str, image: &str, labels: Value) {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(&Identity::Admin), "kube-system");
        let name = format!("kube-apiserver-{node}");
        let pod = json!({"metadata": {"name": name, "labels": labels,
            "annotations": {"kubernetes.io/config.mirror": "file"}},
            "spec": {"nodeName": node, "containers": [{"name": "kube-apiserver", "image": image}]}});
        // In place: without the pod, a node is done at once here.
        let replace = json!([
            {"op": "replace", "path": "/metadata/labels", "value": labels},
            {"op": "replace", "path": "/spec/containers/0/image", "value": image},
        ]);
        let replace: Patch<()> = Patch::Json(serde_json::from_value(replace).unwrap());
        match pods.patch(&name, &PatchParams::default(), &replace).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let pod = serde_json::from_value(pod).unwrap();
                pods.create(&PostParams::default(), &pod).await.unwrap();
            }
            patched => drop(patched.unwrap()),
        }
    }

    /// An upgrade to the new version. `spec` overrides its fields. Nodes are done at once, and however many fail it
    /// goes on, unless its policy says it.
    pub async fn upgrade(&self, name: &str, spec: Value) {
        self.create(name, spec, json!({MANAGED_LABEL: "true"})).await;
    }

    pub async fn create(&self, name: &str, spec: Value, labels: Value) {
        let mut upgrade = json!({"metadata": {"name": name, "labels": labels},
            "spec": {"id": name, "type": "kubernetes", "targetVersion": NEW, "nodeTimeoutSeconds": 600}});
        upgrade["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        for (field, value) in [("minReadySeconds", 0), ("maxFailures", 1000)] {
            let policy = &mut upgrade["spec"]["policy"];
            if policy[field].is_null() {
                policy[field] = json!(value);
            }
        }
        let upgrade: ClusterUpgrade = serde_json::from_value(upgrade).unwrap();
        self.upgrades().create(&PostParams::default(), &upgrade).await.unwrap();
    }

    pub async fn change(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.upgrades()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Plays what the nodes do until the upgrade is over; returns the nodes that were current, in this order.
    pub async fn play(&self, name: &str, script: impl Fn(&str) -> Script) -> Vec<String> {
        let mut order: Vec<String> = Vec::new();
        let played = async {
            loop {
                let progress = self.upgrades().get(name).await.unwrap().spec.status.unwrap_or_default();
                let current = &progress.current_node;
                if !current.is_empty() && order.last() != Some(current) {
                    order.push(current.clone());
                    self.act(current, script(current)).await;
                }
                if is_over(progress.cluster_status) {
                    break;
                }
            }
        };
        let limit = tokio::time::timeout(SOON, played).await;
        assert!(limit.is_ok(), "{name} is not over after {order:?}");
        order
    }

    /// Its agent follows its order, and sees nothing else.
    async fn act(&self, node: &str, script: Script) {
        self.order(node).await;
        if script == Script::NeverReady {
            self.is_ready(node, false).await;
        }
        if script != Script::Hangs {
            self.is_at(node, NEW).await;
        }
    }

    /// Waits until the upgrade has this status, and its condition `Succeeded` says why; returns the message.
    pub async fn ends(&self, name: &str, status: UpgradeStatus) -> String {
        let expected = if status == UpgradeStatus::Success {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        eventually(format!("{name} to be {status:?}"), SOON, async || {
            let upgrade = self.upgrades().get(name).await.unwrap();
            let found = upgrade.spec.status.clone().unwrap_or_default().cluster_status;
            let condition = condition(&upgrade, "Succeeded");
            match condition {
                Some((status_of, message)) if found == status && status_of == expected => Ok(message),
                other => Err(format!("{found:?} {other:?}")),
            }
        })
        .await
    }

    /// Returns true if the condition `Succeeded` of the upgrade says how it ended.
    pub async fn says_the_end(&self, name: &str) -> bool {
        let upgrade = self.upgrades().get(name).await.unwrap();
        condition(&upgrade, "Succeeded").is_some_and(|(status, _)| status != ConditionStatus::Unknown)
    }

    /// Waits until the condition `Progressing` of the upgrade has this message.
    pub async fn waits(&self, name: &str, message: &str) {
        eventually(format!("{name} to say {message}"), SOON, async || {
            let upgrade = self.upgrades().get(name).await.unwrap();
            match condition(&upgrade, "Progressing") {
                Some((_, found)) if found.contains(message) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// The statuses of the nodes, in short.
    pub async fn statuses(&self, name: &str) -> String {
        let progress = self.upgrades().get(name).await.unwrap().spec.status.unwrap_or_default();
        let statuses = progress
            .node_statuses
            .iter()
            .map(|(node, status)| format!("{node}={status:?}"));
        statuses.collect::<Vec<_>>().join(" ")
    }

    /// Waits for an Event of this reason on the upgrade; returns its note.
    pub async fn event(&self, name: &str, reason: &str) -> String {
        cluster::event(&self.cluster, CONTAINERSHIP_NAMESPACE, name, reason).await
    }

    /// The writes of the controller since `mark` but Events, as `verb resource name`.
    pub async fn written_since(&self, mark: AuditMark) -> Vec<String> {
        cluster::written_since(&self.cluster, mark, "events").await
    }

    /// Waits until everything is written; then nothing is for a while.
    pub async fn is_quiet(&self) {
        let mark = self.cluster.audit_mark().await;
        let written = async || self.written_since(mark).await;
        settled("the writes", Duration::from_secs(1), SOON, written).await;
        let mark = self.cluster.audit_mark().await;
        throughout("no write", Duration::from_secs(2), async || {
            let writes = self.written_since(mark).await;
            if writes.is_empty() {
                Ok(())
            } else {
                Err(format!("{writes:?}"))
            }
        })
        .await;
    }
}

pub fn is_over(status: UpgradeStatus) -> bool {
    matches!(status, UpgradeStatus::Success | UpgradeStatus::Failed)
}

fn condition(upgrade: &ClusterUpgrade, type_: &str) -> Option<(ConditionStatus, String)> {
    let conditions = &upgrade.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((found.status, found.message.clone()))
}

/// Returns true if no node was current twice.
pub fn is_once(order: &[String]) -> bool {
    order.iter().collect::<BTreeSet<_>>().len() == order.len()
}
