//! Pins that earlier versions left in the folder that the agent's container can write.
//!
//! It is never taken over: anyone who had the agent could write it, too. What counts comes from the flags of
//! `tidewaiter host install` alone; what was there is shown and removed, so that nobody takes it for what counts.

use rustix::io::Errno;
use tidewaiter_api::values::printable;
use tidewaiter_signature::TrustedKey;

use super::trust;
use crate::host::{Found, Host, HostError, Opened};

/// Removes it from the agent's folder. `keys` are pinned now. Returns what was there, in words.
///
/// # Errors
/// When it cannot be removed.
pub(super) fn discard(shared: &Host, keys: &[TrustedKey]) -> Result<Vec<String>, HostError> {
    let opened = folders(shared, &[trust::FORMER])?;
    let Some([root, folder]) = opened.as_ref().map(|opened| opened.folders.as_slice()) else {
        return Ok(Vec::new());
    };
    let mut done = Vec::new();
    for name in trust::entries(folder)? {
        let path = printable(&shared.path_of(&[trust::FORMER, &name]));
        let key = match shared.find(folder, &name) {
            Ok(Found::File(file)) if name.ends_with(trust::KEY) => {
                trust::key(&String::from_utf8_lossy(&file.content)).ok()
            }
            _ => None,
        };
        let what = match key {
            Some(key) if keys.contains(&key) => format!("the key {key} is pinned in the new folder, by --key"),
            Some(key) => format!("the key {key} is not pinned in the new one, so scripts that it signs do not run"),
            None if name == trust::UNSIGNED => "scripts without a signature do not run any more".to_owned(),
            None => "it does not count any more".to_owned(),
        };
        shared.take_away(folder, &name)?;
        done.push(format!("removed {path}, which the agent's pod could write: {what}"));
    }
    shared.take_away(root, trust::FORMER)?;
    done.push(format!("removed {}", shared.path_of(&[trust::FORMER])));
    Ok(done)
}

/// The folders of `path`, if there are any. A link or a file in place of one is taken away: nobody keeps root from
/// removing what is there, and nothing behind a link is touched.
pub(super) fn folders(shared: &Host, path: &[&str]) -> Result<Option<Opened>, HostError> {
    match shared.look_if_there(path) {
        Err(HostError::Call {
            source: Errno::LOOP | Errno::NOTDIR,
            ..
        }) => shared.ensure(path).map(Some),
        opened => opened,
    }
}
