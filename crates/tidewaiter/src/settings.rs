//! The settings that several roles share. Errors state the permitted values.

use std::io::Write as _;
use std::num::NonZeroU32;

use anyhow::Result;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_cloud::client::has_user;
use tidewaiter_kit::role::LeaseName;
use tidewaiter_kit::settings::to_yaml;
use url::Url;

/// The Lease that the replicas of a role hold in turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a mapping with namespace and name"
)]
pub(crate) struct LeasePlace {
    /// The namespace of the leader's Lease.
    #[serde(deserialize_with = "object_name")]
    pub(crate) namespace: String,
    /// The name of the leader's Lease.
    #[serde(deserialize_with = "object_name")]
    pub(crate) name: String,
}

impl From<LeasePlace> for LeaseName {
    fn from(place: LeasePlace) -> Self {
        Self {
            namespace: place.namespace,
            name: place.name,
        }
    }
}

/// Prints the effective settings in the format of a settings file, and on standard error what has no effect.
pub(crate) fn print(settings: &impl Serialize, warnings: &[String]) -> Result<()> {
    for warning in warnings {
        // A closed standard error is no reason not to print the settings.
        let _ = writeln!(std::io::stderr(), "tidewaiter: {warning}");
    }
    crate::write_stdout(&to_yaml(settings)?)
}

pub(crate) fn whole_number<'de, D: Deserializer<'de>>(value: D) -> Result<u32, D::Error> {
    u32::deserialize(value).map_err(|_| D::Error::custom("must be a whole number from 0 to 4294967295"))
}

pub(crate) fn whole_count<'de, D: Deserializer<'de>>(value: D) -> Result<NonZeroU32, D::Error> {
    NonZeroU32::deserialize(value).map_err(|_| D::Error::custom("must be a whole number from 1 to 4294967295"))
}

pub(crate) fn whole_seconds<'de, D: Deserializer<'de>>(value: D) -> Result<NonZeroU32, D::Error> {
    let seconds = NonZeroU32::deserialize(value);
    seconds.map_err(|_| D::Error::custom("must be a whole number of seconds from 1 to 4294967295"))
}

pub(crate) fn endpoint<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Url>, D::Error> {
    let url = Option::<Url>::deserialize(value).ok();
    if url.iter().flatten().any(has_user) {
        return Err(D::Error::custom(
            "must not contain a user or a password, which logs and errors would show: omit them",
        ));
    }
    url.filter(|url| {
        url.as_ref()
            .is_none_or(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
    })
    // Paths are put behind it.
    .filter(|url| {
        url.as_ref()
            .is_none_or(|url| url.query().is_none() && url.fragment().is_none())
    })
    .ok_or_else(|| {
        D::Error::custom("must be http://HOST or https://HOST, with a port if need be, and without a query or fragment")
    })
}

/// The path is that of each call, with its version.
pub(crate) fn endpoint_without_path<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Url>, D::Error> {
    let url = endpoint(value)?;
    match &url {
        Some(with) if with.path() != "/" => Err(D::Error::custom(
            "must be http://HOST or https://HOST, without a path such as /v1",
        )),
        _ => Ok(url),
    }
}

/// It becomes a part of a path at the API server.
fn object_name<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    let name = String::deserialize(value)?;
    match name.parse::<tidewaiter_api::NodeName>() {
        Ok(_) => Ok(name),
        Err(error) => Err(D::Error::custom(error.rule)),
    }
}

pub(crate) const fn seconds(count: u32) -> NonZeroU32 {
    match NonZeroU32::new(count) {
        Some(count) => count,
        None => NonZeroU32::MIN,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;
    use tidewaiter_kit::role::RoleSettings;
    use tidewaiter_kit::settings::{PREFIX, load};

    use super::*;

    /// The names of the settings below `path`, which serde lists; `None` for a single setting.
    fn below<T: DeserializeOwned>(path: &[String]) -> Option<Vec<String>> {
        let unknown = path
            .iter()
            .rev()
            .fold(json!({"": 0}), |value, name| json!({ name: value }));
        let error = serde_json::from_value::<T>(unknown).err()?.to_string();
        let names = error.strip_prefix("unknown field ``")?.split('`').skip(1).step_by(2);
        Some(names.map(str::to_owned).collect())
    }

    /// `STORAGE_MIB` for `storageMiB`.
    fn words(name: &str) -> String {
        let letters: Vec<char> = name.chars().collect();
        let is_lower = |place: usize| letters.get(place).is_some_and(char::is_ascii_lowercase);
        let mut words = String::new();
        for (place, letter) in letters.iter().enumerate() {
            if place > 0 && letter.is_ascii_uppercase() && is_lower(place - 1) && is_lower(place + 1) {
                words.push('_');
            }
            words.push(letter.to_ascii_uppercase());
        }
        words
    }

    /// A variable sets each setting of `T`: a text has an effect, or is refused as its value.
    pub(crate) fn each_has_a_variable<T: Default + Serialize + DeserializeOwned>() {
        let mut paths = vec![Vec::new()];
        while let Some(path) = paths.pop() {
            if let Some(names) = below::<T>(&path) {
                paths.extend(names.into_iter().map(|name| [path.clone(), vec![name]].concat()));
                continue;
            }
            let variable: Vec<_> = path.iter().map(|name| words(name)).collect();
            let variable = format!("{PREFIX}{}", variable.join("__"));
            let setting = path.join(".");
            match load::<T>(None, [(variable.clone(), "?".to_owned())], &json!({})) {
                Ok(settings) => {
                    let origin = settings.origins.of(&setting);
                    assert_eq!(origin, format!("the variable {variable}"), "{setting}");
                }
                Err(error) => assert!(error.to_string().contains(&setting), "{variable}: {error}"),
            }
        }
    }

    #[test]
    fn each_setting_of_every_role_has_a_variable() {
        assert!(
            below::<RoleSettings>(&["log".to_owned()])
                .unwrap()
                .contains(&"filter".to_owned())
        );
        each_has_a_variable::<RoleSettings>();
        each_has_a_variable::<tidewaiter_agent::settings::AgentSettings>();
    }
}
