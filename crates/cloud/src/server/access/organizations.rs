//! Organizations that are locked against changes, and those that require a second factor.

use serde_json::Value;

use crate::models::Kind;
use crate::server::Error;
use crate::server::refusal::Refusal;
use crate::server::store::{Row, Source};

/// The organization, unless it is locked.
pub(crate) async fn unlocked(source: &mut dyn Source, organization: &str) -> Result<Row, Error> {
    let row = source.existing(Kind::Organization, organization).await?;
    if is_locked(&row) {
        return Err(
            Refusal::forbidden("the organization is locked: ask an operator of this server to unlock it").into(),
        );
    }
    Ok(row)
}

/// Returns true if the users whose home is `organization` need more than a password.
pub(crate) fn requires_second_factor(organization: &Row) -> bool {
    organization.spec.get("second_factor_required") == Some(&Value::Bool(true))
}

/// Returns true if the organization is locked against changes.
pub(crate) fn is_locked(organization: &Row) -> bool {
    let locked = organization.status.as_ref().and_then(|status| status.get("locked"));
    locked == Some(&Value::Bool(true))
}
