//! The spec in a request body for an existing object, and checks that all references exist.

use std::collections::HashSet;

use jiff::Timestamp;

use super::identities::disables_passwords;
use super::prelude::*;
use crate::models::values::EndTime;
use crate::models::{Document, MAX_TEAMS, TeamSpec, stored};
use crate::server::access::organizations::requires_second_factor;
use crate::server::store::membership_id;

/// The open object of a plugin.
const CONFIGURATION: &str = "configuration";

/// The unique names and references of `document`, if all referenced objects exist.
pub(super) async fn resolve_references(
    transaction: &mut Transaction,
    kind: Kind,
    parent: &str,
    organization: &str,
    document: &Document,
) -> Result<References, Error> {
    let users = document.uses.iter().filter(|used| used.kind == Kind::User);
    let memberships: Vec<_> = users.map(|used| membership_id(organization, &used.id)).collect();
    let members = transaction.existing_ids(Kind::Membership, &memberships).await?;
    for used in &document.uses {
        let there = match used.kind {
            Kind::User => members.contains(&membership_id(organization, &used.id)),
            Kind::PluginVersion => {
                let version = transaction.get(Kind::PluginVersion, &used.id).await?;
                version.is_some_and(|version| version.spec.get("disabled") != Some(&Value::Bool(true)))
            }
            _ => {
                let row = transaction.get(used.kind, &used.id).await?;
                row.is_some_and(|row| row.organization_id == organization)
            }
        };
        if !there {
            let of = if used.kind == Kind::PluginVersion {
                "the catalogue"
            } else {
                "this organization"
            };
            let reason = format!("{} is not {} of {of}", used.id, used.kind.singular());
            return Err(Refusal::field(used.field.clone(), reason).into());
        }
    }
    let scope = match kind {
        Kind::User => String::new(),
        // The name of a Node is unique in its cluster, in whichever of its pools the node is.
        Kind::Node => transaction.existing(Kind::NodePool, parent).await?.parent_id,
        _ => parent.to_owned(),
    };
    Ok(References {
        name: document.name.clone(),
        scope,
        uses: document.uses.iter().map(|used| (used.kind, used.id.clone())).collect(),
    })
}

/// Checks that no user whom the team `document` adds is then in more than [`MAX_TEAMS`] of the organization, and that
/// the team has an end for its users only. What is no team is not checked.
pub(super) async fn bound_teams(
    transaction: &mut Transaction,
    organization: &str,
    document: &Document,
    before: Option<&Row>,
) -> Result<(), Error> {
    let Some(team) = document.typed::<TeamSpec>() else {
        return Ok(());
    };
    let users: HashSet<_> = team.user_ids.iter().collect();
    if let Some(user) = team.user_ends.keys().find(|user| !users.contains(user)) {
        let reason = "is the end of a user who is not in user_ids: add the user, or omit the end";
        return Err(Refusal::field(format!("user_ends.{user}"), reason).into());
    }
    let had = before.and_then(|row| stored::<TeamSpec>(&row.spec).ok());
    let had = had.map(|team| team.user_ids).unwrap_or_default();
    let had: HashSet<_> = had.into_iter().collect();
    let added = team.user_ids.iter().enumerate().filter(|(_, user)| !had.contains(user));
    let added: Vec<(usize, String)> = added.map(|(index, user)| (index, user.to_string())).collect();
    let users: Vec<_> = added.iter().map(|(_, user)| user.clone()).collect();
    let numbers = transaction.numbers_of_teams(&users).await?;
    for (index, user) in added {
        if numbers.get(&user).is_none_or(|teams| *teams < MAX_TEAMS) {
            continue;
        }
        // Some of the teams may be of other organizations.
        let teams = transaction.number_of_teams(organization, &user).await?;
        if teams >= MAX_TEAMS {
            let reason =
                format!("the user {user} is in {teams} teams, the maximum; remove the user from another team first");
            return Err(Refusal::field(format!("user_ids[{index}]"), reason).into());
        }
    }
    Ok(())
}

/// Adds a member of the organization to a team.
pub(super) async fn join_team(transaction: &mut Transaction, team: &Row, user: &str) -> Result<(), Error> {
    let organization = &team.organization_id;
    let mut spec = Value::Object(team.spec.clone());
    if let Some(users) = spec["user_ids"].as_array_mut() {
        users.push(user.into());
    }
    let document = Kind::Team.read_accepted(&spec)?;
    bound_teams(transaction, organization, &document, Some(team)).await?;
    let references = resolve_references(transaction, Kind::Team, &team.parent_id, organization, &document).await?;
    transaction
        .update(team, document.spec, String::new(), &references)
        .await?;
    Ok(())
}

