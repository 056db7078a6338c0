//! Hashes and verifies passwords, within the limits of both.

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::guesses::Attempt;
use crate::server::Error;
use crate::server::http::call::Call;
use crate::server::keys::hash::{Password, verify_password};
use crate::server::refusal::Refusal;
use crate::server::state::AppState;

/// Removes the password in `field` of `body`, and returns its hash.
pub(crate) async fn hash_password(
    app: &AppState,
    call: &Call,
    body: &mut Map<String, Value>,
    field: &str,
) -> Result<Option<String>, Error> {
    let Some(password) = take_password(body, field)? else {
        return Ok(None);
    };
    let asker = &call.caller()?.principal;
    let share = (asker.actor(), asker.organization().to_string(), true);
    hash_for(app, share, password).await.map(Some)
}

/// Removes the password in `field` of `body`, which follows the rules.
pub(crate) fn take_password(body: &mut Map<String, Value>, field: &str) -> Result<Option<Zeroizing<String>>, Refusal> {
    let password = match body.remove(field) {
        None => return Ok(None),
        Some(Value::String(password)) => Zeroizing::new(password),
        Some(_) => return Err(Refusal::field(field, "must be a text")),
    };
    Password::new(&password).map_err(|error| Refusal::field(field, error))?;
    Ok(Some(password))
}

/// The hash of a password that follows the rules, for the caller and the organization of `share`, which also says
/// whether the caller is proven.
pub(crate) async fn hash_for(
    app: &AppState,
    share: (String, String, bool),
    password: Zeroizing<String>,
) -> Result<String, Error> {
    let hash = move || {
        let password = Password::new(&password).map_err(Error::internal)?;
        password.hash().map_err(Error::internal)
    };
    app.limits.hashed(&*app.clock, share, hash).await
}

/// Returns the attempt if `password` is the one of the hash `stored`; one without a hash takes as long. The attempt
/// has succeeded when nothing else is needed beside the password.
pub(crate) async fn verify<'a>(
    app: &AppState,
    password: String,
    stored: Option<String>,
    organization: &str,
    attempt: Attempt<'a>,
) -> Result<Option<Attempt<'a>>, Error> {
    let password = Zeroizing::new(password);
    let share = (attempt.share(), organization.to_owned(), attempt.proven);
    let check = move || verify_password(&password, stored.as_deref()).map_err(Error::internal);
    if app.limits.hashed(&*app.clock, share, check).await? {
        return Ok(Some(attempt));
    }
    attempt.failed().await;
    Ok(None)
}
