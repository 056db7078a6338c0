//! A registry on the network of the nodes: whatever image a pod names is pulled from it, under its path without the
//! host.

use tokio::process::Command;

use super::Image;
use crate::command::printed;
use crate::{ControlPlane, Process, Program, Scratch, assets, eventually};

/// A running registry, empty at first. It ends when this is dropped.
#[derive(Debug)]
pub struct Registry {
    address: String,
    process: Process,
    scratch: Scratch,
}

impl Registry {
    /// Starts the registry of this control plane's nodes; there is one at most.
    ///
    /// # Panics
    /// When it does not come up, with its log.
    pub async fn start(control_plane: &ControlPlane) -> Self {
        let address = format!("{}:5000", control_plane.network().address());
        let scratch = Scratch::new("registry");
        let disk = scratch.path().join("blobs");
        std::fs::create_dir(&disk).expect("a folder");
        let program = Program::new(assets::node_programs().join("crane"))
            .args(["registry", "serve", "--address", &address, "--disk"])
            .arg(&disk);
        let registry = Self {
            process: Process::start(&scratch, program),
            address,
            scratch,
        };
        eventually("the registry to answer", super::READY_TIMEOUT, async || {
            let log = registry.process.log_tail();
            assert!(registry.process.is_running(), "the registry ended:\n{log}");
            tokio::net::TcpStream::connect(&registry.address).await
        })
        .await;
        registry
    }

    /// Puts an image into it.
    ///
    /// # Panics
    /// When its archive cannot be read.
    pub async fn push(&self, image: &Image) {
        let layout = self.scratch.path().join("layout");
        let _ = std::fs::remove_dir_all(&layout);
        std::fs::create_dir(&layout).expect("a folder");
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--file").arg(image.archive());
        printed(tar.arg("--directory").arg(&layout)).await;
        let path = image.name().split_once('/').map_or(image.name(), |(_, path)| path);
        let mut crane = Command::new(assets::node_programs().join("crane"));
        crane.args(["push", "--insecure"]).arg(&layout);
        printed(crane.arg(format!("{}/{path}", self.address))).await;
    }

    /// Puts an image that it has into it once more, with another label and under another tag: another image with the
    /// same content.
    ///
    /// # Panics
    /// When it does not have the image.
    pub async fn relabel(&self, image: &Image, tag: &str) {
        let path = image.name().split_once('/').map_or(image.name(), |(_, path)| path);
        let (repository, _) = path.split_once(':').expect("an image has a tag");
        let mut crane = Command::new(assets::node_programs().join("crane"));
        crane.args(["mutate", "--insecure", "--label", &format!("tag={tag}")]);
        crane.args(["--tag", &format!("{}/{repository}:{tag}", self.address)]);
        printed(crane.arg(format!("{}/{path}", self.address))).await;
    }

    /// The process: to stop, kill, pause and resume.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}
