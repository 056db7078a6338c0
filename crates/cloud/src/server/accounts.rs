//! Logging in, and what a user does about himself: his account, his password, his tokens, his organizations.

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Error;
use super::call::{Call, Reply, object, text, unless_known};
use super::cloud::Cloud;
use super::document;
use super::hash::verify_password;
use super::identity;
use super::kind::Kind;
use super::members::{hashed, join, refuse_others, replace_password, tell_elsewhere};
use super::principal::{OrgRole, Principal};
use super::refusal::Refusal;
use super::remember::made;
use super::resources::ties;
use super::source::{Source, unlocked};
use super::store::{Draft, Row, Ties, Transaction};
use super::token::{Claims, TokenUse};
use super::view::{etag, shown};
use crate::models::values::{ClusterId, DisplayName, Phone, UserId};
use crate::models::{Login, Unknown, parse};

/// The longest life of a token that a user makes for himself: a year.
const LONGEST: u32 = 365 * 24 * 60 * 60;

/// No token is valid for longer.
pub const LONGEST_TOKEN: SignedDuration = SignedDuration::from_hours(365 * 24);

pub(super) async fn log_in(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    match call.word("method") {
        "password" => with_password(cloud, call).await,
        "api_key" => with_key(cloud, call).await,
        _ => {
            let message = "there is no such way to log in; there are password and api_key";
            Err(Refusal::new(http::StatusCode::NOT_FOUND, message).into())
        }
    }
}

/// Whether the address or the password is wrong is one answer, in the same time.
async fn with_password(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let login: Login = parse(&call.body, Unknown::Refuse)?;
    let email = login.email.as_str().to_lowercase();
    cloud.limits.guess(&email).map_err(Refusal::from)?;
    let user = cloud.store.named(Kind::User, "", &email).await?;
    let stored = match &user {
        Some(id) => cloud.store.get(Kind::Password, id).await?.map(|row| row.secret.0),
        None => None,
    };
    if !right(cloud, login.password.expose().to_owned(), stored).await? {
        return Err(Refusal::new(
            http::StatusCode::UNAUTHORIZED,
            "the e-mail address or the password is wrong",
        )
        .into());
    }
    let user = user.ok_or_else(Refusal::not_found)?;
    let claims = Claims::new(
        TokenUse::User(UserId(super::view::uuid(&user))),
        cloud.clock.now(),
        cloud.lives.login,
    );
    let token = cloud.tokens.load().sign(&claims).map_err(Error::internal)?;
    let mut by = call.by();
    by.actor = format!("user:{user}");
    cloud
        .store
        .write(by, move |transaction| {
            Box::pin(async move {
                let user = transaction
                    .get(Kind::User, &user)
                    .await?
                    .ok_or_else(Refusal::not_found)?;
                forget_expired(transaction, &user.id).await?;
                transaction.insert(token_draft(&claims, &user, "login")).await
            })
        })
        .await?;
    Ok(Reply::ok(&json!({ "token": token })).into_response())
}

/// Verifies on a thread of its own: it takes a core for a while.
async fn right(cloud: &Cloud, password: String, stored: Option<String>) -> Result<bool, Error> {
    let place = cloud.limits.hashes.acquire().await;
    let password = zeroize::Zeroizing::new(password);
    let verified = tokio::task::spawn_blocking(move || verify_password(&password, stored.as_deref()));
    let verified = verified.await.map_err(Error::internal)?;
    drop(place);
    verified.map_err(Error::internal)
}

async fn with_key(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let key = match body.remove("api_key") {
        Some(Value::String(key)) => zeroize::Zeroizing::new(key),
        _ => return Err(Refusal::field("api_key", "must be the key of a cluster").into()),
    };
    refuse_others(&body)?;
    let Some(principal) = identity::by_key(cloud, &key).await? else {
        return Err(Refusal::new(http::StatusCode::UNAUTHORIZED, "the API key is wrong, or was deleted").into());
    };
    let Principal::Cluster { id, .. } = principal else {
        return Err(Refusal::not_found().into());
    };
    let claims = Claims::new(TokenUse::Cluster(ClusterId(id)), cloud.clock.now(), cloud.lives.cluster);
    let token = cloud.tokens.load().sign(&claims).map_err(Error::internal)?;
    let key = super::hash::ApiKey::parse(&key)
        .map_err(Error::internal)?
        .id()
        .hyphenated()
        .to_string();
    let mut by = call.by();
    by.actor = principal.actor();
    cloud
        .store
        .write(by, move |transaction| {
            Box::pin(async move {
                let key = transaction
                    .get(Kind::ApiKey, &key)
                    .await?
                    .ok_or_else(super::access::unknown)?;
                forget_expired(transaction, &key.id).await?;
                transaction.insert(token_draft(&claims, &key, "login")).await
            })
        })
        .await?;
    Ok(Reply::ok(&json!({ "token": token })).into_response())
}

