//! What the host remembers of upgrades, across reboots and power cuts, and its lock. The agent cannot reach it.

use std::fs::File;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tidewaiter_upgrade::Upgrade;
use tidewaiter_upgrade::agent::Ledger;

use super::super::files::{FileError, read_own};
use crate::host::{Host, HostError};

const RECORD: &str = "upgrades.json";
const LOCK: &str = "lock";

/// What the host remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The generations that it has seen, and the upgrades that it has begun, by id.
    pub(super) ledger: Ledger,
    /// The newest signature that it has accepted, in seconds since 1970.
    pub(super) newest: i64,
}

impl Record {
    /// Reads it. A record that is damaged is not an empty one.
    pub(super) fn read(state: &Host) -> Result<Self, FileError> {
        let opened = state.ensure(&[])?;
        let Some(folder) = opened.last() else {
            return Ok(Self::default());
        };
        let text = read_own(state, folder, RECORD)?;
        text.map_or(Ok(Self::default()), |text| {
            serde_json::from_str(&text).map_err(|error| malformed(&error))
        })
    }

    /// Notes that the script of this upgrade begins.
    pub(super) fn begin(&mut self, upgrades: &[Upgrade], id: &str, generation: Option<i64>) {
        self.ledger.see(upgrades);
        self.ledger.begun.insert(id.to_owned());
        self.newest = self.newest.max(generation.unwrap_or_default());
    }

    /// Writes it: it is on the disk when this returns.
    pub(super) fn write(&self, state: &Host) -> Result<(), FileError> {
        let opened = state.ensure(&[])?;
        let content = serde_json::to_vec(self).map_err(|error| malformed(&error))?;
        if let Some(folder) = opened.last() {
            let found = state.find(folder, RECORD)?;
            state.replace(folder, RECORD, &content, 0o600, &found)?;
        }
        Ok(())
    }
}

/// Held as long as the file is open; None if another process holds it.
pub(super) fn lock(state: &Host) -> Result<Option<File>, HostError> {
    let opened = state.ensure(&[])?;
    let failed = |source| HostError::call("locked", LOCK, source);
    let folder = opened.last().ok_or_else(|| failed(Errno::NOENT))?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(folder, LOCK, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn malformed(error: &serde_json::Error) -> FileError {
    FileError::Malformed {
        name: RECORD.to_owned(),
        reason: error.to_string(),
    }
}
