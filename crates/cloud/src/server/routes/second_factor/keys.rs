//! The security keys and recovery codes of a user: changed by the user, and removed by an admin of the home.

use webauthn_rs::prelude::SecurityKey;

use super::super::lists::all;
use super::super::login_grants::take;
use super::super::prelude::*;
use super::super::tokens::check_recent_login;
use super::ceremonies::{begin_registration, new_grant, references, registered, remove_once, use_up};
use super::{COUNTER, check_recent};
use crate::models::values::DisplayName;
use crate::server::access::organizations::{requires_second_factor, unlocked};
use crate::server::access::users::{may_act_for, may_end};
use crate::server::http::call::refuse_others;
use crate::server::keys::codes::{letters, random_code, recovery_code, s256};
use crate::server::store::{GrantKind, LoginGrant, SecretColumn, membership_id};

/// The maximum number of security keys of a user.
const MAX_KEYS: usize = 10;
/// The number of recovery codes.
const CODES: usize = 10;

pub(super) fn take_name(body: &mut Map<String, Value>) -> Result<DisplayName, Refusal> {
    let name: Result<DisplayName, _> = take(body, "name")?.parse();
    name.map_err(|error| Refusal::field("name", error))
}

/// Adds a key. Returns new recovery codes with the first one.
pub(super) async fn add_key(
    transaction: &mut Transaction,
    user: &Row,
    name: &DisplayName,
    key: &SecurityKey,
) -> Result<(Row, Option<Vec<String>>), Error> {
    let keys = transaction.children(Kind::SecurityKey, &user.id).await?;
    check_room(&keys)?;
    let row = Row {
        spec: Map::from_iter([("name".to_owned(), name.as_str().into())]),
        secret: SecretColumn(text(key)),
        ..below(user, Kind::SecurityKey, Uuid::new_v4().to_string())
    };
    let row = transaction.insert(row, &references(key)).await?;
    let codes = if keys.is_empty() {
        Some(replace_codes(transaction, user).await?)
    } else {
        None
    };
    Ok((row, codes))
}

fn check_room(keys: &[Row]) -> Result<(), Refusal> {
    if keys.len() < MAX_KEYS {
        return Ok(());
    }
    let message = format!("you have {MAX_KEYS} security keys, and more are not permitted: remove one first");
    Err(Refusal::conflict(message))
}

/// A new object of `user`.
fn below(user: &Row, kind: Kind, id: String) -> Row {
    Row {
        organization_id: user.organization_id.clone(),
        parent_id: user.id.clone(),
        owner_id: user.id.clone(),
        ..Row::new(kind, id)
    }
}

/// Replaces the recovery codes of a user, of which only digests are stored, and returns them.
async fn replace_codes(transaction: &mut Transaction, user: &Row) -> Result<Vec<String>, Error> {
    let codes = (0..CODES).map(|_| recovery_code()).collect::<Result<Vec<_>, _>>();
    let codes = codes.map_err(Error::internal)?;
    let digests: Vec<String> = codes.iter().map(|code| s256(&letters(code))).collect();
    let before = transaction.get(Kind::RecoveryCodes, &user.id).await?;
    let row = Row {
        spec: Map::from_iter([("left".to_owned(), codes.len().into())]),
        secret: SecretColumn(text(&digests)),
        ..below(user, Kind::RecoveryCodes, user.id.clone())
    };
    transaction.put(before.as_ref(), row, &References::default()).await?;
    Ok(codes)
}

/// Removes all security keys and recovery codes of a user, and ends begun sign-ins.
pub(crate) async fn remove_second_factor(transaction: &mut Transaction, user: &str) -> Result<(), Error> {
    for kind in [Kind::SecurityKey, Kind::RecoveryCodes] {
        let rows = transaction.children(kind, user).await?;
        transaction.remove_all(&rows).await?;
    }
    Ok(transaction.forget_login_grants(user).await?)
}

fn key_shown(row: &Row) -> Map<String, Value> {
    let mut item = row.spec.clone();
    item.remove(COUNTER);
    item.insert("id".to_owned(), row.id.clone().into());
    item.insert("created_at".to_owned(), unix_millis(&row.created_at));
    item
}

pub(in crate::server::routes) async fn list(app: &AppState, call: &Call) -> Result<Response, Error> {
    let owner = call.owner();
    let keys = Listed::Children(Kind::SecurityKey, &owner);
    all(app, call, keys, |row| Ok(key_shown(row))).await
}

