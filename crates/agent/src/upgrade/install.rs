//! `tidewaiter host install`: pins what the host trusts, and writes the units that run scripts. It starts nothing.
//!
//! - Everything is checked before anything is written: that nobody but root can exchange the programs that the units
//!   start and the folders that decide, that none of them is where the agent's container can write, and that everything
//!   can be written.
//! - What counts comes from the flags. What an earlier version has pinned in the agent's folder is removed, and not
//!   taken over.
//! - Each file is replaced in one step. An installation that was killed is completed by the next one, which also
//!   removes what has no name of its own yet.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tidewaiter_api::NodeName;
use tidewaiter_kit::SystemClock;
use tidewaiter_signature::TrustedKey;

use super::place::{
    FOLDER, PlaceError, STATE_FOLDER, check_agent, check_apart, check_executable, check_folder, check_program,
    check_writable,
};
use super::trust::{self, Trust, TrustError};
use super::{files, former, keys, run};
use crate::break_glass::{self, DEFAULT_FOLDER as DEFAULT_PINNED};
use crate::host::{Host, HostError, next_of};

/// The units, as files of the repository: with the paths of a default installation.
pub(super) const UNITS: [(&str, &str); 3] = [
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

/// The installation.
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
    /// The other folder that the agent's pod can write: its setting `stateFolder`.
    pub agent_state: PathBuf,
    /// The folder of what is pinned.
    pub pinned: PathBuf,
    /// The folder of the units.
    pub units: PathBuf,
    /// The folder of what the host remembers.
    pub state: PathBuf,
    /// The program that the units start.
    pub program: PathBuf,
    /// The kubelet, whose version counts; None for the one in the PATH of systemd.
    pub kubelet: Option<PathBuf>,
    /// The folder in which scripts run; None for `state`.
    pub script_folder: Option<PathBuf>,
}

/// The reason why it is not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A folder.
    #[error("{} cannot be created", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file of the host.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A path would be several words in a unit.
    #[error("{} must be an absolute path of letters, digits, '.', '_', '-' and '/', without '..'", .0.display())]
    Path(PathBuf),
    /// A place that cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A program that is another one.
    #[error("--{flag} {} is another program: with --version, it must print {expected}", path.display())]
    Program {
        /// The flag.
        flag: &'static str,
        /// The program.
        path: PathBuf,
        /// The text that it must print.
        expected: &'static str,
    },
    /// systemd does not read units there.
    #[error("--units {} is no folder: name the one in which systemd reads units, such as /etc/systemd/system", .0.display())]
    Units(PathBuf),
    /// A folder of the system, or of others.
    #[error("--pinned {} has files of others: name a folder of its own, such as /etc/tidewaiter/pinned", .0.display())]
    Pinned(PathBuf),
    /// A key that is no key.
    #[error("the key file {} {rule}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The rule that it violates.
        rule: String,
    },
    /// A file with a key.
    #[error("the key file {} cannot be read", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl From<HostError> for InstallError {
    fn from(error: HostError) -> Self {
        Self::Trust(error.into())
    }
}

/// Reads a file that minisign writes. It must not be in one of the agent's folders, where the agent's container could
/// exchange it.
///
/// # Errors
/// When it cannot be read, is no key, or is in one of these folders.
pub fn read_key(path: &Path, folder: &Path, agent_state: &Path) -> Result<TrustedKey, InstallError> {
    check_apart(path, folder, FOLDER)?;
    check_apart(path, agent_state, STATE_FOLDER)?;
    let text = std::fs::read_to_string(path).map_err(|source| InstallError::KeyFile {
        path: path.to_owned(),
        source,
    })?;
    trust::key(&text).map_err(|rule| InstallError::Key {
        path: path.to_owned(),
        rule,
    })
}

impl Install {
    /// Installs it again if it is installed. Returns what was done, in words, one line for each step.
    ///
    /// # Errors
    /// When it may not be installed so, and then nothing is written; or when a file cannot be written, and then what
    /// was written before stays.
    pub fn install(&self) -> Result<Vec<String>, InstallError> {
        self.install_in(at)
    }

    /// `at` opens a folder.
    pub(super) fn install_in(
        &self,
        at: impl Fn(&Path) -> Result<Host, InstallError>,
    ) -> Result<Vec<String>, InstallError> {
        let units = self.check()?;
        let shared = at(&self.folder)?;
        shared.ensure(&files::FOLDER)?;
        let pinned = at(&self.pinned)?;
        let mut done = self.pin(&pinned)?;
        let folder = at(&self.units)?;
        keys::sweep(&folder, |name| UNITS.iter().any(|(unit, _)| *unit == name))?;
        for (name, text) in units {
            done.push(format!("wrote {}", keys::put(&folder, name, &text)?));
        }
        done.extend(former::discard(&shared, &self.keys)?);
        Ok(done)
    }

