//! The users' files on the node: decides which users may log in, and writes the files.
//!
//! One lock is held during a whole pass, so that nothing is written after [`AuthorizedKeysFiles::stop`]. Calls block,
//! for as long as the disk does.

mod begin;
mod desired;
mod displaced;
mod keys;
mod state;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tidewaiter_api::node_report::BreakGlassUser;
use tidewaiter_kit::allowance::Allowance;
use tokio_util::sync::CancellationToken;

use super::brake::MirrorState;
use super::expiry::Expiry;
use super::plan::MODE;
use super::wanted::{Refused, Wanted};
use crate::authorized_keys::{Desired, ForeignKey, Format, Logins, Parts};
use crate::host::mount::{self, Mount};
use crate::host::{Found, Host, HostError, Opened, Prepared, Written};
use crate::login_script;
use crate::settings::{AgentSettings, OnStop};
use crate::watcher::Watcher;
use state::State;

const SSH: [&str; 2] = ["home", ".ssh"];
const KEYS: &str = "authorized_keys";
const SCRIPTS: [&str; 1] = ["scripts"];
const SCRIPT: &str = "containership_login.sh";

/// The number of times that a file is written again because somebody wrote it at the same moment.
const MAX_WRITE_ATTEMPTS: usize = 8;

/// The limit on restores: a writer that fights with the agent takes neither the processor nor the disk.
const RESTORES: Allowance = Allowance {
    burst: 50,
    refill: Duration::from_millis(200),
};

/// The users' files.
#[derive(Debug)]
pub(crate) struct AuthorizedKeysFiles {
    host: Host,
    format: Format,
    settings: AgentSettings,
    watcher: Watcher,
    /// The folder of the pinned keys.
    pins: Host,
    /// The folder of the agent's record.
    record: Host,
    state: Mutex<State>,
    /// The folders as they were mounted at the start; none outside a container.
    mounts: Vec<(String, Mount)>,
    /// Cancelled when the folder is not that of the host any more.
    lost: CancellationToken,
}

/// The input of a pass from the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// The logins that the Users request; None before their first list.
    pub(crate) wanted: Option<Arc<Wanted>>,
    pub(crate) mirror: MirrorState,
    /// Monotonic.
    pub(crate) now: Duration,
    /// The clock of the node.
    pub(crate) time: Timestamp,
}

/// The outcome of a pass.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The users that can log in; None when that is not known yet, and nothing was touched.
    pub(crate) logins: Option<Arc<Logins>>,
    pub(crate) refused: Vec<Refused>,
    /// True if the Users were listed. Before that, who could log in still can.
    pub(crate) is_listed: bool,
    /// True if the removal of many users waits for the mirror.
    pub(crate) is_held: bool,
    pub(crate) expiry: Expiry,
    /// Changes of others, in words. They are undone.
    pub(crate) tampering: Vec<String>,
    /// The lines of others that may let somebody log in.
    pub(crate) foreign_lines: usize,
    /// The keys in these lines.
    pub(crate) foreign_keys: Vec<ForeignKey>,
    /// The time when foreign lines that stay now are removed.
    pub(crate) foreign_until: Option<Timestamp>,
    /// The fingerprints of the break-glass keys in the file.
    pub(crate) break_glass: Vec<String>,
    /// The users that have one of them as a key of their own, or had it.
    pub(crate) break_glass_users: Vec<BreakGlassUser>,
    /// The last use of one of them, and which.
    pub(crate) break_glass_use: Option<(Timestamp, String)>,
    /// The reason why a file could only be overwritten in place.
    pub(crate) unplaced: Option<HostError>,
    /// The delay, if nothing was done because restores follow each other too fast.
    pub(crate) wait: Option<Duration>,
}

/// The folders of a pass.
struct Folders {
    ssh: Opened,
    scripts: Opened,
}

impl AuthorizedKeysFiles {
    /// The files as they are, at the monotonic time `now`.
    pub(crate) fn new(host: Host, settings: AgentSettings, watcher: Watcher, now: Duration) -> Self {
        let script = format!("{}/{}/{SCRIPT}", settings.folder, SCRIPTS[0]);
        Self {
            format: Format::new(&script),
            pins: Host::of_root(Path::new(&settings.pinned_folder)),
            record: Host::of_root(Path::new(&settings.state_folder)),
            mounts: [&settings.folder, &settings.pinned_folder, &settings.state_folder]
                .into_iter()
                .filter_map(|folder| Some((folder.clone(), mount::of(folder)?)))
                .collect(),
            lost: CancellationToken::new(),
            host,
            settings,
            watcher,
            state: Mutex::new(State::new(now)),
        }
    }

