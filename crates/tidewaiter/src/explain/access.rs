//! `tidewaiter explain access`: what a user or a team may do in the cluster, and by which binding.

use anyhow::Result;
use kube::Client;
use tidewaiter_coordinator::access::{self, AccessExplained, Question, RoleExplained};
use tidewaiter_kit::role::kube_config;
use tidewaiter_kit::{Kit, Leadership, SystemClock, client};

use super::output::{Table, print};
use crate::Failure;
use crate::cli::ExplainAccessArgs;

/// Prints the answer.
pub(super) async fn explain(args: &ExplainAccessArgs) -> Result<(), Failure> {
    let client = reader(args).await.map_err(Failure::Configuration)?;
    let question = Question {
        user: args.subjects.user.clone(),
        teams: args.subjects.team.clone(),
        namespace: args.namespace.clone(),
    };
    let explained = access::explain(&client, &question).await;
    let explained = explained.map_err(|error| Failure::Running(error.into()))?;
    print(args.output, &explained, || tables(&explained)).map_err(Failure::Running)
}

/// A client that cannot write.
async fn reader(args: &ExplainAccessArgs) -> Result<Client> {
    let kit = Kit::new(SystemClock::shared())?;
    let config = kube_config(args.kubeconfig.as_deref(), None).await?;
    let never = Leadership::never(kit.clock.clone());
    Ok(client::fenced(&config, &never, &kit).await?)
}

fn tables(found: &AccessExplained) -> Vec<Table> {
    let mut grants = Table::new("MAY", &["WHAT", "WHERE", "BY ROLE", "AND BINDING", "TO"]);
    for grant in &found.grants {
        let binding = if grant.managed {
            grant.binding.clone()
        } else {
            format!("{} (not of the cloud)", grant.binding)
        };
        let place = place(grant.namespace.as_deref());
        grants.row([&grant.what, &place, &called(&grant.role), &binding, &grant.to]);
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
    let mut tables = vec![about(found)];
    let more = [grants, refused, waiting, events];
    tables.extend(more.into_iter().filter(|table| !table.is_empty()));
    tables
}

fn about(found: &AccessExplained) -> Table {
    let mut about = Table::new("", &[]);
    if let Some(user) = &found.user {
        let name = user.name.as_deref().map(|name| format!("{name} "));
        about.row(["User", &format!("{}{}", name.unwrap_or_default(), user.id)]);
    }
    for team in &found.teams {
        about.row(["Team", team]);
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
