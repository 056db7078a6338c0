//! `tidewaiter host install`: pins what the host trusts, and writes the units that run scripts. It starts nothing. Nothing is written if a program that the
//! units start is one that somebody else than root can exchange.

mod programs;

use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tidewaiter_api::NodeName;
use tidewaiter_signature::TrustedKey;

use super::files::{self, FileError};
use super::run::own;
use super::trust::{self, TrustError};
use crate::host::{Host, HostError};
use programs::check_program;

/// The units, as files of the repository: with the paths of a default installation.
const UNITS: [(&str, &str); 3] = [
    (
        "tidewaiter-upgrade.path",
        include_str!("../../../../deploy/host/tidewaiter-upgrade.path"),
    ),
    (
        "tidewaiter-upgrade.service",
        include_str!("../../../../deploy/host/tidewaiter-upgrade.service"),
    ),
    (
        "tidewaiter-upgrade-way-back.service",
        include_str!("../../../../deploy/host/tidewaiter-upgrade-way-back.service"),
    ),
];

/// The paths in them.
const DEFAULT_PROGRAM: &str = "/usr/local/bin/tidewaiter";
const DEFAULT_FOLDER: &str = "/etc/containership";

/// The end of the commands in them.
const DEFAULT_ARGUMENTS: &str = " --folder /etc/containership";

/// What is installed.
#[derive(Debug)]
pub struct Install {
    /// The id of the cluster.
    pub cluster: String,
    /// The name of the Node.
    pub node: NodeName,
    /// The keys that may sign scripts.
    pub keys: Vec<TrustedKey>,
    /// The folder that the agent shares.
    pub folder: PathBuf,
    /// The folder of the units.
    pub units: PathBuf,
    /// The program that the units start.
    pub program: PathBuf,
    /// The kubelet, whose version counts; None for the one in the PATH of systemd.
    pub kubelet: Option<PathBuf>,
}

/// Why it is not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A folder.
    #[error("{} cannot be created", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file of the host.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A path would be several words in a unit.
    #[error("{} must be an absolute path of letters, digits, '.', '_', '-' and '/'", .0.display())]
    Path(PathBuf),
    /// A program is missing, or cannot be looked at.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A program is something else.
    #[error("{} is no file", .0.display())]
    NoFile(PathBuf),
    /// Somebody else than root can replace a program that the units start as root.
    #[error(
        "{} has the owner {uid} and the mode {mode:o}, so others than root could replace {}, which the units start as root: put it into a folder of \
         root, for example with install -o root -g root -m 0755 {} /usr/local/bin/, and use that one",
        part.display(), program.display(), program.display()
    )]
    Replaceable {
        /// The program, or a folder above it.
        part: PathBuf,
        /// The program.
        program: PathBuf,
        /// The owner of the part.
        uid: u32,
        /// Its permissions.
        mode: u32,
    },
}

impl From<HostError> for InstallError {
    fn from(error: HostError) -> Self {
        Self::Trust(error.into())
    }
}

impl From<FileError> for InstallError {
    fn from(error: FileError) -> Self {
        Self::Trust(error.into())
    }
}

impl Install {
    /// Installs it again if it is installed. Returns what was done, in words, one line for each step.
    ///
    /// # Errors
    /// When a file cannot be written. What was written before stays.
    pub fn install(&self) -> Result<Vec<String>, InstallError> {
        let (program, folder) = (plain(&self.program)?, plain(&self.folder)?);
        let kubelet = self.kubelet.as_deref().map(plain).transpose()?;
        for started in [Some(&self.program), self.kubelet.as_ref()].into_iter().flatten() {
            check_program(started)?;
        }
        let arguments = kubelet
            .map(|kubelet| format!(" --kubelet {kubelet}"))
            .unwrap_or_default();
        let mut done = Vec::new();
        let host = at(&self.folder)?;
        host.ensure(&files::FOLDER)?;
        self.pin(&host, &mut done)?;
        let units = at(&self.units)?;
        let opened = units.ensure(&[])?;
        for (name, text) in UNITS {
            let more = format!("{DEFAULT_ARGUMENTS}{arguments}\n");
            let text = text.replace(&format!("{DEFAULT_ARGUMENTS}\n"), &more);
            let text = text.replace(DEFAULT_PROGRAM, program).replace(DEFAULT_FOLDER, folder);
            if let Some(folder) = opened.last() {
                put(&units, folder, name, &text)?;
            }
            done.push(format!("wrote {}", self.units.join(name).display()));
        }
        Ok(done)
    }

    fn pin(&self, host: &Host, done: &mut Vec<String>) -> Result<(), InstallError> {
        let opened = host.ensure(&trust::FOLDER)?;
        let Some(folder) = opened.last() else {
            return Ok(());
        };
        let shown = |name: &str| self.folder.join(trust::FOLDER[0]).join(name).display().to_string();
        let node = self.node.as_str();
        for (name, value, what) in [
            (
                trust::CLUSTER,
                self.cluster.as_str(),
                "scripts for another cluster do not run",
            ),
            (trust::NODE, node, "scripts for another node do not run"),
        ] {
            put(host, folder, name, &format!("{value}\n"))?;
            done.push(format!("wrote {}: {value}; {what}", shown(name)));
        }
        let names: Vec<String> = (1..=self.keys.len())
            .map(|number| format!("key-{number}{}", trust::KEY))
            .collect();
        for (name, key) in names.iter().zip(&self.keys) {
            put(
                host,
                folder,
                name,
                &format!("untrusted comment: minisign public key\n{key}\n"),
            )?;
            done.push(format!(
                "wrote {}: scripts that the key {key} signs may run as root",
                shown(name)
            ));
        }
        for name in trust::names(folder)? {
            if !names.contains(&name) {
                host.take_away(folder, &name)?;
                done.push(format!(
                    "removed {}: scripts that this key signed do not run any more",
                    shown(&name)
                ));
            }
        }
        if trust::Trust::read(host)?.permits_unsigned() {
            done.push(format!(
                "{} permits scripts without a signature: remove it when all scripts are signed",
                shown(trust::UNSIGNED)
            ));
        }
        Ok(())
    }
}

fn at(folder: &Path) -> Result<Host, InstallError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|source| InstallError::Folder {
        path: folder.to_owned(),
        source,
    })?;
    Ok(own(folder))
}

fn put(host: &Host, folder: &OwnedFd, name: &str, text: &str) -> Result<(), HostError> {
    let found = host.find(folder, name)?;
    host.replace(folder, name, text.as_bytes(), 0o644, &found)?;
    Ok(())
}

/// Units separate words by spaces, and have characters of their own.
fn plain(path: &Path) -> Result<&str, InstallError> {
    let is_plain = |text: &&str| {
        let permitted = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        text.starts_with('/') && text.chars().all(permitted)
    };
    path.to_str()
        .filter(is_plain)
        .ok_or_else(|| InstallError::Path(path.to_owned()))
}
