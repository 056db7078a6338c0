//! The operator's settings for plugins. Pure.
//!
//! Some have a row for each plugin. The cloud says which type and implementation a plugin has, so it can choose among
//! the rows: no row may permit more than the cloud may have. A row for an id is chosen by nobody, and a signature
//! (`pluginTrust`) covers type and implementation. The service accounts are the operator's choice, because the cloud
//! must not choose its own rights.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

use kube::Client;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::ServiceAccountName;
use tidewaiter_api::containership::PluginSpec;
use tidewaiter_api::values::quoted;
use tidewaiter_cloud::models::values::Namespace;
use tidewaiter_cloud::signed::TrustedKey;
use tidewaiter_kit::client::impersonate;

/// The type of the plugins that are the cluster manager itself.
const CLUSTER_MANAGEMENT: &str = "cluster_management";

/// The plugins of the cloud that are applied. Those that are not are left as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PluginSync {
    /// All.
    #[default]
    All,
    /// All but those of the type `cluster_management`.
    ExceptClusterManagement,
    /// None.
    None,
}

/// The treatment of an object of a plugin that somebody changed or deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PluginDrift {
    /// It is made what the manifests say.
    #[default]
    Correct,
    /// It is reported, and left so until the next version.
    Report,
}

/// The operator's settings for plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSettings {
    /// The plugins that are applied.
    pub sync: PluginSync,
    /// The treatment of objects that somebody changed.
    pub drift: PluginDrift,
    /// The plugins that need a person's approval for each version.
    pub approval: PluginApproval,
    /// The kinds that plugins may not have: `ClusterRoleBinding.rbac.authorization.k8s.io`, `Secret`.
    pub deny: Vec<String>,
    /// The keys of which one must have signed the manifests. Without keys, none needs a signature.
    pub trust: Vec<TrustedKey>,
    /// The identities by which the objects of plugins are read and written. Once it is set, a plugin without a row is
    /// not applied.
    pub accounts: ByPlugin<PluginAccount>,
}

impl PluginSync {
    /// Returns true if plugins of this type are applied.
    pub(super) fn includes(self, plugin_type: &str) -> bool {
        match self {
            Self::All => true,
            Self::ExceptClusterManagement => !plugin_type.eq_ignore_ascii_case(CLUSTER_MANAGEMENT),
            Self::None => false,
        }
    }
}

/// The authority that decides that a version is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Approval {
    /// The cloud.
    #[default]
    Automatic,
    /// A person in the cluster, who approves the exact diff.
    Manual,
}

/// The setting, for all plugins or by plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PluginApproval {
    /// For all.
    All(Approval),
    /// By plugin. One without a row needs approval.
    ByPlugin(ByPlugin<Approval>),
}

impl PluginApproval {
    pub(super) fn of(&self, plugin: &Identity) -> Approval {
        match self {
            Self::All(approval) => *approval,
            Self::ByPlugin(rows) => rows.of(plugin).copied().unwrap_or(Approval::Manual),
        }
    }
}

impl Default for PluginApproval {
    fn default() -> Self {
        Self::All(Approval::default())
    }
}

impl<'de> Deserialize<'de> for PluginApproval {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        value.deserialize_any(Setting)
    }
}

struct Setting;

impl<'de> Visitor<'de> for Setting {
    type Value = PluginApproval;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "automatic, manual, or a map from plugins to one of them, for example {metrics/prometheus: automatic}",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PluginApproval, E> {
        Approval::deserialize(StrDeserializer::new(text)).map(PluginApproval::All)
    }

    fn visit_map<A: MapAccess<'de>>(self, rows: A) -> Result<PluginApproval, A::Error> {
        ByPlugin::deserialize(MapAccessDeserializer::new(rows)).map(PluginApproval::ByPlugin)
    }
}

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

/// The key of the row for every plugin that has no other.
const ALL: &str = "*";

/// The identity of a plugin, from the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(super) id: String,
    pub(super) type_: String,
    pub(super) implementation: String,
}

impl Identity {
    pub(super) fn of(plugin: &PluginSpec) -> Self {
        Self {
            id: plugin.id.clone(),
            type_: plugin.type_.clone(),
            implementation: plugin.implementation.clone(),
        }
    }

    /// The plugin, as far as this is known of it.
    pub(super) fn unversioned(self) -> PluginSpec {
        PluginSpec {
            id: self.id,
            added_at: String::new(),
            description: String::new(),
            type_: self.type_,
            version: String::new(),
            implementation: self.implementation,
        }
    }

    /// Returns true if `key` names this plugin: its id, `TYPE/IMPLEMENTATION` or `TYPE`, without regard to case, as in
    /// the catalogue.
    pub(super) fn is(&self, key: &str) -> bool {
        self.rank(key).is_some()
    }

    /// The closeness of the match: 0 is the closest.
    fn rank(&self, key: &str) -> Option<usize> {
        let names = [
            self.id.clone(),
            format!("{}/{}", self.type_, self.implementation),
            self.type_.clone(),
        ];
        names.iter().position(|name| name.eq_ignore_ascii_case(key))
    }
}

impl Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.type_, self.implementation, self.id)
    }
}

/// Rows by plugin: its id, else `TYPE/IMPLEMENTATION`, else `TYPE`, else `*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ByPlugin<T>(BTreeMap<String, T>);

impl<T> ByPlugin<T> {
    /// Returns true if there are no rows: then the setting is not set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rows with their keys.
    pub fn rows(&self) -> impl Iterator<Item = (&String, &T)> {
        self.0.iter()
    }

    /// The row of the plugin.
    pub(super) fn of(&self, plugin: &Identity) -> Option<&T> {
        let named = self.0.iter().filter_map(|(key, row)| Some((plugin.rank(key)?, row)));
        let closest = named.min_by_key(|(rank, _)| *rank).map(|(_, row)| row);
        closest.or_else(|| self.0.get(ALL))
    }
}

impl<T> Default for ByPlugin<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T, const N: usize> From<[(&str, T); N]> for ByPlugin<T> {
    fn from(rows: [(&str, T); N]) -> Self {
        Self(rows.into_iter().map(|(key, row)| (key.to_owned(), row)).collect())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByPlugin<T> {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let rows = BTreeMap::<String, T>::deserialize(value)?;
        match rows.keys().find(|key| !(*key == ALL || is_key(key))) {
            None => Ok(Self(rows)),
            Some(wrong) => Err(D::Error::custom(format!(
                "{} names no plugin: it must be an id, TYPE/IMPLEMENTATION, TYPE or *, for example metrics/prometheus",
                quoted(wrong)
            ))),
        }
    }
}

/// Returns true if it can name a plugin.
pub(super) fn is_key(text: &str) -> bool {
    let is_word = |word: &str| {
        (1..=63).contains(&word.len())
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    text.split('/').count() <= 2 && text.split('/').all(is_word)
}

#[cfg(test)]
mod tests {
    mod account;
    mod approval;
    mod by_plugin;
    mod settings;
}
