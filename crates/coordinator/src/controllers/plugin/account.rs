//! The identities by which the objects of each plugin are read and written (`pluginServiceAccounts`).
//!
//! The operator says it: the cloud must not choose its own rights.

use std::fmt::{self, Display};
use std::str::FromStr;

use kube::Client;
use serde::{Deserialize, Serialize};
use tidewaiter_api::ServiceAccountName;
use tidewaiter_api::values::quoted;
use tidewaiter_cloud::models::values::Namespace;
use tidewaiter_kit::client::impersonate;

/// A service account, written as `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PluginAccount {
    namespace: Namespace,
    name: ServiceAccountName,
}

impl PluginAccount {
    /// A client that acts as it, with the limits and the fence of `client`.
    pub(super) fn client(&self, client: &Client) -> Client {
        impersonate(client, self.namespace.as_str(), self.name.as_str())
    }
}

impl Display for PluginAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for PluginAccount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(namespace, name)| {
            Some(Self {
                namespace: namespace.parse().ok()?,
                name: name.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| {
            format!(
                "{} is no service account: write NAMESPACE/NAME, for example monitoring/prometheus-plugin",
                quoted(text)
            )
        })
    }
}

impl TryFrom<String> for PluginAccount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PluginAccount> for String {
    fn from(account: PluginAccount) -> Self {
        account.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_written_with_its_namespace() {
        let account: PluginAccount = "monitoring/metrics".parse().unwrap();
        assert_eq!(account.to_string(), "monitoring/metrics");
        for wrong in [
            "",
            "metrics",
            "monitoring/",
            "/metrics",
            "a/b/c",
            "A/b",
            "a/b\r\nImpersonate-Group: system:masters",
        ] {
            let error = wrong.parse::<PluginAccount>().unwrap_err();
            assert!(error.contains("NAMESPACE/NAME"), "{error}");
        }
    }
}
