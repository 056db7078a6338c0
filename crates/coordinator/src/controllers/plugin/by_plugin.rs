//! Settings with a row for each plugin. Pure.
//!
//! The cloud says which type and implementation a plugin has, so it can choose among the rows: no row may permit more
//! than the cloud may have. A row for an id is chosen by nobody, and a signature (`pluginTrust`) covers type and
//! implementation.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::containership::PluginSpec;
use tidewaiter_api::values::quoted;

/// The key of the row for every plugin that has no other.
const ALL: &str = "*";

/// The identity of a plugin, from the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
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
    use super::*;

    #[test]
    fn the_closest_row_counts() {
        let plugin = Identity {
            id: "cccccccc-0000-4000-8000-000000000001".to_owned(),
            type_: "metrics".to_owned(),
            implementation: "prometheus".to_owned(),
        };
        let id = plugin.id.as_str();
        for (rows, found) in [
            (
                vec![(id, 1), ("metrics/prometheus", 2), ("metrics", 3), ("*", 4)],
                Some(1),
            ),
            (vec![("metrics/prometheus", 2), ("metrics", 3), ("*", 4)], Some(2)),
            (vec![("METRICS", 3), ("*", 4)], Some(3)),
            (vec![("metrics/other", 2), ("*", 4)], Some(4)),
            (vec![("metrics/other", 2), ("logs", 3), ("prometheus", 5)], None),
        ] {
            let rows = ByPlugin(rows.into_iter().map(|(key, row)| (key.to_owned(), row)).collect());
            assert_eq!(rows.of(&plugin).copied(), found, "{rows:?}");
        }
    }

    #[test]
    fn a_key_that_names_no_plugin_is_refused() {
        for key in ["", "a/", "/a", "a/b/c", "a b", "**"] {
            let error = serde_json::from_value::<ByPlugin<u8>>(serde_json::json!({ key: 1 })).unwrap_err();
            assert!(error.to_string().contains("TYPE/IMPLEMENTATION"), "{key}: {error}");
        }
        serde_json::from_str::<ByPlugin<u8>>(r#"{"CNI": 1, "CNI/calico": 2, "*": 3}"#).unwrap();
    }
}
