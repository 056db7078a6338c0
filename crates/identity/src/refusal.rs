//! Why a Node is not vouched for. Each text is safe to show: bounded, escaped, without secrets, and the same each time.

use std::net::IpAddr;

use tidewaiter_api::node_identity::VERIFIED;
use tidewaiter_api::values::quoted;
use tidewaiter_api::{ClusterName, ConditionStatus, NodeIdentityStatus, NodeName, ProviderId};

/// A Node that gets nothing, and why. What it means, and when to ask again: [`Identifier`](crate::Identifier).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The providerID is not of the form that this cloud's have.
    #[error("providerID {} {rule}", quoted(.provider_id.as_str()))]
    InvalidProviderId {
        /// What the Node says.
        provider_id: ProviderId,
        /// The rule that it breaks, in words.
        rule: &'static str,
    },
    /// The cloud does not list the instance.
    #[error("the cloud lists no instance {instance}")]
    NotFound {
        /// The instance that was asked for.
        instance: String,
    },
    /// The instance neither runs nor is about to.
    #[error("instance {instance} is {state}")]
    NotRunning {
        /// The instance.
        instance: String,
        /// Its state in the cloud's own word.
        state: String,
    },
    /// The instance is not this cluster's.
    #[error("instance {instance} {}", owner(.theirs.as_deref(), .ours, *.mark))]
    ForeignProject {
        /// The instance.
        instance: String,
        /// What would say that it is ours.
        mark: Mark,
        /// The cluster or project that it belongs to, as far as it says.
        theirs: Option<String>,
        /// This cluster.
        ours: ClusterName,
    },
    /// The instance is in no group, or in one whose name cannot be one.
    #[error("instance {instance} {}", no_group(.value.as_deref(), *.mark))]
    NotInGroup {
        /// The instance.
        instance: String,
        /// What should name the group.
        mark: Mark,
        /// What stands where the name of a group should stand, if anything does.
        value: Option<String>,
    },
    /// No managed instance group vouches for the instance: it counts as [`Refusal::NotInGroup`] where groups are made that way.
    #[error("instance {instance} {why}")]
    NotManaged {
        /// The instance.
        instance: String,
        /// What is missing.
        why: NotManaged,
    },
    /// The Node's name is none of the instance's.
    #[error("node {node} is not instance {instance}, whose nodes can be named {}", few(.names))]
    NameMismatch {
        /// The instance that the Node claims to be.
        instance: String,
        /// The Node.
        node: NodeName,
        /// The names that the cloud gives the instance.
        names: Vec<String>,
    },
    /// The Node lists addresses, and none of them is the instance's.
    #[error("node {node} lists {}, and instance {instance} has {}", few(.listed), few(.actual))]
    AddressMismatch {
        /// The instance that the Node claims to be.
        instance: String,
        /// The Node.
        node: NodeName,
        /// The addresses that the Node lists.
        listed: Vec<IpAddr>,
        /// The addresses that the cloud gives the instance.
        actual: Vec<IpAddr>,
    },
    /// The instance is in another zone than the providerID says.
    #[error("the providerID says zone {claimed}, and instance {instance} is in {actual}")]
    ZoneMismatch {
        /// The instance.
        instance: String,
        /// The zone in the providerID.
        claimed: String,
        /// The zone that the cloud says.
        actual: String,
    },
    /// Another Node claims the same instance with the same right.
    #[error("instance {instance} is also claimed by {}", few(.rivals))]
    Duplicate {
        /// The instance.
        instance: String,
        /// The other Nodes.
        rivals: Vec<NodeName>,
    },
    /// The cloud asks for fewer calls.
    #[error("{api} is throttled")]
    Throttled {
        /// The call, for example `ec2:DescribeInstances`.
        api: &'static str,
    },
    /// No usable answer came.
    #[error("{api}: {trouble}{}", in_brackets(.detail))]
    Unavailable {
        /// The call, for example `ec2:DescribeInstances`.
        api: &'static str,
        /// What kind of trouble it is.
        trouble: Trouble,
        /// More of it, for a reader; may be empty.
        detail: String,
    },
}

