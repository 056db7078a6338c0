//! The numbers as a table and as JSON, each next to its target.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::json;

use crate::bare;
use crate::controlled::{self, Idle};

/// One run of each.
#[derive(Debug, Serialize)]
pub struct Pair {
    pub controller: controlled::Run,
    pub bare: bare::Run,
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.controller.seconds / self.bare.seconds
    }
}

pub struct Report {
    nodes: u32,
    concurrency: usize,
    tried: Vec<(usize, f64)>,
    pairs: Vec<Pair>,
    idle: Idle,
}

/// A number and the most that it may be.
struct Target {
    what: &'static str,
    key: &'static str,
    found: f64,
    most: f64,
    unit: &'static str,
    decimals: usize,
}

impl Target {
    fn is_met(&self) -> bool {
        self.found <= self.most
    }
}

impl Report {
    pub fn new(nodes: u32, concurrency: usize, tried: Vec<(usize, f64)>, pairs: Vec<Pair>, idle: Idle) -> Self {
        Self {
            nodes,
            concurrency,
            tried,
            pairs,
            idle,
        }
    }

    fn median(&self, of: impl Fn(&Pair) -> f64) -> f64 {
        let mut values: Vec<f64> = self.pairs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn most(&self, of: impl Fn(&Pair) -> f64) -> f64 {
        self.pairs.iter().map(of).fold(0.0, f64::max)
    }

    fn targets(&self) -> [Target; 4] {
        let target = |what, key, found, most, unit, decimals| Target {
            what,
            key,
            found,
            most,
            unit,
            decimals,
        };
        [
            target(
                "cold start, controller / bare client",
                "ratio",
                self.median(Pair::ratio),
                1.25,
                "",
                2,
            ),
            target(
                "EC2 calls",
                "ec2Calls",
                self.most(|pair| count(pair.controller.ec2_calls)),
                2.0,
                "",
                0,
            ),
            target(
                "steady memory of the process alone",
                "steadyMemory",
                self.idle.memory.anonymous,
                20.0,
                " MiB",
                1,
            ),
            target("writes when idle", "idleWrites", count(self.idle.writes), 0.0, "", 0),
        ]
    }

    /// The table.
    pub fn print(&self) {
        let Self { nodes, concurrency, .. } = self;
        let mut text = format!(
            "\nCold start of {nodes} nodes, {} pairs of runs, medians\n\n",
            self.pairs.len()
        );
        let mut row = |what: &str, controller: String, bare: String| {
            let _ = writeln!(text, "  {what:<42}{controller:>14}{bare:>14}");
        };
        row("", "controller".to_owned(), "bare client".to_owned());
        let bare = self.median(|pair| pair.bare.seconds);
        row(
            "time to the last label",
            seconds(self.median(|pair| pair.controller.seconds)),
            seconds(bare),
        );
        row(
            "  of it as the leader",
            seconds(self.median(|pair| pair.controller.seconds_from_leadership)),
            String::new(),
        );
        row("writes at once", "32".to_owned(), concurrency.to_string());
        row(
            "requests to the API server",
            format!(
                "{:.0}",
                self.median(|pair| count(pair.controller.requests.values().sum()))
            ),
            format!("{:.0}", self.median(|pair| count(pair.bare.requests))),
        );
        row(
            "time on a core, of the API server",
            seconds(self.median(|pair| pair.controller.api_server_cpu_seconds)),
            seconds(self.median(|pair| pair.bare.api_server_cpu_seconds)),
        );
        row(
            "time on a core, of the controller",
            seconds(self.median(|pair| pair.controller.cpu_seconds)),
            String::new(),
        );
        row(
            "peak memory",
            format!("{:.1} MiB", self.most(|pair| pair.controller.memory.peak)),
            String::new(),
        );
        let Idle {
            seconds: idle,
            heartbeats,
            ..
        } = &self.idle;
        row(
            &format!("idle: core, {idle} s with {heartbeats} heartbeats"),
            format!("{:.2} %", self.idle.core_share * 100.0),
            String::new(),
        );
        row(
            "idle: resident, with the program's file",
            format!("{:.1} MiB", self.idle.memory.resident),
            String::new(),
        );
        let _ = writeln!(text, "\n  {:<42}{:>14}{:>14}", "", "found", "at most");
        for Target {
            what,
            found,
            most,
            unit,
            decimals,
            ..
        } in &self.targets()
        {
            let _ = writeln!(
                text,
                "  {what:<42}{:>14}{:>14}",
                format!("{found:.decimals$}{unit}"),
                format!("{most}{unit}")
            );
        }
        say(&text);
    }

    /// Everything, in a file of this version.
    #[expect(
        clippy::disallowed_methods,
        reason = "a report that is read when the benchmark has ended"
    )]
    pub fn save(&self) -> Result<()> {
        let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench-results");
        let file = folder.join(format!("{}.json", env!("CARGO_PKG_VERSION")));
        let targets: serde_json::Map<_, _> = self
            .targets()
            .iter()
            .map(|target| {
                let value = json!({"found": target.found, "most": target.most, "met": target.is_met()});
                (target.key.to_owned(), value)
            })
            .collect();
        let tried: Vec<_> = self
            .tried
            .iter()
            .map(|(writes, seconds)| json!({"writesAtOnce": writes, "seconds": seconds}))
            .collect();
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "nodes": self.nodes,
            "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "targets": targets,
            "bareWritesAtOnce": self.concurrency,
            "bareTried": tried,
            "pairs": self.pairs,
            "idle": self.idle,
        });
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&file, format!("{report:#}\n"))
            .with_context(|| format!("{} cannot be written", file.display()))?;
        say(&format!(
            "  All numbers: bench-results/{}.json\n",
            env!("CARGO_PKG_VERSION")
        ));
        Ok(())
    }

    /// Fails when a target is missed.
    pub fn check(&self) -> Result<()> {
        let missed: Vec<_> = self
            .targets()
            .into_iter()
            .filter(|target| !target.is_met())
            .map(|target| target.what)
            .collect();
        ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
        Ok(())
    }
}

/// Says what happens now.
#[expect(clippy::print_stderr, reason = "whoever waits wants to know for what")]
pub fn note(what: &str) {
    eprintln!("bench: {what}");
}

#[expect(clippy::print_stdout, reason = "the report")]
fn say(text: &str) {
    println!("{text}");
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

#[expect(clippy::cast_precision_loss, reason = "no count comes near 2^52")]
fn count(count: usize) -> f64 {
    count as f64
}
