//! The coordinator's settings: a file, the variables of the Go coordinator, our own variables, flags, in that order;
//! later wins.
//!
//! The API key is no setting: it is read from its variable or its file when the role starts, and never printed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::access::SystemNamespaces;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_api::values::quoted;
use tidewaiter_cloud::client::{BaseUrl, Client, ClientSettings, CloudEnvironment, SettingsError};
use tidewaiter_cloud::signed::TrustedKey;
use tidewaiter_coordinator::controllers::{
    ByPlugin, Decisions, PluginAccount, PluginApproval, PluginDrift, PluginSettings, PluginSync, RbacSettings,
    RegistrySettings, Upgrades,
};
use tidewaiter_coordinator::mirror::MassDeletion;
use tidewaiter_coordinator::node_pools::NodePools;
use tidewaiter_kit::SystemClock;
use tidewaiter_kit::files;
use tidewaiter_kit::role::address;
use tidewaiter_kit::settings::Origins;

use super::NAME;
use super::environment::{ALIASES, API_KEY};
use crate::controller::environment::{Variables, variable};
use crate::settings::LeasePlace;

/// The settings of the coordinator, besides those of every role.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct CoordinatorSettings {
    /// The cloud that is mirrored into the cluster.
    pub(super) cloud: CloudSettings,
    /// The port for `/metadata` and `/terminate`.
    pub(super) endpoints: EndpointSettings,
    /// The condition under which a mass deletion takes place.
    mass_deletion: MassDeletion,
    /// The source of a Node's node pool.
    node_pools: NodePools,
    /// The Lease of the leader.
    pub(super) lease: LeasePlace,
    /// Pull secrets.
    registries: RegistrySettings,
    /// The `ClusterRole` that limits every role of the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    rbac_ceiling: Option<String>,
    /// True if rules of roles that amount to full control of the cluster are applied.
    allow_privileged: bool,
    /// The namespaces, besides the built-in ones, in which a role counts as bound in the whole cluster: names, or
    /// beginnings of names that end with `*`.
    system_namespaces: Vec<String>,
    /// The plugins of the cloud that are applied.
    plugin_sync: PluginSync,
    /// The handling of an object of a plugin that somebody changed or deleted.
    plugin_drift: PluginDrift,
    /// The plugins that need a person's approval for each version: `automatic` (none), `manual` (all), or a mapping
    /// from plugins to these.
    plugin_approval: PluginApproval,
    /// The kinds that plugins may not have: `KIND.GROUP`, or `KIND` of any group.
    plugin_deny: Vec<String>,
    /// The public keys of which one must have signed the manifests of a plugin.
    plugin_trust: Vec<TrustedKey>,
    /// The service accounts with which the objects of plugins are read and written: a mapping from plugins to
    /// `NAMESPACE/NAME`.
    plugin_service_accounts: ByPlugin<PluginAccount>,
    /// The switch for upgrades of nodes, as `ClusterUpgrade`s say.
    upgrades: Upgrades,
    /// True if admins of the cloud may release what the cluster holds and approve versions of plugins: a cloud that
    /// somebody has taken over can do it, too.
    accept_releases_from_cloud: bool,
}

/// The cloud, and this cluster in it. The texts are parsed by the client's own settings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct CloudSettings {
    /// The base URL of the cloud, without a path. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_base_url: Option<String>,
    /// The base URL of Provision, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    provision_base_url: Option<String>,
    /// The base URL of Auth, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_base_url: Option<String>,
    /// The UUID of the organization. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    organization_id: Option<String>,
    /// The UUID of the cluster. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_id: Option<String>,
    /// The file with the API key of the cluster, read before each request. Required, unless the variable
    /// `CONTAINERSHIP_CLOUD_CLUSTER_API_KEY` has the key, which overrides the file and needs a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_key_file: Option<PathBuf>,
    /// The file with the certificates (PEM) that are trusted for the cloud in place of those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<String>,
    /// The interval of polls, from `1s` to `24h`; `30s` unless it is set.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "duration_text")]
    sync_interval: Option<String>,
}

/// A number without a unit is no text.
fn duration_text<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(value)
        .map_err(|_| D::Error::custom("must be a duration with a unit, from 1s to 24h, for example 30s"))
}

