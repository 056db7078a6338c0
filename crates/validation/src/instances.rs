//! The instances of the cloud's groups, each with a number.
//!
//! Comparing tens of thousands of providerIDs takes most of the time of a verdict. So each is looked up once, when the
//! Node or the answer of the cloud is new, and verdicts compare numbers.

use std::collections::{BTreeMap, HashMap};

use tidewaiter_api::ProviderId;
use tidewaiter_identity::{CloudGroup, Member, Sizes};
use tidewaiter_kops::GroupSummary;

use crate::part::Part;

/// The groups of the cloud. An instance has the same number in each group that claims it; the numbers begin with 0.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    groups: Vec<Numbered>,
    numbers: HashMap<ProviderId, u32>,
}

/// A group, and the number of each of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// Its members are sorted by id.
    pub group: CloudGroup,
    numbers: Vec<u32>,
}

impl Instances {
    /// Numbers the members of the cloud's groups.
    #[must_use]
    pub fn new(groups: Vec<CloudGroup>) -> Self {
        let mut numbers = HashMap::with_capacity(groups.iter().map(|group| group.members.len()).sum());
        let mut number = |member: &Member| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(member.provider_id.clone()).or_insert(next)
        };
        let groups = groups.into_iter().map(|mut group| {
            group.members.sort_by(|one, other| one.id.cmp(&other.id));
            let numbers = group.members.iter().map(&mut number).collect();
            Numbered { group, numbers }
        });
        Self {
            groups: groups.collect(),
            numbers,
        }
    }

    /// The InstanceGroups of the cloud's groups, for a controller without access to the state store. InstanceGroups
    /// without a group or instance in the cloud are missing. Unknown if the cloud does not define the role of one of
    /// them: a wrong role would be a wrong verdict.
    #[must_use]
    pub fn instance_groups(&self) -> Part<Vec<GroupSummary>> {
        let mut found: BTreeMap<_, GroupSummary> = BTreeMap::new();
        for CloudGroup {
            name: group,
            instance_group: name,
            role,
            sizes,
            ..
        } in self.groups.iter().map(|numbered| &numbered.group)
        {
            let karpenter = *sizes == Sizes::Unmanaged;
            let Some(role) = *role else {
                // Left over from a group, which may be gone with its InstanceGroup.
                if karpenter {
                    continue;
                }
                return Part::Unknown(format!(
                    "the Auto Scaling group {group:?} has no tag k8s.io/role/ROLE with the value 1: kops update cluster --yes sets it"
                ));
            };
            let known = found.entry(name).or_insert_with(|| GroupSummary {
                name: name.clone(),
                role,
                machine_type: String::new(),
                min_size: None,
                max_size: None,
                subnets: Vec::new(),
                karpenter,
            });
            if (known.role, known.karpenter) != (role, karpenter) {
                return Part::Unknown(format!(
                    "InstanceGroup {:?} has both an Auto Scaling group and instances of Karpenter, or groups of different roles: delete \
                     what is left over",
                    name.as_str()
                ));
            }
        }
        if found.is_empty() {
            return Part::Unknown("the cloud has no group of the cluster".to_owned());
        }
        Part::Known(found.into_values().collect())
    }

    /// The number of distinct instances.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(crate) fn groups(&self) -> &[Numbered] {
        &self.groups
    }

    /// The number of an instance; None if no group has it.
    pub(crate) fn number(&self, provider_id: &ProviderId) -> Option<u32> {
        self.numbers.get(provider_id).copied()
    }
}

/// The numbers follow from the groups.
impl PartialEq for Instances {
    fn eq(&self, other: &Self) -> bool {
        self.groups == other.groups
    }
}

impl Numbered {
    /// The members by id, with their numbers.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Member, u32)> {
        self.group.members.iter().zip(self.numbers.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kops::Role;

    use super::*;

    const SIZED: Sizes = Sizes::OfCloud {
        target: 1,
        min: 1,
        max: 1,
    };

    fn group(name: &str, instance_group: &str, role: impl Into<Option<Role>>, sizes: Sizes) -> CloudGroup {
        CloudGroup {
            name: name.to_owned(),
            instance_group: instance_group.parse().unwrap(),
            role: role.into(),
            sizes,
            members: Vec::new(),
        }
    }

    /// Returns each group as `NAME ROLE`, with a mark if it is Karpenter's.
    fn read(groups: impl IntoIterator<Item = CloudGroup>) -> Result<Vec<String>, String> {
        let karpenters = |karpenter| if karpenter { " of Karpenter" } else { "" };
        match Instances::new(groups.into_iter().collect()).instance_groups() {
            Part::Known(groups) => Ok(groups
                .iter()
                .map(|group| format!("{} {}{}", group.name, group.role, karpenters(group.karpenter)))
                .collect()),
            Part::Unknown(reason) => Err(reason),
        }
    }

    #[test]
    fn the_instance_groups_are_those_of_the_cloud() {
        let groups = [
            group("nodes.c", "nodes", Role::Node, SIZED),
            group("nodes", "nodes", None, Sizes::Unmanaged),
            group("cp.masters.c", "cp", Role::ControlPlane, SIZED),
            group("batch", "batch", Role::Node, Sizes::Unmanaged),
            group("gone", "gone", None, Sizes::Unmanaged),
        ];
        let expected = ["batch Node of Karpenter", "cp ControlPlane", "nodes Node"];
        assert_eq!(read(groups).unwrap(), expected);
    }

    #[test]
    fn what_the_cloud_does_not_say_is_unknown() {
        let nodes = || group("nodes.c", "nodes", Role::Node, SIZED);
        for (groups, words) in [
            (vec![], "the cloud has no group of the cluster"),
            (
                vec![group("gone", "gone", None, Sizes::Unmanaged)],
                "the cloud has no group",
            ),
            (
                vec![nodes(), group("cp.c", "cp", None, SIZED)],
                "the Auto Scaling group \"cp.c\" has no tag k8s.io/role/ROLE with the value 1: kops update cluster --yes sets it",
            ),
            (
                vec![nodes(), group("nodes", "nodes", Role::Node, Sizes::Unmanaged)],
                "InstanceGroup \"nodes\" has both an Auto Scaling group and instances of Karpenter",
            ),
            (
                vec![nodes(), group("nodes.masters.c", "nodes", Role::ControlPlane, SIZED)],
                "or groups of different roles: delete what is left over",
            ),
        ] {
            let reason = read(groups).unwrap_err();
            assert!(reason.contains(words), "{words}: {reason}");
        }
    }
}
