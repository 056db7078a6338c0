//! The agent's own settings.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidewaiter_kit::duration;

pub use crate::authorized_keys::ForeignLines;
use crate::break_glass::DEFAULT_FOLDER;
use crate::host::Owner;
pub use crate::upgrade::CoordinatorSettings;
use crate::user_controller::expiry::MIN_EXPIRY;

mod folders;

pub use folders::FolderError;
use folders::folder;

/// For longer, a duration is meant as "for ever": `foreignLines: keep`, or no `keysExpireAfter`.
const MAX_EXPIRY: Duration = Duration::from_hours(365 * 24);

/// Settings that exclude each other.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The folders of the host.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The owner of the folder could write a script that runs as root.
    #[error("upgrades is enabled, and ownerUid is {0}: set ownerUid to 0, or upgrades to disabled")]
    Owner(u32),
}

/// The treatment of the users' keys when the agent stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnStop {
    /// They stay, so that a roll-out or a reboot locks nobody out.
    #[default]
    Keep,
    /// They are removed: for an uninstallation.
    Clear,
}

/// The setting for offering the scripts of upgrades to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Upgrades {
    /// The scripts are not offered.
    #[default]
    Disabled,
    /// The scripts are offered when it is the turn of this node.
    Enabled,
}

/// The settings of the agent, besides those of every role.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct AgentSettings {
    /// The name of the node; else the variable `NODE_NAME`, which the chart sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The agent's folder on the host. It has the same path in the agent's container.
    #[serde(deserialize_with = "folder")]
    pub folder: String,
    /// The user id of the owner of the files: root, or the account as which users log in.
    #[serde(deserialize_with = "id")]
    pub owner_uid: u32,
    /// The group id of the owner.
    #[serde(deserialize_with = "id")]
    pub owner_gid: u32,
    /// The treatment of the users' keys when the agent stops.
    pub on_stop: OnStop,
    /// The treatment of lines that are not the agent's.
    pub foreign_lines: ForeignLines,
    /// The time for which the foreign lines stay that the first agent on a host finds, from `0s` to `365d`.
    #[serde(deserialize_with = "grace", serialize_with = "seconds")]
    pub foreign_lines_grace: Duration,
    /// The folder with what the agent remembers. Only root of the host can write it. It has the same path in the
    /// agent's container.
    #[serde(deserialize_with = "folder")]
    pub state_folder: String,
    /// The folder with what root has pinned on the host. The agent's container can only read it, under the same path.
    #[serde(deserialize_with = "folder")]
    pub pinned_folder: String,
    /// The time for which keys stay that the mirror of the cloud does not confirm, from `12h` to `365d`, except
    /// break-glass keys. A start of the agent confirms. Without it, they stay.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "expiry",
        serialize_with = "duration_text"
    )]
    pub keys_expire_after: Option<Duration>,
    /// The setting for offering the scripts of upgrades to the host. `enabled` needs `ownerUid: 0`.
    pub upgrades: Upgrades,
    /// The coordinator that sends the scripts of upgrades.
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
    /// Settings that exclude each other.
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

/// The kernel takes the last number for none.
fn id<'de, D: Deserializer<'de>>(value: D) -> Result<u32, D::Error> {
    let id = u32::deserialize(value)?;
    if id == u32::MAX {
        return Err(D::Error::custom(format!("must be a number from 0 to {}", u32::MAX - 1)));
    }
    Ok(id)
}

fn expiry<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<Written>::deserialize(value)?;
    let permitted = MIN_EXPIRY..=MAX_EXPIRY;
    let words = "from 12h to 365d, for example 3d or 72h; leave it out, and keys do not expire";
    let read = text.map(|Written(text)| duration::within(&text, &permitted, words));
    read.transpose().map_err(D::Error::custom)
}

fn grace<'de, D: Deserializer<'de>>(value: D) -> Result<Duration, D::Error> {
    let Written(text) = Written::deserialize(value)?;
    let permitted = Duration::ZERO..=MAX_EXPIRY;
    let words = "from 0s (none) to 365d, for example 7d or 1h30m";
    duration::within(&text, &permitted, words).map_err(D::Error::custom)
}

/// The text of a duration. What is none, for example a number, is its text as well, so that it is refused with what is
/// permitted.
struct Written(String);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(value)?;
        Ok(Self(value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
    }
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
    fn durations_have_bounds() {
        for (text, seconds) in [
            (json!("1h 30m"), 5_400),
            (json!("1w"), 604_800),
            (json!("365 days"), 31_536_000),
            (json!(0), 0),
        ] {
            let settings = read(json!({"foreignLinesGrace": text})).unwrap();
            assert_eq!(settings.foreign_lines_grace, Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(read(json!({"keysExpireAfter": null})).unwrap().keys_expire_after, None);
    }

    #[test]
    fn a_wrong_value_says_what_is_allowed() {
        for (setting, value, words) in [
            ("keysExpireAfter", json!("11h"), "from 12h to 365d"),
            ("keysExpireAfter", json!("366d"), "leave it out"),
            ("keysExpireAfter", json!(72), "with units"),
            ("keysExpireAfter", json!("-72h"), "from 12h to 365d"),
            ("foreignLinesGrace", json!("366d"), "from 0s (none) to 365d"),
            ("foreignLinesGrace", json!(null), "with units"),
            ("foreignLinesGrace", json!(168), "with units"),
            ("foreignLinesGrace", json!("-1h"), "with units"),
            ("ownerUid", json!(4_294_967_295_u32), "from 0 to 4294967294"),
            ("ownerGid", json!(4_294_967_295_u32), "from 0 to 4294967294"),
            ("coordinator", json!({"url": "ftp://x"}), "http or https"),
            ("onStop", json!("stay"), "expected `keep` or `clear`"),
        ] {
            let error = read(json!({setting: value})).unwrap_err();
            assert!(error.contains(words), "{setting}: {error}");
        }
    }
}
