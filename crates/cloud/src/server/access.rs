//! Access control: decided from the table of endpoints, the path and the caller, before any lookup. Therefore an
//! organization of others and one that does not exist give the same response, in the same time.

use uuid::Uuid;

use super::principal::{OrgRole, Principal};
use super::refusal::Refusal;

/// The permission that an endpoint requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// None: not even a token.
    Anyone,
    /// Any valid token.
    Known,
    /// Any user, for the own account.
    User,
    /// An operator, who administers all organizations.
    Operator,
    /// A role in the organization in the path.
    Organization {
        /// The minimum role of a user.
        role: OrgRole,
        /// True if the cluster in the path, or any cluster of the organization if the path has none, is permitted.
        cluster: bool,
        /// True if the user in the path is permitted, whatever the user's role.
        own: bool,
    },
}

/// The ids in a path that determine the permission.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathIds {
    /// `organization_id`.
    pub organization: Option<Uuid>,
    /// `cluster_id`.
    pub cluster: Option<Uuid>,
    /// `user_id`.
    pub user: Option<Uuid>,
}

/// Checks that `principal` has the permission `may` for the path `place`.
///
/// # Errors
/// 401 without a valid token, 404 for a caller who may not know whether the object exists, 403 for other callers
/// without permission.
pub fn allow(may: Permission, principal: Option<&Principal>, place: PathIds) -> Result<(), Refusal> {
    if may == Permission::Anyone {
        return Ok(());
    }
    let Some(principal) = principal else {
        return Err(unknown());
    };
    match may {
        Permission::Anyone | Permission::Known => Ok(()),
        Permission::User => match principal {
            Principal::User { .. } => Ok(()),
            Principal::Cluster { .. } => Err(Refusal::forbidden(
                "only users may do this; you are authenticated as a cluster",
            )),
        },
        Permission::Operator => match principal {
            Principal::User { operator: true, .. } => Ok(()),
            _ => Err(Refusal::forbidden("only operators of this server may do this")),
        },
        Permission::Organization { role, cluster, own } => {
            let organization = place.organization.ok_or_else(Refusal::not_found)?;
            match principal {
                Principal::User { id, .. } => {
                    let has = principal.role_in(organization).ok_or_else(Refusal::not_found)?;
                    if has >= role || (own && place.user == Some(*id)) {
                        return Ok(());
                    }
                    Err(Refusal::forbidden(format!(
                        "your role is {has}, but this requires {role}: ask an owner"
                    )))
                }
                Principal::Cluster {
                    id,
                    organization: own_organization,
                } => {
                    if *own_organization != organization || place.cluster.is_some_and(|asked| asked != *id) {
                        return Err(Refusal::not_found());
                    }
                    if cluster {
                        return Ok(());
                    }
                    Err(Refusal::forbidden("clusters may not do this: use the token of a user"))
                }
            }
        }
    }
}

/// The error of a missing or invalid token.
#[must_use]
pub fn unknown() -> Refusal {
    Refusal::new(
        http::StatusCode::UNAUTHORIZED,
        "no valid token: log in and send Authorization: JWT TOKEN",
    )
}
