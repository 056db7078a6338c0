//! Access control: decided from the table of endpoints, the path and the caller, before any lookup. Therefore an
//! organization of others and one that does not exist give the same response, in the same time.
//!
//! A token with a scope has the part of its owner's permissions that the scope names, and an endpoint that fits no part
//! of a scope is refused. Neither such a token nor a service account gives anybody access to the cloud or to nodes:
//! what it could create would outlive its token.

use http::Method;

use crate::models::values::ClusterId;
use crate::models::{Kind, ScopeVerb, TokenScope};
use crate::server::http::call::PathIds;
use crate::server::http::endpoint::{Endpoint, Permission};
use crate::server::principal::{OrgRole, Principal};
use crate::server::refusal::Refusal;
use crate::server::store::Action;

/// Checks that `principal` may send a request to `endpoint` with the path `place`.
///
/// # Errors
/// 401 without a valid token, 404 for a caller who may not know whether the object exists, 403 for other callers
/// without permission.
pub fn allow(endpoint: &Endpoint, principal: Option<&Principal>, place: PathIds) -> Result<(), Refusal> {
    if endpoint.may == Permission::Anyone {
        return Ok(());
    }
    let principal = principal.ok_or_else(Refusal::unauthenticated)?;
    if revokes_itself(endpoint, place) && matches!(principal, Principal::ServiceAccount { .. }) {
        return Ok(());
    }
    check_role(endpoint.may, principal, place)?;
    check_scope(endpoint, principal, place)
}

fn check_role(may: Permission, principal: &Principal, place: PathIds) -> Result<(), Refusal> {
    match may {
        Permission::Anyone | Permission::Known => Ok(()),
        Permission::User => match principal {
            Principal::User { .. } => Ok(()),
            Principal::ServiceAccount { .. } => Err(Refusal::forbidden(
                "only users may do this; you are authenticated as a service account",
            )),
            Principal::Cluster { .. } => Err(Refusal::forbidden(
                "only users may do this; you are authenticated as a cluster",
            )),
        },
        Permission::Operator => match principal {
            Principal::User { operator: true, .. } => Ok(()),
            _ => Err(Refusal::forbidden("only operators of this server may do this")),
        },
        Permission::Cluster => {
            let any_member = Permission::Organization {
                role: OrgRole::ReadOnly,
                cluster: true,
                own: false,
            };
            check_role(any_member, principal, place)?;
            match principal {
                Principal::Cluster { .. } => Ok(()),
                _ => Err(Refusal::forbidden("only the cluster itself may do this")),
            }
        }
        Permission::Organization { role, cluster, own } => {
            let organization = place.organization.ok_or_else(Refusal::not_found)?;
            match principal {
                Principal::User { .. } | Principal::ServiceAccount { .. } => {
                    let has = principal.role_in(organization).ok_or_else(Refusal::not_found)?;
                    let is_own = principal.user().is_some_and(|user| place.user == Some(user));
                    if has >= role || (own && is_own) {
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

/// Checks what is refused to service accounts and to tokens with a scope, whatever the role.
fn check_scope(endpoint: &Endpoint, principal: &Principal, place: PathIds) -> Result<(), Refusal> {
    let scope = match principal {
        Principal::User { scope: None, .. } | Principal::Cluster { .. } => return Ok(()),
        Principal::User { scope, .. } | Principal::ServiceAccount { scope, .. } => scope.as_deref(),
    };
    if is_about_itself(endpoint, place) {
        return Ok(());
    }
    if gives_access(endpoint) {
        let message = "service accounts and tokens with a scope do not change users, teams, role bindings, SSH keys, \
                       service accounts or tokens, create no API keys, have nothing to do with invitations, grant no \
                       logins, and get no token for kubectl: log in as a user";
        return Err(Refusal::forbidden(message));
    }
    if scope.map_or(!creates_cluster(endpoint), |scope| includes(scope, endpoint, place)) {
        return Ok(());
    }
    let message = "the token has no scope that includes this: use a token with another scope (kinds, clusters, verbs)";
    Err(Refusal::forbidden(message))
}

/// Returns true for what a program does with its own token: show its owner, and revoke it.
fn is_about_itself(endpoint: &Endpoint, place: PathIds) -> bool {
    let shows_owner = matches!(&*endpoint.path, "/v3/authenticate" | "/v3/account") && endpoint.method == Method::GET;
    shows_owner || revokes_itself(endpoint, place)
}

fn revokes_itself(endpoint: &Endpoint, place: PathIds) -> bool {
    // What is not an id is `current`, or is not found.
    endpoint.path == "/v3/account/tokens/{id}" && endpoint.method == Method::DELETE && place.item.is_none()
}

/// Returns true if a request may give a user or a program access to the cloud, a node or a kube-apiserver. Whom an
/// invitation gives access is shown to people only.
fn gives_access(endpoint: &Endpoint) -> bool {
    let is_of_people = matches!(
        endpoint.kind,
        Some(Kind::User | Kind::SshKey | Kind::ServiceAccount | Kind::Team | Kind::RoleBinding)
    );
    let writes = endpoint.method != Method::GET;
    let issues = matches!(endpoint.reveals, Some((Action::Issue, _)));
    let invites = endpoint.kind == Some(Kind::Invitation);
    let is_own = endpoint.may == Permission::User;
    issues || invites || (writes && (is_of_people || is_own || endpoint.is_shown_once))
}

/// Returns true if the request creates a cluster, whose first API key the response has.
fn creates_cluster(endpoint: &Endpoint) -> bool {
    endpoint.kind == Some(Kind::Cluster) && endpoint.method == Method::POST
}

/// Returns true if `scope` includes the request. Credentials are only for a scope that names their kind: those of
/// registries are left out otherwise, and those without a kind, such as scripts, are for none.
fn includes(scope: &TokenScope, endpoint: &Endpoint, place: PathIds) -> bool {
    let is_named = endpoint.kind.is_some_and(|kind| scope.names(kind));
    let shows_secret = creates_cluster(endpoint) || endpoint.reveals.is_some_and(|(_, kind)| kind != Kind::Registry);
    let in_kinds = is_named || (scope.kinds.is_none() && !shows_secret);
    let verb = match endpoint.method {
        Method::GET => ScopeVerb::Read,
        _ => ScopeVerb::Write,
    };
    let in_cluster = |clusters: &Vec<ClusterId>| place.cluster.is_some_and(|id| clusters.contains(&ClusterId(id)));
    in_kinds
        && scope.verbs.as_ref().is_none_or(|verbs| verbs.contains(&verb))
        && scope.clusters.as_ref().is_none_or(in_cluster)
}