/// Begins to register a security key of the caller.
pub(in crate::server::routes) async fn begin_key(app: &AppState, call: &Call) -> Result<Response, Error> {
    let user = app.store.get(Kind::User, &call.owner()).await?;
    let user = user.ok_or_else(Refusal::unauthenticated)?;
    let keys = (&mut &app.store).children(Kind::SecurityKey, &user.id).await?;
    check_room(&keys)?;
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    let (options, state) = begin_registration(app, &user, &keys)?;
    let code = random_code().map_err(Error::internal)?;
    let grant = LoginGrant {
        token: caller.id.to_string(),
        ..new_grant(app, GrantKind::AnotherKey, &user.id, &code, state)
    };
    write(app, call, async move |transaction| {
        check_recent(transaction, &caller).await?;
        transaction.add_login_grant(&grant).await?;
        Ok(Reply::ok(&json!({ "challenge": code, "options": options })).without_etag())
    })
    .await
}

/// Registers a security key of the caller, in the login that began it.
pub(in crate::server::routes) async fn add(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let (name, digest) = (take_name(&mut body)?, s256(&take(&mut body, "challenge")?));
    let credential = body.remove("credential").unwrap_or_default();
    refuse_others(&body)?;
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    let (owner, login) = (call.owner(), caller.id.to_string());
    let refused = || {
        let reason = "does not answer the challenge, which is valid once and for five minutes: register the key again";
        Refusal::field("credential", reason)
    };
    let is_own =
        |grant: &LoginGrant| grant.kind == GrantKind::AnotherKey && grant.user == owner && grant.token == login;
    let grant = LoginGrant::with_digest(&mut &app.store, &digest, app.clock.now()).await?;
    let grant = grant.filter(is_own).ok_or_else(refused)?;
    let Some(key) = registered(app, &grant, credential) else {
        use_up(app, call.by(), grant).await?;
        return Err(refused().into());
    };
    write(app, call, async move |transaction| {
        check_recent(transaction, &caller).await?;
        if !remove_once(transaction, &grant).await? {
            return Err(refused().into());
        }
        let user = transaction.existing(Kind::User, &owner).await?;
        let (row, codes) = add_key(transaction, &user, &name, &key).await?;
        let mut item = key_shown(&row);
        item.extend(codes.map(|codes| ("recovery_codes".to_owned(), json!(codes))));
        Ok(Reply::ok(&item).without_etag())
    })
    .await
}

pub(in crate::server::routes) async fn delete(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (id, owner) = (call.key("id")?, call.owner());
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    write(app, call, async move |transaction| {
        check_recent(transaction, &caller).await?;
        let keys = transaction.children(Kind::SecurityKey, &owner).await?;
        let row = keys.iter().find(|row| row.id == id).ok_or_else(Refusal::not_found)?;
        if keys.len() > 1 {
            transaction.remove(row).await?;
            return Ok(Reply::nothing());
        }
        let home = transaction.get(Kind::Organization, &row.organization_id).await?;
        if home.as_ref().is_some_and(requires_second_factor) {
            let message =
                "it is your last security key, and your organization requires one: register another one first";
            return Err(Refusal::conflict(message).into());
        }
        remove_second_factor(transaction, &owner).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// Replaces the recovery codes of the caller.
pub(in crate::server::routes) async fn renew_codes(app: &AppState, call: &Call) -> Result<Response, Error> {
    let owner = call.owner();
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    write(app, call, async move |transaction| {
        check_recent(transaction, &caller).await?;
        if transaction.children(Kind::SecurityKey, &owner).await?.is_empty() {
            let message = "you have no security key in whose place a code could be used: register one first";
            return Err(Refusal::conflict(message).into());
        }
        let user = transaction.existing(Kind::User, &owner).await?;
        let codes = replace_codes(transaction, &user).await?;
        Ok(Reply::ok(&json!({ "recovery_codes": codes })).without_etag())
    })
    .await
}

/// Removes the second factor of a user whose home is the organization, who may then sign in with the password. Of a
/// member of several organizations, an operator alone does.
pub(in crate::server::routes) async fn reset(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    let caller = call.caller()?.clone();
    if caller.principal.user() == Some(uuid(&id)) {
        return Err(Refusal::forbidden("remove your own security keys under My account").into());
    }
    write(app, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        let membership = membership_id(&organization, &id);
        transaction.existing(Kind::Membership, &membership).await?;
        let claims = caller.claims.as_ref().ok_or_else(Refusal::unauthenticated)?;
        check_recent_login(transaction, claims.id, "resetting a second factor").await?;
        let user = match caller.principal {
            Principal::User { operator: true, .. } => {
                may_end(transaction, &caller.principal, &organization, &id).await?
            }
            _ => may_act_for(transaction, &caller.principal, &organization, &id).await?,
        };
        remove_second_factor(transaction, &user.id).await?;
        Ok(Reply::nothing())
    })
    .await
}
