//! The nodes of the cloud and the status that the cloud shows of them: as it last listed them, with what was sent
//! since.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tidewaiter_cloud::client::{ClientError, ETag, Fetched};
use tidewaiter_cloud::models::values::NodeId;
use tidewaiter_cloud::models::{self, InvalidItem};
use tidewaiter_kit::Key;
use tracing::warn;

use super::status::Status;
use crate::cloud::Cloud;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CloudNode {
    pub(super) id: NodeId,
    /// The name of its Node, if the cloud knows it.
    pub(super) name: Option<String>,
    /// The status that the cloud shows.
    pub(super) status: Status,
}

/// The nodes of the cloud, by id.
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
    /// The problems of the malformed nodes, so that each is logged once.
    malformed: BTreeSet<String>,
}

impl CloudNodes {
    /// The node with this id.
    pub(super) fn get(&self, id: &Key) -> Option<CloudNode> {
        self.0.lock().nodes.get(id).cloned()
    }

    /// The id of the node whose Node has this name.
    pub(super) fn named(&self, name: &str) -> Option<Key> {
        self.0.lock().names.get(name).cloned()
    }

    /// The status of the cluster that the cloud shows; `None` before the first list.
    pub(super) fn cluster(&self) -> Option<Status> {
        self.0.lock().cluster.clone()
    }

    /// All ids.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.0.lock().nodes.keys().cloned().collect()
    }

    /// The cloud took the status of a node.
    pub(super) fn sent(&self, id: &Key, status: Status) {
        if let Some(node) = self.0.lock().nodes.get_mut(id) {
            node.status = status;
        }
    }

    /// The cloud took the status of the cluster.
    pub(super) fn sent_cluster(&self, status: Status) {
        self.0.lock().cluster = Some(status);
    }

    /// Requests the nodes again. Returns true if anything is new.
    ///
    /// # Errors
    /// If there is no complete response. Then everything stays as it was.
    pub(super) async fn refresh(&self, cloud: &Cloud) -> Result<bool, ClientError> {
        let (nodes_etag, cluster_etag) = {
            let known = self.0.lock();
            (known.nodes_etag.clone(), known.cluster_etag.clone())
        };
        let nodes = cloud
            .client
            .list_each::<models::Node>(cloud.cluster.nodes(), nodes_etag.as_ref());
        let cluster = cloud
            .client
            .get::<models::Cluster>(cloud.cluster.path(), cluster_etag.as_ref());
        let (nodes, cluster) = (nodes.await?, cluster.await?);
        let mut known = self.0.lock();
        let mut changed = false;
        if let Fetched::Complete { value, etag } = nodes {
            for error in known.set(value) {
                warn!(error, "the cloud lists a malformed node; its status is not reported");
            }
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
}

impl Known {
    /// Returns what is wrong with the malformed nodes, unless it was wrong before.
    fn set(&mut self, listed: Vec<Result<models::Node, InvalidItem>>) -> Vec<String> {
        self.nodes.clear();
        self.names.clear();
        let before = std::mem::take(&mut self.malformed);
        for node in listed {
            let node = match node {
                Ok(node) => node,
                Err(invalid) => {
                    self.malformed.insert(invalid.error.to_string());
                    continue;
                }
            };
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
        self.malformed.difference(&before).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewaiter_cloud::models::{Unknown, parse_each};

    use super::*;

    #[test]
    fn a_malformed_node_is_news_once() {
        let node = |last: u8, name: &str| {
            let id = format!("9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d{last:02}");
            json!({"id": id, "name": name, "created_at": "1", "updated_at": "1", "node_pool_id": id})
        };
        let mut known = Known::default();
        for (last, news) in [(3, 1), (3, 0), (4, 0)] {
            let listed = json!([node(1, "not a name"), node(last, "a")]).to_string();
            let listed = parse_each(listed.as_bytes(), Unknown::Ignore).unwrap();
            assert_eq!(known.set(listed).len(), news);
            assert_eq!(known.nodes.len(), 1);
        }
    }
}
