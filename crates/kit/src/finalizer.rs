//! Finalizers: an object stays until what was made for it elsewhere is confirmed to be gone.
//!
//! Only for what owner references cannot reach. [`Finalizer::ensure`] comes before the first creation, so that no crash
//! leaves something behind; [`Finalizer::release`] comes after [`Writer::is_gone`], so that no absence is assumed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde_json::json;

use crate::writer::{WriteError, Writer};

/// A finalizer of ours, as it stands in `metadata.finalizers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finalizer(pub &'static str);

impl Finalizer {
    /// True if the object has it.
    #[must_use]
    pub fn is_on(&self, object: &ObjectMeta) -> bool {
        object.finalizers.iter().flatten().any(|finalizer| finalizer == self.0)
    }

    /// Adds the finalizer, unless the object has it. The patch repeats the finalizers of others, so `seen` must have
    /// all of those of its version: [`slim::metadata`](crate::slim::metadata) leaves them out.
    ///
    /// # Errors
    /// [`WriteError::is_gone`] when the object does not exist; [`WriteError::is_conflict`] when it is another, or of
    /// another version by now.
    pub async fn ensure<K>(&self, writer: &Writer, seen: &ObjectMeta) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        if self.is_on(seen) {
            return Ok(());
        }
        let all: Vec<&str> = others(seen, self.0).chain([self.0]).collect();
        self.write::<K>(writer, seen, &all).await
    }

    /// Removes the finalizer, if the object has it.
    ///
    /// # Errors
    /// [`WriteError::is_conflict`] when the object is another by now.
    pub async fn release<K>(&self, writer: &Writer, seen: &ObjectMeta) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let Some(object) = writer.read::<K>(seen).await?.filter(|object| self.is_on(object)) else {
            return Ok(());
        };
        let all: Vec<&str> = others(&object, self.0).collect();
        // Of the version that was read, and the uid that was observed.
        let object = ObjectMeta {
            uid: seen.uid.clone(),
            ..object.clone()
        };
        match self.write::<K>(writer, &object, &all).await {
            Err(error) if error.is_gone() => Ok(()),
            released => released,
        }
    }

    async fn write<K>(&self, writer: &Writer, object: &ObjectMeta, all: &[&str]) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let patch = json!({"metadata": {"finalizers": all}});
        writer.patch::<K>(object, patch).await.map(drop)
    }
}

fn others<'a>(object: &'a ObjectMeta, ours: &'a str) -> impl Iterator<Item = &'a str> {
    let all = object.finalizers.iter().flatten().map(String::as_str);
    all.filter(move |finalizer| *finalizer != ours)
}
