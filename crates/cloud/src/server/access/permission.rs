//! Access control: decided from the table of endpoints, the path and the caller, before any lookup. Therefore an
//! organization of others and one that does not exist give the same response, in the same time.

use crate::server::http::call::PathIds;
use crate::server::http::endpoint::Permission;
use crate::server::principal::Principal;
use crate::server::refusal::Refusal;

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
        return Err(Refusal::unauthenticated());
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
