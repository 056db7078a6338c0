//! `tidewaiter cloud sign`: signs the manifests of a plugin. Nothing comes from the cloud, so it cannot say what is signed, and the key stays here.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result, anyhow};
use tidewaiter_cloud::models::{PluginManifests, Unknown, parse};
use tidewaiter_cloud::signed::{SigningKey, Statement, manifests_digest};
use tidewaiter_kit::SystemClock;

use super::documents::values;
use crate::cli::SignArgs;
use crate::password;

/// Prints the signature, or, without a key, the text to sign.
pub(super) fn sign(args: &SignArgs) -> Result<()> {
    let digest = digest(args).with_context(|| args.filename.display().to_string())?;
    let (cluster, plugin) = (args.cluster.to_string(), args.plugin.to_string());
    let version = args.plugin_version.to_string();
    let statement = Statement {
        cluster: &cluster,
        plugin: &plugin,
        plugin_type: args.plugin_type.as_str(),
        implementation: args.implementation.as_str(),
        version: &version,
        digest: &digest,
    };
    let text = match &args.secret_key {
        None => statement.text()?,
        Some(path) => {
            let key = std::fs::read_to_string(path).with_context(|| format!("--secret-key {}", path.display()))?;
            let key = zeroize::Zeroizing::new(key);
            let prompt = format!("The password of {}", path.display());
            let password = || password::read(args.password_file.as_deref(), &prompt, false);
            SigningKey::read(&key, password)?.sign(&statement, SystemClock::shared().now().as_second())?
        }
    };
    let printed = io::stdout().write_all(text.as_bytes());
    printed.context("writing to standard output")
}

/// The digest of the manifests as the cloud stores them.
fn digest(args: &SignArgs) -> Result<String> {
    let text = std::fs::read_to_string(&args.filename)?;
    let mut documents = values(&text)?;
    let (Some(document), true) = (documents.pop(), documents.is_empty()) else {
        return Err(anyhow!("must contain one document, with the field manifests"));
    };
    let manifests: PluginManifests = parse(document.to_string().as_bytes(), Unknown::Refuse)?;
    Ok(manifests_digest(&serde_json::to_value(manifests)?))
}
