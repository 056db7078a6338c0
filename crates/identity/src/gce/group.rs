//! Determines the group of an instance: from the listing of its managed instance group, and the template that the
//! listing names. Pure.
//!
//! An instance can write neither. Its metadata can name any group, but only the group that created it, or to which an
//! operator added it, lists its id; and a template never changes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use google_cloud_compute_v1::model::managed_instance::CurrentAction;
use google_cloud_compute_v1::model::scheduling::ProvisioningModel;
use google_cloud_compute_v1::model::{InstanceTemplate, ManagedInstance};
use tidewaiter_api::{ClusterName, InstanceGroupName, Lifecycle};

use super::instance::{Found, entry};
use super::links::{Mig, TemplateLink};
use crate::failure::Failure;
use crate::identifier::Identity;
use crate::refusal::{Mark, NotManaged, Refusal};

/// The metadata entries that kOps writes into a template.
const CLUSTER: &str = "cluster-name";
const INSTANCE_GROUP: &str = "kops-k8s-io-instance-group-name";

/// The instances that a managed instance group lists, by id.
#[derive(Debug, Default)]
pub(super) struct Members(HashMap<u64, Member>);

#[derive(Debug, PartialEq, Eq)]
enum Member {
    /// Listed once, with the URL of its template if present.
    Once(Option<Box<str>>),
    /// Listed once, without a template, while its group deletes or abandons it.
    Leaving { abandoned: bool },
    /// Listed more than once, so it is unknown which row is valid.
    Repeatedly,
}

/// The cluster and group in a template's metadata.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    cluster: Option<String>,
    name: Option<String>,
    lifecycle: Lifecycle,
}

/// The cluster and group for which a template creates instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This `InstanceGroup` of our cluster.
    Ours(InstanceGroupName),
    /// Our cluster, without a valid `InstanceGroup`.
    OursWithoutGroup,
    /// This other cluster.
    Theirs(String),
    /// No cluster.
    Nobody,
}

impl Members {
    pub(super) fn add(&mut self, rows: Vec<ManagedInstance>) {
        for row in rows {
            // An instance that does not exist yet has no id.
            let Some(id) = row.id.filter(|id| *id != 0) else {
                continue;
            };
            match self.0.entry(id) {
                Entry::Occupied(mut member) => {
                    member.insert(Member::Repeatedly);
                }
                Entry::Vacant(free) => {
                    let template = row.version.and_then(|version| version.instance_template);
                    free.insert(match (template, row.current_action) {
                        (None, Some(CurrentAction::Deleting)) => Member::Leaving { abandoned: false },
                        (None, Some(CurrentAction::Abandoning)) => Member::Leaving { abandoned: true },
                        (template, _) => Member::Once(template.map(String::into_boxed_str)),
                    });
                }
            }
        }
    }

    /// The template in the row that lists this instance, by its numeric id.
    ///
    /// # Errors
    /// [`Refusal::NotManaged`] if no row lists it or its group abandons it, [`Refusal::NotRunning`] if its group
    /// deletes it, [`Refusal::Unavailable`] if several rows list it or the row names no template.
    pub(super) fn template(&self, api: &'static str, found: &Found) -> Result<&str, Refusal> {
        let unusable = |what: &str| Failure::unusable(api, format!("{} is listed {what}", found.target)).refusal();
        match self.0.get(&found.id) {
            Some(Member::Once(Some(url))) => Ok(url),
            Some(Member::Once(None)) => Err(unusable("without a template")),
            Some(Member::Leaving { abandoned: false }) => Err(Refusal::NotRunning {
                instance: found.target.to_string(),
                state: "being deleted by its managed instance group".to_owned(),
            }),
            Some(Member::Leaving { abandoned: true }) => {
                Err(not_managed(found, NotManaged::Abandoned(found.mig.to_string())))
            }
            Some(Member::Repeatedly) => Err(unusable("repeatedly")),
            None => Err(not_managed(found, NotManaged::NotListed(found.mig.to_string()))),
        }
    }
}

impl Group {
    /// Reads the response of `api` for `link`.
    ///
    /// # Errors
    /// If the response is not for this template.
    pub(super) fn read(api: &'static str, link: &TemplateLink, template: &InstanceTemplate) -> Result<Self, Failure> {
        let properties = template
            .properties
            .as_ref()
            .filter(|_| template.name.as_deref() == Some(link.name.as_str()))
            .ok_or_else(|| Failure::unusable(api, format!("{link} is missing")))?;
        let entry = |key| entry(properties.metadata.as_ref(), key).map(str::to_owned);
        let spot = properties.scheduling.as_ref().is_some_and(|scheduling| {
            scheduling.preemptible == Some(true) || scheduling.provisioning_model == Some(ProvisioningModel::Spot)
        });
        Ok(Self {
            cluster: entry(CLUSTER),
            name: entry(INSTANCE_GROUP),
            lifecycle: if spot { Lifecycle::Spot } else { Lifecycle::OnDemand },
        })
    }

    /// Returns true if the template belongs to this cluster.
    fn is_of(&self, ours: &ClusterName) -> bool {
        self.cluster.as_deref() == Some(ours.as_str())
    }

    /// The group that the template names.
    fn instance_group(&self) -> Option<InstanceGroupName> {
        self.name.as_deref()?.parse().ok()
    }

    /// The cluster and group for which the template creates instances.
    pub(super) fn owner(self, ours: &ClusterName) -> Owner {
        if self.is_of(ours) {
            self.instance_group().map_or(Owner::OursWithoutGroup, Owner::Ours)
        } else {
            self.cluster.map_or(Owner::Nobody, Owner::Theirs)
        }
    }

    /// The identity of an instance that was created from this template.
    ///
    /// # Errors
    /// [`Refusal::ForeignProject`] if the template is not our cluster's, [`Refusal::NotManaged`] if it names no group.
    pub(super) fn identity(&self, found: &Found, link: &TemplateLink, ours: &ClusterName) -> Result<Identity, Refusal> {
        if !self.is_of(ours) {
            return Err(Refusal::ForeignProject {
                instance: found.target.to_string(),
                mark: Mark::Template,
                theirs: self.cluster.clone(),
                ours: ours.clone(),
            });
        }
        let group = self.instance_group().ok_or_else(|| {
            let why = NotManaged::TemplateWithoutGroup {
                template: link.to_string(),
                group: self.name.clone(),
            };
            not_managed(found, why)
        })?;
        Ok(Identity {
            instance: found.target.to_string(),
            group,
            starting: false,
            zone: found.target.zone.as_str().to_owned(),
            lifecycle: self.lifecycle,
            names: vec![found.target.name.as_str().to_owned()],
            addresses: found.addresses.clone(),
            tag_labels: Vec::new(),
        })
    }
}

/// The refusal of an instance whose group could not be listed.
pub(super) fn no_listing(found: &Found, mig: &Mig, failure: &Failure) -> Refusal {
    if failure.is_not_found() {
        not_managed(found, NotManaged::GroupGone(mig.to_string()))
    } else {
        failure.refusal()
    }
}

/// The refusal of an instance whose template could not be read.
pub(super) fn no_template(found: &Found, link: &TemplateLink, failure: &Failure) -> Refusal {
    if failure.is_not_found() {
        not_managed(found, NotManaged::TemplateGone(link.to_string()))
    } else {
        failure.refusal()
    }
}

fn not_managed(found: &Found, why: NotManaged) -> Refusal {
    Refusal::NotManaged {
        instance: found.target.to_string(),
        why,
    }
}
