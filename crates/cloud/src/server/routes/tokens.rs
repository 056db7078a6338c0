//! Tokens for programs, of a user or of a service account. A token may have a scope, which limits what it has of its
//! owner's permissions, and always has an end.

use jiff::{SignedDuration, Timestamp};

use super::lists::all;
use super::login::add_token;
use super::prelude::*;
use crate::models::values::{DisplayName, ServiceAccountId, UserId};
use crate::models::{TokenScope, Unknown, parse};
use crate::server::access::organizations::unlocked;
use crate::server::auth::authenticator::SCOPE;
use crate::server::auth::signed_in::{LOGIN, SignedIn};
use crate::server::http::call::refuse_others;
use crate::server::keys::token::{Claims, TokenUse};

/// The maximum lifetime of a token that a user creates: a year.
pub(super) const LONGEST: u32 = 365 * 24 * 60 * 60;

/// The time after a login in which it may create tokens that outlive it, grant logins to programs, link providers,
/// and make operators.
const RECENT: SignedDuration = SignedDuration::from_mins(10);

/// The maximum lifetime of any token.
pub const LONGEST_TOKEN: SignedDuration = SignedDuration::from_hours(365 * 24);

/// The owner of the tokens at a path: a service account of an organization, or the caller.
struct TokenOwner {
    kind: Kind,
    id: String,
    /// The organization of a service account.
    organization: String,
}

impl TokenOwner {
    fn of(call: &Call) -> Result<Self, Refusal> {
        if !call.has_parameter("service_account_id") {
            let principal = &call.caller()?.principal;
            let is_account = matches!(principal, Principal::ServiceAccount { .. });
            return Ok(Self {
                kind: if is_account { Kind::ServiceAccount } else { Kind::User },
                id: call.owner(),
                organization: principal.organization().to_string(),
            });
        }
        Ok(Self {
            kind: Kind::ServiceAccount,
            id: call.key("service_account_id")?,
            organization: call.key("organization_id")?,
        })
    }

    /// The row of the owner. `writes` means that the request changes something.
    ///
    /// # Errors
    /// If it does not exist, is of another organization, or is of one that is locked.
    async fn find(&self, source: &mut dyn Source, writes: bool) -> Result<Row, Error> {
        let is_account = self.kind == Kind::ServiceAccount;
        if is_account && writes {
            unlocked(source, &self.organization).await?;
        }
        let row = source.existing(self.kind, &self.id).await?;
        if is_account && row.organization_id != self.organization {
            return Err(Refusal::not_found().into());
        }
        Ok(row)
    }

    fn token_use(&self) -> TokenUse {
        match self.kind {
            Kind::ServiceAccount => TokenUse::ServiceAccount(ServiceAccountId(uuid(&self.id))),
            _ => TokenUse::User(UserId(uuid(&self.id))),
        }
    }
}

/// The settings of a new token.
struct NewToken {
    name: DisplayName,
    life: SignedDuration,
    scope: Option<TokenScope>,
}

impl NewToken {
    /// Reads the body of `call`. Without `expires_in_seconds` the lifetime is `default`, if there is one.
    fn parse(call: &Call, default: Option<u32>) -> Result<Self, Refusal> {
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
        let scope = parse_scope(&mut body)?;
        refuse_others(&body)?;
        Ok(Self {
            name,
            life: SignedDuration::from_secs(seconds),
            scope,
        })
    }
}

fn parse_scope(body: &mut Map<String, Value>) -> Result<Option<TokenScope>, Refusal> {
    let Some(scope) = body.remove(SCOPE).filter(|scope| !scope.is_null()) else {
        return Ok(None);
    };
    parse(text(&scope).as_bytes(), Unknown::Refuse)
        .map(Some)
        .map_err(|error| {
            let field = format!("{SCOPE}.{}", error.field);
            Refusal::field(field.trim_end_matches('.'), error.reason)
        })
}

/// The user, if the calling token was not revoked meanwhile: a user whose login has ended, for example because an admin
/// set another password, gets no new token through a pending request.
pub(super) async fn still_logged_in(
    transaction: &mut Transaction,
    user: &str,
    token: Option<Uuid>,
) -> Result<Row, Error> {
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
    let checked = check_recent_login(transaction, caller.id, &action).await;
    checked.map_err(|error| match error {
        Error::Refused(refusal) => Error::Refused(Refusal {
            field: Some("expires_in_seconds".to_owned()),
            ..refusal
        }),
        error => error,
    })
}

