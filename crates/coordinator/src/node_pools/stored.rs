//! The nodes as the cloud listed them last, in a Secret beside the other stored lists: a process that starts knows by
//! it what a wrong first list lacks. The labels of the Nodes do not say it, because a kubelet can write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, cloud_list_secret};
use tidewaiter_api::{LabelValue, NodeName};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::{Chain, SharedClock, Writer};
use tracing::warn;
use uuid::Uuid;

use crate::mirror::list_secret;

/// In place of the name of a kind.
const NODES: &str = "nodes";
/// The key of the Secret.
const LIST: &str = "list";
/// The most that is stored, in bytes: the API server permits 1 MiB. That is enough for 10,000 nodes.
const MAX_BYTES: usize = 900_000;

/// The nodes that have names, by their ids in the cloud: their names and node pools.
pub(super) type ById = BTreeMap<Uuid, (NodeName, LabelValue)>;

/// By node pool, the names by the ids.
type Form = BTreeMap<LabelValue, BTreeMap<String, NodeName>>;

pub(super) struct StoredNodes {
    secrets: Api<Secret>,
    writer: Writer,
    /// The content of the Secret, as far as it is known.
    stored: Option<ById>,
}

impl StoredNodes {
    pub(super) fn new(clients: &Clients, clock: &SharedClock) -> Self {
        let client = clients.for_controller("sync-nodes", DEFAULT_IN_FLIGHT);
        Self {
            secrets: Api::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE),
            writer: Writer::new(client, "sync-nodes", Arc::clone(clock)),
            stored: None,
        }
    }

    /// The members that an earlier process stored. A damaged Secret is treated as absent.
    pub(super) async fn read(&mut self) -> Result<ById, kube::Error> {
        self.stored = self.load().await?;
        Ok(self.stored.clone().unwrap_or_default())
    }

    /// Finds out whether the Secret still has what was stored. One that cannot be read is read another time.
    pub(super) async fn look(&mut self) {
        if let Ok(found) = self.load().await {
            self.stored = found;
        }
    }

    async fn load(&self) -> Result<Option<ById>, kube::Error> {
        let secret = self.secrets.get_opt(&cloud_list_secret(NODES, 0)).await?;
        let list = secret.and_then(|secret| secret.data?.remove(LIST));
        let Some(ByteString(list)) = list else {
            return Ok(None);
        };
        let Ok(form) = serde_json::from_slice::<Form>(&list) else {
            warn!("the stored list of nodes is damaged, and is not used");
            return Ok(None);
        };
        let nodes = form.into_iter().flat_map(|(pool, nodes)| {
            let node = move |(id, name): (String, NodeName)| Some((Uuid::try_parse(&id).ok()?, (name, pool.clone())));
            nodes.into_iter().filter_map(node)
        });
        Ok(Some(nodes.collect()))
    }

    /// Stores the nodes, if they are others than the Secret has. A failed write is retried after the next
    /// list.
    pub(super) async fn write(&mut self, nodes: &ById) {
        if self.stored.as_ref() == Some(nodes) {
            return;
        }
        let mut form = Form::new();
        for (id, (name, pool)) in nodes {
            let of_pool = form.entry(pool.clone()).or_default();
            of_pool.insert(id.to_string(), name.clone());
        }
        let list = serde_json::to_vec(&form).unwrap_or_default();
        if list.len() > MAX_BYTES {
            warn!(
                bytes = list.len(),
                "the list of nodes is too large to be stored: after a restart, a wrong list is not recognized by it"
            );
            self.stored = Some(nodes.clone());
            return;
        }
        let secret = list_secret(NODES, 0, Some([(LIST.to_owned(), ByteString(list))].into()));
        match self.writer.apply(&secret, None).await {
            Ok(_) => self.stored = Some(nodes.clone()),
            Err(error) => {
                let error = Chain(&error).to_string();
                warn!(error, "the list of nodes cannot be stored; it is tried again");
            }
        }
    }

    /// The Secret was deleted: the next list is stored again.
    pub(super) fn forget(&mut self) {
        self.stored = None;
    }
}
