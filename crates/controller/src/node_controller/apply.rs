//! Writes what was planned, in the plan's order: the record, the Node, the record again.
//!
//! Stops at the first write that fails: what the record says is then still true of every key on the Node. Every write is
//! conditional on the version that was observed, so one that rests on a stale observation is refused by the server (409)
//! and planned anew; and a patch goes out only when the record has just been written, or read, in the version that was observed. Never writes a Node whole.

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::{Map, Value, json};
use tidewaiter_api::{NodeIdentity, NodeName};
use tidewaiter_kit::SharedClock;

use super::node::Node;
use super::plan::{NodePatch, Plan, RecordContent};
use super::record::Record;
use super::replaced::Replaced;

/// The name under which the API server books our writes.
pub const FIELD_MANAGER: &str = "tidewaiter/node";

/// A write that did not go through.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The record could not be written; the Node was not touched, or is as it should be.
    #[error("the NodeIdentity cannot be written")]
    Record(#[source] kube::Error),
    /// The Node could not be patched; the record holds every key that it may have.
    #[error("the Node cannot be patched")]
    Patch(#[source] kube::Error),
}

/// Writes records and patches Nodes, through the fenced client.
#[derive(Debug)]
pub(super) struct Writer {
    nodes: Api<Node>,
    records: Api<NodeIdentity>,
    replaced_nodes: Replaced,
    replaced_records: Replaced,
    clock: SharedClock,
}

impl Writer {
    /// `client` must be the fenced one.
    #[must_use]
    pub(super) fn new(client: kube::Client, clock: SharedClock) -> Self {
        Self {
            nodes: Api::all(client.clone()),
            records: Api::all(client),
            replaced_nodes: Replaced::default(),
            replaced_records: Replaced::default(),
            clock,
        }
    }

    /// Whether what was observed is known to be older than what we have written.
    pub(super) fn is_ahead_of(&self, name: &NodeName, node: &Node, record: Option<&Record>) -> bool {
        let now = self.clock.monotonic();
        let record = record.and_then(|record| record.metadata.resource_version.as_deref());
        let node = node.metadata.resource_version.as_deref();
        // Both are asked, because each lets go of what the cache is past.
        self.replaced_nodes.holds(name.as_str(), node, now) | self.replaced_records.holds(name.as_str(), record, now)
    }

    /// The Node of this name is gone.
    pub(super) fn forget(&self, name: &str) {
        self.replaced_nodes.forget(name);
        self.replaced_records.forget(name);
    }

    /// Writes what `plan` holds for the Node `name`, observed as `node` and `record`.
    pub(super) async fn apply(
        &self,
        name: &NodeName,
        node: &Node,
        record: Option<&Record>,
        plan: &Plan,
    ) -> Result<(), ApplyError> {
        let mut version = record.and_then(|record| record.metadata.resource_version.clone());
        if let Some(content) = &plan.record {
            version = self.write_record(name, content, version).await?;
        } else if plan.patch.is_some() {
            self.confirm_record(name, version.as_deref()).await?;
        }
        if let Some(patch) = &plan.patch {
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let body = Patch::Merge(merge_patch(node, patch));
            let patched = self
                .nodes
                .patch(name.as_str(), &params, &body)
                .await
                .map_err(ApplyError::Patch)?;
            self.replaced_nodes.note(
                name.as_str(),
                node.metadata.resource_version.as_deref(),
                patched.metadata.resource_version.as_deref(),
                self.clock.monotonic(),
            );
        }
        if let Some(content) = &plan.narrowed {
            self.write_record(name, content, version).await?;
        }
        Ok(())
    }

    /// Fails unless the record is the version that was observed. A patch rests on what the record remembers, and no write of the
    /// record has shown that the cache is not behind: it might take away a key that is not ours any more, or set one that the
    /// record has forgotten.
    async fn confirm_record(&self, name: &NodeName, version: Option<&str>) -> Result<(), ApplyError> {
        let there = self.records.get_metadata_opt(name.as_str()).await;
        let there = there.map_err(ApplyError::Record)?;
        if there.and_then(|record| record.metadata.resource_version).as_deref() == version {
            return Ok(());
        }
        let conflict = Status::failure("the cached NodeIdentity is behind", "Conflict").with_code(409);
        Err(ApplyError::Record(kube::Error::Api(Box::new(conflict))))
    }

    /// Creates the record, or replaces the one of this version; returns the new version.
    ///
    /// Not server-side apply: an apply that creates cannot be made conditional on the object's absence, and one that rests
    /// on a cache that has not seen the record yet would drop the keys that it remembers.
    async fn write_record(
        &self,
        name: &NodeName,
        content: &RecordContent,
        version: Option<String>,
    ) -> Result<Option<String>, ApplyError> {
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let RecordContent { spec, status } = content.clone();
        let mut record = NodeIdentity::of_node(name, &spec.node_uid, spec.provider_id, status);
        record.metadata.resource_version = version;
        let written = if record.metadata.resource_version.is_none() {
            self.records.create(&params, &record).await
        } else {
            self.records.replace(name.as_str(), &params, &record).await
        };
        let written = written.map_err(ApplyError::Record)?.metadata.resource_version;
        let replaced = record.metadata.resource_version.as_deref();
        self.replaced_records
            .note(name.as_str(), replaced, written.as_deref(), self.clock.monotonic());
        Ok(written)
    }
}

/// One JSON merge patch (RFC 7396), conditional on the uid and the version that were observed.
fn merge_patch(node: &Node, patch: &NodePatch) -> Value {
    let set = patch.set.iter().map(|(key, value)| (key.to_string(), json!(value)));
    let remove = patch.remove.iter().map(|key| (key.clone(), Value::Null));
    let labels: Map<String, Value> = set.chain(remove).collect();
    let mut metadata = json!({ "uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version });
    if !labels.is_empty() {
        metadata["labels"] = Value::Object(labels);
    }
    let mut body = json!({ "metadata": metadata });
    if let Some(taints) = &patch.taints {
        body["spec"] = json!({ "taints": taints });
    }
    body
}

impl ApplyError {
    /// The failed write's own error.
    #[must_use]
    pub fn write(&self) -> &kube::Error {
        match self {
            Self::Record(error) | Self::Patch(error) => error,
        }
    }

    /// The API server's status code, if it answered.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self.write() {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_holds_only_the_keys_that_differ_and_what_it_rests_on() {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "7"}})).unwrap();
        let patch = NodePatch {
            set: [("a".parse().unwrap(), "b".parse().unwrap())].into(),
            remove: ["c".to_owned()].into(),
            taints: None,
        };
        let expected = json!({"metadata": {"uid": "u", "resourceVersion": "7", "labels": {"a": "b", "c": null}}});
        assert_eq!(merge_patch(&node, &patch), expected);

        let only_taint = NodePatch {
            taints: Some(vec![]),
            ..NodePatch::default()
        };
        let expected = json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"taints": []}});
        assert_eq!(merge_patch(&node, &only_taint), expected);
    }
}