/// The port for `/metadata` and `/terminate`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct EndpointSettings {
    /// The listen address; `[::]:8000` with only IPv6.
    #[serde(deserialize_with = "address")]
    pub(super) address: SocketAddr,
    /// The file of the TLS certificate (PEM), read every minute. Without it, the port serves HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_certificate: Option<PathBuf>,
    /// The file of the certificate's private key (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_key: Option<PathBuf>,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        Self {
            cloud: CloudSettings::default(),
            endpoints: EndpointSettings::default(),
            mass_deletion: MassDeletion::default(),
            node_pools: NodePools::default(),
            lease: LeasePlace {
                namespace: CONTAINERSHIP_NAMESPACE.to_owned(),
                name: NAME.to_owned(),
            },
            registries: RegistrySettings::default(),
            rbac_ceiling: None,
            allow_privileged: false,
            system_namespaces: Vec::new(),
            plugin_sync: PluginSync::default(),
            plugin_drift: PluginDrift::default(),
            plugin_approval: PluginApproval::default(),
            plugin_deny: Vec::new(),
            plugin_trust: Vec::new(),
            plugin_service_accounts: ByPlugin::default(),
            upgrades: Upgrades::default(),
            accept_releases_from_cloud: false,
        }
    }
}

impl Default for EndpointSettings {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::UNSPECIFIED, 8000).into(),
            tls_certificate: None,
            tls_key: None,
        }
    }
}

impl EndpointSettings {
    /// The files of the certificate and of its key.
    pub(super) fn tls(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls_certificate.clone().zip(self.tls_key.clone())
    }
}

impl CoordinatorSettings {
    /// Returns the operator's decisions about the controllers.
    pub(super) fn decisions(&self) -> Decisions {
        Decisions {
            mass_deletion: self.mass_deletion,
            registries: self.registries.clone(),
            node_pools: self.node_pools,
            rbac: RbacSettings {
                ceiling: self.rbac_ceiling.clone(),
                allow_privileged: self.allow_privileged,
                system_namespaces: SystemNamespaces::and(self.system_namespaces.clone()),
            },
            plugins: PluginSettings {
                sync: self.plugin_sync,
                drift: self.plugin_drift,
                approval: self.plugin_approval.clone(),
                deny: self.plugin_deny.clone(),
                trust: self.plugin_trust.clone(),
                accounts: self.plugin_service_accounts.clone(),
            },
            upgrades: self.upgrades,
            accept_releases_from_cloud: self.accept_releases_from_cloud,
        }
    }

    /// Checks the values that are set. Reads no secret.
    pub(super) fn check(&self, origins: &Origins) -> Result<()> {
        if self.endpoints.tls_certificate.is_some() != self.endpoints.tls_key.is_some() {
            bail!("endpoints.tlsCertificate and endpoints.tlsKey belong together: set both or neither");
        }
        let is_name = |name: &String| !name.is_empty() && !name.contains(['/', '%']);
        if let Some(name) = self.rbac_ceiling.as_ref().filter(|name| !is_name(name)) {
            bail!(
                "{}: rbacCeiling is {}, must be the name of a ClusterRole; leave it out for no ceiling",
                origins.of("rbacCeiling"),
                quoted(name)
            );
        }
        let is_pattern = |name: &&String| {
            let stem = name.strip_suffix('*').unwrap_or(name);
            let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !stem.is_empty() && stem.chars().all(is_allowed)
        };
        if let Some(name) = self.system_namespaces.iter().find(|name| !is_pattern(name)) {
            bail!(
                "{}: systemNamespaces has {}, must be names of namespaces, or beginnings of such names that end with *",
                origins.of("systemNamespaces"),
                quoted(name)
            );
        }
        if let Some(kind) = self.plugin_deny.iter().find(|kind| !is_kind(kind)) {
            bail!(
                "{}: pluginDeny has {}, must be kinds, for example ClusterRoleBinding.rbac.authorization.k8s.io, or Secret for one without a group or of any",
                origins.of("pluginDeny"),
                quoted(kind)
            );
        }
        let checked = ClientSettings::check_environment(self.cloud.variables());
        checked.map_err(|error| with_origin(error, origins))
    }

    /// The client's settings with the API key, and the cluster.
    pub(super) fn cloud(&self, origins: &Origins, environment: &Variables) -> Result<CloudEnvironment> {
        let key = self.cloud.api_key(environment)?;
        let missing = self.cloud.missing(key.is_none());
        if !missing.is_empty() {
            bail!(
                "the coordinator mirrors a cloud, and not all of its settings are set: set {}",
                missing.join(", ")
            );
        }
        let key = key.map(|key| (API_KEY.to_owned(), key));
        let read = ClientSettings::from_environment(self.cloud.variables().into_iter().chain(key));
        let mut cloud = read.map_err(|error| match (error.variable(), &self.cloud.api_key_file) {
            (Some(API_KEY), Some(path)) if variable(environment, API_KEY).is_none() => {
                let context = format!("cloud.apiKeyFile is {}", path.display());
                anyhow!(error).context(context)
            }
            _ => with_origin(error, origins),
        })?;
        let from_file = variable(environment, API_KEY).is_none();
        cloud.settings.token_file = self.cloud.api_key_file.clone().filter(|_| from_file);
        // Errors that only the client finds: nothing has started yet.
        let client = Client::new(&cloud.settings, SystemClock::shared());
        client.map_err(|error| self.cloud.explained(error, origins))?;
        Ok(cloud)
    }
}

