//! Who may ask for what: decided from the table of endpoints, the path and who asks, before anything is looked up. So an
//! organization that is another's and one that is not there are one answer, in the same time.

use uuid::Uuid;

use super::principal::{OrgRole, Principal};
use super::refusal::Refusal;

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// Everybody, known or not.
    Anyone,
    /// Whoever has a valid token.
    Known,
    /// Every user, about himself.
    User,
    /// A user who may do what concerns all organizations.
    Operator,
    /// Those of the organization in the path.
    Organization {
        /// The least role of a user.
        role: OrgRole,
        /// Whether the cluster in the path, or a cluster of the organization where the path has none, may.
        cluster: bool,
        /// Whether the user in the path may, whatever his role is.
        own: bool,
    },
}

/// The ids in a path that decide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// `organization_id`.
    pub organization: Option<Uuid>,
    /// `cluster_id`.
    pub cluster: Option<Uuid>,
    /// `user_id`.
    pub user: Option<Uuid>,
}

/// Whether `principal` may ask what only `may` may, at `place`.
///
/// # Errors
/// 401 for a stranger, 404 for whoever may not know that there is anything, 403 for whoever is known there and may not.
pub fn allow(may: May, principal: Option<&Principal>, place: Place) -> Result<(), Refusal> {
    if may == May::Anyone {
        return Ok(());
    }
    let Some(principal) = principal else {
        return Err(unknown());
    };
    match may {
        May::Anyone | May::Known => Ok(()),
        May::User => match principal {
            Principal::User { .. } => Ok(()),
            Principal::Cluster { .. } => Err(Refusal::forbidden("only a user may do this, and you are a cluster")),
        },
        May::Operator => match principal {
            Principal::User { operator: true, .. } => Ok(()),
            _ => Err(Refusal::forbidden("only an operator of this server may do this")),
        },
        May::Organization { role, cluster, own } => {
            let organization = place.organization.ok_or_else(Refusal::not_found)?;
            match principal {
                Principal::User { id, .. } => {
                    let has = principal.role_in(organization).ok_or_else(Refusal::not_found)?;
                    if has >= role || (own && place.user == Some(*id)) {
                        return Ok(());
                    }
                    Err(Refusal::forbidden(format!(
                        "your role is {has}, this takes {role}: ask an owner"
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
                    Err(Refusal::forbidden("a cluster may not do this: use a user's token"))
                }
            }
        }
    }
}

/// That a valid token is missing.
#[must_use]
pub fn unknown() -> Refusal {
    Refusal::new(
        http::StatusCode::UNAUTHORIZED,
        "a valid token is missing: send Authorization: JWT TOKEN (log in for one)",
    )
}
