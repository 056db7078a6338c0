//! Faults of nodes. Nothing here waits for the cluster to notice.

use std::path::Path;

use super::{READY_TIMEOUT, RealNode, ip, new_boot_id};
use crate::eventually;

/// A program of the node that can fail alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// containerd.
    Containerd,
    /// kubelet.
    Kubelet,
    /// kube-proxy.
    KubeProxy,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
        }
    }
}

/// On the node.
const FILLER: &str = "/var/lib/kubelet/filler";

/// Nearly all at once, then the rest.
const FILL: &str = r#"
fallocate --length="$(df --output=avail --block-size=1 /var/lib/kubelet | tail --lines=1)" "$1"
dd if=/dev/zero bs=4k 2>&1 >>"$1" | grep 'No space left'
"#;

impl RealNode {
    /// SIGKILL. systemd starts it again at once, and pods run on.
    pub async fn kill(&self, unit: Unit) {
        self.run(["systemctl", "kill", "--kill-whom=main", "--signal=KILL", unit.name()])
            .await;
    }

    /// Ends it in good order, until it is started. Pods run on.
    pub async fn stop(&self, unit: Unit) {
        self.run(["systemctl", "stop", unit.name()]).await;
    }

    /// Starts it again.
    pub async fn start_again(&self, unit: Unit) {
        self.run(["systemctl", "start", unit.name()]).await;
    }

    /// The pid of its main process, which differs after each start.
    pub async fn main_pid(&self, unit: Unit) -> u32 {
        let pid = self
            .run(["systemctl", "show", "--property=MainPID", "--value", unit.name()])
            .await;
        pid.trim().parse().expect("systemd prints a number")
    }

    /// Shuts it down in good order and starts it again; does not wait until it is Ready.
    ///
    /// # Panics
    /// When it does not shut down, with what still runs.
    pub async fn reboot(&self) {
        self.run(["systemctl", "reboot", "--no-block"]).await;
        self.boots_again().await;
    }

    /// Waits until it has shut down in good order, because something on it asked for that, and starts it again; does
    /// not wait until it is Ready.
    ///
    /// # Panics
    /// When it does not shut down, with what still runs.
    pub async fn boots_again(&self) {
        eventually(format_args!("{} to shut down", self.name), READY_TIMEOUT, async || {
            if self.machine.ended().is_some() {
                return Ok(());
            }
            // runc freezes a container in order to kill all of it, and systemd may end runc before it thaws it. A
            // machine would reboot all the same; a namespace waits for its last process, and a frozen one takes no
            // signal.
            if self.first_process().is_none_or(is_shutting_down) {
                self.thaw();
            }
            Err(super::ended::describe(&self.slot.processes()))
        })
        .await;
        self.power_on().await;
    }

    /// Ends all processes of the node at once. Its disk is kept.
    ///
    /// # Panics
    /// When one of them does not end.
    pub async fn power_cut(&self) {
        self.end().unwrap_or_else(|error| panic!("{error}"));
        let disk = self.scratch.path().join("disk.img");
        // The kernel gives it back a moment after the last process.
        eventually("the disk to be free", READY_TIMEOUT, async || {
            let used =
                crate::command::printed(tokio::process::Command::new("losetup").arg("--associated").arg(&disk)).await;
            if used.is_empty() { Ok(()) } else { Err(used) }
        })
        .await;
    }

    /// Starts it after a power cut; does not wait until it is Ready.
    pub async fn power_on(&self) {
        // After a reboot too: the cgroups of a new boot are empty.
        self.power_cut().await;
        new_boot_id(self.scratch.path());
        self.machine.start_again();
        self.connect().await;
    }

    /// Stops all its processes where they are.
    pub async fn pause(&self) {
        let state = self.slot.cgroup("freezer").join("freezer.state");
        write_setting(&state, "FROZEN");
        eventually(
            "all processes to stand still",
            READY_TIMEOUT,
            async || match std::fs::read_to_string(&state).expect("the freezer").trim() {
                "FROZEN" => Ok(()),
                other => Err(other.to_owned()),
            },
        )
        .await;
    }

    /// Lets them go on.
    pub fn resume(&self) {
        write_setting(&self.slot.cgroup("freezer").join("freezer.state"), "THAWED");
    }

    /// Takes its cable out: nothing comes in or goes out, and its own pods reach each other.
    pub async fn cut_network(&self) {
        ip(&["link", "set", &self.slot.interface(), "down"]).await;
    }

    /// Puts the cable back.
    pub async fn heal_network(&self) {
        ip(&["link", "set", &self.slot.interface(), "up"]).await;
    }

    /// Fills its disk to the last block: logs, images, container layers and the volumes of pods are on it.
    pub async fn fill_disk(&self) {
        self.run(["sh", "-c", FILL, "fill", FILLER]).await;
    }

    /// Frees what was filled.
    pub async fn free_disk(&self) {
        self.run(["rm", "--force", FILLER]).await;
    }

    /// Lets all its processes go on, those of containers that runc has frozen too.
    pub(super) fn thaw(&self) {
        for group in self.slot.freezers() {
            write_setting(&group.join("freezer.state"), "THAWED");
        }
    }
}

/// Process 1 is systemd until all units have stopped.
fn is_shutting_down(first: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{first}/comm")).unwrap_or_default();
    name.trim() != "systemd"
}

/// A cgroup that is gone has nothing to set.
#[expect(clippy::disallowed_methods, reason = "a setting of the kernel, written at once")]
fn write_setting(path: &Path, value: &str) {
    match std::fs::write(path, value) {
        Err(error) if path.exists() => panic!("{}: {error}", path.display()),
        _ => {}
    }
}
