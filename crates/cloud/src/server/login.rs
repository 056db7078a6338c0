//! Logging in, with a password or as a cluster with its key, and the rows by which a token can be revoked.

use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Error;
use super::call::{Call, Reply, object, refuse_others};
use super::cloud::Cloud;
use super::hash::verify_password;
use super::identity;
use super::kind::Kind;
use super::principal::Principal;
use super::refusal::Refusal;
use super::store::{Draft, Row, Ties, Transaction};
use super::token::{Claims, TokenUse};
use crate::models::values::{ClusterId, UserId};
use crate::models::{Login, Unknown, parse};

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
        TokenUse::User(UserId(super::digest::uuid(&user))),
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
pub(super) async fn right(cloud: &Cloud, password: String, stored: Option<String>) -> Result<bool, Error> {
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
pub(super) fn token_draft(claims: &Claims, parent: &Row, name: &str) -> Draft {
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
pub(super) async fn forget_expired(transaction: &mut Transaction, parent: &str) -> Result<(), Error> {
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
