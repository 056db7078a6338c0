//! Reads and replaces single files.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, SeekFrom, fstat, linkat, openat, openat2, renameat,
    renameat_with, seek, unlinkat,
};
use rustix::io::{Errno, write};
use tidewaiter_kit::random;

use super::folder::{RESOLVE, kind, locks, owner, retry};
use super::{Call, Found, FoundFile, Host, HostError, MAX_BYTES};

/// Between the name of a file and the random part of the name under which the next one is written.
const NEXT: &str = ".tidewaiter-";

/// Returns true if it is the name under which the next content of a file is written, which is no file that anybody
/// reads.
pub(crate) fn is_next(name: &[u8]) -> bool {
    name.starts_with(b".") && name.windows(NEXT.len()).any(|part| part == NEXT.as_bytes())
}

/// The name of the file to be replaced, from the name of its temporary file; None for another name.
pub(crate) fn next_of(name: &str) -> Option<&str> {
    Some(name.strip_prefix('.')?.rsplit_once(NEXT)?.0)
}

/// The former content of the place of a file that was replaced.
#[derive(Debug, PartialEq, Eq)]
pub enum Replaced {
    /// No object, or an object that is not a regular file: its description.
    Other(String),
    /// A file with this content.
    File(Vec<u8>),
}

/// A file that is written and flushed, and has no name: nobody else can open it, and nothing is left of it when the
/// process ends.
#[derive(Debug)]
pub struct Prepared {
    file: File,
    mode: u32,
}

impl Prepared {
    fn has(&self, content: &[u8]) -> bool {
        let is_as_long = self.file.metadata().is_ok_and(|it| it.len() == content.len() as u64);
        let mut own = vec![0; if is_as_long { content.len() } else { 0 }];
        is_as_long && self.file.read_exact_at(&mut own, 0).is_ok() && own == content
    }
}

impl Host {
    /// The object in the place of the file `name`, without following a link and without opening a device or a pipe.
    ///
    /// # Errors
    /// When it cannot be read, and [`HostError::Mounted`] when something is mounted over it.
    pub fn find(&self, folder: &OwnedFd, name: &str) -> Result<Found, HostError> {
        match self.open_found(folder, name) {
            Ok(found) => Ok(found),
            Err(Errno::NOENT) => Ok(Found::Absent),
            Err(Errno::LOOP) => Ok(Found::Other("a symbolic link")),
            Err(Errno::XDEV) => Err(HostError::Mounted { path: name.to_owned() }),
            Err(source) => Err(HostError::call("read", name, source)),
        }
    }

