//! Signing in at a provider, and linking a provider with the signed-in user.
//!
//! What the server must remember until the person returns is in a cookie of the person's browser, encrypted: the
//! provider, the state, the nonce, the verifier of PKCE, the page to return to, and the login that links. It is
//! accepted for ten minutes, with the state that it has, and once. Only a recent login links: a stolen one becomes no
//! lasting access.

mod people;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use url::Url;

use self::people::{check_member, follow_groups, provision};
use super::identities::{add, of_person};
use super::login::add_login;
use super::prelude::*;
use super::tokens::{check_recent_login, refuse_old_login};
use crate::models::values::UserId;
use crate::server::access::organizations::unlocked;
use crate::server::access::users::not_ended;
use crate::server::auth::signed_in::{LOGIN, SignedIn};
use crate::server::keys::token::{Claims, TokenUse};
use crate::server::oidc::{Callback, LIFE, Person, ProviderSettings};
use crate::server::store::{Author, Origin};

/// The owner of the encrypted value, so that no other one is accepted in its place.
const OWNER: &str = "sign-in";
/// The maximum length of the page to return to: a cookie has at most 4 KiB.
const MAX_RETURN: usize = 1024;
/// The action that needs a recent login, for messages.
const LINKING: &str = "linking a provider";

/// The signed-in person who links a provider.
#[derive(Serialize, Deserialize)]
pub(crate) struct Linker {
    pub(crate) user: String,
    /// The id of the token of the login.
    pub(crate) login: String,
}

/// A begun sign-in.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pending {
    provider: String,
    state: String,
    nonce: String,
    verifier: String,
    /// The page to return to.
    pub(crate) return_to: String,
    /// The person who links the provider; `None` if the person signs in.
    pub(crate) linker: Option<Linker>,
    ends_at: Timestamp,
}

/// The parameters with which the provider sends a person back.
#[derive(Clone, Copy, Default)]
pub(crate) struct Returned<'a> {
    pub(crate) state: &'a str,
    pub(crate) code: &'a str,
    /// The issuer (RFC 9207).
    pub(crate) issuer: Option<&'a str>,
    pub(crate) error: Option<&'a str>,
}

/// Begins a sign-in, or with `linker` a link. Returns the address of the provider, and the value of the cookie.
pub(crate) async fn begin(
    app: &AppState,
    provider: &str,
    return_to: &str,
    linker: Option<Linker>,
) -> Result<(Url, String), Error> {
    let provider = app.oidc.provider(provider).ok_or_else(Refusal::not_found)?;
    if let Some(linker) = &linker {
        let login = app.store.get(Kind::Token, &linker.login).await?;
        refuse_old_login(login.as_ref(), app.clock.now(), LINKING)?;
    }
    let begun = provider.begin(&app.oidc.redirect).await?;
    let return_to = if return_to.len() > MAX_RETURN { "/" } else { return_to };
    let pending = Pending {
        provider: provider.settings.name.clone(),
        state: begun.state,
        nonce: begun.nonce,
        verifier: begun.verifier,
        return_to: return_to.to_owned(),
        linker,
        ends_at: app.clock.now().saturating_add(LIFE).unwrap_or(Timestamp::MIN),
    };
    let sealed = app.seal(Kind::Identity, OWNER, "", &text(&pending))?;
    Ok((begun.url, sealed))
}

/// Reads the cookie of a begun sign-in.
pub(crate) fn open(app: &AppState, sealed: &str) -> Result<Pending, Refusal> {
    let opened = app.unseal(Kind::Identity, OWNER, "", sealed).ok();
    let pending = opened.and_then(|text| serde_json::from_str::<Pending>(&text).ok());
    pending
        .filter(|pending| app.clock.now() < pending.ends_at)
        .ok_or_else(begin_again)
}

/// The refusal of a sign-in whose cookie is missing, or not the one of its state.
pub(crate) fn begin_again() -> Refusal {
    Refusal::forbidden("the sign-in has ended, or was begun in another browser: begin again on the sign-in page")
}

