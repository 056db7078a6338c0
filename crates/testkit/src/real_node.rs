//! A real node: systemd as process 1 in namespaces of its own, containerd, kubelet, kube-proxy and sshd, on a disk of
//! its own, beside a [`ControlPlane`] with nodes.
//!
//! Invariants: a node that was returned is Ready; its disk, its name and its addresses stay the same over
//! reboots; its processes, mounts, cgroups and interfaces end with it, however its owner ends; the machine's settings
//! are not touched. All its traffic stays on the network of its control plane.
//!
//! It differs from a machine in these ways. Memory, processors, devices and the kernel are the machine's own, and so is
//! its clock ([`shift_clock`](RealNode::shift_clock) says what is done about that). What a node has written is not lost
//! by a power cut. Cgroups are of version 1. There is no DNS.

mod access;
mod clock;
mod ended;
mod faults;
mod files;
mod host;
mod image;
mod logins;
mod network;
mod options;
mod registry;

use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;
use tokio::process::Command;

pub use self::faults::Unit;
pub use self::image::Image;
pub use self::logins::AUTHORIZED_KEYS;
pub(crate) use self::network::Network;
use self::network::{HIERARCHIES, Slot};
pub use self::options::{KubeletVersion, NodeOptions};
pub use self::registry::Registry;
use crate::command::printed;
use crate::process::signal;
use crate::{ControlPlane, Identity, Process, Program, Scratch, assets, eventually};

/// A node is Ready after some seconds; on a busy machine it is not.
const READY_TIMEOUT: Duration = Duration::from_mins(4);

/// A killed node has ended within a second.
const KILL_TIMEOUT: Duration = Duration::from_mins(1);

const NODE: &str = include_str!("real_node/node.sh");

/// A running node, or one without power. Dropped, it is gone; its Node object stays.
#[derive(Debug)]
pub struct RealNode {
    name: String,
    slot: Slot,
    nodes: Api<Node>,
    machine: Process,
    scratch: Scratch,
    network: Arc<Network>,
}

impl RealNode {
    /// Returns the requirements for nodes that this machine lacks.
    #[must_use]
    pub fn missing() -> Option<String> {
        network::missing().or_else(|| {
            (!assets::node_programs_folder().is_dir())
                .then(|| "kubelet and containerd: run hack/node-assets/build".to_owned())
        })
    }

    /// Starts a node and waits until it is Ready. Like a client it belongs to the runtime that it is started in.
    ///
    /// # Panics
    /// When the machine cannot run nodes, an asset is missing, or it does not become Ready: says why.
    pub async fn start(control_plane: &ControlPlane, version: KubeletVersion, options: &NodeOptions) -> Self {
        let network = Arc::clone(control_plane.network());
        let slot = network.take();
        let scratch = Scratch::new("node");
        let name = options.name.clone();
        files::write(scratch.path(), control_plane, slot, version, options).await;
        write_new(&scratch.path().join("node.sh"), NODE);
        let disk = scratch.path().join("disk.img");
        std::fs::File::create_new(&disk)
            .and_then(|file| file.set_len(options.disk))
            .expect("a file for the disk");
        printed(
            Command::new("mkfs.ext4")
                .args(["-q", "-m", "0", "-O", "^has_journal"])
                .arg(&disk),
        )
        .await;
        new_boot_id(scratch.path());
        let program = Program::new("/bin/sh")
            .args(["node.sh", "outer"])
            .arg(scratch.path())
            .arg(assets::node_tree().join("root"))
            .arg(assets::node_programs())
            .arg(&name)
            .arg(slot.group());
        let node = Self {
            name,
            slot,
            nodes: Api::all(control_plane.client(&Identity::Admin)),
            machine: Process::start(&scratch, program.name("machine")),
            scratch,
            network,
        };
        node.connect().await;
        node.registered().await;
        let labels = json!({"metadata": {"labels": options.labels}});
        let labelled = node
            .nodes
            .patch(&node.name, &PatchParams::default(), &Patch::Merge(labels))
            .await;
        labelled.expect("the API server accepts the labels");
        node.ready().await;
        node
    }

