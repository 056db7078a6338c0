//! Runs the tests of the workspace, several binaries at the same time. Most tests wait for other processes and use
//! little of a core, and `cargo test` runs one binary after the other. cargo-nextest does not fit: it runs each test in
//! a process of its own, so that the tests of a binary could share no control plane.
//!
//! Every binary runs to its end, also when another one fails. Its output is printed whole when it ends.
//!
//! A few tests that fail are run again, one at a time, when nothing runs beside them: on a machine with much other
//! work, a deadline of a test or of a program may pass for that work alone. Those that pass then are named as flaky at
//! the end: each is a defect of the test. The slowest tests are listed, too.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::Value;

/// The targets that take longest, which start first, the longest before the others: at the end, all places are taken.
const LONGEST: [&str; 28] = [
    "server",
    "plugins",
    "console",
    "controller",
    "histories",
    "coordinator",
    "cloud_server",
    "mirror",
    "upgrades",
    "chart",
    "attacks",
    "simulation",
    "agent",
    "access",
    "model",
    "verdicts",
    "image",
    "conformance",
    "real",
    "tidewaiter_coordinator",
    "validate",
    "gce",
    "schemas",
    "cloud",
    "tidewaiter_agent",
    "tidewaiter_kit",
    "labels",
    "stores",
];

/// The maximum number of failed tests that are run again. When more fail, something is broken.
const MAX_RERUN: usize = 4;

/// The number of slow tests that are listed.
const SLOWEST: usize = 20;

/// The arguments of a test binary that make it print the time of each test, and the variable that permits them.
/// `cargo test` and stable compilers have no other way.
const REPORT_TIME: [&str; 3] = ["-Z", "unstable-options", "--report-time"];
const PERMITS_UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// The limits of what runs at the same time.
#[derive(clap::Args)]
pub struct Options {
    /// Test binaries that run at the same time.
    #[arg(long, default_value_t = 3)]
    binaries: usize,
    /// Tests that run at the same time in each of them. Three saturate two cores; more only makes each test slower.
    #[arg(long, default_value_t = 3)]
    threads: usize,
    /// A test binary that is left out, such as `nodes` where there is no root. Can be given several times.
    #[arg(long, value_name = "NAME")]
    except: Vec<String>,
    /// The test binary that alone is run.
    #[arg(long, value_name = "NAME", conflicts_with = "except")]
    only: Option<String>,
}

/// A test binary, or the documentation tests of all crates.
struct Job {
    /// Of the target.
    name: String,
    /// As cargo prints it.
    title: String,
    program: PathBuf,
    args: Vec<&'static str>,
    envs: Option<(&'static str, &'static str)>,
    folder: PathBuf,
    /// The order in which jobs start.
    rank: usize,
}

/// A job that failed.
struct Failed {
    job: Job,
    /// The names of its tests that failed. Empty when it did not run to its end.
    tests: Vec<String>,
}

/// Builds and runs everything; fails when a test fails.
pub fn run(options: &Options) -> Result<()> {
    let start = now();
    let mut jobs = build()?;
    for name in options.except.iter().chain(&options.only) {
        ensure!(
            jobs.iter().any(|job| job.name == *name),
            "no test binary is called {name}: it is the name of a file or folder in a crate's tests"
        );
    }
    jobs.retain(|job| !options.except.contains(&job.name));
    jobs.push(documentation_tests());
    if let Some(only) = &options.only {
        jobs.retain(|job| job.name == *only);
    }
    jobs.sort_by_key(|job| job.rank);
    let count = jobs.len();
    let queue = Mutex::new(VecDeque::from(jobs));
    let next = || queue.lock().pop_front();
    let times = Mutex::new(Vec::new());
    let work = || -> Result<Vec<Failed>> {
        let ends = std::iter::from_fn(next).map(|job| job.run(options.threads, &[], &times));
        ends.filter_map(Result::transpose).collect()
    };
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..options.binaries).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut failed = Vec::new();
    for result in results {
        failed.extend(result.map_err(|_| anyhow::anyhow!("a worker panicked"))??);
    }
    let mut times = times.into_inner();
    times.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let slowest: Vec<_> = times
        .iter()
        .take(SLOWEST)
        .map(|(took, test)| format!("{took:>7.1} s {test}"))
        .collect();
    print(format_args!("the slowest tests:\n{}\n", slowest.join("\n")))?;
    let (failed, flaky) = run_again(failed)?;
    if !flaky.is_empty() {
        print(format_args!(
            "{} flaky (failed beside others, passed alone):\n{}\n",
            flaky.len(),
            flaky.join("\n")
        ))?;
    }
    ensure!(
        failed.is_empty(),
        "{} of {count} test binaries failed:\n{}",
        failed.len(),
        failed
            .iter()
            .map(|failed| failed.job.title.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    );
    print(format_args!(
        "{count} test binaries passed in {} s\n",
        start.elapsed().as_secs()
    ))
}

/// Runs the tests that failed again, unless they are many or one of the jobs did not run to its end. Returns what
/// failed again, and the names of the tests that passed.
fn run_again(failed: Vec<Failed>) -> Result<(Vec<Failed>, Vec<String>)> {
    let count = failed.iter().map(|failed| failed.tests.len()).sum::<usize>();
    if count > MAX_RERUN || failed.iter().any(|failed| failed.tests.is_empty()) {
        return Ok((failed, Vec::new()));
    }
    let (mut still, mut flaky) = (Vec::new(), Vec::new());
    for Failed { job, tests } in failed {
        match job.run(1, &tests, &Mutex::default())? {
            Some(failed) => still.push(failed),
            None => flaky.extend(tests),
        }
    }
    Ok((still, flaky))
}

