//! The settings of the client, and how a cluster's controllers read them from their environment.
//!
//! An error names the variable, its value and the remedy. It shows neither the key nor a URL that contains a password.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tidewaiter_api::InvalidValue;
use tidewaiter_api::values::{quoted, quoted_address};
use tidewaiter_kit::duration;
use url::{Host, Url};

use super::path::Cluster;
use super::token::{AccessToken, InvalidToken};
use crate::models::values::{ClusterId, OrganizationId};

const SYNC_INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(30);
const DEADLINE: Duration = Duration::from_secs(90);
const HEDGE_AFTER: Duration = Duration::from_secs(2);

/// The base URL of a part of the cloud: a host without a path, because clients resolve `/v3/…` against the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(Url);

/// The text is not a valid base URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{shown}: {reason}")]
pub struct InvalidBaseUrl {
    /// The text, quoted; omitted if it contains a user or password.
    pub shown: String,
    /// The violated rule and the remedy.
    pub reason: &'static str,
}

/// Returns true if a URL contains a user or a password, which logs and errors would show.
#[must_use]
pub fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

impl BaseUrl {
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns true without TLS.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// Returns true if it is an address of this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.0.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str().trim_end_matches('/'))
    }
}

impl FromStr for BaseUrl {
    type Err = InvalidBaseUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBaseUrl> {
        let invalid = |reason| InvalidBaseUrl {
            shown: quoted_address(text),
            reason,
        };
        // The parser removes line breaks and tabs.
        let plain = !text.contains(char::is_control);
        let url = Url::parse(text).ok().filter(|url| plain && url.has_host());
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && text.contains("://"));
        let url = url.ok_or_else(|| invalid("must be a URL of a host, for example https://cloud.example.com"))?;
        if has_user(&url) {
            return Err(invalid(
                "must not contain a user or password; the token is a separate setting",
            ));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(invalid(
                "contains more than a host, but clients request /v3/… at the root of the host; remove the path and give the cloud a host of its own",
            ));
        }
        Ok(Self(url))
    }
}

#[derive(Clone)]
pub struct ClientSettings {
    pub api: BaseUrl,
    pub provision: BaseUrl,
    pub auth: BaseUrl,
    /// The token of the caller; without it, only logging in is useful.
    pub token: Option<AccessToken>,
    /// The file that the token was read from, if any. It is read again before each request, so that a new token needs
    /// no restart.
    pub token_file: Option<PathBuf>,
    /// The trusted certificates (PEM), which replace those of the system.
    pub ca: Option<Vec<u8>>,
    /// The proxy; by default that of `HTTPS_PROXY` and `NO_PROXY`. A plain HTTP base URL is always requested directly.
    pub proxy: Option<Url>,
    /// The timeout of one attempt.
    pub timeout: Duration,
    /// The time after which a read without a response is sent once more, on a new connection.
    pub hedge_after: Duration,
    /// The timeout of a request with all its retries.
    pub deadline: Duration,
    /// The polling interval while there is no change stream.
    pub sync_interval: Duration,
    /// The user agent, for the logs of the server.
    pub user_agent: String,
    /// Permits sending the token in plain text to other hosts.
    pub allow_plain_http: bool,
}

impl ClientSettings {
    /// All three parts at one URL, without a token, with default settings.
    #[must_use]
    pub fn new(base: BaseUrl) -> Self {
        Self {
            api: base.clone(),
            provision: base.clone(),
            auth: base,
            token: None,
            token_file: None,
            ca: None,
            proxy: None,
            timeout: TIMEOUT,
            hedge_after: HEDGE_AFTER,
            deadline: DEADLINE,
            sync_interval: SYNC_INTERVAL,
            user_agent: concat!("tidewaiter/", env!("CARGO_PKG_VERSION")).to_owned(),
            allow_plain_http: false,
        }
    }

