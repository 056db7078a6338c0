//! The caller of a request.

use std::collections::BTreeMap;
use std::fmt;

use uuid::Uuid;

use super::token::Claims;

/// The role of a user in an organization. Each role includes the permissions of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrgRole {
    /// See everything but credentials and the audit. His SSH keys are not given to clusters.
    ReadOnly,
    /// Change labels, node pools and autoscaling policies, and have SSH keys on the nodes.
    Member,
    /// Change everything but the organization itself and its owners.
    Admin,
    /// Everything.
    Owner,
}

impl OrgRole {
    /// Every role, the least one first.
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::Member, Self::Admin, Self::Owner];

    /// The word on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// The role with the name `word`.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

impl fmt::Display for OrgRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A person, or a program in his name.
    User {
        /// The id of the user.
        id: Uuid,
        /// In which organizations, and as what.
        memberships: BTreeMap<Uuid, OrgRole>,
        /// Whether the user administers all organizations.
        operator: bool,
    },
    /// A cluster, with its own key or a token that it got for it.
    Cluster {
        /// Which.
        id: Uuid,
        /// The organization of the cluster.
        organization: Uuid,
    },
}

impl Principal {
    /// The name in the audit log: `user:ID` or `cluster:ID`.
    #[must_use]
    pub fn actor(&self) -> String {
        match self {
            Self::User { id, .. } => format!("user:{id}"),
            Self::Cluster { id, .. } => format!("cluster:{id}"),
        }
    }

    /// The role of a user in `organization`; `None` for a cluster or another user.
    #[must_use]
    pub fn role_in(&self, organization: Uuid) -> Option<OrgRole> {
        match self {
            Self::User { memberships, .. } => memberships.get(&organization).copied(),
            Self::Cluster { .. } => None,
        }
    }

    /// The id of the user.
    #[must_use]
    pub fn user(&self) -> Option<Uuid> {
        match self {
            Self::User { id, .. } => Some(*id),
            Self::Cluster { .. } => None,
        }
    }

    /// Whether the caller may see credentials of `organization`.
    #[must_use]
    pub fn sees_secrets(&self, organization: Uuid) -> bool {
        match self {
            Self::User { .. } => self.role_in(organization) >= Some(OrgRole::Admin),
            Self::Cluster { organization: own, .. } => *own == organization,
        }
    }
}

/// The authenticated caller.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The caller.
    pub(super) principal: Principal,
    /// The claims of the token; `None` for an API key.
    pub(super) claims: Option<Claims>,
    /// The key that signed the token; None of an API key.
    pub(super) signed_by: Option<String>,
    /// The feed stood here when it was looked up.
    pub(super) as_of: i64,
}
