//! Permissions over a user: who may change a user, what is deleted with a user, and that every organization keeps an
//! owner.
//!
//! No caller gets more permissions over a user than the caller has: anyone who can set a password can act as that user.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Error;
use super::cloud::Cloud;
use super::digest::uuid;
use super::hash::Password;
use super::identity::role_of;
use super::principal::{OrgRole, Principal};
use super::refusal::Refusal;
use super::source::{at_home, membership_id};
use super::store::{References, Row, SecretColumn, Source, Transaction};
use super::ties::ties;
use crate::models::{Document, Kind, SshKeySpec, stored};

/// Removes the password in `field` of `body`, and returns its hash.
pub(super) async fn hashed(
    cloud: &Cloud,
    asker: &Principal,
    body: &mut Map<String, Value>,
    field: &str,
) -> Result<Option<String>, Error> {
    let password = match body.remove(field) {
        None => return Ok(None),
        Some(Value::String(password)) => zeroize::Zeroizing::new(password),
        Some(_) => return Err(Refusal::field(field, "must be a text").into()),
    };
    Password::new(&password).map_err(|error| Refusal::field(field, error))?;
    let share = (asker.actor(), asker.organization().to_string(), true);
    let hash = move || {
        let password = Password::new(&password).map_err(Error::internal)?;
        password.hash().map_err(Error::internal)
    };
    cloud.limits.hashed(&*cloud.clock, share, hash).await.map(Some)
}

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
pub(super) async fn join(
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

pub(super) fn only_owners_make_owners(asker: &Principal, organization: &str, role: OrgRole) -> Result<(), Refusal> {
    if role == OrgRole::Owner && asker.role_in(uuid(organization)) != Some(OrgRole::Owner) {
        return Err(Refusal::forbidden("only owners can add or remove owners"));
    }
    Ok(())
}

/// Returns the user's row if `asker` may act as that user, in effect: change the user's credentials.
pub(super) async fn may_act_for(
    transaction: &mut Transaction,
    asker: &Principal,
    organization: &str,
    user: &str,
) -> Result<Row, Error> {
    let row = at_home(transaction, organization, user).await?;
    if asker.user().is_some_and(|asker| asker == uuid(user)) {
        return Ok(row);
    }
    let membership = transaction
        .get(Kind::Membership, &membership_id(organization, user))
        .await?;
    let role = membership.as_ref().and_then(role_of);
    if role > asker.role_in(uuid(organization)) {
        return Err(Refusal::forbidden(
            "the user has more permissions than you: only an owner or the user can change this",
        )
        .into());
    }
    let elsewhere = transaction.using(Kind::Membership, Kind::User, user).await?.len() > 1;
    if elsewhere || transaction.get(Kind::Operator, user).await?.is_some() {
        let message = "the user also has permissions outside this organization, so only the user can change this";
        return Err(Refusal::forbidden(message).into());
    }
    Ok(row)
}

/// Replaces a user's fields by those of `document` and the telephone number.
pub(super) async fn rewrite(
    transaction: &mut Transaction,
    before: &Row,
    document: Document,
    phone: Option<Value>,
) -> Result<Row, Error> {
    let (parent, organization) = (&before.parent_id, &before.organization_id);
    let ties = ties(transaction, Kind::User, parent, organization, &document).await?;
    let mut spec = document.spec;
    if let Some(phone) = phone {
        spec.insert("phone".to_owned(), phone);
    }
    let after = transaction.update(before, spec, String::new(), &ties).await?;
    if after != *before {
        tell_elsewhere(transaction, &after).await?;
    }
    Ok(after)
}

/// Publishes a change of a user, or of an object of the user, to the user's other organizations.
pub(super) async fn tell_elsewhere(transaction: &mut Transaction, row: &Row) -> Result<(), Error> {
    let user = if row.kind == Kind::User {
        &row.id
    } else {
        &row.parent_id
    };
    for organization in organizations_of(transaction, user).await? {
        if organization != row.organization_id {
            transaction.tell(row, &organization, "update").await?;
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
    let Some(said) = document.typed::<SshKeySpec>() else {
        return Ok(());
    };
    let had = before.and_then(|row| stored::<SshKeySpec>(&row.spec).ok());
    if had.is_some_and(|had| had.key.fingerprint() == said.key.fingerprint()) {
        return Ok(());
    }
    for organization in organizations_of(transaction, user).await? {
        only_holder(transaction, &organization, user, said.key.fingerprint().as_str()).await?;
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

pub(super) async fn not_the_last_owner(
    transaction: &mut Transaction,
    organization: &str,
    user: &str,
) -> Result<(), Error> {
    if transaction.has_owner_except(organization, user).await? {
        return Ok(());
    }
    let message = format!("the organization {organization} would have no owner: make another user an owner first");
    Err(Refusal::conflict(message).into())
}

/// Sets the password of a user, and revokes all tokens of the user except `kept`.
pub(super) async fn replace_password(
    transaction: &mut Transaction,
    user: &Row,
    hash: String,
    kept: Option<Uuid>,
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
    transaction.remove_tokens(user, kept).await
}

/// Deletes a user and all memberships of the user, but never the last operator.
pub(super) async fn forget(transaction: &mut Transaction, user: &Row) -> Result<(), Error> {
    super::operators::keep_one(transaction, &user.id).await?;
    for membership in transaction.using(Kind::Membership, Kind::User, &user.id).await? {
        not_the_last_owner(transaction, &membership.organization_id, &user.id).await?;
        leave(transaction, &membership).await?;
    }
    transaction.remove(user).await
}

/// Removes a user from an organization, and from its teams and bindings.
pub(super) async fn leave(transaction: &mut Transaction, membership: &Row) -> Result<(), Error> {
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