    /// The settings from the variables `CONTAINERSHIP_CLOUD_…`. Provision and Auth default to the URL of API.
    /// `CONTAINERSHIP_CLOUD_CA_FILE` is our addition.
    ///
    /// # Errors
    /// If a variable is missing or invalid.
    pub fn from_environment(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<CloudEnvironment, SettingsError> {
        let variables = Variables::new(variables);
        let wanted = "the URL of the cloud, for example https://cloud.example.com";
        let api: BaseUrl = variables.required("API_BASE_URL", wanted)?;
        let mut settings = Self::new(api.clone());
        settings.provision = variables.optional("PROVISION_BASE_URL")?.unwrap_or_else(|| api.clone());
        settings.auth = variables.optional("AUTH_BASE_URL")?.unwrap_or(api);
        let cluster = Cluster {
            organization: variables.required("ORGANIZATION_ID", "the id of the cluster's organization")?,
            id: variables.required("CLUSTER_ID", "the id of the cluster in the cloud")?,
        };
        let wanted = "the API key that the cloud returned when the cluster was attached";
        settings.token = Some(variables.required("CLUSTER_API_KEY", wanted)?);
        if let Some(Interval(interval)) = variables.optional("SYNC_INTERVAL_SEC")? {
            settings.sync_interval = interval;
        }
        if let Some((name, path)) = variables.find("CA_FILE") {
            let read = std::fs::read(path);
            settings.ca = Some(read.map_err(|source| SettingsError::Ca {
                variable: name,
                path: path.to_owned(),
                source,
            })?);
        }
        Ok(CloudEnvironment { settings, cluster })
    }

    /// Checks those of the variables that are set and are no secret. Reads no file.
    ///
    /// # Errors
    /// If a variable is invalid.
    pub fn check_environment(variables: impl IntoIterator<Item = (String, String)>) -> Result<(), SettingsError> {
        let variables = Variables::new(variables);
        for name in ["API_BASE_URL", "PROVISION_BASE_URL", "AUTH_BASE_URL"] {
            variables.optional::<BaseUrl>(name)?;
        }
        variables.optional::<OrganizationId>("ORGANIZATION_ID")?;
        variables.optional::<ClusterId>("CLUSTER_ID")?;
        variables.optional::<Interval>("SYNC_INTERVAL_SEC")?;
        Ok(())
    }

    pub(super) fn bases(&self) -> [&BaseUrl; 3] {
        [&self.api, &self.provision, &self.auth]
    }

    pub(super) fn urls(&self) -> [Url; 3] {
        self.bases().map(|base| base.0.clone())
    }
}

impl SettingsError {
    /// The variable that is missing or invalid.
    #[must_use]
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Missing { variable, .. } | Self::Invalid { variable, .. } | Self::Ca { variable, .. } => {
                Some(variable)
            }
            Self::Certificates(_) | Self::Plain(_) | Self::Build(_) => None,
        }
    }
}

impl fmt::Debug for ClientSettings {
    /// Without the token and the proxy, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSettings")
            .field("api", &self.api.as_str())
            .field("provision", &self.provision.as_str())
            .field("auth", &self.auth.as_str())
            .finish_non_exhaustive()
    }
}

/// The environment of a cluster's controllers.
#[derive(Clone, Debug)]
pub struct CloudEnvironment {
    pub settings: ClientSettings,
    pub cluster: Cluster,
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{variable} is not set: it must be {wanted}")]
    Missing { variable: String, wanted: &'static str },
    #[error("{variable} is {reason}")]
    Invalid {
        variable: String,
        /// The value unless it is secret, the error and what is allowed.
        reason: String,
    },
    #[error("{variable} is {path}: the file cannot be read")]
    Ca {
        variable: String,
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("the CA certificates cannot be used: they must be PEM, one or more CERTIFICATE blocks")]
    Certificates(#[source] Option<reqwest::Error>),
    /// With this base URL the token would be sent in plain text to another host.
    #[error("{0} is plain HTTP, which exposes the token on the network: use https://")]
    Plain(BaseUrl),
    /// The user agent contains characters that are invalid in a header.
    #[error("the HTTP client cannot be built: check the proxy, the certificates and the user agent")]
    Build(#[source] reqwest::Error),
}

/// Variables by name.
struct Variables(HashMap<String, String>);

impl Variables {
    fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(variables.into_iter().filter(|(_, value)| !value.is_empty()).collect())
    }

    fn find(&self, name: &str) -> Option<(String, &str)> {
        let name = format!("CONTAINERSHIP_CLOUD_{name}");
        let value = self.0.get(&name)?;
        Some((name, value))
    }

    fn optional<T: Setting>(&self, name: &str) -> Result<Option<T>, SettingsError> {
        let Some((variable, value)) = self.find(name) else {
            return Ok(None);
        };
        let read = T::read(value).map(Some);
        read.map_err(|reason| SettingsError::Invalid { variable, reason })
    }

    fn required<T: Setting>(&self, name: &str, wanted: &'static str) -> Result<T, SettingsError> {
        self.optional(name)?.ok_or_else(|| SettingsError::Missing {
            variable: format!("CONTAINERSHIP_CLOUD_{name}"),
            wanted,
        })
    }
}

/// A type that a variable can be parsed as. The error contains the value, unless it is secret, and what is allowed.
trait Setting: Sized {
    fn read(text: &str) -> Result<Self, String>;
}

/// The polling interval.
struct Interval(Duration);

impl Setting for Interval {
    fn read(text: &str) -> Result<Self, String> {
        let permitted = Duration::from_secs(1)..=Duration::from_hours(24);
        let read = duration::within(text, &permitted, "from 1s to 24h, for example 30s");
        read.map(Self).map_err(|rule| format!("{}: {rule}", quoted(text)))
    }
}

macro_rules! settings {
    ($($type:ty, $shown:expr;)+) => { $(
        impl Setting for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err($shown)
            }
        }
    )+ };
}

settings! {
    BaseUrl, |error: InvalidBaseUrl| error.to_string();
    AccessToken, |error: InvalidToken| error.to_string();
    OrganizationId, without_kind;
    ClusterId, without_kind;
}

/// The name of the variable says what kind of value it is.
fn without_kind(InvalidValue { shown, rule, .. }: InvalidValue) -> String {
    format!("{shown}: {rule}")
}
