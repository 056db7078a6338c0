//! Logging in, and a user's own account: profile, password, tokens, organizations.

use jiff::{SignedDuration, Timestamp};

use super::lists::all;
use super::login::{LOGIN, add_token};
use super::observed::failed_login;
use super::prelude::*;
use super::users::{replace_password, rewrite};
use crate::models::Document;
use crate::models::values::{DisplayName, Phone, UserId};
use crate::server::access::organizations::unlocked;
use crate::server::auth::passwords::{hash_password, verify};
use crate::server::http::call::refuse_others;
use crate::server::keys::token::{Claims, TokenUse};
use crate::server::principal::Authenticated;

/// The maximum lifetime of a token that a user creates: a year.
pub(super) const LONGEST: u32 = 365 * 24 * 60 * 60;

/// The time after a login in which it may create tokens that outlive it, grant logins to programs, and make operators.
const RECENT: SignedDuration = SignedDuration::from_mins(10);

/// The maximum lifetime of any token.
pub const LONGEST_TOKEN: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Responds with the identity of the caller's token, for any use of the token: a coordinator requests this about its
/// callers.
pub(super) async fn authenticate(app: &AppState, call: &Call) -> Result<Response, Error> {
    let caller = call.caller()?;
    let only = cluster_organization(app, caller).await?;
    let mut answer = match &caller.principal {
        Principal::User { id, memberships, .. } => {
            let organizations: Vec<_> = memberships
                .iter()
                .filter(|(id, _)| only.is_none_or(|only| only == **id))
                .map(|(id, role)| json!({ "id": id.to_string(), "role": role.word() }))
                .collect();
            json!({ "type": "user", "user_id": id.to_string(), "organizations": organizations })
        }
        Principal::Cluster { id, organization } => json!({
            "type": "cluster",
            "cluster_id": id.to_string(),
            "organizations": [{ "id": organization.to_string(), "role": "cluster" }],
        }),
    };
    // With a token for a cluster, as an admin of its organization, the caller may have everything removed from that
    // cluster. No other token says which cluster is meant.
    let role = only.and_then(|only| caller.principal.role_in(only));
    let may_terminate = role >= Some(OrgRole::Admin);
    let roles: &[&str] = if may_terminate { &["terminate"] } else { &[] };
    let tokens = app.authenticator.tokens.load();
    answer["metadata"] = json!({ "https://containership.io/roles": roles });
    answer["iss"] = Value::from(tokens.issuer());
    if let Some(claims) = &caller.claims {
        answer["sub"] = Value::from(claims.token_use.subject());
        answer["aud"] = Value::from(claims.token_use.audience(tokens.issuer()));
        answer["exp"] = Value::from(claims.expires_at.as_second());
    }
    Ok(Reply::ok(&answer).into_response())
}

/// The organization of the cluster that the caller's token is for, of which alone a token that is presented to a
/// cluster tells anything; nil if the cluster was deleted. `None` for a token for this API.
async fn cluster_organization(app: &AppState, caller: &Authenticated) -> Result<Option<Uuid>, Error> {
    let Some(TokenUse::Kubernetes { cluster, .. }) = caller.claims.as_ref().map(|claims| &claims.token_use) else {
        return Ok(None);
    };
    let cluster = app.store.get(Kind::Cluster, &cluster.to_string()).await?;
    Ok(Some(
        cluster.map_or_else(Uuid::nil, |cluster| uuid(&cluster.organization_id)),
    ))
}

async fn own_row(app: &AppState, call: &Call) -> Result<Row, Error> {
    let row = app.store.get(Kind::User, &call.owner()).await?;
    Ok(row.ok_or_else(Refusal::unauthenticated)?)
}

fn account(row: &Row) -> Map<String, Value> {
    let mut account = row.spec.clone();
    account.entry("phone").or_insert(Value::Null);
    account.insert("id".to_owned(), Value::from(row.id.clone()));
    account.insert("created_at".to_owned(), unix_millis(&row.created_at));
    account.insert("updated_at".to_owned(), unix_millis(&row.updated_at));
    // A user who may not log in is deleted, so existing users are enabled.
    account.insert("enabled".to_owned(), Value::Bool(true));
    account
}

pub(super) async fn get(app: &AppState, call: &Call) -> Result<Response, Error> {
    Ok(respond(call, &account(&own_row(app, call).await?)))
}

