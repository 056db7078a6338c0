//! Permissions over a user: who may change a user, what is deleted with a user, and that every organization keeps an
//! owner.
//!
//! No caller gets more permissions over a user than the caller has: anyone who can set a password can act as that user.

use std::collections::HashSet;

use super::login::LOGIN;
use super::prelude::*;
use super::references::resolve_references;
use crate::models::{Document, SshKeySpec, stored};
use crate::server::access::operators::keep_one;
use crate::server::access::users::not_the_last_owner;
use crate::server::store::{SecretColumn, membership_id};

/// Adds `user`, who existed before, to `organization` with `role`.
pub(super) async fn join_existing(
    transaction: &mut Transaction,
    organization: &str,
    user: &str,
    role: OrgRole,
    owner: &str,
) -> Result<Row, Error> {
    // By their names: also a key that this version would not accept any more.
    for fingerprint in transaction.fingerprints(user).await? {
        only_holder(transaction, organization, user, &fingerprint).await?;
    }
    join(transaction, organization, user, role, owner).await
}

/// Adds `user` to `organization` with `role`.
pub(crate) async fn join(
    transaction: &mut Transaction,
    organization: &str,
    user: &str,
    role: OrgRole,
    owner: &str,
) -> Result<Row, Error> {
    let spec = json!({ "user_id": user, "role": role.word() });
    let row = Row {
        organization_id: organization.to_owned(),
        parent_id: organization.to_owned(),
        owner_id: owner.to_owned(),
        spec: spec.as_object().cloned().unwrap_or_default(),
        ..Row::new(Kind::Membership, membership_id(organization, user))
    };
    transaction.insert(row, &References::to(Kind::User, user)).await
}

/// Replaces a user's fields by those of `document` and the telephone number.
pub(super) async fn rewrite(
    transaction: &mut Transaction,
    before: &Row,
    document: Document,
    phone: Option<Value>,
) -> Result<Row, Error> {
    let (parent, organization) = (&before.parent_id, &before.organization_id);
    let references = resolve_references(transaction, Kind::User, parent, organization, &document).await?;
    let mut spec = document.spec;
    if let Some(phone) = phone {
        spec.insert("phone".to_owned(), phone);
    }
    let after = transaction.update(before, spec, String::new(), &references).await?;
    if after != *before {
        notify_other_organizations(transaction, &after).await?;
    }
    Ok(after)
}

/// Publishes a change of a user, or of an object of the user, to the user's other organizations.
pub(super) async fn notify_other_organizations(transaction: &mut Transaction, row: &Row) -> Result<(), Error> {
    let user = if row.kind == Kind::User {
        &row.id
    } else {
        &row.parent_id
    };
    for organization in organizations_of(transaction, user).await? {
        if organization != row.organization_id {
            transaction.notify(row, &organization, "update").await?;
        }
    }
    Ok(())
}

async fn organizations_of(transaction: &mut Transaction, user: &str) -> Result<Vec<String>, Error> {
    let memberships = transaction.using(Kind::Membership, Kind::User, user).await?;
    Ok(memberships.into_iter().map(|row| row.organization_id).collect())
}

/// Checks that the SSH key in `document` is that of `user` alone wherever the user is a member. What is no SSH key is
/// not checked, nor is the key of `before`, which an earlier version may have accepted for two users.
pub(super) async fn only_own_key(
    transaction: &mut Transaction,
    user: &str,
    document: &Document,
    before: Option<&Row>,
) -> Result<(), Error> {
    let Some(sent) = document.typed::<SshKeySpec>() else {
        return Ok(());
    };
    let had = before.and_then(|row| stored::<SshKeySpec>(&row.spec).ok());
    if had.is_some_and(|had| had.key.fingerprint() == sent.key.fingerprint()) {
        return Ok(());
    }
    for organization in organizations_of(transaction, user).await? {
        only_holder(transaction, &organization, user, sent.key.fingerprint().as_str()).await?;
    }
    Ok(())
}

