//! The managed instance groups of a cluster with all their instances.
//!
//! A group belongs to the cluster if the template of one of its versions says so: the same metadata that proves an
//! instance. The templates of all its versions must then be readable and name one `InstanceGroup`; otherwise the query
//! fails, because half a group must not be reported as the whole. How one query becomes calls: one listing of all
//! groups of the project, one of the instances of each group of ours, and one read of each template that the last query
//! did not read.
//!
//! A failed call fails the query, except a read of a template that must be another cluster's. No retries: the caller
//! queries again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use google_cloud_compute_v1::model::managed_instance::CurrentAction;
use google_cloud_compute_v1::model::{InstanceGroupManager, ManagedInstance};
use parking_lot::Mutex;
use tidewaiter_api::{ClusterName, InstanceGroupName};
use tidewaiter_kit::CloudCalls;

use super::api;
use super::call::Caller;
use super::connect::Client;
use super::group::Owner;
use super::links::{self, Mig, Place, TemplateLink};
use super::names::{Name, ProjectId, Target};
use crate::failure::Failure;
use crate::groups::{CloudGroup, CloudGroups, GroupsUnavailable, Member, MemberStatus, Sizes, in_time};

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

/// For which cluster and group each template creates instances.
type Templates = HashMap<TemplateLink, Owner>;

/// The templates that were read, and the failures of the others.
#[derive(Debug)]
struct Reads {
    known: Templates,
    failed: HashMap<TemplateLink, Failure>,
}

/// A listed managed instance group.
#[derive(Debug)]
struct Listed {
    mig: Mig,
    target_size: Option<i32>,
    /// The templates of its versions: new instances are created from them, and instances of them are left unchanged.
    /// During a rollout or a canary there are several, all of them intended by the operator. `None`: a version without
    /// a template of the project.
    templates: Vec<Option<TemplateLink>>,
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

    async fn ask(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
        let groups = self.listed().await.map_err(|failure| failure.refusal())?;
        let reads = self.read(&groups).await;
        let mut ours = Vec::new();
        for listed in &groups {
            if let Some(instance_group) = listed.instance_group(&reads, &self.cluster)? {
                ours.push(self.group(listed, instance_group));
            }
        }
        let mut ours = stream::iter(ours).buffer_unordered(AT_ONCE);
        let mut read = Vec::new();
        while let Some(group) = ours.next().await {
            read.push(group.map_err(|failure| failure.refusal())?);
        }
        Ok(read)
    }

    /// Every group of the project that could be ours, once each.
    async fn listed(&self) -> Result<Vec<Listed>, Failure> {
        let mut groups = BTreeMap::new();
        for (place, group) in self.caller.all_groups().await? {
            let name = group.name.as_deref().and_then(Name::parse);
            let name = name.ok_or_else(|| Failure::unusable(api::LIST_ALL_GROUPS, "a group without a name"))?;
            let templates = templates(&group, &place, self.caller.project());
            groups.insert(Mig { place, name }, (group.target_size, templates));
        }
        let listed = groups.into_iter().map(|(mig, (target_size, templates))| Listed {
            mig,
            target_size,
            templates,
        });
        Ok(listed.collect())
    }

    /// Reads the templates of `groups`, from the cache or the cloud. Those that were read are cached, even if others
    /// failed.
    async fn read(&self, groups: &[Listed]) -> Reads {
        let used: HashSet<&TemplateLink> = groups.iter().flat_map(|it| it.templates.iter().flatten()).collect();
        let mut known = self.templates.lock().clone();
        known.retain(|link, _| used.contains(link));
        let missing = used.into_iter().filter(|link| !known.contains_key(*link)).cloned();
        let asked: Vec<_> = missing
            .map(|link| async { (self.caller.template(&link).await, link) })
            .collect();
        let mut asked = stream::iter(asked).buffer_unordered(AT_ONCE);
        let mut failed = HashMap::new();
        while let Some((template, link)) = asked.next().await {
            match template {
                Ok(template) => {
                    known.insert(link, template.owner(&self.cluster));
                }
                Err(failure) => {
                    failed.insert(link, failure);
                }
            }
        }
        self.templates.lock().clone_from(&known);
        Reads { known, failed }
    }

