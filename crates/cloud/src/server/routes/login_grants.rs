//! Logins that a person grants to a program: to one on the person's machine, to which the browser returns (RFC 8252,
//! with PKCE, RFC 7636), and to one that shows a code for the person to type (RFC 8628).
//!
//! Invariants: a code is used once, whether or not its use succeeds; what a person grants ends with the login that
//! granted it; only a person who has just signed in grants anything, and what is granted is no newer sign-in: a stolen
//! login does not become a new one.

use super::login::add_login;
use super::observed::failed_login;
use super::prelude::*;
use super::tokens::check_recent_login;
use crate::models::values::{DisplayName, UserId};
use crate::server::auth::loopback::loopback;
use crate::server::auth::signed_in::SignedIn;
use crate::server::http::call::refuse_others;
use crate::server::keys::codes::{normalized, random_code, s256, user_code};
use crate::server::keys::token::{Claims, TokenUse};
use crate::server::store::{Author, GrantKind, GrantState, LoginGrant};

/// The life of a code for a program that the browser returns to, in seconds: the program waits for it.
const BROWSER_LIFE: i64 = 60;
/// The life of a code that a person types, in seconds.
const DEVICE_LIFE: i64 = 600;
/// The seconds between two requests of a program that waits.
const INTERVAL: u32 = 5;
/// The maximum length of the name of a program, in characters.
const MAX_CLIENT: usize = 64;
/// The action that needs a recent login, for messages.
const GRANTING: &str = "granting a login to a program";

/// The text in `field` of `body`.
pub(super) fn take(body: &mut Map<String, Value>, field: &str) -> Result<String, Refusal> {
    match body.remove(field) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(Refusal::field(field, "must be a text")),
    }
}

/// The name of the program.
fn take_client(body: &mut Map<String, Value>) -> Result<String, Refusal> {
    let name = take(body, "name")?;
    let parsed: Result<DisplayName, _> = name.parse();
    parsed.map_err(|error| Refusal::field("name", error))?;
    if name.chars().count() > MAX_CLIENT {
        let reason = format!("must have at most {MAX_CLIENT} characters");
        return Err(Refusal::field("name", reason));
    }
    Ok(name)
}

/// Grants the caller's login to a program on the machine of the browser.
pub(super) async fn grant(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let client = take_client(&mut body)?;
    let redirect_uri = take(&mut body, "redirect_uri")?;
    let challenge = take(&mut body, "code_challenge")?;
    refuse_others(&body)?;
    if loopback(&redirect_uri).is_none() {
        let reason = "must be http://127.0.0.1:PORT/ or http://[::1]:PORT/, without user, query and fragment";
        return Err(Refusal::field("redirect_uri", reason).into());
    }
    let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if challenge.len() != 43 || !challenge.bytes().all(is_base64url) {
        let reason = "must be the SHA-256 of the verifier (RFC 7636, S256): 43 characters of base64url";
        return Err(Refusal::field("code_challenge", reason).into());
    }
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    let code = random_code().map_err(Error::internal)?;
    let grant = LoginGrant {
        digest: s256(&code),
        kind: GrantKind::Browser,
        owner: call.owner(),
        state: GrantState::Approved,
        user: call.owner(),
        token: caller.id.to_string(),
        user_code: String::new(),
        client,
        address: String::new(),
        challenge,
        redirect_uri,
        expires_at: app.clock.now().as_second() + BROWSER_LIFE,
    };
    write(app, call, async move |transaction| {
        check_recent_login(transaction, caller.id, GRANTING).await?;
        transaction.add_login_grant(&grant).await?;
        Ok(Reply::ok(&json!({ "code": code })))
    })
    .await
}

/// Begins the login of a program that shows a code to a person. Anyone may ask for it.
pub(super) async fn begin_device(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let client = take_client(&mut body)?;
    refuse_others(&body)?;
    let code = random_code().map_err(Error::internal)?;
    let shown = user_code().map_err(Error::internal)?;
    let grant = LoginGrant {
        digest: s256(&code),
        kind: GrantKind::Device,
        owner: call.client.to_string(),
        state: GrantState::Pending,
        user: String::new(),
        token: String::new(),
        user_code: shown.clone(),
        client,
        address: call.origin.address.clone(),
        challenge: String::new(),
        redirect_uri: String::new(),
        expires_at: app.clock.now().as_second() + DEVICE_LIFE,
    };
    let by = Author {
        queue: grant.owner.clone(),
        ..call.by()
    };
    let added = app.store.write(by, async move |transaction| {
        transaction.add_login_grant(&grant).await?;
        Ok(())
    });
    added.await?;
    let mut page = app.parts.issuer.clone();
    page.set_path("/device");
    let mut complete = page.clone();
    complete.query_pairs_mut().append_pair("user_code", &shown);
    let body = json!({
        "device_code": code,
        "user_code": shown,
        "verification_uri": page.as_str(),
        "verification_uri_complete": complete.as_str(),
        "expires_in": DEVICE_LIFE,
        "interval": INTERVAL,
    });
    Ok(Reply::ok(&body).into_response())
}

