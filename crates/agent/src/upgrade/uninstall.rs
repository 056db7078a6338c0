//! `tidewaiter host uninstall`: removes what `tidewaiter host install` has made, and the files of upgrades.
//!
//! - Not while a script or its way back runs, or is about to. None begins meanwhile, because this holds the lock.
//! - What is pinned goes first: a crash leaves a host that runs no script.
//! - It keeps `authorized_keys`, the break-glass keys, and the record of what was run: without the record, a script
//!   that ran would run again after the next installation, as long as its signature counts.
//! - It stops no unit, and does nothing where there is nothing.

use std::fs::File;
use std::path::PathBuf;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use tidewaiter_api::values::printable;

use super::install::UNITS;
use super::run::{self, SCRIPT};
use super::{files, former, trust};
use crate::host::{Host, HostError, Opened, is_aside, next_of};

/// The folder of systemd's links to units that are enabled, as their `[Install]` says.
const WANTED: &str = "multi-user.target.wants";

/// The removed parts.
#[derive(Debug)]
pub struct Uninstall {
    /// The folder that the agent shares.
    pub folder: PathBuf,
    /// The folder of what is pinned.
    pub pinned: PathBuf,
    /// The folder of the units.
    pub units: PathBuf,
    /// The folder of what the host remembers.
    pub state: PathBuf,
    /// The folder in which scripts run; None for `state`.
    pub script_folder: Option<PathBuf>,
}

/// The reason why it is not removed.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// A file of the host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A script runs.
    #[error(
        "an upgrade script runs on this node: wait until it has ended (journalctl -u tidewaiter-upgrade), and repeat this"
    )]
    Running,
    /// The way back of a script is to begin.
    #[error(
        "the last upgrade script has failed, and its way back has not begun: wait until it has ended (systemctl start \
         tidewaiter-upgrade-way-back starts it), and repeat this"
    )]
    WayBack,
}

impl Uninstall {
    /// Removes it. Returns what was removed, in words, one line for each file; none if there was nothing.
    ///
    /// # Errors
    /// When a script runs, and then nothing is removed; or when a file cannot be removed.
    pub fn uninstall(&self) -> Result<Vec<String>, UninstallError> {
        let _lock = self.lock()?;
        let pinned = Host::of_root(&self.pinned);
        let mut done = removed(&pinned, &[], trust::is_ours)?;
        let units = Host::of_root(&self.units);
        let is_unit = |name: &str| UNITS.iter().any(|(unit, _)| *unit == whole(name));
        done.extend(removed(&units, &[WANTED], is_unit)?);
        done.extend(removed(&units, &[], is_unit)?);
        let shared = Host::of_root(&self.folder);
        done.extend(former::discard(&shared, &[])?);
        done.extend(removed(&shared, &files::FOLDER, |name| !is_aside(name))?);
        done.extend(without_folder(&shared)?);
        for folder in [Some(&self.state), self.script_folder.as_ref()].into_iter().flatten() {
            done.extend(removed(&Host::of_root(folder), &[], |name| whole(name) == SCRIPT)?);
        }
        Ok(done)
    }

    /// None where nothing has run yet.
    fn lock(&self) -> Result<Option<File>, UninstallError> {
        let state = Host::of_root(&self.state);
        if state.look_if_there(&[])?.is_none() {
            return Ok(None);
        }
        match run::hold(&state)? {
            None => Err(UninstallError::Running),
            Some((_, true)) => Err(UninstallError::WayBack),
            Some((lock, false)) => Ok(Some(lock)),
        }
    }
}

/// The name of a file, also of one that was being written when its process was killed.
fn whole(name: &str) -> &str {
    next_of(name).unwrap_or(name)
}

/// Removes the files of a folder whose names are `ours`.
fn removed(host: &Host, path: &[&str], ours: impl Fn(&str) -> bool) -> Result<Vec<String>, HostError> {
    let opened = former::folders(host, path)?;
    let Some(folder) = opened.as_ref().and_then(Opened::last) else {
        return Ok(Vec::new());
    };
    let mut names = trust::entries(folder)?;
    names.retain(|name| ours(name));
    names.sort();
    let removed = names.iter().map(|name| {
        host.take_away(folder, name)?;
        let path = [path, &[name]].concat();
        Ok(format!("removed {}", printable(&host.path_of(&path))))
    });
    removed.collect()
}

/// Removes the folder of the scripts of upgrades, unless something is left in it.
fn without_folder(shared: &Host) -> Result<Option<String>, HostError> {
    let [parent, name] = files::FOLDER;
    let opened = shared.look_if_there(&[parent])?;
    let Some(folder) = opened.as_ref().and_then(Opened::last) else {
        return Ok(None);
    };
    let path = shared.path_of(&files::FOLDER);
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(Some(format!("removed {path}"))),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Some(format!(
            "kept {path}: look at the folders in it that are not of Tidewaiter, and remove it"
        ))),
        Err(source) => Err(HostError::call("removed", &path, source)),
    }
}
