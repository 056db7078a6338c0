//! The desired lines of `authorized_keys` besides the users' keys: the pinned keys, and the foreign lines that stay.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use rustix::io::Errno;

use super::super::wanted::Refused;
use super::state::State;
use super::{AuthorizedKeysFiles, KEYS, SCRIPTS, SSH};
use crate::authorized_keys::{Desired, ForeignLines, LoginKey, Logins};
use crate::break_glass;
use crate::host::{Found, FoundFile, HostError, Opened};
use crate::login_script::BREAK_GLASS_USE;

/// The pinned keys, as they were last read.
#[derive(Debug, Default)]
pub(super) struct Pinned {
    content: Vec<u8>,
    pub(super) keys: Arc<Vec<LoginKey>>,
    /// The lines that do not count.
    pub(super) refused: Vec<Refused>,
}

impl Pinned {
    fn update(&mut self, content: Vec<u8>) {
        if content == self.content {
            return;
        }
        let (keys, wrong) = break_glass::parse(&content);
        let refused = wrong.into_iter().map(|(line, rule)| Refused {
            user: break_glass::FILE.to_owned(),
            key: format!("line {line}"),
            reason: format!("the pinned key {rule}"),
        });
        *self = Self {
            content,
            keys: keys.into(),
            refused: refused.collect(),
        };
    }
}

impl AuthorizedKeysFiles {
    /// For these users. What is pinned cannot be read, or the grace cannot be recorded: then the file stays as it is.
    pub(super) fn desired(
        &self,
        state: &mut State,
        logins: &Arc<Logins>,
        time: Timestamp,
    ) -> Result<Desired, HostError> {
        let content = self.pins.read_trusted(break_glass::FILE)?.unwrap_or_default();
        state.pinned.update(content);
        let mut desired = Desired {
            logins: Arc::clone(logins),
            known: state.accepted.clone().unwrap_or_else(|| Arc::clone(logins)),
            pinned: Arc::clone(&state.pinned.keys),
            kept: Arc::clone(&state.all),
        };
        if self.settings.foreign_lines == ForeignLines::Remove {
            let length = self.settings.foreign_lines_grace;
            let found = || self.foreign_digests(&desired);
            desired.kept = state.grace.kept(&self.record, length, time, found)?;
        }
        Ok(desired)
    }

    fn foreign_digests(&self, desired: &Desired) -> Result<BTreeSet<String>, HostError> {
        let file = self.keys_file()?;
        Ok(file.map_or_else(BTreeSet::new, |file| self.format.parse(&file.content).digests(desired)))
    }

    /// `authorized_keys` as it is; None if there is none, or something else is in the place of it or of its folders.
    pub(super) fn keys_file(&self) -> Result<Option<FoundFile>, HostError> {
        let found = self.host.look(&SSH).and_then(|opened| {
            let ssh = opened.as_ref().and_then(Opened::last);
            ssh.map_or(Ok(Found::Absent), |ssh| self.host.find(ssh, KEYS))
        });
        match found {
            Ok(Found::File(file)) => Ok(Some(*file)),
            Ok(_)
            | Err(
                HostError::Mounted { .. }
                | HostError::Call {
                    source: Errno::LOOP | Errno::NOTDIR | Errno::XDEV,
                    ..
                },
            ) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The last use of a pinned key. A file that cannot be read tells of none.
    pub(super) fn break_glass_use(&self, state: &State) -> Option<(Timestamp, String)> {
        let scripts = self.host.look(&SCRIPTS).ok()??;
        match self.host.find(scripts.last()?, BREAK_GLASS_USE).ok()? {
            Found::File(file) => break_glass::last_use(&file.content, &state.pinned.keys),
            Found::Absent | Found::Other(_) => None,
        }
    }
}
