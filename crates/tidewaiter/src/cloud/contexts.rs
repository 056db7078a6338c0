//! The contexts file. Only its owner may have access, because it contains tokens. And the login of a program, which is
//! in the environment and never in the file.
//!
//! The file is replaced atomically: a reader sees the old or the new version. One that other users can read is refused.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use tidewaiter_cloud::client::BaseUrl;
use tidewaiter_cloud::models::values::OrganizationId;
use tidewaiter_cloud::server::keys::secret_file;
use tidewaiter_kit::settings::environment;
use tidewaiter_kit::{files, yaml};

/// The variable with the token of a program.
pub(super) const TOKEN: &str = "TIDEWAITER_CLOUD_TOKEN";
/// The variables with the server of the token, its trusted authorities, and the organization.
const SERVER: &str = "TIDEWAITER_CLOUD_SERVER";
const CA_FILE: &str = "TIDEWAITER_CLOUD_CA_FILE";
pub(super) const ORGANIZATION: &str = "TIDEWAITER_CLOUD_ORGANIZATION";

/// The contents of the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Contexts {
    /// The current context.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) current: Option<String>,
    #[serde(default)]
    pub(super) contexts: BTreeMap<String, Login>,
}

/// One login.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Login {
    pub(super) server: String,
    pub(super) email: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) organization: Option<String>,
    /// By name or id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) cluster: Option<String>,
    /// None after logging out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) token: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Login {
    /// The login of a program, which takes the place of the contexts; `None` without the variable of its token.
    ///
    /// # Errors
    /// If a variable is empty or invalid, or the server is missing: no token is sent to the server of a context.
    pub(super) fn of_program(environment: &[(String, String)]) -> Result<Option<Self>> {
        let variable = |name: &str| match environment.iter().find(|(key, _)| key == name) {
            Some((_, value)) if value.is_empty() => Err(anyhow!("{name} is empty: give it a value, or unset it")),
            found => Ok(found.map(|(_, value)| value.as_str())),
        };
        let Some(token) = variable(TOKEN)? else {
            return Ok(None);
        };
        let server = variable(SERVER)?
            .ok_or_else(|| anyhow!("{TOKEN} is set: set {SERVER} too, to the URL of its server, or unset {TOKEN}"))?;
        let server: BaseUrl = server.parse().context(SERVER)?;
        let organization = variable(ORGANIZATION)?.map(str::parse::<OrganizationId>);
        let organization = organization.transpose().context(ORGANIZATION)?;
        Ok(Some(Self {
            server: server.to_string(),
            email: String::new(),
            ca_file: variable(CA_FILE)?.map(PathBuf::from),
            organization: organization.map(|id| id.to_string()),
            cluster: None,
            token: Some(token.to_owned()),
        }))
    }
}

impl Contexts {
    /// Reads the file; empty if it does not exist.
    pub(super) fn load() -> Result<Self> {
        let path = file()?;
        let failed = || format!("the contexts in {}", path.display());
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(failed),
            Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
                let path = path.display();
                bail!(
                    "{path} contains tokens and is readable by other users: run chmod 600 {path}, and log in again if someone may have read it"
                )
            }
            Ok(_) => {}
        }
        let text = fs::read_to_string(&path).with_context(failed)?;
        // The parser's own words would quote the line, and with it a token.
        let mapping = files::mapping(&text).ok();
        let read = mapping.and_then(|mapping| serde_json::from_value(mapping.into()).ok());
        read.ok_or_else(|| anyhow!("is not a contexts file: delete it and log in again"))
            .with_context(failed)
    }

    pub(super) fn save(&self) -> Result<()> {
        let text = yaml::to_string(self).context("the contexts as YAML")?;
        write_private(&file()?, &text)
    }

    /// The context of that name, else the current one.
    pub(super) fn find(&self, name: Option<&str>) -> Result<(&str, &Login)> {
        let Some(name) = name.or(self.current.as_deref()) else {
            bail!("you are not logged in: run tidewaiter cloud login --server URL");
        };
        let found = self.contexts.get_key_value(name);
        let (name, login) = found.ok_or_else(|| self.unknown(name))?;
        Ok((name, login))
    }

    pub(super) fn find_mut(&mut self, name: Option<&str>) -> Result<(String, &mut Login)> {
        let name = self.find(name)?.0.to_owned();
        let unknown = self.unknown(&name);
        let login = self.contexts.get_mut(&name).ok_or(unknown)?;
        Ok((name, login))
    }

    fn unknown(&self, name: &str) -> anyhow::Error {
        let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
        anyhow!("there is no context {name:?}; existing contexts: {}", known.join(", "))
    }
}

/// The folder of this program's own files.
pub(super) fn folder() -> Result<PathBuf> {
    let environment = environment();
    let set = |name: &str| {
        let found = environment.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| PathBuf::from(value))
    };
    let base = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let base = base.or_else(|| set("HOME").map(|home| home.join(".config")));
    let base =
        base.ok_or_else(|| anyhow!("cannot locate the contexts file: neither XDG_CONFIG_HOME nor HOME is set"))?;
    Ok(base.join("tidewaiter"))
}

fn file() -> Result<PathBuf> {
    Ok(folder()?.join("cloud.yaml"))
}

/// Puts a file there that its owner alone may read, as a whole or not at all.
pub(super) fn write_private(path: &Path, text: &str) -> Result<()> {
    secret_file::create_folder(path.parent().unwrap_or(path))?;
    Ok(secret_file::replace(path, text)?)
}
