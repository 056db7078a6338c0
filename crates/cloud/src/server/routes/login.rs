//! Logging in: with a password, with what a person granted, or as a cluster with its key; and the rows by which a token
//! can be revoked.

use super::identities::{disables_passwords, has_identity};
use super::login_grants;
use super::observed::failed_login;
use super::prelude::*;
use super::second_factor;
use crate::models::values::{ClusterId, UserId};
use crate::models::{Login, Unknown, parse};
use crate::server::access::users::not_ended;
use crate::server::auth::passwords::verify;
use crate::server::auth::signed_in::{LOGIN, SignedIn};
use crate::server::http::call::refuse_others;
use crate::server::keys::hash::ApiKey;
use crate::server::keys::token::{Claims, TokenUse};
use crate::server::store::Author;

pub(super) async fn log_in(app: &AppState, call: &Call) -> Result<Response, Error> {
    match call.word("method") {
        // `email` is what the command line of the original service says.
        "password" | "email" => with_password(app, call).await,
        "api_key" => with_key(app, call).await,
        "second_factor" if call.is_of_page => second_factor::sign_in(app, call).await,
        "browser" => login_grants::with_browser(app, call).await,
        "device" => login_grants::with_device(app, call).await,
        _ => {
            let message = "unknown login method; use password, email, browser, device or api_key";
            Err(Refusal::new(StatusCode::NOT_FOUND, message).into())
        }
    }
}

/// A wrong address and a wrong password give the same response, in the same time.
async fn with_password(app: &AppState, call: &Call) -> Result<Response, Error> {
    let login: Login = parse(&call.body, Unknown::Refuse)?;
    let email = login.email.as_str().to_lowercase();
    let attempt = app.guesses.attempt(&email, call.client)?;
    let user = (&mut &app.store).named(Kind::User, "", &email).await?;
    let password = match &user {
        Some(user) => app.store.get(Kind::Password, &user.id).await?,
        None => None,
    };
    let stored = password.as_ref().map(|row| row.secret.0.clone());
    let organization = user.as_ref().map_or("", |user| &user.organization_id);
    let given = login.password.expose().to_owned();
    let Some(attempt) = verify(app, given, stored, organization, attempt).await? else {
        failed_login(app, call, Kind::User, user.as_ref());
        let message = "the e-mail address or the password is wrong";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, message).into());
    };
    let password = password.ok_or_else(Refusal::not_found)?;
    if let Some(begun) = second_factor::begin(app, call, &password).await? {
        return Ok(begun);
    }
    let token_use = TokenUse::User(UserId(crate::server::digest::uuid(&password.id)));
    let claims = Claims::new(token_use, app.clock.now(), app.parts.lives.login);
    let actor = format!("user:{}", password.id);
    let response = logged_in(app, call, actor, claims, password, Kind::User).await?;
    attempt.succeeded().await;
    Ok(response)
}

/// Responds with a token, which belongs to the object of kind `below` with the id of `proof`. The credentials must be
/// unchanged: changing a password invalidates pending logins with the old one. A key gets the token that it has, while
/// that one lives for half of the life of a new one, so that a cluster stores nothing by logging in.
async fn logged_in(
    app: &AppState,
    call: &Call,
    actor: String,
    claims: Claims,
    proof: Row,
    below: Kind,
) -> Result<Response, Error> {
    let token = app.sign(&claims)?;
    let (new, state) = (claims.clone(), app.clone());
    let by = Author {
        queue: proof.organization_id.clone(),
        actor,
        ..call.by()
    };
    let written = app.store.write(by, async move |transaction| {
        let same = transaction.get(proof.kind, &proof.id).await? == Some(proof.clone());
        let parent = transaction.get(below, &proof.id).await?.filter(|_| same);
        let parent = parent.ok_or_else(Refusal::unauthenticated)?;
        if parent.kind == Kind::User {
            refuse_password(&state, transaction, &parent).await?;
            second_factor::refuse_password_alone(transaction, &parent).await?;
            add_login(transaction, &new, &parent, (LOGIN, SignedIn::with_password())).await?;
            return Ok(None);
        }
        if let Some((expires_at, id)) = transaction.live_tokens(&parent.id).await?.last
            && expires_at.duration_since(new.issued_at) * 2 >= new.expires_at.duration_since(new.issued_at)
        {
            let id = crate::server::digest::uuid(&id);
            return Ok(Some(Claims { expires_at, id, ..new }));
        }
        add_token(transaction, &new, &parent, json!({ "name": LOGIN, LOGIN: true })).await?;
        Ok(None)
    });
    let token = match written.await? {
        Some(had) => app.sign(&had)?,
        None => token,
    };
    Ok(Reply::ok(&json!({ "token": token })).into_response())
}

