//! Files that were in the place of `authorized_keys`. Whoever has one open goes on writing to it: an editor empties the
//! file, the agent sees that and puts its own in the place, and then the editor writes the lines of others into a file
//! without a name. So such a file is read again for a while.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tidewaiter_signature::sha256;

use crate::authorized_keys::{Format, Parts};
use crate::host::Host;

/// For how long a file is read after it was replaced.
const FOLLOWED: Duration = Duration::from_secs(10);

const MOST_FILES: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Displaced(VecDeque<DisplacedFile>);

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
        if self.0.len() == MOST_FILES {
            self.0.pop_front();
        }
        self.0.push_back(DisplacedFile {
            fd,
            merged: digests(merged),
            late: None,
            since: now,
        });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Reads them again. Returns the lines of others of contents that are new. A line without an end may not be written
    /// to its end, so it counts only in the last look. A file that is too large is not read any more.
    pub(super) fn late(&mut self, host: &Host, format: &Format, now: Duration) -> Vec<Parts> {
        let mut late = Vec::new();
        self.0.retain_mut(|file| {
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
            late.extend(is_small.then(|| Parts {
                others: parts.others,
                ..Parts::default()
            }));
            file.late = Some(new);
            is_small
        });
        late
    }

    /// What [`Displaced::late`] has returned is merged. Forgets the files that were followed long enough.
    pub(super) fn merged(&mut self, now: Duration) {
        self.0.retain_mut(|file| {
            if let Some(late) = file.late.take() {
                file.merged = late;
            }
            !is_over(file.since, now)
        });
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &OwnedFd> {
        self.0.iter().map(|file| &file.fd)
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
    now.saturating_sub(since) >= FOLLOWED
}
