//! Organizations: the list for a caller, locking, and the audit log.

use std::ops::ControlFlow;

use super::identities::check_sign_in;
use super::lists::{PAGE, again, complete, link};
use super::prelude::*;
use super::representation::all_shown;
use super::users::join;
use crate::server::http::call::refuse_others;
use crate::server::http::response_budget::Items;
use crate::server::store::ChangeFilter;

/// The number of changes that are read at a time: one may have many megabytes.
const BATCH: i64 = 20;
/// The maximum number of changes among which a page of the console finds those that it shows.
const MAX_SEARCHED: i64 = 5_000;

pub(super) async fn organizations(app: &AppState, call: &Call) -> Result<Response, Error> {
    let Principal::User { memberships, .. } = &call.caller()?.principal else {
        return Err(Refusal::not_found().into());
    };
    let mut rows = Vec::new();
    for id in memberships.keys() {
        rows.extend(app.store.get(Kind::Organization, &id.to_string()).await?);
    }
    rows.sort_by_key(|row| row.position);
    let items = all_shown(app, &rows, false)?;
    Ok(respond(call, &items))
}

pub(super) async fn create_organization(app: &AppState, call: &Call) -> Result<Response, Error> {
    let document = Kind::Organization.read(&call.body)?;
    let (owner, state) = (call.owner(), app.clone());
    create_idempotent(app, call, async move |transaction| {
        check_sign_in(&state, transaction, &owner, &document, None).await?;
        let row = new_organization(transaction, document.spec, &owner).await?;
        join(transaction, &row.id, &owner, (OrgRole::Owner, None), &owner).await?;
        let path = format!("/v3/organizations/{}", row.id);
        Ok(Reply::made(path, &shown(&state, &row, false)?))
    })
    .await
}

/// Creates an organization without members.
pub(crate) async fn new_organization(
    transaction: &mut Transaction,
    spec: Map<String, Value>,
    owner: &str,
) -> Result<Row, Error> {
    let id = Uuid::new_v4().to_string();
    let row = Row {
        organization_id: id.clone(),
        owner_id: owner.to_owned(),
        spec,
        ..Row::new(Kind::Organization, &id)
    };
    transaction.insert(row, &References::default()).await
}

/// Locks an organization against changes, or unlocks it.
pub(super) async fn lock(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let locked = body.remove("locked").and_then(|locked| locked.as_bool());
    let locked = locked.ok_or_else(|| Refusal::field("locked", "must be true or false"))?;
    refuse_others(&body)?;
    let (id, state) = (call.key("organization_id")?, app.clone());
    write(app, call, async move |transaction| {
        let row = transaction.existing(Kind::Organization, &id).await?;
        let row = transaction.set_status(&row, json!({ "locked": locked })).await?;
        Ok(Reply::ok(&shown(&state, &row, false)?))
    })
    .await
}

/// The changes that a page of the console selects, among the last before the number `before`, and the number of the one
/// at which the search ends. Other clients select nothing.
async fn selected<'a>(
    app: &AppState,
    call: &'a Call,
    (organization, before): (&str, i64),
) -> Result<(ChangeFilter<'a>, Option<i64>), Error> {
    // PostgreSQL has no text with this character.
    let is_text = |text: &&str| call.is_of_page && !text.contains('\0');
    let text = |name| call.query_value(name).filter(is_text).unwrap_or_default();
    let (kind, actor, since) = (text("kind"), text("actor"), text("since"));
    if [kind, actor, since].iter().all(|text| text.is_empty()) {
        return Ok((ChangeFilter::default(), None));
    }
    let last = (before, MAX_SEARCHED - 1);
    let last = app.store.change_before(organization, last).await?;
    let first = last.as_ref().map_or(i64::MIN, |(number, _)| *number);
    let selected = ChangeFilter {
        kind,
        actor,
        since,
        first,
    };
    // All before are older.
    let next = last.filter(|(_, at)| at.as_str() >= since).map(|(number, _)| number);
    Ok((selected, next))
}

/// The audit log of an organization, in pages that also a size limits; without one in the path, of what belongs to
/// none: the catalogue, and the organizations themselves. A page of the console selects changes; its next one begins
/// where it has searched enough.
pub(super) async fn audit(app: &AppState, call: &Call) -> Result<Response, Error> {
    let organization = if call.has_parameter("organization_id") {
        call.key("organization_id")?
    } else {
        String::new()
    };
    let limit = call.number("limit", 1_000)?.unwrap_or(100);
    let mut before = call.number("before", u32::MAX)?.map_or(i64::MAX, i64::from);
    let (selected, searched) = selected(app, call, (&organization, before)).await?;
    let (mut items, mut count, mut is_full) = (Items::begin(&app.budget, call).await?, 0, false);
    while !is_full {
        let batch = i64::from(limit + 1).min(BATCH);
        let mut read = 0;
        let each = app
            .store
            .each_change(&organization, &selected, (before, batch), |change| {
                read += 1;
                app.requests.rows.inc();
                is_full = count == limit || (count > 0 && items.bytes() >= PAGE);
                if is_full {
                    return Ok(ControlFlow::Break(()));
                }
                items.push(change)?;
                (count, before) = (count + 1, change.id);
                Ok(ControlFlow::Continue(()))
            });
        each.await?;
        if read < batch {
            break;
        }
    }
    let mut response = complete(call, items)?;
    if let Some(next) = is_full.then_some(before).or(searched) {
        link(&mut response, &again(call, "before", &next.to_string()));
    }
    Ok(response)
}
