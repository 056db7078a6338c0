//! Nodes and Pods, as much of them as the verdict reads.
//!
//! Decoded from what the API server sends, and from their own JSON without a loss. They must never be written back. A value
//! that we do not know (a phase, a status, a providerID that is none) is as if it were absent, and never an error: one object
//! must not take the whole list away.

mod node;
pub(crate) mod pod;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

pub use node::{Node, NodeCondition, NodeConditionType, NodeSpec, NodeStatus, conditions};
pub use pod::{ContainerStatus, Phase, Pod, PodSpec, PodStatus, Priority, is_judged, matters};

/// Makes `$slim` an object of the API, as `$full` is one.
macro_rules! resource_like {
    ($slim:ty, $full:ty) => {
        impl kube::Resource for $slim {
            type DynamicType = ();
            type Scope = <$full as kube::Resource>::Scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::kind(&())
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::group(&())
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::version(&())
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <$full as kube::Resource>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
use resource_like;

/// Name, namespace, uid, resourceVersion and of the labels those that are `read`.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D, read: &[&str]) -> Result<ObjectMeta, D::Error> {
    let mut meta = tidewaiter_kit::slim::metadata(deserializer)?;
    keep_labels(&mut meta, read);
    Ok(ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        labels: meta.labels,
        ..ObjectMeta::default()
    })
}

fn keep_labels(meta: &mut ObjectMeta, read: &[&str]) {
    let mut labels = meta.labels.take().unwrap_or_default();
    labels.retain(|key, _| read.contains(&key.as_str()));
    meta.labels = (!labels.is_empty()).then_some(labels);
}

/// Whether the two metadata differ in nothing but the resourceVersion.
fn same_metadata(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    (&one.name, &one.namespace, &one.uid, &one.labels) == (&other.name, &other.namespace, &other.uid, &other.labels)
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels
        .as_ref()
        .and_then(|labels: &BTreeMap<_, _>| labels.get(key))
        .map(String::as_str)
}

/// What `$text` says, if it is a value that we know.
fn known<'de, T: Deserialize<'de>>(text: &'de str) -> Option<T> {
    T::deserialize(serde::de::value::BorrowedStrDeserializer::<serde::de::value::Error>::new(text)).ok()
}

/// A string that is a value that we know; anything else is absent.
fn known_text<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| known(&text)))
}