/// The row without which a token is revoked. It stands below the user, or the key, that it was made for.
fn token_draft(claims: &Claims, parent: &Row, name: &str) -> Draft {
    let spec = json!({ "name": name, "expires_at": claims.expires_at.to_string() });
    Draft {
        kind: Kind::Token,
        id: claims.id.hyphenated().to_string(),
        organization_id: parent.organization_id.clone(),
        cluster_id: parent.cluster_id.clone(),
        parent_id: parent.id.clone(),
        owner_id: parent.id.clone(),
        spec: spec.as_object().cloned().unwrap_or_default(),
        secret: String::new(),
        ties: Ties::default(),
    }
}

/// Tokens whose time is over are of no use; they go when another one comes.
async fn forget_expired(transaction: &mut Transaction, parent: &str) -> Result<(), Error> {
    let now = transaction.now();
    for token in transaction.children(Kind::Token, parent).await? {
        let expires = token.spec.get("expires_at").and_then(Value::as_str);
        let expires: Option<Timestamp> = expires.and_then(|expires| expires.parse().ok());
        if expires.is_none_or(|expires| expires <= now) {
            transaction.remove(&token).await?;
        }
    }
    Ok(())
}

/// Who the token is, whatever it is for: a coordinator asks this about whoever calls it.
pub(super) fn authenticate(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let known = call.known()?;
    let mut answer = match &known.principal {
        Principal::User { id, memberships, .. } => {
            let organizations: Vec<_> = memberships
                .iter()
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
    let may_terminate = match &known.principal {
        Principal::User { memberships, .. } => memberships.values().any(|role| *role >= OrgRole::Admin),
        Principal::Cluster { .. } => false,
    };
    let roles: &[&str] = if may_terminate { &["terminate"] } else { &[] };
    if let Some(answer) = answer.as_object_mut() {
        answer.insert(
            "metadata".to_owned(),
            json!({ "https://containership.io/roles": roles }),
        );
        answer.insert("iss".to_owned(), Value::from(cloud.tokens.load().issuer()));
        if let Some(claims) = &known.claims {
            answer.insert("sub".to_owned(), Value::from(claims.token_use.subject()));
            answer.insert(
                "aud".to_owned(),
                Value::from(claims.token_use.audience(cloud.tokens.load().issuer())),
            );
            answer.insert("exp".to_owned(), Value::from(claims.expires_at.as_second()));
        }
    }
    Ok(Reply::ok(&answer).into_response())
}

async fn own_row(cloud: &Cloud, call: &Call) -> Result<Row, Error> {
    let row = cloud.store.get(Kind::User, &call.owner()).await?;
    Ok(row.ok_or_else(super::access::unknown)?)
}

fn account(row: &Row) -> Map<String, Value> {
    let mut account = row.spec.clone();
    account.entry("phone").or_insert(Value::Null);
    account.insert("id".to_owned(), Value::from(row.id.clone()));
    account.insert("created_at".to_owned(), Value::from(row.created_at.clone()));
    account.insert("updated_at".to_owned(), Value::from(row.updated_at.clone()));
    // Who may not log in any more is not there any more.
    account.insert("enabled".to_owned(), Value::Bool(true));
    account
}

pub(super) async fn get(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let body = Bytes::from(text(&account(&own_row(cloud, call).await?)));
    Ok(unless_known(call, &etag(&body), body))
}

pub(super) async fn change(cloud: &Cloud, call: &Call, patch: bool) -> Result<Response, Error> {
    let body = object(&call.body)?;
    let (id, condition) = (call.owner(), call.condition());
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let before = transaction.get(Kind::User, &id).await?.ok_or_else(Refusal::not_found)?;
            unlocked(&mut Source::Transaction(transaction), &before.organization_id).await?;
            let seen = account(&before);
            condition.check(text(&seen).as_bytes())?;
            let (document, phone) = said_account(&before, &seen, body, patch)?;
            let ties = ties(
                transaction,
                Kind::User,
                &before.parent_id,
                &before.organization_id,
                &document,
            )
            .await?;
            let mut spec = document.spec;
            if let Some(phone) = phone {
                spec.insert("phone".to_owned(), phone);
            }
            let after = transaction.update(&before, spec, String::new(), &ties).await?;
            if after != before {
                tell_elsewhere(transaction, &after).await?;
            }
            Ok(Reply::ok(&account(&after)))
        })
    });
    Ok(reply.await?.into_response())
}

