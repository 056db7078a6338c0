//! The settings of a role: defaults, a file, the environment, flags; each overrides the previous ones.
//!
//! An empty variable counts as unset, because a template often cannot leave one out. An invalid setting prevents the
//! start. The error names the setting, its value, its origin and what is allowed. An unknown variable is only a
//! warning, because Kubernetes itself sets variables in every container that begin with the name of a Service.

use std::io;
use std::path::Path;

use figment::error::Kind;
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{files, yaml};

/// The prefix of all variables that are settings: `TIDEWAITER_ADMIN_ADDRESS` is `adminAddress`, and
/// `TIDEWAITER_LEASE__NAME` is `lease.name`.
pub const PREFIX: &str = "TIDEWAITER_";

/// A variable of another program that is a setting here. It overrides the file, and a variable with [`PREFIX`]
/// overrides it.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The name of the variable.
    pub variable: &'static str,
    /// The setting, as a path with dots.
    pub key: &'static str,
    /// The text of the variable as a setting, or the allowed values.
    pub value: fn(&str) -> Result<String, &'static str>,
}

/// The effective settings, and warnings for the operator.
#[derive(Clone, Debug)]
pub struct Settings<T> {
    /// The effective settings.
    pub values: T,
    /// One line for each variable without an effect.
    pub warnings: Vec<String>,
    /// The source of each setting.
    pub origins: Origins,
}

/// The source of each setting, for errors about settings that exclude each other.
#[derive(Clone, Debug)]
pub struct Origins(Figment);

impl Origins {
    /// The source of the effective value of a setting, as errors name it: `the variable TIDEWAITER_MODE`. `key` is a
    /// path with dots.
    #[must_use]
    pub fn of(&self, key: &str) -> String {
        let metadata = self.0.find_metadata(key);
        metadata.map_or_else(|| DEFAULTS.to_owned(), |metadata| metadata.name.to_string())
    }
}

/// The name of the first source.
const DEFAULTS: &str = "the defaults";

/// Invalid settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file is missing or unreadable.
    #[error("the settings file {path} cannot be read")]
    Read {
        /// The file.
        path: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file is not a YAML mapping.
    #[error("the settings file {path} is not a YAML mapping: {reason}")]
    Parse {
        /// The file.
        path: String,
        /// The error of the parser, in one line.
        reason: String,
    },
    /// The setting does not exist.
    #[error("{origin}: there is no setting {key}; the nearest is {nearest}")]
    Unknown {
        /// The origin of the setting.
        origin: String,
        /// The setting, as a path with dots.
        key: String,
        /// The most similar setting on the same level, as a path with dots.
        nearest: String,
    },
    /// A setting has an invalid value.
    #[error("{origin}: {key} is {value}: {reason}")]
    Invalid {
        /// The origin of the setting.
        origin: String,
        /// The setting, as a path with dots.
        key: String,
        /// The value.
        value: String,
        /// The error, and what is allowed.
        reason: String,
    },
    /// A variable of another program has an invalid value.
    #[error("the variable {variable} is {value}: {reason}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value, quoted.
        value: String,
        /// The allowed values.
        reason: &'static str,
    },
    /// The settings cannot be written as YAML.
    #[error("the settings cannot be shown: {0}")]
    Show(String),
}

/// Settings that can be read from all sources combined.
pub trait Extract: Default + Serialize {
    /// Reads the settings.
    ///
    /// # Errors
    /// If a setting is unknown, or a value is not allowed.
    fn extract(figment: &Figment) -> Result<Self, Box<figment::Error>>;
}

impl<T: Default + Serialize + DeserializeOwned> Extract for T {
    fn extract(figment: &Figment) -> Result<Self, Box<figment::Error>> {
        Ok(figment.extract()?)
    }
}

/// Reads the settings: the defaults of `T`, then `file`, then `environment` (its variables with [`PREFIX`] that are not
/// empty), then `flags`, which must omit flags that were not given.
///
/// # Errors
/// If the file cannot be read, a setting is unknown, or a value is not allowed.
pub fn load<T: Extract>(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &impl Serialize,
) -> Result<Settings<T>, SettingsError> {
    load_with(&[], file, environment, flags)
}

/// As [`load`], with variables of another program.
///
/// # Errors
/// As [`load`].
pub fn load_with<T: Extract>(
    aliases: &[Alias],
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &impl Serialize,
) -> Result<Settings<T>, SettingsError> {
    let mut figment = Figment::from(Layer::of(DEFAULTS, &T::default())?);
    if let Some(path) = file {
        figment = figment.merge(Layer::file(path)?);
        // Else a later mapping with nothing in it would hide a value in place of a section.
        T::extract(&figment).map_err(|error| explain::<T>(&figment, *error))?;
    }
    let mut warnings = Vec::new();
    let mut variables: Vec<_> = environment.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    variables.sort();
    for alias in aliases {
        if let Some((_, text)) = variables.iter().find(|(name, _)| name == alias.variable) {
            figment = figment.merge(Layer::alias(alias, text)?);
            T::extract(&figment).map_err(|error| explain::<T>(&figment, *error))?;
        }
    }
    for (name, value) in variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        match with_variable::<T>(&figment, &name, &value) {
            Err(SettingsError::Unknown { .. }) => warnings.push(format!("{name} is not a setting and has no effect")),
            Err(error) => return Err(error),
            Ok(with) => figment = with,
        }
    }
    let figment = figment.merge(Layer::of("the flags", flags)?);
    let values = T::extract(&figment).map_err(|error| explain::<T>(&figment, *error))?;
    Ok(Settings {
        values,
        warnings,
        origins: Origins(figment),
    })
}

