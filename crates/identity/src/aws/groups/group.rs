//! Reads one Auto Scaling group and its members. Pure.
//!
//! An instance counts once, no matter how often and in which order it is listed, and only if EC2 lists it too.
//! Impossible values are refused as unusable, never guessed; but the SDK reads a missing size as 0.

use std::collections::{BTreeMap, HashSet};

use aws_sdk_autoscaling::types::{AutoScalingGroup, Instance, LifecycleState};
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_api::values::Role;
use tidewaiter_api::{ClusterName, InstanceGroupName, ProviderId};

use super::definition::{Definition, Made, Versions};
use super::inventory::Known;
use super::{CLUSTER_TAG, DESCRIBE_GROUPS, InstanceId};
use crate::failure::Failure;
use crate::groups::{CloudGroup, Member, MemberStatus, Sizes};
use crate::refusal::Refusal;

/// The part between the name of an `InstanceGroup` and the cluster's, for all roles except nodes and bastions. Source:
/// `matchInstanceGroup` of kOps (`upup/pkg/fi/cloudup/awsup/instancegroups.go`).
const ROLE_PARTS: [&str; 6] = ["masters", "apiservers", "etcd", "scheduler", "ccm", "kcm"];

/// The tags of a group that name its roles; the value is `1`. kOps writes them after the user's own tags, so none of
/// those replaces one. Source: `CloudTagInstanceGroupRolePrefix` of kOps (`upup/pkg/fi/cloudup/awstasks`).
const ROLE_TAGS: [(&str, Role); 9] = [
    ("k8s.io/role/control-plane", Role::ControlPlane),
    ("k8s.io/role/master", Role::ControlPlane),
    ("k8s.io/role/node", Role::Node),
    ("k8s.io/role/bastion", Role::Bastion),
    ("k8s.io/role/apiserver", Role::ApiServer),
    ("k8s.io/role/etcd", Role::Etcd),
    ("k8s.io/role/scheduler", Role::Scheduler),
    ("k8s.io/role/kubecontrollermanager", Role::KubeControllerManager),
    ("k8s.io/role/kube-controller-manager", Role::KubeControllerManager),
];

/// The status of an instance in its group, merged from its rows.
#[derive(Debug)]
struct InstanceState {
    provider_id: ProviderId,
    detached: bool,
    made: Made,
    warm_pool: bool,
}

/// Detached instances with the providerIDs of their Nodes, by the name of their InstanceGroup.
type Detached<'a> = BTreeMap<&'a str, Vec<(&'a InstanceId, &'a ProviderId)>>;

/// The `InstanceGroup` whose group has this name. `None` if the group is not the cluster's, is being deleted, or has a
/// name of another form.
pub(super) fn instance_group(group: &AutoScalingGroup, cluster: &ClusterName) -> Option<InstanceGroupName> {
    let tag = |key: &str| {
        let tag = group.tags().iter().find(|tag| tag.key() == Some(key))?;
        Some(tag.value().unwrap_or_default())
    };
    // The only status is that the group is being deleted.
    if tag(CLUSTER_TAG) != Some(cluster.as_str()) || group.status().is_some() {
        return None;
    }
    let name = group.auto_scaling_group_name()?;
    let own = name.strip_suffix(cluster.as_str())?.strip_suffix('.')?;
    let of_a_role = |role: &&str| own.strip_suffix(*role)?.strip_suffix('.');
    let of_a_role = ROLE_PARTS.iter().find_map(of_a_role);
    // `a.masters.CLUSTER` may also be the group of the worker group `a.masters`: its tag says so.
    let tagged = tag(INSTANCE_GROUP_LABEL) == Some(own);
    of_a_role.filter(|_| !tagged).unwrap_or(own).parse().ok()
}

/// The role that stands for all roles in the tags of the group; the tags of instances do not count.
fn role(group: &AutoScalingGroup) -> Option<Role> {
    let keys = group.tags().iter().filter(|tag| tag.value() == Some("1"));
    let roles = keys.filter_map(|tag| ROLE_TAGS.iter().find(|(key, _)| tag.key() == Some(key)));
    roles.map(|(_, role)| *role).min()
}

pub(super) fn detached(known: &Known) -> Detached<'_> {
    let mut detached = Detached::new();
    for (id, present) in known.all().filter(|(_, present)| present.detached) {
        let of_group = detached.entry(&*present.instance_group).or_default();
        of_group.push((id, &present.provider_id));
    }
    detached
}

