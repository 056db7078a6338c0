//! The actions of an administrator on a node.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Stdio;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::process::Command;
use tokio::sync::oneshot;

use super::{Image, RealNode, Unit};
use crate::command::{printed, tried};

impl RealNode {
    /// Runs a command on the node as root and returns what it prints.
    ///
    /// # Panics
    /// When it fails, with its output.
    pub async fn run<const N: usize>(&self, command: [&str; N]) -> String {
        printed(self.command().args(command)).await
    }

    /// The same.
    ///
    /// # Errors
    /// The failure, with the output of the command.
    pub async fn try_run<const N: usize>(&self, command: [&str; N]) -> Result<String, String> {
        tried(self.command().args(command)).await
    }

    /// Writes a file of this machine to the node, with this mode (`0755`), which belongs to root. Folders that are
    /// missing are created.
    ///
    /// # Panics
    /// When it cannot be read or written.
    pub async fn put(&self, from: &Path, mode: &str, to: &str) {
        let file = std::fs::File::open(from).expect("a file");
        let install = ["install", "-D", "-m", mode, "/dev/stdin", to];
        printed(self.command().args(install).stdin(file)).await;
    }

    /// A program of this machine, with its files, on the network of the node.
    ///
    /// # Panics
    /// When the node has no power.
    #[must_use]
    pub fn program_on_its_network(&self, program: &Path) -> Command {
        let pid = self.first_process().expect("the node has power");
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{pid}/ns/net")).arg("--").arg(program);
        command
    }

    /// Loads an image into its containerd, under the name that it has in its archive.
    ///
    /// # Panics
    /// When containerd does not accept it.
    pub async fn load(&self, image: &Image) {
        let archive = std::fs::File::open(image.archive()).expect("the archive of an image");
        let import = [
            "/opt/node/ctr",
            "--namespace=k8s.io",
            "images",
            "import",
            "--local",
            "-",
        ];
        printed(self.command().args(import).stdin(archive)).await;
    }

    /// Pulls an image into its containerd from the registry of its network, as kubelet does.
    ///
    /// # Panics
    /// When the registry does not have it.
    pub async fn pull(&self, image: &str) {
        self.run([
            "/opt/node/ctr",
            "--namespace=k8s.io",
            "images",
            "pull",
            "--local",
            "--hosts-dir=/etc/containerd/certs.d",
            image,
        ])
        .await;
    }

    /// Starts this on the network of the node, in a thread of its own: what it connects to is what a program on the
    /// node reaches, Services and pods included. It goes on until it ends or its process does.
    ///
    /// # Panics
    /// When the node has no power. What is returned panics when the task has.
    #[expect(clippy::disallowed_methods, reason = "a network namespace is a thread's")]
    pub fn on_its_network<T, F, C>(&self, task: C) -> impl Future<Output = T> + use<T, F, C>
    where
        T: Send + 'static,
        F: Future<Output = T>,
        C: FnOnce() -> F + Send + 'static,
    {
        let pid = self.first_process().expect("the node has power");
        let network = std::fs::File::open(format!("/proc/{pid}/ns/net")).expect("its network");
        let (send, receive) = oneshot::channel();
        std::thread::spawn(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime");
            // Nobody may wait for it any more.
            let _ = send.send(runtime.block_on(async { task().await }));
        });
        async { receive.await.expect("what ran on the network of the node has panicked") }
    }

    /// Returns the log of a unit, over all boots.
    ///
    /// # Panics
    /// When the node has no power.
    #[must_use]
    pub fn log(&self, unit: Unit) -> String {
        let pid = self.first_process().expect("the node has power");
        let log = std::fs::read(format!("/proc/{pid}/root/var/log/{}.log", unit.name()));
        String::from_utf8_lossy(&log.unwrap_or_default()).into_owned()
    }

    /// In all namespaces of the node; arguments are the caller's to add.
    pub(super) fn command(&self) -> Command {
        let pid = self.first_process().expect("the node has power");
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid.to_string(), "--all", "--"]);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}
