//! Requests that change nothing and are in the audit log: failed logins, reads of credentials, and tokens for
//! kube-apiservers.

use super::prelude::*;
use crate::server::store::{Action, Subject};

/// Counts a response with credentials. A 304 shows nothing.
pub(crate) fn reveal(app: &AppState, call: &Call, status: StatusCode) {
    let (Some((action, kind)), Some(caller), StatusCode::OK) = (call.endpoint.reveals, &call.caller, status) else {
        return;
    };
    let place = call.path_ids();
    let organization = place.organization.unwrap_or_default();
    // Others, and pages, get registries without their credentials.
    if kind == Kind::Registry && !call.sees_secrets(organization) {
        return;
    }
    let cluster = match (place.cluster, &caller.principal) {
        (Some(cluster), _) => cluster.to_string(),
        (None, Principal::Cluster { id, .. }) => id.to_string(),
        _ => String::new(),
    };
    let object = match kind {
        Kind::Cluster => cluster.clone(),
        Kind::ScriptTemplate => call.word("target").to_owned(),
        _ => call.word("id").to_owned(),
    };
    let subject = Subject {
        action,
        organization: organization.to_string(),
        cluster,
        kind,
        object,
        actor: caller.principal.actor(),
        address: call.origin.address.clone(),
    };
    app.store.observe(subject, &call.origin, app.clock.now());
}

/// Counts a wrong password of a user, or a wrong key with the id of an existing one. Without `account`, nobody has this
/// address or key; what was sent is not recorded, because people type passwords into the wrong field.
pub(super) fn failed_login(app: &AppState, call: &Call, kind: Kind, account: Option<&Row>) {
    let of = |field: fn(&Row) -> &String| account.map(field).cloned().unwrap_or_default();
    let subject = Subject {
        action: Action::FailedLogin,
        organization: of(|row| &row.organization_id),
        cluster: of(|row| &row.cluster_id),
        kind,
        object: of(|row| &row.id),
        actor: String::new(),
        address: call.client.to_string(),
    };
    app.store.observe(subject, &call.origin, app.clock.now());
}
