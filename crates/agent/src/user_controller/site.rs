//! The users' files on the node: decides who may log in, and makes the files so.
//!
//! One lock is around a whole pass, so that nothing is written after the agent was told to stop. Calls block, for as long as the disk does.

mod begin;
mod desired;
mod displaced;
mod state;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::brake::MirrorState;
use super::expiry::Expiry;
use super::plan::{Left, MODE, Plan, Target, plan};
use super::wanted::{Refused, Wanted};
use crate::authorized_keys::{Desired, ForeignKey, Format, Logins, Parts};
use crate::host::mount::{self, Mount};
use crate::host::{Found, Host, HostError, Opened, Prepared, Replaced};
use crate::login_script;
use crate::settings::{AgentSettings, OnStop};
use crate::watcher::Watcher;
use state::State;

const SSH: [&str; 2] = ["home", ".ssh"];
const KEYS: &str = "authorized_keys";
const SCRIPTS: [&str; 1] = ["scripts"];
const SCRIPT: &str = "containership_login.sh";

/// How often a file is written again because somebody wrote it at the same moment.
const RACES: usize = 8;

/// The users' files.
#[derive(Debug)]
pub(crate) struct Site {
    host: Host,
    format: Format,
    settings: AgentSettings,
    watcher: Watcher,
    /// What root has pinned.
    pins: Host,
    /// What the agent remembers.
    record: Host,
    state: Mutex<State>,
    /// The folders as they were mounted at the start; none outside a container.
    mounts: Vec<(String, Mount)>,
    /// Cancelled when the folder is not that of the host any more.
    lost: CancellationToken,
}

/// What a pass knows of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// What the Users ask for; None before their first list.
    pub(crate) wanted: Option<Arc<Wanted>>,
    pub(crate) mirror: MirrorState,
    /// Monotonic.
    pub(crate) now: Duration,
    /// The clock of the node.
    pub(crate) time: Timestamp,
}

/// What a pass did.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Who can log in; None when that is not known yet, and nothing was touched.
    pub(crate) logins: Option<Arc<Logins>>,
    pub(crate) refused: Vec<Refused>,
    /// Whether the Users were listed. Before that, who could log in still can.
    pub(crate) is_listed: bool,
    /// Whether the removal of many users waits for the mirror.
    pub(crate) is_held: bool,
    pub(crate) expiry: Expiry,
    /// What others had changed, in words. It is undone.
    pub(crate) tampering: Vec<String>,
    /// The lines of others that may let somebody log in.
    pub(crate) foreign_lines: usize,
    /// The keys in these lines.
    pub(crate) foreign_keys: Vec<ForeignKey>,
    /// When foreign lines that stay now are removed.
    pub(crate) foreign_until: Option<Timestamp>,
    /// The fingerprints of the break-glass keys in the file.
    pub(crate) break_glass: Vec<String>,
    /// The last use of one of them, and which.
    pub(crate) break_glass_use: Option<(Timestamp, String)>,
    /// Nothing was done, because restores follow each other too fast.
    pub(crate) wait: Option<Duration>,
}

/// The folders of a pass.
struct Folders {
    ssh: Opened,
    scripts: Opened,
}

impl Site {
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

    /// Who can log in, as far as the agent knows.
    pub(crate) fn accepted(&self) -> Arc<Logins> {
        self.state().accepted.clone().unwrap_or_default()
    }

    /// Whether the first pass has read what the agent before left.
    pub(crate) fn has_begun(&self) -> bool {
        self.state().is_swept
    }

    /// Cancelled when the folder on the host was moved or removed: the mount of a container follows the old one, which nobody reads any more.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the files as they should be. None after [`Site::stop`].
    pub(crate) fn pass(&self, input: &Input) -> Result<Option<Outcome>, HostError> {
        let mut state = self.state();
        if state.is_stopped {
            return Ok(None);
        }
        self.check_mounts()?;
        if !state.is_swept {
            self.begin(&mut state, input.now)?;
        }
        state.now = input.now;
        let mut outcome = state.decide(input, self.settings.keys_expire_after);
        outcome.wait = state.pace.wait(input.now);
        let Some(logins) = outcome.logins.clone().filter(|_| outcome.wait.is_none()) else {
            return Ok(Some(outcome));
        };
        let desired = self.desired(&mut state, &logins, input.time)?;
        let parts = self.apply(&mut state, &desired, &mut outcome.tampering)?;
        outcome.tampering.extend(state.grace.take_problem());
        if !outcome.tampering.is_empty() {
            state.pace.count(input.now);
        }
        outcome.refused.extend(state.pinned.refused.iter().cloned());
        outcome.foreign_lines = parts.foreign().count();
        outcome.foreign_keys = parts.foreign().filter_map(ForeignKey::of).collect();
        outcome.foreign_until = state.grace.until().filter(|_| outcome.foreign_lines > 0);
        outcome.break_glass = desired.pinned.iter().map(|key| key.fingerprint.clone()).collect();
        outcome.break_glass_use = self.break_glass_use(&state);
        Ok(Some(outcome))
    }

    /// Writes a copy of the file for the next time that somebody changes it: to restore the file then takes no time of the disk.
    pub(crate) fn prepare(&self) {
        let mut state = self.state();
        let Some(inode) = state.left.as_ref().map(|left| left.inode) else {
            return;
        };
        if !state.is_stopped && state.copied_inode != inode {
            state.copied_inode = inode;
            state.copy = self.copy();
        }
    }

    /// The file as it is. Whoever uses the copy looks whether it is as wanted.
    fn copy(&self) -> Option<Prepared> {
        let ssh = self.host.look(&SSH).ok()??;
        let Found::File(file) = self.host.find(ssh.last()?, KEYS).ok()? else {
            return None;
        };
        self.host.prepare(ssh.last()?, &file.content, MODE).ok()
    }

