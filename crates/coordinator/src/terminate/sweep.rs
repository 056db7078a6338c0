//! Removes the objects of the table, as the leader. Every deletion names the uid and the version that was listed, so an
//! object that was created again or changed meanwhile is left to the next sweep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::ListParams;
use kube::core::{ListMeta, ObjectList, ObjectMeta, TypeMeta};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidewaiter_api::names::{AUTHORIZATION_ROLE_BINDING_FINALIZER, AUTHORIZATION_ROLE_FINALIZER, UPGRADE_FINALIZER};
use tidewaiter_cloud::models::{CLUSTER_LABEL_PREFIX, NODE_POOL_LABEL_PREFIX};
use tidewaiter_kit::client::optional;
use tidewaiter_kit::{Cache, Cacheable, Chain, Next, Pass, Reconciler, SharedClock, WriteError, Writer};
use tracing::info;

mod error;
mod plugins;

use super::leftover::Leftover;
use super::marker::{Marker, Progress, State, progressed, removed};
use super::marker_key;
use super::table::{CLOUD_SYNCS, Ours, Row, table};
use crate::controllers::{Account, PluginRemoval, detached};
use crate::mirror::CLOUD_SYNC_CONTROLLER;
use error::Failure;
pub(super) use error::SweepError;

/// Writes at once.
const CONCURRENCY: usize = 16;
/// Objects in a page of a list. The marker is written after each page.
const PAGE: u32 = 500;
/// The finalizers of the controllers.
const OUR_FINALIZERS: [&str; 3] = [
    AUTHORIZATION_ROLE_FINALIZER,
    AUTHORIZATION_ROLE_BINDING_FINALIZER,
    UPGRADE_FINALIZER,
];
/// Until the next sweep after one that removed something: what it missed was in flight.
const AGAIN: Duration = Duration::from_secs(1);
/// Until the next sweep while something waits for a finalizer.
const WAITING: Duration = Duration::from_secs(5);
/// Until the next sweep when nothing was left.
const WATCHFUL: Duration = Duration::from_mins(1);

/// The controller that removes everything while there is a marker.
pub(super) struct Terminator {
    client: Client,
    writer: Writer,
    plugins: PluginRemoval,
    markers: Cache<Marker>,
    leftover: Leftover,
    /// Writes as the controller of `CloudSync`.
    shows: Writer,
    clock: SharedClock,
    counts: Mutex<Counts>,
}

/// The number of objects removed for one marker, by row.
#[derive(Default)]
struct Counts {
    marker: Option<String>,
    removed: BTreeMap<&'static str, u64>,
}

/// The result of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    removed: u64,
    /// Objects that are being deleted: a finalizer keeps them.
    waiting: u64,
}

impl Terminator {
    pub(super) fn new(
        client: Client,
        plugins: PluginRemoval,
        leftover: Leftover,
        markers: Cache<Marker>,
        clock: SharedClock,
    ) -> Self {
        Self {
            writer: Writer::new(client.clone(), Self::NAME, Arc::clone(&clock)),
            shows: Writer::new(client.clone(), CLOUD_SYNC_CONTROLLER, Arc::clone(&clock)),
            leftover,
            clock,
            plugins,
            client,
            markers,
            counts: Mutex::default(),
        }
    }

    fn is_requested(&self) -> bool {
        self.markers.get(&marker_key()).is_some()
    }

    /// Goes on with the counts of the marker, which another replica may have begun.
    fn resume(&self, marker: &Marker) {
        let mut counts = self.counts.lock();
        if counts.marker != marker.metadata.uid {
            let rows = table().into_iter().map(|row| (row.name, removed(marker, row.name)));
            counts.removed = rows.filter(|(_, count)| *count > 0).collect();
            counts.marker.clone_from(&marker.metadata.uid);
        }
    }

    fn add(&self, row: &'static str, removed: u64) {
        let mut counts = self.counts.lock();
        *counts.removed.entry(row).or_default() += removed;
    }

    /// Writes the progress to the marker, if it still exists.
    async fn record(&self, state: State, message: &str) -> Result<(), SweepError> {
        let Some(marker) = self.markers.get(&marker_key()).filter(|marker| !marker.is_immutable()) else {
            return Ok(());
        };
        let desired = {
            let counts = self.counts.lock();
            progressed(state, message, &counts.removed)
        };
        match self.writer.apply(&desired, Some(&marker)).await {
            Err(error) if !error.is_conflict() && !error.is_gone() => Err(SweepError::write("marker", error)),
            _ => Ok(()),
        }
    }
}

