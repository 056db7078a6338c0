//! Performs every write of a controller.
//!
//! Each write is conditional (on the object's absence, its uid and version, or the fields that we own), is recorded
//! under the field manager `tidewaiter/<controller>`, passes the fence, and fails with one error type that says what to
//! retry. Nothing is sent that the cached object shows to be there already. What was written is remembered until the
//! cache shows it, so that the next pass does not write it again ([`Writer::is_stale`], [`Writer::awaits`]).

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::request::Error as BuildError;
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cache::{Cache, Cacheable};
use crate::client::optional;
use crate::clock::SharedClock;
use crate::key::Key;
use crate::slim;

mod error;
mod fields;
mod stale;
mod unseen;

pub use error::WriteError;
pub(crate) use error::foreign;
use error::{Verb, exists, outdated};
use fields::has_our_fields;
pub use fields::{has_applied, has_applied_all_of};
use unseen::Unseen;

/// Requests responses with the metadata alone: a patched Node would come back with its 15 kB.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";

/// A version that no object has (the first write to etcd makes revision 2): an apply that names it can only create.
pub const NO_VERSION: &str = "1";

/// The metadata of a response, without `managedFields`, the largest part of it.
#[derive(Deserialize)]
struct Written {
    #[serde(deserialize_with = "slim::written")]
    metadata: ObjectMeta,
}

/// Writes for one controller.
pub struct Writer {
    client: Client,
    manager: String,
    clock: SharedClock,
    unseen: Arc<Unseen>,
    /// The caches that are followed, by the plural name of their kind.
    followed: Mutex<BTreeMap<String, ShownVersion>>,
}

/// The version of an object that a cache shows.
type ShownVersion = Box<dyn Fn(&Key) -> Option<String> + Send + Sync>;

impl Writer {
    /// `client` must be a fenced one. `controller` is the name under which the API server records the writes.
    #[must_use]
    pub fn new(client: Client, controller: &str, clock: SharedClock) -> Self {
        Self {
            client,
            manager: manager_of(controller),
            clock,
            unseen: Arc::default(),
            followed: Mutex::default(),
        }
    }

