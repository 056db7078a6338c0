//! Checks that keep an operator of the server, and that protect operators from others.

use crate::models::Kind;
use crate::server::Error;
use crate::server::principal::Principal;
use crate::server::refusal::Refusal;
use crate::server::store::{Source, Transaction};

/// Checks that an operator other than `user` remains.
pub(crate) async fn keep_one(transaction: &mut Transaction, user: &str) -> Result<(), Error> {
    let operators = transaction.of_kind(Kind::Operator).await?;
    if operators.iter().all(|operator| operator.id == user) && !operators.is_empty() {
        let message =
            format!("the user {user} is the last operator of this server: make another user an operator first");
        return Err(Refusal::conflict(message).into());
    }
    Ok(())
}

/// Checks that `asker` may delete all users whose home is the organization.
pub(crate) async fn may_delete_home(
    transaction: &mut Transaction,
    asker: &Principal,
    organization: &str,
) -> Result<(), Error> {
    if matches!(asker, Principal::User { operator: true, .. }) {
        return Ok(());
    }
    let operators = transaction.of_kind(Kind::Operator).await?;
    let Some(operator) = operators.iter().find(|row| row.organization_id == organization) else {
        return Ok(());
    };
    let message = format!(
        "the user {}, whose home is this organization, is an operator of this server: only an operator may delete the organization",
        operator.id
    );
    Err(Refusal::forbidden(message).into())
}
