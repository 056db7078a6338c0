//! The first look of an agent that has started.

use std::sync::Arc;
use std::time::Duration;

use super::super::brake::Brake;
use super::super::{break_glass_users, grace};
use super::state::State;
use super::{AuthorizedKeysFiles, KEYS, SCRIPT, SCRIPTS, SSH};
use crate::host::{Found, HostError};

impl AuthorizedKeysFiles {
    /// Reads who can log in, if the file is one that the agent wrote, and removes what a killed agent left.
    pub(super) fn begin(&self, state: &mut State, now: Duration) -> Result<(), HostError> {
        if let Some(scripts) = self.host.look(&SCRIPTS).ok().flatten()
            && let Some(folder) = scripts.last()
        {
            self.host.sweep(folder, SCRIPT)?;
        }
        if let Some(record) = self.record.look(&[]).ok().flatten()
            && let Some(folder) = record.last()
        {
            for file in [grace::FILE, break_glass_users::FILE] {
                self.record.sweep(folder, file)?;
            }
        }
        // A link in place of a folder is put right by the first pass that knows the users.
        if let Some(ssh) = self.host.look(&SSH).ok().flatten()
            && let Some(folder) = ssh.last()
        {
            self.host.sweep(folder, KEYS)?;
            if let Ok(Found::File(file)) = self.host.find(folder, KEYS) {
                let parts = self.format.parse(&file.content);
                let logins = Arc::new(self.format.logins(&parts));
                let is_ours = self.format.is_intact(&file.content, &parts, &logins);
                state.accepted = (is_ours && !logins.is_empty()).then(|| Arc::clone(&logins));
                state.brake = Brake::new(logins, now);
            }
        }
        state.is_swept = true;
        Ok(())
    }
}