/// Ends a sign-in with a token, and a link without one.
pub(crate) async fn finish(
    app: &AppState,
    pending: Pending,
    returned: Returned<'_>,
    origin: Origin,
) -> Result<Option<String>, Error> {
    let is_own = verify_slices_are_equal(returned.state.as_bytes(), pending.state.as_bytes()).is_ok();
    if !is_own || !app.oidc.returns_first(&pending.state).await {
        return Err(begin_again().into());
    }
    let provider = app.oidc.provider(&pending.provider).ok_or_else(begin_again)?;
    if let Some(error) = returned.error {
        return Err(declined(&provider.settings.title, error).into());
    }
    let callback = Callback {
        code: returned.code,
        issuer: returned.issuer,
        nonce: pending.nonce,
        verifier: pending.verifier,
    };
    let person = provider.finish(&app.oidc.redirect, callback).await?;
    let settings = provider.settings.clone();
    match pending.linker {
        Some(linker) => link(app, settings, person, linker, origin).await.map(|()| None),
        None => sign_in(app, settings, person, origin).await.map(Some),
    }
}

/// The provider sent an error (RFC 6749, 4.1.2.1). Its text is shown only if it is a word.
fn declined(title: &str, error: &str) -> Refusal {
    let is_word = error.len() <= 64 && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let error = if is_word { error } else { "an error" };
    Refusal::forbidden(format!(
        "{title} refused the sign-in ({error}): begin again on the sign-in page"
    ))
}

/// Logs the user in who has this identity, or whom the settings let the first sign-in create.
async fn sign_in(app: &AppState, settings: ProviderSettings, person: Person, origin: Origin) -> Result<String, Error> {
    let known = of_person(&mut &app.store, &person).await?;
    let is_known = known.is_some();
    let (id, queue) = match known {
        Some(identity) => (identity.parent_id, identity.organization_id),
        None => (
            Uuid::new_v4().to_string(),
            settings.organization.clone().unwrap_or_default(),
        ),
    };
    let token_use = TokenUse::User(UserId(uuid(&id)));
    let claims = Claims::new(token_use, app.clock.now(), app.parts.lives.login);
    let token = app.sign(&claims)?;
    let by = Author {
        actor: format!("user:{id}"),
        origin,
        queue,
    };
    let written = app.store.write(by, async move |transaction| {
        let user = match of_person(transaction, &person).await? {
            Some(identity) if identity.parent_id == id => transaction.existing(Kind::User, &id).await?,
            None if !is_known => provision(transaction, &settings, &person, &id).await?,
            _ => return Err(begin_again().into()),
        };
        check_member(transaction, &settings, &id).await?;
        follow_groups(transaction, &settings, &person, &id).await?;
        add_login(transaction, &claims, &user, (LOGIN, SignedIn::with_more())).await
    });
    written.await?;
    Ok(token)
}

/// Links a person with the signed-in user.
async fn link(
    app: &AppState,
    settings: ProviderSettings,
    person: Person,
    Linker { user: id, login }: Linker,
    origin: Origin,
) -> Result<(), Error> {
    let actor = format!("user:{id}");
    let by = Author {
        queue: actor.clone(),
        actor,
        origin,
    };
    let written = app.store.write(by, async move |transaction| {
        check_recent_login(transaction, uuid(&login), LINKING).await?;
        let user = transaction.existing(Kind::User, &id).await?;
        not_ended(&user, transaction.now())?;
        unlocked(transaction, &user.organization_id).await?;
        check_member(transaction, &settings, &id).await?;
        match of_person(transaction, &person).await? {
            None => add(transaction, &user, &settings.name, &person).await,
            Some(identity) if identity.parent_id == id => Ok(()),
            Some(_) => {
                let message = format!(
                    "this account at {} is linked with another user: sign in with it, and unlink it there first",
                    settings.title
                );
                Err(Refusal::conflict(message).into())
            }
        }
    });
    written.await
}
