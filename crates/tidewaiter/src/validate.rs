//! `tidewaiter validate`: whether the cluster is ready, as `kops validate cluster` asks it.
//!
//! It reads, and writes nothing but the last verdict to standard output; what happens before that is told on standard error.
//! The exit code says the verdict, so nothing but a verdict may give its codes.

mod cloud;
mod output;
mod problems;
mod progress;
mod rounds;
mod signals;
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
use signals::Signals;
use sources::Targets;
use watching::{Ended, watch};

/// The codes of a verdict; `cli/validate.rs` tells the rest.
const FAILED: u8 = 2;
const UNKNOWN: u8 = 3;

/// Looks, prints the verdict and gives the code that says it.
///
/// # Errors
/// When nothing was judged, or the verdict cannot be printed.
pub(crate) fn main(args: &ValidateArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(Box::pin(validate(args)));
    // A name that is being resolved holds a thread for as long as it takes.
    runtime.shutdown_background();
    result
}

async fn validate(args: &ValidateArgs) -> Result<ExitCode> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    let asked = sources::open(args).await?;
    let clock = SystemClock::shared();
    let options = Options {
        max_unready_nodes: args.max_unready_nodes,
    };
    let rounds = Rounds::new(args.wait, args.interval, args.count, clock.monotonic());
    let mut progress = Progress::on_stderr(&asked.sources.cluster, asked.term.as_deref());
    let look = || look(&asked, &options);
    let ended = watch(rounds, &*clock, look, &mut progress, signals).await;
    progress.clear();
    let Ended { verdict, interrupt } = ended?;
    if let Some(verdict) = &verdict {
        output::print(args.output, verdict)?;
    }
    match (interrupt, verdict) {
        (Some(interrupt), _) => Ok(ExitCode::from(interrupt.code())),
        (None, Some(verdict)) => Ok(code_of(verdict.outcome())),
        (None, None) => bail!("there is no result"),
    }
}

/// One verdict.
///
/// # Errors
/// When the state store says that there is no such cluster: whatever was named wrongly, waiting does not help.
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
