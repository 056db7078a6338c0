//! Nodes, their `NodeIdentities` and Pods with only the fields that a verdict reads.
//!
//! They are decoded from responses of the API server, and from their own JSON without loss. They must never be written
//! back. An unknown value (a phase, a status, a malformed providerID) counts as absent and is never an error: one
//! object must not make the whole list unreadable.

mod identity_record;
mod node;
pub(crate) mod pod;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};
use tidewaiter_api::names::ROLE_CONTROL_PLANE_LABEL;
use tidewaiter_kit::slim;

pub(crate) use identity_record::Listed;
pub use identity_record::{IdentityRecord, IdentityResult};
pub use node::{LABELS_READ, Node, NodeCondition, NodeConditionType, conditions};
pub use pod::{ContainerStatus, Phase, Pod, PodSpec, PodStatus, Priority, is_judged, matters};

/// Name, namespace, uid, resourceVersion, and the labels that a rule reads. Nothing else of 150,000 pods is ever
/// stored.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    slim::with_labels_of::<D, Labels>(deserializer)
}

/// The labels that a rule reads. Their names are repeated below as constants.
#[derive(Deserialize)]
struct Labels {
    #[serde(rename = "k8s-app")]
    app: Option<String>,
    #[serde(rename = "kubernetes.io/hostname")]
    hostname: Option<String>,
    #[serde(rename = "topology.kubernetes.io/zone")]
    zone: Option<String>,
    #[serde(rename = "failure-domain.beta.kubernetes.io/zone")]
    old_zone: Option<String>,
    #[serde(rename = "node-role.kubernetes.io/control-plane")]
    control_plane: Option<String>,
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        let all = [
            (pod::APP, labels.app),
            (node::HOSTNAME, labels.hostname),
            (node::ZONE, labels.zone),
            (node::OLD_ZONE, labels.old_zone),
            (ROLE_CONTROL_PLANE_LABEL, labels.control_plane),
        ];
        all.into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    }
}

/// Returns true if the two metadata are equal except for the resourceVersion.
fn same_metadata(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    (&one.name, &one.namespace, &one.uid, &one.labels) == (&other.name, &other.namespace, &other.uid, &other.labels)
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels
        .as_ref()
        .and_then(|labels: &BTreeMap<_, _>| labels.get(key))
        .map(String::as_str)
}

/// Parses `$text`, if it is a known value.
fn known<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
    T::deserialize(serde::de::value::BorrowedStrDeserializer::<serde::de::value::Error>::new(text)).ok()
}

/// A string with a known value; anything else is absent.
fn known_text<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| known(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_that_is_read_is_kept_under_its_name() {
        let labels = [
            pod::APP,
            node::HOSTNAME,
            node::ZONE,
            node::OLD_ZONE,
            ROLE_CONTROL_PLANE_LABEL,
        ];
        let labels: BTreeMap<_, _> = labels.map(|name| (name.to_owned(), format!("of {name}"))).into();
        let mut all = labels.clone();
        all.insert("other".to_owned(), String::new());
        let read = metadata(serde_json::json!({"labels": all})).unwrap();
        assert_eq!(read.labels, Some(labels));
    }
}