impl Reconciler for Terminator {
    const NAME: &'static str = "terminate";
    type Error = SweepError;

    async fn reconcile(&self, _: &mut Pass) -> Result<Next, SweepError> {
        let Some(marker) = self.markers.get(&marker_key()) else {
            return Ok(Next::UntilChanged);
        };
        self.resume(&marker);
        let (mut removed, mut waiting, mut failed) = (0, Vec::new(), None);
        let shown = self.leftover.check().err();
        // What it shows itself is not to be removed.
        for row in table().iter().filter(|row| shown.is_none() || row.name != CLOUD_SYNCS) {
            if !self.is_requested() {
                return Ok(Next::UntilChanged);
            }
            match row.sweep(self).await {
                Ok(count) => {
                    removed += count.removed;
                    if count.waiting > 0 {
                        waiting.push(format!("{} {}", count.waiting, row.name));
                    }
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            let message = Chain(&error).to_string();
            self.record(State::Removing, &message).await?;
            return Err(error);
        }
        if !waiting.is_empty() {
            let message = format!("waits until the finalizers of {} are removed", waiting.join(", "));
            self.record(State::Removing, &message).await?;
            return Ok(Next::After(WAITING));
        }
        if removed > 0 {
            self.record(State::Removing, "").await?;
            return Ok(Next::After(AGAIN));
        }
        if !Progress::of(&marker).is_complete() {
            info!("terminated: nothing that the coordinator manages is left");
        }
        self.record(State::Removed, "").await?;
        if let Some(message) = shown {
            let written = self.leftover.show(&message, &self.shows, &self.clock).await;
            written.map_err(|error| SweepError::write(CLOUD_SYNCS, error))?;
        }
        Ok(Next::After(WATCHFUL))
    }
}

impl Terminator {
    /// Removes what is ours of a kind, page by page, until the marker is gone.
    pub(super) async fn remove<K: Cacheable + DeserializeOwned>(
        &self,
        row: &Row,
        api: Api<K>,
    ) -> Result<Count, SweepError> {
        let (mut count, mut params) = (Count::default(), ListParams::default().limit(PAGE));
        (params.label_selector, params.field_selector) = row.ours.selectors();
        let mut failed: Vec<WriteError> = Vec::new();
        while self.is_requested() {
            let page = list(row, api.list_metadata(&params).await)?;
            let all = page.items.into_iter().map(|item| item.metadata);
            let goes = |meta: &ObjectMeta| meta.deletion_timestamp.is_some() && !matches!(row.ours, Ours::Prefixes);
            let (going, mut staying): (Vec<_>, Vec<_>) = all.filter(|meta| is_ours(row, meta)).partition(goes);
            let (held, waiting): (Vec<_>, Vec<_>) = going.into_iter().partition(has_our_finalizer);
            count.waiting += waiting.len() as u64;
            staying.extend(held);
            let removals = staying.into_iter().map(|meta| self.remove_one::<K>(row.ours, meta));
            count.removed += self.finish(row, removals, &mut failed).await?;
            if !turn(&mut params, page.metadata) {
                break;
            }
        }
        outcome(row, count, failed)
    }

    /// Takes the entries of ours from the service accounts of others, which stay.
    pub(super) async fn detach(&self, row: &Row) -> Result<Count, SweepError> {
        let (mut count, mut params) = (Count::default(), ListParams::default().limit(PAGE));
        let api = Api::<Account>::all(self.client());
        let mut failed: Vec<WriteError> = Vec::new();
        while self.is_requested() {
            let page = list(row, api.list(&params).await)?;
            let others = page.items.iter().filter(|account| !account.is_the_managed_one());
            let patches: Vec<_> = others
                .filter_map(|account| Some((account.meta().clone(), detached(account)?)))
                .collect();
            let writer = &self.writer;
            let removals = patches.into_iter().map(|(meta, patch)| async move {
                let written = writer.patch::<ServiceAccount>(&meta, patch).await;
                written.map(|_| true)
            });
            count.removed += self.finish(row, removals, &mut failed).await?;
            if !turn(&mut params, page.metadata) {
                break;
            }
        }
        outcome(row, count, failed)
    }

    /// Performs the writes of one page and records the progress. Returns how many objects were removed.
    async fn finish<F>(
        &self,
        row: &Row,
        removals: impl Iterator<Item = F>,
        failed: &mut Vec<WriteError>,
    ) -> Result<u64, SweepError>
    where
        F: Future<Output = Result<bool, WriteError>>,
    {
        let results: Vec<_> = stream::iter(removals).buffer_unordered(CONCURRENCY).collect().await;
        let mut removed = 0;
        for result in results {
            match result {
                Ok(is_removed) => removed += u64::from(is_removed),
                Err(error) if error.is_gone() => {}
                Err(error) => failed.push(error),
            }
        }
        if removed > 0 {
            self.add(row.name, removed);
            self.record(State::Removing, "").await?;
        }
        Ok(removed)
    }

    /// Deletes the object without our finalizers, whose controllers pause, or removes our labels from it. Returns false
    /// if it is gone.
    async fn remove_one<K: Resource<DynamicType = ()>>(
        &self,
        ours: Ours,
        meta: ObjectMeta,
    ) -> Result<bool, WriteError> {
        let Ours::Prefixes = ours else {
            let meta = self.release::<K>(meta).await?;
            return match meta.deletion_timestamp {
                None => self.writer.delete::<K>(&meta).await,
                Some(_) => Ok(true),
            };
        };
        let labels: serde_json::Map<String, Value> = our_labels(&meta).map(|key| (key.clone(), Value::Null)).collect();
        let patch = json!({"metadata": {"labels": labels}});
        self.writer.patch::<K>(&meta, patch).await.map(|_| true)
    }

    /// Removes our finalizers: what they wait for was removed before.
    async fn release<K: Resource<DynamicType = ()>>(&self, meta: ObjectMeta) -> Result<ObjectMeta, WriteError> {
        if !has_our_finalizer(&meta) {
            return Ok(meta);
        }
        let all = meta.finalizers.iter().flatten();
        let others: Vec<&String> = all.filter(|it| !OUR_FINALIZERS.contains(&it.as_str())).collect();
        let patch = json!({"metadata": {"finalizers": others}});
        self.writer.patch::<K>(&meta, patch).await
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }
}

/// A page of the objects; empty if the kind is not defined in this cluster.
fn list<T: Clone>(row: &Row, listed: Result<ObjectList<T>, kube::Error>) -> Result<ObjectList<T>, SweepError> {
    let listed = optional(listed).map_err(|error| SweepError {
        row: row.name,
        failed: Box::new(Failure::List(error)),
    })?;
    Ok(listed.unwrap_or_else(|| ObjectList {
        types: TypeMeta::default(),
        metadata: ListMeta::default(),
        items: Vec::new(),
    }))
}

/// Returns true if there is another page; then the parameters ask for it.
fn turn(params: &mut ListParams, page: ListMeta) -> bool {
    params.continue_token = page.continue_.filter(|token| !token.is_empty());
    params.continue_token.is_some()
}

fn outcome(row: &Row, count: Count, failed: Vec<WriteError>) -> Result<Count, SweepError> {
    let failures = failed.len();
    match failed.into_iter().next() {
        None => Ok(count),
        Some(first) => Err(SweepError {
            row: row.name,
            failed: Box::new(Failure::Write { count: failures, first }),
        }),
    }
}

fn has_our_finalizer(meta: &ObjectMeta) -> bool {
    let mut all = meta.finalizers.iter().flatten();
    all.any(|finalizer| OUR_FINALIZERS.contains(&finalizer.as_str()))
}

fn is_ours(row: &Row, meta: &ObjectMeta) -> bool {
    match row.ours {
        Ours::Prefixes => our_labels(meta).next().is_some(),
        ours => ours.owns(meta),
    }
}

fn our_labels(node: &ObjectMeta) -> impl Iterator<Item = &String> {
    let keys = node.labels.iter().flat_map(BTreeMap::keys);
    keys.filter(|key| {
        [CLUSTER_LABEL_PREFIX, NODE_POOL_LABEL_PREFIX]
            .iter()
            .any(|prefix| key.starts_with(prefix))
    })
}
