//! The requests of a kind: its lists, those of the node pools, and the record of deletions.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{Resource as _, ResourceExt as _};
use tidewaiter_cloud::client::{ClientError, ETag, Fetched, Path};
use tidewaiter_cloud::models::NodePool;
use tidewaiter_kit::Key;
use tracing::warn;

use super::{ListError, Lister, Poll};
use crate::explained::{explained, silent};
use crate::mirror::kind::{Listed, MirroredKind, Refused, Source};
use crate::mirror::listing::{Listing, Part};
use crate::mirror::record::Record;

/// A request without a complete response for this long is reported in `CloudSync`, while it is still awaited.
const SILENCE: Duration = Duration::from_secs(5);

/// The silence of the record of deletions: no list that lacks something is in force meanwhile.
const RECORD_SILENCE: Duration = Duration::from_secs(2);

/// Lists that are requested at once.
const AT_ONCE: usize = 8;

/// The last complete responses.
pub(in crate::mirror) struct Memory<R> {
    pools: Pools,
    /// By path.
    parts: BTreeMap<String, Arc<Part<R>>>,
    /// The number of the change up to which all of them are current, if the cloud says it.
    pub(super) change: Option<u64>,
}

/// The node pools, if the kind is listed for each of them.
#[derive(Clone, Default, PartialEq)]
struct Pools {
    etag: Option<ETag>,
    /// The well-formed ones.
    well_formed: Vec<NodePool>,
    /// The malformed ones. What they have is not known, so nothing that is missing is known to be gone.
    refused: Vec<Refused>,
}

impl<R> Default for Memory<R> {
    fn default() -> Self {
        Self {
            pools: Pools::default(),
            parts: BTreeMap::new(),
            change: None,
        }
    }
}

impl<R: kube::Resource + Clone> Memory<R> {
    /// All parts together.
    pub(super) fn listing(&self, kind: &str) -> Listing<R> {
        let parts = self.parts.values().map(|part| &**part);
        Listing::of(kind, parts, self.pools.refused.clone())
    }
}

impl<K: MirroredKind> Lister<K> {
    /// Requests every list of the kind; true when one of them changed. An error leaves the memory as it was.
    ///
    /// The requests are conditional, except while the last list is doubted: a wrong list may have come with the `ETag`
    /// of the right one, and 304 would confirm it.
    pub(super) async fn fetch(&mut self, poll: Poll) -> Result<bool, ListError> {
        // Before the first list takes effect.
        self.stored().await?;
        let is_doubted = matches!(poll, Poll::Recheck(_)) || self.board.is_held(K::NAME);
        let cluster = self.cloud.cluster;
        let (pools, of_pools, paths) = match K::LISTED {
            Listed::At(path) => (None, None, vec![(path(cluster), None)]),
            Listed::OfEachPool(path) => {
                let (pools, change) = self.pools(is_doubted).await?;
                let known = pools.as_ref().unwrap_or(&self.memory.pools);
                let paths = known
                    .well_formed
                    .iter()
                    .map(|pool| (path(cluster, pool.id), Some(pool.clone())));
                let paths = paths.collect();
                (pools, Some(change), paths)
            }
        };
        let parts = paths
            .into_iter()
            .map(|(path, pool)| self.part(path, Source { cluster, pool }, is_doubted));
        let parts: Vec<_> = stream::iter(parts).buffered(AT_ONCE).try_collect().await?;
        let changed = pools.is_some() || parts.iter().any(|(_, part, _)| part.is_some());
        let as_of = parts.iter().map(|(.., change)| *change).chain(of_pools);
        self.memory.change = as_of.min().flatten();
        let mut before = std::mem::take(&mut self.memory.parts);
        let latest = parts.into_iter().filter_map(|(name, part, _)| {
            let part = part.or_else(|| before.remove(&name))?;
            Some((name, part))
        });
        self.memory.parts = latest.collect();
        if let Some(pools) = pools {
            self.memory.pools = pools;
        }
        Ok(changed)
    }

