//! The requests of a kubelet, or of someone with its credentials, to the API server.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::builders::conditions;
use crate::{ControlPlane, Identity};

/// When the first heartbeat is. Heartbeats are told apart by their times, and need not be true.
const FIRST_HEARTBEAT: &str = "2026-01-12T09:21:18Z";

/// The holder of one Node's credentials.
#[derive(Debug)]
pub struct Kubelet {
    name: String,
    nodes: Api<Node>,
    heartbeats: AtomicI64,
}

impl Kubelet {
    /// The kubelet of this Node; nothing is sent yet. Like a client it belongs to the runtime that it is made in.
    #[must_use]
    pub fn new(control_plane: &ControlPlane, node: &str) -> Self {
        let nodes = Api::all(control_plane.client(&Identity::kubelet(node)));
        Self {
            name: node.to_owned(),
            nodes,
            heartbeats: AtomicI64::default(),
        }
    }

    /// Registers the Node as its own kubelet does.
    ///
    /// # Panics
    /// When the API server refuses it.
    pub async fn register(control_plane: &ControlPlane, node: &Node) -> Self {
        let kubelet = Self::new(control_plane, node.metadata.name.as_deref().expect("a Node has a name"));
        kubelet.create(node).await.expect("the API server accepts the Node");
        kubelet
    }

    /// Creates any Node with these credentials.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn create(&self, node: &Node) -> kube::Result<Node> {
        self.nodes.create(&PostParams::default(), node).await
    }

    /// Merges this into its Node.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn patch(&self, patch: Value) -> kube::Result<Node> {
        self.nodes
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Merges this into its Node's status.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn patch_status(&self, patch: Value) -> kube::Result<Node> {
        self.nodes
            .patch_status(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
    }

    /// Reports its conditions again, unchanged but for a later time.
    ///
    /// # Panics
    /// When the API server refuses it.
    pub async fn heartbeat(&self) {
        let number = self.heartbeats.fetch_add(1, Ordering::Relaxed);
        let first: Timestamp = FIRST_HEARTBEAT.parse().expect("a timestamp");
        let time = first + SignedDuration::from_secs(10 * number);
        let status = json!({"status": {"conditions": conditions(&time.to_string())}});
        let patched = self
            .nodes
            .patch_status(&self.name, &PatchParams::default(), &Patch::Strategic(status))
            .await;
        patched.expect("the API server accepts the heartbeat");
    }

    /// Its Nodes API, for what is not here.
    #[must_use]
    pub fn nodes(&self) -> &Api<Node> {
        &self.nodes
    }

    /// Its Node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}
