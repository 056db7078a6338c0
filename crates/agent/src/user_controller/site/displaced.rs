//! Files that were in the place of `authorized_keys`. Whoever has one open goes on writing to it: an editor empties the
//! file, the agent sees that and puts its own in the place, and then the editor writes the lines of others into a file
//! without a name. So such a file is read again for a while.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::host::Host;

/// For how long a file is read after it was replaced.
const FOLLOWED: Duration = Duration::from_secs(10);

const MOST_FILES: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Displaced(VecDeque<DisplacedFile>);

#[derive(Debug)]
struct DisplacedFile {
    fd: OwnedFd,
    /// The content that was merged.
    merged: Vec<u8>,
    /// A later one that is not merged yet.
    late: Option<Vec<u8>>,
    /// Monotonic.
    since: Duration,
}

impl Displaced {
    /// A file was replaced at the monotonic time `now`, when it had the content `merged`.
    pub(super) fn push(&mut self, fd: OwnedFd, merged: Vec<u8>, now: Duration) {
        if self.0.len() == MOST_FILES {
            self.0.pop_front();
        }
        self.0.push_back(DisplacedFile {
            fd,
            merged,
            late: None,
            since: now,
        });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Reads them again. Returns the contents that are new. A line without an end may not be written to its end, so it
    /// counts only in the last look.
    pub(super) fn late(&mut self, host: &Host, now: Duration) -> Vec<&[u8]> {
        for file in &mut self.0 {
            let is_last = is_over(file.since, now);
            let content = host.read_again(&file.fd).ok();
            file.late = content.and_then(|content| {
                let (new, known) = if is_last {
                    (content.as_slice(), file.merged.as_slice())
                } else {
                    (whole_lines(&content), whole_lines(&file.merged))
                };
                (new != known).then(|| new.to_vec())
            });
        }
        self.0.iter().filter_map(|file| file.late.as_deref()).collect()
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

fn whole_lines(content: &[u8]) -> &[u8] {
    let end = content.iter().rposition(|byte| *byte == b'\n');
    end.map_or(&[], |end| &content[..=end])
}

fn is_over(since: Duration, now: Duration) -> bool {
    now.saturating_sub(since) >= FOLLOWED
}