    /// The node pools, unless they are unchanged, and the number of the change up to which they are current.
    async fn pools(&self, is_doubted: bool) -> Result<(Option<Pools>, Option<u64>), ListError> {
        let path = self.cloud.cluster.node_pools();
        let known = self.memory.pools.etag.as_ref().filter(|_| !is_doubted);
        let client = self.retries.client();
        let response = client.list_each_as_of::<NodePool>(path, known);
        let (fetched, change) = self.await_list(response).await?;
        let Fetched::Complete { value, etag } = fetched else {
            return Ok((None, change));
        };
        let mut latest = Pools {
            etag,
            ..Pools::default()
        };
        for pool in value {
            match pool {
                Ok(pool) => latest.well_formed.push(pool),
                Err(invalid) => latest.refused.push(Refused::new(None, &invalid)),
            }
        }
        Ok(((latest != self.memory.pools).then_some(latest), change))
    }

    /// Requests one list by its name, unless it is unchanged.
    async fn part(&self, path: Path, source: Source, is_doubted: bool) -> Result<NamedPart<K::Resource>, ListError> {
        let name = path.to_string();
        let known = self.memory.parts.get(&name).filter(|part| part.source == source);
        let etag = known.and_then(|part| part.etag.as_ref()).filter(|_| !is_doubted);
        let client = self.retries.client();
        let response = client.list_each_as_of::<K::Object>(path, etag);
        let (fetched, change) = self.await_list(response).await?;
        let part = match fetched {
            Fetched::Unchanged => None,
            Fetched::Complete { value, etag } => {
                let latest = Part::new(&self.shared.kind, source, value, etag)?;
                known.is_none_or(|known| **known != latest).then(|| Arc::new(latest))
            }
        };
        Ok((name, part, change))
    }

    async fn await_list<T>(&self, response: impl Future<Output = T>) -> T {
        let text = || silent(SILENCE, &self.cloud.client);
        self.await_response(response, SILENCE, text).await
    }

    /// Awaits the response to one request, and reports that there is none within `limit`.
    async fn await_response<T>(
        &self,
        response: impl Future<Output = T>,
        limit: Duration,
        text: impl Fn() -> String,
    ) -> T {
        let mut response = pin!(response);
        tokio::select! {
            biased;
            response = &mut response => return response,
            () = self.clock.sleep(limit) => {}
        }
        let text = text();
        if self.board.late(K::NAME, &text) {
            warn!(
                kind = K::NAME,
                error = text,
                "the cloud's list is late; the last one stays"
            );
        }
        response.await
    }

    /// The cloud's record of deletions, if something is held, or the list lacks an object of the cluster, or one that
    /// was listed before. It is read after the list, so it names each deletion that the list shows.
    pub(super) async fn record(&self, listing: &Listing<K::Resource>) -> Record {
        if !self.board.is_held(K::NAME) && !self.is_anything_missing(listing) {
            return Record::Names(BTreeSet::new());
        }
        let silence = silent(RECORD_SILENCE, &self.cloud.client);
        let text = || format!("the record of deletions, which a list that lacks objects waits for: {silence}");
        let response = self.cloud.client.deletions(self.cloud.cluster);
        match self.await_response(response, RECORD_SILENCE, text).await {
            Ok(deletions) => {
                self.has_record.remember().await;
                let of_kind = deletions.iter().filter(|deletion| K::CHANGED.contains(&deletion.kind));
                self.unread.store(false, Ordering::Relaxed);
                Record::Names(of_kind.map(|deletion| K::name(deletion.id)).collect())
            }
            Err(ClientError::NotOurs { .. }) if self.has_record.is_unknown().await => Record::Absent,
            Err(error) => {
                if !self.unread.swap(true, Ordering::Relaxed) {
                    let error = explained(&error, &self.cloud.client);
                    warn!(kind = K::NAME, error, "the cloud's record of deletions cannot be read");
                }
                Record::Unread
            }
        }
    }

    fn is_anything_missing(&self, listing: &Listing<K::Resource>) -> bool {
        let listed: BTreeSet<&str> = listing.desired.keys().map(Key::name).collect();
        let is_missing = |name: &str| !listed.contains(name) && !listing.refuses(name) && !listing.is_unmirrored(name);
        let is_mirrored =
            |object: &Arc<K::Resource>| object.meta().deletion_timestamp.is_none() && self.shared.kind.ours(object);
        let known = self.stored.before(&self.shared.list).unwrap_or_default();
        let mut cluster = self.cache.iter().filter(is_mirrored).map(|object| object.name_any());
        known.keys().any(|name| is_missing(name)) || cluster.any(|name| is_missing(&name))
    }
}

/// The name of a list, what it contains unless it is unchanged, and the number of the change up to which it is current.
type NamedPart<R> = (String, Option<Arc<Part<R>>>, Option<u64>);
