//! The caller of a request.

use std::collections::BTreeMap;
use std::fmt;

use uuid::Uuid;

use super::token::Claims;

/// The role of a user in an organization. Each role includes the permissions of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrgRole {
    /// Sees everything except credentials and the audit log. The user's SSH keys are not sent to clusters.
    ReadOnly,
    /// Changes labels, node pools and autoscaling policies, and has SSH keys on the nodes.
    Member,
    /// Changes everything except the organization itself and its owners.
    Admin,
    /// All permissions.
    Owner,
}

impl OrgRole {
    /// All roles, in ascending order.
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::Member, Self::Admin, Self::Owner];

    /// The name on the wire.
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
    /// A user, or a program with a user's token.
    User {
        /// The id of the user.
        id: Uuid,
        /// The role in each organization of the user.
        memberships: BTreeMap<Uuid, OrgRole>,
        /// Whether the user administers all organizations.
        operator: bool,
    },
    /// A cluster, with its own key or a token for that key.
    Cluster {
        /// The id of the cluster.
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
    /// The key that signed the token; `None` for an API key.
    pub(super) signed_by: Option<String>,
    /// The user or cluster, and the token or API key: a change of one of them may affect the identity.
    pub(super) depends_on: Vec<Uuid>,
    /// The number of the last published change when the caller was looked up.
    pub(super) as_of: i64,
}
