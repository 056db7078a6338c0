//! One server: its id in a providerID, and its identity in a response of the API. Pure.
//!
//! A [`ServerId`] exists only if its text is well-formed, so nothing else is ever sent. A server without a field that
//! the API always sets is refused as unusable, never guessed. Unused fields are not parsed, so they may change.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde::Deserialize;
use tidewaiter_api::{ClusterName, InstanceGroupName, Lifecycle, ProviderId};

use super::api;
use crate::failure::Failure;
use crate::groups::{Member, MemberStatus};
use crate::identifier::Identity;
use crate::refusal::{Mark, Refusal};

const RULE: &str = "does not have the form hcloud://ID, where ID is a number such as 42";

/// The maximum length: the API keeps ids below 2^53.
const MAX_DIGITS: usize = 16;

/// A number without a sign or leading zeros, so that a server has only one providerID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ServerId(u64);

impl ServerId {
    /// Parses `hcloud://ID`.
    ///
    /// # Errors
    /// [`Refusal::InvalidProviderId`] for anything else.
    pub(super) fn read(provider_id: &ProviderId) -> Result<Self, Refusal> {
        Self::parse(provider_id).ok_or_else(|| Refusal::InvalidProviderId {
            provider_id: provider_id.clone(),
            rule: RULE,
        })
    }

    fn parse(provider_id: &ProviderId) -> Option<Self> {
        let digits = provider_id.rest();
        let ok = provider_id.scheme() == "hcloud"
            && (1..=MAX_DIGITS).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && !digits.starts_with('0');
        ok.then(|| digits.parse().ok()).flatten().map(Self)
    }

    /// The providerID of its Node; `None` if the API never gives such an id.
    pub(super) fn provider_id(self) -> Option<ProviderId> {
        let provider_id = format!("hcloud://{self}").parse().ok()?;
        Self::parse(&provider_id).map(|_| provider_id)
    }