/// The group with its own instances, those of its warm pool, and detached ones. `present`: the providerID of an
/// instance that EC2 lists for the InstanceGroup.
pub(super) fn read<'a>(
    name: String,
    instance_group: &InstanceGroupName,
    group: &AutoScalingGroup,
    pool: &[Instance],
    present: impl Fn(&InstanceId) -> Option<&'a ProviderId>,
    detached: Vec<(&InstanceId, &ProviderId)>,
    versions: &Versions,
) -> Result<CloudGroup, Refusal> {
    let size = |what: &str, size: Option<i32>| {
        let size = size.and_then(|size| u32::try_from(size).ok());
        size.ok_or_else(|| Failure::unusable(DESCRIBE_GROUPS, format!("{name} has no valid {what} size")).refusal())
    };
    let sizes = Sizes::OfCloud {
        target: size("desired", group.desired_capacity())?,
        min: size("smallest", group.min_size())?,
        max: size("largest", group.max_size())?,
    };
    let definition = Definition::of(group);
    let mut found: BTreeMap<InstanceId, InstanceState> = BTreeMap::new();
    for instance in group.instances().iter().chain(pool) {
        let Some((id, provider_id, warm_pool)) = member(&name, instance)? else {
            continue;
        };
        let Some(known) = present(&id) else { continue };
        let state = found.entry(id).or_insert_with(|| InstanceState {
            // Shared: there are thousands.
            provider_id: if *known == provider_id {
                known.clone()
            } else {
                provider_id.clone()
            },
            detached: false,
            made: Made::Now,
            warm_pool: true,
        });
        if state.provider_id != provider_id {
            let both = format!("{name} lists {} and {provider_id}", state.provider_id);
            return Err(Failure::unusable(DESCRIBE_GROUPS, both).refusal());
        }
        state.made = state.made.max(definition.made(instance, versions));
        state.warm_pool &= warm_pool;
    }
    for (id, provider_id) in detached {
        let state = InstanceState {
            provider_id: provider_id.clone(),
            detached: true,
            made: Made::Before,
            warm_pool: false,
        };
        found.insert(id.clone(), state);
    }
    Ok(CloudGroup {
        name,
        instance_group: instance_group.clone(),
        role: role(group),
        sizes,
        members: found.into_iter().map(Member::from).collect(),
    })
}

/// The instances that name an InstanceGroup and are members of none of its groups. It is one of workers if Karpenter
/// has made one of them: kOps lets it make nothing else.
pub(super) fn unmanaged(groups: &[CloudGroup], known: &Known) -> Vec<CloudGroup> {
    let managed = groups.iter().flat_map(|group| {
        let ids = group.members.iter().map(|member| member.id.as_str());
        ids.map(|id| (group.instance_group.as_str(), id))
    });
    let managed: HashSet<(&str, &str)> = managed.collect();
    let mut unmanaged: BTreeMap<InstanceGroupName, (Vec<Member>, Option<Role>)> = BTreeMap::new();
    for (id, present) in known.all() {
        if managed.contains(&(&present.instance_group, id.as_str())) {
            continue;
        }
        let Ok(instance_group) = present.instance_group.parse() else {
            continue;
        };
        let (members, role) = unmanaged.entry(instance_group).or_default();
        *role = role.or(present.karpenter.then_some(Role::Node));
        members.push(Member {
            id: id.to_string(),
            provider_id: present.provider_id.clone(),
            node_name: None,
            status: MemberStatus::Unresolved,
            warm_pool: false,
        });
    }
    let groups = unmanaged.into_iter().map(|(instance_group, (mut members, role))| {
        // Equal answers must be equal.
        members.sort_by(|one, other| one.id.cmp(&other.id));
        CloudGroup {
            name: instance_group.to_string(),
            instance_group,
            role,
            sizes: Sizes::Unmanaged,
            members,
        }
    });
    groups.collect()
}

/// The instance's id, the providerID of its Node, and whether it is in the warm pool. `None` if it is leaving or has
/// left the group.
fn member(group: &str, instance: &Instance) -> Result<Option<(InstanceId, ProviderId, bool)>, Refusal> {
    let Some(warm_pool) = stays(instance.lifecycle_state().map_or("", LifecycleState::as_str)) else {
        return Ok(None);
    };
    let id = instance.instance_id().and_then(InstanceId::parse);
    let id = id.ok_or_else(|| {
        Failure::unusable(DESCRIBE_GROUPS, format!("{group} has an instance without a valid id")).refusal()
    })?;
    let provider_id = instance.availability_zone().and_then(|zone| id.provider_id(zone));
    let provider_id = provider_id.ok_or_else(|| {
        Failure::unusable(DESCRIBE_GROUPS, format!("{group} lists {id} without a valid zone")).refusal()
    })?;
    Ok(Some((id, provider_id, warm_pool)))
}