pub(super) async fn change(app: &AppState, call: &Call) -> Result<Response, Error> {
    let patch = call.is_patch();
    let body = object(&call.body)?;
    let (id, condition) = (call.owner(), call.condition());
    write(app, call, async move |transaction| {
        let before = transaction.existing(Kind::User, &id).await?;
        unlocked(transaction, &before.organization_id).await?;
        let seen = account(&before);
        condition.check(text(&seen).as_bytes())?;
        let (document, phone) = parse_account_update(&before, &seen, body, patch)?;
        let after = rewrite(transaction, &before, document, phone).await?;
        Ok(Reply::ok(&account(&after)))
    })
    .await
}

fn parse_account_update(
    before: &Row,
    seen: &Map<String, Value>,
    mut body: Map<String, Value>,
    patch: bool,
) -> Result<(Document, Option<Value>), Error> {
    for field in ["id", "created_at", "updated_at", "enabled", "expires_at"] {
        if let Some(value) = body.remove(field)
            && seen.get(field) != Some(&value)
        {
            return Err(Refusal::field(field, "is set by the server and cannot be changed; omit it").into());
        }
    }
    let mut whole = Value::Object(if patch { before.spec.clone() } else { Map::new() });
    json_patch::merge(&mut whole, &Value::Object(body));
    // Only others set the end of a user's access.
    if let Some(end) = before.spec.get("expires_at") {
        whole["expires_at"] = end.clone();
    }
    let phone = whole.as_object_mut().and_then(|whole| whole.remove("phone"));
    let phone = match phone {
        None | Some(Value::Null) => None,
        Some(Value::String(phone)) => {
            let phone: Phone = phone.parse().map_err(|error| Refusal::field("phone", error))?;
            Some(Value::from(phone.as_str()))
        }
        Some(_) => return Err(Refusal::field("phone", "must be a text").into()),
    };
    Ok((Kind::User.read_value(&whole)?, phone))
}