    /// The users that can log in, as far as the agent knows.
    pub(crate) fn accepted(&self) -> Arc<Logins> {
        self.state.lock().accepted.clone().unwrap_or_default()
    }

    /// Returns true if the first pass has read what the agent before left.
    pub(crate) fn has_begun(&self) -> bool {
        self.state.lock().is_swept
    }

    /// Cancelled when the folder on the host was moved or removed: the mount of a container follows the old one, which
    /// nobody reads any more.
    pub(crate) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    fn check_mounts(&self) -> Result<(), HostError> {
        let Some(folder) = mount::lost(&self.mounts) else {
            return Ok(());
        };
        self.lost.cancel();
        Err(HostError::Lost {
            path: folder.to_owned(),
        })
    }

    /// Writes the desired files. None after [`AuthorizedKeysFiles::stop`].
    pub(crate) fn pass(&self, input: &Input) -> Result<Option<Outcome>, HostError> {
        let mut state = self.state.lock();
        if state.is_stopped {
            return Ok(None);
        }
        self.check_mounts()?;
        if !state.is_swept {
            self.begin(&mut state, input.now)?;
        }
        state.now = input.now;
        let mut outcome = state.decide(input, self.settings.keys_expire_after);
        let restore = RESTORES.take(state.restores_full_at, input.now);
        outcome.wait = restore.err();
        let Some(logins) = outcome.logins.clone().filter(|_| outcome.wait.is_none()) else {
            return Ok(Some(outcome));
        };
        let desired = self.desired(&mut state, &logins, input.time)?;
        let parts = self.apply(&mut state, &desired, &mut outcome.tampering)?;
        outcome.unplaced = state.unplaced.take();
        outcome.tampering.extend(state.grace.take_problem());
        if !outcome.tampering.is_empty() {
            state.restores_full_at = restore.ok();
        }
        outcome.refused.extend(state.pinned.refused.iter().cloned());
        outcome.foreign_lines = parts.foreign().count();
        outcome.foreign_keys = parts.foreign().filter_map(ForeignKey::of).collect();
        outcome.foreign_until = state.grace.until().filter(|_| outcome.foreign_lines > 0);
        outcome.break_glass = desired.pinned.iter().map(|key| key.fingerprint.clone()).collect();
        outcome.break_glass_users = state
            .break_glass_users
            .update(&self.record, &logins, &outcome.break_glass);
        outcome.break_glass_use = self.break_glass_use(&state);
        Ok(Some(outcome))
    }

    /// True if a file differs from what the last pass left, once per pass: a write through a mapping is no event.
    pub(crate) fn is_changed(&self) -> bool {
        let mut state = self.state.lock();
        let is_changed = !state.is_stopped && state.written.iter().any(Written::is_changed);
        if is_changed {
            state.written.clear();
        }
        is_changed
    }

    /// Returns true if a key has ended at `time` since the last pass.
    pub(crate) fn is_end_due(&self, time: Timestamp) -> bool {
        let state = self.state.lock();
        !state.is_stopped && state.is_end_due(time)
    }

    /// Writes a copy of the file for the next time that somebody changes it: to restore the file then takes no time of
    /// the disk.
    pub(crate) fn prepare(&self) {
        let mut state = self.state.lock();
        let Some(inode) = state.last_written.as_ref().map(|file| file.inode) else {
            return;
        };
        if !state.is_stopped && state.copied_inode != inode {
            state.copied_inode = inode;
            state.copy = self.copy();
        }
    }

    /// The file as it is. The caller that uses the copy checks whether it is as wanted.
    fn copy(&self) -> Option<Prepared> {
        let ssh = self.host.look(&SSH).ok()??;
        let Found::File(file) = self.host.find(ssh.last()?, KEYS).ok()? else {
            return None;
        };
        self.host.prepare(ssh.last()?, &file.content, MODE).ok()
    }

    /// Ends all passes, and removes the users' keys if the settings say so.
    pub(crate) fn stop(&self, time: Timestamp) -> Result<(), HostError> {
        let mut state = self.state.lock();
        state.is_stopped = true;
        if self.settings.on_stop == OnStop::Clear {
            let desired = self.desired(&mut state, &Arc::default(), time)?;
            self.apply(&mut state, &desired, &mut Vec::new())?;
        }
        Ok(())
    }

