//! The ceremonies of WebAuthn: the options for the browser, and the state that is stored as a grant until it answers.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use webauthn_rs::prelude::{RegisterPublicKeyCredential, SecurityKey, SecurityKeyRegistration};

use super::super::prelude::*;
use crate::models::UniqueName;
use crate::server::keys::codes::s256;
use crate::server::store::{Author, GrantKind, GrantState, LoginGrant};

/// The life of a challenge, in seconds.
const LIFE: i64 = 300;

/// The options for a browser and the state of a ceremony that asks for one of `keys`. Without a relying party, recovery
/// codes are left.
pub(super) fn begin_authentication(app: &AppState, keys: &[Row]) -> Result<(Value, String), Error> {
    let Some(webauthn) = &app.webauthn else {
        return Ok((Value::Null, String::new()));
    };
    let keys = keys.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let begun = webauthn.start_securitykey_authentication(&keys);
    let (options, state) = begun.map_err(Error::internal)?;
    Ok((json!(options.public_key), text(&state)))
}

/// The options for a browser and the state of a ceremony that registers a key beside `keys`.
pub(super) fn begin_registration(app: &AppState, user: &Row, keys: &[Row]) -> Result<(Value, String), Error> {
    let missing = || Refusal::conflict("security keys need a publicUrl with a host name: ask the server's operator");
    let webauthn = app.webauthn.as_ref().ok_or_else(missing)?;
    let field = |name| user.text(name).unwrap_or_default();
    let known = keys.iter().map(|row| read(row).map(|key| key.cred_id().clone()));
    let known = known.collect::<Result<Vec<_>, _>>()?;
    let (email, name) = (field("email"), field("name"));
    let begun = webauthn.start_securitykey_registration(uuid(&user.id), email, name, Some(known), None, None);
    let (options, state) = begun.map_err(Error::internal)?;
    Ok((json!(options.public_key), text(&state)))
}

/// The key that a browser registered for the challenge of `grant` (WebAuthn 2, 7.1); `None` if a check fails.
pub(super) fn registered(app: &AppState, grant: &LoginGrant, credential: Value) -> Option<Box<SecurityKey>> {
    let credential: RegisterPublicKeyCredential = serde_json::from_value(credential).ok()?;
    let state: SecurityKeyRegistration = serde_json::from_str(&grant.challenge).ok()?;
    let webauthn = app.webauthn.as_ref()?;
    let key = webauthn.finish_securitykey_registration(&credential, &state).ok()?;
    Some(Box::new(key))
}

/// The key of a row.
pub(super) fn read(row: &Row) -> Result<SecurityKey, Error> {
    serde_json::from_str(&row.secret.0).map_err(Error::internal)
}

/// The id that the authenticator gave the key is a name: no two users have the same key.
pub(super) fn references(key: &SecurityKey) -> References {
    References {
        name: Some(UniqueName::of(
            "credential",
            &[("id", &URL_SAFE_NO_PAD.encode(key.cred_id()))],
        )),
        ..References::default()
    }
}

pub(super) fn new_grant(app: &AppState, kind: GrantKind, user: &str, code: &str, state: String) -> LoginGrant {
    LoginGrant {
        digest: s256(code),
        kind,
        owner: user.to_owned(),
        state: GrantState::Pending,
        user: user.to_owned(),
        token: String::new(),
        user_code: String::new(),
        client: String::new(),
        address: String::new(),
        challenge: state,
        redirect_uri: String::new(),
        expires_at: app.clock.now().as_second() + LIFE,
    }
}

/// The author of a write for a user who is signing in.
pub(super) fn of_user(call: &Call, user: &Row) -> Author {
    Author {
        queue: user.organization_id.clone(),
        actor: format!("user:{}", user.id),
        ..call.by()
    }
}

/// Removes a grant, whose challenge nobody may use again.
pub(super) async fn use_up(app: &AppState, by: Author, grant: LoginGrant) -> Result<(), Error> {
    let removed = app.store.write(by, async move |transaction| {
        transaction.remove_login_grant(&grant).await?;
        Ok(())
    });
    removed.await
}

/// Removes a grant. Returns false if it is not there any more, or has expired.
pub(super) async fn remove_once(transaction: &mut Transaction, grant: &LoginGrant) -> Result<bool, Error> {
    let now = transaction.now();
    let found = LoginGrant::with_digest(transaction, &grant.digest, now).await?;
    let is_there = found.as_ref() == Some(grant);
    if is_there {
        transaction.remove_login_grant(grant).await?;
    }
    Ok(is_there)
}
