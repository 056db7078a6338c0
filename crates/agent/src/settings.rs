//! The agent's own settings.

use std::time::Duration;

use jiff::SignedDuration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use crate::authorized_keys::ForeignLines;
use crate::break_glass::DEFAULT_FOLDER;
use crate::host::Owner;
pub use crate::upgrade::CoordinatorSettings;
use crate::user_controller::expiry::SHORTEST;

mod folders;

pub use folders::FolderError;
use folders::folder;

/// Settings that exclude each other.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The folders of the host.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Whoever owns the folder could write a script that runs as root.
    #[error("upgrades is enabled, and ownerUid is {0}: set ownerUid to 0, or upgrades to disabled")]
    Owner(u32),
}

/// What becomes of the users' keys when the agent stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnStop {
    /// They stay, so that a roll-out or a reboot locks nobody out.
    #[default]
    Keep,
    /// They are removed: for an uninstallation.
    Clear,
}

/// Whether the scripts of upgrades are offered to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Upgrades {
    /// No.
    #[default]
    Disabled,
    /// Yes, when it is the turn of this node.
    Enabled,
}

/// The settings of the agent, besides those of every role.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AgentSettings {
    /// The name of the node. The chart sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The agent's folder on the host. It has the same path in the agent's container.
    #[serde(deserialize_with = "folder")]
    pub folder: String,
    /// The user id of the owner of the files: root, or the account as which users log in.
    pub owner_uid: u32,
    /// The group id of the owner.
    pub owner_gid: u32,
    /// What becomes of the users' keys when the agent stops.
    pub on_stop: OnStop,
    /// What becomes of lines that are not the agent's.
    pub foreign_lines: ForeignLines,
    /// For how long the foreign lines stay that the first agent on a host finds.
    #[serde(deserialize_with = "grace", serialize_with = "seconds")]
    pub foreign_lines_grace: Duration,
    /// The folder with what the agent remembers. Only root of the host can write it. It has the same path in the
    /// agent's container.
    #[serde(deserialize_with = "folder")]
    pub state_folder: String,
    /// The folder with what root has pinned on the host. The agent's container can only read it, under the same path.
    #[serde(deserialize_with = "folder")]
    pub pinned_folder: String,
    /// For how long keys stay that the mirror of the cloud does not confirm. Without it, they stay.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "expiry",
        serialize_with = "duration_text"
    )]
    pub keys_expire_after: Option<Duration>,
    /// Whether the scripts of upgrades are offered to the host.
    pub upgrades: Upgrades,
    /// Where the scripts of upgrades come from.
    pub coordinator: CoordinatorSettings,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            node_name: None,
            folder: "/etc/containership".to_owned(),
            owner_uid: 0,
            owner_gid: 0,
            on_stop: OnStop::default(),
            foreign_lines: ForeignLines::default(),
            foreign_lines_grace: Duration::from_hours(7 * 24),
            state_folder: "/var/lib/tidewaiter-agent".to_owned(),
            pinned_folder: DEFAULT_FOLDER.to_owned(),
            keys_expire_after: None,
            upgrades: Upgrades::default(),
            coordinator: CoordinatorSettings::default(),
        }
    }
}

impl AgentSettings {
    /// Checks what no single setting shows. Before it, nothing may start.
    ///
    /// # Errors
    /// Which settings exclude each other.
    pub fn check(&self) -> Result<(), CheckError> {
        folders::check(self)?;
        // The host accepts only files of root. An agent of another account can be tried with its own files.
        let trusted = [0, rustix::process::geteuid().as_raw()];
        if self.upgrades == Upgrades::Enabled && !trusted.contains(&self.owner_uid) {
            return Err(CheckError::Owner(self.owner_uid));
        }
        Ok(())
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner {
            uid: self.owner_uid,
            gid: self.owner_gid,
        }
    }
}

fn expiry<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Duration>, D::Error> {
    let refused = || {
        D::Error::custom(
            "must be a duration with units (d, h, m or s), from 12h on, for example 3d or 72h; leave it out, and keys do not expire",
        )
    };
    let Some(text) = Option::<String>::deserialize(value).map_err(|_| refused())? else {
        return Ok(None);
    };
    parsed(&text)
        .filter(|duration| *duration >= SHORTEST)
        .map(Some)
        .ok_or_else(refused)
}

/// As Go and Kubernetes write it (`1h30m`), and with days of 24 hours before that (`7d`, `1d12h`).
fn parsed(text: &str) -> Option<Duration> {
    let (days, rest) = text.split_once('d').unwrap_or(("0", text));
    let days: u64 = days.parse().ok()?;
    let is_whole_days = rest.is_empty() && !text.is_empty();
    let rest: SignedDuration = if is_whole_days {
        SignedDuration::ZERO
    } else {
        rest.parse().ok()?
    };
    Duration::from_secs(days.checked_mul(86_400)?).checked_add(Duration::try_from(rest).ok()?)
}

fn grace<'de, D: Deserializer<'de>>(value: D) -> Result<Duration, D::Error> {
    let refused =
        || D::Error::custom("must be a duration with units (d, h, m or s), for example 7d or 1h30m, or 0s for none");
    let text = String::deserialize(value).map_err(|_| refused())?;
    parsed(&text).ok_or_else(refused)
}

fn seconds<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    format!("{}s", value.as_secs()).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
fn duration_text<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let seconds = value.map(|duration| format!("{}s", duration.as_secs()));
    seconds.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(settings: Value) -> Result<AgentSettings, String> {
        serde_json::from_value(settings).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let settings = read(json!({"keysExpireAfter": "72h", "onStop": "clear", "foreignLinesGrace": "0s"})).unwrap();
        assert_eq!(settings.keys_expire_after, Some(Duration::from_hours(72)));
        let again = read(serde_json::to_value(&settings).unwrap()).unwrap();
        assert_eq!(again.keys_expire_after, settings.keys_expire_after);
        assert_eq!(again.on_stop, OnStop::Clear);
        assert_eq!(again.foreign_lines_grace, Duration::ZERO);
        assert_eq!(AgentSettings::default().foreign_lines, ForeignLines::Remove);
    }

    #[test]
    fn durations_are_as_people_write_them() {
        for (text, seconds) in [
            ("90s", 90),
            ("1h30m", 5_400),
            ("1h 30m", 5_400),
            ("1.5h", 5_400),
            ("7d", 604_800),
            ("1d12h", 129_600),
            ("0s", 0),
        ] {
            let settings = read(json!({"foreignLinesGrace": text})).unwrap();
            assert_eq!(settings.foreign_lines_grace, Duration::from_secs(seconds), "{text}");
        }
        for text in [
            "",
            "7",
            "d",
            "-1d",
            "1dd",
            "1w",
            "99999999999999999999d",
            "18446744073709551615d",
        ] {
            assert!(read(json!({"foreignLinesGrace": text})).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wrong_value_says_what_is_allowed() {
        for (setting, value, words) in [
            ("keysExpireAfter", json!("11h"), "from 12h on"),
            ("keysExpireAfter", json!(72), "with units"),
            ("keysExpireAfter", json!("-72h"), "from 12h on"),
            ("foreignLinesGrace", json!(168), "with units"),
            ("foreignLinesGrace", json!("-1h"), "with units"),
            ("onStop", json!("stay"), "expected `keep` or `clear`"),
        ] {
            let error = read(json!({setting: value})).unwrap_err();
            assert!(error.contains(words), "{setting}: {error}");
        }
    }
}
