//! The plugins that need a person's approval for each version (`pluginApproval`). Pure.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::by_plugin::{ByPlugin, Identity};

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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_plugin_without_a_row_needs_approval() {
        let plugin = Identity {
            id: "cccccccc-0000-4000-8000-000000000001".to_owned(),
            type_: "metrics".to_owned(),
            implementation: "prometheus".to_owned(),
        };
        let read = |value: &Value| serde_json::from_value::<PluginApproval>(value.clone());
        for (value, expected) in [
            (json!("automatic"), Approval::Automatic),
            (json!("manual"), Approval::Manual),
            (json!({"metrics": "automatic"}), Approval::Automatic),
            (json!({"metrics": "manual", "*": "automatic"}), Approval::Manual),
            (json!({"logs": "automatic"}), Approval::Manual),
            (json!({}), Approval::Manual),
        ] {
            let setting = read(&value).unwrap();
            assert_eq!(setting.of(&plugin), expected, "{value}");
            assert_eq!(serde_json::to_value(&setting).unwrap(), value);
        }
        assert_eq!(PluginApproval::default().of(&plugin), Approval::Automatic);
        for (value, words) in [
            (json!("auto"), "`manual`"),
            (json!(true), "a map from plugins"),
            (json!({"a/b/c": "manual"}), "TYPE/IMPLEMENTATION"),
            (json!({"a": "never"}), "`manual`"),
        ] {
            let error = read(&value).unwrap_err().to_string();
            assert!(error.contains(words), "{value}: {error}");
        }
    }
}
