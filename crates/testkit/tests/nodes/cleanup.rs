//! Nothing is left of a node, however its owner ends, and the machine's settings are as before.

use std::os::unix::fs::MetadataExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use futures::FutureExt;
use tidewaiter_testkit::{ControlPlane, Process, Program, Scratch, eventually};

use crate::{SOON, node};

/// The settings that kubelet, systemd and containers might change.
const SETTINGS: [&str; 9] = [
    "fs/file-max",
    "fs/nr_open",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

fn settings() -> Vec<String> {
    let read = |name: &&str| std::fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap();
    SETTINGS.iter().map(read).collect()
}

/// The traces of a cluster with a node on this machine, each with what tells it from a later one of the same name.
struct Traces(Vec<(PathBuf, u64)>);

impl Traces {
    /// By what the owner has written to its log.
    fn of(log: &str) -> Self {
        let line = |start: &str| log.lines().find_map(|line| line.strip_prefix(start)).unwrap();
        let number = line("node: ").split('.').nth(2).unwrap();
        let mut paths = vec![
            PathBuf::from(line("folder: ")),
            PathBuf::from(format!("/sys/class/net/tw{number}")),
            PathBuf::from(format!("/sys/class/net/tw{number}-0")),
        ];
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup").unwrap() {
            let group = hierarchy.unwrap().path().join(format!("tidewaiter-{number}"));
            paths.extend([group.join("0"), group]);
        }
        Self::at(paths)
    }

    fn at(paths: Vec<PathBuf>) -> Self {
        let seen = paths.into_iter().map(|path| {
            let inode = std::fs::metadata(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
                .ino();
            (path, inode)
        });
        Self(seen.collect())
    }

    fn left(&self) -> Vec<&PathBuf> {
        let is_left =
            |(path, inode): &&(PathBuf, u64)| std::fs::metadata(path).is_ok_and(|found| found.ino() == *inode);
        self.0.iter().filter(is_left).map(|(path, _)| path).collect()
    }

    async fn gone(&self) {
        eventually("everything of the node to be gone", SOON, async || {
            let left = self.left();
            let disks = std::process::Command::new("losetup").arg("--list").output().unwrap();
            let disks = String::from_utf8(disks.stdout).unwrap();
            // A disk whose file is gone is one that nobody gives back.
            if left.is_empty() && !disks.contains("(deleted)") {
                Ok(())
            } else {
                Err(format!("{left:?}\n{disks}"))
            }
        })
        .await;
    }
}

/// A process of its own that owns a control plane with a node.
async fn owner(scratch: &Scratch) -> (Process, Traces) {
    let owner = Process::start(scratch, Program::new(env!("CARGO_BIN_EXE_control-plane")).arg("--node"));
    let log = eventually("the node to run", SOON, async || {
        assert!(owner.is_running(), "{}", owner.log());
        let log = owner.log();
        if log.contains("kubectl: ") { Ok(log) } else { Err(log) }
    })
    .await;
    let traces = Traces::of(&log);
    (owner, traces)
}

#[tokio::test]
async fn nothing_is_left_of_a_node() {
    let before = settings();
    let scratch = Scratch::new("owner");
    let (owner_to_stop, stopped) = owner(&scratch).await;
    assert_eq!(settings(), before, "while a node runs");
    assert!(owner_to_stop.stop(SOON).await.success());
    assert_eq!(stopped.left(), Vec::<&PathBuf>::new(), "its end is the end of all");

    let (owner_to_kill, killed) = owner(&scratch).await;
    owner_to_kill.kill();
    killed.gone().await;

    // The one that would remove it is killed too.
    let (owner_to_kill, killed) = owner(&scratch).await;
    let children = format!("/proc/{0}/task/{0}/children", owner_to_kill.pid());
    let children = std::fs::read_to_string(children).unwrap();
    let is_shell = |pid: &&str| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains("/run/tidewaiter-networks")
    };
    let shell = children.split_whitespace().find(is_shell).expect("the network's shell");
    let status = std::process::Command::new("kill").args(["-s", "KILL", shell]).status();
    assert!(status.unwrap().success());
    owner_to_kill.kill();
    drop(ControlPlane::builder().with_nodes().start().await);
    killed.gone().await;
    assert_eq!(settings(), before, "after all nodes");
}

#[tokio::test]
async fn a_panic_leaves_no_node() {
    let mut traces = None;
    let test = AssertUnwindSafe(async {
        let node = node("panics").await;
        let octets = node.address().octets();
        let (number, slot) = (octets[2], octets[3] - 10);
        traces = Some(Traces::at(vec![
            PathBuf::from(format!("/sys/class/net/tw{number}-{slot}")),
            PathBuf::from(format!("/sys/fs/cgroup/freezer/tidewaiter-{number}/{slot}")),
        ]));
        node.pause().await;
        panic!("as a failing test does");
    });
    assert!(test.catch_unwind().await.is_err());
    traces.expect("the node ran").gone().await;
}

#[tokio::test]
async fn what_the_machine_lacks_is_named_with_the_remedy() {
    let scratch = Scratch::new("owner");
    let program = Program::new(env!("CARGO_BIN_EXE_control-plane"))
        .arg("--node")
        .bound_by_modes();
    let owner = Process::start(&scratch, program);
    assert!(!owner.exited(SOON).await.success());
    let message = "real nodes need permission to make namespaces ('unshare' fails); without, run the other tests: \
                   xtask test --except nodes";
    assert!(owner.log().contains(message), "{}", owner.log());
}
