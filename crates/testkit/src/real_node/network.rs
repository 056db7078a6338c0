//! The network of one control plane and its real nodes: a bridge of this machine, without a way out.
//!
//! Number N of at most 256 has the bridge `tw<N>` with 10.201.N.1, up to eight nodes at 10.201.N.10 and up, and 32
//! addresses for the pods of each in 10.202.N.0/24. Nodes have routes to each other, to each other's pods and to
//! Services, and no default route. Invariants: two networks never share a number, and nothing is left of one
//! whose owner has ended, however it ended: its shell (`network.sh`) takes it away, and if that was killed too, the
//! shell of the next network does.

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;

const SHELL: &str = include_str!("network.sh");

/// The same for every user and TMPDIR, as the numbers are.
const LOCKS: &str = "/run/tidewaiter-networks";

/// As many as have pods.
const NODES: u8 = 8;

/// Of kubelet and runc, in version 1.
pub(super) const HIERARCHIES: [&str; 9] = [
    "blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids", "systemd",
];

#[derive(Debug)]
pub(crate) struct Network {
    number: u8,
    shell: Child,
    /// The entries of [`NODES`] that are taken.
    slots: Mutex<[bool; NODES as usize]>,
}

impl Network {
    /// Makes one.
    ///
    /// # Panics
    /// When the machine cannot run real nodes: says what is missing.
    pub(crate) fn claim() -> Self {
        if let Some(missing) = missing() {
            panic!("real nodes need {missing}; without, run the other tests: xtask test --except nodes");
        }
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SHELL, "network", LOCKS])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("/bin/sh runs");
        let mut output = BufReader::new(shell.stdout.take().expect("its standard output is a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the shell prints text");
        let Ok(number) = line.trim().parse() else {
            let _ = output.read_to_string(&mut line);
            panic!("no network for real nodes: {line}");
        };
        Self {
            number,
            shell,
            slots: Mutex::default(),
        }
    }

    /// Of this machine in it.
    pub(crate) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 201, self.number, 1)
    }

    /// Of all pods.
    pub(crate) fn pods(&self) -> String {
        format!("10.202.{}.0/24", self.number)
    }

    /// A place for one more node.
    ///
    /// # Panics
    /// When it is full.
    pub(super) fn take(&self) -> Slot {
        let mut slots = self.slots.lock();
        let free = slots.iter_mut().zip(0..).find(|(taken, _)| !**taken);
        let (taken, slot) = free.unwrap_or_else(|| panic!("a network has {NODES} real nodes at most"));
        *taken = true;
        Slot {
            network: self.number,
            slot,
        }
    }

    /// Makes the place free again: its node is gone.
    pub(super) fn give_back(&self, slot: Slot) {
        self.slots.lock()[usize::from(slot.slot)] = false;
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// The place of one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    network: u8,
    slot: u8,
}

impl Slot {
    /// Of the node.
    pub(super) fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 201, self.network, 10 + self.slot)
    }

    /// Of this machine, where the API server and the registry are.
    pub(super) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 201, self.network, 1)
    }

    /// Of its pods.
    pub(super) fn pods(self) -> String {
        format!("10.202.{}.{}/27", self.network, 32 * self.slot)
    }

    /// The other places of the network.
    pub(super) fn others(self) -> impl Iterator<Item = Self> {
        (0..NODES)
            .filter(move |slot| *slot != self.slot)
            .map(move |slot| Self { slot, ..self })
    }

    /// This machine's end of the node's cable.
    pub(super) fn interface(self) -> String {
        format!("tw{}-{}", self.network, self.slot)
    }

    pub(super) fn bridge(self) -> String {
        format!("tw{}", self.network)
    }

    /// Of the node, in each hierarchy.
    pub(super) fn group(self) -> String {
        format!("tidewaiter-{}/{}", self.network, self.slot)
    }

    /// Of the node in one hierarchy.
    pub(super) fn cgroup(self, hierarchy: &str) -> PathBuf {
        Path::new("/sys/fs/cgroup").join(hierarchy).join(self.group())
    }

    /// Those of the freezer, of the node and of all that is in it.
    pub(super) fn freezers(self) -> Vec<PathBuf> {
        let mut found = vec![self.cgroup("freezer")];
        let mut next = 0;
        while let Some(group) = found.get(next) {
            let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
            let below: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
            found.extend(below);
            next += 1;
        }
        found
    }

    /// All processes of the node, pods included.
    pub(super) fn processes(self) -> Vec<u32> {
        let list = |group: PathBuf| std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let lists: String = self.freezers().into_iter().map(list).collect();
        lists.lines().filter_map(|pid| pid.parse().ok()).collect()
    }
}

/// Returns the requirements that this machine lacks.
pub(super) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root".to_owned());
    }
    let lacks = |name: &&&str| !Path::new("/sys/fs/cgroup").join(name).join("cgroup.procs").exists();
    if let Some(name) = HIERARCHIES.iter().find(lacks) {
        return Some(format!("cgroups of version 1: /sys/fs/cgroup/{name} is not mounted"));
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("loop devices: /dev/loop-control is missing".to_owned());
    }
    let file_systems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !file_systems.lines().any(|line| line.ends_with("\toverlay")) {
        return Some("overlayfs: /proc/filesystems lacks it".to_owned());
    }
    let succeeds = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    let namespaces = [
        "--mount",
        "--net",
        "--uts",
        "--ipc",
        "--cgroup",
        "--pid",
        "--fork",
        "--kill-child",
        "true",
    ];
    let tools = ["flock", "ip", "losetup", "mkfs.ext4", "nsenter", "pivot_root", "tar"];
    let lacks = |tool: &&&str| !succeeds("sh", &["-c", "command -v \"$0\"", tool]);
    match tools.iter().find(lacks) {
        Some(tool) => Some(format!("{tool} on the PATH")),
        None if !succeeds("unshare", &namespaces) => Some("permission to make namespaces ('unshare' fails)".to_owned()),
        None => None,
    }
}
