//! Writes what was planned, in the plan's order: the record, the Node, the record again.
//!
//! Stops at the first write that fails: what the record says is then still true of every key on the Node. Every write
//! is conditional on the version that was observed, so a write that rests on a stale observation is refused by the
//! server (409) and planned again. A patch is sent only when the record has just been written, or read, in the version
//! that was observed. Never writes a Node whole.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use tidewaiter_api::NodeIdentity;
use tidewaiter_kit::{Key, WriteError, Writer};

use super::observe::Observation;
use super::plan::Plan;
use super::record::{NodePatch, RecordContent};
use crate::objects::Node;

/// Returns true if what was observed is older than what we have written, or than what the caches show by now.
pub(super) fn is_outdated(writer: &Writer, seen: &Observation) -> bool {
    let key = Key::new(seen.name.as_str());
    let record = seen.record.as_deref().map(|record| &record.metadata);
    writer.is_stale::<Node>(&key, Some(&seen.node.metadata)) || writer.is_stale::<NodeIdentity>(&key, record)
}

pub(super) async fn apply(writer: &Writer, seen: &Observation, plan: &Plan) -> Result<(), WriteError> {
    let observed = seen.record.as_deref();
    let mut version = observed.and_then(|record| record.metadata.resource_version.clone());
    if plan.record.is_some() && observed.is_some_and(|record| record.spec.node_uid != seen.uid) {
        // One of the two caches is outdated: the record may be that of a newer Node, and remember its keys.
        let node = &seen.node.metadata;
        writer.confirm::<Node>(node, node.resource_version.as_deref()).await?;
    }
    if let Some(content) = &plan.record {
        version = write_record(writer, seen, content, version).await?;
    } else if plan.patch.is_some() {
        // A patch rests on what the record remembers, and no write of the record has shown that the cache is up to
        // date: it might remove a key that is not ours any more, or set one that the record has forgotten.
        let name = ObjectMeta {
            name: Some(seen.name.to_string()),
            ..ObjectMeta::default()
        };
        writer.confirm::<NodeIdentity>(&name, version.as_deref()).await?;
    }
    if let Some(patch) = &plan.patch {
        writer.patch::<Node>(&seen.node.metadata, merge_patch(patch)).await?;
    }
    if let Some(content) = &plan.narrowed {
        write_record(writer, seen, content, version).await?;
    }
    Ok(())
}

/// Creates the record, or replaces the one of this version; returns the new version.
///
/// Not server-side apply: one that rests on a cache that has not seen the record yet would drop the keys that it
/// remembers.
async fn write_record(
    writer: &Writer,
    seen: &Observation,
    content: &RecordContent,
    version: Option<String>,
) -> Result<Option<String>, WriteError> {
    let RecordContent { spec, status } = content.clone();
    let mut record = NodeIdentity::of_node(&seen.name, &spec.node_uid, spec.provider_id, status);
    let written = if version.is_some() {
        record.metadata.resource_version = version;
        writer.replace(&record).await?
    } else {
        writer.create(&record).await?
    };
    Ok(written.resource_version)
}

/// A JSON merge patch (RFC 7396).
fn merge_patch(patch: &NodePatch) -> Value {
    let set = patch.set.iter().map(|(key, value)| (key.to_string(), json!(value)));
    let remove = patch.remove.iter().map(|key| (key.clone(), Value::Null));
    let labels: Map<String, Value> = set.chain(remove).collect();
    let mut body = json!({ "metadata": {} });
    if !labels.is_empty() {
        body["metadata"]["labels"] = Value::Object(labels);
    }
    if let Some(taints) = &patch.taints {
        body["spec"] = json!({ "taints": taints });
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_holds_only_the_keys_that_differ() {
        let patch = NodePatch {
            set: [("a".parse().unwrap(), "b".parse().unwrap())].into(),
            remove: ["c".to_owned()].into(),
            taints: None,
        };
        assert_eq!(
            merge_patch(&patch),
            json!({"metadata": {"labels": {"a": "b", "c": null}}})
        );
        let only_taint = NodePatch {
            taints: Some(vec![]),
            ..NodePatch::default()
        };
        assert_eq!(
            merge_patch(&only_taint),
            json!({"metadata": {}, "spec": {"taints": []}})
        );
    }
}
