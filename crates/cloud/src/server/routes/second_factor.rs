//! The second factor of users with a password: security keys (WebAuthn), and recovery codes in their place.
//!
//! Invariants: a password alone gives such a user no token; between the password and the key there is a grant for five
//! minutes, whose secret is in a cookie of the browser, and which only a page of the console redeems; the first key or
//! code that is checked uses up the grant and its challenge, right or wrong; keys and codes change only with a recent
//! login; where the home requires a second factor, a login of a password alone is no login.

mod ceremonies;
mod keys;

use webauthn_rs::prelude::{PublicKeyCredential, SecurityKey, SecurityKeyAuthentication};

use self::ceremonies::{
    begin_authentication, begin_registration, new_grant, of_user, read, references, registered, remove_once, use_up,
};
pub(crate) use self::keys::remove_second_factor;
pub(super) use self::keys::{add, begin_key, delete, list, renew_codes, reset};
use self::keys::{add_key, take_name};
use super::login::{add_login, refuse_password};
use super::login_grants::take;
use super::observed::failed_login;
use super::prelude::*;
use super::tokens::check_recent_login;
use crate::models::values::{DisplayName, UserId};
use crate::server::access::organizations::requires_second_factor;
use crate::server::auth::signed_in::{LOGIN, SignedIn};
use crate::server::http::call::refuse_others;
use crate::server::keys::codes::{letters, random_code, s256};
use crate::server::keys::token::{Claims, TokenUse};
use crate::server::store::{GrantKind, LoginGrant};

/// The fields of a stored key: the time of its last signature, and its counter then.
const LAST_USED: &str = "last_used_at";
const COUNTER: &str = "counter";

/// Checks that users can register security keys.
pub(super) fn may_require(app: &AppState) -> Result<(), Refusal> {
    let reason = "cannot be set: security keys need a publicUrl with a host name, not an IP address";
    if app.webauthn.is_some() {
        return Ok(());
    }
    Err(Refusal::field("second_factor_required", reason))
}

/// Checks that `caller` is a login of the last minutes.
pub(super) async fn check_recent(transaction: &mut Transaction, caller: &Claims) -> Result<(), Error> {
    check_recent_login(transaction, caller.id, "changing how you sign in").await
}

/// The second step that a sign-in with a password needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SecondStep {
    None,
    Key,
    FirstKey,
}

impl SecondStep {
    async fn of(source: &mut dyn Source, user: &Row) -> Result<Self, Error> {
        if !source.children(Kind::SecurityKey, &user.id).await?.is_empty() {
            return Ok(Self::Key);
        }
        let home = source.get(Kind::Organization, &user.organization_id).await?;
        let is_required = home.as_ref().is_some_and(requires_second_factor);
        Ok(if is_required { Self::FirstKey } else { Self::None })
    }
}

/// Refuses a login with the right password alone, of a user who needs more.
pub(super) async fn refuse_password_alone(transaction: &mut Transaction, user: &Row) -> Result<(), Error> {
    match SecondStep::of(transaction, user).await? {
        SecondStep::None => Ok(()),
        SecondStep::Key | SecondStep::FirstKey => Err(password_alone().into()),
    }
}

fn password_alone() -> Refusal {
    let message = "this user signs in with a security key too: run tidewaiter cloud login without a password, in a \
                   terminal with a browser or with --device";
    Refusal::new(StatusCode::UNAUTHORIZED, message)
}

fn begin_again() -> Refusal {
    let message = "the security key or the recovery code was refused, or five minutes have passed: sign in again";
    Refusal::new(StatusCode::UNAUTHORIZED, message)
}

