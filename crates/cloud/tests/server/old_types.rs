//! The types of the old clients, restated: those of the command line and of the newest coordinator of 2019, as strict
//! as Go's `encoding/json` reads into them.
//!
//! A Go text, number or truth is `null` or absent without an error and then keeps its zero value; anything else must be
//! of the type. A pointer is an `Option`, and where the old client follows it without a check, so does the test.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// A Go value that is no pointer: `null` leaves it as it is.
fn go<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Decodes as the old client does; the test fails where the client would.
#[track_caller]
pub fn decode<T: DeserializeOwned>(body: &str) -> T {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// The command line's reading of a time: milliseconds in a text, and 1970 for anything else.
pub fn year(text: &str) -> i16 {
    let milliseconds = text.parse().unwrap_or(0);
    let time = jiff::Timestamp::from_millisecond(milliseconds).unwrap();
    time.to_zoned(jiff::tz::TimeZone::UTC).year()
}

/// `{type, message, percent}`.
#[derive(Debug, Deserialize)]
pub struct Status {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    #[serde(default, deserialize_with = "go")]
    #[expect(dead_code, reason = "only its type is checked")]
    message: String,
    pub percent: Option<f64>,
}

/// The fields that `csctl get account` and `csctl get organizations` show.
#[derive(Debug, Deserialize)]
pub struct Named {
    #[serde(default, deserialize_with = "go")]
    pub id: String,
    pub name: Option<String>,
    pub created_at: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct CkeCluster {
    #[serde(default, deserialize_with = "go")]
    pub owner_id: String,
    pub provider_name: Option<String>,
    pub status: Option<Status>,
    pub created_at: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct NodePool {
    pub name: Option<String>,
    pub kubernetes_mode: Option<String>,
    pub kubernetes_version: Option<String>,
    pub docker_version: Option<String>,
    pub etcd_version: Option<String>,
    pub os: Option<String>,
    pub status: Option<Status>,
    #[serde(default, deserialize_with = "go")]
    pub autoscaling: AutoscalingGroup,
}

/// The coordinator's type for `autoscaling`.
#[derive(Debug, Default, Deserialize)]
pub struct AutoscalingGroup {
    #[serde(default, deserialize_with = "go")]
    pub enabled: bool,
    #[serde(default, deserialize_with = "go")]
    pub suspended: bool,
    #[serde(default, deserialize_with = "go")]
    pub cooldown_period: i32,
    #[serde(default, deserialize_with = "go")]
    pub min_nodes: i32,
    #[serde(default, deserialize_with = "go")]
    pub max_nodes: i32,
    pub scaling_strategy: Option<ScalingStrategy>,
}

#[derive(Debug, Deserialize)]
pub struct ScalingStrategy {
    #[serde(default, deserialize_with = "go")]
    pub scale_up: String,
    #[serde(default, deserialize_with = "go")]
    pub scale_down: String,
}

#[derive(Debug, Deserialize)]
pub struct Node {
    pub status: Option<Status>,
    pub addresses: Option<NodeAddresses>,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
}

/// The addresses that `csctl ssh` uses.
#[derive(Debug, Deserialize)]
pub struct NodeAddresses {
    #[serde(default, deserialize_with = "go")]
    pub external_ip: String,
}

/// A token of a user. The text is only in the answer to its creation.
#[derive(Debug, Deserialize)]
pub struct AccessToken {
    #[serde(default, deserialize_with = "go")]
    pub id: String,
    #[serde(default, deserialize_with = "go")]
    pub user_id: String,
    pub name: Option<String>,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
    #[serde(default, deserialize_with = "go")]
    pub token: String,
}

/// A rule as the command line shows it.
#[derive(Debug, PartialEq, Deserialize)]
pub struct AuthorizationRule {
    #[serde(default, deserialize_with = "go")]
    pub id: String,
    #[serde(default, deserialize_with = "go")]
    organization_id: String,
    #[serde(default, deserialize_with = "go")]
    owner_id: String,
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub rule_type: Option<String>,
    pub created_at: Option<String>,
    #[serde(default, deserialize_with = "go")]
    pub verbs: Vec<String>,
}

/// A label, of the command line and of the coordinator.
#[derive(Debug, Deserialize)]
pub struct Label {
    #[serde(default, deserialize_with = "go")]
    pub id: String,
    #[serde(default, deserialize_with = "go")]
    pub created_at: String,
    #[serde(default, deserialize_with = "go")]
    pub updated_at: String,
    pub key: Option<String>,
    pub value: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct PluginDefinition {
    pub implementation: Option<String>,
    #[serde(default, deserialize_with = "go")]
    pub versions: Vec<PluginVersion>,
}

#[derive(Debug, Deserialize)]
pub struct PluginVersion {
    pub version: Option<String>,
    pub compatibility: Option<Compatibility>,
}

#[derive(Debug, Deserialize)]
pub struct Compatibility {
    pub kubernetes: Option<VersionBounds>,
}

#[derive(Debug, Deserialize)]
pub struct VersionBounds {
    pub min: Option<String>,
    pub max: Option<String>,
}

/// The coordinator's `UserSpec`.
#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct UserSpec {
    #[serde(default, deserialize_with = "go")]
    pub id: String,
    #[serde(default, deserialize_with = "go")]
    pub name: String,
    #[serde(default, deserialize_with = "go")]
    pub avatar_url: String,
    #[serde(default, deserialize_with = "go")]
    pub added_at: String,
    #[serde(default, deserialize_with = "go")]
    pub ssh_keys: Vec<SshKeySpec>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct SshKeySpec {
    #[serde(default, deserialize_with = "go")]
    pub id: String,
    #[serde(default, deserialize_with = "go")]
    pub name: String,
    #[serde(default, deserialize_with = "go")]
    pub fingerprint: String,
    #[serde(default, deserialize_with = "go")]
    pub key: String,
}

/// The coordinator's `AuthorizationRoleSpec`.
#[derive(Debug, Deserialize)]
pub struct RoleSpec {
    #[serde(default, deserialize_with = "go")]
    pub created_at: String,
    #[serde(default, deserialize_with = "go")]
    pub rules: Vec<RuleSpec>,
}

/// The coordinator's `AuthorizationRuleSpec`. `None` is Go's nil, which it distinguishes from the empty list.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RuleSpec {
    #[serde(default, deserialize_with = "go")]
    pub id: String,
    #[serde(default, deserialize_with = "go")]
    created_at: String,
    pub api_groups: Option<Vec<String>>,
    resources: Option<Vec<String>>,
    resource_names: Option<Vec<String>>,
    verbs: Option<Vec<String>>,
    non_resource_urls: Option<Vec<String>>,
}

impl RuleSpec {
    /// The rule as it comes back from the custom resource, in which an empty `api_groups` is omitted and no other list
    /// is.
    pub fn mirrored(&self) -> Self {
        let groups = self.api_groups.clone().filter(|groups| !groups.is_empty());
        Self {
            api_groups: groups,
            ..self.clone()
        }
    }
}

#[derive(Debug, Deserialize)]
pub struct RoleBindingSpec {
    #[serde(default, deserialize_with = "go")]
    pub created_at: String,
    #[serde(rename = "type", default, deserialize_with = "go")]
    pub binding_type: String,
    #[serde(default, deserialize_with = "go")]
    pub user_id: String,
    #[serde(default, deserialize_with = "go")]
    #[expect(dead_code, reason = "only its type is checked")]
    team_id: String,
}

#[derive(Debug, Deserialize)]
pub struct RegistrySpec {
    #[serde(default, deserialize_with = "go")]
    pub added_at: String,
    #[serde(default, deserialize_with = "go")]
    #[expect(dead_code, reason = "only its type is checked")]
    email: String,
    #[serde(default, deserialize_with = "go")]
    pub credentials: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub struct PluginSpec {
    #[serde(default, deserialize_with = "go")]
    pub added_at: String,
    #[serde(rename = "type", default, deserialize_with = "go")]
    pub plugin_type: String,
    #[serde(default, deserialize_with = "go")]
    pub version: String,
}

#[derive(Debug, Deserialize)]
pub struct AutoscalingPolicy {
    pub metric: Option<String>,
    pub metric_configuration: Option<serde_json::Map<String, Value>>,
    pub poll_interval: Option<i32>,
    pub sample_period: Option<i32>,
}
