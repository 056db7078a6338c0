//! The pages of `docs/reference`. Each is written from the one place that defines its content: the definitions of the
//! custom resources, the rendered manifests, the comments of the settings, the registrations of the metrics, the
//! reasons of Events with the pages about them, and the command line.

mod commands;
mod crds;
mod events;
mod markdown;
mod metrics;
mod permissions;
mod ports;
mod settings;
mod source;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// A manifest's path below the repository, and its objects.
pub struct Manifest {
    path: String,
    objects: Vec<Value>,
}

/// The pages with their content. `manifests` are the generated files of `deploy/`.
pub fn generated(root: &Path, manifests: &[(PathBuf, String)]) -> Result<Vec<(PathBuf, String)>> {
    let manifests = parsed(root, manifests)?;
    let pages = [
        ("commands", commands::page(root)?),
        ("settings", settings::page(root)?),
        ("metrics", metrics::page(root)?),
        ("events", events::page(root)?),
        ("permissions", permissions::page(&manifests)),
        ("ports", ports::page(&manifests)),
        ("custom-resources", crds::page()?),
    ];
    let folder = root.join("docs/reference");
    let paths = pages.map(|(name, page)| (folder.join(format!("{name}.md")), page));
    Ok(paths.into())
}

fn parsed(root: &Path, manifests: &[(PathBuf, String)]) -> Result<Vec<Manifest>> {
    let yaml = manifests
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "yaml"));
    let parsed = yaml.map(|(path, text)| -> Result<Manifest> {
        let path = path.strip_prefix(root)?.display().to_string();
        let objects = serde_saphyr::from_multiple(text).with_context(|| format!("{path} as YAML"))?;
        Ok(Manifest { path, objects })
    });
    parsed.collect()
}
