//! Permissions of users by roles, bindings and teams. Pure.
//!
//! - A user may do what the bindings of the user and of the user's teams give.
//! - A binding in a namespace gives nothing outside of it, so no path outside the resources either.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use k8s_openapi::api::rbac::v1::{PolicyRule, Subject as RbacSubject};

use super::{ALL, Action, RBAC_GROUP, covers_path, includes, list, parts, permits, words};
use crate::containership::{AuthorizationRoleBindingSpec, BindingType};
use crate::names::{TEAM_PREFIX, USER_PREFIX};

/// The subject of a binding, by its id in the cloud.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A user.
    User(String),
    /// The users of a team.
    Team(String),
}

impl Subject {
    /// The subject of a binding in the cluster.
    #[must_use]
    pub fn of_rbac(&self) -> RbacSubject {
        let (kind, name) = match self {
            Self::User(id) => ("User", format!("{USER_PREFIX}{id}")),
            Self::Team(id) => ("Group", format!("{TEAM_PREFIX}{id}")),
        };
        RbacSubject {
            api_group: Some(RBAC_GROUP.to_owned()),
            kind: kind.to_owned(),
            name,
            namespace: None,
        }
    }
}

impl From<&AuthorizationRoleBindingSpec> for Subject {
    fn from(spec: &AuthorizationRoleBindingSpec) -> Self {
        match spec.type_ {
            BindingType::User => Self::User(spec.user_id.clone()),
            BindingType::Team => Self::Team(spec.team_id.clone()),
        }
    }
}

/// A role that is given to a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The id of the role.
    pub role: String,
    /// The subject that gets the role.
    pub subject: Subject,
    /// The namespace; None for the whole cluster.
    pub namespace: Option<String>,
}

/// The roles, bindings and teams of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    /// The rules of each role, by its id.
    pub roles: BTreeMap<String, Vec<PolicyRule>>,
    /// The bindings; one to a role that does not exist gives nothing.
    pub bindings: Vec<Binding>,
    /// The users of each team.
    pub teams: BTreeMap<String, BTreeSet<String>>,
}

impl Access {
    /// Returns true if the user may do it in the namespace; None for a request about no namespace or about all of them.
    #[must_use]
    pub fn allows(&self, user: &str, action: Action<'_>, namespace: Option<&str>) -> bool {
        self.of_user(user).iter().any(|grant| grant.permits(action, namespace))
    }

    /// The grants of the bindings of the subject, in parts.
    pub(super) fn given(&self, subject: &Subject) -> Vec<Grant> {
        let bindings = self.bindings.iter().filter(|binding| binding.subject == *subject);
        let given = bindings.flat_map(|binding| {
            let rules = self.roles.get(&binding.role).into_iter().flatten();
            let parts = rules.flat_map(parts).map(|rule| Grant {
                rule,
                namespace: binding.namespace.clone(),
            });
            parts.filter(Grant::applies)
        });
        given.collect()
    }

    /// The grants of the user by all bindings, those of teams included.
    pub(super) fn of_user(&self, user: &str) -> Vec<Grant> {
        let mut grants = self.given(&Subject::User(user.to_owned()));
        for team in self.teams_of(user) {
            grants.extend(self.given(&Subject::Team(team.clone())));
        }
        grants
    }

    pub(super) fn teams_of(&self, user: &str) -> impl Iterator<Item = &String> {
        let teams = self.teams.iter().filter(move |(_, users)| users.contains(user));
        teams.map(|(team, _)| team)
    }
}

/// Something that is permitted, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The permitted actions.
    pub rule: PolicyRule,
    /// The namespace; None for the whole cluster.
    pub namespace: Option<String>,
}

impl Grant {
    /// Returns true if it permits the action in the namespace; None for a request about no namespace or about all of
    /// them.
    #[must_use]
    pub fn permits(&self, action: Action<'_>, namespace: Option<&str>) -> bool {
        self.reaches(namespace) && permits(&self.rule, action)
    }

