//! `tidewaiter host keys`: which keys may sign the scripts that run on this host. All that are pinned count, so a new
//! key is added before the old one is removed.
//!
//! - The name of a key's file follows from the key, so no key is written over another one, and a crash loses none.
//! - The last key goes only when it is meant.

use std::path::Path;

use tidewaiter_signature::{TrustedKey, sha256};

use super::trust::{self, Trust, TrustError};
use crate::host::{Host, HostError, Opened, next_of};

const FILE_MODE: u32 = 0o644;

/// The reason why the keys are not changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The pinned values are unreadable.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// It is not pinned.
    #[error("the key {0} is not pinned on this node: tidewaiter host keys list shows those that are")]
    NotPinned(TrustedKey),
    /// Without it, no script runs.
    #[error(
        "{0} is the last key that is pinned on this node, so no upgrade script would run here any more: add the new key first \
         (tidewaiter host keys add FILE), or repeat this with --force"
    )]
    Last(TrustedKey),
}

impl From<HostError> for KeysError {
    fn from(error: HostError) -> Self {
        Self::Trust(error.into())
    }
}

/// The pinned keys, one line for each.
///
/// # Errors
/// When it cannot be read.
pub fn list(pinned: &Path) -> Result<Vec<String>, KeysError> {
    let host = Host::of_root(pinned);
    let trust = Trust::read(&host)?;
    let mut lines = vec![format!("cluster {}", trust.cluster()), format!("node {}", trust.node())];
    for (name, key) in trust::keys(&host)? {
        lines.push(format!(
            "key {key} with the id {} in {}",
            key.id(),
            host.path_of(&[&name])
        ));
    }
    if trust.permits_unsigned() {
        lines.push(unsigned(&host));
    }
    Ok(lines)
}

/// Pins keys beside those that are pinned. Returns what was done, in words.
///
/// # Errors
/// When nothing is pinned yet, or a file cannot be written.
pub fn add(pinned: &Path, keys: &[TrustedKey]) -> Result<Vec<String>, KeysError> {
    let host = Host::of_root(pinned);
    Trust::read(&host)?;
    let known = trust::keys(&host)?;
    let is_known = |key: &&TrustedKey| known.iter().any(|(_, known)| known == *key);
    let (there, new): (Vec<_>, Vec<_>) = keys.iter().partition(is_known);
    let mut done: Vec<_> = there
        .iter()
        .map(|key| format!("the key {key} is pinned already"))
        .collect();
    done.extend(write(&host, new)?);
    Ok(done)
}

/// Takes a key away. Returns what was done, in words.
///
/// # Errors
/// When it is not pinned, or is the last one and `force` is false, or a file cannot be removed.
pub fn remove(pinned: &Path, key: &TrustedKey, force: bool) -> Result<Vec<String>, KeysError> {
    let host = Host::of_root(pinned);
    Trust::read(&host)?;
    let (gone, left): (Vec<_>, Vec<_>) = trust::keys(&host)?.into_iter().partition(|(_, found)| found == key);
    if gone.is_empty() {
        return Err(KeysError::NotPinned(key.clone()));
    }
    if left.is_empty() && !force {
        return Err(KeysError::Last(key.clone()));
    }
    let mut done = take_away(&host, gone.into_iter().map(|(name, _)| name))?;
    if left.is_empty() {
        done.push("no key is pinned any more, so no script with a signature runs on this node".to_owned());
    }
    Ok(done)
}

/// Pins exactly these keys: the others are removed when these are there.
pub(super) fn replace(host: &Host, keys: &[TrustedKey]) -> Result<Vec<String>, HostError> {
    let mut done = write(host, keys.iter())?;
    let Some(folder) = host.trusted_folder()? else {
        return Ok(done);
    };
    let names: Vec<_> = keys.iter().map(file_name).collect();
    let others = trust::names(&folder)?.into_iter().filter(|name| !names.contains(name));
    done.extend(take_away(host, others)?);
    Ok(done)
}

fn write<'a>(host: &Host, keys: impl IntoIterator<Item = &'a TrustedKey>) -> Result<Vec<String>, HostError> {
    let mut done = Vec::new();
    for key in keys {
        let path = put(
            host,
            &file_name(key),
            &format!("untrusted comment: minisign public key\n{key}\n"),
        )?;
        done.push(format!(
            "wrote {path}: scripts that the key {key} signs may run as root"
        ));
    }
    Ok(done)
}

fn take_away(host: &Host, names: impl Iterator<Item = String>) -> Result<Vec<String>, HostError> {
    let opened = host.look(&[])?;
    let Some(folder) = opened.as_ref().and_then(Opened::last) else {
        return Ok(Vec::new());
    };
    let removed = names.map(|name| {
        host.take_away(folder, &name)?;
        let path = host.path_of(&[&name]);
        Ok(format!(
            "removed {path}: scripts that this key signed do not run any more"
        ))
    });
    removed.collect()
}

/// Writes a file of what is pinned, and returns its path.
pub(super) fn put(host: &Host, name: &str, text: &str) -> Result<String, HostError> {
    host.write_trusted(name, text.as_bytes(), FILE_MODE)?;
    Ok(host.path_of(&[name]))
}

/// Removes what an installation that was killed has left of the files that are `ours` under other names.
pub(super) fn sweep(host: &Host, ours: impl Fn(&str) -> bool) -> Result<(), HostError> {
    let opened = host.look(&[])?;
    let Some(folder) = opened.as_ref().and_then(Opened::last) else {
        return Ok(());
    };
    for name in trust::entries(folder)? {
        if next_of(&name).is_some_and(&ours) {
            host.take_away(folder, &name)?;
        }
    }
    Ok(())
}

/// The notice about the file that permits scripts without a signature.
pub(super) fn unsigned(host: &Host) -> String {
    let path = host.path_of(&[trust::UNSIGNED]);
    format!("{path} permits scripts without a signature: remove it when all scripts are signed")
}

fn file_name(key: &TrustedKey) -> String {
    let digest = sha256(key.to_string().as_bytes());
    format!("key-{}{}", digest.get(..16).unwrap_or(&digest), trust::KEY)
}
