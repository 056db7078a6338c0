//! A real process under test: started, signalled, looked at, and never left behind.
//!
//! Every process leads a group of its own and is known to its [`Scratch`]'s watchdog before it runs a single line of
//! its program, so there is no moment in which a killed test could leave it behind.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::{Scratch, eventually};

/// Waits for a line (which comes once the watchdog knows the group), then becomes the program.
const SHIM: &str = r#"read -r go && exec "$@" </dev/null"#;

/// Of this process's environment a started one sees only these: a test does not depend on who runs it.
const INHERITED: [&str; 5] = ["PATH", "HOME", "TMPDIR", "LLVM_PROFILE_FILE", "RUST_BACKTRACE"];

/// The deadline of `/metrics`.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of lines of a log that a failure shows.
const SHOWN_LOG_LINES: usize = 40;

/// The program to run, and its options.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    path: PathBuf,
    args: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    metrics: Option<String>,
}

impl Program {
    /// The program at `path`, called by its file name in messages and for its log.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let name = path
            .file_name()
            .expect("a program has a name")
            .to_string_lossy()
            .into_owned();
        Self {
            name,
            path,
            args: Vec::new(),
            environment: Vec::new(),
            metrics: None,
        }
    }

    /// Another name in messages and for the log: needed where one [`Scratch`] runs a program twice.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// A variable of its environment, which is otherwise empty but for PATH, HOME and TMPDIR.
    #[must_use]
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// It serves `/metrics` at this address (`HOST:PORT`): what it shows there at its end is saved as `<name>.metrics`,
    /// beside its log.
    #[must_use]
    pub fn metrics(mut self, address: impl Into<String>) -> Self {
        self.metrics = Some(address.into());
        self
    }

    /// A write beyond the limit of the size of files is an error, as on a full disk, and not a signal that ends it.
    #[must_use]
    pub fn ignoring_file_size_signal(mut self) -> Self {
        let program = std::mem::replace(&mut self.path, "/bin/sh".into());
        let shell = ["-c", "trap '' XFSZ; exec \"$0\" \"$@\""].map(OsString::from);
        let args = std::mem::take(&mut self.args);
        self.args = shell.into_iter().chain([program.into()]).chain(args).collect();
        self
    }

    /// Bound by the modes of its user's files, also where the tests run as root: then it has none of root's
    /// capabilities.
    #[must_use]
    pub fn bound_by_modes(mut self) -> Self {
        if rustix::process::geteuid().is_root() {
            let program = std::mem::replace(&mut self.path, "/usr/bin/env".into());
            let setpriv = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"].map(OsString::from);
            let args = std::mem::take(&mut self.args);
            self.args = setpriv.into_iter().chain([program.into()]).chain(args).collect();
        }
        self
    }
}

/// A process, running or ended. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    program: Program,
    log: PathBuf,
    state: Mutex<State>,
    scratch: Scratch,
}

#[derive(Debug)]
struct State {
    /// The length of the log when it started last.
    log_start: u64,
    run: Run,
}

#[derive(Debug)]
enum Run {
    Running(Child),
    Ended(ExitStatus),
}

impl Process {
    /// Starts the program in the scratch folder; its output goes to `<name>.log` there.
    #[must_use]
    pub fn start(scratch: &Scratch, program: Program) -> Self {
        let log = scratch.path().join(format!("{}.log", program.name));
        let state = Mutex::new(launch(scratch, &program, &log));
        Self {
            program,
            log,
            state,
            scratch: scratch.clone(),
        }
    }

    /// Starts it once more as it was started at first, unless it runs. Its log goes on in the same file.
    pub fn start_again(&self) {
        let mut state = self.state.lock();
        if self.look(&mut state).is_some() {
            *state = launch(&self.scratch, &self.program, &self.log);
        }
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        let mut state = self.state.lock();
        self.look(&mut state);
        match &state.run {
            Run::Running(child) => child.id(),
            Run::Ended(status) => panic!("{} does not run: {status}", self.program.name),
        }
    }

