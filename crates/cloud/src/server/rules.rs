//! The rules of the roles of an organization as objects of their own, as clients of the original service read and
//! delete them. They are created and changed with their role.

use axum::response::Response;
use serde_json::{Map, Value};

use super::Error;
use super::call::{Call, Reply, respond, text};
use super::cloud::Cloud;
use super::refusal::Refusal;
use super::remember::written;
use super::source::{Spot, found};
use super::store::{Row, Source as _};
use super::ties::ties;
use super::view::shown;
use crate::models::Kind;

/// Lists the rules of all roles.
pub(super) async fn list(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    Ok(respond(call, &all(cloud, call).await?))
}

/// Lists the rules of one role.
pub(super) async fn of_role(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let role = found(&mut &cloud.store, Kind::Role, &Spot::of(call)?).await?;
    Ok(respond(call, &of_row(cloud, &role)?))
}

/// Responds with one rule.
pub(super) async fn get(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let id = Value::from(call.key("id")?);
    let rules = all(cloud, call).await?;
    let rule = rules.into_iter().find(|rule| rule.get("id") == Some(&id));
    Ok(respond(call, &rule.ok_or_else(Refusal::not_found)?))
}

/// Removes one rule from its role.
pub(super) async fn delete(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (spot, id) = (Spot::of(call)?, Value::from(call.key("id")?));
    let (condition, state) = (call.condition(), cloud.clone());
    // Read here, because all roles together may be large and other writes would wait.
    let rules = all(cloud, call).await?;
    let has_id = |rule: &&Map<String, Value>| rule.get("id") == Some(&id);
    let of = rules.iter().find(has_id).and_then(|rule| rule.get("role_id")?.as_str());
    let role_id = of.ok_or_else(Refusal::not_found)?.to_owned();
    written(cloud, call, async move |transaction| {
        spot.check(transaction, Kind::Role, true).await?;
        let role = transaction.existing(Kind::Role, &role_id).await?;
        let rules = of_row(&state, &role)?;
        let place = rules.iter().position(|rule| rule.get("id") == Some(&id));
        let place = place.ok_or_else(Refusal::not_found)?;
        condition.check(text(&rules[place]).as_bytes())?;
        let mut spec = Kind::Role.current(role.spec.clone());
        if let Some(rules) = spec.get_mut("rules").and_then(Value::as_array_mut) {
            rules.remove(place);
        }
        let document = Kind::Role.read_value(&Value::Object(spec))?;
        let ties = ties(
            transaction,
            Kind::Role,
            &role.parent_id,
            &role.organization_id,
            &document,
        )
        .await?;
        transaction.update(&role, document.spec, String::new(), &ties).await?;
        Ok(Reply::nothing())
    })
    .await
}

async fn all(cloud: &Cloud, call: &Call) -> Result<Vec<Map<String, Value>>, Error> {
    let spot = Spot::of(call)?;
    let mut source = &cloud.store;
    spot.check(&mut source, Kind::Role, false).await?;
    let roles = source.children(Kind::Role, spot.parent(Kind::Role)).await?;
    let mut all = Vec::new();
    for role in &roles {
        all.extend(of_row(cloud, role)?);
    }
    Ok(all)
}

/// The rules of a role. What a rule does not have is that of its role.
fn of_row(cloud: &Cloud, role: &Row) -> Result<Vec<Map<String, Value>>, Error> {
    let mut role = shown(cloud, role, false)?;
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
