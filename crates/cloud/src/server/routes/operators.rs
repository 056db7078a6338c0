//! Operators: users who administer all organizations.
//!
//! There is always one. Only operators add and remove operators, and delete an organization that is an operator's home.
//! Adding one needs a recent login, so that a login that was stolen for a moment does not make another operator.
//! A user who cannot log in does not become one, because nobody else could set the password afterwards.

use super::lists::{Page, uncached};
use super::prelude::*;
use super::tokens::check_recent_login;
use crate::server::access::operators::keep_one;
use crate::server::access::organizations::is_locked;
use crate::server::access::users::never_ends;
use crate::server::store::{Quotas, Usage};

fn shown(operator: &Row, user: &Row) -> Value {
    let field_of_user = |field: &str| user.spec.get(field).cloned().unwrap_or_default();
    json!({ "id": user.id, "name": field_of_user("name"), "email": field_of_user("email"), "added_at": unix_millis(&operator.created_at) })
}

/// The user in the path does not exist. Only an operator learns that.
fn not_found(reason: &str) -> Refusal {
    Refusal::field("user_id", reason).with_status(StatusCode::NOT_FOUND)
}

pub(super) async fn list(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut items = Vec::new();
    for operator in (&mut &app.store).of_kind(Kind::Operator).await? {
        let user = app.store.get(Kind::User, &operator.id).await?;
        items.extend(user.map(|user| shown(&operator, &user)));
    }
    Ok(respond(call, &items))
}

/// Makes a user an operator. The audit log of the user's home organization records it.
pub(super) async fn add(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (id, owner) = (call.key("user_id")?, call.owner());
    let caller = call.caller()?.claims.clone().ok_or_else(Refusal::unauthenticated)?;
    write(app, call, async move |transaction| {
        let user = transaction.get(Kind::User, &id).await?;
        let user = user.ok_or_else(|| not_found("there is no such user"))?;
        if let Some(operator) = transaction.get(Kind::Operator, &id).await? {
            return Ok(Reply::ok(&shown(&operator, &user)));
        }
        check_recent_login(transaction, caller.id, "making a user an operator").await?;
        never_ends(&user)?;
        if transaction.get(Kind::Password, &id).await?.is_none() {
            let reason = "the user has no password and could not log in: set a password first";
            let refusal = Refusal::field("user_id", reason);
            return Err(refusal.with_status(StatusCode::CONFLICT).into());
        }
        let row = Row {
            parent_id: id.clone(),
            organization_id: user.organization_id.clone(),
            owner_id: owner,
            ..Row::new(Kind::Operator, id)
        };
        let operator = transaction.insert(row, &References::default()).await?;
        Ok(Reply::ok(&shown(&operator, &user)))
    })
    .await
}

/// Revokes a user's operator rights.
pub(super) async fn remove(app: &AppState, call: &Call) -> Result<Response, Error> {
    let id = call.key("user_id")?;
    write(app, call, async move |transaction| {
        let operator = transaction.get(Kind::Operator, &id).await?;
        let operator = operator.ok_or_else(|| not_found("the user is not an operator"))?;
        keep_one(transaction, &id).await?;
        transaction.remove(&operator).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// Lists all organizations with what they have of their limits. An operator who is no member reads nothing else of one.
pub(super) async fn organizations(app: &AppState, call: &Call) -> Result<Response, Error> {
    let listed = Listed::Children(Kind::Organization, "");
    let quotas = Quotas {
        limits: app.parts.quotas.clone(),
        refused: None,
    };
    let (as_of, limit) = (app.store.feed().latest(), app.parts.storage.objects.get());
    let mut page = Page::begin(app, call, listed).await?;
    loop {
        let rows = page.next(app, listed).await?;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            break;
        };
        let mut usage = app.store.usage((first.position, last.position)).await?;
        for row in &rows {
            let used = usage.remove(&row.id).unwrap_or_default();
            page.push(&row.id, row.position, &used_of_limits(row, &used, &quotas, limit))?;
        }
    }
    uncached(call, page.end(as_of, Vec::new())?)
}

/// An organization with what it has, of at most `mib` MiB. Tokens are limited for each user.
fn used_of_limits(organization: &Row, used: &Usage, quotas: &Quotas, mib: u32) -> Value {
    let limited = used.counts.iter().filter(|(kind, _)| *kind != Kind::Token);
    let limited = limited.map(|(kind, count)| (kind, count, quotas.limit(*kind)));
    let objects: Vec<Value> = limited
        .filter(|(.., limit)| *limit < i64::MAX)
        .map(|(kind, count, limit)| json!({ "kind": kind.word(), "count": count, "limit": limit }))
        .collect();
    json!({
        "id": organization.id,
        "name": organization.text("name"),
        "locked": is_locked(organization),
        "created_at": unix_millis(&organization.created_at),
        "objects": objects,
        "bytes": used.bytes.max(0),
        "bytes_limit": u64::from(mib) * 1024 * 1024,
    })
}
