//! `tidewaiter validate`: validates the cluster as `kops validate cluster` does.
//!
//! It changes nothing, and writes only the last result to standard output; progress goes to standard error. The exit
//! code is that of the result, so no other outcome may use its codes.

mod cloud;
mod output;
mod problems;
mod progress;
mod rounds;
pub(crate) mod signals;
mod sources;
mod watching;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use futures::join;
use tidewaiter_kit::SystemClock;
use tidewaiter_kops::DefinitionError;
use tidewaiter_validation::{Options, Outcome, Verdict, judge, observe};

use crate::cli::ValidateArgs;
use progress::Progress;
use rounds::Rounds;
use signals::{Interrupts as _, Signals};
use sources::Targets;
use watching::{Ended, watch};

/// The codes of a verdict; `cli/validate.rs` tells the rest.
const FAILED: u8 = 2;
const UNKNOWN: u8 = 3;

/// Validates, prints the result and returns its exit code.
///
/// # Errors
/// If nothing was validated, or the result cannot be printed.
pub(crate) fn main(args: &ValidateArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(Box::pin(validate(args)));
    // A pending DNS lookup blocks its thread.
    runtime.shutdown_background();
    result
}

async fn validate(args: &ValidateArgs) -> Result<ExitCode> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let asked = tokio::select! {
        biased;
        interrupt = signals.next() => return Ok(ExitCode::from(interrupt.code())),
        opened = sources::open(args) => opened?,
    };
    let clock = SystemClock::shared();
    let options = Options {
        max_unready_nodes: args.max_unready_nodes,
        counts_only: false,
    };
    let rounds = Rounds::new(args.wait, args.interval, args.count, clock.monotonic());
    let mut progress = Progress::on_stderr(&asked.sources.cluster, asked.term.as_deref());
    let look = || look(&asked, &options);
    let ended = watch(rounds, &*clock, look, &mut progress, signals).await;
    progress.clear();
    let Ended { verdict, interrupt } = ended?;
    if let Some(verdict) = &verdict {
        output::print_trust(verdict);
        output::print(&args.output, verdict)?;
    }
    match (interrupt, verdict) {
        (Some(interrupt), _) => Ok(ExitCode::from(interrupt.code())),
        (None, Some(verdict)) => Ok(code_of(verdict.outcome())),
        (None, None) => bail!("there is no result"),
    }
}

/// Validates once.
///
/// # Errors
/// If the state store has no such cluster: then waiting does not help.
async fn look(asked: &Targets, options: &Options) -> Result<Verdict> {
    let sources = &asked.sources;
    let (observation, cluster) = join!(observe(sources), sources.definitions.cluster_summary());
    match cluster {
        Err(error @ DefinitionError::Missing { .. }) => {
            let (name, store) = (&sources.cluster, &asked.store);
            Err(error).context(format!(
                "there is no cluster {name} in {store}: correct --name, --state or the file of --conf"
            ))
        }
        _ => Ok(judge(&observation, options)),
    }
}

fn code_of(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::Ready => ExitCode::SUCCESS,
        Outcome::Failed => ExitCode::from(FAILED),
        Outcome::Unknown => ExitCode::from(UNKNOWN),
    }
}
