//! The last list of each kind, in Secrets of `containership-core`: so that a coordinator that starts while the cloud is
//! away knows how the cloud lists each object. It restores and corrects by that, and deletes nothing.
//!
//! What is stored is what took effect: with the objects whose deletion the brake held, and without those whose addition
//! it held; and what the brake remembers besides. It is written after it took effect, so a process that is killed in
//! between leaves the list before; and only when it changed, or when somebody has deleted or damaged it, which is
//! looked for after each unchanged response. A list that is too large for one Secret is in several, of which the first
//! is written last and has the digest of all: what is of two lists is no list.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewaiter_api::names::{CLOUD_LIST_LABEL, CONTAINERSHIP_NAMESPACE, cloud_list_secret};
use tidewaiter_kit::{Cacheable, WriteError, Writer};
use tidewaiter_signature::sha256;
use tracing::warn;

use super::cloud_list::{CloudList, Specs};
use super::kind::named;
use super::window::Remembered;

/// The keys of a Secret: a part of the compressed list and, in the first one, the number of parts and the digest of the
/// whole.
const PART: &str = "list";
const PARTS: &str = "parts";
const DIGEST: &str = "digest";
/// The key of what the brake remembers, in the first Secret; absent if that is nothing.
const BRAKE: &str = "brake";

/// The most that one Secret has of a list, in bytes: the API server permits 1 MiB.
const MAX_PART_BYTES: usize = 900_000;

/// The most that a list may have before it is compressed.
const MAX_LIST_BYTES: usize = 64 << 20;

type Data = BTreeMap<String, ByteString>;

