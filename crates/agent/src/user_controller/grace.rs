//! The grace of foreign lines: the lines of others that stay for a while after the first start of an agent on this
//! host, and its end.
//!
//! - It begins once: the record is written, and flushed, before a line is removed or spared. A restart goes on with it,
//!   and so does an agent of another version. The record is in a folder of its own that only root can write: not in
//!   that of `authorized_keys`, which may belong to another account.
//! - Only lines that the first look has found stay. A line that comes later goes at once, so anyone who can write
//!   `authorized_keys` gains nothing.
//! - It ends by the clock, the time in the setting after its beginning. The end is recorded as well, so a clock
//!   that is put back restarts nothing.
//! - A record that cannot be of an agent is the end of the grace: one that is damaged, that others can write, or that
//!   begins in the future. So nothing in it lets a line stay for longer than the setting says, counted from the start
//!   of the agent that reads it.
//! - Without a grace in the settings, the record is not read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidewaiter_kit::Chain;
use tracing::warn;

use crate::authorized_keys::Kept;
use crate::host::{Host, HostError};

/// The file of the record.
pub(super) const FILE: &str = "foreign-lines.json";

const FILE_MODE: u32 = 0o600;

/// The record of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The time when the first look was.
    since: Timestamp,
    /// The digests of the lines that stay; empty when the grace is over.
    lines: BTreeSet<String>,
}

/// The grace, once it was read.
#[derive(Debug, Default)]
pub(super) struct Grace {
    record: Option<Record>,
    kept: Arc<Kept>,
    until: Option<Timestamp>,
    /// The problem of the record, in words.
    problem: Option<String>,
}

impl Grace {
    /// The lines that stay at `now`, for `length` from the first look on. `found` is what the first look on this host
    /// finds.
    pub(super) fn kept(
        &mut self,
        host: &Host,
        length: Duration,
        now: Timestamp,
        found: impl FnOnce() -> Result<BTreeSet<String>, HostError>,
    ) -> Result<Arc<Kept>, HostError> {
        let record = match self.record.take() {
            Some(record) => record,
            None if length.is_zero() => return Ok(self.end(host, now)),
            None => match read(host, now) {
                Ok(record) => self.begin(host, record, now, found)?,
                Err(HostError::Unusable { problem, .. }) => {
                    self.problem = Some(format!("{FILE} {problem}; the grace of foreign lines is over"));
                    return Ok(self.end(host, now));
                }
                Err(error) => return Err(error),
            },
        };
        let until = record.since.checked_add(length).unwrap_or(Timestamp::MAX);
        let is_over = record.lines.is_empty();
        if !is_over && until <= now {
            return Ok(self.end(host, record.since));
        }
        self.until = (!is_over).then_some(until);
        self.record = Some(record);
        Ok(Arc::clone(&self.kept))
    }

    /// The time when lines that stay now are removed; None if there are none.
    pub(super) fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// The problem of the record, returned once.
    pub(super) fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    /// Continues a record, or begins one. Fails when it cannot be recorded: nothing is removed or spared then.
    fn begin(
        &mut self,
        host: &Host,
        record: Option<Record>,
        now: Timestamp,
        found: impl FnOnce() -> Result<BTreeSet<String>, HostError>,
    ) -> Result<Record, HostError> {
        let record = if let Some(record) = record {
            record
        } else {
            let record = Record {
                since: now,
                lines: found()?,
            };
            write(host, &record)?;
            record
        };
        self.kept = Arc::new(Kept::Of(record.lines.clone()));
        Ok(record)
    }

    /// It ends also on a disk that is full.
    fn end(&mut self, host: &Host, since: Timestamp) -> Arc<Kept> {
        let lines = BTreeSet::new();
        let record = Record { since, lines };
        if let Err(error) = write(host, &record) {
            warn!(error = %Chain(&error), "the end of the grace of foreign lines is not recorded");
        }
        self.record = Some(record);
        self.kept = Arc::default();
        self.until = None;
        Arc::clone(&self.kept)
    }
}

/// An unusable record cannot be of an agent.
fn read(host: &Host, now: Timestamp) -> Result<Option<Record>, HostError> {
    let Some(content) = host.read_trusted(FILE)? else {
        return Ok(None);
    };
    let unusable = |problem| HostError::unusable(FILE, problem);
    let record: Record = serde_json::from_slice(&content).map_err(|error| unusable(format!("is damaged ({error})")))?;
    if record.since > now && !record.lines.is_empty() {
        return Err(unusable(format!("begins in the future, at {}", record.since)));
    }
    Ok(Some(record))
}

fn write(host: &Host, record: &Record) -> Result<(), HostError> {
    host.write_trusted(FILE, &serde_json::to_vec(record).unwrap_or_default(), FILE_MODE)
}

#[cfg(test)]
mod tests;