/// What a cloud reads an instance's cluster and group from: what kOps writes there, and an instance cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mark {
    /// A tag of the instance.
    #[error("tag")]
    Tag,
    /// A label of the server.
    #[error("label")]
    Label,
    /// Metadata of the template that the instance is made from.
    #[error("template metadata")]
    Template,
}

/// Where the way from an instance to its group ends, on a cloud whose groups are managed instance groups.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotManaged {
    /// The instance does not say who made it.
    #[error("does not say which managed instance group made it")]
    NoCreator,
    /// What it says is no managed instance group that can hold it.
    #[error("says that it was made by {}, which is no managed instance group of its zone or region", quoted(.0))]
    NoGroup(String),
    /// There is no such managed instance group.
    #[error("says that it was made by {0}, which does not exist")]
    GroupGone(String),
    /// The managed instance group does not list it: it was taken out, or what it says is not true.
    #[error("says that it was made by {0}, which does not list it")]
    NotListed(String),
    /// Its instance template is gone.
    #[error("is made from {0}, which does not exist")]
    TemplateGone(String),
    /// Its instance template names no group, or one whose name cannot be one.
    #[error("is made from {template}, which {}", no_template_group(.group.as_deref()))]
    TemplateWithoutGroup {
        /// The instance template.
        template: String,
        /// What stands where the name of a group should stand, if anything does.
        group: Option<String>,
    },
}

/// What kept the cloud from answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The cloud knows who asks and does not let them.
    #[error("permission denied")]
    Denied,
    /// There are no credentials, or the cloud does not take them.
    #[error("no valid credentials")]
    Credentials,
    /// No connection, or no answer in time.
    #[error("not reachable")]
    Unreachable,
    /// The cloud answered that it failed.
    #[error("the cloud failed")]
    Failed,
    /// The cloud's answer cannot be made sense of.
    #[error("unusable answer")]
    Unusable,
}

/// What can be done about an instance of another cluster: the words by which it is told from one that carries no mark.
const OF_ANOTHER_CLUSTER: &str = "Find out who registered this Node: it claims an instance of another cluster.";

impl Refusal {
    /// One word for conditions, Events and metrics, in `CamelCase`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidProviderId { .. } => "InvalidProviderId",
            Self::NotFound { .. } => "NotFound",
            Self::NotRunning { .. } => "NotRunning",
            Self::ForeignProject { .. } => "ForeignProject",
            Self::NotInGroup { .. } | Self::NotManaged { .. } => "NotInGroup",
            Self::NameMismatch { .. } => "NameMismatch",
            Self::AddressMismatch { .. } => "AddressMismatch",
            Self::ZoneMismatch { .. } => "ZoneMismatch",
            Self::Duplicate { .. } => "Duplicate",
            Self::Throttled { .. } => "Throttled",
            Self::Unavailable { .. } => "Unavailable",
        }
    }

    /// What an operator can do about it, in one sentence.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::InvalidProviderId { .. } => {
                "Check that the cloud controller manager runs and that the node's kubelet is set up for this cloud."
            }
            Self::NotFound { .. } => {
                "If the instance exists, check the account or project of the controller, and its region; if it is gone, delete the Node."
            }
            Self::NotRunning { .. } => "Nothing to do if the instance is on its way out; otherwise start it.",
            Self::ForeignProject { theirs: Some(_), .. } => OF_ANOTHER_CLUSTER,
            Self::ForeignProject { mark, theirs: None, .. } | Self::NotInGroup { mark, .. } => mark.remedy(),
            Self::NotManaged { .. } => {
                "Let the instance group make its instances: delete this one, or run kops update cluster --yes if the group has changed."
            }
            Self::NameMismatch { .. } => {
                "Find out who registered this Node. If the cluster's nodes have names of their own, set nodeNames: warn."
            }
            Self::AddressMismatch { .. } => {
                "Find out who registered this Node, and check the --node-ip of its kubelet."
            }
            Self::ZoneMismatch { .. } => {
                "Find out who wrote this providerID: a cloud controller manager writes the right zone."
            }
            Self::Duplicate { .. } => "Find out which of the Nodes is the instance and delete the other.",
            Self::Throttled { .. } => {
                "Nothing to do if it passes; otherwise find what else in the same account or project makes these calls."
            }
            Self::Unavailable { api, trouble, .. } => trouble.remedy(api),
        }
    }

    /// Whether this is evidence that somebody lies, rather than that something is missing or broken.
    #[must_use]
    pub fn is_forgery(&self) -> bool {
        matches!(
            self,
            Self::ForeignProject { theirs: Some(_), .. }
                | Self::NameMismatch { .. }
                | Self::AddressMismatch { .. }
                | Self::ZoneMismatch { .. }
        )
    }

    /// The same of a refusal of which only its words are left, as a condition tells them: its reason, and its text with its
    /// remedy at the end.
    #[must_use]
    pub fn told_forgery(reason: &str, message: &str) -> bool {
        match reason {
            "NameMismatch" | "AddressMismatch" | "ZoneMismatch" => true,
            "ForeignProject" => message.ends_with(OF_ANOTHER_CLUSTER),
            _ => false,
        }
    }

    /// The same of a record: whether its Node is refused for forgery.
    #[must_use]
    pub fn recorded_forgery(status: &NodeIdentityStatus) -> bool {
        let mut conditions = status.conditions.iter();
        conditions.any(|it| {
            it.type_ == VERIFIED && it.status == ConditionStatus::False && Self::told_forgery(&it.reason, &it.message)
        })
    }

    /// Whether it says nothing about the Node, only about the call.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Throttled { .. } | Self::Unavailable { .. })
    }
}

