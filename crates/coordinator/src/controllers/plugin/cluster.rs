//! The requests of the plugin controller to the API server, about objects of any kind.
//!
//! Only objects that a version or an inventory names are read, in their namespaces ([`observe`]): what others create,
//! with or without the label of a plugin, costs no request. Only an object with the label is ever changed or deleted,
//! and each of these writes names its uid.
//!
//! What may not be read is observed as unreadable, object by object: it keeps no other.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, GroupVersion, ObjectMeta};
use kube::discovery::{Scope, pinned_group};
use kube::{Api, Client, Error};
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tidewaiter_kit::client::{optional, path_segment};
use tidewaiter_kit::writer::NO_VERSION;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::settings::{ByPlugin, Identity, PluginAccount};
use crate::controllers::plugin::desired::{Object, ObjectId};
use crate::controllers::plugin::report::Problem;
use claim::{has_fields, has_label, our_fields, writes};
use health::{health, is_inert};

mod apply;
mod claim;
mod definitions;
mod follow;
mod health;
mod observe;
mod plan;
mod read;
mod remove;
mod wake;

pub(super) use apply::{Applier, Performed, Work, perform_writes};
pub(super) use follow::Followed;
pub(super) use health::{Health, JobState};
pub(super) use observe::{Claim, Live, Observed, Seen};
pub(super) use plan::{Waits, plan, runs_again};
pub(crate) use remove::PluginRemoval;
pub(super) use remove::Removed;
pub(super) use wake::Wakes;

/// The field manager of the objects of plugins.
pub(crate) const MANAGER: &str = "tidewaiter/plugin";
/// Objects in a page of a list. Others decide how large each is.
pub(crate) const PAGE: u32 = 50;
/// Pods of a failed job among which the newest is looked for.
const PODS: u32 = 20;
/// The end of the log of a failed job.
const TAIL_LINES: i64 = 10;
const TAIL_BYTES: usize = 400;

/// A kind that the API server serves.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

/// The place in which objects of a kind are listed and watched.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    /// Without it, everywhere.
    pub(crate) namespace: Option<String>,
}

/// An object that was applied.
pub(crate) struct Written {
    pub(crate) uid: String,
    /// The digest of the fields that are ours.
    pub(crate) fields: String,
}

/// The API server.
pub(crate) struct Cluster {
    /// Of the coordinator itself: it discovers the kinds.
    own: Client,
    /// For requests about objects.
    pub(crate) client: Client,
    /// The identity of `client`; None is the coordinator itself.
    pub(crate) account: Option<PluginAccount>,
    /// The kinds of each group and version. One that is missing is requested again.
    known: Mutex<HashMap<GroupVersion, Arc<Vec<Kind>>>>,
}

impl Cluster {
    /// `own` must be a fenced one.
    pub(crate) fn new(own: &Client, account: Option<PluginAccount>) -> Self {
        Self {
            own: own.clone(),
            client: account
                .as_ref()
                .map_or_else(|| own.clone(), |account| account.client(own)),
            account,
            known: Mutex::default(),
        }
    }

