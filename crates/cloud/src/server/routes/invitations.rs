//! Invitations by a link, in place of a password that an admin knows: the person chooses it.
//!
//! - The secret of a link works once and until its end, and is stored as a hash. An unknown secret, a used one and one
//!   that has ended give the same response, and count as wrong passwords.
//! - An invitation is worth what its author may still do: it ends with the author's role.
//! - A person who has an account accepts with its login. Neither the secret nor the e-mail address alone changes an
//!   account.

use jiff::{SignedDuration, Timestamp};
use url::Url;

use super::lists::all;
use super::members::parse_role;
use super::prelude::*;
use super::references::{join_team, refuse_past, take_end};
use super::users::{create_user, join_existing};
use crate::models::MAX_TEAMS;
use crate::models::values::{DisplayName, Email, TeamId};
use crate::server::access::organizations::unlocked;
use crate::server::access::users::{end_of, never_ends, only_owners_make_owners, role_of};
use crate::server::auth::passwords::{hash_for, take_password};
use crate::server::http::call::refuse_others;
use crate::server::keys::hash::{ApiKey, KEY_PREFIX};
use crate::server::store::{Author, SecretColumn, membership_id};

/// The beginning of the secret, which otherwise has the form of an API key.
const PREFIX: &str = "twi_";
/// The time until a link ends by default, and at most.
const DEFAULT_LIFE: SignedDuration = SignedDuration::from_hours(7 * 24);
const MAX_LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The end of the membership, in the document of an invitation.
const ROLE_END: &str = "role_expires_at";

fn invitation_shown(row: &Row) -> Map<String, Value> {
    let mut item = row.spec.clone();
    item.insert("id".to_owned(), Value::from(&*row.id));
    item.insert("owner_id".to_owned(), Value::from(&*row.owner_id));
    item.insert("created_at".to_owned(), unix_millis(&row.created_at));
    item
}

/// The link with the secret. A query works without a script, which a fragment does not.
fn link(public: &Url, key: &ApiKey) -> String {
    let key = key.expose();
    let secret = key.strip_prefix(KEY_PREFIX).unwrap_or_default();
    let mut link = public.clone();
    link.set_path("/invitation");
    link.set_query(Some(&format!("secret={PREFIX}{secret}")));
    link.into()
}

pub(super) async fn list(app: &AppState, call: &Call) -> Result<Response, Error> {
    let organization = call.key("organization_id")?;
    let invitations = Listed::Children(Kind::Invitation, &organization);
    all(app, call, invitations, |row| Ok(invitation_shown(row))).await
}

pub(super) async fn revoke(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (organization, id) = (call.key("organization_id")?, call.key("id")?);
    write(app, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        let row = transaction.get(Kind::Invitation, &id).await?;
        let row = row.filter(|row| row.parent_id == organization);
        transaction.remove(&row.ok_or_else(Refusal::not_found)?).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// The teams in `body`, each once.
fn parse_teams(body: &mut Map<String, Value>) -> Result<Vec<String>, Refusal> {
    let items = match body.remove("team_ids") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) if i64::try_from(items.len()).is_ok_and(|count| count <= MAX_TEAMS) => items,
        Some(_) => {
            let reason = format!("must be a list of at most {MAX_TEAMS} ids of teams");
            return Err(Refusal::field("team_ids", reason));
        }
    };
    let mut teams: Vec<String> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let team: TeamId = item
            .as_str()
            .unwrap_or_default()
            .parse()
            .map_err(|error| Refusal::field(format!("team_ids[{index}]"), error))?;
        teams.push(team.to_string());
    }
    teams.sort();
    teams.dedup();
    Ok(teams)
}

/// The document of the invitation in `body`, without the default of its end, and the role.
fn parse(mut body: Map<String, Value>) -> Result<(Map<String, Value>, OrgRole), Refusal> {
    let role = parse_role(&mut body)?.ok_or_else(|| Refusal::field("role", "is missing"))?;
    let email = body.remove("email").unwrap_or_default();
    let email: Email = email
        .as_str()
        .unwrap_or_default()
        .parse()
        .map_err(|error| Refusal::field("email", error))?;
    let teams = parse_teams(&mut body)?;
    let mut spec = Map::new();
    spec.insert("email".to_owned(), Value::from(email.as_str()));
    spec.insert("role".to_owned(), Value::from(role.word()));
    spec.insert("team_ids".to_owned(), Value::from(teams));
    for field in [ROLE_END, "expires_at"] {
        let end = take_end(&mut body, field)?.filter(|end| !end.is_null());
        spec.extend(end.map(|end| (field.to_owned(), end)));
    }
    refuse_others(&body)?;
    Ok((spec, role))
}

