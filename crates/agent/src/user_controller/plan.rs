//! The desired content of `authorized_keys`, and the changes that others made. Pure.

use std::borrow::Cow;

use crate::authorized_keys::{Desired, Format, Parts, added_keys, named};
use crate::host::{Found, FoundFile, Owner};

/// The mode of `authorized_keys`.
pub(crate) const MODE: u32 = 0o600;

const OTHER_LINES: &str = "has other lines than the agent wrote";

/// The file as the agent wrote it last.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastWritten {
    /// The former content.
    pub(crate) desired: Desired,
    /// The inode of the file.
    pub(crate) inode: u64,
}

/// The content to write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The new file; None when the file is as it should be.
    pub(crate) write: Option<Vec<u8>>,
    /// Changes that others made to the file since then, in words.
    pub(crate) tampering: Vec<String>,
    /// The lines of the file as it is.
    pub(crate) parts: Parts,
}

/// The desired file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) format: &'a Format,
    pub(crate) desired: &'a Desired,
    pub(crate) owner: Owner,
}

/// `last_written` is None in the first pass after a start: a change cannot be attributed yet. `late` has the lines
/// that were written to files after they had been replaced. A file that is too large is reported in the first pass as
/// well, because lines are removed that would have stayed.
pub(crate) fn plan(target: Target<'_>, found: &Found, last_written: Option<&LastWritten>, late: &[Parts]) -> Plan {
    let content = match found {
        Found::File(file) => file.content.as_slice(),
        Found::Absent | Found::Other(_) => &[],
    };
    let mut parts = target.format.parse(content);
    let excess = parts.excess();
    let mut tampering = Vec::new();
    let mut attributes = Vec::new();
    match found {
        Found::Absent => tampering.push("was removed or moved away".to_owned()),
        Found::Other(kind) => tampering.push(format!("was replaced by {kind}")),
        Found::File(file) => attributes = wrong_attributes(file, target.owner),
    }
    let mut wanted = target.format.render(&parts, target.desired);
    if let Some(last_written) = last_written {
        // Mostly nothing else is desired: then the lines are rendered once.
        let before = if last_written.desired.is(target.desired) {
            Cow::Borrowed(&wanted)
        } else {
            Cow::Owned(target.format.render(&parts, &last_written.desired))
        };
        if **before != *content && tampering.is_empty() {
            let what = || format!("{OTHER_LINES}{}", named(added_keys(parts.lines(), &before)));
            tampering.push(excess.clone().unwrap_or_else(what));
        }
    }
    if !late.is_empty() {
        for late in late {
            parts.merge(late);
        }
        wanted = target.format.render(&parts, target.desired);
        parts = target.format.parse(&wanted);
    }
    let is_right = matches!(found, Found::File(_)) && attributes.is_empty() && wanted == content;
    tampering.extend(attributes);
    if let (Found::File(file), Some(last_written), false) = (found, last_written, tampering.is_empty())
        && file.inode != last_written.inode
    {
        tampering.push(format!("is another file, of the user {}", file.owner.uid));
    }
    Plan {
        write: (!is_right).then_some(wanted),
        tampering: match last_written {
            Some(_) => tampering,
            None => excess.into_iter().collect(),
        },
        parts,
    }
}

/// The wrong owner, mode, names and flags. A second name would let its owner change the file out of our sight.
fn wrong_attributes(file: &FoundFile, owner: Owner) -> Vec<String> {
    let mut wrong = Vec::new();
    if file.owner != owner {
        wrong.push(format!("has the owner {}:{}", file.owner.uid, file.owner.gid));
    }
    if file.mode != MODE {
        wrong.push(format!("has the mode {:04o}", file.mode));
    }
    if file.links != 1 {
        wrong.push(format!("has {} names (hard links)", file.links));
    }
    if file.is_cut {
        wrong.push("has more than 8 MiB, of which the rest is removed".to_owned());
    }
    if file.is_locked {
        wrong.push("is immutable or append-only".to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests;
