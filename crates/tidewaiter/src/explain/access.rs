//! `tidewaiter explain access`: what a user or a team may do in the cluster, and by which binding, and who can log in
//! on which node.
//!
//! - A user or a team may do what every binding that names them gives, no matter who made it: the objects of the
//!   cluster decide, not the cloud.
//! - Beside it stands what the cloud gives and the cluster does not: rules that are refused, and bindings that wait.
//! - The cluster does not know who is in a team; the question names the teams.
//! - Nothing is written.

mod answer;
mod asked;
mod describe;
mod live;

use std::collections::BTreeMap;
use std::mem;

use anyhow::Result;
use kube::Client;
use serde::Serialize;
use tidewaiter_agent::logins::{self, LoginQuestion, LoginsExplained};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::Chain;

use super::output::{Table, print};
use crate::Failure;
use crate::cli::ExplainAccessArgs;
use crate::cloud::id_of;
use crate::upgrade::reader;
use answer::{AccessExplained, RoleExplained};
use asked::Asked;
use live::Live;

/// The subjects and the place that a person asks about.
#[derive(Clone, Debug, Default)]
struct Question {
    /// The user, by id or by the name that the cluster knows.
    user: Option<String>,
    /// Teams, by id: those of the user, if there is one.
    teams: Vec<String>,
    /// The namespace; None for all.
    namespace: Option<String>,
}

/// Both answers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(flatten)]
    access: Option<AccessExplained>,
    /// The users that can log in; absent if no user and no node is queried.
    #[serde(skip_serializing_if = "Option::is_none")]
    logins: Option<LoginsExplained>,
    /// The reason why it is not known who can log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    logins_unknown: Option<String>,
    /// The names of teams by their ids, as far as the cloud resolved them.
    #[serde(skip)]
    teams: BTreeMap<String, String>,
}

/// Prints the answer.
pub(super) async fn explain(args: &ExplainAccessArgs) -> Result<(), Failure> {
    let reader = reader(&args.cluster).await;
    let (client, _) = reader.map_err(Failure::Configuration)?;
    let answer = answer(&client, args).await.map_err(Failure::Running)?;
    print(&args.output, &answer, || all_tables(&answer)).map_err(Failure::Running)
}

async fn answer(client: &Client, args: &ExplainAccessArgs) -> Result<Answer> {
    let asked = &args.subjects;
    let mut answer = Answer {
        access: None,
        logins: None,
        logins_unknown: None,
        teams: BTreeMap::new(),
    };
    if asked.user.is_some() || !asked.team.is_empty() {
        let mut question = Question {
            user: asked.user.clone(),
            teams: asked.team.clone(),
            namespace: args.namespace.clone(),
        };
        resolve(&mut question, &mut answer.teams).await;
        answer.access = Some(access(client, &question).await?);
    }
    if asked.user.is_none() && asked.node.is_none() {
        return Ok(answer);
    }
    // The names are those of the Users, and the id is exact.
    let found = answer.access.as_ref().and_then(|access| access.user.as_ref());
    let question = LoginQuestion {
        user: found.map(|user| user.id.clone()),
        node: asked.node.clone(),
    };
    match logins::explain(client, &question).await {
        Ok(found) => answer.logins = Some(found),
        Err(error) if asked.node.is_some() => return Err(error.into()),
        // Without it, the permissions in the cluster are still an answer.
        Err(error) => answer.logins_unknown = Some(Chain(&error).to_string()),
    }
    Ok(answer)
}

/// The permissions in the cluster. A user who may do nothing is an answer.
async fn access(client: &Client, question: &Question) -> Result<AccessExplained> {
    let live = Live::read(client, question.namespace.as_deref()).await?;
    let asked = Asked::find(&live, question)?;
    let details = live.details(client, &asked).await?;
    Ok(describe::explain(&live, &details, &asked))
}

