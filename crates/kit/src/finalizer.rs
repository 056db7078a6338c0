//! Finalizers: an object stays until what was made for it elsewhere is confirmed to be gone.
//!
//! Only for what owner references cannot reach. [`Finalizer::ensure`] comes before the first creation, so that no crash leaves something
//! behind; [`Finalizer::release`] takes a proof of each absence, so that none is assumed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde_json::json;

use crate::writer::{ConfirmedGone, WriteError, Writer};

/// A finalizer of ours, as it stands in `metadata.finalizers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finalizer(pub &'static str);

impl Finalizer {
    /// Whether the object has it.
    #[must_use]
    pub fn is_on(&self, object: &ObjectMeta) -> bool {
        object.finalizers.iter().flatten().any(|finalizer| finalizer == self.0)
    }

    /// Adds the finalizer, unless the object has it, and returns the object's metadata after that.
    ///
    /// # Errors
    /// [`WriteError::is_conflict`] when the object is of another version by now.
    pub async fn ensure<K>(&self, writer: &Writer, seen: &ObjectMeta) -> Result<ObjectMeta, WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        if self.is_on(seen) {
            return Ok(seen.clone());
        }
        let all: Vec<&str> = seen
            .finalizers
            .iter()
            .flatten()
            .map(String::as_str)
            .chain([self.0])
            .collect();
        writer.patch::<K>(seen, json!({"metadata": {"finalizers": all}})).await
    }

    /// Removes the finalizer, if the object has it. `_gone` holds a proof for each object that had to go first.
    ///
    /// # Errors
    /// [`WriteError::is_conflict`] when the object is of another version by now.
    pub async fn release<K>(
        &self,
        writer: &Writer,
        seen: &ObjectMeta,
        _gone: &[ConfirmedGone],
    ) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        if !self.is_on(seen) {
            return Ok(());
        }
        let others: Vec<&str> = seen
            .finalizers
            .iter()
            .flatten()
            .map(String::as_str)
            .filter(|it| *it != self.0)
            .collect();
        match writer
            .patch::<K>(seen, json!({"metadata": {"finalizers": others}}))
            .await
        {
            Err(error) if error.is_gone() => Ok(()),
            released => released.map(drop),
        }
    }
}