    /// Creates `object`, if there is no object of its name.
    ///
    /// # Errors
    /// [`WriteError::is_conflict`] when there is one.
    pub async fn create<K>(&self, object: &K) -> Result<ObjectMeta, WriteError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let body = body(object).to_string().into_bytes();
        let request = request::<K>(object.meta()).create(&self.post(), body);
        self.send::<K>(Verb::Create, object.meta(), None, strict(request)).await
    }

    /// Replaces the object of the version that `object` names in its metadata.
    ///
    /// # Errors
    /// [`WriteError::is_conflict`] when it is another version by now.
    pub async fn replace<K>(&self, object: &K) -> Result<ObjectMeta, WriteError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let (meta, body) = (object.meta(), body(object).to_string().into_bytes());
        let request = request::<K>(meta).replace(name(meta), &self.post(), body);
        self.send::<K>(Verb::Replace, meta, meta.resource_version.as_deref(), strict(request))
            .await
    }

    /// Sends a JSON merge patch (RFC 7396), conditional on the uid and the version of `seen`.
    ///
    /// # Errors
    /// [`WriteError::is_conflict`] when the object is another or of another version by now.
    pub async fn patch<K>(&self, seen: &ObjectMeta, mut patch: Value) -> Result<ObjectMeta, WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        patch["metadata"]["uid"] = json!(seen.uid);
        patch["metadata"]["resourceVersion"] = json!(seen.resource_version);
        let params = PatchParams::apply(&self.manager);
        let request = request::<K>(seen).patch(name(seen), &params, &Patch::Merge(patch));
        self.send::<K>(Verb::Patch, seen, seen.resource_version.as_deref(), strict(request))
            .await
    }

    /// Makes the fields of `desired` ours with these values, by server-side apply, and gives up those that we applied
    /// before and do not apply any more. Sends nothing, and returns None, when `cached` already has them. Its metadata
    /// must come from [`slim::for_writer`].
    ///
    /// # Errors
    /// [`WriteError`], if the API server does not accept it.
    pub async fn apply<K>(&self, desired: &K, cached: Option<&K>) -> Result<Option<ObjectMeta>, WriteError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let Some(cached) = cached else {
            let params = PatchParams::apply(&self.manager).force();
            let meta = desired.meta();
            let request = request::<K>(meta).patch(name(meta), &params, &Patch::Apply(body(desired)));
            return self.send::<K>(Verb::Apply, meta, None, request).await.map(Some);
        };
        if self.is_applied(desired, cached) {
            return Ok(None);
        }
        // An object that was deleted, or created again under the name, is not touched.
        self.apply_over(desired, cached.meta()).await.map(Some)
    }

    /// Applies `desired` to the object with the uid and version of `seen`, without comparing it with a cache, which may
    /// not show our last write yet.
    ///
    /// # Errors
    /// [`WriteError`], if the API server does not accept it.
    pub async fn apply_over<K>(&self, desired: &K, seen: &ObjectMeta) -> Result<ObjectMeta, WriteError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let (meta, mut body) = (desired.meta(), body(desired));
        body["metadata"]["uid"] = json!(seen.uid);
        let params = PatchParams::apply(&self.manager).force();
        let request = request::<K>(meta).patch(name(meta), &params, &Patch::Apply(body));
        self.send::<K>(Verb::Apply, meta, seen.resource_version.as_deref(), request)
            .await
    }

    /// True if `cached` shows that [`Writer::apply`] of `desired` would send nothing.
    #[must_use]
    pub fn is_applied<K>(&self, desired: &K, cached: &K) -> bool
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        has_our_fields(&self.manager, &body(desired), cached)
    }

    /// Makes the status of `desired` that of the object `seen`, by server-side apply on the status subresource. The
    /// object must exist.
    ///
    /// # Errors
    /// When the API server does not accept it; [`WriteError::is_conflict`] when the object was created again meanwhile.
    pub async fn apply_status<K>(&self, desired: &K, seen: &ObjectMeta) -> Result<ObjectMeta, WriteError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let mut body = body(desired);
        body["metadata"] = json!({"name": seen.name, "namespace": seen.namespace, "uid": seen.uid});
        if let Some(fields) = body.as_object_mut() {
            fields.remove("spec");
        }
        let params = PatchParams::apply(&self.manager).force();
        let request = request::<K>(seen).patch_subresource("status", name(seen), &params, &Patch::Apply(body));
        self.send::<K>(Verb::Apply, seen, seen.resource_version.as_deref(), request)
            .await
    }

    /// Creates `desired` by server-side apply, so that a later [`Writer::apply`] owns exactly its fields. It names a
    /// version that no object has, so nothing of an object that exists is changed, and no request is needed to find out
    /// whether there is one.
    ///
    /// # Errors
    /// When there is an object of the name: [`WriteError::is_conflict`] if it is `ours`, [`WriteError::is_foreign`] if
    /// not.
    pub async fn apply_new<K>(&self, desired: &K, ours: impl Fn(&ObjectMeta) -> bool) -> Result<ObjectMeta, WriteError>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let (meta, mut body) = (desired.meta(), body(desired));
        body["metadata"]["resourceVersion"] = json!(NO_VERSION);
        let request = request::<K>(meta).patch(name(meta), &PatchParams::apply(&self.manager), &Patch::Apply(body));
        let error = match self.send::<K>(Verb::Create, meta, None, request).await {
            Err(error) if error.is_conflict() => error,
            done => return done,
        };
        let Some(found) = self.read::<K>(meta).await? else {
            return Err(error);
        };
        let error = WriteError::new::<K>(Verb::Create, meta, exists());
        Err(if ours(&found) { error } else { error.of_foreign() })
    }

    /// Deletes the object of the uid and version of `seen`. Returns false if it does not exist.
    ///
    /// # Errors
    /// [`WriteError::is_conflict`] when it is another or of another version by now.
    pub async fn delete<K>(&self, seen: &ObjectMeta) -> Result<bool, WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: seen.uid.clone(),
            resource_version: seen.resource_version.clone(),
        });
        let failed = |error| WriteError::new::<K>(Verb::Delete, seen, error);
        let request = request::<K>(seen).delete(name(seen), &params);
        let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        // The response is the object as it was, or a status.
        let deleted = optional(self.client.request_text(request).await).map_err(failed)?;
        if deleted.is_some() {
            self.note::<K>(seen, seen.resource_version.as_deref(), None);
        }
        Ok(deleted.is_some())
    }

    /// Fails unless the object of this name still has the version that was observed (None: does not exist). For a write
    /// to one object that depends on another one, which no write has just shown to be up to date.
    ///
    /// # Errors
    /// [`WriteError::is_conflict`] when it has another version.
    pub async fn confirm<K>(&self, seen: &ObjectMeta, version: Option<&str>) -> Result<(), WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let found = self.read::<K>(seen).await?.and_then(|found| found.resource_version);
        if found.as_deref() == version {
            return Ok(());
        }
        Err(WriteError::new::<K>(Verb::Read, seen, outdated()))
    }

    /// True if no object of this name is `ours`, read from the API server and from no cache.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn is_gone<K>(&self, object: &ObjectMeta, ours: impl Fn(&ObjectMeta) -> bool) -> Result<bool, WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        Ok(self.read::<K>(object).await?.is_none_or(|found| !ours(&found)))
    }

    /// The object of this name, read from the API server and from no cache; None when there is no object.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn get<K>(&self, object: &ObjectMeta) -> Result<Option<K>, WriteError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let request = request::<K>(object).get(name(object), &GetParams::default());
        self.fetch::<K, K>(object, request).await
    }

    /// The object's metadata as the API server knows it; None when there is no object.
    pub(crate) async fn read<K>(&self, object: &ObjectMeta) -> Result<Option<ObjectMeta>, WriteError>
    where
        K: Resource<DynamicType = ()>,
    {
        let request = request::<K>(object).get_metadata(name(object), &GetParams::default());
        let found = self.fetch::<K, PartialObjectMeta<K>>(object, request).await?;
        Ok(found.map(|found| found.metadata))
    }

    async fn fetch<K: Resource<DynamicType = ()>, T: DeserializeOwned>(
        &self,
        object: &ObjectMeta,
        request: Result<http::Request<Vec<u8>>, BuildError>,
    ) -> Result<Option<T>, WriteError> {
        let failed = |error| WriteError::new::<K>(Verb::Read, object, error);
        let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        optional(self.client.request::<T>(request).await).map_err(failed)
    }

    fn post(&self) -> PostParams {
        PostParams {
            field_manager: Some(self.manager.clone()),
            ..PostParams::default()
        }
    }

    /// Forgets what was written as soon as `cache` is past it. For each cache whose objects [`Writer::awaits`] is asked
    /// about: without it, an object that we created and somebody deleted is awaited for half a minute.
    pub fn follow<K: Cacheable>(&self, cache: &Cache<K>) {
        let unseen = Arc::clone(&self.unseen);
        cache.derive(move |change| {
            let shown = change.after.and_then(|after| after.meta().resource_version.as_deref());
            unseen.shown(&K::plural(&()), change.key(), shown);
        });
        let cache = cache.clone();
        let version = Box::new(move |key: &Key| cache.get(key)?.meta().resource_version.clone());
        self.followed.lock().insert(K::plural(&()).into_owned(), version);
    }

    async fn send<K: Resource<DynamicType = ()>>(
        &self,
        verb: Verb,
        meta: &ObjectMeta,
        before: Option<&str>,
        request: Result<http::Request<Vec<u8>>, BuildError>,
    ) -> Result<ObjectMeta, WriteError> {
        let failed = |error| WriteError::new::<K>(verb, meta, error);
        let mut request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
        let accept = http::HeaderValue::from_static(METADATA_ONLY);
        request.headers_mut().insert(http::header::ACCEPT, accept);
        let written = self.client.request::<Written>(request).await.map_err(failed)?;
        self.note::<K>(meta, before, written.metadata.resource_version.as_deref());
        Ok(written.metadata)
    }

    fn note<K: Resource<DynamicType = ()>>(&self, meta: &ObjectMeta, before: Option<&str>, after: Option<&str>) {
        let (resource, key, now) = (K::plural(&()), Key::of_meta(meta), self.clock.monotonic());
        self.unseen.note(&resource, &key, before, after, now);
        // The watch may have shown the change before the response came: then no later change says so.
        if let Some(version) = self.followed.lock().get(&*resource) {
            self.unseen.shown(&resource, &key, version(&key).as_deref());
        }
    }
}

/// Adds `fieldValidation=Strict`: the API server rejects an unknown field instead of pruning it. An apply is always
/// strict.
fn strict(request: Result<http::Request<Vec<u8>>, BuildError>) -> Result<http::Request<Vec<u8>>, BuildError> {
    let mut request = request?;
    // The query is never empty: it names the field manager.
    let uri = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = uri
        .parse()
        .map_err(|error| BuildError::BuildRequest(http::Error::from(error)))?;
    Ok(request)
}

/// The name under which the API server records the writes of a controller.
fn manager_of(controller: &str) -> String {
    format!("{}{controller}", slim::OUR_MANAGERS)
}

fn request<K: Resource<DynamicType = ()>>(meta: &ObjectMeta) -> Request {
    Request::new(K::url_path(&(), meta.namespace.as_deref()))
}

fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// The object as JSON with its type, which slim types do not have.
#[expect(clippy::expect_used, reason = "a fault of the type, which its first test shows")]
fn body<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
    let mut body = serde_json::to_value(object).expect("an object can be written as JSON");
    body["apiVersion"] = json!(K::api_version(&()));
    body["kind"] = json!(K::kind(&()));
    body
}

impl Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("manager", &self.manager)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
