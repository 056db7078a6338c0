//! The host's record of upgrades, across reboots and power cuts, and its lock. The agent cannot reach it.

use std::fs::File;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tidewaiter_upgrade::agent::Ledger;
use tidewaiter_upgrade::{Upgrade, Version};

use super::super::files::{FileError, RunResult, read_text};
use crate::host::{Host, HostError};

const RECORD: &str = "upgrades.json";
const LOCK: &str = "lock";

/// The record of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The generations that it has seen, and the upgrades that it has begun, by id.
    pub(super) ledger: Ledger,
    /// The newest signature that it has accepted, in seconds since 1970.
    pub(super) newest: i64,
    /// The last upgrade that was begun, and the version of the kubelet before that.
    #[serde(default)]
    pub(super) before: Option<Before>,
    /// The last upgrade whose script has ended.
    #[serde(default)]
    pub(super) ended: Option<String>,
    /// The result, as long as it has no way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<RunResult>,
    /// The script that has failed, and whose way back is to begin.
    #[serde(default)]
    pub(super) way_back: Option<WayBack>,
}

/// The version of the kubelet when the script of an upgrade began first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Before {
    upgrade: String,
    version: String,
}

/// A script that has failed, and that can take back what it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WayBack {
    /// The digest of the script.
    pub(super) script: String,
    /// The failure.
    pub(super) failed: RunResult,
}

impl Record {
    /// Reads the record. A damaged record is an error, never an empty record.
    pub(super) fn read(state: &Host) -> Result<Self, FileError> {
        let opened = state.ensure(&[])?;
        let Some(folder) = opened.last() else {
            return Ok(Self::default());
        };
        let text = read_text(state, folder, RECORD)?;
        text.map_or(Ok(Self::default()), |text| {
            serde_json::from_str(&text).map_err(|error| malformed(&error))
        })
    }

    /// Notes that the script of this upgrade begins.
    pub(super) fn begin(&mut self, upgrades: &[Upgrade], id: &str, generation: Option<i64>, version: Option<&Version>) {
        self.ledger.see(upgrades);
        self.ledger.begun.insert(id.to_owned());
        self.newest = self.newest.max(generation.unwrap_or_default());
        (self.way_back, self.result) = (None, None);
        if self.before.as_ref().is_none_or(|before| before.upgrade != id) {
            self.before = version.map(|version| Before {
                upgrade: id.to_owned(),
                version: version.to_string(),
            });
        }
    }

    /// The version of the kubelet before the script of this upgrade began first.
    pub(super) fn version_before(&self, id: &str) -> Option<Version> {
        let before = self.before.as_ref().filter(|before| before.upgrade == id)?;
        before.version.parse().ok()
    }

    /// Writes it: it is on the disk when this returns.
    pub(super) fn write(&self, state: &Host) -> Result<(), FileError> {
        let content = serde_json::to_vec(self).map_err(|error| malformed(&error))?;
        Ok(state.write_trusted(RECORD, &content, 0o600)?)
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