fn said_account(
    before: &Row,
    seen: &Map<String, Value>,
    mut body: Map<String, Value>,
    patch: bool,
) -> Result<(document::Document, Option<Value>), Error> {
    for field in ["id", "created_at", "updated_at", "enabled"] {
        if let Some(value) = body.remove(field)
            && seen.get(field) != Some(&value)
        {
            return Err(Refusal::field(field, "is made by the server and cannot be changed; leave it out").into());
        }
    }
    let mut whole = Value::Object(if patch { before.spec.clone() } else { Map::new() });
    json_patch::merge(&mut whole, &Value::Object(body));
    let phone = whole.as_object_mut().and_then(|whole| whole.remove("phone"));
    let phone = match phone {
        None | Some(Value::Null) => None,
        Some(Value::String(phone)) => {
            let phone: Phone = phone.parse().map_err(|error| Refusal::field("phone", error))?;
            Some(Value::from(phone.as_str()))
        }
        Some(_) => return Err(Refusal::field("phone", "must be a text").into()),
    };
    Ok((document::read(Kind::User, text(&whole).as_bytes())?, phone))
}

pub(super) async fn change_password(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let Some(Value::String(old)) = body.remove("old_password") else {
        return Err(Refusal::field("old_password", "must be the password that you have now").into());
    };
    let hash = hashed(cloud, &mut body, "new_password").await?;
    let hash = hash.ok_or_else(|| Refusal::field("new_password", "is missing"))?;
    refuse_others(&body)?;
    let id = call.owner();
    cloud.limits.guess(&id).map_err(Refusal::from)?;
    let stored = cloud.store.get(Kind::Password, &id).await?.map(|row| row.secret.0);
    if !right(cloud, old, stored).await? {
        return Err(Refusal::field("old_password", "is not the password that you have now").into());
    }
    let kept = call.known()?.claims.as_ref().map(|claims| claims.id);
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let user = transaction.get(Kind::User, &id).await?.ok_or_else(Refusal::not_found)?;
            replace_password(transaction, &user, hash, kept).await?;
            Ok(Reply::nothing())
        })
    });
    Ok(reply.await?.into_response())
}

fn token_shown(row: &Row) -> Map<String, Value> {
    let mut item = row.spec.clone();
    item.insert("id".to_owned(), Value::from(row.id.clone()));
    item.insert("created_at".to_owned(), Value::from(row.created_at.clone()));
    item
}

pub(super) async fn list_tokens(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let rows = cloud.store.children(Kind::Token, &call.owner()).await?;
    let items: Vec<_> = rows.iter().map(token_shown).collect();
    let body = Bytes::from(text(&items));
    Ok(unless_known(call, &etag(&body), body))
}

pub(super) async fn create_token(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let name = body.remove("name");
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    let name: DisplayName = name.parse().map_err(|error| Refusal::field("name", error))?;
    let seconds = body.remove("expires_in_seconds").and_then(|seconds| seconds.as_u64());
    let seconds = seconds.filter(|seconds| (60..=u64::from(LONGEST)).contains(seconds));
    let wanted = || {
        Refusal::field(
            "expires_in_seconds",
            format!("must be a whole number from 60 to {LONGEST}"),
        )
    };
    let seconds = seconds
        .and_then(|seconds| i64::try_from(seconds).ok())
        .ok_or_else(wanted)?;
    refuse_others(&body)?;
    let user = call.user()?;
    let (state, id, path) = (cloud.clone(), call.owner(), call.path.clone());
    made(cloud, call, move |transaction| {
        Box::pin(async move {
            let user_row = transaction.get(Kind::User, &id).await?.ok_or_else(Refusal::not_found)?;
            forget_expired(transaction, &id).await?;
            let life = SignedDuration::from_secs(seconds);
            let claims = Claims::new(TokenUse::User(UserId(user)), transaction.now(), life);
            let token = state.tokens.load().sign(&claims).map_err(Error::internal)?;
            let row = transaction
                .insert(token_draft(&claims, &user_row, name.as_str()))
                .await?;
            let mut item = token_shown(&row);
            item.insert("token".to_owned(), Value::from(token));
            Ok(Reply::made(format!("{path}/{}", row.id), &item))
        })
    })
    .await
}