/// Shows the program that has shown this code, and with `approved` grants or denies it the caller's login.
pub(super) async fn decide_device(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let typed = normalized(&take(&mut body, "user_code")?);
    let approved = match body.remove("approved") {
        None => None,
        Some(Value::Bool(approved)) => Some(approved),
        Some(_) => return Err(Refusal::field("approved", "must be true or false").into()),
    };
    refuse_others(&body)?;
    let (user, now) = (call.owner(), app.clock.now());
    let attempt = app.user_codes.attempt(&user, call.client)?;
    let unknown = || {
        Refusal::field(
            "user_code",
            "is unknown, was used, or has expired: start the login again",
        )
    };
    let found = LoginGrant::with_user_code(&mut &app.store, &typed, now).await?;
    let Some(grant) = found.filter(|grant| grant.state == GrantState::Pending) else {
        attempt.failed().await;
        return Err(unknown().into());
    };
    let reply = Reply::ok(&json!({
        "name": grant.client,
        "address": grant.address,
    }));
    let Some(approved) = approved else {
        return Ok(reply.into_response());
    };
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    write(app, call, async move |transaction| {
        let state = if approved {
            check_recent_login(transaction, caller.id, GRANTING).await?;
            GrantState::Approved
        } else {
            GrantState::Denied
        };
        // Somebody else may have decided meanwhile.
        if LoginGrant::with_digest(transaction, &grant.digest, now).await? != Some(grant.clone()) {
            return Err(unknown().into());
        }
        let decided = LoginGrant {
            state,
            user,
            token: caller.id.to_string(),
            ..grant
        };
        transaction.decide_login_grant(&decided).await?;
        Ok(reply)
    })
    .await
}

/// Exchanges the code that came with the browser for a token.
pub(super) async fn with_browser(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let code = take(&mut body, "code")?;
    let verifier = take(&mut body, "code_verifier")?;
    let redirect_uri = take(&mut body, "redirect_uri")?;
    refuse_others(&body)?;
    let grant = LoginGrant::with_digest(&mut &app.store, &s256(&code), app.clock.now()).await?;
    let Some(grant) = grant.filter(|grant| grant.kind == GrantKind::Browser) else {
        failed_login(app, call, Kind::User, None);
        return Err(invalid_code().into());
    };
    // Both are compared as digests or are not secret: the time of a comparison tells nothing.
    let is_of_asker = grant.challenge == s256(&verifier) && grant.redirect_uri == redirect_uri;
    redeem(app, call, grant, is_of_asker).await
}

/// The token, if the person has granted the login; else 400 with one of the words of RFC 8628, 3.5, before a colon.
pub(super) async fn with_device(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let digest = s256(&take(&mut body, "device_code")?);
    refuse_others(&body)?;
    let refuse = |message: &str| Err(Refusal::new(StatusCode::BAD_REQUEST, message).into());
    let grant = LoginGrant::with_digest(&mut &app.store, &digest, app.clock.now()).await?;
    let Some(grant) = grant.filter(|grant| grant.kind == GrantKind::Device) else {
        return refuse("expired_token: the code is unknown, was used, or has expired: start the login again");
    };
    match grant.state {
        GrantState::Denied => refuse("access_denied: the login was denied"),
        _ if app.limits.polls_too_soon(&digest) => {
            refuse("slow_down: wait for five seconds longer between two requests")
        }
        GrantState::Pending => refuse("authorization_pending: nobody has decided yet; ask again"),
        GrantState::Approved => redeem(app, call, grant, true).await,
    }
}

fn invalid_code() -> Refusal {
    let message = "the code is invalid, was used, or has expired: start the login again";
    Refusal::new(StatusCode::UNAUTHORIZED, message)
}

/// Uses a grant. The token is issued if the program is the one that asked for it.
async fn redeem(app: &AppState, call: &Call, grant: LoginGrant, is_of_asker: bool) -> Result<Response, Error> {
    let id = grant.user.clone();
    let token_use = TokenUse::User(UserId(uuid(&id)));
    let claims = Claims::new(token_use, app.clock.now(), app.parts.lives.login);
    let token = app.sign(&claims)?;
    let actor = format!("user:{id}");
    let by = Author {
        queue: actor.clone(),
        actor,
        ..call.by()
    };
    let used = app.store.write(by, async move |transaction| {
        let now = transaction.now();
        if LoginGrant::with_digest(transaction, &grant.digest, now).await? != Some(grant.clone()) {
            return Ok(false);
        }
        transaction.remove_login_grant(&grant).await?;
        let granting = transaction.get(Kind::Token, &grant.token).await?;
        let signed_in = granting.as_ref().and_then(SignedIn::of);
        let user = transaction.get(Kind::User, &grant.user).await?;
        let (Some(user), Some(signed_in), true) = (user, signed_in, is_of_asker) else {
            return Ok(false);
        };
        let name = format!("{} login of {}", grant.kind.word(), grant.client);
        add_login(transaction, &claims, &user, (&name, signed_in)).await?;
        Ok(true)
    });
    if !used.await? {
        failed_login(app, call, Kind::User, app.store.get(Kind::User, &id).await?.as_ref());
        return Err(invalid_code().into());
    }
    Ok(Reply::ok(&json!({ "token": token })).into_response())
}
