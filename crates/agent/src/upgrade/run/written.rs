//! Writes the result of a script, and retries while the disk is full or read-only.

use std::io::{self, Write as _};

use jiff::{SignedDuration, Timestamp};
use rustix::event::{Timespec, poll};
use tidewaiter_kit::Chain;

use super::record::Record;
use super::{RunError, Runner};
use crate::host::Host;
use crate::upgrade::files::{FileError, RunResult};

/// The time between two attempts to write a file.
const WRITE_RETRY_INTERVAL: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The longest time of attempts to write what was settled.
const SETTLE_TIMEOUT: SignedDuration = SignedDuration::from_hours(24);

/// A script that has ended.
pub(super) struct Ended {
    pub(super) result: RunResult,
    /// The end of the attempts to write it.
    pub(super) until: Timestamp,
    /// The record that is not written yet.
    pub(super) record: Option<Record>,
}

impl RunError {
    /// True for a full or read-only file system.
    fn may_pass(&self) -> bool {
        matches!(self, Self::File(FileError::Host(error)) if ["full", "read_only"].contains(&error.class()))
    }
}

impl Runner {
    /// Writes how the script ended, for the agent and in the record.
    pub(super) fn write_ended(&self, host: &Host, state: &Host, ended: Ended) -> Result<RunResult, RunError> {
        let Ended {
            result,
            until,
            mut record,
        } = ended;
        self.until_written(until, || {
            if record.as_ref().is_some_and(|record| record.write(state).is_ok()) {
                record = None;
            }
            Ok(host.write_result(&result)?)
        })?;
        Ok(result)
    }

    /// Repeats it while the disk is full or cannot be written.
    pub(super) fn until_written<T>(
        &self,
        until: Timestamp,
        mut write: impl FnMut() -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let mut is_logged = false;
        loop {
            match write() {
                Err(error) if error.may_pass() && self.clock.now() < until => {
                    if !std::mem::replace(&mut is_logged, true) {
                        // A journal that is away is no reason to stop.
                        let _ = writeln!(io::stderr(), "{}: it is tried again until {until}", Chain(&error));
                    }
                    // A wait that a signal ends early does no harm.
                    let _ = poll(&mut [], Some(&WRITE_RETRY_INTERVAL));
                }
                result => return result,
            }
        }
    }

    /// The time until which a settled result is written again.
    pub(super) fn settle_deadline(&self) -> Timestamp {
        self.clock
            .now()
            .saturating_add(SETTLE_TIMEOUT)
            .unwrap_or(Timestamp::MAX)
    }
}
