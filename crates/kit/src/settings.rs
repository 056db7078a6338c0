//! Settings of a role: defaults, a file, the environment, flags; a later one wins.
//!
//! Whatever is wrong stops the start with an error that names the setting, its value, where it came from and what is
//! allowed. One exception: an unknown variable is a warning, because Kubernetes itself puts variables into every container
//! that begin with the name of a Service.

use std::fs;
use std::io;
use std::path::Path;

use figment::error::Kind;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What begins the name of every variable that is a setting: `TIDEWAITER_ADMIN_ADDRESS` is `adminAddress`, and
/// `TIDEWAITER_LEASE__NAME` is `lease.name`.
pub const PREFIX: &str = "TIDEWAITER_";

/// Settings that are in force, and what the operator should know about how they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings<T> {
    /// What is in force.
    pub values: T,
    /// One line for each variable that has no effect.
    pub warnings: Vec<String>,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file is missing or may not be read.
    #[error("the settings file {path} cannot be read")]
    Read {
        /// The file.
        path: String,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// The file is no mapping in YAML.
    #[error("the settings file {path} is not a YAML mapping: {reason}")]
    Parse {
        /// The file.
        path: String,
        /// What the parser says, in one line.
        reason: String,
    },
    /// There is no such setting.
    #[error("{origin}: there is no setting {key}; the nearest is {nearest}")]
    Unknown {
        /// Where it was given.
        origin: String,
        /// The setting, as a path with dots.
        key: String,
        /// The known setting beside it whose name is most like it, as a path with dots.
        nearest: String,
    },
    /// A setting has a value that it cannot have.
    #[error("{origin}: {key} is {value}: {reason}")]
    Invalid {
        /// Where it was given.
        origin: String,
        /// The setting, as a path with dots.
        key: String,
        /// The value.
        value: String,
        /// What is wrong with it, and what is allowed.
        reason: String,
    },
    /// The settings cannot be written as YAML.
    #[error("the settings cannot be shown: {0}")]
    Show(String),
}

/// Settings that can be read from all sources together.
pub trait Extract: Default + Serialize {
    /// Reads them.
    ///
    /// # Errors
    /// When a setting is unknown, or a value is not allowed.
    fn extract(figment: &Figment) -> Result<Self, Box<figment::Error>>;
}

impl<T: Default + Serialize + DeserializeOwned> Extract for T {
    fn extract(figment: &Figment) -> Result<Self, Box<figment::Error>> {
        Ok(figment.extract()?)
    }
}

/// Reads the settings: the defaults of `T`, then `file`, then `environment` (its variables that begin with [`PREFIX`]), then
/// `flags`, which must leave out what was not given.
///
/// # Errors
/// When the file cannot be read, a setting is unknown, or a value is not allowed.
pub fn load<T: Extract>(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &impl Serialize,
) -> Result<Settings<T>, SettingsError> {
    let mut figment = Figment::from(Layer::of("the defaults", &T::default())?);
    if let Some(path) = file {
        figment = figment.merge(Layer::file(path)?);
    }
    let mut warnings = Vec::new();
    let mut variables: Vec<_> = environment
        .into_iter()
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    variables.sort();
    for (name, value) in variables {
        let with = figment.clone().merge(Layer::variable(&name, &value));
        match T::extract(&with).map_err(|error| explain(&with, *error)) {
            Err(SettingsError::Unknown { .. }) => warnings.push(format!("{name} is not a setting and has no effect")),
            Err(error) => return Err(error),
            Ok(_) => figment = with,
        }
    }
    let figment = figment.merge(Layer::of("the flags", flags)?);
    let values = T::extract(&figment).map_err(|error| explain(&figment, *error))?;
    Ok(Settings { values, warnings })
}

/// The variables of this process: the one place where the environment is read.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(readable).collect()
}

/// `settings` as they would stand in a settings file.
///
/// # Errors
/// When they cannot be written as YAML.
pub fn to_yaml<T: Serialize>(settings: &T) -> Result<String, SettingsError> {
    serde_saphyr::to_string(settings).map_err(|error| SettingsError::Show(error.to_string()))
}

/// One source of settings, under the name that errors give it.
struct Layer {
    origin: String,
    settings: Dict,
}

impl Layer {
    fn of(origin: &str, settings: &impl Serialize) -> Result<Self, SettingsError> {
        let dict = Value::serialize(settings).ok().and_then(Value::into_dict);
        let settings = dict.ok_or_else(|| SettingsError::Show(format!("{origin} are no mapping")))?;
        Ok(Self {
            origin: origin.to_owned(),
            settings,
        })
    }

    fn file(path: &Path) -> Result<Self, SettingsError> {
        let shown = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|source| SettingsError::Read {
            path: shown.clone(),
            source,
        })?;
        let settings = serde_saphyr::from_str(&text).map_err(|error| {
            let reason = error.to_string().lines().next().unwrap_or_default().to_owned();
            SettingsError::Parse {
                path: shown.clone(),
                reason,
            }
        })?;
        Ok(Self {
            origin: format!("the settings file {shown}"),
            settings,
        })
    }

    fn variable(name: &str, text: &str) -> Self {
        let path: Vec<String> = name[PREFIX.len()..].split("__").map(camel).collect();
        // Figment's own reading of a variable: numbers, booleans and lists where the text is one, else a string.
        let value = text.parse().unwrap_or_else(|_| Value::from(text));
        let settings = path
            .into_iter()
            .rev()
            .fold(value, |value, key| Value::from(Dict::from([(key, value)])));
        Self {
            origin: format!("the variable {name}"),
            settings: settings.into_dict().unwrap_or_default(),
        }
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::default(), self.settings.clone())]))
    }
}

/// `ADMIN_ADDRESS` is `adminAddress`.
fn camel(name: &str) -> String {
    let mut words = name.split('_').map(str::to_lowercase);
    let first = words.next().unwrap_or_default();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        name + &letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default() + letters.as_str()
    })
}

fn explain(figment: &Figment, error: figment::Error) -> SettingsError {
    let mut path = error.path.clone();
    let known_origin = error.metadata.as_ref().map(|metadata| metadata.name.to_string());
    let origin_of = |key: &str| figment.find_metadata(key).map(|metadata| metadata.name.to_string());
    if let Kind::UnknownField(field, known) = &error.kind {
        if path.last() != Some(field) {
            path.push(field.clone());
        }
        let key = path.join(".");
        let nearest = known
            .iter()
            .min_by_key(|name| strsim::damerau_levenshtein(name, field))
            .copied()
            .unwrap_or_default();
        path.pop();
        path.push(nearest.to_owned());
        let origin = origin_of(&key).or(known_origin).unwrap_or_default();
        return SettingsError::Unknown {
            origin,
            key,
            nearest: path.join("."),
        };
    }
    let key = path.join(".");
    let origin = known_origin.or_else(|| origin_of(&key)).unwrap_or_default();
    let value = figment
        .find_value(&key)
        .ok()
        .as_ref()
        .map_or_else(|| "missing".to_owned(), shown);
    let reason = match error.kind {
        Kind::UnknownVariant(_, allowed) => format!("must be one of {}", allowed.join(", ")),
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => format!("must be {expected}"),
        Kind::Message(message) => message,
        other => other.to_string(),
    };
    SettingsError::Invalid {
        origin,
        key,
        value,
        reason,
    }
}

fn shown(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