/// Returns true if an instance of this lifecycle state is in the warm pool; `None` if it is not a member. An unknown
/// state counts as a member's. Source: "Amazon EC2 Auto Scaling instance lifecycle".
fn stays(state: &str) -> Option<bool> {
    let (warm_pool, state) = match state.strip_prefix("Warmed:") {
        Some(state) => (true, state),
        None => (false, state),
    };
    let leaves = state.starts_with("Terminating")
        || state.starts_with("Terminated")
        || state.starts_with("Detaching")
        || state.starts_with("Detached");
    (!leaves).then_some(warm_pool)
}

impl From<(InstanceId, InstanceState)> for Member {
    fn from((id, state): (InstanceId, InstanceState)) -> Self {
        let status = match state {
            InstanceState { detached: true, .. } => MemberStatus::Detached,
            InstanceState { made: Made::Now, .. } => MemberStatus::UpToDate,
            InstanceState {
                made: Made::Unresolved, ..
            } => MemberStatus::Unresolved,
            InstanceState { made: Made::Before, .. } => MemberStatus::NeedsUpdate,
        };
        Self {
            id: id.to_string(),
            provider_id: state.provider_id,
            node_name: None,
            status,
            warm_pool: state.warm_pool,
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_autoscaling::types::TagDescription;

    use super::*;

    #[test]
    fn which_lifecycle_states_are_members() {
        for (state, expected) in [
            ("InService", Some(false)),
            ("Pending", Some(false)),
            ("Pending:Wait", Some(false)),
            ("Pending:Proceed", Some(false)),
            ("Standby", Some(false)),
            ("EnteringStandby", Some(false)),
            ("Quarantined", Some(false)),
            ("ReplacingRootVolume:Wait", Some(false)),
            ("AStateOfTheFuture", Some(false)),
            ("", Some(false)),
            ("Terminating", None),
            ("Terminating:Wait", None),
            ("Terminating:Proceed", None),
            ("Terminating:Retained", None),
            ("Terminated", None),
            ("Detaching", None),
            ("Detached", None),
            ("Warmed:Pending", Some(true)),
            ("Warmed:Pending:Wait", Some(true)),
            ("Warmed:Running", Some(true)),
            ("Warmed:Stopped", Some(true)),
            ("Warmed:Hibernated", Some(true)),
            ("Warmed:Terminating", None),
            ("Warmed:Terminating:Wait", None),
            ("Warmed:Terminated", None),
        ] {
            assert_eq!(stays(state), expected, "{state}");
        }
    }

    #[test]
    fn which_instance_group_a_group_is_for() {
        let cluster: ClusterName = "ours.example.com".parse().unwrap();
        let ours = Some("ours.example.com");
        for (name, tagged_cluster, tagged_group, expected) in [
            ("nodes.ours.example.com", ours, Some("nodes"), Some("nodes")),
            ("nodes.ours.example.com", ours, None, Some("nodes")),
            ("nodes.ours.example.com", ours, Some("others"), Some("nodes")),
            ("nodes.ours.example.com", ours, Some("../nodes"), Some("nodes")),
            ("any-name", ours, Some("nodes"), None),
            ("nodes-2.ours.example.com", ours, Some("nodes"), Some("nodes-2")),
            ("a.b.ours.example.com", ours, None, Some("a.b")),
            ("cp.masters.ours.example.com", ours, None, Some("cp")),
            ("cp.masters.ours.example.com", ours, Some("cp"), Some("cp")),
            (
                "cp.masters.ours.example.com",
                ours,
                Some("cp.masters"),
                Some("cp.masters"),
            ),
            ("api.apiservers.ours.example.com", ours, None, Some("api")),
            ("masters.ours.example.com", ours, None, Some("masters")),
            ("nodes.other.example.com", ours, None, None),
            ("nodes-ours.example.com", ours, None, None),
            ("ours.example.com", ours, None, None),
            (".ours.example.com", ours, None, None),
            ("", ours, Some("nodes"), None),
            ("../nodes.ours.example.com", ours, Some("nodes"), None),
            ("nodes.ours.example.com", None, Some("nodes"), None),
            ("nodes.ours.example.com", Some(""), Some("nodes"), None),
            ("nodes.ours.example.com", Some("other.example.com"), Some("nodes"), None),
            ("nodes.ours.example.com", Some("OURS.example.com"), Some("nodes"), None),
        ] {
            let tag = |key: &str, value: &str| TagDescription::builder().key(key).value(value).build();
            let tags = [(CLUSTER_TAG, tagged_cluster), (INSTANCE_GROUP_LABEL, tagged_group)];
            let tags = tags.into_iter().filter_map(|(key, value)| Some(tag(key, value?)));
            let group = AutoScalingGroup::builder().auto_scaling_group_name(name);
            let group = group.set_tags(Some(tags.collect())).build();
            let read = instance_group(&group, &cluster);
            let read = read.as_ref().map(InstanceGroupName::as_str);
            assert_eq!(read, expected, "{name} {tagged_cluster:?} {tagged_group:?}");
        }
    }
}