/// Checks that the caller's token `id` was not revoked and comes of a sign-in of the last minutes, which `action` needs.
/// Otherwise a login that was stolen for a moment would be access for a year.
pub(super) async fn check_recent_login(transaction: &mut Transaction, id: Uuid, action: &str) -> Result<(), Error> {
    let token = transaction.get(Kind::Token, &id.to_string()).await?;
    Ok(refuse_old_login(token.as_ref(), transaction.now(), action)?)
}

/// Refuses `action` unless `token` comes of a sign-in of the last minutes.
pub(super) fn refuse_old_login(token: Option<&Row>, now: Timestamp, action: &str) -> Result<(), Refusal> {
    let signed_in = token.and_then(SignedIn::of);
    if signed_in.is_some_and(|signed_in| signed_in.is_since(now - RECENT)) {
        return Ok(());
    }
    let message = format!(
        "{action} needs a login of the last {} minutes: log in again (tidewaiter cloud login), and repeat the command",
        RECENT.as_mins()
    );
    Err(Refusal::forbidden(message))
}

/// The representation of a token of an owner of `kind`, without its text.
fn token_shown(row: &Row, kind: Kind) -> Map<String, Value> {
    let owner = match kind {
        Kind::ServiceAccount => "service_account_id",
        _ => "user_id",
    };
    let mut item = row.spec.clone();
    item.remove(LOGIN);
    item.insert("id".to_owned(), Value::from(row.id.clone()));
    item.insert(owner.to_owned(), Value::from(row.parent_id.clone()));
    item.insert("created_at".to_owned(), unix_millis(&row.created_at));
    item.insert("updated_at".to_owned(), unix_millis(&row.updated_at));
    item
}

pub(super) async fn get(app: &AppState, call: &Call) -> Result<Response, Error> {
    let owner = TokenOwner::of(call)?;
    let row = app.store.get(Kind::Token, &call.key("id")?).await?;
    let row = row.filter(|row| row.parent_id == owner.id);
    let row = row.ok_or_else(Refusal::not_found)?;
    Ok(respond(call, &token_shown(&row, owner.kind)))
}

pub(super) async fn list(app: &AppState, call: &Call) -> Result<Response, Error> {
    let owner = TokenOwner::of(call)?;
    owner.find(&mut &app.store, false).await?;
    let tokens = Listed::Children(Kind::Token, &owner.id);
    all(app, call, tokens, |row| Ok(token_shown(row, owner.kind))).await
}

/// Creates a token. Without `expires_in_seconds` its lifetime is `default`, if there is one. The caller is a user, also
/// for a service account: a program creates no tokens that outlive its own.
pub(super) async fn create(app: &AppState, call: &Call, default: Option<u32>) -> Result<Response, Error> {
    let (wanted, owner) = (NewToken::parse(call, default)?, TokenOwner::of(call)?);
    let (state, user, path) = (app.clone(), call.user()?.to_string(), call.path.clone());
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    create_idempotent(app, call, async move |transaction| {
        still_logged_in(transaction, &user, Some(caller.id)).await?;
        let parent = owner.find(transaction, true).await?;
        transaction.check_room_for_token(&parent.id).await?;
        let claims = Claims::new(owner.token_use(), transaction.now(), wanted.life);
        check_outlives(transaction, &caller, claims.expires_at).await?;
        let token = state.sign(&claims)?;
        let mut spec = json!({ "name": wanted.name.as_str() });
        if let Some(scope) = &wanted.scope {
            spec[SCOPE] = json!(scope);
        }
        let row = add_token(transaction, &claims, &parent, spec).await?;
        let mut item = token_shown(&row, owner.kind);
        item.insert("token".to_owned(), Value::from(token));
        let reply = Reply::made(format!("{path}/{}", row.id), &item).without_etag();
        Ok(reply.with_secret_of(&row))
    })
    .await
}

pub(super) async fn revoke(app: &AppState, call: &Call) -> Result<Response, Error> {
    let owner = TokenOwner::of(call)?;
    let id = match (call.word("id"), &call.caller()?.claims) {
        ("current", Some(claims)) => claims.id.to_string(),
        _ => call.key("id")?,
    };
    write(app, call, async move |transaction| {
        let parent = owner.find(transaction, true).await?;
        let row = transaction.get(Kind::Token, &id).await?;
        let row = row.filter(|row| row.parent_id == parent.id);
        transaction.remove(&row.ok_or_else(Refusal::not_found)?).await?;
        Ok(Reply::nothing())
    })
    .await
}
