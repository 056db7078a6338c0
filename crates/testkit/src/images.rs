//! The images of a binary, made as an operator makes them: by `hack/image/build`.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::command::printed;
use crate::{Image, Scratch, assets};

/// Of the images, and of the manifests in `deploy/`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The images of one binary, in a folder of their own.
#[derive(Debug)]
pub struct Images {
    scratch: Scratch,
}

impl Images {
    /// Builds them.
    ///
    /// # Panics
    /// When the build fails, with what it says.
    pub async fn build(binary: &Path) -> Self {
        Self::build_by(Command::new(build_script()), binary).await
    }

    /// The same by a command that runs the script with the arguments that it is given.
    pub async fn build_by(mut script: Command, binary: &Path) -> Self {
        let images = Self {
            scratch: Scratch::new("images"),
        };
        // The symbols of a debug binary are hundreds of megabytes. A released one has none.
        let mut strip = Command::new("strip");
        printed(strip.arg("-o").arg(images.binary()).arg(binary)).await;
        script.arg(images.binary()).arg(images.folder());
        // The program under test need not be small.
        script.env("COMPRESSION_LEVEL", "1").env("SIZE_LIMIT", "0");
        let last = printed(&mut script).await;
        let base = images.file("tidewaiter", "tar").with_extension("");
        assert_eq!(last.lines().last(), base.to_str(), "{last}");
        images
    }

    /// The binary that is in them.
    #[must_use]
    pub fn binary(&self) -> PathBuf {
        self.scratch.path().join("binary")
    }

    /// The image for all roles.
    #[must_use]
    pub fn tidewaiter(&self) -> Image {
        self.image("tidewaiter")
    }

    /// The image for the `DaemonSet` of kOps.
    #[must_use]
    pub fn kops_controller(&self) -> Image {
        self.image("kops-controller")
    }

    /// The file of an image with this ending.
    #[must_use]
    pub fn file(&self, name: &str, ending: &str) -> PathBuf {
        self.folder()
            .join(format!("{name}-{VERSION}-linux-{}.{ending}", architecture()))
    }

    fn image(&self, name: &str) -> Image {
        Image::open(self.file(name, "tar"), format!("registry.invalid/{name}:{VERSION}"))
    }

    fn folder(&self) -> PathBuf {
        self.scratch.path().join("dist")
    }
}

/// `hack/image/build`.
#[must_use]
pub fn build_script() -> PathBuf {
    assets::repository().join("hack/image/build")
}

/// As Go calls it.
#[must_use]
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