    /// The kind, if the API server serves it.
    pub(crate) async fn kind(&self, group: &str, version: &str, kind: &str) -> Result<Option<Kind>, Error> {
        // An inventory that somebody has edited may say anything.
        if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(None);
        }
        let group_version = GroupVersion::gv(group, version);
        let find = |kinds: &[Kind]| kinds.iter().find(|known| known.resource.kind == kind).cloned();
        let known = self.known.lock().get(&group_version).and_then(|kinds| find(kinds));
        if known.is_some() {
            return Ok(known);
        }
        let Some(served) = optional(pinned_group(&self.own, &group_version).await)? else {
            return Ok(None);
        };
        let kinds: Vec<Kind> = served
            .versioned_resources(version)
            .into_iter()
            // A review or a binding is created and not stored: there is nothing that a plugin could have of it.
            .filter(|(_, capabilities)| capabilities.supports_operation("get"))
            .map(|(resource, capabilities)| Kind {
                resource,
                namespaced: capabilities.scope == Scope::Namespaced,
            })
            .collect();
        let found = find(&kinds);
        self.known.lock().insert(group_version, Arc::new(kinds));
        Ok(found)
    }

    /// Applies the object. With `uid`, it changes that one only; without, it creates the object, and fails if one has
    /// appeared meanwhile.
    pub(crate) async fn apply(&self, id: &ObjectId, object: &Object, uid: Option<&str>) -> Result<Written, Error> {
        let kind = self.served(id, &object.version).await?;
        let (params, body) = applied(&kind, id, object, uid)?;
        let (api, name) = (self.api(&kind, id), path_segment(&id.name));
        let apply = async move {
            let written = api.patch_metadata(&name, &params, &Patch::Apply(body)).await?;
            Ok(Written {
                fields: our_fields(&written.metadata),
                uid: written.metadata.uid.unwrap_or_default(),
            })
        };
        in_a_task(apply).await
    }

    /// The result of [`Cluster::apply`], from a dry run of the API server.
    pub(crate) async fn dry_run(&self, id: &ObjectId, object: &Object, uid: Option<&str>) -> Result<Value, Error> {
        let kind = self.served(id, &object.version).await?;
        let (mut params, body) = applied(&kind, id, object, uid)?;
        params.dry_run = true;
        let rendered = self
            .api(&kind, id)
            .patch(&path_segment(&id.name), &params, &Patch::Apply(body))
            .await?;
        serde_json::to_value(rendered).map_err(Error::SerdeError)
    }

    /// The existing object, or None.
    pub(crate) async fn get(&self, id: &ObjectId, version: &str) -> Result<Option<Value>, Error> {
        let kind = self.served(id, version).await?;
        let found = self.api(&kind, id).get_opt(&path_segment(&id.name)).await?;
        found.map(serde_json::to_value).transpose().map_err(Error::SerdeError)
    }

    /// Deletes the object with this uid, and what it owns.
    pub(crate) async fn delete(&self, id: &ObjectId, version: &str, uid: &str) -> Result<(), Error> {
        let Some(kind) = self.kind_in_any_version(&id.group, version, &id.kind).await? else {
            return Ok(());
        };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let deleted = self.api(&kind, id).delete(&path_segment(&id.name), &params).await;
        optional(deleted).map(drop)
    }

    /// The end of the log of the job's newest pod, in one line, if it can be read.
    pub(crate) async fn log_tail(&self, job: &ObjectId) -> Option<String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &job.namespace);
        let of_job = ListParams::default()
            .labels(&format!("batch.kubernetes.io/job-name={}", job.name))
            .limit(PODS);
        let pods_of_job = pods.list(&of_job).await.ok()?.items;
        let newest = pods_of_job
            .into_iter()
            .max_by_key(|pod| pod.metadata.creation_timestamp.clone())?;
        let params = LogParams {
            tail_lines: Some(TAIL_LINES),
            ..LogParams::default()
        };
        let log = pods.logs(&newest.metadata.name?, &params).await.ok()?;
        let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let line = lines.join(" | ");
        let start = line.ceil_char_boundary(line.len().saturating_sub(TAIL_BYTES));
        Some(line[start..].to_owned()).filter(|tail| !tail.is_empty())
    }

    async fn served(&self, id: &ObjectId, version: &str) -> Result<Kind, Error> {
        let kind = self.kind(&id.group, version, &id.kind).await?;
        kind.ok_or_else(|| {
            let missing = format!("{:?}", id.in_version(version));
            Error::Discovery(kube::error::DiscoveryError::MissingKind(missing))
        })
    }

    pub(crate) fn api(&self, kind: &Kind, id: &ObjectId) -> Api<DynamicObject> {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), &id.namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        }
    }

    fn forget(&self, kind: &Kind) {
        let group_version = GroupVersion::gv(&kind.resource.group, &kind.resource.version);
        self.known.lock().remove(&group_version);
    }
}

