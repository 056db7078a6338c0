//! The flags of the server commands of `tidewaiter cloud`, which run on the server's machine. No flag takes a secret.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use tidewaiter_cloud::models::values::{DisplayName, Email, OrganizationId};
use tidewaiter_cloud::server::certificate_name;

use super::LogFlags;

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Creates the keys, the first organization and its owner, and prints the next steps
    Init(InitArgs),
    /// Serves the cloud API
    Serve(ServeArgs),
    /// Writes a backup of the database; the server may be running
    Backup(BackupArgs),
    /// Restores a backup into an empty database
    Restore(RestoreArgs),
    /// Makes a person an operator with a new password, when nobody can log in any more
    Recover(RecoverArgs),
    /// Manages the keys that sign tokens and the keys that encrypt credentials
    #[command(subcommand)]
    Keys(KeysCommand),
}

/// The settings of the server.
#[derive(Debug, Args)]
pub(crate) struct ServerPlace {
    /// The settings file of the server (YAML). Environment variables (TIDEWAITER_…) override it, and flags override
    /// both
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: ServerFlags,
}

impl ServerPlace {
    /// The flags with which another command uses the same server, quoted for a shell. `data` is named in any case.
    ///
    /// # Errors
    /// A flag contains a NUL character, which no shell can pass on.
    pub(crate) fn to_flags(&self, data: &Path) -> Result<String, shlex::QuoteError> {
        let settings = self.settings.as_ref().map(|path| path.display().to_string());
        let flags = [
            ("--settings", settings),
            ("--data", Some(data.display().to_string())),
            ("--database", self.flags.database.clone()),
        ];
        let given = flags
            .iter()
            .filter_map(|(flag, value)| Some([*flag, value.as_deref()?]));
        shlex::try_join(given.flatten())
    }
}

/// The settings that have a flag. A flag that is not given is absent, so that the file and the environment apply.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerFlags {
    /// The directory of the database and the keys, unless set otherwise [default: /var/lib/tidewaiter]
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<PathBuf>,

    #[arg(
        long,
        value_name = "URL",
        help = "The database: sqlite:///FOLDER/FILE or postgres://USER@HOST/DATABASE [default: cloud.db in the data directory]"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) place: ServerPlace,

    #[command(flatten)]
    pub(crate) serve: ServeFlags,

    /// Prints the effective settings in the format of the settings file, then exits
    #[arg(long)]
    pub(crate) print_config: bool,
}

/// The settings of `serve` that have a flag.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServeFlags {
    /// The address to listen on [default: 127.0.0.1:3990]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,

    /// Where /healthz and /readyz are served to probes, in plain HTTP [default: 127.0.0.1:3985]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    health_address: Option<String>,

    /// Where /metrics is served, besides /healthz and /readyz, in plain HTTP [default: 127.0.0.1:3983]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_address: Option<String>,

    #[arg(
        long,
        value_name = "URL",
        help = "The URL at which clients reach the server [default: the address it listens on]"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    public_url: Option<String>,

    /// The TLS certificate (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_certificate: Option<PathBuf>,

    /// The private key of the TLS certificate (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_key: Option<PathBuf>,

    #[command(flatten)]
    log: LogFlags,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) place: ServerPlace,

    /// The name of the organization
    #[arg(long, value_name = "NAME")]
    pub(crate) organization: DisplayName,

    /// The e-mail address of the owner, for the login
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) email: Email,

    /// The name of the owner [default: the e-mail address]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<DisplayName>,

    #[arg(
        long = "host",
        value_name = "NAME",
        value_parser = certificate_name,
        help = "A further name or address of this machine, for the certificate that is made unless settings name one"
    )]
    pub(crate) hosts: Vec<String>,

    #[arg(
        long,
        value_name = "FILE",
        help = "A file with the owner's password [default: TIDEWAITER_CLOUD_PASSWORD, else a prompt]"
    )]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) place: ServerPlace,

    /// The file to write; an existing file is not overwritten
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) place: ServerPlace,

    /// The backup
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    #[command(flatten)]
    pub(crate) place: ServerPlace,

    /// The e-mail address of the person
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) email: Email,

    /// The organization's id: the home of a user who is created because nobody has the address. The person becomes its
    /// owner if it has none [default: the user's]
    #[arg(long, value_name = "ID")]
    pub(crate) organization: Option<OrganizationId>,

    #[arg(
        long,
        value_name = "FILE",
        help = "A file with the new password [default: TIDEWAITER_CLOUD_NEW_PASSWORD, else a prompt]"
    )]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Adds a signing key; existing tokens stay valid
    Rotate(ServerPlace),
    /// Removes signing keys whose last token has expired
    Retire(ServerPlace),
    /// Adds an encryption key; a running server encrypts all credentials again with it
    Reseal(ServerPlace),
}
