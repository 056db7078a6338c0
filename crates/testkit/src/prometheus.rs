//! A real Prometheus that scrapes what a test runs, and promtool.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use url::Url;

use crate::process::{Process, Program};
use crate::server::Server;
use crate::{Scratch, assets, eventually};

/// A scrape is due each second, so nothing takes longer on a machine that works.
const SOON: Duration = Duration::from_mins(3);

/// A running Prometheus. It ends when this is dropped.
#[derive(Debug)]
pub struct Prometheus(Server);

/// One series of an answer: its labels and its value.
pub type Sample = (Value, f64);

impl Prometheus {
    /// Starts one that scrapes `/metrics` of these addresses (`127.0.0.1:3987`) each second, under the given names of
    /// jobs, and evaluates the rules of `rules` (YAML with `groups`), if any.
    ///
    /// # Panics
    /// When it is not installed, with the line that installs it; when it does not come up, with its log.
    pub async fn start(targets: &[(&str, &str)], rules: Option<&str>) -> Self {
        let scratch = Scratch::new("prometheus");
        let jobs = targets.iter().map(|(job, address)| {
            json!({"job_name": job, "scrape_interval": "1s", "static_configs": [{"targets": [address]}]})
        });
        let jobs: Vec<Value> = jobs.collect();
        let rule_files: Vec<&str> = rules.iter().map(|_| "rules.yaml").collect();
        let config = json!({
            "global": {"evaluation_interval": "1s"}, "scrape_configs": jobs, "rule_files": rule_files,
        });
        write(&scratch.path().join("prometheus.yaml"), &config.to_string());
        if let Some(rules) = rules {
            write(&scratch.path().join("rules.yaml"), rules);
        }
        let folder = scratch.path().to_owned();
        let program = move |port: u16| {
            Program::new(assets::prometheus("prometheus"))
                .arg(format!("--config.file={}", folder.join("prometheus.yaml").display()))
                .arg(format!(
                    "--storage.tsdb.path={}",
                    folder.join(format!("data-{port}")).display()
                ))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        };
        Self(Server::start_in(&scratch, Ipv4Addr::LOCALHOST, "prometheus", "/-/ready", program).await)
    }

    /// Evaluates `query` now.
    ///
    /// # Panics
    /// When Prometheus refuses it.
    pub async fn query(&self, query: &str) -> Vec<Sample> {
        let answer = self.ask("/api/v1/query", &[("query", query)]).await;
        let samples = answer["data"]["result"]
            .as_array()
            .unwrap_or_else(|| panic!("{query}: {answer}"));
        let sample = |sample: &Value| {
            let value = sample["value"][1].as_str().unwrap().parse().unwrap();
            (sample["metric"].clone(), value)
        };
        samples.iter().map(sample).collect()
    }

    /// Evaluates `query` until it has an answer that pleases; gives it.
    pub async fn finds(&self, query: &str, pleases: impl Fn(&[Sample]) -> bool) -> Vec<Sample> {
        eventually(format!("{query} to have the expected answer"), SOON, async || {
            let samples = self.query(query).await;
            if pleases(&samples) {
                Ok(samples)
            } else {
                Err(format!("{samples:?}"))
            }
        })
        .await
    }

    /// The names of the alerts that are pending or firing.
    pub async fn alerts(&self) -> Vec<String> {
        let answer = self.ask("/api/v1/alerts", &[]).await;
        let alerts = answer["data"]["alerts"].as_array().unwrap();
        let name = |alert: &Value| alert["labels"]["alertname"].as_str().unwrap().to_owned();
        alerts.iter().map(name).collect()
    }

    async fn ask(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let url = Url::parse_with_params(&format!("{}{path}", self.0.endpoint), query).unwrap();
        let answer: Value = self.0.http.get(url).send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["status"], "success", "{query:?}: {answer}");
        answer
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.0.process
    }
}

/// Runs promtool with these arguments in `folder` and gives it `input`.
///
/// # Panics
/// When it is not installed, with the line that installs it.
#[must_use]
pub fn promtool(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut promtool = Command::new(assets::prometheus("promtool"));
    let promtool = promtool.args(args).current_dir(folder);
    let promtool = promtool
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = promtool.spawn().unwrap();
    running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    running.wait_with_output().unwrap()
}

/// The names of our metrics in an expression.
#[must_use]
pub fn series_of(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let ours = words.filter(|word| word.starts_with("kops_") || word.starts_with("tidewaiter_"));
    ours.map(str::to_owned).collect()
}

/// The queries of the panels in this row of a Grafana dashboard; without a row, of those before the first row.
///
/// # Panics
/// When none exists.
#[must_use]
pub fn panels(dashboard: &Value, row: Option<&str>) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("a dashboard has panels");
    let is_row = |panel: &&Value| panel["type"] == "row";
    let row = row.map(|row| panels.iter().position(|panel| is_row(&panel) && panel["title"] == row));
    let first = row.map_or(0, |row| row.expect("the dashboard has this row") + 1);
    let targets = panels[first..].iter().take_while(|panel| !is_row(panel));
    let targets = targets.flat_map(|panel| panel["targets"].as_array().expect("a panel has targets"));
    let queries: Vec<String> = targets
        .map(|target| target["expr"].as_str().expect("a query").to_owned())
        .collect();
    assert!(!queries.is_empty(), "the row has no panels");
    queries
}

#[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
fn write(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
}
