//! Overwrites a file in place on a full disk, and detects changes that cause no event of inotify.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Mode, OFlags, fstat, ftruncate, openat2};
use rustix::io::{Errno, pwrite};

use super::folder::{RESOLVE, owner, retry};
use super::{Call, FoundFile, Host, HostError};

/// An open file and the hash of its expected content. The hash has a random key, so nobody can construct a collision.
#[derive(Debug)]
pub(crate) struct Written {
    file: File,
    length: u64,
    hash: u64,
    hashes: RandomState,
}

impl Written {
    /// Expects `content`, whatever the file contains now.
    pub(crate) fn new(fd: &OwnedFd, content: &[u8]) -> Option<Self> {
        let keyed = RandomState::new();
        let mut hasher = keyed.build_hasher();
        hasher.write(content);
        Some(Self {
            file: fd.try_clone().ok()?.into(),
            length: content.len().try_into().ok()?,
            hash: hasher.finish(),
            hashes: keyed,
        })
    }

    /// True if the content differs. Reads at most the expected length, because somebody may have made the file large.
    pub(crate) fn is_changed(&self) -> bool {
        if fstat(&self.file).map(|now| u64::try_from(now.st_size)) != Ok(Ok(self.length)) {
            return true;
        }
        let mut hasher = self.hashes.build_hasher();
        let mut buffer = [0; 4096];
        let mut at = 0;
        while let Some(left) = self.length.checked_sub(at).filter(|left| *left > 0) {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            match self.file.read_at(buffer.get_mut(..most).unwrap_or_default(), at) {
                Ok(0) => return true,
                Ok(read) => {
                    hasher.write(buffer.get(..read).unwrap_or_default());
                    at += read as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
        hasher.finish() != self.hash
    }
}

impl Host {
    /// Overwrites `file` at `name` with `content`, or with as many of its first lines as there is room for. A common
    /// beginning is not written. Returns the length of the file.
    ///
    /// # Errors
    /// If it cannot be written or truncated, if another file is at `name`, or if it has another owner or link.
    pub(crate) fn overwrite(
        &self,
        folder: &OwnedFd,
        name: &str,
        file: &FoundFile,
        content: &[u8],
    ) -> Result<usize, HostError> {
        let pairs = file.content.iter().zip(content);
        let same = pairs.take_while(|(found, wanted)| found == wanted).count();
        let overwrite = || {
            self.unlock(&file.fd)?;
            self.before(Call::Open)?;
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let fd = retry(|| openat2(folder, name, flags, Mode::empty(), RESOLVE))?;
            let (found, now) = (self.stat(&file.fd)?, self.stat(&fd)?);
            let is_same = (found.st_dev, found.st_ino) == (now.st_dev, now.st_ino);
            if !is_same || now.st_nlink != 1 || owner(&now) != self.owner {
                return Err(Errno::STALE);
            }
            let written = self.write_at(&fd, content, same);
            let kept = if written == content.len() {
                written
            } else {
                let lines = content.get(..written).unwrap_or_default();
                lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
            };
            // Truncating a file to its own length is an event, too, and would start the next pass.
            if u64::try_from(fstat(&fd)?.st_size) != Ok(kept as u64) {
                self.before(Call::Change)?;
                ftruncate(&fd, kept as u64)?;
            }
            self.sync(&fd)?;
            Ok(kept)
        };
        overwrite().map_err(|source| HostError::call("overwritten", name, source))
    }

    /// Writes `content` from the offset `begin`, as far as there is room. Returns the offset of the end.
    fn write_at(&self, fd: &OwnedFd, content: &[u8], begin: usize) -> usize {
        let mut end = begin;
        while let Some(left) = content.get(end..).filter(|left| !left.is_empty()) {
            let written = self.before(Call::Write).and_then(|()| pwrite(fd, left, end as u64));
            match written {
                Ok(written) if written > 0 => end += written,
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tidewaiter_testkit::Scratch;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the time that it takes is what is tested")]
    fn a_file_that_somebody_made_large_is_not_read() {
        let scratch = Scratch::new("written");
        let path = scratch.path().join("keys");
        std::fs::write(&path, "ours\n").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let written = Written::new(&file.try_clone().unwrap().into(), b"ours\n").unwrap();
        assert!(!written.is_changed());
        file.write_at(b"theirs", 0).unwrap();
        file.set_len(5).unwrap();
        assert!(written.is_changed());
        let begun = Instant::now();
        file.set_len(1 << 42).unwrap();
        assert!(written.is_changed() && begun.elapsed() < Duration::from_mins(1));
    }
}
