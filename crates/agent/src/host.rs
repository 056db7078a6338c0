//! The files of the host: the only code of the agent that opens, writes or removes one.
//!
//! - Everything is below one folder. Each component of a path is opened by itself with `openat2(2)`, which follows no
//!   symbolic link and crosses no mount, and is then used by its descriptor: no path is resolved twice.
//! - A file is written beside its place under a random name (`O_EXCL`), gets its owner and mode by the descriptor, is
//!   flushed, and takes the place in one step (`RENAME_EXCHANGE`). So a reader sees the old file or the new one, and so
//!   does a machine that loses its power.
//! - Such a file can be written ahead, without a name ([`Host::prepare`]). It gets its random name when it is needed,
//!   and waits for no disk then.
//! - What was in the place comes out under the random name, whatever it was: a file, a link, a pipe, a folder. What had
//!   been written to it after it was read is returned, so that no line is lost.
//! - On a full disk, a file of ours is overwritten in place instead, so that no foreign line stays.
//! - A folder with content is never deleted. It is moved aside, and so is a folder in which something is mounted.

mod folder;
pub(crate) mod mount;
mod overwrite;
mod replace;
mod trusted;

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

pub use folder::Opened;
pub(crate) use folder::is_aside;
pub(crate) use overwrite::Written;
pub use replace::{Prepared, Replaced};
pub(crate) use replace::{is_next, next_of};

/// A system call on the host's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Opens a folder or a file.
    Open,
    /// Reads content, metadata or names.
    Read,
    /// Creates a file under a random name.
    Create,
    /// Writes content.
    Write,
    /// Sets owner, mode or flags.
    Change,
    /// Flushes a file or a folder.
    Sync,
    /// Renames or exchanges.
    Rename,
    /// Removes a name.
    Remove,
    /// Creates a folder.
    MakeFolder,
}

/// A hook before each system call on the host's files: where tests make calls fail, and end the process between two of
/// them.
pub trait HostCalls: Debug + Send + Sync + 'static {
    /// Lets the call take place, or fails in its stead.
    ///
    /// # Errors
    /// The error with which the call fails.
    fn before(&self, call: Call) -> Result<(), Errno>;
}

/// Lets every call take place.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllCalls;

impl HostCalls for AllCalls {
    fn before(&self, _: Call) -> Result<(), Errno> {
        Ok(())
    }
}

/// A file or folder of the host that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// A system call failed.
    #[error("{path} cannot be {action}")]
    Call {
        /// The failed action: `opened`, `written`.
        action: &'static str,
        /// The path, below the agent's folder unless it is that folder.
        path: String,
        /// The error of the operating system.
        #[source]
        source: Errno,
    },
    /// Something is mounted there, so what is written would not be seen by others.
    #[error("{path} is covered by a mount: unmount it on the node")]
    Mounted {
        /// The path.
        path: String,
    },
    /// The folder that is mounted into the container is not the one that its path names on the host any more.
    #[error(
        "{path} was moved or removed on the host: the agent ends, so that the kubelet mounts the folder that is there now"
    )]
    Lost {
        /// The path.
        path: String,
    },
    /// A file that root decides by, or that the agent remembers by, does not count.
    #[error("{path} {problem}")]
    Unusable {
        /// The path.
        path: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// There is no room for the next file.
    #[error("{path} cannot be replaced, and was overwritten in place{}; it is replaced when there is room", without(*.missing))]
    InPlace {
        /// The file.
        path: String,
        /// The number of bytes that did not fit.
        missing: usize,
        /// The error of the replacement.
        #[source]
        source: Errno,
    },
    /// Somebody replaces it as fast as it is restored.
    #[error("{path} is replaced again and again while it is opened: find the process on the node that does so")]
    Raced {
        /// The path.
        path: String,
    },
}

impl HostError {
    pub(crate) fn call(action: &'static str, path: &str, source: Errno) -> Self {
        Self::Call {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn unusable(path: &str, problem: impl Into<String>) -> Self {
        Self::Unusable {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }

    /// A short word for a metric.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Call { source, .. } | Self::InPlace { source, .. } => match *source {
                Errno::NOSPC | Errno::DQUOT => "full",
                Errno::ROFS => "read_only",
                Errno::PERM | Errno::ACCESS => "denied",
                _ => "host",
            },
            Self::Mounted { .. } => "mounted",
            Self::Lost { .. } => "lost",
            Self::Unusable { .. } => "unusable",
            Self::Raced { .. } => "raced",
        }
    }
}

fn without(bytes: usize) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(" without its last {bytes} bytes, for which there is no room"),
    }
}

/// The owner of the agent's files and folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// The mode of the agent's folders. sshd's `StrictModes` refuses folders that others may write.
pub const FOLDER_MODE: u32 = 0o755;

/// The folder of the scripts of upgrades, which only root can enter.
const CLOSED_FOLDER: &str = "scripts/upgrade";

fn folder_mode(path: &str) -> u32 {
    if path == CLOSED_FOLDER { 0o700 } else { FOLDER_MODE }
}

/// The agent's folder on the host. Clones share it.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    owner: Owner,
    calls: Arc<dyn HostCalls>,
}

/// The object in the place of a file.
#[derive(Debug)]
pub enum Found {
    /// No object.
    Absent,
    /// Something other than a regular file, in words.
    Other(&'static str),
    /// A regular file.
    File(Box<FoundFile>),
}

/// A regular file as it was found.
#[derive(Debug)]
pub struct FoundFile {
    /// Its content, at most [`MAX_BYTES`].
    pub content: Vec<u8>,
    /// True if it has more.
    pub is_cut: bool,
    /// Its owner.
    pub owner: Owner,
    /// Its permissions.
    pub mode: u32,
    /// The number of hard links.
    pub links: u64,
    /// The inode.
    pub inode: u64,
    /// True if it is immutable or append-only.
    pub is_locked: bool,
    /// Open, for a watch.
    pub fd: OwnedFd,
}

/// Of a file, more is not read.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

impl Host {
    /// The files below `root`, which belong to `owner`.
    #[must_use]
    pub fn new(root: &Path, owner: Owner, calls: Arc<dyn HostCalls>) -> Self {
        Self {
            root: root.to_owned(),
            owner,
            calls,
        }
    }

    #[cfg(test)]
    pub(crate) fn with_calls(self, calls: Arc<dyn HostCalls>) -> Self {
        Self { calls, ..self }
    }

    /// A folder of the user who runs this, who is root on a host.
    #[must_use]
    pub fn of_root(root: &Path) -> Self {
        let owner = Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        Self::new(root, owner, Arc::new(AllCalls))
    }

    /// The owner of its files.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// The path of a folder below it.
    pub(crate) fn path_of(&self, folder: &[&str]) -> String {
        format!("{}/{}", self.root.display(), folder.join("/"))
    }

    fn before(&self, call: Call) -> Result<(), Errno> {
        self.calls.before(call)
    }
}
