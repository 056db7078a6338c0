//! `make demo`: Tidewaiter at work on a real API server, with moto in the place of AWS, told in a few steps; or, with
//! `NODES=2`, installed on real nodes, which `NODES=3` upgrades.
//!
//! Everything that is shown is asked of the running components, and everything that is told is checked: what does not
//! happen fails the demo. Whatever ends it, nothing that it started is left.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a program of its own: nobody depends on its items"
)]

mod audit;
mod cloud;
mod coordinator;
mod health;
mod narrator;
mod nodes;
mod plugins;
mod story;
mod times;
mod upgrades;
mod ways_in;
mod world;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use futures::FutureExt as _;
use tidewaiter_testkit::{ControlPlane, RealNode};
use tokio::signal::unix::{Signal, SignalKind, signal};

use narrator::{Narrator, remark, section};
use world::World;

/// Shows Tidewaiter at work on a real API server, with moto in the place of AWS.
#[derive(Debug, Parser)]
#[command(name = "demo")]
struct Args {
    /// Leaves everything running at the end, to look around, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Shows Tidewaiter on this number of real nodes instead, where this machine can run them; three or more are
    /// upgraded
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(2..=4))]
    nodes: Option<u8>,
    /// Writes which writes the API server received to this file, to compare two versions
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
}

/// The exit code that a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 128 + 2;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // A failure in the test bed panics; it is reported as a failed step.
    std::panic::set_hook(Box::new(|_| ()));
    let narrator = Narrator::default();
    let result = match Stop::listen() {
        Ok(mut stop) => {
            tokio::select! {
                biased;
                () = stop.asked() => None,
                result = run(&narrator, &args) => Some(result),
            }
        }
        Err(error) => Some(Err(error)),
    };
    match result {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            narrator.failed(&error);
            ExitCode::FAILURE
        }
        None => {
            remark("Stopped; everything that was started is gone.");
            if narrator.is_over() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(INTERRUPTED)
            }
        }
    }
}

/// A story and what it plays in. Dropped, everything that it started is gone.
trait Play {
    async fn tell(&mut self, narrator: &Narrator) -> Result<()>;

    /// The end of the last log, for a demo that failed.
    fn last_log(&self) -> String;

    fn cluster(&self) -> Result<&ControlPlane>;

    /// Returns the commands to look around while everything runs.
    fn ways_in(&self) -> Result<String>;

    /// Returns the story in short.
    fn summary(&self) -> String;
}

async fn run(narrator: &Narrator, args: &Args) -> Result<()> {
    let Some(number) = args.nodes else {
        return play(narrator, args, World::default()).await;
    };
    if let Some(missing) = RealNode::missing() {
        remark(&format!(
            "This machine runs no nodes, which need {missing}. The demo goes on without them."
        ));
        return play(narrator, args, World::default()).await;
    }
    play(narrator, args, nodes::World::new(number)).await
}

#[expect(clippy::disallowed_methods, reason = "how long the demo takes, for its viewer")]
async fn play(narrator: &Narrator, args: &Args, mut world: impl Play) -> Result<()> {
    let start = Instant::now();
    let told = AssertUnwindSafe(world.tell(narrator)).catch_unwind().await;
    match told {
        Ok(told) => told,
        Err(panic) => Err(anyhow!("{}", words(&*panic))),
    }
    .with_context(|| world.last_log())?;
    if let Some(file) = &args.audit {
        audit::write(file, &world.cluster()?.audit().await)?;
    }
    narrator.over();
    section("In short", &world.summary());
    if args.keep {
        section("It runs on: look around", &world.ways_in()?);
        std::future::pending::<()>().await;
    }
    drop(world);
    remark(&format!(
        "Done in {:.0} s; everything that was started is gone. make demo KEEP=1 leaves it running.",
        start.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// The message of a panic.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
        .to_owned()
}

/// Ctrl-C, and its like.
struct Stop([Signal; 3]);

impl Stop {
    fn listen() -> Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    async fn asked(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
            _ = hangup.recv() => (),
        }
    }
}
