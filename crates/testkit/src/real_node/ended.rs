//! Waiting for the end of killed processes, with a limit. It is used where nothing can be awaited, when a node is
//! dropped.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::process::as_pid;

/// The time for which the process is awaited between two calls of `meanwhile`.
const POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Waits until this process has ended; its parent still has to take its exit code. `meanwhile` is called again
/// and again.
///
/// # Errors
/// It has not ended within `limit`.
#[expect(clippy::disallowed_methods, reason = "other processes end in real time")]
pub(super) fn within(pid: u32, limit: Duration, mut meanwhile: impl FnMut()) -> Result<(), ()> {
    let Ok(process) = pidfd_open(as_pid(pid), PidfdFlags::empty()) else {
        return Ok(());
    };
    let start = Instant::now();
    while start.elapsed() < limit {
        meanwhile();
        let mut ends = [PollFd::new(&process, PollFlags::IN)];
        if poll(&mut ends, Some(&POLL_INTERVAL)).is_ok_and(|ended| ended > 0) {
            return Ok(());
        }
    }
    Err(())
}

/// Each process with its name, its state, and where in the kernel it waits.
pub(super) fn describe(pids: &[u32]) -> String {
    let mut text = String::new();
    for pid in pids {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let status = read("status");
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or("?")
                .trim()
                .to_owned()
        };
        let _ = write!(
            text,
            "{pid} {} ({}, {}); ",
            field("Name:"),
            field("State:"),
            read("wchan")
        );
    }
    text
}