impl CloudSettings {
    fn settings(&self) -> [(&'static str, Option<&String>); 7] {
        [
            ("cloud.apiBaseUrl", self.api_base_url.as_ref()),
            ("cloud.provisionBaseUrl", self.provision_base_url.as_ref()),
            ("cloud.authBaseUrl", self.auth_base_url.as_ref()),
            ("cloud.organizationId", self.organization_id.as_ref()),
            ("cloud.clusterId", self.cluster_id.as_ref()),
            ("cloud.syncInterval", self.sync_interval.as_ref()),
            ("cloud.caFile", self.ca_file.as_ref()),
        ]
    }

    /// Returns the settings that are set, as the variables that the client's settings are read from.
    fn variables(&self) -> Vec<(String, String)> {
        let set = self.settings().into_iter().filter_map(|(key, value)| {
            let alias = ALIASES.iter().find(|alias| alias.key == key)?;
            Some((alias.variable.to_owned(), value?.clone()))
        });
        set.collect()
    }

    /// The required settings that are not set, each with its variable.
    fn missing(&self, no_key: bool) -> Vec<String> {
        let required = ["cloud.apiBaseUrl", "cloud.organizationId", "cloud.clusterId"];
        let unset = self
            .settings()
            .into_iter()
            .filter(|(key, value)| required.contains(key) && value.is_none());
        let unset = unset.filter_map(|(key, _)| ALIASES.iter().find(|alias| alias.key == key));
        let named = unset.map(|alias| format!("{} ({})", alias.key, alias.variable));
        named
            .chain(no_key.then(|| format!("cloud.apiKeyFile (or the key itself in {API_KEY})")))
            .collect()
    }

    /// The error of the client, with the setting that it is about.
    fn explained(&self, error: SettingsError, origins: &Origins) -> anyhow::Error {
        let is_about = |setting: &str, value: &str| match &error {
            SettingsError::Plain(url) => {
                setting.ends_with("BaseUrl") && value.parse().is_ok_and(|base: BaseUrl| base == *url)
            }
            SettingsError::Certificates(_) => setting == "cloud.caFile",
            _ => false,
        };
        let settings = self.settings();
        let found = settings.iter().find_map(|(setting, value)| {
            let value = value.filter(|value| is_about(setting, value))?;
            Some(format!("{}: {setting} is {}", origins.of(setting), quoted(value)))
        });
        match found {
            Some(context) => anyhow!(error).context(context),
            None => error.into(),
        }
    }

    /// The API key: of the variable, else of the file.
    fn api_key(&self, environment: &Variables) -> Result<Option<String>> {
        if let Some(key) = variable(environment, API_KEY) {
            return Ok(Some(key.to_owned()));
        }
        let Some(path) = &self.api_key_file else {
            return Ok(None);
        };
        let read = files::read(path).and_then(files::text);
        let key = read.with_context(|| format!("cloud.apiKeyFile is {}: it cannot be read", path.display()))?;
        let key = key.trim();
        if key.is_empty() {
            bail!("cloud.apiKeyFile is {}: the file contains no key", path.display());
        }
        Ok(Some(key.to_owned()))
    }
}

/// Returns true if it is a kind with its group and without a version: `Deployment.apps`, `Secret`.
fn is_kind(text: &str) -> bool {
    let (kind, group) = text.split_once('.').unwrap_or((text, "core"));
    let is_kind = kind.starts_with(|first: char| first.is_ascii_uppercase());
    let in_group = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    is_kind
        && kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && !group.is_empty()
        && group.bytes().all(in_group)
        && !is_version(group)
}

/// Returns true if the text is a version of an API, as `v1beta1`: no group has such a name.
fn is_version(text: &str) -> bool {
    text.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()) && !rest.contains('.'))
}

/// The error, with the setting and its source in place of the variable.
fn with_origin(error: SettingsError, origins: &Origins) -> anyhow::Error {
    let alias = error
        .variable()
        .and_then(|variable| ALIASES.iter().find(|alias| alias.variable == variable));
    let Some(alias) = alias else {
        return error.into();
    };
    let place = format!("{}: {}", origins.of(alias.key), alias.key);
    match error {
        SettingsError::Invalid { reason, .. } => anyhow!("{place} is {reason}"),
        SettingsError::Ca { path, source, .. } => {
            anyhow!(source).context(format!("{place} is {}: the file cannot be read", quoted(&path)))
        }
        error => anyhow!(error).context(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_a_variable() {
        crate::settings::tests::each_has_a_variable::<CoordinatorSettings>();
    }
}