/// Runs a request in a task of its own, which ends with the pass: the hundreds of requests of a plugin are written and
/// read on all cores, and not one after the other in its pass.
async fn in_a_task<T: Send + 'static>(
    request: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let mut task = JoinSet::new();
    task.spawn(request.in_current_span());
    let ended = task
        .join_next()
        .await
        .transpose()
        .map_err(|error| Error::Service(error.into()))?;
    ended.unwrap_or_else(|| Err(Error::Service("the task of a request is gone".into())))
}

/// The request that applies the object. With `uid`, that one only is changed; without, it is created, and nothing is
/// changed.
fn applied(
    kind: &Kind,
    id: &ObjectId,
    object: &Object,
    uid: Option<&str>,
) -> Result<(PatchParams, Box<RawValue>), Error> {
    let mut body = object.manifest.fields().map_err(Error::SerdeError)?;
    let metadata = body.get("metadata").map_or("null", |text| text.get());
    let mut metadata: Value = serde_json::from_str(metadata).map_err(Error::SerdeError)?;
    if kind.namespaced {
        metadata["namespace"] = json!(id.namespace);
    } else if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("namespace");
    }
    let mut params = PatchParams::apply(MANAGER);
    match uid {
        Some(uid) => {
            metadata["uid"] = json!(uid);
            params = params.force();
        }
        None => metadata["resourceVersion"] = json!(NO_VERSION),
    }
    let metadata = to_raw_value(&metadata).map_err(Error::SerdeError)?;
    body.insert("metadata".to_owned(), metadata);
    Ok((params, to_raw_value(&body).map_err(Error::SerdeError)?))
}

pub(crate) fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 403)
}

pub(crate) fn with_metadata(metadata: ObjectMeta) -> DynamicObject {
    DynamicObject {
        types: None,
        metadata,
        data: json!({}),
    }
}

pub(crate) fn live(kind: &Kind, object: &DynamicObject) -> (ObjectId, Live) {
    let ApiResource { group, kind, .. } = &kind.resource;
    let meta = &object.metadata;
    let id = ObjectId {
        group: group.clone(),
        kind: kind.clone(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    };
    let value = || serde_json::to_value(object).unwrap_or_default();
    let is_job = (group.as_str(), kind.as_str()) == ("batch", "Job");
    let live = Live {
        uid: meta.uid.clone().unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
        fields: our_fields(meta),
        writes: writes(meta),
        health: if is_inert(group, kind) {
            Health::Current
        } else {
            health(group, kind, &value())
        },
        job: is_job.then(|| JobState::of(&value())),
        is_kubectls: has_fields(meta),
        is_labelled_by_kubectl: has_label(meta),
    };
    (id, live)
}

/// The API server as each service account sees it, and as the coordinator itself does.
pub(crate) struct Clusters {
    own: Cluster,
    accounts: ByPlugin<PluginAccount>,
    by_account: BTreeMap<PluginAccount, Cluster>,
}

impl Clusters {
    /// `client` must be a fenced one.
    pub(crate) fn new(client: &Client, accounts: ByPlugin<PluginAccount>) -> Self {
        let rows = accounts.rows();
        Self {
            own: Cluster::new(client, None),
            by_account: rows
                .map(|(_, account)| (account.clone(), Cluster::new(client, Some(account.clone()))))
                .collect(),
            accounts,
        }
    }

    /// That of the plugin. As soon as one plugin has a service account, none is applied with all rights by mistake.
    pub(crate) fn of(&self, plugin: &Identity) -> Result<&Cluster, Problem> {
        if self.accounts.is_empty() {
            return Ok(&self.own);
        }
        let account = self.accounts.of(plugin);
        let cluster = account.and_then(|account| self.by_account.get(account));
        cluster.ok_or_else(|| Problem::no_account(plugin))
    }
}

#[cfg(test)]
mod tests;
