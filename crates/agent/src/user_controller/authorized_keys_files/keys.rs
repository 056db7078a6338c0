//! Makes `authorized_keys` as it should be: in one step, or in place where there is no room for the next file.

use std::os::fd::OwnedFd;

use super::super::plan::{LastWritten, MODE, Plan, Target, plan};
use super::state::State;
use super::{AuthorizedKeysFiles, KEYS, MAX_WRITE_ATTEMPTS};
use crate::authorized_keys::{Desired, Parts};
use crate::host::{Found, HostError, Prepared, Replaced, Written};

/// A file that was overwritten in place.
#[derive(Debug)]
pub(super) struct InPlace {
    /// The desired content.
    content: Vec<u8>,
    /// The number of its bytes that fitted.
    kept: usize,
}

impl InPlace {
    /// Returns true if the file is as it was left.
    fn is_left(&self, found: &Found) -> bool {
        matches!(found, Found::File(file) if Some(&*file.content) == self.content.get(..self.kept))
    }

    /// Returns true if it lacks what did not fit into it, which nobody took from it.
    pub(super) fn is_short(&self, found: &Found) -> bool {
        self.kept < self.content.len() && self.is_left(found)
    }
}

impl AuthorizedKeysFiles {
    /// Returns the lines of the file, and the open file. A later change starts another pass, because the folder is
    /// watched.
    pub(super) fn apply_keys(
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
            mut write,
            tampering,
            mut parts,
        } = plan(target, &found, state.last_written.as_ref(), &late);
        let is_short = state.in_place.get(KEYS).is_some_and(|it| it.is_short(&found));
        let tampering = tampering.into_iter().filter(|_| !is_short);
        changes.extend(tampering.map(|what| format!("{KEYS} {what}")));
        if let (true, None, Found::File(file)) = (state.in_place.contains_key(KEYS), &write, &found) {
            write = Some(file.content.clone());
        }
        let written = match write {
            Some(content) => {
                let written = self.write_keys(state, folder, &content, &mut found, target, &mut late)?;
                parts = self.format.parse(&written);
                Some(written)
            }
            None => None,
        };
        state.displaced.merged(state.now);
        let file = match found {
            Found::File(file) => Some(file),
            Found::Absent | Found::Other(_) => None,
        };
        for late in &late {
            let now = file.as_ref().map_or(&[][..], |file| &file.content);
            let what = late.excess().or_else(|| state.displaced.tampering(late.lines(), now));
            changes.extend(what.map(|what| format!("{KEYS} {what}")));
        }
        state.last_written = Some(LastWritten {
            desired: desired.clone(),
            inode: file.as_ref().map_or(0, |file| file.inode),
        });
        let left = file.as_ref().and_then(|file| {
            let content = written.as_ref().unwrap_or(&file.content);
            Written::new(&file.fd, content)
        });
        state.written.extend(left);
        Ok((parts, file.map(|file| file.fd)))
    }

    /// Returns the written content. Updates `found` to the new file, and adds to `late` the lines that were written to
    /// the old one after it was read.
    fn write_keys(
        &self,
        state: &mut State,
        folder: &OwnedFd,
        content: &[u8],
        found: &mut Found,
        target: Target<'_>,
        late: &mut Vec<Parts>,
    ) -> Result<Vec<u8>, HostError> {
        let copy = state.copy.take();
        let (written, displaced) = match self.put(folder, content.to_vec(), copy, found, target, late) {
            Ok(put) => put,
            Err(error) => {
                let written = self.overwrite(state, (folder, KEYS, MODE), content, found, error)?;
                *found = self.host.find(folder, KEYS)?;
                return Ok(written);
            }
        };
        state.in_place.remove(KEYS);
        state.displaced.merged(state.now);
        let now = self.host.find(folder, KEYS)?;
        if let Found::File(file) = std::mem::replace(found, now) {
            let last = displaced.as_ref().unwrap_or(&file.content);
            if *last != file.content {
                late.push(self.format.parse(last));
            }
            state.displaced.push(file.fd, last, state.now);
        }
        Ok(written)
    }

    /// Handles a file that could not be replaced: corrects owner and mode, which needs no room on the disk, unless it
    /// has another link and is perhaps not ours. On a full disk, overwrites it with what fits, and returns that.
    pub(super) fn overwrite(
        &self,
        state: &mut State,
        (folder, name, mode): (&OwnedFd, &'static str, u32),
        content: &[u8],
        found: &Found,
        error: HostError,
    ) -> Result<Vec<u8>, HostError> {
        let Found::File(file) = found else { return Err(error) };
        if file.links != 1 {
            return Err(error);
        }
        let is_ours = file.owner == self.settings.owner();
        // It is an event, and would start a pass each time.
        if !is_ours || file.mode != mode {
            self.host.own(&file.fd, mode).ok();
        }
        let (true, true, HostError::Call { source, .. }) = (is_ours, error.class() == "full", &error) else {
            return Err(error);
        };
        let known = state.in_place.get(name);
        let known = known.filter(|it| it.content == content && it.is_left(found));
        let kept = match known {
            Some(known) => known.kept,
            None => self.host.overwrite(folder, name, file, content)?,
        };
        let path = name.to_owned();
        let (missing, source) = (content.len() - kept, *source);
        state.unplaced = Some(HostError::InPlace { path, missing, source });
        let content = content.to_vec();
        let written = content.get(..kept).unwrap_or_default().to_vec();
        state.in_place.insert(name, InPlace { content, kept });
        Ok(written)
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
        for _ in 0..MAX_WRITE_ATTEMPTS {
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