/// The reason why a list is not stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// The stored list cannot be read.
    #[error("the stored list cannot be read")]
    Read(#[from] kube::Error),
    /// The list is too large.
    #[error("it has {0} bytes, and at most {MAX_LIST_BYTES} can be stored: delete objects of this kind in the cloud")]
    TooLarge(usize),
    /// A Secret cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The list of one kind.
pub(super) struct StoredList<R> {
    secrets: Api<Secret>,
    kind: &'static str,
    stored: Mutex<Stored<R>>,
    /// The memory of the brake, as the Secrets have it.
    remembered: Mutex<Arc<Remembered>>,
    /// True if the Secrets are to be read again before the next list is taken for stored.
    doubted: AtomicBool,
}

/// The content of the Secrets, as far as it is known.
enum Stored<R> {
    /// They were not read yet.
    Unread,
    Nothing,
    /// This list.
    List(Arc<Specs<R>>),
}

impl<R: Cacheable + Serialize + DeserializeOwned + PartialEq> StoredList<R> {
    /// `client` must be a fenced one.
    pub(super) fn new(client: Client, kind: &'static str) -> Self {
        Self {
            secrets: Api::namespaced(client, CONTAINERSHIP_NAMESPACE),
            kind,
            stored: Mutex::new(Stored::Unread),
            remembered: Mutex::default(),
            doubted: AtomicBool::new(false),
        }
    }

    /// The list that was in force before the next one: that of the cloud or, before its first one, the stored list.
    pub(super) fn before(&self, current: &CloudList<R>) -> Option<Arc<Specs<R>>> {
        if current.is_current() {
            Some(current.listed())
        } else {
            self.known()
        }
    }

    /// The stored list, as far as it is known.
    fn known(&self) -> Option<Arc<Specs<R>>> {
        match &*self.stored.lock() {
            Stored::List(list) => Some(Arc::clone(list)),
            Stored::Unread | Stored::Nothing => None,
        }
    }

    /// The list that an earlier process stored, which is read once. A damaged list is treated as absent.
    pub(super) async fn read(&self) -> Result<Option<Arc<Specs<R>>>, kube::Error> {
        if !matches!(&*self.stored.lock(), Stored::Unread) {
            return Ok(self.known());
        }
        let (found, remembered) = self.load().await?;
        let found = found.map(Arc::new);
        self.remember(remembered);
        *self.stored.lock() = found.clone().map_or(Stored::Nothing, Stored::List);
        Ok(found)
    }

    /// The content of the Secrets now.
    async fn load(&self) -> Result<(Option<Specs<R>>, Remembered), kube::Error> {
        let Some(mut first) = self.part(0).await? else {
            return Ok((None, Remembered::default()));
        };
        let brake = first.remove(BRAKE);
        let remembered = brake.as_ref().map(|packed| unpack_json(&packed.0));
        if let Some(None) = remembered {
            warn!(
                kind = self.kind,
                "what is stored of the deletion brake is damaged, and is not used"
            );
        }
        let whole = self.whole(first).await?;
        let found = whole.and_then(|whole| unpack(&whole));
        if found.is_none() {
            warn!(
                kind = self.kind,
                "the stored list of the cloud is damaged, and is not used"
            );
        }
        Ok((found, remembered.flatten().unwrap_or_default()))
    }

    /// The memory of the brake of the process before.
    pub(super) fn remembered(&self) -> Arc<Remembered> {
        Arc::clone(&self.remembered.lock())
    }

    fn remember(&self, remembered: Remembered) {
        *self.remembered.lock() = Arc::new(remembered);
    }

    /// Has the Secrets read again when the next list is to be stored: somebody may have changed or deleted them.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    /// Returns true if the Secrets have the list, which they had when they were last read or written.
    async fn is_intact(&self, list: &Specs<R>, remembered: &Remembered) -> Result<bool, kube::Error> {
        if !self.doubted.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let (found, stored) = self.load().await?;
        let known = |found: &Specs<R>| found.iter().eq(list.iter().filter(|(_, object)| object.is_some()));
        let is_intact = found.as_ref().is_some_and(known) && stored.says(remembered);
        self.doubted.store(!is_intact, Ordering::Relaxed);
        Ok(is_intact)
    }

    /// The compressed list; None if its parts are not of one list.
    async fn whole(&self, mut first: Data) -> Result<Option<Vec<u8>>, kube::Error> {
        let mut take = |key: &str| first.remove(key).unwrap_or_default().0;
        let (mut whole, digest) = (take(PART), take(DIGEST));
        let count = str::from_utf8(&take(PARTS))
            .ok()
            .and_then(|text| text.parse::<usize>().ok());
        for number in 1..count.unwrap_or_default().min(MAX_LIST_BYTES / MAX_PART_BYTES) {
            let part = self.part(number).await?;
            whole.extend(part.and_then(|mut data| data.remove(PART)).unwrap_or_default().0);
        }
        Ok((digest == sha256(&whole).as_bytes()).then_some(whole))
    }

    async fn part(&self, number: usize) -> Result<Option<Data>, kube::Error> {
        let secret = self.secrets.get_opt(&cloud_list_secret(self.kind, number)).await?;
        Ok(secret.map(|secret| secret.data.unwrap_or_default()))
    }

    /// Stores the list and what the brake remembers, if it is something else than the Secrets have. An object of which
    /// it is not known how the cloud lists it stays as it is stored.
    pub(super) async fn write(
        &self,
        writer: &Writer,
        list: Arc<Specs<R>>,
        remembered: Remembered,
    ) -> Result<(), StoreError> {
        let before = self.read().await?;
        let list = before
            .as_ref()
            .map_or_else(|| Arc::clone(&list), |before| completed(&list, before));
        let is_stored = before.is_some_and(|before| before == list) && self.remembered().says(&remembered);
        if is_stored && self.is_intact(&list, &remembered).await? {
            return Ok(());
        }
        let whole = pack(&list)?;
        let brake = pack_remembered(&remembered)?;
        let (first, rest) = whole.split_at((MAX_PART_BYTES - brake.len()).min(whole.len()));
        let parts: Vec<&[u8]> = iter::once(first).chain(rest.chunks(MAX_PART_BYTES)).collect();
        for (number, part) in parts.iter().enumerate().rev() {
            let mut data: Data = [(PART.to_owned(), ByteString(part.to_vec()))].into();
            if number == 0 {
                data.insert(PARTS.to_owned(), ByteString(parts.len().to_string().into_bytes()));
                data.insert(DIGEST.to_owned(), ByteString(sha256(&whole).into_bytes()));
                if !brake.is_empty() {
                    data.insert(BRAKE.to_owned(), ByteString(brake.clone()));
                }
            }
            let secret = list_secret(self.kind, number, Some(data));
            writer.apply(&secret, None).await?;
        }
        self.delete_surplus(writer, parts.len()).await?;
        self.remember(remembered);
        *self.stored.lock() = Stored::List(list);
        self.doubted.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Deletes the parts of larger lists, also of one that a killed process or damage left.
    async fn delete_surplus(&self, writer: &Writer, parts: usize) -> Result<(), StoreError> {
        let needed: BTreeSet<String> = (0..parts).map(|number| cloud_list_secret(self.kind, number)).collect();
        let of_kind = ListParams::default().labels(&format!("{CLOUD_LIST_LABEL}={}", self.kind));
        for secret in self.secrets.list_metadata(&of_kind).await? {
            if needed.contains(&secret.name_any()) {
                continue;
            }
            writer.delete::<Secret>(&secret.metadata).await?;
        }
        Ok(())
    }

    /// The Secrets were deleted: the next list is stored again.
    pub(super) fn forget(&self) {
        *self.stored.lock() = Stored::Nothing;
    }
}

/// A Secret of what the cloud listed of a kind.
pub(crate) fn list_secret(kind: &str, number: usize, data: Option<Data>) -> Secret {
    let mut metadata = named(&cloud_list_secret(kind, number));
    metadata.labels = Some([(CLOUD_LIST_LABEL.to_owned(), kind.to_owned())].into());
    Secret {
        metadata,
        data,
        type_: Some("tidewaiter.dev/cloud-list".to_owned()),
        ..Secret::default()
    }
}

/// The list, with the objects of which it does not say how the cloud lists them as they were listed before.
fn completed<R>(list: &Arc<Specs<R>>, before: &Specs<R>) -> Arc<Specs<R>> {
    if list.values().all(Option::is_some) {
        return Arc::clone(list);
    }
    let as_before = |name: &String| before.get(name).cloned().flatten();
    let objects = list.iter();
    let objects = objects.map(|(name, object)| (name.clone(), object.clone().or_else(|| as_before(name))));
    Arc::new(objects.collect())
}

/// The objects of which it is known how the cloud lists them, compressed.
fn pack<R: Serialize>(list: &Specs<R>) -> Result<Vec<u8>, StoreError> {
    let objects: Vec<&R> = list.values().flatten().map(|object| &**object).collect();
    // What was decoded from JSON can be written as JSON.
    let text = serde_json::to_vec(&objects).unwrap_or_default();
    if text.len() > MAX_LIST_BYTES {
        return Err(StoreError::TooLarge(text.len()));
    }
    Ok(compress_prepend_size(&text))
}

/// The memory of the brake, compressed; empty if there is none. A memory that does not fit beside the list loses the
/// additions: the deletions are what a wrong list must not go on with.
fn pack_remembered(remembered: &Remembered) -> Result<Vec<u8>, StoreError> {
    if *remembered == Remembered::default() {
        return Ok(Vec::new());
    }
    let pack = |remembered: &Remembered| compress_prepend_size(&serde_json::to_vec(remembered).unwrap_or_default());
    let mut packed = pack(remembered);
    if packed.len() > MAX_PART_BYTES / 2 {
        packed = pack(&Remembered {
            added: BTreeMap::new(),
            ..remembered.clone()
        });
    }
    if packed.len() > MAX_PART_BYTES {
        return Err(StoreError::TooLarge(packed.len()));
    }
    Ok(packed)
}

fn unpack_json<T: DeserializeOwned>(packed: &[u8]) -> Option<T> {
    let size = packed.first_chunk().map(|size| u32::from_le_bytes(*size) as usize)?;
    if size > MAX_LIST_BYTES {
        return None;
    }
    let text = decompress_size_prepended(packed).ok()?;
    serde_json::from_slice(&text).ok()
}

fn unpack<R: Cacheable + DeserializeOwned>(packed: &[u8]) -> Option<Specs<R>> {
    let objects: Vec<R> = unpack_json(packed)?;
    let named = objects
        .into_iter()
        .map(|object| Some((object.meta().name.clone()?, Some(Arc::new(object)))));
    named.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewaiter_api::containership::{AuthorizationRole, Registry};

    use super::*;

    fn stored<R: Cacheable + Serialize + DeserializeOwned + PartialEq>(object: serde_json::Value) {
        let object: R = serde_json::from_value(object).unwrap();
        let list: Specs<R> = [("a".to_owned(), Some(Arc::new(object))), ("b".to_owned(), None)].into();
        let mut known = list.clone();
        known.retain(|_, object| object.is_some());
        assert_eq!(unpack(&pack(&list).unwrap()).unwrap(), known);
    }

    #[test]
    fn what_is_stored_is_what_is_read() {
        stored::<AuthorizationRole>(
            json!({"metadata": {"name": "a", "finalizers": ["f"]}, "spec": {"id": "a", "rules": [
            {"type": "kubernetes", "api_groups": [""], "resources": ["pods"], "verbs": ["get"]}]}}),
        );
        stored::<Registry>(
            json!({"metadata": {"name": "a"}, "spec": {"id": "a", "credentials": {"password": "hunter2"}}}),
        );
        let data: BTreeMap<_, _> = [("credentials.json", ByteString(vec![0, 159, 146, 150]))].into();
        stored::<Secret>(json!({"metadata": {"name": "a", "labels": {"l": "x"}}, "data": data, "type": "Opaque"}));
    }

    #[test]
    fn what_is_too_large_to_be_read_is_not_stored() {
        let key = "k".repeat(MAX_LIST_BYTES);
        let role = json!({"metadata": {"name": "a", "annotations": {"large": key}}, "spec": {"id": "a", "rules": []}});
        let role: AuthorizationRole = serde_json::from_value(role).unwrap();
        let list: Specs<_> = [("a".to_owned(), Some(Arc::new(role)))].into();
        assert!(matches!(pack(&list), Err(StoreError::TooLarge(_))));
    }

    #[test]
    fn what_is_damaged_is_no_list() {
        let list: Specs<AuthorizationRole> = Specs::new();
        let packed = pack(&list).unwrap();
        assert_eq!(unpack(&packed), Some(list));
        for damaged in [
            &[][..],
            &packed[..packed.len() - 1],
            &[255, 255, 255, 255, 0],
            &pack::<Secret>(&Specs::new()).unwrap()[..3],
        ] {
            assert_eq!(unpack::<AuthorizationRole>(damaged), None, "{damaged:?}");
        }
    }
}