    /// Of its Node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its `InternalIP`, where its sshd and its kubelet listen.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.slot.address()
    }

    /// Its Node as the API server has it.
    ///
    /// # Panics
    /// When there is none.
    pub async fn node(&self) -> Node {
        self.nodes.get(&self.name).await.expect("the Node exists")
    }

    /// Waits until the Node is Ready, by the word of this boot's kubelet.
    ///
    /// # Panics
    /// After four minutes, with kubelet's log.
    pub async fn ready(&self) {
        self.awaited("Ready", |node| condition(node, "Ready").as_deref() == Some("True"))
            .await;
    }

    /// Waits until the control plane says that the node is not Ready: 20 s after its last word.
    ///
    /// # Panics
    /// When it stays Ready.
    pub async fn not_ready(&self) {
        eventually(
            format_args!("{} not to be Ready", self.name),
            READY_TIMEOUT,
            async || match condition(&self.node().await, "Ready").as_deref() {
                Some("True") => Err("it is Ready"),
                _ => Ok(()),
            },
        )
        .await;
    }

    /// Waits until a condition of the Node has this status.
    ///
    /// # Panics
    /// When it does not get it.
    pub async fn has_condition(&self, kind: &str, status: &str) {
        eventually(
            format_args!("{} to be {kind}={status}", self.name),
            READY_TIMEOUT,
            async || match condition(&self.node().await, kind) {
                Some(seen) if seen == status => Ok(()),
                seen => Err(format!("{seen:?}")),
            },
        )
        .await;
    }

    /// Process 1 of the node, by its number on this machine.
    fn first_process(&self) -> Option<u32> {
        if !self.machine.is_running() {
            return None;
        }
        let outer = self.machine.pid();
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
        let first = children.split_whitespace().next()?;
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        // Before, it is a command of `outer`.
        (namespace(first)? != namespace("self")?).then(|| first.parse().expect("a number"))
    }

    /// Gives the machine, which has just started, its end of the cable, and waits until it is ready for commands.
    async fn connect(&self) {
        let what = format_args!("{} to have namespaces", self.name);
        let pid = eventually(what, READY_TIMEOUT, async || {
            assert!(
                self.machine.is_running(),
                "the machine ended:\n{}",
                self.machine.log_tail()
            );
            self.first_process().ok_or_else(|| self.machine.log_tail())
        })
        .await;
        let (pid, interface, bridge) = (pid.to_string(), self.slot.interface(), self.slot.bridge());
        ip(&[
            "link", "add", &interface, "type", "veth", "peer", "name", "eth0", "netns", &pid,
        ])
        .await;
        ip(&["link", "set", &interface, "master", &bridge, "up"]).await;
        let (pods, address) = (self.slot.pods(), self.address().to_string());
        ip(&["route", "replace", &pods, "via", &address]).await;
        // Before, commands would run on this machine's file system.
        eventually(
            format_args!("{} to run systemd", self.name),
            READY_TIMEOUT,
            async || {
                assert!(
                    self.machine.is_running(),
                    "the machine ended:\n{}",
                    self.machine.log_tail()
                );
                match std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .unwrap_or_default()
                    .trim()
                {
                    "systemd" => Ok(()),
                    other => Err(format!("{other}; {}", self.machine.log_tail())),
                }
            },
        )
        .await;
    }

    async fn registered(&self) {
        self.awaited("registered", |_| true).await;
    }

    async fn awaited(&self, what: &str, is_so: impl Fn(&Node) -> bool) {
        let boot = std::fs::read_to_string(self.scratch.path().join("boot-id")).expect("our own file");
        eventually(format_args!("{} to be {what}", self.name), READY_TIMEOUT, async || {
            assert!(
                self.machine.is_running(),
                "the machine ended:\n{}",
                self.machine.log_tail()
            );
            let node = self
                .nodes
                .get_opt(&self.name)
                .await
                .map_err(|error| error.to_string())?;
            match node {
                Some(node) if boot_id(&node) == boot.trim() && is_so(&node) => Ok(()),
                node => {
                    let status = node.and_then(|node| node.status).unwrap_or_default();
                    let [kubelet, containerd] = [Unit::Kubelet, Unit::Containerd].map(|unit| {
                        let log = self.log(unit);
                        log[log.floor_char_boundary(log.len().saturating_sub(4_000))..].to_owned()
                    });
                    Err(format!(
                        "{:?}; the end of containerd's log:\n{containerd}\nand of kubelet's:\n{kubelet}",
                        status.conditions
                    ))
                }
            }
        })
        .await;
    }

    /// Ends everything on the node at once, and returns when it has ended. Process 1 ends after all others of the node,
    /// and what started it ends after that.
    ///
    /// # Errors
    /// The processes that still run after a minute.
    fn end(&self) -> Result<(), String> {
        if let Some(first) = self.first_process() {
            signal(first, Signal::KILL);
            ended::within(self.machine.pid(), KILL_TIMEOUT, || self.thaw()).map_err(|()| {
                let left = ended::describe(&self.slot.processes());
                self.machine.kill();
                format!("{}: a minute after SIGKILL these run: {left}", self.name)
            })?;
        }
        self.machine.kill();
        // The kernel would remove it a moment later, when another node may already use its name.
        let mut delete = std::process::Command::new("ip");
        let _ = delete
            .args(["link", "delete", &self.slot.interface()])
            .stderr(Stdio::null())
            .status();
        for hierarchy in HIERARCHIES {
            remove_cgroup(&self.slot.cgroup(hierarchy));
        }
        Ok(())
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        match self.end() {
            Ok(()) => self.network.give_back(self.slot),
            // A second panic would hide the first one.
            Err(_) if std::thread::panicking() => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn boot_id(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map_or("", |info| info.boot_id.as_str())
}

fn condition(node: &Node, kind: &str) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some(condition.status.clone())
}

/// As a kernel has a new one after each boot.
fn new_boot_id(folder: &Path) {
    let id = std::fs::read("/proc/sys/kernel/random/uuid").expect("Linux makes ids");
    let file = std::fs::File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(folder.join("boot-id"));
    file.and_then(|file| file.write_all_at(&id, 0)).expect("our own file");
}

/// Some may be in use for another moment: the network's shell removes those.
fn remove_cgroup(group: &Path) {
    let Ok(entries) = std::fs::read_dir(group) else { return };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        remove_cgroup(&entry.path());
    }
    let _ = std::fs::remove_dir(group);
}

async fn ip(args: &[&str]) {
    printed(Command::new("ip").args(args)).await;
}

#[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
fn write_new(path: &Path, content: &str) {
    let folder = path.parent().expect("a file is in a folder");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, content))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn copy(from: &Path, to: &Path) {
    let folder = to.parent().expect("a file is in a folder");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::copy(from, to))
        .unwrap_or_else(|error| panic!("{} to {}: {error}", from.display(), to.display()));
}
