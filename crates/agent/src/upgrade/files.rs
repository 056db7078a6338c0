//! The files by which the agent and the host speak: `scripts/upgrade`, which only root can enter.
//!
//! - `upgrade-TYPE-VERSION-ID.sh`, written by the agent: the script with its signatures.
//! - `upgrade-TYPE-VERSION-ID.json`, written by the agent: the `ClusterUpgrade` as the agent saw it: whose turn it is,
//!   and until when.
//! - `current`, written by the agent: the path of the script. Written last and removed first.
//! - `result.json`, written by the host: what became of the last order. The agent writes it where it refuses a script
//!   for good before it has offered it.
//!
//! A file counts only if it belongs to the owner of the agent's files, and nobody else can write it.

use std::fmt::Display;
use std::os::fd::OwnedFd;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_upgrade::Version;
use tidewaiter_upgrade::form::id;

use crate::host::{Host, HostError, Opened};

/// The folder, below the agent's.
pub const FOLDER: [&str; 2] = ["scripts", "upgrade"];

/// The file that names the script that is to run.
pub const CURRENT: &str = "current";

/// The file with what became of it.
pub const RESULT: &str = "result.json";

const SCRIPT_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A file that does not count.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be used.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Its content is wrong.
    #[error("{name} is malformed: {reason}")]
    Malformed {
        /// The file.
        name: String,
        /// The problem.
        reason: String,
    },
}

/// An order of the coordinator, as the agent offers it to the host.
#[derive(Clone, Debug)]
pub struct Order {
    /// The upgrade as the agent saw it.
    pub upgrade: ClusterUpgrade,
    /// The script with its signatures.
    pub script: String,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunResult {
    /// The id of the upgrade.
    pub id: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason, in words.
    pub message: String,
    /// The exit status of the script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// True if the script failed, its way back ended well, and the kubelet is at the version of before.
    #[serde(default)]
    pub rolled_back: bool,
    /// The time when the host decided or the script ended.
    pub at: Timestamp,
    /// The time when what runs must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The end of what the script printed. It never leaves the node: it may show a secret.
    #[serde(default)]
    pub tail: String,
}

/// The outcome of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was not run, and may be retried.
    Blocked,
    /// The script runs.
    Running,
    /// It has failed, and its way back is due or runs.
    RollingBack,
    /// It ended with the status 0.
    Succeeded,
    /// It ended with another status.
    Failed,
    /// It was stopped at the deadline.
    TimedOut,
    /// The power or the host's service ended while it ran. It does not run again.
    Interrupted,
    /// It was not run, and will not be.
    Refused,
}

impl Outcome {
    /// Returns true if nothing of the upgrade runs any more, and nothing of it will.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Blocked | Self::Running | Self::RollingBack)
    }
}

/// The name of the script's file. Neither part can have a `/`: their types and the definition forbid it.
#[must_use]
pub fn script_name(version: &Version, id: &str) -> String {
    format!("upgrade-kubernetes-{version}-{id}.sh")
}

impl Host {
    /// Offers an order: `current` names it when everything else is there.
    ///
    /// # Errors
    /// When a file cannot be written. `current` is then as it was.
    pub fn offer(&self, name: &str, order: &Order) -> Result<(), FileError> {
        let opened = self.ensure(&FOLDER)?;
        let folder = opened.last().ok_or_else(|| missing("scripts/upgrade"))?;
        let upgrade = serde_json::to_vec(&order.upgrade).map_err(|error| malformed(name, &error))?;
        let path = format!("{}/{name}\n", self.path_of(&FOLDER));
        let put = |name: &str, content: &[u8], mode| {
            let found = self.find(folder, name)?;
            self.replace(folder, name, content, mode, &found)
        };
        put(name, order.script.as_bytes(), SCRIPT_MODE)?;
        put(&order_name(name), &upgrade, FILE_MODE)?;
        put(CURRENT, path.as_bytes(), FILE_MODE)?;
        Ok(())
    }

    /// Removes `current`, whatever is there. Returns whether there was anything.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn withdraw(&self) -> Result<bool, HostError> {
        let opened = self.look(&FOLDER)?;
        opened
            .as_ref()
            .and_then(Opened::last)
            .map_or(Ok(false), |folder| self.take_away(folder, CURRENT))
    }

    /// The order that `current` names; None if there is no `current`.
    ///
    /// # Errors
    /// When a file cannot be read, or does not count.
    pub fn ordered(&self) -> Result<Option<Order>, FileError> {
        let Some(opened) = self.look(&FOLDER)? else {
            return Ok(None);
        };
        for (folder, name) in opened.folders.iter().zip([".", "scripts", "scripts/upgrade"]) {
            self.check_own(folder, name)?;
        }
        let Some(folder) = opened.last() else { return Ok(None) };
        let Some(path) = read_text(self, folder, CURRENT)? else {
            return Ok(None);
        };
        let within = format!("{}/", self.path_of(&FOLDER));
        let name = path.trim_end().strip_prefix(&within);
        let name = name.filter(|name| !name.contains('/'));
        let name = name.ok_or_else(|| malformed(CURRENT, &format!("it must be the path of a script in {within}")))?;
        let required = |name: &str| read_text(self, folder, name)?.ok_or_else(|| missing(name));
        let script = required(name)?;
        let order = order_name(name);
        let upgrade: ClusterUpgrade =
            serde_json::from_str(&required(&order)?).map_err(|error| malformed(&order, &error))?;
        let target = upgrade.spec.target_version.parse::<Version>();
        let target = target.map_err(|error| malformed(&order, &error))?;
        if script_name(&target, id(&upgrade)) != name {
            return Err(malformed(&order, "it is for another script"));
        }
        Ok(Some(Order { upgrade, script }))
    }

    /// The result of the last order; None if nothing did yet.
    ///
    /// # Errors
    /// When it cannot be read, or does not count.
    pub fn result(&self) -> Result<Option<RunResult>, FileError> {
        let opened = self.look(&FOLDER)?;
        let Some(folder) = opened.as_ref().and_then(Opened::last) else {
            return Ok(None);
        };
        let text = read_text(self, folder, RESULT)?;
        text.map(|text| serde_json::from_str(&text).map_err(|error| malformed(RESULT, &error)))
            .transpose()
    }

    /// Writes what became of an order.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_result(&self, result: &RunResult) -> Result<(), FileError> {
        let opened = self.ensure(&FOLDER)?;
        let folder = opened.last().ok_or_else(|| missing("scripts/upgrade"))?;
        let content = serde_json::to_vec(result).map_err(|error| malformed(RESULT, &error))?;
        let found = self.find(folder, RESULT)?;
        self.replace(folder, RESULT, &content, FILE_MODE, &found)?;
        Ok(())
    }
}

/// The text of a file that only its owner can write; None if it is missing.
pub(super) fn read_text(host: &Host, folder: &OwnedFd, name: &str) -> Result<Option<String>, FileError> {
    let content = host.read_own(folder, name, name)?;
    let text = content.map(|content| String::from_utf8(content).map_err(|_| malformed(name, "it must be text")));
    text.transpose()
}

fn order_name(script: &str) -> String {
    format!("{}.json", script.trim_end_matches(".sh"))
}

fn missing(name: &str) -> FileError {
    HostError::unusable(name, "is missing").into()
}

fn malformed(name: &str, reason: &(impl Display + ?Sized)) -> FileError {
    FileError::Malformed {
        name: name.to_owned(),
        reason: reason.to_string(),
    }
}