/// Checks the document, and adds the default of its end.
async fn check(transaction: &mut Transaction, organization: &str, spec: &mut Map<String, Value>) -> Result<(), Error> {
    let now = transaction.now();
    for field in [ROLE_END, "expires_at"] {
        refuse_past(field, spec.get(field), None, now)?;
    }
    let default = Timestamp::from_second((now + DEFAULT_LIFE).as_second()).map_err(Error::internal)?;
    let end = spec
        .entry("expires_at")
        .or_insert_with(|| Value::from(default.to_string()));
    let end: Option<Timestamp> = end.as_str().and_then(|end| end.parse().ok());
    if end.is_none_or(|end| end > now + MAX_LIFE) {
        let reason = format!("must be within the next {} days", MAX_LIFE.as_hours() / 24);
        return Err(Refusal::field("expires_at", reason).into());
    }
    let email = spec.get("email").and_then(Value::as_str).unwrap_or_default();
    if let Some(user) = transaction.named(Kind::User, "", &email.to_lowercase()).await?
        && let membership = membership_id(organization, &user.id)
        && transaction.get(Kind::Membership, &membership).await?.is_some()
    {
        let reason = format!("is the address of a member, {}: set the role of the member", user.id);
        return Err(Refusal::field("email", reason).with_status(StatusCode::CONFLICT).into());
    }
    let teams = spec.get("team_ids").and_then(Value::as_array).cloned();
    for (index, id) in teams.iter().flatten().enumerate() {
        let id = id.as_str().unwrap_or_default();
        let team = transaction.get(Kind::Team, id).await?;
        if team.is_none_or(|team| team.organization_id != organization) {
            let reason = format!("{id} is not a team of this organization");
            return Err(Refusal::field(format!("team_ids[{index}]"), reason).into());
        }
    }
    Ok(())
}

pub(super) async fn create(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (mut spec, role) = parse(object(&call.body)?)?;
    let (organization, owner) = (call.key("organization_id")?, call.owner());
    only_owners_make_owners(&call.caller()?.principal, &organization, role)?;
    let (state, path) = (app.clone(), call.path.clone());
    create_idempotent(app, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        check(transaction, &organization, &mut spec).await?;
        // Links that have ended take no place of others.
        let now = transaction.now();
        let mut ended = transaction.children(Kind::Invitation, &organization).await?;
        ended.retain(|row| end_of(row).is_some_and(|end| end.has_passed(now)));
        transaction.remove_all(&ended).await?;
        let key = ApiKey::generate().map_err(Error::internal)?;
        let row = Row {
            organization_id: organization.clone(),
            parent_id: organization.clone(),
            owner_id: owner,
            spec,
            secret: SecretColumn(key.hash().map_err(Error::internal)?),
            ..Row::new(Kind::Invitation, key.id().to_string())
        };
        let row = transaction.insert(row, &References::default()).await?;
        let mut item = invitation_shown(&row);
        item.insert("link".to_owned(), Value::from(link(&state.parts.issuer, &key)));
        let reply = Reply::made(format!("{path}/{}", row.id), &item).without_etag();
        Ok(reply.with_secret_of(&row))
    })
    .await
}

/// There is no such invitation, or not any more: all give the same response.
fn unknown() -> Refusal {
    let reason =
        "is not that of an open invitation: it was used or revoked, has ended, or was typed wrong; ask for another one";
    Refusal::field("secret", reason)
}

/// The open invitation whose secret is in `body`. A wrong secret counts as a wrong password of the invitation that it
/// names.
async fn find(app: &AppState, call: &Call, body: &mut Map<String, Value>) -> Result<Row, Error> {
    let Some(Value::String(secret)) = body.remove("secret") else {
        return Err(Refusal::field("secret", "must be the secret of an invitation").into());
    };
    refuse_others(body)?;
    let secret = zeroize::Zeroizing::new(secret);
    let key = secret.strip_prefix(PREFIX).map(|rest| format!("{KEY_PREFIX}{rest}"));
    let key = key.and_then(|key| ApiKey::parse(&zeroize::Zeroizing::new(key)).ok());
    let id = key.as_ref().map_or_else(String::new, |key| key.id().to_string());
    let attempt = app.guesses.attempt(&format!("invitation {id}"), call.client)?;
    let row = app.store.get(Kind::Invitation, &id).await?;
    if let (Some(key), Some(row)) = (key, row) {
        let is_right = key.verify(&row.secret.0).map_err(Error::internal)?;
        if is_right && end_of(&row).is_some_and(|end| !end.has_passed(app.clock.now())) {
            return Ok(row);
        }
    }
    attempt.failed().await;
    Err(unknown().into())
}

