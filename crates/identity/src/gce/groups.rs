//! The managed instance groups of a cluster with all their instances.
//!
//! A group belongs to the cluster if the templates of all its versions say so and name one `InstanceGroup`: the same
//! metadata that proves an instance. Labels and names decide nothing. How one query becomes calls: one listing of all
//! groups of the project, one of the instances of each group of ours, and one read of each template that the last query
//! did not read.
//!
//! A failed call fails the query. No retries: the caller queries again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use futures::{StreamExt as _, TryFutureExt as _, TryStreamExt as _, stream};
use google_cloud_compute_v1::model::managed_instance::CurrentAction;
use google_cloud_compute_v1::model::{InstanceGroupManager, ManagedInstance};
use tidewaiter_api::{ClusterName, InstanceGroupName};
use tidewaiter_kit::CloudCalls;
use tracing::debug;

use super::api;
use super::call::Caller;
use super::connect::Client;
use super::failure::Failure;
use super::links::{self, Mig, Place, TemplateLink};
use super::names::{Name, ProjectId, Target};
use crate::groups::{CloudGroup, CloudGroups, GroupsUnavailable, Member, MemberStatus, in_time};

/// The maximum number of groups, and of templates, that are queried concurrently.
const AT_ONCE: usize = 8;

/// The managed instance groups of a cluster.
#[derive(Debug)]
pub struct InstanceGroupManagers {
    caller: Caller,
    cluster: ClusterName,
    /// The templates of the last listing. A template does not change and cannot be deleted while a group uses it;
    /// unused ones are removed.
    templates: Mutex<Templates>,
}

/// The `InstanceGroup` of our cluster that each template names, if any.
type Templates = HashMap<TemplateLink, Option<InstanceGroupName>>;

/// A listed managed instance group.
#[derive(Debug)]
struct Listed {
    mig: Mig,
    target_size: Option<i32>,
    /// The templates of its versions: new instances are created from them, and instances of them are left unchanged.
    /// During a rollout or a canary there are several, all of them intended by the operator.
    templates: Vec<TemplateLink>,
}

impl InstanceGroupManagers {
    /// A provider for the groups of `cluster` in `project`. Create the client with [`client`](super::client), whose
    /// timeouts bound each call.
    #[must_use]
    pub fn new(client: Client, project: ProjectId, cluster: ClusterName, calls: CloudCalls) -> Self {
        Self {
            caller: Caller::new(client, project, cluster.clone(), calls),
            cluster,
            templates: Mutex::default(),
        }
    }

    async fn ask(&self) -> Result<Vec<CloudGroup>, Failure> {
        let groups = self.listed().await?;
        let templates = self.read(&groups).await?;
        let ours: Vec<_> = groups
            .iter()
            .filter_map(|listed| Some(self.group(listed, one_group(&listed.templates, &templates)?)))
            .collect();
        stream::iter(ours).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Every group of the project that could be ours, once each.
    async fn listed(&self) -> Result<Vec<Listed>, Failure> {
        let mut groups = BTreeMap::new();
        for (place, group) in self.caller.all_groups().await? {
            let name = group.name.as_deref().and_then(Name::parse);
            let name = name.ok_or_else(|| Failure::unusable(api::LIST_ALL_GROUPS, "a group without a name"))?;
            let Some(templates) = templates(&group, &place, self.caller.project()) else {
                debug!(
                    group = name.as_str(),
                    "a managed instance group uses no instance template of the project"
                );
                continue;
            };
            groups.insert(Mig { place, name }, (group.target_size, templates));
        }
        let listed = groups.into_iter().map(|(mig, (target_size, templates))| Listed {
            mig,
            target_size,
            templates,
        });
        Ok(listed.collect())
    }

    /// Reads the templates of `groups`, from the cache or the cloud.
    async fn read(&self, groups: &[Listed]) -> Result<Templates, Failure> {
        let used: HashSet<&TemplateLink> = groups.iter().flat_map(|listed| &listed.templates).collect();
        let mut known = self.templates.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known.retain(|link, _| used.contains(link));
        let missing = used.into_iter().filter(|link| !known.contains_key(*link)).cloned();
        let asked: Vec<_> = missing
            .map(|link| async { (self.caller.template(&link).await, link) })
            .collect();
        let mut asked = stream::iter(asked).buffer_unordered(AT_ONCE);
        let mut failed = None;
        while let Some((template, link)) = asked.next().await {
            match template {
                Ok(template) if template.is_of(&self.cluster) => known.insert(link, template.instance_group()),
                Ok(_) => known.insert(link, None),
                Err(failure) => {
                    failed = Some(failure);
                    continue;
                }
            };
        }
        // Caches the templates that were read, even if others failed.
        self.templates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&known);
        failed.map_or(Ok(known), Err)
    }

