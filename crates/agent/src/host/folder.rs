//! Opens the agent's folders, one component after the other, and repairs the changes of others.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, IFlags, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Uid, fchmod, fchown, fstat,
    fsync, ioctl_getflags, ioctl_setflags, mkdirat, openat, openat2, renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use tidewaiter_kit::random;

use super::{Call, Host, HostError, Owner, folder_mode};

/// No symbolic link, nothing above the folder, no other mount.
pub(super) const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// With these, not even root may rename or remove a file.
const LOCKS: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND);

/// The number of repairs of a component after which somebody else is assumed to replace it on purpose.
const MAX_ATTEMPTS: usize = 8;

/// The prefix of the name of a file that is moved aside.
const ASIDE: &str = ".tidewaiter-displaced-";

/// Returns true if it is the name of something that was moved aside.
pub(crate) fn is_aside(name: &str) -> bool {
    name.starts_with(ASIDE)
}

/// A chain of folders, and the repairs that were necessary to open them.
#[derive(Debug)]
pub struct Opened {
    /// The folders: the agent's own, then one for each component.
    pub folders: Vec<OwnedFd>,
    /// The repaired faults, in words.
    pub repairs: Vec<String>,
}

impl Opened {
    /// The last folder.
    #[must_use]
    pub fn last(&self) -> Option<&OwnedFd> {
        self.folders.last()
    }
}

/// The reason why a chain ends.
enum Stop {
    Failed(HostError),
    /// Something is mounted over the component of this index.
    Mounted(usize),
}

impl From<HostError> for Stop {
    fn from(error: HostError) -> Self {
        Self::Failed(error)
    }
}

impl Host {
    /// Opens the folders of `path` as they are; None when one is missing.
    ///
    /// # Errors
    /// When one cannot be opened, or is no folder.
    pub fn look(&self, path: &[&str]) -> Result<Option<Opened>, HostError> {
        let mut folders = vec![self.open_root()?];
        for (depth, name) in path.iter().enumerate() {
            let shown = path[..=depth].join("/");
            match self.open_folder(last(&folders, &shown)?, name) {
                Ok(folder) => folders.push(folder),
                Err(Errno::NOENT) => return Ok(None),
                Err(source) => return Err(HostError::call("opened", &shown, source)),
            }
        }
        Ok(Some(Opened {
            folders,
            repairs: Vec::new(),
        }))
    }

    /// Reads an object like [`Host::look`]; None also when the agent's own folder is missing.
    pub(crate) fn look_if_there(&self, path: &[&str]) -> Result<Option<Opened>, HostError> {
        match self.look(path) {
            Err(HostError::Call {
                source: Errno::NOENT, ..
            }) => Ok(None),
            opened => opened,
        }
    }

