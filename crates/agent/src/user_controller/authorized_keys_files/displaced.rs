//! Files that were in the place of `authorized_keys`. Anyone who has one open goes on writing to it: an editor empties
//! the file, the agent sees that and puts its own in the place, and then the editor writes the lines of others into a
//! file without a name. So such a file is read again for a while: the lines that may stay are merged, and the keys in
//! the others are named.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Duration;

use tidewaiter_signature::sha256;

use crate::authorized_keys::{Format, Parts, added_keys, named};
use crate::host::Host;

/// For how long a file is read after it was replaced.
const FOLLOW_PERIOD: Duration = Duration::from_secs(10);

const MAX_FILES: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Displaced {
    files: VecDeque<DisplacedFile>,
    /// The fingerprints of the keys in them that were named. A file may be written in many parts.
    named: BTreeSet<String>,
}

/// Of a content: the digests of its whole lines, and of all of it. The contents themselves could fill the memory.
type Digests = [String; 2];

#[derive(Debug)]
struct DisplacedFile {
    fd: OwnedFd,
    /// The content that was merged.
    merged: Digests,
    /// A later one that is not merged yet.
    late: Option<Digests>,
    /// Monotonic.
    since: Duration,
}

impl Displaced {
    /// A file was replaced at the monotonic time `now`, when it had the content `merged`.
    pub(super) fn push(&mut self, fd: OwnedFd, merged: &[u8], now: Duration) {
        if self.files.len() == MAX_FILES {
            self.files.pop_front();
        }
        self.files.push_back(DisplacedFile {
            fd,
            merged: digests(merged),
            late: None,
            since: now,
        });
    }

    /// Returns the keys in these lines, which were written to such a file, and not in the file as it is now. Each is
    /// said once.
    pub(super) fn tampering<'a>(&mut self, lines: impl Iterator<Item = &'a [u8]>, now: &'a [u8]) -> Option<String> {
        let new = added_keys(lines, now).filter(|key| self.named.insert(key.fingerprint.clone()));
        let keys = named(new);
        (!keys.is_empty()).then(|| format!("was written to while it was replaced{keys}"))
    }

    /// Reads them again. Returns the lines of contents that are new. A line without an end may not be written
    /// to its end, so it counts only in the last look. A file that is too large is not read any more.
    pub(super) fn late(&mut self, host: &Host, format: &Format, now: Duration) -> Vec<Parts> {
        let mut late = Vec::new();
        self.files.retain_mut(|file| {
            file.late = None;
            let Ok(content) = host.read_again(&file.fd) else {
                return true;
            };
            let is_last = is_over(file.since, now);
            let content = if is_last { &content } else { whole_lines(&content) };
            let new = digests(content);
            if new[usize::from(is_last)] == file.merged[usize::from(is_last)] {
                return true;
            }
            let parts = format.parse(content);
            let is_small = parts.excess.is_none();
            late.extend(is_small.then_some(parts));
            file.late = Some(new);
            is_small
        });
        late
    }

    /// Records that the files which [`Displaced::late`] returned are merged. Forgets the files that were followed long
    /// enough.
    pub(super) fn merged(&mut self, now: Duration) {
        self.files.retain_mut(|file| {
            if let Some(late) = file.late.take() {
                file.merged = late;
            }
            !is_over(file.since, now)
        });
        if self.files.is_empty() {
            self.named.clear();
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &OwnedFd> {
        self.files.iter().map(|file| &file.fd)
    }
}

fn digests(content: &[u8]) -> Digests {
    [sha256(whole_lines(content)), sha256(content)]
}

fn whole_lines(content: &[u8]) -> &[u8] {
    let end = content.iter().rposition(|byte| *byte == b'\n');
    end.map_or(&[], |end| &content[..=end])
}

fn is_over(since: Duration, now: Duration) -> bool {
    now.saturating_sub(since) >= FOLLOW_PERIOD
}
