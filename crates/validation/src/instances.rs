//! The instances of the cloud's groups, each with a number.
//!
//! Comparing tens of thousands of providerIDs takes most of the time of a verdict. So each is looked up once, when the Node or the
//! answer of the cloud is new, and verdicts compare numbers.

use std::collections::HashMap;

use tidewaiter_api::ProviderId;

use crate::observation::{CloudGroup, Member};

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
