//! Reads one instance from a response of Compute Engine. Pure.
//!
//! An instance without a field that Compute Engine always sets is refused as unusable, never guessed. Its labels are
//! not read, because it may be permitted to change them. One entry of its metadata, which it may change as well, is
//! read, and only as a hint.

use std::collections::BTreeSet;
use std::net::IpAddr;

use google_cloud_compute_v1::model::instance::Status;
use google_cloud_compute_v1::model::{Instance, Metadata};
use tidewaiter_api::ClusterName;

use super::links::{InvalidLink, Mig};
use super::names::{ProjectId, Target};
use crate::failure::Failure;
use crate::refusal::{Mark, NotManaged, Refusal};

/// The metadata entry in which a managed instance group records that it created the instance.
const CREATED_BY: &str = "created-by";

/// A running instance, and the group that it names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) target: Target,
    /// Unique and never reused: a later instance of the same name has another id.
    pub(super) id: u64,
    /// The group that the instance names as its creator. Only the listing of that group decides.
    pub(super) mig: Mig,
    pub(super) addresses: Vec<IpAddr>,
}

/// Reads the response of `api` for `target`.
///
/// # Errors
/// [`Refusal::NotRunning`]; [`Refusal::NotManaged`] or [`Refusal::ForeignProject`] if it names no group of ours that
/// could contain it; [`Refusal::Unavailable`] if a field is missing that Compute Engine always sets.
pub(super) fn read(
    api: &'static str,
    target: &Target,
    instance: &Instance,
    project: &ProjectId,
    cluster: &ClusterName,
) -> Result<Found, Refusal> {
    let unusable = |what: &str| Failure::unusable(api, format!("{target} has no {what}")).refusal();
    if instance.name.as_deref() != Some(target.name.as_str()) {
        return Err(unusable("name"));
    }
    if instance.zone.as_deref().and_then(last) != Some(target.zone.as_str()) {
        return Err(unusable("zone"));
    }
    let id = instance.id.filter(|id| *id != 0).ok_or_else(|| unusable("id"))?;
    match instance.status.as_ref().ok_or_else(|| unusable("status"))? {
        Status::Running => {}
        other => {
            return Err(Refusal::NotRunning {
                instance: target.to_string(),
                state: other
                    .name()
                    .unwrap_or("in an unknown state")
                    .escape_debug()
                    .take(32)
                    .collect(),
            });
        }
    }
    Ok(Found {
        target: target.clone(),
        id,
        mig: creator(target, instance, project, cluster)?,
        addresses: addresses(instance),
    })
}

fn creator(target: &Target, instance: &Instance, project: &ProjectId, cluster: &ClusterName) -> Result<Mig, Refusal> {
    let refuse = |why| Refusal::NotManaged {
        instance: target.to_string(),
        why,
    };
    let creator = entry(instance.metadata.as_ref(), CREATED_BY).ok_or_else(|| refuse(NotManaged::NoCreator))?;
    Mig::read(creator, &target.zone, project).map_err(|astray| match astray {
        InvalidLink::Foreign(theirs) => Refusal::ForeignProject {
            instance: target.to_string(),
            mark: Mark::Template,
            theirs: Some(theirs),
            ours: cluster.clone(),
        },
        InvalidLink::NotFound => refuse(NotManaged::NoGroup(creator.to_owned())),
    })
}

/// The value of a metadata entry; an entry without a value is empty.
pub(super) fn entry<'a>(metadata: Option<&'a Metadata>, key: &str) -> Option<&'a str> {
    let item = metadata?.items.iter().find(|item| item.key.as_deref() == Some(key))?;
    Some(item.value.as_deref().unwrap_or_default())
}

/// The last part of a URL.
pub(super) fn last(url: &str) -> Option<&str> {
    url.rsplit('/').next()
}

/// The addresses of the interfaces themselves, including external IPv6 addresses: an instance without internal ones
/// lists them as its own. Alias ranges are left out: they are pod addresses.
fn addresses(instance: &Instance) -> Vec<IpAddr> {
    let interfaces = instance.network_interfaces.iter();
    let all = interfaces.flat_map(|interface| {
        let external = interface.ipv_6_access_configs.iter();
        [&interface.network_ip, &interface.ipv_6_address]
            .into_iter()
            .chain(external.map(|config| &config.external_ipv_6))
    });
    let parsed: BTreeSet<IpAddr> = all.flatten().filter_map(|text| text.parse().ok()).collect();
    parsed.into_iter().collect()
}