    /// A path is in no namespace.
    fn applies(&self) -> bool {
        self.namespace.is_none() || list(self.rule.non_resource_urls.as_ref()).is_empty()
    }

    fn reaches(&self, namespace: Option<&str>) -> bool {
        self.namespace.is_none() || self.namespace.as_deref() == namespace
    }

    /// Returns true if it permits all that `part` permits, which has one verb, one resource or path, and at most one
    /// name.
    pub(super) fn includes(&self, part: &Self) -> bool {
        self.reaches(part.namespace.as_deref()) && includes(&self.rule, &part.rule)
    }

    /// The grant that both have in common, if there is one; both have one verb, one resource or path, and at most one
    /// name.
    pub(super) fn common(&self, other: &Self) -> Option<Self> {
        let rule = common_part(&self.rule, &other.rule)?;
        let namespace = match (&self.namespace, &other.namespace) {
            (Some(one), Some(another)) if one != another => return None,
            (one, another) => one.clone().or_else(|| another.clone()),
        };
        Some(Self { rule, namespace })
    }
}

impl Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words(&self.rule))?;
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None if list(self.rule.non_resource_urls.as_ref()).is_empty() => f.write_str(" in the whole cluster"),
            None => Ok(()),
        }
    }
}

/// The intersection of two rules, in rules with one verb, one resource or path, and at most one name.
#[must_use]
pub fn common(one: &PolicyRule, another: &PolicyRule) -> Vec<PolicyRule> {
    let (ours, theirs) = (parts(one), parts(another));
    let pairs = ours.iter().flat_map(|own| theirs.iter().map(move |other| (own, other)));
    pairs.filter_map(|(own, other)| common_part(own, other)).collect()
}

/// The intersection of two rules, if it is not empty; both have one verb, one resource or path, and at most one name.
fn common_part(ours: &PolicyRule, theirs: &PolicyRule) -> Option<PolicyRule> {
    Some(PolicyRule {
        verbs: narrower(Some(&ours.verbs), Some(&theirs.verbs), either)?.unwrap_or_default(),
        api_groups: narrower(ours.api_groups.as_ref(), theirs.api_groups.as_ref(), either)?,
        resources: narrower(ours.resources.as_ref(), theirs.resources.as_ref(), resource)?,
        non_resource_urls: narrower(ours.non_resource_urls.as_ref(), theirs.non_resource_urls.as_ref(), path)?,
        resource_names: match (&ours.resource_names, &theirs.resource_names) {
            (Some(names), Some(others)) if names != others => return None,
            (names, others) => names.clone().or_else(|| others.clone()),
        },
    })
}

type Texts = Option<Vec<String>>;

/// The texts that both lists match: `None` if they match none, and an empty list if both lists are absent.
fn narrower(
    ours: Option<&Vec<String>>,
    theirs: Option<&Vec<String>>,
    common: fn(&str, &str) -> Option<String>,
) -> Option<Texts> {
    match (list(ours), list(theirs)) {
        ([], []) => Some(None),
        ([one], [another]) => Some(Some(vec![common(one, another)?])),
        _ => None,
    }
}

fn either(one: &str, another: &str) -> Option<String> {
    match (one, another) {
        (ALL, text) | (text, ALL) => Some(text.to_owned()),
        (one, another) => (one == another).then(|| one.to_owned()),
    }
}

fn resource(one: &str, another: &str) -> Option<String> {
    let sub = |own: &str, text: &str| {
        let sub = own.strip_prefix("*/")?;
        (text.split_once('/')?.1 == sub).then(|| text.to_owned())
    };
    either(one, another)
        .or_else(|| sub(one, another))
        .or_else(|| sub(another, one))
}

fn path(one: &str, another: &str) -> Option<String> {
    if covers_path(one, another) {
        Some(another.to_owned())
    } else {
        covers_path(another, one).then(|| one.to_owned())
    }
}