    /// Returns the units, with their names.
    fn check(&self) -> Result<Vec<(&'static str, String)>, InstallError> {
        let (program, folder, pinned) = (plain(&self.program)?, plain(&self.folder)?, plain(&self.pinned)?);
        plain(&self.units)?;
        plain(&self.agent_state)?;
        let kubelet = self.kubelet.as_deref().map(plain).transpose()?;
        let script_folder = self.script_folder.as_deref().map(plain).transpose()?;
        let programs = [Some(&self.program), self.kubelet.as_ref()].into_iter().flatten();
        let places = [&self.pinned, &self.units, &self.state];
        let places = places.into_iter().chain(&self.script_folder);
        check_agent(&self.folder, &self.agent_state)?;
        for path in programs.clone().chain(places.clone()) {
            check_apart(path, &self.folder, FOLDER)?;
            check_apart(path, &self.agent_state, STATE_FOLDER)?;
        }
        for started in programs {
            check_program(started)?;
        }
        for place in places {
            check_folder(place)?;
        }
        check_writable(&self.folder)?;
        self.check_content()?;
        check_executable(self.script_folder.as_ref().unwrap_or(&self.state))?;

        let mut arguments = String::new();
        let is_other = self.pinned != Path::new(DEFAULT_PINNED);
        for (flag, path) in [
            ("pinned", is_other.then_some(pinned)),
            ("kubelet", kubelet),
            ("script-folder", script_folder),
        ] {
            if let Some(path) = path {
                arguments = format!("{arguments} --{flag} {path}");
            }
        }
        let units = UNITS.map(|(name, text)| {
            let text = text.replace(DEFAULT_FOLDER, folder).replace(DEFAULT_PROGRAM, program);
            // The end of the commands. What is added has no default in it that would be replaced.
            let end = format!(" --folder {folder}");
            (name, text.replace(&format!("{end}\n"), &format!("{end}{arguments}\n")))
        });
        Ok(units.into())
    }

    /// Checks that the programs and folders are what they are to be.
    fn check_content(&self) -> Result<(), InstallError> {
        let clock = SystemClock::shared();
        let other = |flag, path: &Path, expected| InstallError::Program {
            flag,
            path: path.to_owned(),
            expected,
        };
        let said = run::version_text(&self.program, &*clock);
        if said.is_none_or(|said| !said.starts_with("tidewaiter ")) {
            return Err(other("program", &self.program, "tidewaiter and its version"));
        }
        if let Some(kubelet) = &self.kubelet
            && run::kubelet_version(kubelet, &*clock).is_none()
        {
            return Err(other("kubelet", kubelet, "a version such as v1.36.3"));
        }
        if !self.units.is_dir() {
            return Err(InstallError::Units(self.units.clone()));
        }
        let folder = Host::of_root(&self.pinned).trusted_folder()?;
        let names = folder
            .map(|folder| trust::entries(&folder))
            .transpose()?
            .unwrap_or_default();
        // Keys of minisign alone may be somebody's own.
        let is_ours = |name: &String| {
            let is_key = name.ends_with(trust::KEY);
            trust::is_ours(name) && !is_key || next_of(name).unwrap_or(name) == break_glass::FILE
        };
        if !names.is_empty() && !names.iter().any(is_ours) {
            return Err(InstallError::Pinned(self.pinned.clone()));
        }
        Ok(())
    }

    fn pin(&self, pinned: &Host) -> Result<Vec<String>, InstallError> {
        keys::sweep(pinned, trust::is_ours)?;
        let mut done = Vec::new();
        for (name, value, what) in [
            (
                trust::CLUSTER,
                self.cluster.as_str(),
                "scripts for another cluster do not run",
            ),
            (trust::NODE, self.node.as_str(), "scripts for another node do not run"),
            (
                trust::FOLDER,
                plain(&self.folder)?,
                "the setting folder of the agent must be the same",
            ),
            (
                trust::STATE_FOLDER,
                plain(&self.agent_state)?,
                "the setting stateFolder of the agent must be the same",
            ),
        ] {
            let path = keys::put(pinned, name, &format!("{value}\n"))?;
            done.push(format!("wrote {path}: {value}; {what}"));
        }
        done.extend(keys::replace(pinned, &self.keys)?);
        if Trust::read(pinned)?.permits_unsigned() {
            done.push(keys::unsigned(pinned));
        }
        Ok(done)
    }
}

pub(super) fn at(folder: &Path) -> Result<Host, InstallError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|source| InstallError::Folder {
        path: folder.to_owned(),
        source,
    })?;
    Ok(Host::of_root(folder))
}

/// Units separate words by spaces, and have characters of their own.
fn plain(path: &Path) -> Result<&str, InstallError> {
    let is_plain = |text: &&str| {
        let permitted = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        text.starts_with('/') && text.chars().all(permitted) && text.split('/').all(|part| part != "..")
    };
    path.to_str()
        .filter(is_plain)
        .ok_or_else(|| InstallError::Path(path.to_owned()))
}
