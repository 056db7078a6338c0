//! `make bench`: the speed and size of the controller, the coordinator and the cloud's server, as ratios in one run.
//!
//! The released roles run against a real API server and stand-ins for the cloud that have its latency and its limits.
//! Where a time is reported it is next to that of a bare client, which sends the same writes and reads and decides
//! nothing: their ratio means the same on any machine.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a program of its own: nobody depends on its items"
)]

mod bare;
mod bed;
mod cloud;
mod cold_start;
mod coordinator;
mod failover;
mod gce;
mod observer;
mod pods;
mod poison;
mod process;
mod reaction;
mod recovery;
mod report;
mod scale;
mod steady;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};

use bed::Bed;
use report::{Chapter, Report, note};

/// The speed and size of the controller, the coordinator and the cloud's server, as ratios in one run.
#[derive(Debug, Parser)]
#[command(name = "performance")]
struct Args {
    /// What to measure; everything when it is not given
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Which>,

    /// How many Nodes the big cluster has
    #[arg(long, default_value_t = 5_000)]
    nodes: u32,

    /// How often controller and bare client are measured at the cold start, in turn
    #[arg(long, default_value_t = 3)]
    pairs: u32,

    /// How long the controller is watched at rest, with as many heartbeats as an hour's worth of Nodes would have
    #[arg(long, default_value_t = 180)]
    heartbeat_seconds: u32,

    /// For how long EC2 answers no call before the recovery
    #[arg(long, default_value_t = 60)]
    away_seconds: u64,

    /// How many Nodes the clusters have whose costs are compared, ascending
    #[arg(long, value_delimiter = ',', default_values_t = scale::SIZES)]
    scale_nodes: Vec<u32>,

    #[command(flatten)]
    coordinator: coordinator::Sizes,

    /// Writes under way at once by the bare client; several are tried when it is not given
    #[arg(long)]
    bare_writes_at_once: Option<usize>,

    /// Another program to measure, of another version for example
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_tidewaiter"), hide_default_value = true)]
    controller: PathBuf,

    /// Answers requests on this port with a constant, to be compared with
    #[arg(long, hide = true)]
    constant: Option<u16>,

    /// Fails when a target is missed
    #[arg(long)]
    check: bool,

    /// What cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// The chapters of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Nodes that nobody has labelled, all at once
    ColdStart,
    /// Memory, and what heartbeats and a relist cost
    Steady,
    /// One id among 500 that EC2 does not know
    Poison,
    /// From a new Node to its labels
    Reaction,
    /// How soon every Node has its labels after EC2 throttled, was silent, refused connections or failed
    Recovery,
    /// From a leader's end to the next one's first act
    Failover,
    /// What the group listings of Compute Engine cost
    Gce,
    /// The verdict on the cluster: its cost, how soon it is there, scrapes, `tidewaiter validate`
    Verdict,
    /// What grows faster than the number of Nodes, up to 50,000
    Scale,
    /// The cloud's server: polling clusters, requests, writes, streams
    Cloud,
    /// The console: each page of a large organization, alone and beside others
    Console,
    /// The coordinator: from a change in the cloud to its effect
    Latency,
    /// The coordinator: service accounts and pull secrets in many namespaces
    Namespaces,
    /// The coordinator: roles and bindings of the cloud
    Access,
    /// The coordinator: plugins of 500 objects
    Plugins,
    /// The coordinator beside a tenant who edits objects with the label of a plugin
    Tenant,
    /// The coordinator: upgrades of nodes that take no time
    Upgrades,
    /// The coordinator at rest: memory, CPU, requests to the cloud
    Rest,
    /// The agent: edits undone, changes of the cloud, the watches of thousands, memory and CPU at rest
    Agent,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(port) = args.constant {
        return cloud::serve_constant(port).await;
    }
    let chapters = if args.only.is_empty() {
        Which::value_variants()
    } else {
        &args.only
    };
    let mut report = Report::new(args.nodes);
    let mut bed = None;
    for which in chapters {
        report.add(run(*which, &args, &mut bed).await?);
        report.save()?;
    }
    report.print();
    if args.check {
        report.check()?;
    }
    Ok(())
}

/// The bed, started when the first chapter needs it.
async fn started<'a>(bed: &'a mut Option<Bed>, args: &Args) -> Result<&'a Bed> {
    if bed.is_none() {
        note(&format!("a control plane, an EC2 with {} instances", args.nodes));
        *bed = Some(Bed::start(args.nodes, args.controller.clone()).await?);
    }
    bed.as_ref().context("it was started just now")
}

async fn run(which: Which, args: &Args, bed: &mut Option<Bed>) -> Result<Chapter> {
    // They have nothing to do with the bed.
    match which {
        Which::Cloud => return cloud::measure(&args.controller).await,
        Which::Console => return cloud::console::measure(&args.controller).await,
        Which::Scale => return scale::measure(&args.controller, &args.scale_nodes).await,
        Which::Latency => return coordinator::latency(&args.controller, &args.coordinator).await,
        Which::Namespaces => return coordinator::namespaces(&args.controller, &args.coordinator).await,
        Which::Access => return coordinator::access(&args.controller, &args.coordinator).await,
        Which::Plugins => return coordinator::plugins(&args.controller).await,
        Which::Tenant => return coordinator::tenant(&args.controller, &args.coordinator).await,
        Which::Upgrades => return coordinator::upgrades(&args.controller, &args.coordinator, args.nodes).await,
        Which::Rest => return coordinator::rest(&args.controller, &args.coordinator, args.nodes).await,
        Which::Agent => return coordinator::agent(&args.controller, &args.coordinator).await,
        _ => {}
    }
    let bed = started(bed, args).await?;
    match which {
        Which::ColdStart => cold_start::measure(bed, args.pairs, args.bare_writes_at_once).await,
        Which::Steady => steady::measure(bed, args.heartbeat_seconds).await,
        Which::Poison => poison::measure(bed).await,
        Which::Reaction => reaction::measure(bed).await,
        Which::Recovery => recovery::measure(bed, Duration::from_secs(args.away_seconds)).await,
        Which::Failover => failover::measure(bed).await,
        Which::Gce => gce::measure(bed).await,
        Which::Verdict => verdict::measure(bed).await,
        Which::Scale
        | Which::Cloud
        | Which::Console
        | Which::Latency
        | Which::Namespaces
        | Which::Access
        | Which::Plugins
        | Which::Tenant
        | Which::Upgrades
        | Which::Rest
        | Which::Agent => unreachable!("measured without the bed"),
    }
}