/// Checks, before it is accepted, that the invitation is still as it was found, and that its author may still invite.
/// Returns the role and the end of the membership.
async fn still_open(transaction: &mut Transaction, found: &Row) -> Result<(OrgRole, Option<Value>), Error> {
    let organization = &found.organization_id;
    unlocked(transaction, organization).await?;
    let row = transaction.get(Kind::Invitation, &found.id).await?;
    let row = row.filter(|row| row == found).ok_or_else(unknown)?;
    let role = role_of(&row).ok_or_else(unknown)?;
    let author = transaction.get(Kind::User, &row.owner_id).await?;
    let membership = membership_id(organization, &row.owner_id);
    let membership = transaction.get(Kind::Membership, &membership).await?;
    let now = transaction.now();
    let lasts = |row: &Row| end_of(row).is_none_or(|end| !end.has_passed(now));
    let of_author = author
        .zip(membership)
        .filter(|(user, member)| lasts(user) && lasts(member));
    let of_author = of_author.and_then(|(_, member)| role_of(&member));
    if !lasts(&row) || of_author < Some(role.max(OrgRole::Admin)) {
        return Err(unknown().into());
    }
    let end = row.spec.get(ROLE_END);
    refuse_past(ROLE_END, end, None, now)?;
    Ok((role, end.cloned()))
}

/// Adds the new member to the teams of the invitation that there are still, and deletes the invitation, which works
/// once. Returns the response.
async fn use_up(transaction: &mut Transaction, invitation: &Row, user: &str) -> Result<Reply, Error> {
    let organization = &invitation.organization_id;
    let teams = invitation.spec.get("team_ids").and_then(Value::as_array).cloned();
    for id in teams.iter().flatten() {
        let team = transaction.get(Kind::Team, id.as_str().unwrap_or_default()).await?;
        if let Some(team) = team.filter(|team| team.organization_id == *organization) {
            join_team(transaction, &team, user).await?;
        }
    }
    transaction.remove(invitation).await?;
    let email = invitation.text("email").unwrap_or_default();
    Ok(Reply::ok(
        &json!({ "organization_id": organization, "user_id": user, "email": email }),
    ))
}

/// Accepts an invitation as a new user, whose home is the organization.
pub(super) async fn accept(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let name = body.remove("name").unwrap_or_default();
    let name = name.as_str().unwrap_or_default();
    let name: DisplayName = name.parse().map_err(|error| Refusal::field("name", error))?;
    let password = take_password(&mut body, "password")?;
    let password = password.ok_or_else(|| Refusal::field("password", "is missing"))?;
    let invitation = find(app, call, &mut body).await?;
    let organization = invitation.organization_id.clone();
    let share = (format!("invitation {}", invitation.id), organization.clone(), false);
    let hash = hash_for(app, share, password).await?;
    let id = Uuid::new_v4().to_string();
    let by = Author {
        queue: organization.clone(),
        actor: format!("user:{id}"),
        ..call.by()
    };
    let accepted = app.store.write(by, async move |transaction| {
        let (role, end) = still_open(transaction, &invitation).await?;
        let email = invitation.text("email").unwrap_or_default();
        if transaction
            .named(Kind::User, "", &email.to_lowercase())
            .await?
            .is_some()
        {
            let reason = "is for a person who has an account: log in, and accept the invitation with that login";
            return Err(Refusal::field("secret", reason).into());
        }
        let document = Kind::User.read_value(&json!({ "name": name.as_str(), "email": email }))?;
        let author = &invitation.owner_id;
        let role = (role, end.as_ref());
        create_user(
            transaction,
            (id.as_str(), author.as_str()),
            &organization,
            document,
            Some(hash),
            role,
        )
        .await?;
        use_up(transaction, &invitation, &id).await
    });
    Ok(accepted.await?.into_response())
}

/// Accepts an invitation with the account of the caller.
pub(super) async fn accept_with_account(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let invitation = find(app, call, &mut body).await?;
    let user = call.owner();
    let by = Author {
        queue: invitation.organization_id.clone(),
        ..call.by()
    };
    let accepted = app.store.write(by, async move |transaction| {
        let (role, end) = still_open(transaction, &invitation).await?;
        let row = transaction.get(Kind::User, &user).await?;
        let row = row.ok_or_else(Refusal::unauthenticated)?;
        let [own, invited] = [&row, &invitation].map(|row| row.text("email").unwrap_or_default());
        if !own.eq_ignore_ascii_case(invited) {
            let message = "the invitation is for another e-mail address than that of your account";
            return Err(Refusal::forbidden(message).into());
        }
        if role == OrgRole::Owner {
            never_ends(&row)?;
        }
        let (organization, author) = (&invitation.organization_id, &invitation.owner_id);
        join_existing(transaction, organization, &user, (role, end.as_ref()), author).await?;
        use_up(transaction, &invitation, &user).await
    });
    Ok(accepted.await?.into_response())
}
