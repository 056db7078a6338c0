//! The requests of the plugin controller to the API server, about objects of any kind.
//!
//! What a plugin has is found by its label, with one list for each kind. Only an object with the label is ever changed or deleted, and each
//! of these writes names its uid. An object that a list does not show is read by its name before it is created.
//!
//! A service account may have permissions in some namespaces only, so as one, each list is of one namespace. What may not be read is
//! observed as unreadable, object by object: it keeps no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, GroupVersion, ObjectList, ObjectMeta};
use kube::discovery::{Scope, pinned_group};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tidewaiter_api::names::PLUGIN_LABEL;
use tokio::task::spawn_blocking;

use super::account::PluginAccount;
use super::health::{Health, health, is_inert};
use super::health_check::HealthCheck;
use super::job::JobState;
use super::object::{Object, ObjectId, digest};
use super::observed::Live;

mod observe;
mod versions;

/// The field manager of the objects of plugins.
const MANAGER: &str = "tidewaiter/plugin";
/// Objects in a page of a list.
const PAGE: u32 = 500;
/// A version that no object has (etcd's first write is the second revision): an apply that names it can only create.
const NO_VERSION: &str = "1";
/// The end of the log of a failed job.
const TAIL_LINES: i64 = 10;
const TAIL_BYTES: usize = 400;

/// A kind that the API server serves.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) resource: ApiResource,
    pub(super) namespaced: bool,
}

/// Where objects of a kind are listed and watched.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) kind: Kind,
    /// Without it, everywhere.
    pub(super) namespace: Option<String>,
}

/// The API server.
pub(super) struct Cluster {
    /// Of the coordinator itself: which kinds there are is asked so.
    own: Client,
    /// For requests about objects.
    pub(super) client: Client,
    /// As whom `client` acts; None is the coordinator itself.
    pub(super) account: Option<PluginAccount>,
    /// The kinds of each group and version. One that is missing is asked for again.
    known: Mutex<HashMap<GroupVersion, Arc<Vec<Kind>>>>,
}