impl Trouble {
    /// One word for the metric of calls.
    pub(crate) fn outcome(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Credentials => "no_credentials",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
            Self::Unusable => "unusable",
        }
    }

    /// `api` says by its first part which cloud it is.
    fn remedy(self, api: &str) -> &'static str {
        let cloud = api.split(':').next().unwrap_or_default();
        match (self, cloud) {
            (Self::Denied, "gce") => "Give the controller's service account the role roles/compute.viewer.",
            (Self::Denied, "hcloud") => "Give the controller an API token of the project that may read.",
            (Self::Denied, _) => "Allow the role that the controller runs with to make this call.",
            (Self::Credentials, "gce") => {
                "Give the controller credentials: the service account of its machine, or GOOGLE_APPLICATION_CREDENTIALS."
            }
            (Self::Credentials, "hcloud") => {
                "Give the controller credentials: an API token of the project, in HCLOUD_TOKEN."
            }
            (Self::Credentials, _) => {
                "Give the controller credentials: an instance profile that its pod can reach, or a role for its service account."
            }
            (Self::Unreachable, _) => {
                "Check the route, the DNS and the firewall between the control plane and the cloud's endpoint."
            }
            (Self::Failed, _) => "Nothing to do if it passes; otherwise see the cloud's status page.",
            (Self::Unusable, _) => {
                "Check that the endpoint is the cloud's own, with no proxy that answers in its place."
            }
        }
    }
}

impl Mark {
    fn remedy(self) -> &'static str {
        match self {
            Self::Tag => "Restore the tags that kOps gives the instance: kops update cluster --yes.",
            Self::Label => "Restore the labels that kOps gives the server: kops update cluster --yes.",
            Self::Template => {
                "Let kOps make a new instance template, and the instance from it: kops update cluster --yes, then kops rolling-update cluster --yes."
            }
        }
    }
}

fn owner(theirs: Option<&str>, ours: &ClusterName, mark: Mark) -> String {
    match theirs {
        Some(theirs) => format!("belongs to {}, not to {ours}", quoted(theirs)),
        None => format!("has no {mark} that says it belongs to {ours}"),
    }
}

fn no_group(value: Option<&str>, mark: Mark) -> String {
    match value {
        Some(value) => format!(
            "has the {mark} {} for its instance group, which is no name of one",
            quoted(value)
        ),
        None => format!("has no {mark} that names its instance group"),
    }
}