pub(super) async fn revoke_token(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (id, user) = (call.key("id")?, call.owner());
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let row = transaction.get(Kind::Token, &id).await?;
            let row = row.filter(|row| row.parent_id == user).ok_or_else(Refusal::not_found)?;
            transaction.remove(&row).await?;
            Ok(Reply::nothing())
        })
    });
    Ok(reply.await?.into_response())
}

pub(super) async fn organizations(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let Principal::User { memberships, .. } = &call.known()?.principal else {
        return Err(Refusal::not_found().into());
    };
    let mut rows = Vec::new();
    for id in memberships.keys() {
        rows.extend(
            cloud
                .store
                .get(Kind::Organization, &id.hyphenated().to_string())
                .await?,
        );
    }
    rows.sort_by_key(|row| row.position);
    let items: Vec<_> = rows
        .iter()
        .map(|row| shown(cloud, row, false))
        .collect::<Result<_, _>>()?;
    let body = Bytes::from(text(&items));
    Ok(unless_known(call, &etag(&body), body))
}

pub(super) async fn create_organization(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let document = document::read(Kind::Organization, &call.body)?;
    let (owner, state) = (call.owner(), cloud.clone());
    made(cloud, call, move |transaction| {
        Box::pin(async move {
            let row = new_organization(transaction, document.spec, &owner).await?;
            join(transaction, &row.id, &owner, OrgRole::Owner, &owner).await?;
            Ok(Reply::made(
                format!("/v3/organizations/{}", row.id),
                &shown(&state, &row, false)?,
            ))
        })
    })
    .await
}

/// An organization without anybody in it yet.
pub(super) async fn new_organization(
    transaction: &mut Transaction,
    spec: Map<String, Value>,
    owner: &str,
) -> Result<Row, Error> {
    let id = Uuid::new_v4().hyphenated().to_string();
    let draft = Draft {
        kind: Kind::Organization,
        id: id.clone(),
        organization_id: id,
        cluster_id: String::new(),
        parent_id: String::new(),
        owner_id: owner.to_owned(),
        spec,
        secret: String::new(),
        ties: Ties::default(),
    };
    transaction.insert(draft).await
}

/// Locks an organization, so that nothing in it changes, or unlocks it.
pub(super) async fn lock(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let locked = body.remove("locked").and_then(|locked| locked.as_bool());
    let locked = locked.ok_or_else(|| Refusal::field("locked", "must be true or false"))?;
    refuse_others(&body)?;
    let (id, state) = (call.key("organization_id")?, cloud.clone());
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let row = transaction
                .get(Kind::Organization, &id)
                .await?
                .ok_or_else(Refusal::not_found)?;
            let row = transaction.set_status(&row, json!({ "locked": locked })).await?;
            Ok(Reply::ok(&shown(&state, &row, false)?))
        })
    });
    Ok(reply.await?.into_response())
}

pub(super) async fn audit(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let limit = call.number("limit", 1_000)?.unwrap_or(100);
    let before = call.number("before", u32::MAX)?.map_or(i64::MAX, i64::from);
    let rows = cloud.store.audit(&call.key("organization_id")?, before, limit).await?;
    let item = |row: &super::store::Audited| {
        json!({
            "id": row.sequence, "at": row.at, "cluster_id": row.cluster_id, "kind": row.kind, "object_id": row.object_id,
            "action": row.action, "actor": row.actor, "request_id": row.request_id, "before": row.before, "after": row.after,
        })
    };
    let items: Vec<Value> = rows.iter().map(item).collect();
    let body = Bytes::from(text(&items));
    Ok(unless_known(call, &etag(&body), body))
}
