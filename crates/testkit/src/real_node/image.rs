//! Images as OCI archives: tar files of an OCI image layout.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{copy, write_new};
use crate::command::printed;
use crate::images::architecture;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image in an archive, and its name there.
#[derive(Clone, Debug)]
pub struct Image {
    archive: PathBuf,
    name: String,
}

impl Image {
    /// The image of this name (`host/repository:tag`) in an OCI archive.
    #[must_use]
    pub fn open(archive: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        Self {
            archive: archive.into(),
            name: name.into(),
        }
    }

    /// Makes an image of one layer in a new archive in this folder: each file from its path here to its path there.
    ///
    /// # Panics
    /// When a file cannot be read.
    pub async fn build(folder: &Path, name: &str, files: &[(&Path, &str)], entrypoint: &[&str]) -> Self {
        let folder = folder.join(format!("image-{}", name.replace(['/', ':'], "-")));
        let (root, layout, archive) = (folder.join("root"), folder.join("layout"), folder.join("image.tar"));
        for (from, to) in files {
            copy(from, &root.join(to));
        }
        let layer = folder.join("layer.tar");
        tar(&root, &layer).await;
        let bytes = std::fs::read(&layer).expect("our own file");
        let layer_digest = sha256(&bytes);
        copy(&layer, &blob(&layout, &layer_digest));
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(&layout, CONFIG, &config),
            "layers": [{"mediaType": LAYER, "digest": layer_digest, "size": bytes.len()}],
        });
        let mut described = descriptor(&layout, MANIFEST, &manifest);
        described["annotations"] = json!({"io.containerd.image.name": name});
        let index = json!({"schemaVersion": 2, "manifests": [described]});
        write_new(&layout.join("index.json"), &index.to_string());
        write_new(&layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#);
        tar(&layout, &archive).await;
        Self::open(archive, name)
    }

    /// The file.
    #[must_use]
    pub fn archive(&self) -> &Path {
        &self.archive
    }

    /// Its name in the archive, as pods say it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Stores a JSON blob and describes it.
fn descriptor(layout: &Path, media_type: &str, content: &Value) -> Value {
    let text = content.to_string();
    let digest = sha256(text.as_bytes());
    write_new(&blob(layout, &digest), &text);
    json!({"mediaType": media_type, "digest": digest, "size": text.len()})
}

fn blob(layout: &Path, digest: &str) -> PathBuf {
    layout.join("blobs").join(digest.replace(':', "/"))
}

fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write;
    digest(&SHA256, bytes)
        .as_ref()
        .iter()
        .fold("sha256:".to_owned(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a string takes all");
            text
        })
}

/// The same files give the same archive.
async fn tar(folder: &Path, archive: &Path) {
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--sort=name",
        "--mtime=@0",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    printed(tar.arg("--file").arg(archive).arg("--directory").arg(folder).arg(".")).await;
}