/// Begins the second step of the sign-in whose password, `proof`, is right; `None` if the user needs none. Pages alone
/// get the options for the browser, and the secret with which the same browser ends the step.
pub(super) async fn begin(app: &AppState, call: &Call, proof: &Row) -> Result<Option<Response>, Error> {
    let user = app.store.get(Kind::User, &proof.id).await?;
    let user = user.ok_or_else(Refusal::unauthenticated)?;
    let step = SecondStep::of(&mut &app.store, &user).await?;
    if step == SecondStep::None {
        return Ok(None);
    }
    if !call.is_of_page {
        return Err(password_alone().into());
    }
    let registers = step == SecondStep::FirstKey;
    let (kind, (options, state)) = if registers {
        (GrantKind::FirstKey, begin_registration(app, &user, &[])?)
    } else {
        let keys = (&mut &app.store).children(Kind::SecurityKey, &user.id).await?;
        (GrantKind::SecondFactor, begin_authentication(app, &keys)?)
    };
    let code = random_code().map_err(Error::internal)?;
    let grant = new_grant(app, kind, &user.id, &code, state);
    let by = of_user(call, &user);
    let (state, proof) = (app.clone(), proof.clone());
    let added = app.store.write(by, async move |transaction| {
        if transaction.get(Kind::Password, &proof.id).await? != Some(proof.clone()) {
            return Err(Refusal::unauthenticated().into());
        }
        refuse_password(&state, transaction, &user).await?;
        transaction.add_login_grant(&grant).await
    });
    added.await?;
    let step = json!({ "grant": code, "options": options, "registers": registers });
    Ok(Some(Reply::ok(&json!({ "second_factor": step })).into_response()))
}

/// Ends the second step with a security key's signature, a recovery code, or the registration of the first key.
pub(super) async fn sign_in(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let digest = s256(&take(&mut body, "grant")?);
    let grant = LoginGrant::with_digest(&mut &app.store, &digest, app.clock.now()).await?;
    let is_second = |grant: &LoginGrant| matches!(grant.kind, GrantKind::SecondFactor | GrantKind::FirstKey);
    let grant = grant.filter(is_second).ok_or_else(begin_again)?;
    let user = app.store.get(Kind::User, &grant.user).await?;
    let user = user.ok_or_else(begin_again)?;
    let email = user.text("email").unwrap_or_default().to_lowercase();
    let attempt = app.guesses.attempt(&email, call.client)?;
    let Some(proven) = verify(app, call, &grant, &user, &mut body).await? else {
        attempt.failed().await;
        use_up(app, of_user(call, &user), grant).await?;
        return Err(begin_again().into());
    };
    attempt.succeeded().await;
    let token_use = TokenUse::User(UserId(uuid(&user.id)));
    let claims = Claims::new(token_use, app.clock.now(), app.parts.lives.login);
    let token = app.sign(&claims)?;
    let (state, by) = (app.clone(), of_user(call, &user));
    let stored = app.store.write(by, async move |transaction| {
        // A new password and the end of all logins remove the grant.
        if !remove_once(transaction, &grant).await? {
            return Err(begin_again().into());
        }
        let user = transaction.existing(Kind::User, &grant.user).await?;
        refuse_password(&state, transaction, &user).await?;
        let codes = proven.store(transaction, &user).await?;
        add_login(transaction, &claims, &user, (LOGIN, SignedIn::with_more())).await?;
        Ok(codes)
    });
    let mut answer = json!({ "token": token });
    if let Some(codes) = stored.await? {
        answer["recovery_codes"] = json!(codes);
    }
    Ok(Reply::ok(&answer).into_response())
}

/// The second factor of a person who signs in, to be stored with the login.
enum Proven {
    /// A key with its state before and after the signature.
    Key {
        before: Row,
        key: Box<SecurityKey>,
        counter: u32,
    },
    /// The codes, of which one was used, and the digests of the others.
    Code {
        before: Row,
        left: Vec<String>,
    },
    First {
        name: DisplayName,
        key: Box<SecurityKey>,
    },
}

impl Proven {
    /// Returns the recovery codes if they are new.
    async fn store(self, transaction: &mut Transaction, user: &Row) -> Result<Option<Vec<String>>, Error> {
        match self {
            Self::Key { before, key, counter } => {
                unchanged(transaction, &before).await?;
                let mut spec = before.spec.clone();
                spec.insert(LAST_USED.to_owned(), transaction.now().to_string().into());
                spec.insert(COUNTER.to_owned(), counter.into());
                let references = references(&key);
                transaction.update(&before, spec, text(&key), &references).await?;
                Ok(None)
            }
            Self::Code { before, left } => {
                unchanged(transaction, &before).await?;
                let spec = Map::from_iter([("left".to_owned(), left.len().into())]);
                transaction
                    .update(&before, spec, text(&left), &References::default())
                    .await?;
                Ok(None)
            }
            Self::First { name, key } => {
                // Anyone who registered one meanwhile has more than the password.
                refuse_another(transaction, user).await?;
                let (_, codes) = add_key(transaction, user, &name, &key).await?;
                Ok(codes)
            }
        }
    }
}

