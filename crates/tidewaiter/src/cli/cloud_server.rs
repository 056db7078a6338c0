//! The flags of what is done where the cloud's server runs. No flag takes a secret.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use tidewaiter_cloud::models::values::{DisplayName, Email};

use super::LogFlags;

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Makes the keys, the first organization and its owner, and says what to do next
    Init(InitArgs),
    /// Serves the cloud API
    Serve(ServeArgs),
    /// Writes a copy of the database, also while it is served
    Backup(BackupArgs),
    /// Fills an empty database from a copy
    Restore(RestoreArgs),
    /// The keys that sign tokens and those that seal credentials
    #[command(subcommand)]
    Keys(KeysCommand),
}

/// Which server.
#[derive(Debug, Args)]
pub(crate) struct ServerPlace {
    /// The server's settings (YAML); the environment (TIDEWAITER_…) wins over it, and flags over both
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: ServerFlags,
}

/// The settings that have a flag. One that is not given says nothing, so that the file and the environment are heard.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerFlags {
    /// The folder of the database and the keys, where nothing else is said of them [default: /var/lib/tidewaiter]
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<PathBuf>,

    #[arg(
        long,
        value_name = "URL",
        help = "The database: sqlite:///FOLDER/FILE or postgres://USER@HOST/DATABASE [default: cloud.db in the folder]"
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

    /// Prints the settings that are in force, each as it would stand in the settings file, and ends
    #[arg(long)]
    pub(crate) print_config: bool,
}

/// The settings of serving that have a flag.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServeFlags {
    /// Where it listens [default: 127.0.0.1:3990]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,

    /// Where /healthz and /readyz are served to probes, in plain HTTP [default: 127.0.0.1:3985]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    health_address: Option<String>,

    #[arg(
        long,
        value_name = "URL",
        help = "Under which address everybody reaches it [default: that where it listens]"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    public_url: Option<String>,

    /// The file of its certificate (PEM)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_certificate: Option<PathBuf>,

    /// The file of the certificate's key (PEM)
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

    /// What the organization is called
    #[arg(long, value_name = "NAME")]
    pub(crate) organization: DisplayName,

    /// With which address its owner logs in
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) email: Email,

    /// What the owner is called [default: his address]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<DisplayName>,

    #[arg(
        long,
        value_name = "FILE",
        help = "A file that holds his password [default: TIDEWAITER_CLOUD_PASSWORD, else it is asked for]"
    )]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) place: ServerPlace,

    /// Where the copy goes; a file that is there is not written over
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) place: ServerPlace,

    /// The copy
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Adds a key that signs tokens; those that are valid stay so
    Rotate(ServerPlace),
    /// Removes keys whose last token has expired
    Retire(ServerPlace),
    /// Adds a key that seals credentials; a running server seals all of them with it
    Reseal(ServerPlace),
}
