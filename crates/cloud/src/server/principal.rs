//! The caller of a request.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::keys::token::Claims;
pub use crate::models::OrgRole;
use crate::models::values::EndTime;

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A user, or a program with a user's token.
    User {
        id: Uuid,
        memberships: BTreeMap<Uuid, OrgRole>,
        operator: bool,
    },
    /// A cluster, with its own key or a token for that key.
    Cluster { id: Uuid, organization: Uuid },
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

    /// The organization of a cluster, or the first one of a user; nil if the user has none.
    #[must_use]
    pub fn organization(&self) -> Uuid {
        match self {
            Self::User { memberships, .. } => memberships.keys().next().copied().unwrap_or_default(),
            Self::Cluster { organization, .. } => *organization,
        }
    }

    #[must_use]
    pub fn user(&self) -> Option<Uuid> {
        match self {
            Self::User { id, .. } => Some(*id),
            Self::Cluster { .. } => None,
        }
    }

    /// Returns true if the caller may see credentials of `organization`.
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
pub(super) struct Authenticated {
    pub(super) principal: Principal,
    /// The claims of the token; `None` for an API key.
    pub(super) claims: Option<Claims>,
    /// The next end of a membership of the user, from which on the roles are others.
    pub(super) until: Option<EndTime>,
    /// The key that signed the token; `None` for an API key.
    pub(super) signed_by: Option<String>,
    /// The user or cluster, its organizations, the token, and the API key: a change of one of them may affect the
    /// identity.
    pub(super) depends_on: Vec<Uuid>,
    /// The number of the last published change when the caller was looked up.
    pub(super) as_of: i64,
}