async fn unchanged(transaction: &mut Transaction, before: &Row) -> Result<(), Error> {
    if transaction.get(before.kind, &before.id).await?.as_ref() == Some(before) {
        return Ok(());
    }
    Err(begin_again().into())
}

async fn refuse_another(transaction: &mut Transaction, user: &Row) -> Result<(), Error> {
    if transaction.children(Kind::SecurityKey, &user.id).await?.is_empty() {
        return Ok(());
    }
    Err(begin_again().into())
}

/// The second factor in `body`; `None` if it is wrong, which is counted in the audit log.
async fn verify(
    app: &AppState,
    call: &Call,
    grant: &LoginGrant,
    user: &Row,
    body: &mut Map<String, Value>,
) -> Result<Option<Proven>, Error> {
    let (code, credential) = (body.remove("code"), body.remove("credential").unwrap_or_default());
    if grant.kind == GrantKind::FirstKey {
        let name = take_name(body)?;
        refuse_others(body)?;
        let key = registered(app, grant, credential);
        if key.is_none() {
            failed_login(app, call, Kind::User, Some(user));
        }
        return Ok(key.map(|key| Proven::First { name, key }));
    }
    refuse_others(body)?;
    let (proven, subject) = match code {
        Some(code) => by_code(app, grant, code.as_str().unwrap_or_default()).await?,
        None => by_key(app, grant, credential).await?,
    };
    if proven.is_none() {
        let subject = subject.as_ref().unwrap_or(user);
        failed_login(app, call, subject.kind, Some(subject));
    }
    Ok(proven)
}

/// Checks a signature (WebAuthn 2, 7.2). Returns the key that it names, too.
async fn by_key(app: &AppState, grant: &LoginGrant, credential: Value) -> Result<(Option<Proven>, Option<Row>), Error> {
    let credential: Result<PublicKeyCredential, _> = serde_json::from_value(credential);
    let state: Result<SecurityKeyAuthentication, _> = serde_json::from_str(&grant.challenge);
    let (Some(webauthn), Ok(credential), Ok(state)) = (&app.webauthn, credential, state) else {
        return Ok((None, None));
    };
    let mut named = None;
    for row in (&mut &app.store).children(Kind::SecurityKey, &grant.user).await? {
        let key = read(&row)?;
        if *key.cred_id() == credential.raw_id {
            named = Some((row, key));
        }
    }
    let Some((before, mut key)) = named else {
        return Ok((None, None));
    };
    let Ok(result) = webauthn.finish_securitykey_authentication(&credential, &state) else {
        return Ok((None, Some(before)));
    };
    // The state has the counter of the time when the challenge was made.
    let last = before.spec.get(COUNTER).and_then(Value::as_u64).unwrap_or_default();
    let counter = result.counter();
    if (counter > 0 || last > 0) && u64::from(counter) <= last {
        return Ok((None, Some(before)));
    }
    key.update_credential(&result);
    let proven = Proven::Key {
        before: before.clone(),
        key: Box::new(key),
        counter,
    };
    Ok((Some(proven), Some(before)))
}

/// Looks for a recovery code. Returns the codes of the user, too.
async fn by_code(app: &AppState, grant: &LoginGrant, typed: &str) -> Result<(Option<Proven>, Option<Row>), Error> {
    let Some(before) = app.store.get(Kind::RecoveryCodes, &grant.user).await? else {
        return Ok((None, None));
    };
    let mut left: Vec<String> = serde_json::from_str(&before.secret.0).map_err(Error::internal)?;
    let digest = s256(&letters(typed));
    let Some(used) = left.iter().position(|known| *known == digest) else {
        return Ok((None, Some(before)));
    };
    left.remove(used);
    let proven = Proven::Code {
        before: before.clone(),
        left,
    };
    Ok((Some(proven), Some(before)))
}