    /// Opens the folders of `path`. Creates those that are missing, takes away what is there in place of one, and
    /// corrects owner, mode and flags.
    ///
    /// # Errors
    /// When one cannot be opened, created or corrected.
    pub fn ensure(&self, path: &[&str]) -> Result<Opened, HostError> {
        let mut repairs = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            match self.try_ensure(path, &mut repairs) {
                Ok(folders) => return Ok(Opened { folders, repairs }),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Mounted(0)) => {
                    let path = path.first().copied().unwrap_or_default().to_owned();
                    return Err(HostError::Mounted { path });
                }
                Err(Stop::Mounted(depth)) => self.move_parent_aside(&path[..=depth], &mut repairs)?,
            }
        }
        Err(HostError::Raced { path: path.join("/") })
    }

    /// Something is mounted over the file or folder at `path`. A mount cannot be renamed, but the folder that it is in
    /// can: it is moved aside, in every mount namespace.
    ///
    /// # Errors
    /// When it is in the agent's own folder, or the folder cannot be moved.
    pub fn move_parent_aside(&self, path: &[&str], repairs: &mut Vec<String>) -> Result<(), HostError> {
        let shown = path.join("/");
        let [before @ .., parent, _] = path else {
            return Err(HostError::Mounted { path: shown });
        };
        let opened = self.look(before)?;
        let Some(at) = opened.as_ref().and_then(Opened::last) else {
            return Ok(());
        };
        let aside = self
            .move_aside(at, parent)
            .map_err(|source| HostError::call("moved aside", &shown, source))?;
        repairs.push(format!(
            "{shown} was covered by a mount; its folder was moved aside to {aside}"
        ));
        Ok(())
    }

    fn try_ensure(&self, path: &[&str], repairs: &mut Vec<String>) -> Result<Vec<OwnedFd>, Stop> {
        let root = self.open_root()?;
        self.correct(&root, &self.root.display().to_string(), repairs)?;
        let mut folders = vec![root];
        for (depth, name) in path.iter().enumerate() {
            let shown = path[..=depth].join("/");
            let at = last(&folders, &shown)?;
            let before = repairs.len();
            let folder = self.ensure_folder(at, name, &shown, depth, repairs)?;
            // One that the agent has just made has the owner of its process and the mode of its umask: nobody has
            // changed them.
            let is_new = repairs.len() > before;
            let mut own = Vec::new();
            self.correct(&folder, &shown, if is_new { &mut own } else { repairs })?;
            folders.push(folder);
        }
        Ok(folders)
    }

    fn ensure_folder(
        &self,
        at: &OwnedFd,
        name: &str,
        shown: &str,
        depth: usize,
        repairs: &mut Vec<String>,
    ) -> Result<OwnedFd, Stop> {
        for _ in 0..MAX_ATTEMPTS {
            match self.open_folder(at, name) {
                Ok(folder) => return Ok(folder),
                Err(Errno::NOENT) => {
                    let made = self.make_folder(at, name, folder_mode(shown));
                    made.map_err(|source| HostError::call("created", shown, source))?;
                    repairs.push(format!("{shown} was missing"));
                }
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    let displaced = self.displace(at, name);
                    let what = displaced.map_err(|source| HostError::call("replaced", shown, source))?;
                    repairs.push(format!("{shown} was {what}"));
                }
                Err(Errno::XDEV) => return Err(Stop::Mounted(depth)),
                Err(source) => return Err(HostError::call("opened", shown, source).into()),
            }
        }
        Err(HostError::Raced { path: shown.to_owned() }.into())
    }

    fn open_root(&self) -> Result<OwnedFd, HostError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = self
            .before(Call::Open)
            .and_then(|()| retry_on_intr(|| openat(CWD, &self.root, flags, Mode::empty())));
        opened.map_err(|source| HostError::call("opened", &self.root.display().to_string(), source))
    }

    fn open_folder(&self, at: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
        self.before(Call::Open)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry(|| openat2(at, name, flags, Mode::empty(), RESOLVE))
    }

    fn make_folder(&self, at: &OwnedFd, name: &str, mode: u32) -> Result<(), Errno> {
        self.before(Call::MakeFolder)?;
        match mkdirat(at, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => self.sync(at),
            Err(error) => Err(error),
        }
    }

    /// Corrects owner, mode and flags of a folder.
    fn correct(&self, folder: &OwnedFd, shown: &str, repairs: &mut Vec<String>) -> Result<(), HostError> {
        let failed = |source| HostError::call("corrected", shown, source);
        if self.unlock(folder).map_err(failed)? {
            repairs.push(format!("{shown} was immutable or append-only"));
        }
        let stat = self.stat(folder).map_err(failed)?;
        let (owner, mode) = (owner(&stat), stat.st_mode & 0o7777);
        let wanted = folder_mode(shown);
        if owner != self.owner || mode != wanted {
            self.own(folder, wanted).map_err(failed)?;
            let Owner { uid, gid } = owner;
            repairs.push(format!("{shown} had the owner {uid}:{gid} and the mode {mode:04o}"));
        }
        Ok(())
    }

    /// Sets owner and mode. The owner is first: `chown(2)` clears set-user-ID bits, and a new owner could have changed
    /// the mode.
    pub(crate) fn own(&self, fd: &OwnedFd, mode: u32) -> Result<(), Errno> {
        self.before(Call::Change)?;
        let Owner { uid, gid } = self.owner;
        fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        self.before(Call::Change)?;
        fchmod(fd, Mode::from_raw_mode(mode))
    }

    /// Clears the flags that forbid changes. Returns whether there were any.
    pub(super) fn unlock(&self, fd: &OwnedFd) -> Result<bool, Errno> {
        let Some(flags) = locks(fd)? else { return Ok(false) };
        self.before(Call::Change)?;
        ioctl_setflags(fd, flags.difference(LOCKS))?;
        Ok(true)
    }

    pub(super) fn stat(&self, fd: &OwnedFd) -> Result<Stat, Errno> {
        self.before(Call::Read)?;
        fstat(fd)
    }

    pub(super) fn sync(&self, fd: &OwnedFd) -> Result<(), Errno> {
        self.before(Call::Sync)?;
        fsync(fd)
    }

    /// Takes away what has a name that is ours: removes it, or moves it aside when it is a folder with content. Says
    /// what it was.
    pub(super) fn displace(&self, at: &OwnedFd, name: &str) -> Result<String, Errno> {
        self.before(Call::Read)?;
        let stat = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let what = kind(&stat);
        self.before(Call::Remove)?;
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let flags = if is_folder {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        if unlinkat(at, name, flags).is_ok() {
            return Ok(what.to_owned());
        }
        let aside = self.move_aside(at, name)?;
        Ok(format!("{what}, which was moved aside to {aside}"))
    }

    pub(super) fn move_aside(&self, at: &OwnedFd, name: &str) -> Result<String, Errno> {
        let aside = format!("{ASIDE}{:016x}", random::u64());
        self.before(Call::Rename)?;
        renameat_with(at, name, at, &aside, RenameFlags::NOREPLACE)?;
        self.sync(at)?;
        Ok(aside)
    }
}

fn last<'a>(folders: &'a [OwnedFd], shown: &str) -> Result<&'a OwnedFd, HostError> {
    folders
        .last()
        .ok_or_else(|| HostError::call("opened", shown, Errno::NOENT))
}

/// The flags, if they forbid changes. Not every file system has flags.
pub(super) fn locks(fd: &OwnedFd) -> Result<Option<IFlags>, Errno> {
    match ioctl_getflags(fd.as_fd()) {
        Ok(flags) => Ok(flags.intersects(LOCKS).then_some(flags)),
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `openat2` gives up with AGAIN when a rename anywhere may have confused it.
pub(super) fn retry<T>(call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..MAX_ATTEMPTS {
        match call() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
    call()
}

pub(super) fn owner(stat: &Stat) -> Owner {
    Owner {
        uid: stat.st_uid,
        gid: stat.st_gid,
    }
}

pub(super) fn kind(stat: &Stat) -> &'static str {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::RegularFile => "a file",
        _ => "a device",
    }
}