    /// One group of ours, with its instances.
    async fn group(&self, listed: &Listed, instance_group: InstanceGroupName) -> Result<CloudGroup, Failure> {
        let Listed { mig, target_size, .. } = listed;
        let size = target_size.and_then(|size| u32::try_from(size).ok());
        let size = size.ok_or_else(|| Failure::unusable(api::LIST_ALL_GROUPS, format!("{mig} has no size")))?;
        let mut found: BTreeMap<Target, bool> = BTreeMap::new();
        let project = self.caller.project();
        let take = |rows: Vec<ManagedInstance>| rows.iter().try_for_each(|row| add(row, listed, project, &mut found));
        self.caller.rows(mig, take).await?;
        let members = found.into_iter().map(|(target, up_to_date)| Member {
            id: format!("{project}/{target}"),
            node_name: target.name.as_str().parse().ok(),
            status: if up_to_date {
                MemberStatus::UpToDate
            } else {
                MemberStatus::NeedsUpdate
            },
            warm_pool: false,
        });
        Ok(CloudGroup {
            // A name is unique only within its zone or region.
            name: format!("{}/{}", mig.place.as_str(), mig.name.as_str()),
            instance_group,
            target_size: size,
            min_size: size,
            max_size: size,
            members: members.collect(),
        })
    }
}

/// The templates of the group's versions. `None` if it has none, or one outside our project.
fn templates(group: &InstanceGroupManager, place: &Place, project: &ProjectId) -> Option<Vec<TemplateLink>> {
    let versions = group
        .versions
        .iter()
        .map(|version| version.instance_template.as_deref());
    // The versions override the group's own template.
    let urls: Vec<Option<&str>> = if group.versions.is_empty() {
        vec![group.instance_template.as_deref()]
    } else {
        versions.collect()
    };
    let links = urls
        .into_iter()
        .map(|url| TemplateLink::read(url?, place.region(), project).ok());
    links.collect()
}

/// The `InstanceGroup` that all these templates name.
fn one_group(links: &[TemplateLink], templates: &Templates) -> Option<InstanceGroupName> {
    let mut named = links.iter().map(|link| templates.get(link)?.as_ref());
    let first = named.next()??;
    named.all(|other| other == Some(first)).then(|| first.clone())
}

/// Adds a listed instance and whether it is up to date, unless it is being removed. It counts once, no matter how often
/// and in which order it is listed.
fn add(
    row: &ManagedInstance,
    listed: &Listed,
    project: &ProjectId,
    found: &mut BTreeMap<Target, bool>,
) -> Result<(), Failure> {
    if let Some(CurrentAction::Deleting | CurrentAction::Abandoning) = row.current_action {
        return Ok(());
    }
    let mig = &listed.mig;
    let instance = row.instance.as_deref().and_then(|url| links::instance(url, project));
    let instance =
        instance.ok_or_else(|| Failure::unusable(mig.api(), format!("{mig} lists an instance without a name")))?;
    let version = row
        .version
        .as_ref()
        .and_then(|version| version.instance_template.as_deref());
    let made_from = version.and_then(|url| TemplateLink::read(url, mig.place.region(), project).ok());
    let up_to_date = made_from.is_some_and(|link| listed.templates.contains(&link));
    *found.entry(instance).or_insert(true) &= up_to_date;
    Ok(())
}

#[async_trait]
impl CloudGroups for InstanceGroupManagers {
    async fn groups(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
        in_time(self.ask().map_err(|failure| failure.refusal())).await
    }
}
