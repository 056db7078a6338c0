//! A folder for one test, and the watchdog that takes away what the test leaves.
//!
//! Invariants: the folder, and every process that was started in it, are gone when the last [`Scratch`] and
//! [`Process`](crate::Process) are dropped, and also when this process ends in any other way, SIGKILL included. The
//! watchdog is a shell in a process group of its own that reads from a pipe whose other end only this process holds; at
//! its end of file it kills the groups that it knows and removes the folder. `PR_SET_PDEATHSIG` would not do: it
//! follows the thread, and test threads end.

use std::fmt;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

const WATCHDOG: &str = r#"
trap '' HUP INT TERM
groups=
while read -r order group; do
    case $order in
        watch) groups="$groups $group" ;;
        forget)
            left=
            for other in $groups; do [ "$other" = "$group" ] || left="$left $other"; done
            groups=$left ;;
        done) exit 0 ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
tries=0
while ! rm -rf -- "$1" && [ "$tries" -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
"#;

/// A temporary folder with a watchdog; clones are the same one.
#[derive(Clone)]
pub struct Scratch(Arc<Inner>);

struct Inner {
    folder: Option<TempDir>,
    path: PathBuf,
    watchdog: Child,
    orders: Mutex<ChildStdin>,
}

impl Scratch {
    /// Makes an empty folder, readable by its owner only, whose name begins with `tidewaiter-<purpose>-`.
    #[must_use]
    pub fn new(purpose: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix(&format!("tidewaiter-{purpose}-"))
            .tempdir()
            .expect("a temporary folder");
        let path = folder.path().canonicalize().expect("the folder's path");
        let mut watchdog = Command::new("/bin/sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("/bin/sh runs");
        let orders = Mutex::new(watchdog.stdin.take().expect("its standard input is a pipe"));
        Self(Arc::new(Inner {
            folder: Some(folder),
            path,
            watchdog,
            orders,
        }))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// From now on the process group ends with this process.
    pub(crate) fn watch(&self, group: u32) {
        writeln!(self.0.orders.lock(), "watch {group}").expect("the watchdog listens");
    }

    /// The group is gone, its number may be another's: never kill it.
    pub(crate) fn forget(&self, group: u32) {
        writeln!(self.0.orders.lock(), "forget {group}").expect("the watchdog listens");
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.folder.take());
        // A watchdog that is gone has nothing left to do, and a panic while a test panics would hide the test's own.
        let _ = writeln!(self.orders.lock(), "done");
        let _ = self.watchdog.wait();
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scratch").field(&self.path()).finish()
    }
}
