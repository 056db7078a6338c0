//! The flags of `tidewaiter validate`: those of `kops validate cluster`, and the sources to read.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tidewaiter_kit::duration;

use super::{OutputFormat, Place};

const EXIT_CODES: &str = "Exit codes:
  0    ready
  1    invalid flags, files or credentials: nothing was validated
  2    validation failed: at least one failure was found
  3    unknown: no failure was found, but part of the cluster could not be observed
  130  interrupted (Ctrl-C); 143 by SIGTERM: the last result was printed to standard output";

/// The minimum of [`ValidateArgs::interval`]: clouds limit the rate of requests.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    pub(crate) place: Place,

    /// The settings file (YAML), with region, project and endpoints as for the controller. Environment variables
    /// (TIDEWAITER_…) override it
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: ValidateFlags,

    /// The context of the kubeconfig [default: the one with the cluster's name, else the current one]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,

    /// How long to wait for the cluster to become ready, for example 90s, 1m30s or 10m; 0 validates once
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = wait, allow_hyphen_values = true)]
    pub(crate) wait: Duration,

    /// The time between two validations; at least 1s
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = interval, allow_hyphen_values = true)]
    pub(crate) interval: Duration,

    /// How many consecutive validations must succeed; a series that has begun is completed even after --wait has
    /// elapsed
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) count: u32,

    /// The maximum number of workers that may be not ready or not joined before validation fails
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub(crate) max_unready_nodes: u32,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

/// The settings that have a flag.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ValidateFlags {
    /// The kubeconfig file [default: KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,
}

/// Reads the longest time of a wait.
pub(super) fn wait(text: &str) -> Result<Duration, String> {
    duration::within(
        text,
        &(Duration::ZERO..=Duration::MAX),
        "of 0 or more, for example 90s, 1m30s or 10m",
    )
}

fn interval(text: &str) -> Result<Duration, String> {
    duration::within(
        text,
        &(MIN_INTERVAL..=Duration::MAX),
        "of at least 1s, for example 10s or 1m30s",
    )
}

/// Prints what is wrong with the flags in one line, and returns the exit code 1: 2 would mean that validation failed.
pub(super) fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let said = text
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let said = said.filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
    let said: Vec<_> = said.collect();
    let line = said.join("; ");
    // When standard error is closed, the message cannot be delivered.
    let _ = writeln!(
        io::stderr(),
        "tidewaiter: {}",
        line.strip_prefix("error: ").unwrap_or(&line)
    );
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_as_people_write_it() {
        for (text, seconds) in [
            ("0", 0),
            ("1m30s", 90),
            ("10m 30s", 630),
            ("1h0m0s", 3600),
            ("1d", 86_400),
        ] {
            assert_eq!(wait(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "-1s", "10", "--count"] {
            let error = wait(text).unwrap_err();
            assert!(
                error.ends_with("of 0 or more, for example 90s, 1m30s or 10m"),
                "{error}"
            );
        }
        assert_eq!(interval("1s"), Ok(MIN_INTERVAL));
        for text in ["999ms", "0", "-1s"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
