//! The checks of a plan before its first change: the role of the caller, the versions of plugins, the ends of access,
//! and the number of teams of a user. The cloud refuses on the way what they do not find.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Result, bail};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tidewaiter_api::values::{EndTime, printable};
use tidewaiter_cloud::client::Path;
use tidewaiter_cloud::models::{Kind, MAX_TEAMS};
use tidewaiter_cloud::server::principal::OrgRole;
use tidewaiter_kit::{Clock as _, SystemClock};

use super::catalogue::version_path;
use super::plan::{Change, Plan, Step};
use super::session::{Session, if_found, text};

/// Checks the plan. All that the cloud would refuse is in one error.
pub(super) async fn preflight(session: &Session, plan: &Plan) -> Result<()> {
    let role = role(session).await?;
    let now = SystemClock.now();
    let mut refused = Vec::new();
    for step in &plan.steps {
        let title = title(step);
        let required = step.kind.facts().writers;
        // Users may change what is their own, whatever their role.
        if let Some(role) = role.filter(|role| *role < required && step.kind.parent() != Some(Kind::User)) {
            refused.push(format!(
                "{title} requires the role {required}, and yours is {role}: ask an owner"
            ));
        } else if let Some(reason) = missing_version(session, step).await? {
            refused.push(format!("{title}: {reason}"));
        }
        refused.extend(past_ends(step, plan, now).map(|reason| format!("{title}: {reason}")));
    }
    refused.extend(full_users(session, plan).await?);
    if !refused.is_empty() {
        bail!("{}", refused.join("; "));
    }
    Ok(())
}

fn title(step: &Step) -> String {
    format!("{} {}", step.kind.name(), printable(&step.title))
}

/// The name of the object with this id, as far as the documents name it.
fn name<'a>(plan: &'a Plan, id: &'a str) -> &'a str {
    plan.names.get(id).map_or(id, String::as_str)
}

/// The fields that the step sets.
fn set(step: &Step) -> Option<&Value> {
    match &step.change {
        Change::Create { body, .. } => Some(body),
        Change::Update { patch, .. } => Some(patch),
        Change::Delete { .. } => None,
    }
}

/// The ends that the step sets and that are over, each with the remedy.
fn past_ends(step: &Step, plan: &Plan, now: Timestamp) -> impl Iterator<Item = String> {
    let own = ["expires_at", "role_expires_at"].into_iter().filter_map(move |field| {
        let end = set(step)?.get(field)?;
        Some((field.to_owned(), end))
    });
    let users = set(step).and_then(|spec| spec.get("user_ends")?.as_object());
    let users = users.into_iter().flat_map(Map::iter);
    let users = users.map(move |(user, end)| (format!("the end of {}", printable(name(plan, user))), end));
    own.chain(users).filter_map(move |(field, end)| {
        let end = EndTime::of_field(end.as_str()?).filter(|end| end.has_passed(now))?;
        Some(format!("{field} is {end}, which is over: set a later time, or omit it"))
    })
}

/// The users whom a team adds and who are in the maximum number of teams then, each with the remedy.
async fn full_users(session: &Session, plan: &Plan) -> Result<Vec<String>> {
    let is_team =
        |step: &&Step| step.kind == Kind::Team && set(step).is_some_and(|spec| spec.get("user_ids").is_some());
    let steps: Vec<&Step> = plan.steps.iter().filter(is_team).collect();
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    let teams = session.organization()?.below(Kind::Team.facts().segment);
    let teams = session.list(teams).await?;
    let mut numbers: HashMap<&str, i64> = HashMap::new();
    for user in teams.iter().flat_map(users) {
        *numbers.entry(user).or_default() += 1;
    }
    let mut refused = Vec::new();
    for step in steps {
        let had = match &step.change {
            Change::Update { before, .. } => users(before),
            Change::Create { .. } | Change::Delete { .. } => BTreeSet::new(),
        };
        let has = set(step).map(users).unwrap_or_default();
        for user in has.difference(&had).copied() {
            let number = numbers.entry(user).or_default();
            if *number >= MAX_TEAMS {
                let (title, user) = (title(step), printable(name(plan, user)));
                refused.push(format!(
                    "{title}: {user} is in {number} teams, the maximum: remove the user from another team first"
                ));
            }
            *number += 1;
        }
        for user in had.difference(&has).copied() {
            *numbers.entry(user).or_default() -= 1;
        }
    }
    Ok(refused)
}

/// The ids of the users of a team.
fn users(team: &Value) -> BTreeSet<&str> {
    let users = team.get("user_ids").and_then(Value::as_array);
    users.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The role of the caller in the organization, if the cloud says it.
async fn role(session: &Session) -> Result<Option<OrgRole>> {
    let organization = session.organization_id()?;
    let (claims, _) = session.get(Path::new(["authenticate"])).await?;
    let mut all = claims["organizations"].as_array().into_iter().flatten();
    let own = all.find(|membership| text(membership, "id") == organization);
    Ok(own.and_then(|membership| OrgRole::of(text(membership, "role"))))
}

/// The reason why no plugin can get the version that the step sets; `None` if it sets none, or one that can be used.
async fn missing_version(session: &Session, step: &Step) -> Result<Option<String>> {
    let plugin = match &step.change {
        _ if step.kind != Kind::Plugin => return Ok(None),
        Change::Create { body, .. } => body.clone(),
        Change::Update { id, patch, .. } if patch.get("version").is_some() => {
            let (mut plugin, _) = session.get(step.list.clone().below(id)).await?;
            json_patch::merge(&mut plugin, patch);
            plugin
        }
        Change::Update { .. } | Change::Delete { .. } => return Ok(None),
    };
    let [plugin_type, implementation, version] =
        ["type", "implementation", "version"].map(|field| text(&plugin, field));
    let found = if_found(session.get(version_path(plugin_type, implementation, version)).await)?;
    let reason = match found {
        None => "not in the catalogue",
        Some((found, _)) if found.get("disabled") == Some(&Value::Bool(true)) => "disabled in the catalogue",
        Some(_) => return Ok(None),
    };
    Ok(Some(format!(
        "the version {version} is {reason}: tidewaiter cloud catalogue list shows those that can be used, and an operator \
         adds more (tidewaiter cloud catalogue add)"
    )))
}