    /// An id from a response of the API.
    pub(super) fn of(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The label that kOps sets on every server of a cluster; the value is the cluster's name.
///
/// Source: `TagKubernetesClusterName` and `TagKubernetesInstanceGroup` of kOps
/// (`upup/pkg/fi/cloudup/hetzner/cloud.go`). The values are the unmodified names: a label's value is at most 63
/// letters, digits, `-`, `_` and `.`, and kOps accepts no longer names here.
pub(super) const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";

/// The label that names the `InstanceGroup`; kOps uses another one on other clouds.
const GROUP_LABEL: &str = "kops.k8s.io/instance-group";

/// The label that kOps sets on a server that it would create otherwise now.
const NEEDS_UPDATE_LABEL: &str = "kops.k8s.io/needs-update";

/// A server in a response of the API.
#[derive(Debug, Deserialize)]
pub(super) struct Server {
    pub(super) id: u64,
    name: Option<String>,
    status: Option<String>,
    location: Option<Location>,
    #[serde(default)]
    labels: HashMap<String, String>,
    public_net: Option<PublicNet>,
    #[serde(default)]
    private_net: Vec<PrivateNet>,
}

#[derive(Debug, Deserialize)]
struct Location {
    name: String,
}

#[derive(Debug, Deserialize)]
struct PublicNet {
    ipv4: Option<PublicIp>,
    ipv6: Option<PublicIp>,
}

#[derive(Debug, Deserialize)]
struct PublicIp {
    ip: Option<String>,
}

#[derive(Debug, Deserialize)]
struct PrivateNet {
    ip: Option<String>,
    #[serde(default)]
    alias_ips: Vec<String>,
}

/// Reads the server. The checks are in order of significance: running, ours, group.
///
/// # Errors
/// [`Refusal::NotRunning`], [`Refusal::ForeignProject`], [`Refusal::NotInGroup`], or [`Refusal::Unavailable`] if a
/// field is missing that the API always sets.
pub(super) fn identity(
    asked: &'static str,
    id: ServerId,
    server: &Server,
    cluster: &ClusterName,
) -> Result<Identity, Refusal> {
    let unusable = |what: &str| Failure::unusable(asked, format!("{id} has no {what}")).refusal();
    if ServerId::of(server.id) != id {
        return Err(unusable("id"));
    }
    match server.status.as_deref().ok_or_else(|| unusable("status"))? {
        "running" | "starting" => {}
        other => {
            return Err(Refusal::NotRunning {
                instance: id.to_string(),
                state: other.escape_debug().take(32).collect(),
            });
        }
    }
    check_cluster(id, server, cluster)?;
    let name = server.name.as_deref().filter(|name| !name.is_empty());
    let location = server.location.as_ref().ok_or_else(|| unusable("location"))?;
    Ok(Identity {
        instance: id.to_string(),
        group: group(id, server)?,
        starting: server.status.as_deref() == Some("starting"),
        zone: location.name.clone(),
        // Servers have only one billing model.
        lifecycle: Lifecycle::OnDemand,
        names: vec![name.ok_or_else(|| unusable("name"))?.to_ascii_lowercase()],
        addresses: addresses(server),
        tag_labels: Vec::new(),
    })
}

/// The server as a member of the InstanceGroup in its label, as in kOps; `None` if it is not the cluster's or is being
/// deleted.
pub(super) fn member(
    id: ServerId,
    server: &Server,
    cluster: &ClusterName,
) -> Result<Option<(InstanceGroupName, Member)>, Refusal> {
    let Ok(instance_group) = check_cluster(id, server, cluster).and_then(|()| group(id, server)) else {
        return Ok(None);
    };
    if server.status.as_deref() == Some("deleting") {
        return Ok(None);
    }
    let provider_id = id.provider_id();
    let member = Member {
        id: id.to_string(),
        provider_id: provider_id.ok_or_else(|| Failure::unusable(api::LIST, format!("{id} is no id")).refusal())?,
        node_name: None,
        status: if server.labels.contains_key(NEEDS_UPDATE_LABEL) {
            MemberStatus::NeedsUpdate
        } else {
            MemberStatus::UpToDate
        },
        warm_pool: false,
    };
    Ok(Some((instance_group, member)))
}

fn check_cluster(id: ServerId, server: &Server, ours: &ClusterName) -> Result<(), Refusal> {
    match server.labels.get(CLUSTER_LABEL) {
        Some(owner) if owner == ours.as_str() => Ok(()),
        owner => Err(Refusal::ForeignProject {
            instance: id.to_string(),
            mark: Mark::Label,
            theirs: owner.cloned(),
            ours: ours.clone(),
        }),
    }
}

fn group(id: ServerId, server: &Server) -> Result<InstanceGroupName, Refusal> {
    let label = server.labels.get(GROUP_LABEL);
    label
        .and_then(|name| name.parse().ok())
        .ok_or_else(|| Refusal::NotInGroup {
            instance: id.to_string(),
            mark: Mark::Label,
            value: label.cloned(),
        })
}

/// All addresses, including public ones: a Node without a private network lists its public address as its internal one.
/// Addresses can only refute, so extra ones are harmless.
fn addresses(server: &Server) -> Vec<IpAddr> {
    let private = server
        .private_net
        .iter()
        .flat_map(|net| net.ip.iter().chain(&net.alias_ips));
    let public = server.public_net.as_ref();
    let v4 = public.and_then(|net| net.ipv4.as_ref()?.ip.as_ref());
    let v6 = public.and_then(|net| first_of(net.ipv6.as_ref()?.ip.as_deref()?));
    let parsed = private.chain(v4).filter_map(|text| text.parse().ok());
    let all: BTreeSet<IpAddr> = parsed.chain(v6).collect();
    all.into_iter().collect()
}

/// The first address of a server's IPv6 network, for example `2001:db8::/64`: its images use that address.
fn first_of(network: &str) -> Option<IpAddr> {
    let (address, _) = network.split_once('/')?;
    let network: Ipv6Addr = address.parse().ok()?;
    Some(Ipv6Addr::from_bits(network.to_bits() | 1).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ServerId> {
        ServerId::parse(&text.parse().unwrap())
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(parse("hcloud://42"), Some(ServerId(42)));
        assert_eq!(
            parse("hcloud://9007199254740991"),
            Some(ServerId(9_007_199_254_740_991))
        );
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "hcloud://0",
            "hcloud://042",
            "hcloud://+42",
            "hcloud://-42",
            "hcloud://4.2",
            "hcloud:///42",
            "hcloud://42/",
            "hcloud://42/actions",
            "hcloud://42?x=y",
            "hcloud://..",
            "hcloud://bm-42",
            "hcloud://nodes-1",
            "hcloud://12345678901234567",
            "hrobot://42",
            "gce://42",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