/// The settings with a variable. Its name does not say which letters are capitals beyond the first of a word
/// (`storageMiB`).
fn with_variable<T: Extract>(figment: &Figment, name: &str, value: &str) -> Result<Figment, SettingsError> {
    let mut path: Vec<String> = name[PREFIX.len()..].split("__").map(camel).collect();
    loop {
        let with = figment.clone().merge(Layer::variable(name, path.clone(), value));
        match T::extract(&with).map_err(|error| explain::<T>(&with, *error)) {
            Err(SettingsError::Unknown { key, nearest, .. })
                if key != nearest && key.eq_ignore_ascii_case(&nearest) =>
            {
                let below = path.split_off(nearest.split('.').count());
                path = nearest.split('.').map(str::to_owned).chain(below).collect();
            }
            extracted => return extracted.map(|_| with),
        }
    }
}

/// The variables of this process: the only place that reads the environment.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(readable).collect()
}

/// `settings` in the format of a settings file.
///
/// # Errors
/// If they cannot be written as YAML.
pub fn to_yaml<T: Serialize>(settings: &T) -> Result<String, SettingsError> {
    yaml::to_string(settings).map_err(|error| SettingsError::Show(error.to_string()))
}

/// One source of settings, with its name for errors.
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
        let failed = |source| SettingsError::Read {
            path: shown.clone(),
            source,
        };
        let text = files::read(path).and_then(files::text).map_err(failed)?;
        let settings = files::mapping(&text).map_err(|reason| SettingsError::Parse {
            path: shown.clone(),
            reason,
        })?;
        Self::of(&format!("the settings file {shown}"), &settings)
    }

    fn variable(name: &str, path: Vec<String>, text: &str) -> Self {
        // As Figment parses a variable: numbers, booleans and lists if the text is one, otherwise a string.
        let value = text.parse().unwrap_or_else(|_| Value::from(text));
        Self::one(format!("the variable {name}"), path, value)
    }

    fn alias(alias: &Alias, text: &str) -> Result<Self, SettingsError> {
        let value = (alias.value)(text).map_err(|reason| SettingsError::Variable {
            variable: alias.variable,
            value: shown(&Value::from(text)),
            reason,
        })?;
        let path = alias.key.split('.').map(str::to_owned).collect();
        let origin = format!("the variable {}", alias.variable);
        Ok(Self::one(origin, path, Value::from(value)))
    }

    /// One setting, whose path is `path`.
    fn one(origin: String, path: Vec<String>, value: Value) -> Self {
        let settings = path
            .into_iter()
            .rev()
            .fold(value, |value, key| Value::from(Dict::from([(key, value)])));
        Self {
            origin,
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

/// Converts `ADMIN_ADDRESS` to `adminAddress`.
fn camel(name: &str) -> String {
    let mut words = name.split('_').map(str::to_lowercase);
    let first = words.next().unwrap_or_default();
    words.fold(first, |name, word| {
        let mut letters = word.chars();
        name + &letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default() + letters.as_str()
    })
}

fn explain<T: Extract>(figment: &Figment, error: figment::Error) -> SettingsError {
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
            key: name_shown(key),
            nearest: path.join("."),
        };
    }
    let key = path.join(".");
    // The source of an element is not known; a list comes from one source.
    let of_list = || (1..path.len()).rev().find_map(|end| origin_of(&path[..end].join(".")));
    let origin = known_origin.or_else(|| origin_of(&key)).or_else(of_list);
    let origin = origin.unwrap_or_default();
    let value = find(figment, &path);
    let value = value.as_ref().map_or_else(|| "missing".to_owned(), shown);
    let reason = match error.kind {
        Kind::UnknownVariant(_, allowed) => format!("must be one of {}", allowed.join(", ")),
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => match allowed::<T>(figment, path) {
            Some(allowed) => format!("must be one of {}", allowed.join(", ")),
            None => format!("must be {expected}"),
        },
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

/// The value at `path`, in which a number may be the place in a list.
fn find(figment: &Figment, path: &[String]) -> Option<Value> {
    (1..=path.len()).rev().find_map(|end| {
        let (path, places) = path.split_at(end);
        let value = figment.find_value(&path.join(".")).ok()?;
        let mut places = places.iter().map(|place| place.parse::<usize>().ok());
        places.try_fold(value, |value, place| value.into_array()?.into_iter().nth(place?))
    })
}

/// The allowed values of the setting at `path`, if it has a fixed set of them. serde names them only in the error about
/// an unknown string.
fn allowed<T: Extract>(figment: &Figment, path: Vec<String>) -> Option<&'static [&'static str]> {
    let none = Layer::one(String::new(), path, Value::from(""));
    match T::extract(&figment.clone().merge(none)).map_err(|error| error.kind) {
        Err(Kind::UnknownVariant(_, allowed)) => Some(allowed),
        _ => None,
    }
}

/// A key that cannot be a setting is a line of another file, which may be secret. What is below a setting may be named
/// as the user likes (`pluginServiceAccounts`), with a slash as well.
fn name_shown(key: String) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let (setting, below) = key.split_once('.').unwrap_or((&key, ""));
    if setting.chars().all(is_plain) && below.chars().all(|c| is_plain(c) || c == '/') {
        return key;
    }
    format!("with a name of {} characters", key.chars().count())
}

/// A value for an error, unless it may be a URL with a password.
fn shown(value: &Value) -> String {
    let json = serde_json::to_string(value).unwrap_or_default();
    if json.contains('@') {
        return "\"(not shown: holds '@')\"".to_owned();
    }
    json
}

#[cfg(test)]
mod tests;
