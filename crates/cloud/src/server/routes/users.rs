//! Permissions over a user: who may change a user, what is deleted with a user, and that every organization keeps an
//! owner.
//!
//! No caller gets more permissions over a user than the caller has: anyone who can set a password can act as that user.

use std::collections::HashSet;

use super::prelude::*;
use super::references::{refuse_past, resolve_references};
use crate::models::{Document, SshKeySpec, stored};
use crate::server::access::operators::keep_one;
use crate::server::access::users::{never_ends, not_the_last_owner, only_owners_make_owners, role_of};
use crate::server::auth::signed_in::LOGIN;
use crate::server::store::{SecretColumn, membership_id};

/// The field of a membership with its end.
pub(crate) const END: &str = "expires_at";

/// Adds `user`, who existed before, to `organization` with `role`, until `end` if there is one.
pub(crate) async fn join_existing(
    transaction: &mut Transaction,
    organization: &str,
    user: &str,
    (role, end): (OrgRole, Option<&Value>),
    owner: &str,
) -> Result<Row, Error> {
    // By their names: also a key that this version would not accept any more.
    for fingerprint in transaction.fingerprints(user).await? {
        only_holder(transaction, organization, user, &fingerprint).await?;
    }
    join(transaction, organization, user, (role, end), owner).await
}

/// Adds `user` to `organization` with `role`, until `end` if there is one.
pub(crate) async fn join(
    transaction: &mut Transaction,
    organization: &str,
    user: &str,
    (role, end): (OrgRole, Option<&Value>),
    owner: &str,
) -> Result<Row, Error> {
    let mut spec = Map::from_iter([
        ("user_id".to_owned(), user.into()),
        ("role".to_owned(), role.word().into()),
    ]);
    spec.extend(
        end.filter(|end| !end.is_null())
            .map(|end| (END.to_owned(), end.clone())),
    );
    let row = Row {
        organization_id: organization.to_owned(),
        parent_id: organization.to_owned(),
        owner_id: owner.to_owned(),
        spec,
        ..Row::new(Kind::Membership, membership_id(organization, user))
    };
    transaction.insert(row, &References::to(Kind::User, user)).await
}

/// Creates the user `id`, whose home is `organization`, and the membership, which `owner` makes. Returns both.
pub(super) async fn create_user(
    transaction: &mut Transaction,
    (id, owner): (&str, &str),
    organization: &str,
    document: Document,
    password: Option<String>,
    (role, end): (OrgRole, Option<&Value>),
) -> Result<(Row, Row), Error> {
    let references = resolve_references(transaction, Kind::User, organization, organization, &document).await?;
    let row = |kind, parent: &str, spec, secret| Row {
        organization_id: organization.to_owned(),
        parent_id: parent.to_owned(),
        owner_id: owner.to_owned(),
        spec,
        secret: SecretColumn(secret),
        ..Row::new(kind, id)
    };
    let user = row(Kind::User, organization, document.spec, String::new());
    if role == OrgRole::Owner {
        never_ends(&user)?;
    }
    let user = transaction.insert(user, &references).await?;
    if let Some(hash) = password {
        let password = row(Kind::Password, id, Map::new(), hash);
        transaction.insert(password, &References::default()).await?;
    }
    let membership = join(transaction, organization, id, (role, end), owner).await?;
    Ok((user, membership))
}

/// Sets the role of a member, and the end of the membership unless `end` is absent. Nobody changes the own end, and one
/// owner always remains whose membership does not end.
pub(super) async fn change_role(
    transaction: &mut Transaction,
    asker: &Principal,
    before: &Row,
    role: OrgRole,
    end: Option<Value>,
) -> Result<Row, Error> {
    let (organization, user) = (&before.organization_id, before.text("user_id").unwrap_or_default());
    if role == OrgRole::Owner {
        never_ends(&transaction.existing(Kind::User, user).await?)?;
    }
    let mut spec = before.spec.clone();
    spec.insert("role".to_owned(), Value::from(role.word()));
    match end {
        Some(Value::Null) => {
            spec.remove(END);
        }
        Some(end) => {
            spec.insert(END.to_owned(), end);
        }
        None => {}
    }
    let (set, had) = (spec.get(END), before.spec.get(END));
    refuse_past(END, set, had, transaction.now())?;
    if set != had && asker.user() == Some(uuid(user)) {
        let message = "expires_at: only another admin can change the end of your own membership";
        return Err(Refusal::forbidden(message).into());
    }
    if role_of(before) == Some(OrgRole::Owner) && (role != OrgRole::Owner || set.is_some()) {
        only_owners_make_owners(asker, organization, OrgRole::Owner)?;
        not_the_last_owner(transaction, organization, user).await?;
    }
    transaction
        .update(before, spec, String::new(), &References::to(Kind::User, user))
        .await
}

/// Replaces a user's fields by those of `document` and the telephone number.
pub(crate) async fn rewrite(
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

/// Sets the password of a user, and ends all logins of the user except `kept`; with `end_tokens`, all other tokens and
/// the links with providers too.
pub(crate) async fn replace_password(
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
    transaction.forget_login_grants(&user.id).await?;
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
    let identities = transaction.children(Kind::Identity, &user.id).await?;
    transaction
        .remove_identities(&user.organization_id, &identities)
        .await?;
    transaction.remove(user).await
}

/// Removes a user from an organization, and from its teams and bindings, with the open invitations of the user's e-mail
/// address.
pub(super) async fn remove_member(transaction: &mut Transaction, membership: &Row) -> Result<(), Error> {
    let user = membership.text("user_id").unwrap_or_default();
    let organization = &membership.organization_id;
    let bindings = transaction.of_user(Kind::RoleBinding, organization, user).await?;
    transaction.remove_all(&bindings).await?;
    let teams = transaction.of_user(Kind::Team, organization, user).await?;
    transaction.leave_teams(user, &teams).await?;
    let mut invitations = transaction.children(Kind::Invitation, organization).await?;
    if !invitations.is_empty() {
        let row = transaction.existing(Kind::User, user).await?;
        let email = row.text("email").unwrap_or_default();
        invitations.retain(|row| row.text("email").is_some_and(|other| other.eq_ignore_ascii_case(email)));
        transaction.remove_all(&invitations).await?;
    }
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
