//! A user's own account: profile and password, and the identity of any caller.

use super::observed::failed_login;
use super::prelude::*;
use super::second_factor::check_recent;
use super::tokens::still_logged_in;
use super::users::{parse_end_tokens, replace_password, rewrite};
use crate::models::Document;
use crate::models::values::Phone;
use crate::server::access::organizations::unlocked;
use crate::server::auth::passwords::{hash_password, verify};
use crate::server::http::call::refuse_others;
use crate::server::keys::token::TokenUse;
use crate::server::principal::Authenticated;

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
        Principal::ServiceAccount {
            id, organization, role, ..
        } => json!({
            "type": "service_account",
            "service_account_id": id.to_string(),
            "organizations": [{ "id": organization.to_string(), "role": role.word() }],
        }),
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
    let end_tokens = parse_end_tokens(&mut body)?;
    refuse_others(&body)?;
    let id = call.owner();
    let attempt = app.guesses.attempt(&id, call.client)?;
    let stored = app.store.get(Kind::Password, &id).await?.map(|row| row.secret.0);
    let home = call.caller()?.principal.organization().to_string();
    let Some(attempt) = verify(app, old, stored, &home, attempt).await? else {
        failed_login(app, call, Kind::User, Some(&own_row(app, call).await?));
        return Err(Refusal::field("old_password", "is not your current password").into());
    };
    attempt.succeeded().await;
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    write(app, call, async move |transaction| {
        let kept = Some(caller.id);
        let user = still_logged_in(transaction, &id, kept).await?;
        if !transaction.children(Kind::SecurityKey, &id).await?.is_empty() {
            check_recent(transaction, &caller).await?;
        }
        replace_password(transaction, &user, hash, kept, end_tokens).await?;
        Ok(Reply::nothing())
    })
    .await
}