    fn open_found(&self, folder: &OwnedFd, name: &str) -> Result<Found, Errno> {
        self.before(Call::Open)?;
        let path = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = retry(|| openat2(folder, name, path, Mode::empty(), RESOLVE))?;
        let stat = self.stat(&path)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(Found::Other(kind(&stat)));
        }
        self.before(Call::Open)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = retry(|| openat2(folder, name, flags, Mode::empty(), RESOLVE))?;
        let stat = self.stat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(Found::Other(kind(&stat)));
        }
        self.before(Call::Read)?;
        let (content, is_cut) = read_bounded(&fd)?;
        Ok(Found::File(Box::new(FoundFile {
            content,
            is_cut,
            owner: owner(&stat),
            mode: stat.st_mode & 0o7777,
            links: stat.st_nlink,
            inode: stat.st_ino,
            is_locked: locks(&fd)?.is_some(),
            fd,
        })))
    }

    /// The content of a file that was found, as it is now. It may have no name any more.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_again(&self, fd: &OwnedFd) -> Result<Vec<u8>, HostError> {
        let read = || {
            self.before(Call::Read)?;
            seek(fd, SeekFrom::Start(0))?;
            Ok(read_bounded(fd)?.0)
        };
        read().map_err(|source| HostError::call("read", "a replaced file", source))
    }

    /// Puts a file with this content and mode in the place of whatever is at `name`. `found` is what was there when the
    /// content was decided.
    ///
    /// # Errors
    /// When it cannot be written: the old file is there as it was, and nothing else.
    pub fn replace(
        &self,
        folder: &OwnedFd,
        name: &str,
        content: &[u8],
        mode: u32,
        found: &Found,
    ) -> Result<Replaced, HostError> {
        self.put(folder, name, found, |next| self.write_next(folder, next, content, mode))
    }

    /// Replaces a file like [`Host::replace`]. If `prepared` has the content, others see it without a wait for the
    /// disk.
    ///
    /// # Errors
    /// As [`Host::replace`].
    pub fn replace_with(
        &self,
        folder: &OwnedFd,
        name: &str,
        content: &[u8],
        prepared: &Prepared,
        found: &Found,
    ) -> Result<Replaced, HostError> {
        self.put(folder, name, found, |next| {
            if prepared.has(content) && self.link(folder, next, prepared).is_ok() {
                return Ok(());
            }
            self.write_next(folder, next, content, prepared.mode)
        })
    }

    /// Writes a file without a name, to be put into a place in `folder` later.
    ///
    /// # Errors
    /// When it cannot be written, and where the file system has no files without names.
    pub fn prepare(&self, folder: &OwnedFd, content: &[u8], mode: u32) -> Result<Prepared, HostError> {
        let prepare = || {
            self.before(Call::Create)?;
            let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
            let fd = openat(folder, ".", flags, Mode::RUSR | Mode::WUSR)?;
            self.write_whole(&fd, content, mode)?;
            let file = File::from(fd);
            Ok(Prepared { file, mode })
        };
        prepare().map_err(|source| HostError::call("prepared", "a copy", source))
    }

    fn put(
        &self,
        folder: &OwnedFd,
        name: &str,
        found: &Found,
        write: impl FnOnce(&str) -> Result<(), Errno>,
    ) -> Result<Replaced, HostError> {
        let next = format!(".{name}{NEXT}{:016x}", random::u64());
        let put = || {
            write(&next)?;
            if let Found::File(found) = found {
                self.unlock(&found.fd)?;
            }
            self.take_place(folder, &next, name)
        };
        match put() {
            Ok(was_there) => self
                .settle(folder, &next, was_there)
                .map_err(|source| HostError::call("replaced", name, source)),
            Err(source) => {
                let _ = self.remove(folder, &next);
                Err(HostError::call("written", name, source))
            }
        }
    }

    /// Fails where `/proc` is not mounted, and for a folder of another file system.
    fn link(&self, folder: &OwnedFd, next: &str, prepared: &Prepared) -> Result<(), Errno> {
        self.before(Call::Create)?;
        let path = format!("/proc/self/fd/{}", prepared.file.as_raw_fd());
        linkat(CWD, path, folder, next, AtFlags::SYMLINK_FOLLOW)
    }

    fn write_next(&self, folder: &OwnedFd, next: &str, content: &[u8], mode: u32) -> Result<(), Errno> {
        self.before(Call::Create)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry(|| openat2(folder, next, flags, Mode::RUSR | Mode::WUSR, RESOLVE))?;
        self.write_whole(&fd, content, mode)
    }

    fn write_whole(&self, fd: &OwnedFd, content: &[u8], mode: u32) -> Result<(), Errno> {
        let mut left = content;
        while !left.is_empty() {
            self.before(Call::Write)?;
            let written = write(fd, left)?;
            left = left.get(written..).unwrap_or_default();
        }
        self.own(fd, mode)?;
        self.sync(fd)
    }

    /// Returns whether something was there, which is then at `next`.
    fn take_place(&self, folder: &OwnedFd, next: &str, name: &str) -> Result<bool, Errno> {
        let rename = |flags| {
            self.before(Call::Rename)?;
            renameat_with(folder, next, folder, name, flags)
        };
        for _ in 0..8 {
            match rename(RenameFlags::EXCHANGE) {
                Ok(()) => return Ok(true),
                Err(Errno::NOENT) => {}
                // The file system cannot exchange, so what is there must be a file.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    self.before(Call::Rename)?;
                    return renameat(folder, next, folder, name).map(|()| false);
                }
                Err(error) => return Err(error),
            }
            match rename(RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(false),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::BUSY)
    }

    /// Flushes the folder, and takes away what was in the place.
    fn settle(&self, folder: &OwnedFd, next: &str, was_there: bool) -> Result<Replaced, Errno> {
        self.sync(folder)?;
        if !was_there {
            return Ok(Replaced::Other("nothing".to_owned()));
        }
        let old = self.open_found(folder, next);
        if let Ok(Found::File(old)) = old {
            self.unlock(&old.fd)?;
            self.remove(folder, next)?;
            return Ok(Replaced::File(old.content));
        }
        self.displace(folder, next).map(Replaced::Other)
    }

    fn remove(&self, folder: &OwnedFd, name: &str) -> Result<(), Errno> {
        self.before(Call::Remove)?;
        unlinkat(folder, name, AtFlags::empty())
    }

    /// Removes whatever is at `name`; a folder with content is moved aside. Returns whether there was anything.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn take_away(&self, folder: &OwnedFd, name: &str) -> Result<bool, HostError> {
        match self.displace(folder, name).and_then(|_| self.sync(folder)) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(source) => Err(HostError::call("removed", name, source)),
        }
    }

    /// Removes what an agent that was killed has left of the file `name`.
    ///
    /// # Errors
    /// When the folder cannot be read, or a file cannot be removed.
    pub fn sweep(&self, folder: &OwnedFd, name: &str) -> Result<(), HostError> {
        let begin = format!(".{name}{NEXT}");
        let sweep = || {
            self.before(Call::Read)?;
            for entry in Dir::read_from(folder)? {
                let entry = entry?;
                let found = entry.file_name();
                if found.to_bytes().starts_with(begin.as_bytes()) {
                    let found = String::from_utf8_lossy(found.to_bytes());
                    self.displace(folder, &found)?;
                }
            }
            Ok(())
        };
        sweep().map_err(|source| HostError::call("cleaned", name, source))
    }
}

/// The content, up to the limit, and whether there is more.
fn read_bounded(fd: &OwnedFd) -> Result<(Vec<u8>, bool), Errno> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let file = File::from(fd.try_clone().map_err(failed)?);
    let size = usize::try_from(fstat(fd)?.st_size).unwrap_or_default();
    let mut content = Vec::with_capacity(size.min(MAX_BYTES) + 1);
    file.take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut content)
        .map_err(failed)?;
    let is_cut = content.len() > MAX_BYTES;
    content.truncate(MAX_BYTES);
    Ok((content, is_cut))
}