    fn apply(&self, state: &mut State, desired: &Desired, tampering: &mut Vec<String>) -> Result<Parts, HostError> {
        let is_first = state.last_written.is_none();
        state.written.clear();
        state.unplaced = None;
        let mut found = Vec::new();
        let result = self.apply_all(state, desired, &mut found);
        // Before the first pass, a changed folder is no tampering. For the file, the plan decides.
        tampering.extend(found.into_iter().filter(|what| !is_first || what.starts_with(KEYS)));
        result
    }

    /// Adds the changes of others to `changes`.
    fn apply_all(&self, state: &mut State, desired: &Desired, changes: &mut Vec<String>) -> Result<Parts, HostError> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let folders = self.folders(changes)?;
            let pins = self.pins.look(&[]).ok().flatten();
            let watched = [&folders.ssh, &folders.scripts].into_iter().chain(&pins);
            let watched: Vec<&OwnedFd> = watched.flat_map(|it| &it.folders).collect();
            // Without watches, there is still a pass every minute.
            let watched = self.watcher.add_folders(&watched);
            let (Some(ssh), Some(scripts)) = (folders.ssh.last(), folders.scripts.last()) else {
                break;
            };
            let keys = self.apply_script(state, scripts, changes).and_then(|script| {
                let (parts, keys) = self.apply_keys(state, ssh, desired, changes)?;
                let files = [&script].into_iter().chain(&keys);
                let files: Vec<&OwnedFd> = files.chain(state.displaced.files()).collect();
                let settled = watched.and_then(|folders| self.watcher.settle(folders, &files));
                settled.map(|()| parts).map_err(not_watched)
            });
            match keys {
                Err(HostError::Mounted { path }) => {
                    let folder = if path == SCRIPT { &SCRIPTS[..] } else { &SSH };
                    let path = [folder, &[path.as_str()]].concat();
                    self.host.move_parent_aside(&path, changes)?;
                }
                result => return result,
            }
        }
        Err(HostError::Raced { path: KEYS.to_owned() })
    }

    fn folders(&self, changes: &mut Vec<String>) -> Result<Folders, HostError> {
        let mut ssh = self.host.ensure(&SSH)?;
        let mut scripts = self.host.ensure(&SCRIPTS)?;
        changes.append(&mut ssh.repairs);
        changes.append(&mut scripts.repairs);
        Ok(Folders { ssh, scripts })
    }

    /// Returns the script, open.
    fn apply_script(
        &self,
        state: &mut State,
        folder: &OwnedFd,
        changes: &mut Vec<String>,
    ) -> Result<OwnedFd, HostError> {
        let content = login_script::SCRIPT.as_bytes();
        let mut left = None;
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let found = self.host.find(folder, SCRIPT)?;
            let is_short = state.in_place.get(SCRIPT).is_some_and(|it| it.is_short(&found));
            let is_right = matches!(&found, Found::File(file) if file.content == content
                && (file.owner, file.mode, file.links) == (self.settings.owner(), login_script::MODE, 1)
                && !file.is_locked);
            if let Found::File(file) = found
                && (left.is_some() || is_right && !state.in_place.contains_key(SCRIPT))
            {
                state.has_script = true;
                let content = left.as_deref().unwrap_or(content);
                state.written.extend(Written::new(&file.fd, content));
                return Ok(file.fd);
            }
            let found = self.host.find(folder, SCRIPT)?;
            match self.host.replace(folder, SCRIPT, content, login_script::MODE, &found) {
                Ok(_) => drop(state.in_place.remove(SCRIPT)),
                Err(error) => {
                    let place = (folder, SCRIPT, login_script::MODE);
                    left = Some(self.overwrite(state, place, content, &found, error)?);
                }
            }
            if state.has_script && !is_right && !is_short {
                changes.push(format!("{SCRIPT} was not as the agent wrote it"));
            }
        }
        Err(HostError::Raced {
            path: SCRIPT.to_owned(),
        })
    }
}

/// The files are as they should be, and a pass that fails is retried every ten seconds: that is how others' changes
/// are found then.
fn not_watched(source: rustix::io::Errno) -> HostError {
    HostError::Unusable {
        path: "the agent's folder".to_owned(),
        problem: format!(
            "is right, and is read every ten seconds, because it cannot be watched ({source}): raise \
             fs.inotify.max_user_instances and fs.inotify.max_user_watches on the node"
        ),
    }
}

#[cfg(test)]
mod tests;
