//! Writes a file in place where there is no room for the next one, and notices a write that is no event.

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Mode, OFlags, fstat, ftruncate, openat2};
use rustix::io::{Errno, pwrite};

use super::folder::{RESOLVE, owner, retry};
use super::{Call, FoundFile, Host, HostError};

/// A file, open, and what its content was to be. The hash has a random key: nobody writes something else to it.
#[derive(Debug)]
pub(crate) struct Written {
    file: File,
    hash: u64,
    hashes: RandomState,
}

impl Written {
    /// `content` is what the agent wrote, whatever the file has now.
    pub(crate) fn new(fd: &OwnedFd, content: &[u8]) -> Option<Self> {
        let hashes = RandomState::new();
        let mut hasher = hashes.build_hasher();
        hasher.write(content);
        Some(Self {
            file: fd.try_clone().ok()?.into(),
            hash: hasher.finish(),
            hashes,
        })
    }

    /// Whether it has another content now. Takes no memory.
    pub(crate) fn is_changed(&self) -> bool {
        let mut hasher = self.hashes.build_hasher();
        let mut buffer = [0; 4096];
        let mut at = 0;
        loop {
            match self.file.read_at(&mut buffer, at) {
                Ok(0) => return hasher.finish() != self.hash,
                Ok(read) => {
                    hasher.write(buffer.get(..read).unwrap_or_default());
                    at += read as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
    }
}

impl Host {
    /// Makes the content of `file`, which is at `name`, the beginning of this one: all of it, or as many whole lines as
    /// there is room for. What is the same at the beginning is not written. Returns how many bytes it has.
    ///
    /// # Errors
    /// When it cannot be written or cut, and when another file is there, or one that is not ours alone.
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
            // To cut a file at its end is an event as well, and would start the next pass.
            if u64::try_from(fstat(&fd)?.st_size) != Ok(kept as u64) {
                self.before(Call::Change)?;
                ftruncate(&fd, kept as u64)?;
            }
            self.sync(&fd)?;
            Ok(kept)
        };
        overwrite().map_err(|source| HostError::call("overwritten", name, source))
    }

    /// Writes the content from this byte on, as far as there is room. Returns where it ends.
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
