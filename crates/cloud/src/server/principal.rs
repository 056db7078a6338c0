//! The caller of a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::keys::token::Claims;
pub use crate::models::OrgRole;
use crate::models::values::EndTime;
use crate::models::{Kind, TokenScope};

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A user, or a program with a user's token.
    User {
        id: Uuid,
        memberships: BTreeMap<Uuid, OrgRole>,
        /// False with a token that has a scope.
        operator: bool,
        /// The scope of the token; `None` without a limit.
        scope: Option<Arc<TokenScope>>,
    },
    /// A service account of an organization, which is no user.
    ServiceAccount {
        id: Uuid,
        organization: Uuid,
        role: OrgRole,
        /// The scope of the token; `None` without a limit.
        scope: Option<Arc<TokenScope>>,
    },
    /// A cluster, with its own key or a token for that key.
    Cluster { id: Uuid, organization: Uuid },
}

impl Principal {
    /// The name in the audit log: `user:ID`, `service_account:ID` or `cluster:ID`.
    #[must_use]
    pub fn actor(&self) -> String {
        match self {
            Self::User { id, .. } => format!("user:{id}"),
            Self::ServiceAccount { id, .. } => format!("service_account:{id}"),
            Self::Cluster { id, .. } => format!("cluster:{id}"),
        }
    }

    /// The role of a user or a service account in `organization`; `None` for a cluster, and for others.
    #[must_use]
    pub fn role_in(&self, organization: Uuid) -> Option<OrgRole> {
        match self {
            Self::User { memberships, .. } => memberships.get(&organization).copied(),
            Self::ServiceAccount {
                organization: own,
                role,
                ..
            } => (*own == organization).then_some(*role),
            Self::Cluster { .. } => None,
        }
    }

    /// The organization of a cluster or a service account, or the first one of a user; nil if the user has none.
    #[must_use]
    pub fn organization(&self) -> Uuid {
        match self {
            Self::User { memberships, .. } => memberships.keys().next().copied().unwrap_or_default(),
            Self::ServiceAccount { organization, .. } | Self::Cluster { organization, .. } => *organization,
        }
    }

    #[must_use]
    pub fn user(&self) -> Option<Uuid> {
        match self {
            Self::User { id, .. } => Some(*id),
            Self::ServiceAccount { .. } | Self::Cluster { .. } => None,
        }
    }

    /// Returns true for a service account and for a token with a scope.
    #[must_use]
    pub fn is_program(&self) -> bool {
        matches!(self, Self::User { scope: Some(_), .. } | Self::ServiceAccount { .. })
    }

    /// Returns true if the caller may see credentials of registries of `organization`. A scope must name registries.
    #[must_use]
    pub fn sees_secrets(&self, organization: Uuid) -> bool {
        match self {
            Self::User { scope, .. } | Self::ServiceAccount { scope, .. } => {
                let in_scope = scope.as_ref().is_none_or(|scope| scope.names(Kind::Registry));
                in_scope && self.role_in(organization) >= Some(OrgRole::Admin)
            }
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
    /// The user, service account or cluster, its organizations, the token, and the API key: a change of one of them may
    /// affect the identity.
    pub(super) depends_on: Vec<Uuid>,
    /// The number of the last published change when the caller was looked up.
    pub(super) as_of: i64,
}
