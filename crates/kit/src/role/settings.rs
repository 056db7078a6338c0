//! The settings that every role in a cluster has, and how those of one role are read together with them.
//!
//! serde's `flatten` cannot read them: with it a wrong value is reported without the name of its setting, and an
//! unknown setting without the nearest known one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use figment::Figment;
use figment::error::Kind;
use figment::value::{Dict, Value};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

use crate::settings::Extract;
use crate::telemetry::LogSettings;

/// The settings that every role in a cluster has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RoleSettings {
    /// The kubeconfig to use. Without one, what `KUBECONFIG` names, else `~/.kube/config`, else the service account of
    /// the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    /// The address of the admin port: `/metrics`, `/healthz` and `/readyz`.
    #[serde(deserialize_with = "address")]
    pub admin_address: SocketAddr,
    /// The address of the health port: `/healthz` and `/readyz`, for probes.
    #[serde(deserialize_with = "address")]
    pub health_address: SocketAddr,
    /// The events that are logged, and their format.
    pub log: LogSettings,
}

impl Default for RoleSettings {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            admin_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 3984)),
            // kOps uses 3988 to 4002 on a control-plane node.
            health_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 3986)),
            log: LogSettings::default(),
        }
    }
}

/// The settings of one role, in one mapping with those of every role. No setting of `T` has the name of one of
/// [`RoleSettings`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct WithRole<T> {
    /// The settings of every role.
    #[serde(flatten)]
    pub role: RoleSettings,
    /// The settings of this role.
    #[serde(flatten)]
    pub own: T,
}

impl<T: Default + Serialize + DeserializeOwned> Extract for WithRole<T> {
    fn extract(figment: &Figment) -> Result<Self, Box<figment::Error>> {
        let mut own: Dict = figment.extract()?;
        let known = fields::<RoleSettings>();
        let role: Dict = known.iter().filter_map(|name| own.remove_entry(*name)).collect();
        Ok(Self {
            role: Value::from(role).deserialize()?,
            own: Value::from(own).deserialize().map_err(|error| nearer(error, known))?,
        })
    }
}

/// The names of the settings of `T`, which denies unknown ones.
fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let unknown = Value::from(Dict::from([(String::new(), Value::from(0))]));
    match unknown.deserialize::<T>().map_err(|error| error.kind) {
        Err(Kind::UnknownField(_, known)) => known,
        _ => &[],
    }
}

/// An unknown setting may be a misspelt one of every role.
fn nearer(mut error: figment::Error, known: &'static [&'static str]) -> figment::Error {
    if let Kind::UnknownField(name, own) = &error.kind {
        let distance = |known: &[&str]| known.iter().map(|known| strsim::damerau_levenshtein(known, name)).min();
        if error.path.len() <= 1 && distance(known) < distance(own) {
            error.kind = Kind::UnknownField(name.clone(), known);
        }
    }
    error
}

/// Reads an address, with an error that says how one is written.
///
/// # Errors
/// When it is not of the form `ADDRESS:PORT`.
pub fn address<'de, D: Deserializer<'de>>(value: D) -> Result<SocketAddr, D::Error> {
    SocketAddr::deserialize(value).map_err(|_| D::Error::custom("must be ADDRESS:PORT, for example 127.0.0.1:3984"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, SettingsError, load, to_yaml};

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
    struct Own {
        poll_seconds: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        region: Option<String>,
    }

    impl Default for Own {
        fn default() -> Self {
            Self {
                poll_seconds: 30,
                region: None,
            }
        }
    }

    fn read(file: &str, variables: &[(&str, &str)]) -> Result<Settings<WithRole<Own>>, SettingsError> {
        let mut settings = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut settings, file.as_bytes()).unwrap();
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        load(Some(settings.path()), variables, &Dict::new())
    }

    #[test]
    fn both_are_read_from_one_mapping_and_written_as_one() {
        let file = "kubeconfig: /k\npollSeconds: 5\nlog: {filter: debug}\n";
        let variables = [
            ("TIDEWAITER_HEALTH_ADDRESS", "0.0.0.0:1"),
            ("TIDEWAITER_REGION", "r"),
            ("TIDEWAITER_POLL", "1"),
        ];
        let Settings { values, warnings, .. } = read(file, &variables).unwrap();
        assert_eq!(values.role.kubeconfig, Some("/k".into()));
        assert_eq!(values.role.health_address, ([0, 0, 0, 0], 1).into());
        assert_eq!(values.role.admin_address, RoleSettings::default().admin_address);
        assert_eq!(values.role.log.filter, "debug");
        assert_eq!((values.own.poll_seconds, values.own.region.as_deref()), (5, Some("r")));
        assert_eq!(warnings, ["TIDEWAITER_POLL is not a setting and has no effect"]);
        let written = to_yaml(&values).unwrap();
        let again = read(&written, &[]).unwrap().values;
        assert_eq!(to_yaml(&again).unwrap(), written);
    }

    #[test]
    fn a_value_in_place_of_a_section_is_refused_whatever_else_is_set() {
        for (flags, variables) in [
            (serde_json::json!({}), &[][..]),
            (serde_json::json!({"log": {}}), &[]),
            (serde_json::json!({"log": {"filter": "info"}}), &[]),
            (serde_json::json!({"log": {}}), &[("TIDEWAITER_LOG__FORMAT", "json")]),
        ] {
            let mut settings = tempfile::NamedTempFile::new().unwrap();
            std::io::Write::write_all(&mut settings, b"log: debug\n").unwrap();
            let variables = variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let loaded = load::<WithRole<Own>>(Some(settings.path()), variables, &flags);
            let error = loaded.unwrap_err().to_string();
            assert!(
                error.starts_with("the settings file") && error.contains(": log is \"debug\": must be"),
                "{error}"
            );
        }
    }

    #[test]
    fn errors_name_the_setting_its_source_and_the_nearest() {
        for (file, variables, words) in [
            (
                "adminAdress: x",
                &[][..],
                "there is no setting adminAdress; the nearest is adminAddress",
            ),
            (
                "polSeconds: 1",
                &[],
                "there is no setting polSeconds; the nearest is pollSeconds",
            ),
            (
                "log: {filtre: x}",
                &[],
                "there is no setting log.filtre; the nearest is log.filter",
            ),
            ("adminAddress: 1", &[], "adminAddress is 1: must be ADDRESS:PORT"),
            ("pollSeconds: soon", &[], "pollSeconds is \"soon\": must be u32"),
            (
                "",
                &[("TIDEWAITER_HEALTH_ADDRESS", "1")],
                "the variable TIDEWAITER_HEALTH_ADDRESS: healthAddress is 1: must be ADDRESS:PORT",
            ),
            (
                "",
                &[("TIDEWAITER_POLL_SECONDS", "x")],
                "the variable TIDEWAITER_POLL_SECONDS: pollSeconds is \"x\": must be u32",
            ),
        ] {
            let error = read(file, variables).unwrap_err().to_string();
            assert!(error.contains(words), "{words}, in {error}");
            assert!(error.starts_with("the settings file") || file.is_empty(), "{error}");
        }
    }
}
