//! The nodes of the cloud and the status that the cloud shows of them: as it last listed them, with what was sent since.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidewaiter_cloud::client::{ClientError, ETag, Fetched};
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::values::NodeId;
use tidewaiter_kit::Key;
use tracing::warn;

use super::status::Status;
use crate::controllers::Cloud;

/// A node of the cloud.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CloudNode {
    pub(super) id: NodeId,
    /// The name of its Node, if the cloud knows it.
    pub(super) name: Option<String>,
    /// The status that the cloud shows.
    pub(super) status: Status,
}

/// All of them, by id.
#[derive(Debug, Default)]
pub(super) struct CloudNodes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    nodes: BTreeMap<Key, CloudNode>,
    /// The ids by name.
    names: BTreeMap<String, Key>,
    cluster: Option<Status>,
    nodes_etag: Option<ETag>,
    cluster_etag: Option<ETag>,
}

impl CloudNodes {
    /// The node with this id.
    pub(super) fn get(&self, id: &Key) -> Option<CloudNode> {
        self.lock().nodes.get(id).cloned()
    }

    /// The id of the node whose Node has this name.
    pub(super) fn named(&self, name: &str) -> Option<Key> {
        self.lock().names.get(name).cloned()
    }

    /// The status of the cluster that the cloud shows; `None` before the first list.
    pub(super) fn cluster(&self) -> Option<Status> {
        self.lock().cluster.clone()
    }

    /// All ids.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().nodes.keys().cloned().collect()
    }

    /// The cloud took the status of a node.
    pub(super) fn sent(&self, id: &Key, status: Status) {
        if let Some(node) = self.lock().nodes.get_mut(id) {
            node.status = status;
        }
    }

    /// The cloud took the status of the cluster.
    pub(super) fn sent_cluster(&self, status: Status) {
        self.lock().cluster = Some(status);
    }

    /// Asks the cloud again. Returns whether anything is new.
    ///
    /// # Errors
    /// If there is no complete response. Then everything stays as it was.
    pub(super) async fn refresh(&self, cloud: &Cloud) -> Result<bool, ClientError> {
        let (nodes_etag, cluster_etag) = {
            let known = self.lock();
            (known.nodes_etag.clone(), known.cluster_etag.clone())
        };
        let nodes = cloud
            .client
            .list_each::<models::Node>(cloud.cluster.nodes(), nodes_etag.as_ref());
        let cluster = cloud
            .client
            .get::<models::Cluster>(cloud.cluster.path(), cluster_etag.as_ref());
        let (nodes, cluster) = (nodes.await?, cluster.await?);
        let mut known = self.lock();
        let mut changed = false;
        if let Fetched::Complete { value, etag } = nodes {
            let (mut nodes, mut invalid) = (Vec::new(), Vec::new());
            for item in value {
                match item {
                    Ok(node) => nodes.push(node),
                    Err(item) => invalid.push(item),
                }
            }
            if let Some(first) = invalid.first() {
                let (count, error) = (invalid.len(), &first.error);
                warn!(count, %error, "the cloud lists nodes that are not valid; their status is not reported");
            }
            known.set(nodes);
            known.nodes_etag = etag;
            changed = true;
        }
        if let Fetched::Complete { value, etag } = cluster {
            known.cluster = Some(value.status.into());
            known.cluster_etag = etag;
            changed = true;
        }
        Ok(changed)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn set(&mut self, nodes: Vec<models::Node>) {
        self.nodes.clear();
        self.names.clear();
        for node in nodes {
            let key = Key::new(&node.id.to_string());
            let name = node.spec.name.map(|name| name.to_string());
            if let Some(name) = &name {
                self.names.insert(name.clone(), key.clone());
            }
            let node = CloudNode {
                id: node.id,
                name,
                status: node.status.into(),
            };
            self.nodes.insert(key, node);
        }
    }
}
