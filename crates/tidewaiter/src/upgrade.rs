//! `tidewaiter upgrade`: shows what an upgrade does, and follows it. It only reads, and its words come from the
//! functions that the coordinator uses.

mod file;
mod look;
mod news;
mod watch;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use serde::Serialize;
use tidewaiter_kit::{Kit, Leadership, SharedClock, SystemClock, client};
use tidewaiter_upgrade::{NodeOutlook, Outlook};

use crate::Failure;
use crate::cli::{ClusterFlags, UpgradeCommand, UpgradePlanArgs};
use crate::cloud::run;
use crate::explain::output::{Table, print};
use crate::place::api_server;
use look::{SeenUpgrade, look_ahead_at_upgrade, look_at_upgrade};

/// Nothing was decided about the upgrade yet.
const UNSEEN: &str = "No coordinator has looked at it yet: check that one runs with `upgrades: enabled`.";

/// The upgrade is that of a file.
const NOT_CREATED: &str = "It is not created yet.";

/// No agent offers the script to its host.
const NO_AGENTS: &str = "No agent of its nodes reports upgrades, so none of them runs the script: install the agent with \
                         `upgrades: enabled`.";

/// Runs the command.
pub(crate) fn main(command: &UpgradeCommand) -> Result<ExitCode, Failure> {
    run(async {
        match command {
            UpgradeCommand::Plan(args) => plan(args).await.map(|()| ExitCode::SUCCESS),
            UpgradeCommand::Watch(args) => watch::watch(args).await,
        }
    })
    .map_err(Failure::Running)
}

/// The printed plan.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan<'a> {
    name: &'a str,
    summary: Vec<String>,
    nodes: Vec<Line<'a>>,
    left_out: Vec<Line<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    node: &'a str,
    role: &'static str,
    version: String,
    plan: &'a str,
}

async fn plan(args: &UpgradePlanArgs) -> Result<()> {
    // An invalid file is refused before the first request.
    let file = args.filename.as_deref().map(file::read).transpose()?;
    let (client, clock) = reader(&args.place.cluster).await?;
    let seen = if let Some(mut upgrade) = file {
        // Those that exist go before it.
        upgrade.metadata.creation_timestamp = Some(Time(clock.now()));
        look_ahead_at_upgrade(&client, upgrade).await?
    } else {
        let name = args.name.as_ref().context("NAME or --filename is missing")?;
        look_at_upgrade(&client, name).await?
    };
    let outlook = seen.outlook(clock.now());
    let mut summary = summary(&seen, &outlook);
    if args.filename.is_some() {
        summary.retain(|sentence| sentence != UNSEEN);
        summary.push(NOT_CREATED.to_owned());
    }
    let plan = Plan {
        name: seen.object.metadata.name.as_deref().unwrap_or_default(),
        summary,
        nodes: outlook.nodes.iter().map(line).collect(),
        left_out: outlook.left_out.iter().map(line).collect(),
    };
    print(&args.output, &plan, || tables(&plan))
}

/// The summary of the decisions, and the ending in the coordinator's report.
fn summary(seen: &SeenUpgrade, outlook: &Outlook) -> Vec<String> {
    let mut summary = outlook.summary.clone();
    summary.extend(news::ending(&seen.object).map(|(_, words)| format!("The coordinator says: {words}")));
    if seen.object.status.is_none() && !news::is_over(&seen.object) {
        summary.push(UNSEEN.to_owned());
    }
    if seen.lacks_agents(outlook) && !news::is_over(&seen.object) {
        summary.push(NO_AGENTS.to_owned());
    }
    summary
}

fn line(node: &NodeOutlook) -> Line<'_> {
    Line {
        node: &node.name,
        role: if node.control_plane { "control plane" } else { "worker" },
        version: node
            .version
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), ToString::to_string),
        plan: &node.action,
    }
}

fn tables(plan: &Plan<'_>) -> Vec<Table> {
    let mut summary = Table::new("", &[]);
    for sentence in &plan.summary {
        summary.row([sentence]);
    }
    let titled = |title, lines: &[Line<'_>]| {
        let mut table = Table::new(title, &["NODE", "ROLE", "VERSION", "PLAN"]);
        for line in lines {
            table.row([line.node, line.role, &line.version, line.plan]);
        }
        table
    };
    let others = [
        titled("NODES, IN THIS ORDER", &plan.nodes),
        titled("OTHER NODES", &plan.left_out),
    ];
    std::iter::once(summary)
        .chain(others.into_iter().filter(|table| !table.is_empty()))
        .collect()
}

/// A client that cannot write.
pub(crate) async fn reader(cluster: &ClusterFlags) -> Result<(Client, SharedClock)> {
    let kit = Kit::new(SystemClock::shared())?;
    let config = api_server(cluster.kubeconfig.as_deref(), cluster.context.as_deref()).await?;
    let never = Leadership::never(kit.clock.clone());
    Ok((client::fenced(&config, &never, &kit).await?, kit.clock))
}