impl Job {
    /// Runs it to its end, all its tests or only these, and prints its output. Adds the seconds of each test to
    /// `times`. Returns what failed.
    fn run(self, threads: usize, only: &[String], times: &Mutex<Vec<(f64, String)>>) -> Result<Option<Failed>> {
        let start = now();
        let (mut output, write) = io::pipe().context("a pipe")?;
        let mut command = Command::new(&self.program);
        // As cargo does.
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .args(&self.args)
            .envs(self.envs)
            .env("RUST_TEST_THREADS", threads.to_string())
            .stdin(Stdio::null())
            .stdout(write.try_clone().context("a pipe")?)
            .stderr(write);
        if !only.is_empty() {
            command.arg("--exact").args(only);
        }
        let mut child = command.spawn().with_context(|| self.title.clone())?;
        // Its ends of the pipe: the output ends when the child's are closed too.
        drop(command);
        let mut text = Vec::new();
        output.read_to_end(&mut text).context("the output of a test binary")?;
        let cpu = cpu_seconds(child.id()).map_or_else(String::new, |cpu| format!(", {cpu} s of CPU"));
        let status = child.wait().context("the end of a test binary")?;
        let took = start.elapsed().as_secs_f64();
        let verdict = if status.success() { "passed" } else { "FAILED" };
        let text = String::from_utf8_lossy(&text);
        print(format_args!(
            "{:>12} {}\n{text}{verdict:>12} {} in {took:.1} s{cpu} ({status})\n",
            "Running", self.title, self.title
        ))?;
        times.lock().extend(
            text.lines()
                .filter_map(timed)
                .map(|(took, test)| (took, format!("{}: {test}", self.name))),
        );
        let tests = failed_tests(&text);
        Ok((!status.success()).then_some(Failed { job: self, tests }))
    }
}

/// Returns the names at the end of the output of a test binary, which lists those that failed.
fn failed_tests(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else {
        return Vec::new();
    };
    let lines = list.lines().map_while(|line| line.strip_prefix("    "));
    lines.map(str::to_owned).collect()
}

/// Returns the seconds and the name of the test that this line of the output is about.
fn timed(line: &str) -> Option<(f64, &str)> {
    let (test, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let (_, took) = outcome.strip_suffix("s>")?.split_once('<')?;
    Some((took.parse().ok()?, test))
}

/// Returns the CPU time of a process that has not been waited for, and of those that it has waited for. None where
/// there is no `/proc`.
fn cpu_seconds(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    // utime, stime, cutime and cstime, in hundredths of a second.
    let times = after_name.split_whitespace().skip(11).take(4).map(str::parse::<u64>);
    Some(times.sum::<Result<u64, _>>().ok()? / 100)
}

/// Builds all tests; one job for each test binary.
fn build() -> Result<Vec<Job>> {
    let output = Command::new("cargo")
        .current_dir(repository())
        .args([
            "test",
            "--workspace",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo cannot be run")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    let messages = messages
        .lines()
        .map(|line| serde_json::from_str(line).context("a message of cargo"));
    messages
        .filter_map(|message| message.map(|message| job(&message)).transpose())
        .collect()
}

/// The job of a compiled test target; `None` for any other message.
fn job(message: &Value) -> Option<Job> {
    let executable = message["executable"]
        .as_str()
        .filter(|_| message["profile"]["test"] == true)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let (name, source) = (
        message["target"]["name"].as_str()?,
        message["target"]["src_path"].as_str()?,
    );
    let root = repository();
    let shown = Path::new(source).strip_prefix(&root).unwrap_or(Path::new(source));
    Some(Job {
        name: name.to_owned(),
        title: format!("{}", shown.display()),
        program: executable.into(),
        args: REPORT_TIME.to_vec(),
        envs: Some(PERMITS_UNSTABLE),
        folder: folder.to_owned(),
        rank: LONGEST
            .iter()
            .position(|longest| *longest == name)
            .unwrap_or(LONGEST.len()),
    })
}

fn documentation_tests() -> Job {
    Job {
        name: "doc".to_owned(),
        title: "documentation tests".to_owned(),
        program: "cargo".into(),
        args: vec!["test", "--workspace", "--doc", "--quiet", "--"],
        envs: None,
        folder: repository(),
        rank: LONGEST.len(),
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default()
}

fn print(text: std::fmt::Arguments<'_>) -> Result<()> {
    io::stdout().lock().write_fmt(text).context("the standard output")
}

#[expect(clippy::disallowed_methods, reason = "how long a test binary takes, for its reader")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::{failed_tests, timed};

    #[test]
    fn the_names_of_failed_tests_are_those_at_the_end() {
        let output = "test a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\n    not a name\n\n\nfailures:\n    a::b\n    c\n\n\
            test result: FAILED. 1 passed; 2 failed\n";
        assert_eq!(failed_tests(output), ["a::b", "c"]);
        // The process was killed.
        assert!(failed_tests("test a::b ... FAILED\n").is_empty());
    }

    #[test]
    fn the_time_of_a_test_stands_behind_its_outcome() {
        assert_eq!(timed("test a::b ... ok <1.250s>"), Some((1.25, "a::b")));
        assert_eq!(timed("test c ... FAILED <0.001s>"), Some((0.001, "c")));
        for other in [
            "test d ... ok",
            "test result: ok. 1 passed; finished in 0.00s",
            "running 2 tests",
        ] {
            assert_eq!(timed(other), None);
        }
    }
}
