//! The flags of `tidewaiter validate`: those of `kops validate cluster`, and where to look.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use serde::Serialize;

use super::{OutputFormat, Place};

const EXIT_CODES: &str = "Exit codes:
  0    ready
  1    wrong flags, files or credentials: nothing was judged
  2    validation failed: something is known to be wrong
  3    could not tell: nothing is known to be wrong, and something is not known
  130  interrupted (Ctrl-C); 143 by SIGTERM: standard output has the last verdict";

/// The shortest [`ValidateArgs::interval`]: a cloud limits how often it may be asked.
const SHORTEST: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    pub(crate) place: Place,

    /// Settings as the controller's (YAML): region, project, addresses; the environment (TIDEWAITER_…) wins over it
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: ValidateFlags,

    /// How long to look again while the cluster is not ready, as 90s, 1m30s or 10m; 0 looks once
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) wait: Duration,

    /// How long to wait between two looks; at least 1s
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = interval, allow_hyphen_values = true)]
    pub(crate) interval: Duration,

    /// How many times in a row it must be ready; a row that has begun is finished, also when the time to wait is over
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..), allow_negative_numbers = true)]
    pub(crate) count: u32,

    /// How many workers may be not ready, or not have joined, before that fails
    #[arg(long, value_name = "N", default_value = "0", allow_negative_numbers = true)]
    pub(crate) max_unready_nodes: u32,

    /// How the verdict is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

/// The settings that have a flag here.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ValidateFlags {
    /// The kubeconfig to use; of its contexts the one with the cluster's name, else the current one [default: what KUBECONFIG
    /// names, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,
}

/// As Go writes a duration; `0` needs no unit.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text {
        "0" => Ok(SignedDuration::ZERO),
        text => text.parse(),
    };
    let duration = parsed.ok().and_then(|duration| Duration::try_from(duration).ok());
    duration.ok_or_else(|| "must be a time of 0 or more, as 90s, 1m30s or 10m".to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    let long = duration(text).ok().filter(|duration| *duration >= SHORTEST);
    long.ok_or_else(|| "must be a time of 1s or more, as 10s or 1m30s".to_owned())
}

/// Says what is wrong with the flags in one line, and gives the code to end with: 2 would say that validation failed.
pub(super) fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let said = text
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let said = said.filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
    let said: Vec<_> = said.collect();
    let line = said.join("; ");
    // Nobody is left to tell when standard error is closed.
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
    fn a_duration_is_what_go_writes() {
        for (text, seconds) in [
            ("0", 0.0),
            ("0s", 0.0),
            ("90s", 90.0),
            ("1m30s", 90.0),
            ("10m", 600.0),
            ("10m0s", 600.0),
            ("1h0m0s", 3600.0),
            ("1.5h", 5400.0),
            ("500ms", 0.5),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in [
            "",
            "-1s",
            "-0.5s",
            "10",
            "ten",
            "1x",
            "--count",
            "99999999999999999999h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(interval("1s"), Ok(SHORTEST));
        for text in ["999ms", "0", "-1s"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