    /// Returns one group of ours, with its instances.
    async fn group(&self, listed: &Listed, instance_group: InstanceGroupName) -> Result<CloudGroup, Failure> {
        let Listed { mig, target_size, .. } = listed;
        let size = target_size.and_then(|size| u32::try_from(size).ok());
        let size = size.ok_or_else(|| Failure::unusable(api::LIST_ALL_GROUPS, format!("{mig} has no size")))?;
        let mut found: BTreeMap<Target, bool> = BTreeMap::new();
        let project = self.caller.project();
        let take = |rows: Vec<ManagedInstance>| rows.iter().try_for_each(|row| add(row, listed, project, &mut found));
        self.caller.rows(mig, take).await?;
        let members = found
            .into_iter()
            .map(|(target, up_to_date)| -> Result<Member, Failure> {
                let provider_id = target.provider_id(project);
                Ok(Member {
                    id: format!("{project}/{target}"),
                    provider_id: provider_id
                        .ok_or_else(|| Failure::unusable(mig.api(), format!("{target} has no valid name")))?,
                    node_name: target.name.as_str().parse().ok(),
                    status: if up_to_date {
                        MemberStatus::UpToDate
                    } else {
                        MemberStatus::NeedsUpdate
                    },
                    warm_pool: false,
                })
            });
        Ok(CloudGroup {
            // A name is unique only within its zone or region.
            name: format!("{}/{}", mig.place.as_str(), mig.name.as_str()),
            instance_group,
            role: None,
            sizes: Sizes::OfCloud {
                target: size,
                min: size,
                max: size,
            },
            members: members.collect::<Result<_, _>>()?,
        })
    }
}

impl Listed {
    /// The `InstanceGroup` of our cluster that the templates of all versions name; `None` if none of them is our
    /// cluster's.
    ///
    /// # Errors
    /// If a version of a group of ours cannot be read or belongs elsewhere, or if it is not known whose the group is.
    fn instance_group(
        &self,
        reads: &Reads,
        ours: &ClusterName,
    ) -> Result<Option<InstanceGroupName>, GroupsUnavailable> {
        let owners = || self.templates.iter().flatten().filter_map(|link| reads.known.get(link));
        let is_ours = owners().any(|owner| matches!(owner, Owner::Ours(_) | Owner::OursWithoutGroup));
        let is_theirs =
            || owners().any(|owner| matches!(owner, Owner::Theirs(_))) || self.is_named_for_others(reads, ours);
        if !is_ours && is_theirs() {
            return Ok(None);
        }
        if let Some(failure) = self.templates.iter().flatten().find_map(|link| reads.failed.get(link)) {
            return Err(failure.refusal().into());
        }
        if !is_ours {
            return Ok(None);
        }
        let mut named = BTreeSet::new();
        for link in &self.templates {
            match link.as_ref().and_then(|link| reads.known.get(link)) {
                Some(Owner::Ours(group)) => named.insert(group),
                _ => return Err(self.incomplete(link.as_ref())),
            };
        }
        match Vec::from_iter(named)[..] {
            [group] => Ok(Some(group.clone())),
            _ => Err(self.incomplete(None)),
        }
    }

    /// Returns true if the group has the name that kOps gives the groups of another cluster, which a template of the
    /// project names. It decides only whose a group is that cannot be read: a cluster does not become unknown because
    /// of another one.
    fn is_named_for_others(&self, reads: &Reads, ours: &ClusterName) -> bool {
        let matching = |cluster: &str| {
            let suffix = format!("-{}", cluster.replace('.', "-"));
            self.mig.name.as_str().ends_with(&suffix).then_some(suffix.len())
        };
        let theirs = reads.known.values().filter_map(|owner| match owner {
            Owner::Theirs(cluster) => matching(cluster),
            _ => None,
        });
        // One name may end with the other: the longer one counts.
        theirs.max() > matching(ours.as_str())
    }

    /// `template` is the one that is not of an `InstanceGroup` of ours, if it is in our project.
    fn incomplete(&self, template: Option<&TemplateLink>) -> GroupsUnavailable {
        let why = template.map_or(
            "its versions are not all of one InstanceGroup of this cluster".to_owned(),
            |link| format!("{link}, of one of its versions, names no InstanceGroup of this cluster"),
        );
        GroupsUnavailable(format!(
            "managed instance group {} cannot be read completely: {why}. Remove the version that kOps did not create: kops \
             update cluster --yes, then kops rolling-update cluster --yes.",
            self.mig
        ))
    }
}

/// The templates of the group's versions.
fn templates(group: &InstanceGroupManager, place: &Place, project: &ProjectId) -> Vec<Option<TemplateLink>> {
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

/// Adds a listed instance and whether it is up to date, unless it is being removed, or does not exist: then it has no
/// status. It counts once, no matter how often and in which order it is listed.
fn add(
    row: &ManagedInstance,
    listed: &Listed,
    project: &ProjectId,
    found: &mut BTreeMap<Target, bool>,
) -> Result<(), Failure> {
    let is_leaving = matches!(
        row.current_action,
        Some(CurrentAction::Deleting | CurrentAction::Abandoning)
    );
    if is_leaving || row.instance_status.is_none() {
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
    let up_to_date = made_from.is_some() && listed.templates.contains(&made_from);
    *found.entry(instance).or_insert(true) &= up_to_date;
    Ok(())
}

#[async_trait]
impl CloudGroups for InstanceGroupManagers {
    async fn groups(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
        in_time(self.ask()).await
    }

    fn location(&self) -> Option<String> {
        Some(format!("project {}", self.caller.project()))
    }
}