/// Puts ids in the place of names that only the cloud knows: of teams, and e-mail addresses. A name that the cloud of
/// the current context does not resolve stays.
async fn resolve(question: &mut Question, names: &mut BTreeMap<String, String>) {
    for team in &mut question.teams {
        if let Some(id) = id_of(Kind::Team, team).await.filter(|id| *id != *team) {
            names.insert(id.clone(), mem::replace(team, id));
        }
    }
    let address = question.user.as_mut().filter(|user| user.contains('@'));
    if let Some(user) = address
        && let Some(id) = id_of(Kind::User, user).await
    {
        *user = id;
    }
}

fn all_tables(answer: &Answer) -> Vec<Table> {
    let access = answer.access.iter();
    let mut all: Vec<Table> = access.flat_map(|access| tables(access, &answer.teams)).collect();
    all.extend(answer.logins.iter().flat_map(super::logins::tables));
    if let Some(why) = &answer.logins_unknown {
        let mut unknown = Table::new("", &[]);
        unknown.row(["Log in on nodes", &format!("not known: {why}")]);
        all.push(unknown);
    }
    all
}

fn tables(found: &AccessExplained, teams: &BTreeMap<String, String>) -> Vec<Table> {
    let mut grants = Table::new("MAY", &["WHAT", "WHERE", "BY ROLE", "AND BINDING", "TO"]);
    for grant in &found.grants {
        let binding = if grant.managed {
            grant.binding.clone()
        } else {
            format!("{} (not of the cloud)", grant.binding)
        };
        let binding = binding + &until(grant.expires_at.as_ref());
        let place = place(grant.namespace.as_deref());
        let team = grant.to.strip_prefix("team ").and_then(|id| teams.get(id));
        let to = team.map_or_else(|| grant.to.clone(), |name| format!("team {name}"));
        grants.row([&grant.what, &place, &called(&grant.role), &binding, &to]);
    }
    let mut refused = Table::new("REFUSED RULES", &["WHAT", "ROLE", "WHY"]);
    for rule in &found.refused {
        refused.row([&rule.what, &called(&rule.role), &rule.why]);
    }
    let mut waiting = Table::new("BINDINGS THAT WAIT", &["BINDING", "ROLE", "WHERE", "WHY"]);
    for binding in &found.waiting {
        let place = place(binding.namespace.as_deref());
        waiting.row([&binding.binding, &called(&binding.role), &place, &binding.why]);
    }
    let mut events = Table::new("EVENTS", &["ON", "REASON", "MESSAGE"]);
    for event in &found.events {
        let object = format!("{} {}", event.kind, event.name);
        events.row([&object, &event.reason, &event.message]);
    }
    let mut tables = vec![about(found, teams)];
    let more = [grants, refused, waiting, events];
    tables.extend(more.into_iter().filter(|table| !table.is_empty()));
    tables
}

fn about(found: &AccessExplained, teams: &BTreeMap<String, String>) -> Table {
    let mut about = Table::new("", &[]);
    if let Some(user) = &found.user {
        let name = user.name.as_deref().map(|name| format!("{name} "));
        let until = until(user.expires_at.as_ref());
        about.row(["User", &format!("{}{}{until}", name.unwrap_or_default(), user.id)]);
    }
    for team in &found.teams {
        match teams.get(team) {
            Some(name) => about.row([
                "Team",
                &format!("{name} ({team}), in the cloud where you are logged in"),
            ]),
            None => about.row(["Team", team]),
        }
    }
    if let Some(namespace) = &found.namespace {
        about.row(["Namespace", namespace]);
    }
    if found.grants.is_empty() {
        about.row(["May", "nothing"]);
    }
    for note in &found.notes {
        about.row(["Note", note]);
    }
    about
}

fn until(end: Option<&String>) -> String {
    end.map_or_else(String::new, |end| format!(" (until {end})"))
}

fn place(namespace: Option<&str>) -> String {
    namespace.map_or_else(
        || "the whole cluster".to_owned(),
        |namespace| format!("namespace {namespace}"),
    )
}

fn called(role: &RoleExplained) -> String {
    match &role.name {
        Some(name) => format!("{name} ({})", role.id),
        None if role.kind == "ClusterRole" => role.id.clone(),
        None => format!("{} {}", role.kind, role.id),
    }
}

#[cfg(test)]
mod tests;