    /// Returns true if it runs (a paused one does).
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.ended().is_none()
    }

    /// Returns its exit status, when it has ended.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        self.look(&mut self.state.lock())
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// After `deadline`, with the end of its log.
    pub async fn exited(&self, deadline: Duration) -> ExitStatus {
        eventually(format_args!("{} to exit", self.program.name), deadline, async || {
            self.ended()
                .ok_or_else(|| format!("it runs; the end of its log:\n{}", self.log_tail()))
        })
        .await
    }

    /// SIGTERM, to the process alone; does not wait.
    pub fn terminate(&self) {
        self.save_metrics();
        self.signal(Signal::TERM);
    }

    /// SIGTERM, and waits for its end.
    ///
    /// # Panics
    /// When it has not ended after `deadline`, with the end of its log.
    pub async fn stop(&self, deadline: Duration) -> ExitStatus {
        self.terminate();
        self.exited(deadline).await
    }

    /// SIGKILL to its whole group. When this returns it has ended.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        if let Run::Running(child) = &mut state.run {
            kill_group(child.id());
            let status = child.wait().expect("a child can be waited for");
            self.scratch.forget(child.id());
            state.run = Run::Ended(status);
        }
    }

    /// SIGSTOP. When this returns it stands still.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let until = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(WaitId::Pid(as_pid(self.pid())), until).expect("a child can be waited for");
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns its standard output and error since it was started last.
    #[must_use]
    pub fn log(&self) -> String {
        let start = usize::try_from(self.state.lock().log_start).expect("a log fits into memory");
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(start..).unwrap_or_default()).into_owned()
    }

    /// The last lines of [`log`](Self::log).
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LOG_LINES)..].join("\n")
    }

    /// The file of its log, over all its starts.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// One that does not answer shows nothing.
    fn save_metrics(&self) {
        let Some(address) = self.program.metrics.as_ref().filter(|_| self.is_running()) else {
            return;
        };
        let mut shown = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log.with_extension("metrics"))
            .expect("the metrics can be saved");
        let mut ask = || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
            io::copy(&mut stream, &mut shown)
        };
        let _ = ask();
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(as_pid(self.pid()), signal).expect("a child can be signalled");
    }

    /// Notices the end of a process that ended by itself, and ends what it left in its group.
    fn look(&self, state: &mut State) -> Option<ExitStatus> {
        if let Run::Running(child) = &mut state.run
            && let Some(status) = child.try_wait().expect("a child can be waited for")
        {
            kill_group(child.id());
            self.scratch.forget(child.id());
            state.run = Run::Ended(status);
        }
        match state.run {
            Run::Running(_) => None,
            Run::Ended(status) => Some(status),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.save_metrics();
        self.kill();
    }
}

fn launch(scratch: &Scratch, program: &Program, log: &Path) -> State {
    assert!(program.path.is_file(), "{} is missing", program.path.display());
    let output = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .expect("the log can be opened");
    let log_start = output.metadata().expect("the log has a length").len();
    let clone = |file: &File| Stdio::from(file.try_clone().expect("a file can be cloned"));
    let mut child = Command::new("/bin/sh")
        .args(["-c", SHIM, "shim"])
        .arg(&program.path)
        .args(&program.args)
        .env_clear()
        .envs(inherited())
        .envs(program.environment.iter().map(|(key, value)| (key, value)))
        .current_dir(scratch.path())
        .stdin(Stdio::piped())
        .stdout(clone(&output))
        .stderr(clone(&output))
        .process_group(0)
        .spawn()
        .expect("/bin/sh runs");
    scratch.watch(child.id());
    let mut go = child.stdin.take().expect("its standard input is a pipe");
    go.write_all(b"go\n").expect("the shim waits for its line");
    State {
        log_start,
        run: Run::Running(child),
    }
}

fn kill_group(leader: u32) {
    // An empty group is the goal.
    let _ = rustix::process::kill_process_group(as_pid(leader), Signal::KILL);
}

/// Sends a signal. A process that has ended in between is no failure.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let _ = rustix::process::kill_process(as_pid(pid), signal);
}

pub(crate) fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).expect("a process id is not 0")
}

#[expect(
    clippy::disallowed_methods,
    reason = "what a child inherits is read here, and only here"
)]
fn inherited() -> impl Iterator<Item = (&'static str, OsString)> {
    INHERITED
        .into_iter()
        .filter_map(|key| Some((key, std::env::var_os(key)?)))
}