    /// Ends all passes, and removes the users' keys if the settings say so.
    pub(crate) fn stop(&self, time: Timestamp) -> Result<(), HostError> {
        let mut state = self.state();
        state.is_stopped = true;
        if self.settings.on_stop == OnStop::Clear {
            let desired = self.desired(&mut state, &Arc::default(), time)?;
            self.apply(&mut state, &desired, &mut Vec::new())?;
        }
        Ok(())
    }

    fn apply(&self, state: &mut State, desired: &Desired, tampering: &mut Vec<String>) -> Result<Parts, HostError> {
        let is_first = state.left.is_none();
        let mut found = Vec::new();
        let result = self.apply_all(state, desired, &mut found);
        // Nobody knows who made the folders so. Of the file, the plan tells what counts.
        tampering.extend(found.into_iter().filter(|what| !is_first || what.starts_with(KEYS)));
        result
    }

    /// `changes` gets what others had changed.
    fn apply_all(&self, state: &mut State, desired: &Desired, changes: &mut Vec<String>) -> Result<Parts, HostError> {
        for _ in 0..RACES {
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
        for _ in 0..RACES {
            let found = self.host.find(folder, SCRIPT)?;
            if let Found::File(file) = found
                && file.content == login_script::SCRIPT.as_bytes()
                && (file.owner, file.mode, file.links) == (self.settings.owner(), login_script::MODE, 1)
                && !file.is_locked
            {
                state.has_script = true;
                return Ok(file.fd);
            }
            let found = self.host.find(folder, SCRIPT)?;
            let content = login_script::SCRIPT.as_bytes();
            self.host.replace(folder, SCRIPT, content, login_script::MODE, &found)?;
            if state.has_script {
                changes.push(format!("{SCRIPT} was not as the agent wrote it"));
            }
        }
        Err(HostError::Raced {
            path: SCRIPT.to_owned(),
        })
    }

    /// Returns the file's lines, and the file, open. What somebody changes after the look starts another pass, because the folder is watched.
    fn apply_keys(
        &self,
        state: &mut State,
        folder: &OwnedFd,
        desired: &Desired,
        changes: &mut Vec<String>,
    ) -> Result<(Parts, Option<OwnedFd>), HostError> {
        let target = Target {
            format: &self.format,
            desired,
            owner: self.settings.owner(),
        };
        let mut found = self.host.find(folder, KEYS)?;
        let mut late = state.displaced.late(&self.host, &self.format, state.now);
        let Plan {
            write,
            tampering,
            mut parts,
        } = plan(target, &found, state.left.as_ref(), &late);
        changes.extend(tampering.into_iter().map(|what| format!("{KEYS} {what}")));
        if let Some(content) = write {
            let copy = state.copy.take();
            let displaced = match self.put(folder, content, copy, &found, target, &late) {
                Ok((written, displaced)) => {
                    parts = self.format.parse(&written);
                    displaced
                }
                Err(error) => {
                    // Owner and mode need no space on the disk: nobody else may write the file meanwhile. One with
                    // another name is perhaps not ours.
                    if let Found::File(file) = &found
                        && file.links == 1
                    {
                        self.host.own(&file.fd, MODE).ok();
                    }
                    return Err(error);
                }
            };
            state.displaced.merged(state.now);
            let now = self.host.find(folder, KEYS)?;
            if let Found::File(file) = std::mem::replace(&mut found, now) {
                let last = displaced.as_ref().unwrap_or(&file.content);
                if *last != file.content {
                    late.push(self.format.parse(last));
                }
                state.displaced.push(file.fd, last, state.now);
            }
        } else {
            state.displaced.merged(state.now);
        }
        let file = match found {
            Found::File(file) => Some(file),
            Found::Absent | Found::Other(_) => None,
        };
        for late in &late {
            let now = file.as_ref().map_or(&[][..], |file| &file.content);
            let what = late.excess().or_else(|| state.displaced.tampering(late.lines(), now));
            changes.extend(what.map(|what| format!("{KEYS} {what}")));
        }
        state.left = Some(Left {
            desired: desired.clone(),
            inode: file.as_ref().map_or(0, |file| file.inode),
        });
        Ok((parts, file.map(|file| file.fd)))
    }

    /// Writes the file, and once more when somebody wrote lines to the old one after it was read. Returns what it
    /// wrote, and what the file had that was there.
    fn put(
        &self,
        folder: &OwnedFd,
        mut content: Vec<u8>,
        mut copy: Option<Prepared>,
        found: &Found,
        target: Target<'_>,
        late: &[Parts],
    ) -> Result<(Vec<u8>, Option<Vec<u8>>), HostError> {
        let mut later;
        let mut found = found;
        let mut displaced = None;
        for _ in 0..RACES {
            let replaced = match copy.take() {
                Some(copy) => self.host.replace_with(folder, KEYS, &content, &copy, found),
                None => self.host.replace(folder, KEYS, &content, MODE, found),
            }?;
            let (Replaced::File(old), Found::File(read)) = (replaced, found) else {
                break;
            };
            let mut parts = self.format.parse(&old);
            for late in late {
                parts.merge(late);
            }
            let merged = self.format.render(&parts, target.desired);
            let is_same = old == read.content || merged == content;
            displaced.get_or_insert(old);
            if is_same {
                break;
            }
            content = merged;
            later = self.host.find(folder, KEYS)?;
            found = &later;
        }
        Ok((content, displaced))
    }
}

/// The files are as they should be, and a pass that fails is tried again every ten seconds: that is how others' changes
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
