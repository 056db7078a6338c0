//! The settings of the registry controller.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::values::quoted;
use tidewaiter_api::{InvalidValue, ServiceAccountName};

use super::address::ServerAddress;
use crate::mirror::RegistryCredentialsIn;

/// The operator's settings for pull secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RegistrySettings {
    /// The service accounts to which pull secrets are attached in each namespace, beside `containership`. An account
    /// that does not exist is not created. The role must permit to patch accounts of these names.
    #[serde(deserialize_with = "accounts")]
    pub pull_secret_service_accounts: Vec<ServiceAccountName>,
    /// The place in which the mirror stores the credentials of registries. `secret`: in the Secret `registry-<id>`,
    /// with provider and address, and the Registry's own are not read, so who may write Registries cannot direct a
    /// credential to another host. `inline`: in the Registry, as the Go coordinator did, so who may write Registries
    /// decides where a credential goes.
    pub registry_credentials: RegistryCredentialsIn,
    /// True if a credential is tried against its registry before it replaces one that works.
    pub verify_credentials: bool,
    /// Hosts (`HOST` or `HOST:PORT`) of registries that the coordinator cannot reach: their credentials are used
    /// untried.
    #[serde(deserialize_with = "hosts")]
    pub unverified_hosts: Vec<String>,
}

fn accounts<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<ServiceAccountName>, D::Error> {
    let names = Vec::<String>::deserialize(value).map_err(|_| D::Error::custom("must be a list of names"))?;
    let names = names.iter().map(|name| name.parse());
    let invalid =
        |InvalidValue { shown, rule, .. }| D::Error::custom(format!("{shown} is no name of a service account: {rule}"));
    names.collect::<Result<_, _>>().map_err(invalid)
}

/// Refuses what is no `HOST` or `HOST:PORT`, because it would never match a registry.
fn hosts<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    let hosts = Vec::<String>::deserialize(value).map_err(|_| D::Error::custom("must be a list of hosts"))?;
    let is_place =
        |host: &String| ServerAddress::parse(host).is_ok_and(|address| address.place().eq_ignore_ascii_case(host));
    match hosts.iter().find(|host| !is_place(host)) {
        None => Ok(hosts),
        Some(wrong) => Err(D::Error::custom(format!(
            "{} must be HOST or HOST:PORT, without https:// and without a path, for example registry.example.com:5000; the port 443 is omitted",
            quoted(wrong)
        ))),
    }
}

impl Default for RegistrySettings {
    fn default() -> Self {
        Self {
            pull_secret_service_accounts: Vec::new(),
            registry_credentials: RegistryCredentialsIn::default(),
            verify_credentials: true,
            unverified_hosts: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unverified_host_is_what_a_registry_is_compared_with() {
        let read =
            |hosts: &[&str]| serde_json::from_value::<RegistrySettings>(serde_json::json!({"unverifiedHosts": hosts}));
        for hosts in [&[][..], &["a.example.com", "10.0.0.1:5000", "Quay.io"]] {
            assert_eq!(read(hosts).unwrap().unverified_hosts, hosts);
        }
        for host in [
            "https://a.example.com",
            "a.example.com/v2",
            "a.example.com:443x",
            "kube-system",
            "",
        ] {
            let error = read(&["a.example.com", host]).unwrap_err().to_string();
            assert!(error.contains("HOST or HOST:PORT"), "{host}: {error}");
        }
    }
}