/// Checks that no end of access which `document` sets is over yet: in the past it is a typing error more often than a
/// wish. An end that stays as it was `before` may be over.
pub(super) fn refuse_past_end(document: &Document, before: Option<&Row>, now: Timestamp) -> Result<(), Refusal> {
    let before = before.map(|row| &row.spec);
    let end = |spec: &Map<String, Value>| spec.get("expires_at").cloned();
    refuse_past(
        "expires_at",
        end(&document.spec).as_ref(),
        before.and_then(end).as_ref(),
        now,
    )?;
    let ends = document.spec.get("user_ends").and_then(Value::as_object);
    for (user, end) in ends.into_iter().flatten() {
        let had = before.and_then(|spec| spec.get("user_ends")?.get(user));
        refuse_past(&format!("user_ends.{user}"), Some(end), had, now)?;
    }
    Ok(())
}

/// Checks that the end `set` in `field` is not over yet, unless it is the one of `before`.
pub(super) fn refuse_past(
    field: &str,
    set: Option<&Value>,
    before: Option<&Value>,
    now: Timestamp,
) -> Result<(), Refusal> {
    let end = set.filter(|_| set != before).and_then(Value::as_str);
    let past = end.and_then(EndTime::of_field).filter(|end| end.has_passed(now));
    past.map_or(Ok(()), |end| {
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ");
        let reason = format!(
            "is {end}, but must be in the future (it is {now} here): set a later time, omit it for access without an end, \
             or delete the object to end the access now"
        );
        Err(Refusal::field(field, reason))
    })
}

/// Removes the end in `field` of `body`: a time, or `null` for none; `None` if the field is absent.
pub(super) fn take_end(body: &mut Map<String, Value>, field: &str) -> Result<Option<Value>, Refusal> {
    let end = body.remove(field);
    match &end {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => {
            let parsed: Result<EndTime, _> = text.parse();
            parsed.map_err(|error| Refusal::field(field, error))?;
        }
        Some(_) => return Err(Refusal::field(field, "must be a time in UTC, or null")),
    }
    Ok(end)
}

/// Keeps the ends of memberships in a team, unless the body has the field (`is_set`): a client that does not know it
/// prolongs nothing. The end of a user who leaves goes.
fn keep_ends(whole: &mut Value, before: &Map<String, Value>, is_set: bool) {
    let Some(had) = before.get("user_ends").and_then(Value::as_object) else {
        return;
    };
    if !is_set {
        whole["user_ends"] = Value::Object(had.clone());
    }
    let users = whole.get("user_ids").and_then(Value::as_array);
    let users = users.cloned().unwrap_or_default();
    let stays = |user: &str| {
        let mut ids = users.iter().filter_map(Value::as_str);
        ids.any(|id| id.eq_ignore_ascii_case(user))
    };
    if let Some(ends) = whole.get_mut("user_ends").and_then(Value::as_object_mut) {
        ends.retain(|user, _| stays(user) || !had.contains_key(user));
    }
}

/// The spec in the body for an existing object, with or without the fields that the server sets, which must be
/// unchanged.
pub(super) fn parse_update(
    app: &AppState,
    before: &Row,
    seen: &Map<String, Value>,
    mut body: Map<String, Value>,
    patch: bool,
) -> Result<Document, Error> {
    let manifests: &[&str] = match before.kind {
        Kind::Plugin => &["manifests", "jobs", "depends_on"],
        _ => &[],
    };
    for field in before.kind.facts().generated.iter().chain(manifests) {
        if let Some(value) = body.remove(*field)
            && seen.get(*field) != Some(&value)
        {
            return Err(Refusal::field(*field, "is set by the server and cannot be changed; omit it").into());
        }
    }
    if before.kind == Kind::Role {
        super::roles::forget_ids(&mut body);
    }
    // Credentials are in no response and cannot be sent back: if omitted, they stay unchanged.
    if !patch
        && before.kind == Kind::Provider
        && !body.contains_key("credentials")
        && let Some(credentials) = app.credentials(before)?
    {
        body.insert("credentials".to_owned(), credentials);
    }
    // A client that does not know these fields does not switch anything off or on again.
    if !patch && before.kind == Kind::Organization {
        body.entry("passwords_disabled")
            .or_insert_with(|| disables_passwords(before).into());
        body.entry("second_factor_required")
            .or_insert_with(|| requires_second_factor(before).into());
    }
    let sets_ends = body.contains_key("user_ends");
    let mut whole = if patch {
        let mut whole = before.kind.current(before.spec.clone());
        if let Some(credentials) = app.credentials(before)? {
            whole.insert("credentials".to_owned(), credentials);
        }
        let mut whole = Value::Object(whole);
        json_patch::merge(&mut whole, &Value::Object(body));
        whole
    } else {
        Value::Object(body)
    };
    if before.kind == Kind::Team {
        keep_ends(&mut whole, &before.spec, sets_ends);
    }
    // What was stored before a rule about secrets existed does not prevent other changes.
    if before.kind == Kind::Plugin && whole.get(CONFIGURATION) == before.spec.get(CONFIGURATION) {
        let mut others = whole.clone();
        others.as_object_mut().and_then(|others| others.remove(CONFIGURATION));
        before.kind.read_changed(&others, &before.spec)?;
        return Ok(before.kind.read_accepted(&whole)?);
    }
    Ok(before.kind.read_changed(&whole, &before.spec)?)
}
