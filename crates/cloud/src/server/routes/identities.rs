//! The accounts of a user at sign-in providers, and the ways that a user has to sign in, of which one always remains.

use super::lists::all;
use super::prelude::*;
use super::second_factor::may_require;
use super::tokens::check_recent_login;
use crate::models::{Document, OrganizationSpec, UniqueName};
use crate::server::access::organizations::requires_second_factor;
use crate::server::access::users::not_ended;
use crate::server::oidc::Person;
use crate::server::principal::Authenticated;

/// The name of a person among all identities: nobody else has this subject at this issuer.
pub(super) fn name(issuer: &str, subject: &str) -> UniqueName {
    UniqueName::of("subject", &[("issuer", issuer), ("subject", subject)])
}

/// The identity of a person, if a user has it.
pub(super) async fn of_person(source: &mut dyn Source, person: &Person) -> Result<Option<Row>, Error> {
    let name = name(&person.issuer, &person.subject).name;
    Ok(source.named(Kind::Identity, "", &name).await?)
}

/// Links a person of `provider` with a user.
pub(super) async fn add(
    transaction: &mut Transaction,
    user: &Row,
    provider: &str,
    person: &Person,
) -> Result<(), Error> {
    let spec = json!({ "provider": provider, "issuer": person.issuer, "subject": person.subject });
    let row = Row {
        organization_id: user.organization_id.clone(),
        parent_id: user.id.clone(),
        owner_id: user.id.clone(),
        spec: spec.as_object().cloned().unwrap_or_default(),
        ..Row::new(Kind::Identity, Uuid::new_v4())
    };
    let references = References {
        name: Some(name(&person.issuer, &person.subject)),
        ..References::default()
    };
    transaction.insert(row, &references).await?;
    Ok(())
}

pub(super) async fn list(app: &AppState, call: &Call) -> Result<Response, Error> {
    let owner = call.owner();
    all(app, call, Listed::Children(Kind::Identity, &owner), |row| {
        Ok(shown(row))
    })
    .await
}

fn shown(row: &Row) -> Map<String, Value> {
    let mut item = row.spec.clone();
    item.insert("id".to_owned(), Value::from(row.id.clone()));
    item.insert("user_id".to_owned(), Value::from(row.parent_id.clone()));
    item.insert("created_at".to_owned(), unix_millis(&row.created_at));
    item
}

pub(super) async fn delete(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (id, owner, state) = (call.key("id")?, call.owner(), app.clone());
    write(app, call, async move |transaction| {
        let row = transaction.get(Kind::Identity, &id).await?;
        let row = row
            .filter(|row| row.parent_id == owner)
            .ok_or_else(Refusal::not_found)?;
        let user = transaction.existing(Kind::User, &owner).await?;
        if !has_password(transaction, &user).await? && !has_identity(&state, transaction, &user, &id).await? {
            let message =
                "it is your last way to sign in: link another provider first, or have an admin set a password";
            return Err(Refusal::conflict(message).into());
        }
        transaction.remove_identities(&user.organization_id, &[row]).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// Returns true if the user can log in with a password.
async fn has_password(transaction: &mut Transaction, user: &Row) -> Result<bool, Error> {
    let home = transaction.get(Kind::Organization, &user.organization_id).await?;
    let password = transaction.get(Kind::Password, &user.id).await?;
    Ok(password.is_some() && !home.as_ref().is_some_and(disables_passwords))
}

/// Returns true if the user can sign in at a provider with an identity other than `except`.
pub(super) async fn has_identity(
    app: &AppState,
    transaction: &mut Transaction,
    user: &Row,
    except: &str,
) -> Result<bool, Error> {
    let now = transaction.now();
    let mut memberships = transaction.using(Kind::Membership, Kind::User, &user.id).await?;
    memberships.retain(|membership| not_ended(membership, now).is_ok());
    let identities = transaction.children(Kind::Identity, &user.id).await?;
    let is_usable = |identity: &Row| {
        let issuer = identity.text("issuer").unwrap_or_default();
        let mut organizations = memberships.iter().map(|membership| &membership.organization_id);
        identity.id != except && organizations.any(|organization| app.oidc.is_offered(issuer, organization))
    };
    Ok(identities.iter().any(is_usable))
}

/// Returns true if the users whose home is `organization` cannot log in with a password once they have linked a
/// provider.
pub(super) fn disables_passwords(organization: &Row) -> bool {
    organization.spec.get("passwords_disabled") == Some(&Value::Bool(true))
}

/// Refuses to switch off what protects sign-ins without a recent login, which no program has.
pub(super) async fn refuse_weaker_sign_in(
    transaction: &mut Transaction,
    caller: &Authenticated,
    document: &Document,
    before: &Row,
) -> Result<(), Error> {
    let Some(spec) = document.typed::<OrganizationSpec>() else {
        return Ok(());
    };
    let is_weaker = disables_passwords(before) && !spec.passwords_disabled
        || requires_second_factor(before) && !spec.second_factor_required;
    if !is_weaker {
        return Ok(());
    }
    let claims = caller.claims.as_ref().ok_or_else(Refusal::unauthenticated)?;
    check_recent_login(transaction, claims.id, "changing how people sign in").await
}

/// Checks that the owner who switches passwords off can sign in without one, and that a second factor that is required
/// can be had. What is no organization is not checked.
pub(super) async fn check_sign_in(
    app: &AppState,
    transaction: &mut Transaction,
    asker: &str,
    document: &Document,
    before: Option<&Row>,
) -> Result<(), Error> {
    let Some(spec) = document.typed::<OrganizationSpec>() else {
        return Ok(());
    };
    if spec.second_factor_required {
        may_require(app)?;
    }
    if !spec.passwords_disabled || before.is_some_and(disables_passwords) {
        return Ok(());
    }
    let asker = transaction.existing(Kind::User, asker).await?;
    if has_identity(app, transaction, &asker, "").await? {
        return Ok(());
    }
    let reason = "cannot be set by an owner who has only a password: link a provider under My account first";
    Err(Refusal::field("passwords_disabled", reason).into())
}
