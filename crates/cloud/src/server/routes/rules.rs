//! The rules of the roles of an organization as objects of their own, as clients of the original service read and
//! delete them. They are created and changed with their role.

use std::ops::ControlFlow;

use super::lists::{Page, cached, scopes, unknown_cursor};
use super::prelude::*;
use super::references::resolve_references;
use crate::server::access::resource_path::find;
use crate::server::http::list_cache::{CacheScope, CachedList};
use crate::server::http::response_budget::Held;

/// Lists the rules of all roles.
pub(super) async fn list(app: &AppState, call: &Call) -> Result<Response, Error> {
    let key = format!("{} {:?}", call.path, call.query);
    cached(app, call, &key, CacheScope::Everything, || computed(app, call)).await
}

async fn computed(app: &AppState, call: &Call) -> Result<(CachedList, Held), Error> {
    let (as_of, resource) = (app.store.feed().latest(), ResourcePath::of(call)?);
    resource.check_parents(&mut &app.store, Kind::Role, false).await?;
    let listed = Listed::Children(Kind::Role, resource.parent(Kind::Role));
    let mut last = last(app, call).await?;
    // The role of the last rule may have others after it.
    let after = last
        .as_ref()
        .map_or(i64::MIN, |(_, position)| position.saturating_sub(1));
    let mut page = Page::begin_after(app, call, after).await?;
    page.fill_with(app, listed, |page, role| {
        let rules = of_row(app, role)?;
        let is_last = |(last, _)| rules.iter().position(|rule| rule.get("id") == Some(&last));
        let seen = last.take().and_then(is_last);
        for rule in rules.iter().skip(seen.map_or(0, |seen| seen + 1)) {
            let id = rule.get("id").and_then(Value::as_str).unwrap_or_default();
            page.push(id, role.position, rule)?;
        }
        Ok(())
    })
    .await?;
    page.end(as_of, scopes(&resource, Kind::Role))
}

/// The id of the last rule of the page before, and the position of its role.
async fn last(app: &AppState, call: &Call) -> Result<Option<(Value, i64)>, Error> {
    let Some(after) = call.query_value("after") else {
        return Ok(None);
    };
    let (id, position) = after.split_once('.').unwrap_or((after, ""));
    let id = Value::from(id);
    if let Ok(position) = position.parse() {
        return Ok(Some((id, position)));
    }
    let (position, _) = find_rule(app, call, &id).await?.ok_or_else(unknown_cursor)?;
    Ok(Some((id, position)))
}

/// Lists the rules of one role.
pub(super) async fn of_role(app: &AppState, call: &Call) -> Result<Response, Error> {
    let role = find(&mut &app.store, Kind::Role, &ResourcePath::of(call)?).await?;
    Ok(respond(call, &of_row(app, &role)?))
}

pub(super) async fn get(app: &AppState, call: &Call) -> Result<Response, Error> {
    let found = find_rule(app, call, &Value::from(call.key("id")?)).await?;
    let (_, rule) = found.ok_or_else(Refusal::not_found)?;
    Ok(respond(call, &rule))
}

/// The rule `id` of any role, with the position of its role.
async fn find_rule(app: &AppState, call: &Call, id: &Value) -> Result<Option<(i64, Map<String, Value>)>, Error> {
    let resource = ResourcePath::of(call)?;
    resource.check_parents(&mut &app.store, Kind::Role, false).await?;
    let roles = Listed::Children(Kind::Role, resource.parent(Kind::Role));
    let mut found = None;
    let each = app.store.each(roles, i64::MIN, i64::MAX, |role| {
        let rule = of_row(app, &role)?.into_iter().find(|rule| rule.get("id") == Some(id));
        found = rule.map(|rule| (role.position, rule));
        Ok(if found.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    });
    each.await?;
    Ok(found)
}

/// Removes one rule from its role.
pub(super) async fn delete(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (resource, id) = (ResourcePath::of(call)?, Value::from(call.key("id")?));
    let (condition, state) = (call.condition(), app.clone());
    // Read here, because all roles together may be large and other writes would wait.
    let (_, found) = find_rule(app, call, &id).await?.ok_or_else(Refusal::not_found)?;
    let of = found.get("role_id").and_then(Value::as_str);
    let of = of.unwrap_or_default().to_owned();
    write(app, call, async move |transaction| {
        resource.check_parents(transaction, Kind::Role, true).await?;
        let role = transaction.existing(Kind::Role, &of).await?;
        let rules = of_row(&state, &role)?;
        let place = rules.iter().position(|rule| rule.get("id") == Some(&id));
        let place = place.ok_or_else(Refusal::not_found)?;
        condition.check(text(&rules[place]).as_bytes())?;
        let mut spec = Kind::Role.current(role.spec.clone());
        if let Some(rules) = spec.get_mut("rules").and_then(Value::as_array_mut) {
            rules.remove(place);
        }
        let document = Kind::Role.read_changed(&Value::Object(spec), &role.spec)?;
        let (parent, organization) = (&role.parent_id, &role.organization_id);
        let references = resolve_references(transaction, Kind::Role, parent, organization, &document).await?;
        transaction
            .update(&role, document.spec, String::new(), &references)
            .await?;
        Ok(Reply::nothing())
    })
    .await
}

/// The rules of a role. What a rule does not have is that of its role.
fn of_row(app: &AppState, role: &Row) -> Result<Vec<Map<String, Value>>, Error> {
    let mut role = shown(app, role, false)?;
    let rules = role.remove("rules");
    let rules = rules.as_ref().and_then(Value::as_array).into_iter().flatten();
    let completed = |listed: &Map<String, Value>| {
        let mut complete = listed.clone();
        complete.insert("role_id".to_owned(), role.get("id").cloned().unwrap_or_default());
        for field in [
            "organization_id",
            "owner_id",
            "name",
            "description",
            "created_at",
            "updated_at",
        ] {
            complete.insert(field.to_owned(), role.get(field).cloned().unwrap_or_default());
        }
        complete
    };
    Ok(rules.filter_map(Value::as_object).map(completed).collect())
}