/// Refuses a login with the right password where the user's home has switched passwords off, except of an operator, who
/// recovers access when a provider is gone, and of a user who has yet to link a provider. Anyone without the password
/// does not learn this.
pub(super) async fn refuse_password(app: &AppState, transaction: &mut Transaction, user: &Row) -> Result<(), Error> {
    let home = transaction.get(Kind::Organization, &user.organization_id).await?;
    if home.as_ref().is_some_and(disables_passwords)
        && transaction.get(Kind::Operator, &user.id).await?.is_none()
        && has_identity(app, transaction, user, "").await?
    {
        let message = "your organization has switched passwords off: sign in with its provider on the sign-in page";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, message).into());
    }
    Ok(())
}

async fn with_key(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let key = match body.remove("api_key") {
        Some(Value::String(key)) => zeroize::Zeroizing::new(key),
        _ => return Err(Refusal::field("api_key", "must be the API key of a cluster").into()),
    };
    refuse_others(&body)?;
    let invalid = || Refusal::new(StatusCode::UNAUTHORIZED, "the API key is invalid or was deleted");
    let key = ApiKey::parse(&key).map_err(|_| invalid())?;
    let Some(principal) = app.authenticator.by_key(&key).await? else {
        let row = app.store.get(Kind::ApiKey, &key.id().to_string()).await?;
        failed_login(app, call, Kind::ApiKey, row.as_ref());
        return Err(invalid().into());
    };
    let Principal::Cluster { id, .. } = principal else {
        return Err(Refusal::not_found().into());
    };
    let token_use = TokenUse::Cluster(ClusterId(id));
    let claims = Claims::new(token_use, app.clock.now(), app.parts.lives.cluster);
    let row = app.store.get(Kind::ApiKey, &key.id().to_string()).await?;
    let row = row.ok_or_else(Refusal::unauthenticated)?;
    logged_in(app, call, principal.actor(), claims, row, Kind::ApiKey).await
}

/// Adds the row of a login of `user`, whose access must not have ended, with its name and what it comes of.
pub(super) async fn add_login(
    transaction: &mut Transaction,
    claims: &Claims,
    user: &Row,
    (name, signed_in): (&str, SignedIn),
) -> Result<(), Error> {
    not_ended(user, transaction.now())?;
    transaction.make_room_for_login(&user.id).await?;
    add_token(
        transaction,
        claims,
        user,
        json!({ "name": name, LOGIN: signed_in.to_value() }),
    )
    .await?;
    Ok(())
}

/// Adds the row of a token with the fields `spec`, below the user, service account or key that it was issued for.
/// Deleting it revokes the token.
pub(super) async fn add_token(
    transaction: &mut Transaction,
    claims: &Claims,
    parent: &Row,
    mut spec: Value,
) -> Result<Row, Error> {
    spec["expires_at"] = Value::from(claims.expires_at.to_string());
    let row = Row {
        organization_id: parent.organization_id.clone(),
        cluster_id: parent.cluster_id.clone(),
        parent_id: parent.id.clone(),
        owner_id: parent.id.clone(),
        spec: spec.as_object().cloned().unwrap_or_default(),
        ..Row::new(Kind::Token, claims.id.to_string())
    };
    let references = References::of_token(&parent.id, &row.id, claims.expires_at);
    transaction.insert(row, &references).await
}