pub(super) async fn change_password(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let Some(Value::String(old)) = body.remove("old_password") else {
        return Err(Refusal::field("old_password", "must be your current password").into());
    };
    if body.get("new_password").and_then(Value::as_str) == Some(&*old) {
        let reason = "is the same as old_password: choose another one";
        return Err(Refusal::field("new_password", reason).into());
    }
    let hash = hash_password(app, call, &mut body, "new_password").await?;
    let hash = hash.ok_or_else(|| Refusal::field("new_password", "is missing"))?;
    refuse_others(&body)?;
    let id = call.owner();
    let attempt = app.guesses.attempt(&id, call.client)?;
    let stored = app.store.get(Kind::Password, &id).await?.map(|row| row.secret.0);
    let home = call.caller()?.principal.organization().to_string();
    if !verify(app, old, stored, &home, attempt).await? {
        failed_login(app, call, Kind::User, Some(&own_row(app, call).await?));
        return Err(Refusal::field("old_password", "is not your current password").into());
    }
    let kept = call.caller()?.claims.as_ref().map(|claims| claims.id);
    write(app, call, async move |transaction| {
        let user = still_logged_in(transaction, &id, kept).await?;
        replace_password(transaction, &user, hash, kept).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// The user, if the calling token was not revoked meanwhile: a user whose login has ended, for example because an admin
/// set another password, gets no new token through a pending request.
async fn still_logged_in(transaction: &mut Transaction, user: &str, token: Option<Uuid>) -> Result<Row, Error> {
    let token = token.ok_or_else(Refusal::unauthenticated)?.to_string();
    let token = transaction.get(Kind::Token, &token).await?;
    token.ok_or_else(Refusal::unauthenticated)?;
    let user = transaction.get(Kind::User, user).await?;
    Ok(user.ok_or_else(Refusal::unauthenticated)?)
}

/// Checks that a token which outlives the one of the request is asked for soon after a login.
async fn check_outlives(transaction: &mut Transaction, caller: &Claims, expires_at: Timestamp) -> Result<(), Error> {
    if expires_at <= caller.expires_at {
        return Ok(());
    }
    let action = format!(
        "expires_in_seconds: a token that is valid for longer than the one of the request, which expires at {},",
        caller.expires_at
    );
    let checked = check_recent_login(transaction, caller, &action).await;
    checked.map_err(|error| match error {
        Error::Refused(refusal) => Error::Refused(Refusal {
            field: Some("expires_in_seconds".to_owned()),
            ..refusal
        }),
        error => error,
    })
}

/// Checks that the token of the caller is a login of the last minutes, which `action` needs. Otherwise a login that was
/// stolen for a moment would be access for a year.
pub(super) async fn check_recent_login(
    transaction: &mut Transaction,
    caller: &Claims,
    action: &str,
) -> Result<(), Error> {
    let row = transaction.get(Kind::Token, &caller.id.to_string()).await?;
    let is_recent = |row: Row| {
        let made: Option<Timestamp> = row.created_at.parse().ok();
        row.spec.contains_key(LOGIN) && made.is_some_and(|made| transaction.now().duration_since(made) <= RECENT)
    };
    if row.is_some_and(is_recent) {
        return Ok(());
    }
    let message = format!(
        "{action} needs a login of the last {} minutes: log in again (tidewaiter cloud login), and repeat the command",
        RECENT.as_mins()
    );
    Err(Refusal::forbidden(message).into())
}

fn token_shown(row: &Row) -> Map<String, Value> {
    let mut item = row.spec.clone();
    item.remove(LOGIN);
    item.insert("id".to_owned(), Value::from(row.id.clone()));
    item.insert("user_id".to_owned(), Value::from(row.parent_id.clone()));
    item.insert("created_at".to_owned(), unix_millis(&row.created_at));
    item.insert("updated_at".to_owned(), unix_millis(&row.updated_at));
    item
}

pub(super) async fn get_token(app: &AppState, call: &Call) -> Result<Response, Error> {
    let row = app.store.get(Kind::Token, &call.key("id")?).await?;
    let row = row.filter(|row| row.parent_id == call.owner());
    Ok(respond(call, &token_shown(&row.ok_or_else(Refusal::not_found)?)))
}

pub(super) async fn list_tokens(app: &AppState, call: &Call) -> Result<Response, Error> {
    let owner = call.owner();
    let tokens = Listed::Children(Kind::Token, &owner);
    all(app, call, tokens, |row| Ok(token_shown(row))).await
}

/// Creates a token. Without `expires_in_seconds` its lifetime is `default`, if there is one.
pub(super) async fn create_token(app: &AppState, call: &Call, default: Option<u32>) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    if let Some(seconds) = default {
        body.entry("expires_in_seconds").or_insert_with(|| seconds.into());
    }
    let name = body.remove("name");
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    let name: DisplayName = name.parse().map_err(|error| Refusal::field("name", error))?;
    let seconds = body.remove("expires_in_seconds").and_then(|seconds| seconds.as_u64());
    let seconds = seconds.filter(|seconds| (60..=u64::from(LONGEST)).contains(seconds));
    let rule = format!("must be a whole number from 60 to {LONGEST}");
    let wanted = || Refusal::field("expires_in_seconds", rule);
    let seconds = seconds
        .and_then(|seconds| i64::try_from(seconds).ok())
        .ok_or_else(wanted)?;
    refuse_others(&body)?;
    let user = call.user()?;
    let (state, id, path) = (app.clone(), call.owner(), call.path.clone());
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    create_idempotent(app, call, async move |transaction| {
        let user_row = still_logged_in(transaction, &id, Some(caller.id)).await?;
        transaction.check_room_for_token(&id).await?;
        let life = SignedDuration::from_secs(seconds);
        let claims = Claims::new(TokenUse::User(UserId(user)), transaction.now(), life);
        check_outlives(transaction, &caller, claims.expires_at).await?;
        let token = state.sign(&claims)?;
        let row = add_token(transaction, &claims, &user_row, name.as_str(), false).await?;
        let mut item = token_shown(&row);
        item.insert("token".to_owned(), Value::from(token));
        let reply = Reply::made(format!("{path}/{}", row.id), &item).without_etag();
        Ok(reply.with_secret_of(&row))
    })
    .await
}

pub(super) async fn revoke_token(app: &AppState, call: &Call) -> Result<Response, Error> {
    let id = match (call.word("id"), &call.caller()?.claims) {
        ("current", Some(claims)) => claims.id.to_string(),
        _ => call.key("id")?,
    };
    let user = call.owner();
    write(app, call, async move |transaction| {
        let row = transaction.get(Kind::Token, &id).await?;
        let row = row.filter(|row| row.parent_id == user).ok_or_else(Refusal::not_found)?;
        transaction.remove(&row).await?;
        Ok(Reply::nothing())
    })
    .await
}
