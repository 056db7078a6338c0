//! Schemathesis, which makes requests from an API's own description, good and bad ones, and compares the answers with
//! it.

use std::time::Duration;

use serde::Deserialize;

use crate::process::{Process, Program};
use crate::{Scratch, assets};

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Schemathesis<'a> {
    /// The address of the description, as `http://127.0.0.1:4000/openapi.json`; its paths are those of the same server.
    pub description: &'a str,
    /// The token of each request; empty for requests without one.
    pub token: &'a str,
    /// More of its configuration file (TOML), as `[[operations]]` with the parameters of some.
    pub settings: &'a str,
    /// The checks, by Schemathesis' own names, as `not_a_server_error`.
    pub checks: &'a [&'a str],
    /// The same seed makes the same requests, of the same description.
    pub seed: u32,
    /// The largest number of requests of each phase to one operation.
    pub examples: u32,
    /// When it has not come to its end by then, the test fails.
    pub deadline: Duration,
}

/// The results, and the differences from the description.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// The number of operations, and of those that were tested.
    pub operations: Operations,
    /// The number of requests.
    pub test_cases: TestCases,
    /// The differences from the description.
    pub failures: Vec<Failure>,
    /// The errors that prevented requests: the description is wrong, the server went away.
    pub errors: Vec<serde_json::Value>,
    /// The output, for people.
    #[serde(skip)]
    pub text: String,
}

/// The operations of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Operations {
    /// All.
    pub total: u32,
    /// The requested ones.
    pub tested: u32,
}

/// The requests of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct TestCases {
    /// The number of generated requests.
    pub generated: u32,
}

/// One thing that is not as described.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Failure {
    /// The name of the failure.
    pub title: String,
    /// The operations: `GET /v3/account`.
    pub operations: Vec<String>,
}

impl Schemathesis<'_> {
    /// Runs it to its end.
    ///
    /// # Panics
    /// When it is not installed, with the line that installs it; when it does not start or does not end, with its log.
    pub async fn run(&self) -> Report {
        let scratch = Scratch::new("schemathesis");
        // Not an argument: those are for everybody to read.
        let headers = if self.token.is_empty() {
            String::new()
        } else {
            let token = serde_json::to_string(&format!("Bearer {}", self.token)).expect("a text");
            format!("headers = {{ Authorization = {token} }}\n")
        };
        // On a busy machine, a good answer takes longer than its ten seconds.
        let patience = "wait-for-schema = 120\nrequest-timeout = 120\nsuppress-health-check = [\"too_slow\"]\n";
        let settings = format!("{patience}{headers}{}", self.settings);
        write(&scratch, "schemathesis.toml", &settings);
        let program = Program::new(assets::schemathesis())
            .args(["--no-color", "run", self.description])
            .args(["--checks", &self.checks.join(",")])
            .args(["--seed", &self.seed.to_string()])
            .args(["--max-examples", &self.examples.to_string()])
            .args(["--generation-database", "none", "--continue-on-failure"])
            .args(["--report", "json", "--report-json-path", "report.json"])
            // A wide page: it cuts what does not fit.
            .env("COLUMNS", "160")
            .env("NO_PROXY", "*");
        let process = Process::start(&scratch, program);
        process.exited(self.deadline).await;
        let report = std::fs::read_to_string(scratch.path().join("report.json"));
        let report = report.unwrap_or_else(|error| panic!("no report: {error}\n{}", process.log()));
        let report: Report = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error} in {report}"));
        let text = process.log();
        Report { text, ..report }
    }
}

impl Report {
    /// Expects that every operation was called and that all is as described.
    ///
    /// # Panics
    /// Panics with the output of Schemathesis, if it is not.
    pub fn assert_clean(&self) {
        assert!(self.failures.is_empty() && self.errors.is_empty(), "{}", self.text);
        let Operations { total, tested } = self.operations;
        assert!(
            total > 0 && tested == total,
            "{tested} of {total} operations\n{}",
            self.text
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
fn write(scratch: &Scratch, name: &str, content: &str) {
    std::fs::write(scratch.path().join(name), content).expect("a file in our own folder");
}
