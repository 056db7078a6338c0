//! Starts a pass whenever something changes in the agent's folders.
//!
//! The folders are watched, and the files themselves: a change through another name of a file (a hard link) is no event
//! of the folder. Watches are set through descriptors, so no path is resolved. What an event says is not read: each
//! pass looks at everything, so an overflow of the queue of events loses nothing. Without an inotify instance, nothing
//! is watched until the node has one to give: anyone who sets a watch fails, and tries again with each pass. A mount
//! over a folder is no event of inotify; the kernel's list of mounts shows it.

use std::collections::BTreeSet;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use rustix::io::Errno;
use tidewaiter_kit::{Key, Queue};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use crate::host::is_next;

/// All that may change what a reader of a folder finds.
const FOLDER: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// All that may change what a reader of a file finds.
const FILE: WatchFlags = WatchFlags::MODIFY.union(WatchFlags::ATTRIB);

/// The kernel's list of mounts: a change of it is an exceptional condition of this file (`proc_pid_mountinfo(5)`).
const MOUNTS: &str = "/proc/self/mountinfo";

/// Watches that cannot be set or read.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The events cannot be read.
    #[error("changes of files of the node cannot be read")]
    Inotify(#[source] Errno),
    /// The runtime or the list of mounts cannot be used.
    #[error("changes of files or mounts of the node cannot be awaited")]
    Await(#[source] std::io::Error),
}

/// The watched files. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    /// Absent while the node has none to give.
    inotify: Arc<OnceLock<OwnedFd>>,
    /// Cancelled when there is one.
    is_open: CancellationToken,
    watched: Arc<Mutex<BTreeSet<i32>>>,
}

impl Watcher {
    pub(crate) fn new() -> Self {
        Self {
            inotify: Arc::default(),
            is_open: CancellationToken::new(),
            watched: Arc::default(),
        }
    }

    fn inotify(&self) -> Result<&OwnedFd, Errno> {
        if let Some(inotify) = self.inotify.get() {
            return Ok(inotify);
        }
        let new = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let inotify = self.inotify.get_or_init(|| new);
        self.is_open.cancel();
        Ok(inotify)
    }

    /// Watches these folders, besides what is watched.
    pub(crate) fn add_folders(&self, folders: &[&OwnedFd]) -> Result<Vec<i32>, Errno> {
        folders.iter().map(|fd| self.add(fd, FOLDER)).collect()
    }

    /// Watches these files and what `folders` are, and nothing else any more.
    pub(crate) fn settle(&self, folders: Vec<i32>, files: &[&OwnedFd]) -> Result<(), Errno> {
        let files: Result<Vec<i32>, Errno> = files.iter().map(|fd| self.add(fd, FILE)).collect();
        let now: BTreeSet<i32> = folders.into_iter().chain(files?).collect();
        let inotify = self.inotify()?;
        let mut watched = self.watched.lock();
        for gone in watched.difference(&now) {
            // The watch of a file that is gone is gone already.
            let _ = remove_watch(inotify, *gone);
        }
        *watched = now;
        Ok(())
    }

    fn add(&self, fd: &OwnedFd, flags: WatchFlags) -> Result<i32, Errno> {
        let added = add_watch(self.inotify()?, format!("/proc/self/fd/{}", fd.as_raw_fd()), flags)?;
        self.watched.lock().insert(added);
        Ok(added)
    }

    /// Queues `key` for each change, until shutdown.
    pub(crate) async fn run(self, queue: Queue, key: Key, shutdown: CancellationToken) -> Result<(), WatchError> {
        if shutdown.run_until_cancelled(self.is_open.cancelled()).await.is_none() {
            return Ok(());
        }
        let inotify = self.inotify().map_err(WatchError::Inotify)?.try_clone();
        let events = registered(inotify, Interest::READABLE)?;
        let mounts = registered(File::open(MOUNTS).map(OwnedFd::from), Interest::PRIORITY)?;
        let watching = async {
            loop {
                tokio::select! {
                    ready = events.readable() => {
                        let mut ready = ready.map_err(WatchError::Await)?;
                        let is_change = drain(events.get_ref()).map_err(WatchError::Inotify)?;
                        ready.clear_ready();
                        if !is_change {
                            continue;
                        }
                    }
                    ready = mounts.ready(Interest::PRIORITY) => ready.map_err(WatchError::Await)?.clear_ready(),
                }
                queue.push(key.clone());
            }
        };
        shutdown.run_until_cancelled(watching).await.unwrap_or(Ok(()))
    }
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe for the sake of types that do not own what they register; this one does"
)]
fn registered(fd: std::io::Result<OwnedFd>, interest: Interest) -> Result<AsyncFd<OwnedFd>, WatchError> {
    fd.and_then(|fd| AsyncFd::with_interest(fd, interest))
        .map_err(WatchError::Await)
}

/// Returns true if anything has changed besides files that the agent itself is about to write: otherwise a disk that is
/// full would have it try without a rest.
fn drain(inotify: &OwnedFd) -> Result<bool, Errno> {
    let mut is_change = false;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(inotify, &mut buffer);
    loop {
        match events.next() {
            Ok(event) => is_change |= event.file_name().is_none_or(|name| !is_next(name.to_bytes())),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(is_change),
            Err(error) => return Err(error),
        }
    }
}
