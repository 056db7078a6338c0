//! Fetches the script of this node from the coordinator, which gets it from the cloud. The agent has no key of the
//! cloud: it sends a token of its pod for the coordinator alone, which says which node it is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Certificate, Client, StatusCode, redirect};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_kit::files;
use tidewaiter_upgrade::Version;
use url::Url;

/// The time that the coordinator may take: it sends requests to the API server and the cloud.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(40);

/// A script is at most 1 MiB long.
const MAX_BYTES: usize = 1024 * 1024;

/// The address of the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CoordinatorSettings {
    /// The address of the coordinator's endpoints, from which scripts come.
    #[serde(deserialize_with = "address")]
    pub url: Url,
    /// The file with the certificates that are trusted for the coordinator in place of those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The file with the token for the coordinator. The kubelet renews it.
    pub token_file: PathBuf,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "a constant, which a test reads")]
        let url = "http://tidewaiter-coordinator.containership-core.svc:8000"
            .parse()
            .expect("an address");
        Self {
            url,
            ca_file: None,
            token_file: PathBuf::from("/var/run/secrets/tidewaiter/coordinator/token"),
        }
    }
}

fn address<'de, D: Deserializer<'de>>(value: D) -> Result<Url, D::Error> {
    let url = Url::deserialize(value)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(D::Error::custom(format!("{url} must be an address with http or https")));
    }
    Ok(url)
}

/// The reason why there is no script.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// A file cannot be read.
    #[error("coordinator.{setting} is {}: it cannot be read", path.display())]
    File {
        /// The setting.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The client cannot be made.
    #[error("coordinator.caFile has no usable certificate")]
    Client(#[source] reqwest::Error),
    /// There is no answer.
    #[error("the coordinator does not answer at {url}")]
    Unanswered {
        /// Its address.
        url: Url,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The answer is no script.
    #[error("the coordinator has no script: {status}: {message}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// The message of the coordinator.
        message: String,
    },
    /// It is too long.
    #[error("the coordinator sends more than {MAX_BYTES} bytes")]
    TooLong,
}

/// The response of a coordinator that has no script.
#[derive(Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    message: String,
}

/// The client of the coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    http: Client,
    settings: CoordinatorSettings,
}

impl Relay {
    pub(crate) fn new(settings: CoordinatorSettings) -> Result<Self, RelayError> {
        let mut builder = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(RESPONSE_TIMEOUT);
        if let Some(path) = &settings.ca_file {
            let pem = read("caFile", path)?;
            let certificates = Certificate::from_pem_bundle(&pem).map_err(RelayError::Client)?;
            builder = builder.tls_certs_only(certificates);
        }
        let http = builder.build().map_err(RelayError::Client)?;
        Ok(Self { http, settings })
    }

    /// The script that upgrades this node to the version. It is not trusted.
    pub(crate) async fn script(&self, version: &Version) -> Result<String, RelayError> {
        let mut url = self.settings.url.clone();
        url.set_path("/upgrade/kubernetes");
        url.query_pairs_mut()
            .append_pair("version", version.to_string().trim_start_matches('v'));
        let unanswered = |source: reqwest::Error| RelayError::Unanswered {
            url: self.settings.url.clone(),
            source: source.without_url(),
        };
        let token = read("tokenFile", &self.settings.token_file)?;
        let token = String::from_utf8_lossy(&token);
        let request = self.http.get(url).bearer_auth(token.trim());
        let mut response = request.send().await.map_err(unanswered)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unanswered)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BYTES {
                return Err(RelayError::TooLong);
            }
        }
        if status != StatusCode::OK {
            let body: ErrorBody = serde_json::from_slice(&body).unwrap_or_default();
            let message = body.message.chars().filter(|c| !c.is_control()).take(256).collect();
            return Err(RelayError::Refused { status, message });
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, RelayError> {
    files::read(path).map_err(|source| RelayError::File {
        setting,
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_address_is_that_of_the_chart() {
        let settings = CoordinatorSettings::default();
        assert_eq!(
            settings.url.host_str(),
            Some("tidewaiter-coordinator.containership-core.svc")
        );
    }
}
