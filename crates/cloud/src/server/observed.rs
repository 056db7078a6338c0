//! Requests that change nothing and are in the audit log: failed logins, reads of credentials, and tokens for
//! kube-apiservers.

use http::StatusCode;

use super::call::Call;
use super::cloud::Cloud;
use super::principal::Principal;
use super::store::{Action, Row, Subject};
use crate::models::Kind;

/// Counts a response with credentials. A 304 shows nothing.
pub(super) fn reveal(cloud: &Cloud, call: &Call, status: StatusCode) {
    let (Some((action, kind)), Some(known), StatusCode::OK) = (call.endpoint.reveals, &call.known, status) else {
        return;
    };
    let place = call.place();
    let organization = place.organization.unwrap_or_default();
    // Others get registries without their credentials.
    if kind == Kind::Registry && !known.principal.sees_secrets(organization) {
        return;
    }
    let cluster = match (place.cluster, &known.principal) {
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
        actor: known.principal.actor(),
        address: call.origin.address.clone(),
    };
    cloud.store.observe(subject, &call.origin, cloud.clock.now());
}

/// Counts a wrong password of a user, or a wrong key with the id of an existing one. Without `account`, nobody has this
/// address or key; what was sent is not recorded, because people type passwords into the wrong field.
pub(super) fn failed_login(cloud: &Cloud, call: &Call, kind: Kind, account: Option<&Row>) {
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
    cloud.store.observe(subject, &call.origin, cloud.clock.now());
}
