//! The folders of the host that the agent may be given. `templates/checks.yaml` of the chart has the same rules,
//! because the kubelet mounts the folders before the agent starts.
//!
//! A folder says by its name that it is the agent's: no list of the system's own folders would be complete. A name has
//! no dot, so that none is a drop-in folder of a unit (`tidewaiter-upgrade.service.d`).

use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::AgentSettings;

/// Prefixes, one of which a part of the path has.
const OWN: [&str; 2] = ["containership", "tidewaiter"];

/// The folder of what root has pinned, and the name of that of what the host remembers and runs.
const OF_ROOT: (&str, &str) = ("/etc/tidewaiter", "tidewaiter-host");

/// Folders that the agent may not have together, or at all.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// The agent could change what runs as root.
    #[error(
        "{setting} is {folder:?}: what the host decides by is there, which the agent must not be able to write; use a folder such as \
         /etc/containership"
    )]
    OfRoot {
        /// The setting.
        setting: &'static str,
        /// Its value.
        folder: String,
    },
    /// Two of the folders are the same, or one is in the other.
    #[error(
        "{setting} is {folder:?}, and {other} is {with:?}: each needs a folder of its own, and none may be in another"
    )]
    Shared {
        /// The setting.
        setting: &'static str,
        /// Its value.
        folder: String,
        /// The other setting.
        other: &'static str,
        /// Its value.
        with: String,
    },
}

/// The path also becomes a part of a command in `authorized_keys`, in quotes.
pub(super) fn folder<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    let text = String::deserialize(value)?;
    let is_plain = |name: &str| {
        let permitted = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        !name.is_empty() && name.chars().all(permitted)
    };
    let is_own = |name: &str| OWN.iter().any(|own| name.starts_with(own));
    let names = text.strip_prefix('/').map(|names| names.split('/'));
    if names.is_some_and(|names| names.clone().all(is_plain) && names.clone().any(is_own)) {
        Ok(text)
    } else {
        Err(D::Error::custom(
            "must be a folder of the agent's own: an absolute path of letters, digits, '_', '-' and '/', in which a name begins with \
             containership or tidewaiter, for example /etc/containership",
        ))
    }
}

pub(super) fn check(settings: &AgentSettings) -> Result<(), FolderError> {
    let [folder, state, pinned] = [
        ("folder", &settings.folder),
        ("stateFolder", &settings.state_folder),
        ("pinnedFolder", &settings.pinned_folder),
    ];
    let (pinned_by_root, of_host) = OF_ROOT;
    for (setting, folder) in [folder, state] {
        let path = Path::new(folder);
        if path.starts_with(pinned_by_root) || path.iter().any(|name| name == of_host) {
            let folder = folder.clone();
            return Err(FolderError::OfRoot { setting, folder });
        }
    }
    for ((setting, folder), (other, with)) in [(state, folder), (pinned, folder), (pinned, state)] {
        if Path::new(folder).starts_with(with) || Path::new(with).starts_with(folder) {
            return Err(FolderError::Shared {
                setting,
                folder: folder.clone(),
                other,
                with: with.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(setting: &str, folder: &str) -> Result<AgentSettings, String> {
        serde_json::from_value(json!({setting: folder})).map_err(|error| error.to_string())
    }

    #[test]
    fn a_folder_is_the_agents_own_by_its_name() {
        for folder in [
            "/etc/containership",
            "/srv/tidewaiter-keys/a_b",
            "/mnt/disk/containership",
            "/tmp/tidewaiter-agent-x1/n",
        ] {
            read("folder", folder).unwrap();
        }
        for folder in [
            "",
            "/",
            "etc/containership",
            "/etc",
            "/proc",
            "/etc/containerd",
            "/var/lib/kubelet",
            "/home/admin",
            "/etc/containership/",
            "/etc//containership",
            "/etc/containership/../ssh",
            "/etc/systemd/system/tidewaiter-upgrade.service.d",
            "/etc/containership/a b",
            "/etc/containership\" x",
            "/etc/my-containership",
        ] {
            for setting in ["folder", "stateFolder", "pinnedFolder"] {
                let error = read(setting, folder).unwrap_err();
                assert!(
                    error.contains("must be a folder of the agent's own"),
                    "{folder}: {error}"
                );
            }
        }
    }

    #[test]
    fn what_root_decides_by_is_apart() {
        check(&AgentSettings::default()).unwrap();
        for (setting, folder) in [
            ("folder", "/etc/tidewaiter"),
            ("folder", "/etc/tidewaiter/pinned"),
            ("stateFolder", "/etc/tidewaiter/state"),
            ("folder", "/var/lib/tidewaiter-host"),
            ("stateFolder", "/opt/tidewaiter-host/scripts"),
        ] {
            let refused = check(&read(setting, folder).unwrap());
            let folder = folder.to_owned();
            assert_eq!(refused, Err(FolderError::OfRoot { setting, folder }));
        }
    }

    #[test]
    fn no_folder_is_in_another() {
        for (setting, folder, other) in [
            ("stateFolder", "/etc/containership", "folder"),
            ("stateFolder", "/etc/containership/state", "folder"),
            ("pinnedFolder", "/etc/containership/trust", "folder"),
            ("pinnedFolder", "/var/lib/tidewaiter-agent", "stateFolder"),
        ] {
            let error = check(&read(setting, folder).unwrap()).unwrap_err().to_string();
            let words = format!("{setting} is {folder:?}, and {other} is ");
            assert!(error.starts_with(&words), "{error}");
        }
        let above = json!({"folder": "/srv/tidewaiter/keys", "pinnedFolder": "/srv/tidewaiter"});
        assert!(check(&serde_json::from_value(above).unwrap()).is_err());
        let beside = json!({"folder": "/srv/tidewaiter", "pinnedFolder": "/srv/tidewaiter-pinned"});
        assert_eq!(check(&serde_json::from_value(beside).unwrap()), Ok(()));
    }
}