impl Cluster {
    /// `own` must be a fenced one.
    pub(super) fn new(own: &Client, account: Option<PluginAccount>) -> Self {
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
    pub(super) async fn kind(&self, group: &str, version: &str, kind: &str) -> Result<Option<Kind>, Error> {
        let group_version = GroupVersion::gv(group, version);
        let find = |kinds: &[Kind]| kinds.iter().find(|known| known.resource.kind == kind).cloned();
        let known = self.known().get(&group_version).and_then(|kinds| find(kinds));
        if known.is_some() {
            return Ok(known);
        }
        let served = match pinned_group(&self.own, &group_version).await {
            Ok(served) => served,
            Err(Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => return Err(error),
        };
        let kinds: Vec<Kind> = served
            .versioned_resources(version)
            .into_iter()
            .map(|(resource, capabilities)| Kind {
                resource,
                namespaced: capabilities.scope == Scope::Namespaced,
            })
            .collect();
        let found = find(&kinds);
        self.known().insert(group_version, Arc::new(kinds));
        Ok(found)
    }

    /// The objects in the place with the label of the plugin. None if the version is not served any more.
    async fn list_version(
        &self,
        place: &Place,
        plugin: &str,
        check: Option<&HealthCheck>,
    ) -> Result<Option<Vec<(ObjectId, Live)>>, Error> {
        let Place { kind, namespace } = place;
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource),
            None => Api::all_with(self.client.clone(), &kind.resource),
        };
        let inert = check.is_none() && is_inert(&kind.resource.group, &kind.resource.kind);
        let mut params = ListParams::default()
            .labels(&format!("{PLUGIN_LABEL}={plugin}"))
            .limit(PAGE);
        let mut found = Vec::new();
        loop {
            let page = if inert {
                api.list_metadata(&params)
                    .await
                    .map(|page| page_of(page, |it| with_metadata(it.metadata)))
            } else {
                api.list(&params).await.map(|page| page_of(page, |object| object))
            };
            let (objects, next) = match page {
                Ok(page) => page,
                Err(Error::Api(status)) if status.code == 404 => {
                    self.forget(kind);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            found.extend(all_live(kind, objects, check).await?);
            let Some(next) = next else {
                return Ok(Some(found));
            };
            params.continue_token = Some(next);
        }
    }

    /// Applies the object. With `uid`, it changes that one only; without, it creates the object, and fails if one has appeared meanwhile.
    /// Returns the digest of the fields that are ours then.
    pub(super) async fn apply(&self, id: &ObjectId, object: &Object, uid: Option<&str>) -> Result<String, Error> {
        let kind = self.served(id, &object.version).await?;
        let mut body = Value::Object(object.body.clone());
        if kind.namespaced {
            body["metadata"]["namespace"] = json!(id.namespace);
        }
        let mut params = PatchParams::apply(MANAGER);
        if let Some(uid) = uid {
            body["metadata"]["uid"] = json!(uid);
            params = params.force();
        } else {
            body["metadata"]["resourceVersion"] = json!(NO_VERSION);
        }
        let applied = self
            .api(&kind, id)
            .patch_metadata(&id.name, &params, &Patch::Apply(body))
            .await?;
        Ok(our_fields(&applied.metadata))
    }

    /// Deletes the object with this uid, and what it owns.
    pub(super) async fn delete(&self, id: &ObjectId, version: &str, uid: &str) -> Result<(), Error> {
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
        match self.api(&kind, id).delete(&id.name, &params).await {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// An object of the definition that is not the plugin's, which would be deleted with it.
    pub(super) async fn instance(&self, definition: &ObjectId, plugin: &str) -> Result<Option<String>, Error> {
        let Some((plural, group)) = definition.name.split_once('.') else {
            return Ok(None);
        };
        let served = match kube::discovery::group(&self.own, group).await {
            Ok(served) => served.resources_by_stability(),
            Err(Error::Discovery(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some((resource, _)) = served.into_iter().find(|(resource, _)| resource.plural == plural) else {
            return Ok(None);
        };
        self.other(&Api::all_with(self.client.clone(), &resource), &resource, plugin)
            .await
    }

    /// An object in the namespace that is not the plugin's, which would be deleted with it.
    pub(super) async fn occupant(&self, namespace: &str, plugin: &str) -> Result<Option<String>, Error> {
        let served = kube::Discovery::new(self.own.clone()).run_aggregated().await?;
        let kinds = served
            .groups()
            .flat_map(kube::discovery::ApiGroup::resources_by_stability);
        let listable = kinds.filter(|(resource, capabilities)| {
            let lasting = !matches!(
                resource.kind.as_str(),
                "Event" | "Lease" | "EndpointSlice" | "Endpoints"
            );
            lasting && capabilities.scope == Scope::Namespaced && capabilities.supports_operation("list")
        });
        for (resource, _) in listable {
            let api = Api::namespaced_with(self.client.clone(), namespace, &resource);
            if let Some(found) = self.other(&api, &resource, plugin).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// An object that is not of the plugin, was not made for another object, and is not in every namespace.
    async fn other(
        &self,
        api: &Api<DynamicObject>,
        resource: &ApiResource,
        plugin: &str,
    ) -> Result<Option<String>, Error> {
        let selector = format!("{PLUGIN_LABEL}!={plugin},containership.io/managed!=true");
        let everywhere = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
        let mut params = ListParams::default().labels(&selector).limit(PAGE);
        loop {
            let page = match api.list_metadata(&params).await {
                Ok(page) => page,
                Err(Error::Api(status)) if status.code == 404 => return Ok(None),
                Err(error) => return Err(error),
            };
            let next = page.metadata.continue_.clone().filter(|next| !next.is_empty());
            let found = page.items.into_iter().find_map(|item| {
                let meta = item.metadata;
                let name = meta.name.filter(|_| meta.owner_references.is_none())?;
                let usual = everywhere.contains(&(resource.kind.as_str(), name.as_str()));
                (!usual).then(|| format!("{} {name}", resource.kind))
            });
            if found.is_some() || next.is_none() {
                return Ok(found);
            }
            params.continue_token = next;
        }
    }

    /// The end of the log of the job's newest pod, in one line, if it can be read.
    pub(super) async fn log_tail(&self, job: &ObjectId) -> Option<String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &job.namespace);
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={}", job.name));
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

    pub(super) fn api(&self, kind: &Kind, id: &ObjectId) -> Api<DynamicObject> {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), &id.namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        }
    }

    fn forget(&self, kind: &Kind) {
        let group_version = GroupVersion::gv(&kind.resource.group, &kind.resource.version);
        self.known().remove(&group_version);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<GroupVersion, Arc<Vec<Kind>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 403)
}

fn page_of<T: Clone>(page: ObjectList<T>, object: impl Fn(T) -> DynamicObject) -> (Vec<DynamicObject>, Option<String>) {
    let next = page.metadata.continue_.filter(|next| !next.is_empty());
    (page.items.into_iter().map(object).collect(), next)
}

pub(super) fn with_metadata(metadata: ObjectMeta) -> DynamicObject {
    DynamicObject {
        types: None,
        metadata,
        data: json!({}),
    }
}

/// The objects, judged by the plugin's own expression if it has one for the kind: that may take some seconds, so it blocks a thread of its own.
async fn all_live(
    kind: &Kind,
    objects: Vec<DynamicObject>,
    check: Option<&HealthCheck>,
) -> Result<Vec<(ObjectId, Live)>, Error> {
    let Some(check) = check.cloned() else {
        return Ok(objects.iter().map(|object| live(kind, object, None)).collect());
    };
    let kind = kind.clone();
    let judge = move || objects.iter().map(|object| live(&kind, object, Some(&check))).collect();
    spawn_blocking(judge)
        .await
        .map_err(|error| Error::Service(error.into()))
}

pub(super) fn live(kind: &Kind, object: &DynamicObject, check: Option<&HealthCheck>) -> (ObjectId, Live) {
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
        health: match check {
            Some(check) => check.health(&value()),
            None if is_inert(group, kind) => Health::Current,
            None => health(group, kind, &value()),
        },
        job: is_job.then(|| JobState::of(&value())),
    };
    (id, live)
}

/// The digest of the fields that are ours, and of the time at which we changed them last. The API server takes a field from us when another
/// writer changes or removes it, so the digest changes whenever somebody changes what we applied. The time changes with an apply of ours that
/// changes the object: it shows a late one of an earlier leader, which has other values in the same fields.
fn our_fields(meta: &ObjectMeta) -> String {
    let entries = meta.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| {
        entry.manager.as_deref() == Some(MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    });
    let fields: Vec<String> = ours
        .filter_map(|entry| Some((entry.fields_v1.as_ref()?, &entry.time)))
        .map(|(fields, time)| format!("{} {time:?}", fields.0))
        .collect();
    digest(fields.iter().map(String::as_str))
}

#[cfg(test)]
mod tests;
