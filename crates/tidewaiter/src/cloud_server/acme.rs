//! The settings of certificates by ACME.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tidewaiter_cloud::server::AcmeSettings;
use url::Url;

/// The directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The provider of certificates by ACME.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    default,
    deny_unknown_fields,
    expecting = "a mapping with directory, email and caFile"
)]
pub(super) struct AcmeSection {
    /// The URL of the provider's directory, by default that of Let's Encrypt. Its terms of service are agreed to.
    directory: String,
    /// The address to which the provider writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    /// The file of the authority of the provider's own certificate, if it is not a public one.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
}

impl Default for AcmeSection {
    fn default() -> Self {
        Self {
            directory: LETS_ENCRYPT.to_owned(),
            email: None,
            ca_file: None,
        }
    }
}

impl AcmeSection {
    /// The settings of the server with this public URL.
    pub(super) fn settings(
        &self,
        public_url: Option<&Url>,
        address: SocketAddr,
        folder: PathBuf,
    ) -> Result<AcmeSettings> {
        let directory: Option<Url> = self.directory.parse().ok();
        let directory = directory.filter(|url| url.scheme() == "https");
        let directory =
            directory.with_context(|| format!("acme.directory is {}, must be an https:// URL", self.directory))?;
        let public = public_url.filter(|url| url.scheme() == "https");
        if public.and_then(Url::domain).is_none() {
            bail!("acme is set, so publicUrl must be https:// with the domain name of the certificate");
        }
        Ok(AcmeSettings {
            directory,
            email: self.email.clone(),
            ca: self.ca_file.clone(),
            address,
            folder,
        })
    }
}
