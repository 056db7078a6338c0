//! The settings of the registry controller.

use serde::{Deserialize, Serialize};

use crate::mirror::RegistryCredentialsIn;

/// What the operator decides about pull secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RegistrySettings {
    /// The service accounts to which pull secrets are attached in each namespace, beside `containership`. An account that does not exist
    /// is not created. The role must permit to patch accounts of these names.
    pub pull_secret_service_accounts: Vec<String>,
    /// Where the mirror stores the credentials of registries. `secret`: in the Secret `registry-<id>`, with provider and address, and the
    /// Registry's own are not read, so who may write Registries cannot direct a credential to another host. `inline`: in the Registry, as
    /// the Go coordinator did, so who may write Registries decides where a credential goes.
    pub registry_credentials: RegistryCredentialsIn,
    /// Whether a credential is tried against its registry before it replaces one that works.
    pub verify_credentials: bool,
    /// Hosts (`HOST` or `HOST:PORT`) of registries that the coordinator cannot reach: their credentials are used untried.
    pub unverified_hosts: Vec<String>,
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