fn no_template_group(group: Option<&str>) -> String {
    match group {
        Some(group) => format!("has {} for its instance group, which is no name of one", quoted(group)),
        None => "names no instance group".to_owned(),
    }
}

fn in_brackets(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    }
}

/// The first few of a list, so that an instance with hundreds of addresses does not fill an Event.
fn few<T: std::fmt::Display>(items: &[T]) -> String {
    const SHOWN: usize = 4;
    if items.is_empty() {
        return "none".to_owned();
    }
    let mut text = items
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if items.len() > SHOWN {
        text = format!("{text} and {} more", items.len() - SHOWN);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_escaped_and_cut() {
        let hostile = format!("\u{1b}[31m\n{}", "x".repeat(10_000));
        for refusal in [
            Refusal::NotInGroup {
                instance: "i-1".to_owned(),
                mark: Mark::Tag,
                value: Some(hostile.clone()),
            },
            Refusal::NotManaged {
                instance: "i-1".to_owned(),
                why: NotManaged::NoGroup(hostile.clone()),
            },
            Refusal::ForeignProject {
                instance: "i-1".to_owned(),
                mark: Mark::Tag,
                theirs: Some(hostile),
                ours: "cluster.example.com".parse().unwrap(),
            },
            Refusal::InvalidProviderId {
                provider_id: format!("aws://{}", "x".repeat(500)).parse().unwrap(),
                rule: "is no instance",
            },
        ] {
            let text = refusal.to_string();
            assert!(text.len() < 300, "{text}");
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }

    #[test]
    fn a_long_list_is_cut() {
        let refusal = Refusal::AddressMismatch {
            instance: "i-1".to_owned(),
            node: "a".parse().unwrap(),
            listed: vec!["10.0.0.1".parse().unwrap()],
            actual: (0..750_u16)
                .map(|n| IpAddr::from([10, 1, n.to_be_bytes()[0], n.to_be_bytes()[1]]))
                .collect(),
        };
        let text = refusal.to_string();
        assert!(text.ends_with("10.1.0.3 and 746 more"), "{text}");
    }

    #[test]
    fn texts_read_as_sentences() {
        let ours: ClusterName = "ours.example.com".parse().unwrap();
        let unavailable = |detail: &str| Refusal::Unavailable {
            api: "ec2:DescribeInstances",
            trouble: Trouble::Denied,
            detail: detail.to_owned(),
        };
        for (refusal, text) in [
            (
                Refusal::ForeignProject {
                    instance: "i-1".to_owned(),
                    mark: Mark::Tag,
                    theirs: Some("theirs".to_owned()),
                    ours: ours.clone(),
                },
                "instance i-1 belongs to \"theirs\", not to ours.example.com",
            ),
            (
                Refusal::ForeignProject {
                    instance: "i-1".to_owned(),
                    mark: Mark::Tag,
                    theirs: None,
                    ours,
                },
                "instance i-1 has no tag that says it belongs to ours.example.com",
            ),
            (
                Refusal::NotManaged {
                    instance: "z/n".to_owned(),
                    why: NotManaged::NotListed("zones/z/instanceGroupManagers/g".to_owned()),
                },
                "instance z/n says that it was made by zones/z/instanceGroupManagers/g, which does not list it",
            ),
            (
                Refusal::NotManaged {
                    instance: "z/n".to_owned(),
                    why: NotManaged::TemplateWithoutGroup {
                        template: "global/instanceTemplates/t".to_owned(),
                        group: None,
                    },
                },
                "instance z/n is made from global/instanceTemplates/t, which names no instance group",
            ),
            (
                unavailable("UnauthorizedOperation"),
                "ec2:DescribeInstances: permission denied (UnauthorizedOperation)",
            ),
            (unavailable(""), "ec2:DescribeInstances: permission denied"),
        ] {
            assert_eq!(refusal.to_string(), text);
        }
    }

    /// A cloud's call, what marks its instances, what is told when the mark is missing, and what can be done about that, about a call
    /// that is denied, and about credentials that are missing.
    type Cloud = (&'static str, Mark, [&'static str; 2], [&'static str; 3]);

    #[test]
    fn each_cloud_is_spoken_of_in_its_own_words() {
        const CLOUDS: [Cloud; 3] = [
            (
                "ec2:DescribeInstances",
                Mark::Tag,
                ["no tag that says it belongs", "no tag that names its instance group"],
                [
                    "tags that kOps gives the instance",
                    "Allow the role",
                    "an instance profile",
                ],
            ),
            (
                "hcloud:servers.list",
                Mark::Label,
                [
                    "no label that says it belongs",
                    "no label that names its instance group",
                ],
                [
                    "labels that kOps gives the server",
                    "token of the project that may read",
                    "HCLOUD_TOKEN",
                ],
            ),
            (
                "gce:compute.instances.get",
                Mark::Template,
                [
                    "no template metadata that says it belongs",
                    "no template metadata that names its instance group",
                ],
                [
                    "new instance template",
                    "roles/compute.viewer",
                    "GOOGLE_APPLICATION_CREDENTIALS",
                ],
            ),
        ];
        for (api, mark, told, remedies) in CLOUDS {
            let foreign = Refusal::ForeignProject {
                instance: "1".to_owned(),
                mark,
                theirs: None,
                ours: "ours.example.com".parse().unwrap(),
            };
            let no_group = Refusal::NotInGroup {
                instance: "1".to_owned(),
                mark,
                value: None,
            };
            for (refusal, text) in [foreign, no_group].into_iter().zip(told) {
                assert!(refusal.to_string().contains(text), "{refusal}");
                assert!(refusal.remedy().contains(remedies[0]), "{}", refusal.remedy());
            }
            for (trouble, text) in [Trouble::Denied, Trouble::Credentials].into_iter().zip(&remedies[1..]) {
                let detail = String::new();
                let remedy = Refusal::Unavailable { api, trouble, detail }.remedy();
                assert!(remedy.contains(text), "{remedy}");
            }
        }
    }

    #[test]
    fn evidence_is_known_by_its_words() {
        let (instance, node) = ("i-1".to_owned(), "a".parse().unwrap());
        let foreign = |theirs: Option<&str>| Refusal::ForeignProject {
            instance: "i-1".to_owned(),
            mark: Mark::Tag,
            theirs: theirs.map(str::to_owned),
            ours: "ours.example.com".parse().unwrap(),
        };
        for refusal in [
            foreign(Some("theirs")),
            foreign(Some(&"x".repeat(10_000))),
            foreign(None),
            Refusal::NotFound {
                instance: instance.clone(),
            },
            Refusal::NotRunning {
                instance: instance.clone(),
                state: "stopped".to_owned(),
            },
            Refusal::NotInGroup {
                instance: instance.clone(),
                mark: Mark::Tag,
                value: None,
            },
            Refusal::NotManaged {
                instance: instance.clone(),
                why: NotManaged::NoCreator,
            },
            Refusal::NameMismatch {
                instance: instance.clone(),
                node,
                names: Vec::new(),
            },
            Refusal::AddressMismatch {
                instance: instance.clone(),
                node: "a".parse().unwrap(),
                listed: Vec::new(),
                actual: Vec::new(),
            },
            Refusal::ZoneMismatch {
                instance: instance.clone(),
                claimed: "a".to_owned(),
                actual: "b".to_owned(),
            },
            Refusal::Duplicate {
                instance,
                rivals: Vec::new(),
            },
            Refusal::Throttled { api: "x" },
        ] {
            let told = format!("{refusal}. {}", refusal.remedy());
            assert_eq!(
                Refusal::told_forgery(refusal.reason(), &told),
                refusal.is_forgery(),
                "{told}"
            );
        }
    }

    #[test]
    fn evidence_and_passing_trouble_exclude_each_other() {
        let untagged = Refusal::ForeignProject {
            instance: "i-1".to_owned(),
            mark: Mark::Tag,
            theirs: None,
            ours: "ours".parse().unwrap(),
        };
        assert!(!untagged.is_forgery() && !untagged.is_transient());
        let throttled = Refusal::Throttled { api: "x" };
        assert!(!throttled.is_forgery() && throttled.is_transient());
    }
}