/// Checks that no other member of the organization has the key of `user`: a node logs in one user by a key. Anyone who
/// may change a key or add a member may see the members and their keys, so the other one is named. Nobody proves that a
/// key is theirs, so the first one keeps it until that user or an admin deletes it: otherwise anybody could take away
/// the access of another one, whose public key is known.
async fn only_holder(
    transaction: &mut Transaction,
    organization: &str,
    user: &str,
    fingerprint: &str,
) -> Result<(), Error> {
    for (holder, id) in transaction.holders(fingerprint).await? {
        let membership = membership_id(organization, &holder);
        if holder == user || transaction.get(Kind::Membership, &membership).await?.is_none() {
            continue;
        }
        let message = format!(
            "the SSH key {fingerprint} is that of the user {holder} of the organization {organization}, and a node logs in only one user by a key: \
             use another key; or, if it is yours, have it deleted there first, by that user or by an admin of the organization: \
             tidewaiter cloud delete ssh-key {id} --user {holder} --organization {organization}"
        );
        return Err(Refusal::conflict(message).into());
    }
    Ok(())
}

/// Returns true if the body that sets a password also revokes the tokens of programs.
pub(super) fn parse_end_tokens(body: &mut Map<String, Value>) -> Result<bool, Refusal> {
    match body.remove("end_tokens") {
        None => Ok(false),
        Some(Value::Bool(ends)) => Ok(ends),
        Some(_) => Err(Refusal::field("end_tokens", "must be true or false")),
    }
}

/// Sets the password of a user, and ends all logins of the user except `kept`; with `end_tokens`, all other tokens too.
pub(super) async fn replace_password(
    transaction: &mut Transaction,
    user: &Row,
    hash: String,
    kept: Option<Uuid>,
    end_tokens: bool,
) -> Result<(), Error> {
    let before = transaction.get(Kind::Password, &user.id).await?;
    let password = Row {
        organization_id: user.organization_id.clone(),
        parent_id: user.id.clone(),
        owner_id: user.id.clone(),
        secret: SecretColumn(hash),
        ..Row::new(Kind::Password, &user.id)
    };
    transaction
        .put(before.as_ref(), password, &References::default())
        .await?;
    if end_tokens {
        return transaction.remove_tokens(user, kept).await;
    }
    let kept = kept.map(|kept| kept.to_string());
    let mut logins = transaction.children(Kind::Token, &user.id).await?;
    logins.retain(|token| token.spec.contains_key(LOGIN) && Some(&token.id) != kept.as_ref());
    transaction.remove_all(&logins).await
}

/// Deletes a user and all memberships of the user, but never the last operator.
pub(super) async fn delete_user(transaction: &mut Transaction, user: &Row) -> Result<(), Error> {
    keep_one(transaction, &user.id).await?;
    for membership in transaction.using(Kind::Membership, Kind::User, &user.id).await? {
        not_the_last_owner(transaction, &membership.organization_id, &user.id).await?;
        remove_member(transaction, &membership).await?;
    }
    transaction.remove(user).await
}

/// Removes a user from an organization, and from its teams and bindings.
pub(super) async fn remove_member(transaction: &mut Transaction, membership: &Row) -> Result<(), Error> {
    let user = membership.text("user_id").unwrap_or_default();
    let organization = &membership.organization_id;
    let bindings = transaction.of_user(Kind::RoleBinding, organization, user).await?;
    transaction.remove_all(&bindings).await?;
    let teams = transaction.of_user(Kind::Team, organization, user).await?;
    transaction.leave_teams(user, &teams).await?;
    transaction.remove(membership).await
}

/// Deletes an organization with everything in it, and the users whose home it is. A member of another organization
/// keeps the account, with the one joined first as the home: what an organization gave a user goes with it, and nothing
/// else. The admins there gain no permissions over others: they can change only a user without permissions elsewhere.
pub(super) async fn disband(transaction: &mut Transaction, organization: &Row) -> Result<(), Error> {
    let home = &organization.id;
    let mut moved = HashSet::new();
    for membership in transaction.memberships_elsewhere(home).await? {
        let user = membership.text("user_id").unwrap_or_default();
        if moved.insert(user.to_owned()) {
            let user = transaction.existing(Kind::User, user).await?;
            transaction.move_home(&user, &membership.organization_id).await?;
        }
    }
    let operators = transaction.of_kind(Kind::Operator).await?;
    if let Some(operator) = operators.iter().find(|row| row.organization_id == *home) {
        let message = format!(
            "the user {}, an operator of this server, is a member of no other organization and would be deleted: add the user to \
             another one, or remove the operator (tidewaiter cloud operators remove)",
            operator.id
        );
        return Err(Refusal::conflict(message).into());
    }
    transaction.remove(organization).await
}

#[cfg(test)]
mod tests;
