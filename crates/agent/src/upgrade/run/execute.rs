//! Runs a script until its end or its deadline. Its output goes to the journal, by standard error, and the last part of
//! it into the result.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tidewaiter_api::NodeName;
use tidewaiter_kit::Clock;
use tidewaiter_upgrade::Version;
use tidewaiter_upgrade::agent::Run;

use super::super::files::{Outcome, RunResult};
use crate::host::{Host, HostError};

/// The name of the copy that runs.
pub(in crate::upgrade) const SCRIPT: &str = "script.sh";

/// The number of bytes of the script's last output that are stored.
const MAX_TAIL_BYTES: usize = 4096;

/// The time that a command may take to print something short.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which the end of the script is checked while it prints nothing.
const OUTPUT_POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The task of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It upgrades the node.
    Upgrade,
    /// It reverts what it did.
    Rollback,
}

/// A script that may run until the deadline. The deadline is a time of day. The time until then is also measured before
/// the script begins, so that a clock that is put back does not lengthen it.
pub(super) struct Execution<'a> {
    /// The copy.
    path: PathBuf,
    pub(super) node: &'a NodeName,
    pub(super) run: &'a Run,
    pub(super) clock: &'a dyn Clock,
    /// The deadline on the monotonic clock.
    end: Duration,
}

impl<'a> Execution<'a> {
    /// `path` is that of [`copy`].
    pub(super) fn new(path: PathBuf, node: &'a NodeName, run: &'a Run, clock: &'a dyn Clock) -> Self {
        let left = Duration::try_from(run.until.duration_since(clock.now())).unwrap_or_default();
        let end = clock.monotonic().saturating_add(left);
        Self {
            path,
            node,
            run,
            clock,
            end,
        }
    }

    /// Returns true if no time is left.
    fn is_over(&self) -> bool {
        self.clock.now() >= self.run.until || self.clock.monotonic() >= self.end
    }

    /// Runs the script. It gets the node, the id, the version, the deadline and the mode in variables.
    pub(super) fn start(&self, mode: Mode) -> io::Result<RunResult> {
        let Self { node, run, clock, .. } = *self;
        let (output, writer) = io::pipe()?;
        let mut command = Command::new(&self.path);
        command
            .env("TIDEWAITER_NODE", node.as_str())
            .env("TIDEWAITER_UPGRADE", &run.upgrade)
            .env("TIDEWAITER_VERSION", run.target.to_string())
            .env("TIDEWAITER_UNTIL", run.until.to_string())
            .env("TIDEWAITER_WAY_BACK", if mode == Mode::Rollback { "1" } else { "" })
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        let mut child = command.spawn()?;
        // Close our write ends, so that the pipe reaches EOF when the script exits.
        drop(command);
        let output = File::from(std::os::fd::OwnedFd::from(output));
        let mut tail = Vec::new();
        let ended = self.follow(&mut child, &output, &mut tail)?;
        let (outcome, message) = match ended {
            None => (
                Outcome::TimedOut,
                "the script was stopped at the deadline of the node".to_owned(),
            ),
            Some(status) if status.success() => (Outcome::Succeeded, "the script ended with the status 0".to_owned()),
            Some(status) => (Outcome::Failed, format!("the script failed: {status}")),
        };
        Ok(RunResult {
            id: run.upgrade.clone(),
            outcome,
            message,
            exit_code: ended.and_then(|status| status.code().or_else(|| status.signal().map(|signal| 128 + signal))),
            rolled_back: false,
            at: clock.now(),
            until: None,
            tail: String::from_utf8_lossy(&tail).into_owned(),
        })
    }

    /// None at the deadline: the script and all that it started in its group are killed then; systemd ends the rest
    /// with the service.
    fn follow(&self, child: &mut Child, mut output: &File, tail: &mut Vec<u8>) -> io::Result<Option<ExitStatus>> {
        let mut is_open = true;
        loop {
            let ended = child.try_wait()?;
            let mut waited = [PollFd::new(output, PollFlags::IN)];
            let ready = &mut waited[..usize::from(is_open)];
            // Its last output is still read.
            let wait = if ended.is_some() {
                Timespec::default()
            } else {
                OUTPUT_POLL_INTERVAL
            };
            let is_ready = poll(ready, Some(&wait)).unwrap_or_default() > 0;
            if is_ready {
                let mut part = [0; 4096];
                let length = output.read(&mut part)?;
                is_open = length > 0;
                let part = part.get(..length).unwrap_or_default();
                // A journal that is away is no reason to stop.
                let _ = io::stderr().write_all(part);
                tail.extend_from_slice(part);
                let surplus = tail.len().saturating_sub(MAX_TAIL_BYTES);
                tail.drain(..surplus);
            } else if ended.is_some() {
                return Ok(ended);
            }
            if self.is_over() {
                if ended.is_some() {
                    return Ok(ended);
                }
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                child.wait()?;
                return Ok(None);
            }
        }
    }
}

/// The version that a program prints, if it ends well within [`VERSION_TIMEOUT`].
pub(in crate::upgrade) fn version_text(program: &Path, clock: &dyn Clock) -> Option<String> {
    printed(Command::new(program).arg("--version"), clock)
}

/// The version of a kubelet; None if it cannot be read.
pub(in crate::upgrade) fn kubelet_version(kubelet: &Path, clock: &dyn Clock) -> Option<Version> {
    version_text(kubelet, clock)?.split_whitespace().last()?.parse().ok()
}

fn printed(command: &mut Command, clock: &dyn Clock) -> Option<String> {
    let (mut output, writer) = io::pipe().ok()?;
    let spawned = command.stdin(Stdio::null()).stdout(writer).spawn();
    // Close our write ends, so that the pipe reaches EOF when the command exits.
    command.stdout(Stdio::null());
    let mut child = spawned.ok()?;
    let end = clock.monotonic().saturating_add(VERSION_TIMEOUT);
    let mut text = Vec::new();
    let is_whole = loop {
        if clock.monotonic() >= end {
            break false;
        }
        if poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&OUTPUT_POLL_INTERVAL)).unwrap_or_default() == 0 {
            continue;
        }
        let mut part = [0; 4096];
        match output.read(&mut part) {
            Ok(0) => break true,
            Ok(length) if text.len() < MAX_TAIL_BYTES => text.extend_from_slice(part.get(..length).unwrap_or_default()),
            _ => break false,
        }
    };
    if !is_whole {
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    String::from_utf8(text).ok().filter(|_| is_whole && status.success())
}

/// The reason why a script cannot be copied to where it can run.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error(transparent)]
    Host(#[from] HostError),
    /// A mount option that an operator has set, so it is not circumvented.
    #[error(
        "{path} cannot be executed, because its file system is mounted with noexec: mount it with exec, or run tidewaiter host install again \
         with --script-folder and a folder of another file system"
    )]
    NoExec {
        path: String,
        #[source]
        source: Errno,
    },
}

/// A copy that only root can change, and that can be executed.
pub(super) fn copy(folder: &Host, script: &str) -> Result<PathBuf, CopyError> {
    let opened = folder.ensure(&[])?;
    if let Some(fd) = opened.last() {
        let found = folder.find(fd, SCRIPT)?;
        folder.replace(fd, SCRIPT, script.as_bytes(), 0o700, &found)?;
    }
    let path = folder.path_of(&[SCRIPT]);
    access(&*path, Access::EXEC_OK).map_err(|source| CopyError::NoExec {
        path: path.clone(),
        source,
    })?;
    Ok(path.into())
}
