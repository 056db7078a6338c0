//! A call of the two Query APIs, as its form says it: EC2 numbers the elements of a list, Auto Scaling has `member`
//! before.

use super::FakeInstance;

/// The filter that names instances.
pub(super) const BY_ID: &str = "instance-id";

/// The actions that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Instances,
    LaunchTemplates,
    Groups,
    WarmPool,
}

/// The parameters of one call.
#[derive(Debug)]
pub struct Parameters {
    pub(super) action: Action,
    pub(super) ids: Vec<String>,
    pub(super) filters: Vec<(String, Vec<String>)>,
    pub(super) group: String,
    /// The maximum number of rows of a page, if the call has one.
    pub(super) limit: Option<String>,
    pub(super) token: Option<String>,
}

impl Action {
    const ALL: [Self; 4] = [Self::Instances, Self::LaunchTemplates, Self::Groups, Self::WarmPool];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Instances => "DescribeInstances",
            Self::LaunchTemplates => "DescribeLaunchTemplates",
            Self::Groups => "DescribeAutoScalingGroups",
            Self::WarmPool => "DescribeWarmPool",
        }
    }
}

impl Parameters {
    /// `None` when there is no such action.
    pub(super) fn read(form: &[u8]) -> Option<Self> {
        let mut parameters = Self {
            action: Action::Instances,
            ids: Vec::new(),
            filters: Vec::new(),
            group: String::new(),
            limit: None,
            token: None,
        };
        let mut action = None;
        // In the order of the form: the name of a filter comes before its values, as the SDK writes them.
        for (key, value) in url::form_urlencoded::parse(form) {
            let parts: Vec<&str> = key.split('.').filter(|part| *part != "member").collect();
            let value = value.into_owned();
            match parts.as_slice() {
                ["Action"] => action = Action::ALL.into_iter().find(|action| action.name() == value),
                ["InstanceId" | "LaunchTemplateId", _] => parameters.ids.push(value),
                ["AutoScalingGroupName"] => parameters.group = value,
                ["MaxResults" | "MaxRecords"] => parameters.limit = Some(value),
                ["NextToken"] => parameters.token = Some(value),
                ["Filter" | "Filters", _, "Name"] => parameters.filters.push((value, Vec::new())),
                ["Filter" | "Filters", _, "Value" | "Values", _] => {
                    if let Some((_, values)) = parameters.filters.last_mut() {
                        values.push(value);
                    }
                }
                _ => {}
            }
        }
        parameters.action = action?;
        Some(parameters)
    }

    /// Returns the names in the call: instances by id or filter, templates, a group.
    pub(super) fn named(&self) -> impl Iterator<Item = &String> {
        let by_filter = self.filters.iter().filter(|(name, _)| name == BY_ID);
        let group = Some(&self.group).filter(|group| !group.is_empty());
        self.ids.iter().chain(by_filter.flat_map(|(_, ids)| ids)).chain(group)
    }

    /// Returns true if the filters other than `instance-id` let it through.
    pub(super) fn lets_through(&self, instance: &FakeInstance) -> bool {
        self.filters
            .iter()
            .all(|(name, values)| match (name.as_str(), name.strip_prefix("tag:")) {
                (BY_ID, _) => true,
                ("instance-state-name", _) => instance.state.as_ref().is_some_and(|state| values.contains(state)),
                ("tag-key", _) => values.iter().any(|key| instance.tags.contains_key(key)),
                (_, Some(key)) => instance.has_tag(key, values),
                _ => false,
            })
    }
}
