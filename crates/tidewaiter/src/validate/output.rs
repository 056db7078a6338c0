//! Prints the result to standard output, in the requested format, coloured only for a terminal.

use std::io::{self, Write as _};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, Result};
use serde_json::Value;
use tidewaiter_validation::Verdict;
use tidewaiter_validation::view::{Tone, json, painted_table, yaml};

use crate::cli::OutputFormat;

const TRUSTED: &str = "tidewaiter: the cluster has no NodeIdentities, so the providerID of each Node is trusted without proof, as kops does";

/// Prints `verdict` in the requested format.
pub(super) fn print(format: &OutputFormat, verdict: &Verdict) -> Result<()> {
    let text = match format {
        OutputFormat::Table | OutputFormat::Wide => {
            let table = painted_table(verdict, &paint);
            format!("Validating cluster {}\n\n{table}", verdict.cluster)
        }
        OutputFormat::Json => json(verdict).context("the result as JSON")?,
        OutputFormat::Yaml => yaml(verdict).context("the result as YAML")?,
        OutputFormat::JsonPath(template) => {
            let result = json(verdict).and_then(|text| serde_json::from_str::<Value>(&text));
            template.text(&result.context("the result as JSON")?)?
        }
    };
    // It knows of terminals, NO_COLOR and CLICOLOR.
    let mut out = AutoStream::auto(io::stdout());
    crate::printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Reports on standard error that the providerIDs of Nodes were trusted, if they were.
pub(super) fn print_trust(verdict: &Verdict) {
    if verdict.trusts_claims {
        // When standard error is closed, the message cannot be delivered.
        let _ = writeln!(io::stderr(), "{TRUSTED}");
    }
}

fn paint(tone: Tone, text: &str) -> String {
    let color = match tone {
        Tone::Good => AnsiColor::Green,
        Tone::Bad => AnsiColor::Red,
        Tone::Unsure => AnsiColor::Yellow,
    };
    let style = Style::new().fg_color(Some(color.into()));
    format!("{style}{text}{style:#}")
}
