//! What is to be written to `authorized_keys`, and what others did to it. Pure.

use std::sync::Arc;

use crate::authorized_keys::{ForeignLines, Format, Logins, Parts};
use crate::host::{Found, FoundFile, Owner};

/// The mode of `authorized_keys`.
pub(crate) const MODE: u32 = 0o600;

/// The file as the agent left it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Who could log in by it.
    pub(crate) logins: Arc<Logins>,
    /// Its break-glass lines when our lines were last intact.
    pub(crate) break_glass: Vec<Vec<u8>>,
    /// Which file it is.
    pub(crate) inode: u64,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The new file; None when the file is as it should be.
    pub(crate) write: Option<Vec<u8>>,
    /// What others did to the file that was left, in words.
    pub(crate) tampering: Vec<String>,
    /// The lines of the file as it should be.
    pub(crate) parts: Parts,
}

/// How the file should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) format: &'a Format,
    pub(crate) logins: &'a Arc<Logins>,
    pub(crate) foreign: ForeignLines,
    pub(crate) owner: Owner,
}

/// `left` is None for the first look after a start, when nobody knows who changed what.
pub(crate) fn plan(target: Target<'_>, found: &Found, left: Option<&Left>) -> Plan {
    let content = match found {
        Found::File(file) => file.content.as_slice(),
        Found::Absent | Found::Other(_) => &[],
    };
    let mut parts = target.format.parse(content);
    let mut tampering = Vec::new();
    let mut attributes = Vec::new();
    match found {
        Found::Absent => tampering.push("was removed or moved away".to_owned()),
        Found::Other(kind) => tampering.push(format!("was replaced by {kind}")),
        Found::File(file) => attributes = wrong_attributes(file, target.owner),
    }
    let mut wanted = target.format.render(&parts, target.logins, target.foreign);
    if let Some(left) = left {
        // Mostly the same users: then the lines are rendered once.
        let is_intact = if Arc::ptr_eq(&left.logins, target.logins) {
            wanted == content
        } else {
            target.format.render(&parts, &left.logins, target.foreign) == content
        };
        if !is_intact && tampering.is_empty() {
            tampering.push("has other lines than the agent wrote".to_owned());
        }
        if (!is_intact || content.is_empty()) && parts.restore_break_glass(&left.break_glass) {
            wanted = target.format.render(&parts, target.logins, target.foreign);
        }
    }
    let is_right = matches!(found, Found::File(_)) && attributes.is_empty() && wanted == content;
    tampering.extend(attributes);
    if let (Found::File(file), Some(left), false) = (found, left, tampering.is_empty())
        && file.inode != left.inode
    {
        tampering.push(format!("is another file, of the user {}", file.owner.uid));
    }
    Plan {
        write: (!is_right).then_some(wanted),
        tampering: left.map(|_| tampering).unwrap_or_default(),
        parts,
    }
}

/// What is wrong with owner, mode, names and flags. A second name would let its owner change the file out of our sight.
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
