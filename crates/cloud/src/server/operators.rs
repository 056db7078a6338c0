//! Operators: users who administer all organizations.
//!
//! There is always one. Only operators add and remove operators, and delete an organization that is an operator's home.
//! A user who cannot log in does not become one, because nobody else could set the password afterwards.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::Error;
use super::call::{Call, Reply, respond};
use super::cloud::Cloud;
use super::principal::Principal;
use super::refusal::Refusal;
use super::remember::written;
use super::store::{References, Row, Source, Transaction};
use super::view::unix_millis;
use crate::models::Kind;

fn shown(operator: &Row, user: &Row) -> Value {
    let said = |field: &str| user.spec.get(field).cloned().unwrap_or_default();
    json!({ "id": user.id, "name": said("name"), "email": said("email"), "added_at": unix_millis(&operator.created_at) })
}

/// The user in the path does not exist. Only an operator learns that.
fn not_found(reason: &str) -> Refusal {
    Refusal {
        status: StatusCode::NOT_FOUND,
        ..Refusal::field("user_id", reason)
    }
}

pub(super) async fn list(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let mut items = Vec::new();
    for operator in (&mut &cloud.store).of_kind(Kind::Operator).await? {
        let user = cloud.store.get(Kind::User, &operator.id).await?;
        items.extend(user.map(|user| shown(&operator, &user)));
    }
    Ok(respond(call, &items))
}

/// Makes a user an operator. The audit log of the user's home organization records it.
pub(super) async fn add(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (id, owner) = (call.key("user_id")?, call.owner());
    written(cloud, call, async move |transaction| {
        let user = transaction.get(Kind::User, &id).await?;
        let user = user.ok_or_else(|| not_found("there is no such user"))?;
        if let Some(operator) = transaction.get(Kind::Operator, &id).await? {
            return Ok(Reply::ok(&shown(&operator, &user)));
        }
        if transaction.get(Kind::Password, &id).await?.is_none() {
            let reason = "the user has no password and could not log in: set a password first";
            return Err(Refusal {
                status: StatusCode::CONFLICT,
                ..Refusal::field("user_id", reason)
            }
            .into());
        }
        let row = Row {
            parent_id: id.clone(),
            organization_id: user.organization_id.clone(),
            owner_id: owner,
            ..Row::new(Kind::Operator, id)
        };
        let operator = transaction.insert(row, &References::default()).await?;
        Ok(Reply::ok(&shown(&operator, &user)))
    })
    .await
}

/// Revokes a user's operator rights.
pub(super) async fn remove(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let id = call.key("user_id")?;
    written(cloud, call, async move |transaction| {
        let operator = transaction.get(Kind::Operator, &id).await?;
        let operator = operator.ok_or_else(|| not_found("the user is not an operator"))?;
        keep_one(transaction, &id).await?;
        transaction.remove(&operator).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// Checks that an operator other than `user` remains.
pub(super) async fn keep_one(transaction: &mut Transaction, user: &str) -> Result<(), Error> {
    let operators = transaction.of_kind(Kind::Operator).await?;
    if operators.iter().all(|operator| operator.id == user) && !operators.is_empty() {
        let message =
            format!("the user {user} is the last operator of this server: make another user an operator first");
        return Err(Refusal::conflict(message).into());
    }
    Ok(())
}

/// Checks that `asker` may delete all users whose home is the organization.
pub(super) async fn may_delete_home(
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
