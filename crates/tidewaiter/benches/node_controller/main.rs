//! `make bench`: the cold start of a cluster's Nodes, next to a bare client that sends the same writes.
//!
//! The released controller meets Nodes that nobody has labelled, with an EC2 that has the latency and the token bucket of
//! the real one. What it writes is then written again by a client that does nothing else: it knows every body beforehand,
//! reads nothing and decides nothing. Both do so several times on the same API server, in turn, and the ratio of their times
//! is what is reported: it means the same on any machine.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a program of its own: nobody depends on its items"
)]

mod bare;
mod bed;
mod controlled;
mod observer;
mod report;
mod usage;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

use bare::Writes;
use bed::Bed;
use report::{Pair, Report, note};

/// The cold start of a cluster's Nodes, next to a bare client that sends the same writes.
#[derive(Debug, Parser)]
#[command(name = "cold_start")]
struct Args {
    /// How many Nodes there are
    #[arg(long, default_value_t = 1_000)]
    nodes: u32,

    /// How often controller and bare client are measured, in turn
    #[arg(long, default_value_t = 3)]
    pairs: u32,

    /// How long the controller is watched when it is done, while each Node has a heartbeat
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,

    /// Writes under way at once by the bare client; several are tried when it is not given
    #[arg(long)]
    bare_writes_at_once: Option<usize>,

    /// Another controller to measure, of another version for example
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_tidewaiter"), hide_default_value = true)]
    controller: PathBuf,

    /// Fails when a target is missed
    #[arg(long)]
    check: bool,

    /// What cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// Writes under way at once that the bare client is tried with; it is measured with the best.
const CONCURRENCY: [usize; 5] = [8, 16, 32, 64, 128];

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let args = Args::parse();
    note(&format!("a control plane, an EC2 with {} instances", args.nodes));
    let bed = Bed::start(args.nodes, args.controller.clone()).await?;

    note("warming up, and learning what the controller writes");
    bed.register_nodes().await?;
    controlled::cold_start(&bed).await?;
    let writes = Writes::of_controller(&bed).await?;
    bed.clear().await?;

    let (concurrency, tried) = match args.bare_writes_at_once {
        Some(given) => (given, Vec::new()),
        None => best_concurrency(&bed, &writes).await?,
    };

    let mut pairs = Vec::new();
    for number in 0..args.pairs {
        note(&format!("pair {} of {}", number + 1, args.pairs));
        pairs.push(pair(&bed, &writes, concurrency, number % 2 == 1).await?);
    }

    note(&format!("{} s of heartbeats", args.idle_seconds));
    bed.register_nodes().await?;
    let idle = controlled::idle(&bed, args.idle_seconds).await?;
    bed.clear().await?;

    let report = Report::new(args.nodes, concurrency, tried, pairs, idle);
    report.print();
    report.save()?;
    if args.check {
        report.check()?;
    }
    Ok(())
}

/// The number of writes at once with which the bare client is fastest, and how fast it is with each.
async fn best_concurrency(bed: &Bed, writes: &Writes) -> Result<(usize, Vec<(usize, f64)>)> {
    let mut tried = Vec::new();
    for concurrency in CONCURRENCY {
        note(&format!("the bare client with {concurrency} writes at once"));
        bed.register_nodes().await?;
        let run = bare::send(bed, writes, concurrency).await?;
        bed.clear().await?;
        tried.push((concurrency, run.seconds));
    }
    let best = tried.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    Ok((best.map_or(CONCURRENCY[0], |(concurrency, _)| *concurrency), tried))
}

/// One run of each, each on Nodes that are new.
async fn pair(bed: &Bed, writes: &Writes, concurrency: usize, bare_first: bool) -> Result<Pair> {
    let mut bare = None;
    if bare_first {
        bare = Some(measure_bare(bed, writes, concurrency).await?);
    }
    bed.register_nodes().await?;
    let controller = controlled::cold_start(bed).await?;
    bed.clear().await?;
    let bare = match bare {
        Some(bare) => bare,
        None => measure_bare(bed, writes, concurrency).await?,
    };
    Ok(Pair { controller, bare })
}

async fn measure_bare(bed: &Bed, writes: &Writes, concurrency: usize) -> Result<bare::Run> {
    bed.register_nodes().await?;
    let run = bare::send(bed, writes, concurrency).await?;
    bed.clear().await?;
    Ok(run)
}
