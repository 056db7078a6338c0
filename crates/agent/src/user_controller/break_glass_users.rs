//! The users who have, or had, a pinned break-glass key as their own, for the `NodeReport`.
//!
//! The record is on the host: a `NodeReport` goes with its Node, and a Node that registers again has another one, of
//! another agent. Nobody logs in by this record, so an invalid one is replaced, and one that cannot be
//! written is written by a later pass.

use tidewaiter_api::node_report::{BreakGlassUser, MOST_NAMED};
use tidewaiter_kit::Chain;
use tracing::warn;

use crate::authorized_keys::Logins;
use crate::host::{Host, HostError};

/// The file of the record.
pub(super) const FILE: &str = "break-glass-users.json";

const FILE_MODE: u32 = 0o600;

/// The record, once it was read.
#[derive(Debug, Default)]
pub(super) struct BreakGlassUsers(Option<Vec<BreakGlassUser>>);

impl BreakGlassUsers {
    /// Updates the record, and returns the users of the keys with the `pinned` fingerprints: existing users first.
    pub(super) fn update(&mut self, host: &Host, logins: &Logins, pinned: &[String]) -> Vec<BreakGlassUser> {
        if pinned.is_empty() && self.0.is_none() {
            return Vec::new();
        }
        let recorded = self.0.get_or_insert_with(|| {
            read(host).unwrap_or_else(|error| {
                warn!(error = %Chain(&error), "the users of break-glass keys are not known from before");
                Vec::new()
            })
        });
        let keys = logins
            .iter()
            .flat_map(|(id, keys)| keys.iter().map(move |key| (id, key)));
        let present = keys.filter(|(_, key)| pinned.contains(&key.fingerprint));
        let mut users: Vec<_> = present
            .map(|(id, key)| BreakGlassUser {
                fingerprint: key.fingerprint.clone(),
                user: id.to_string(),
            })
            .collect();
        let gone = recorded.iter().filter(|user| pinned.contains(&user.fingerprint));
        let gone: Vec<_> = gone.filter(|user| !users.contains(user)).cloned().collect();
        users.extend(gone);
        users.truncate(MOST_NAMED);
        if users != *recorded {
            match write(host, &users) {
                Ok(()) => recorded.clone_from(&users),
                Err(error) => warn!(error = %Chain(&error), "the users of break-glass keys are not recorded"),
            }
        }
        users
    }
}

fn read(host: &Host) -> Result<Vec<BreakGlassUser>, HostError> {
    let content = host.read_trusted(FILE)?;
    content.map_or(Ok(Vec::new()), |content| {
        let read = serde_json::from_slice(&content);
        read.map_err(|error| HostError::unusable(FILE, format!("is damaged ({error})")))
    })
}

fn write(host: &Host, users: &[BreakGlassUser]) -> Result<(), HostError> {
    host.write_trusted(FILE, &serde_json::to_vec(users).unwrap_or_default(), FILE_MODE)
}
