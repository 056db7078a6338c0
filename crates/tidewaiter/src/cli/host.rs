//! The flags of `tidewaiter host`: the commands on a node, as root.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tidewaiter_agent::break_glass::DEFAULT_FOLDER;
use tidewaiter_api::NodeName;
use tidewaiter_cloud::models::values::ClusterId;
use tidewaiter_cloud::signed::TrustedKey;

/// The folder in which the host remembers the scripts that it has run; `StateDirectory` of the units names it, too.
pub(crate) const STATE: &str = "/var/lib/tidewaiter-host";

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Pins the cluster and the keys of upgrade scripts on this node, and writes the systemd units that run them
    Install(HostInstallArgs),
    /// Runs the upgrade script that the agent offers, if this node may; the systemd unit calls it
    Run(HostRunArgs),
    /// Changes the keys that may sign upgrade scripts for this node
    #[command(subcommand)]
    Keys(HostKeysCommand),
    /// Removes the units, what is pinned for upgrades, and the files of upgrades; not while a script runs
    Uninstall(HostUninstallArgs),
    /// Pins keys that can log in on this node whatever the cluster says, or removes them
    #[command(subcommand)]
    BreakGlass(HostBreakGlassCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostBreakGlassCommand {
    /// Pins a key: the agent writes its line, and reports each login with it
    Pin(HostPinArgs),
    /// Shows the pinned keys
    List(HostKeysListArgs),
    /// Removes a pinned key
    Remove(HostUnpinArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostKeysCommand {
    /// Shows what is pinned on this node
    List(HostKeysListArgs),
    /// Pins a key beside those that are pinned
    Add(HostKeysAddArgs),
    /// Removes a key: scripts that it signed do not run any more
    Remove(HostKeysRemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct HostKeysListArgs {
    /// The folder of what is pinned on this host
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_FOLDER)]
    pub(crate) pinned: PathBuf,
}

// The folders that the agent's pod can write.
#[derive(Debug, Args)]
pub(crate) struct AgentFolders {
    /// The folder that the agent shares, as in its setting folder
    #[arg(long, value_name = "FOLDER", default_value = "/etc/containership")]
    pub(crate) folder: PathBuf,

    /// The folder of what the agent remembers, as in its setting stateFolder
    #[arg(
        long = "agent-state-folder",
        value_name = "FOLDER",
        default_value = "/var/lib/tidewaiter-agent"
    )]
    pub(crate) state_folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct HostKeysAddArgs {
    /// Files with public keys of minisign
    #[arg(value_name = "FILE", required = true)]
    pub(crate) keys: Vec<PathBuf>,

    /// The folder of what is pinned on this host
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_FOLDER)]
    pub(crate) pinned: PathBuf,

    #[command(flatten)]
    pub(crate) agent: AgentFolders,
}

#[derive(Debug, Args)]
pub(crate) struct HostKeysRemoveArgs {
    /// The key, as `tidewaiter host keys list` shows it
    #[arg(value_name = "KEY", value_parser = key)]
    pub(crate) key: TrustedKey,

    /// Also if it is the last one, so that no script with a signature runs any more
    #[arg(long)]
    pub(crate) force: bool,

    /// The folder of what is pinned on this host
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_FOLDER)]
    pub(crate) pinned: PathBuf,
}

fn key(text: &str) -> Result<TrustedKey, String> {
    let refused = |_: String| "must be a key as tidewaiter host keys list shows it: it begins with RW".to_owned();
    text.parse().map_err(refused)
}

#[derive(Debug, Args)]
pub(crate) struct HostUninstallArgs {
    /// The folder that the agent shares
    #[arg(long, value_name = "FOLDER", default_value = "/etc/containership")]
    pub(crate) folder: PathBuf,

    /// The folder of what is pinned on this host
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_FOLDER)]
    pub(crate) pinned: PathBuf,

    /// The folder of the units
    #[arg(long, value_name = "FOLDER", default_value = "/etc/systemd/system")]
    pub(crate) units: PathBuf,

    /// The folder of what this host remembers
    #[arg(long, value_name = "FOLDER", default_value = STATE)]
    pub(crate) state: PathBuf,

    /// The folder in which scripts run, if they were installed with one
    #[arg(long, value_name = "FOLDER")]
    pub(crate) script_folder: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct HostPinArgs {
    /// A public key, "TYPE BASE64 COMMENT", or the fingerprint (SHA256:…) of one that `authorized_keys` has
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// The folder of what is pinned on this host
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_FOLDER)]
    pub(crate) pinned: PathBuf,

    /// The folder that the agent shares
    #[arg(long, value_name = "FOLDER", default_value = "/etc/containership")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct HostUnpinArgs {
    /// The fingerprint (SHA256:…)
    #[arg(value_name = "FINGERPRINT")]
    pub(crate) fingerprint: String,

    /// The folder of what is pinned on this host
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_FOLDER)]
    pub(crate) pinned: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct HostInstallArgs {
    /// The cluster's id in the cloud
    #[arg(long, value_name = "ID")]
    pub(crate) cluster: ClusterId,

    /// The name of this node's Node
    #[arg(long, value_name = "NAME")]
    pub(crate) node: NodeName,

    /// A file with a public key of minisign; repeat it for each key that may sign scripts. Other keys are removed. The
    /// file must not be in the folder that the agent shares
    #[arg(long = "key", value_name = "FILE", required = true)]
    pub(crate) keys: Vec<PathBuf>,

    /// The folder of the units
    #[arg(long, value_name = "FOLDER", default_value = "/etc/systemd/system")]
    pub(crate) units: PathBuf,

    #[command(flatten)]
    pub(crate) agent: AgentFolders,

    /// The folder of what is pinned on this host, which the agent can only read
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_FOLDER)]
    pub(crate) pinned: PathBuf,

    /// The folder in which scripts run; without it, /var/lib/tidewaiter-host. Its file system must not be mounted with
    /// noexec
    #[arg(long, value_name = "FOLDER")]
    pub(crate) script_folder: Option<PathBuf>,

    /// The tidewaiter that the units start; without it, this one. Nobody but root may be able to replace it
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,

    /// The kubelet, whose version counts; without it, the one in the PATH of systemd. Nobody but root may be able to
    /// replace it
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct HostRunArgs {
    /// The folder that the agent shares
    #[arg(long, value_name = "FOLDER", default_value = "/etc/containership")]
    pub(crate) folder: PathBuf,

    /// The folder of what is pinned on this host
    #[arg(long, value_name = "FOLDER", default_value = DEFAULT_FOLDER)]
    pub(crate) pinned: PathBuf,

    /// The folder of what this host remembers
    #[arg(long, value_name = "FOLDER", default_value = STATE)]
    pub(crate) state: PathBuf,

    /// The folder in which scripts run; without it, that of what this host remembers
    #[arg(long, value_name = "FOLDER")]
    pub(crate) script_folder: Option<PathBuf>,

    /// The kubelet, whose version counts
    #[arg(long, value_name = "FILE", default_value = "kubelet")]
    pub(crate) kubelet: PathBuf,

    /// Take back what the last script did, if it has failed and can; a systemd unit of its own calls this, when nothing
    /// of the script runs any more
    #[arg(long)]
    pub(crate) way_back: bool,
}
