//! The command line.

mod actions;
mod cloud;
mod cloud_server;
mod cluster;
mod complete;
pub(crate) mod completions;
#[cfg(test)]
mod documented;
mod empty;
mod explain;
mod format;
mod help;
mod host;
mod invitations;
mod operators;
mod plugin;
pub(crate) mod reference;
mod release;
mod sign;
mod tokens;
mod upgrade;
mod validate;
mod version;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::Serialize;
use tidewaiter_api::Role;
use tidewaiter_kit::settings::environment;

pub(crate) use actions::{
    ActionCommand, ActionUser, CatalogueCommand, ListArgs, OffboardArgs, PolicyArgs, ScriptTemplateArgs,
    ScriptTemplatesCommand, SetPasswordArgs, SetScriptArgs, UpgradeArgs, VersionArgs,
};
pub(crate) use cloud::{
    AccountPlace, ApplyArgs, AttachArgs, AuditArgs, ClientCommand, CloudCommand, ClusterPlace, Confirmation,
    ContextCommand, CreateArgs, CredentialArgs, DeleteArgs, DiffArgs, DocumentArgs, FieldFlags, GetArgs, LoginArgs,
    LogoutArgs, NodePoolPlace, ObjectArgs, OrganizationPlace, Place as CloudPlace, Printed, WhoamiArgs,
};
pub(crate) use cloud_server::{
    BackupArgs, InitArgs, KeysCommand, RecoverArgs, RestoreArgs, ServeArgs, ServerCommand, ServerPlace,
};
pub(crate) use cluster::{ClusterFlags, Place};
pub(crate) use complete::{Completed, Completion};
pub(crate) use explain::{
    Explain, ExplainAccessArgs, ExplainForgeriesArgs, ExplainGroupArgs, ExplainNodeArgs, ExplainSources,
    ExplainTerminateArgs,
};
pub(crate) use format::{CloudFormat, OutputFormat};
pub(crate) use host::{
    AgentFolders, HostBreakGlassCommand, HostCommand, HostInstallArgs, HostKeysCommand, HostRunArgs, HostUninstallArgs,
    STATE,
};
pub(crate) use invitations::{AcceptArgs, InvitationsCommand, InviteArgs};
pub(crate) use operators::OperatorsCommand;
pub(crate) use plugin::{
    DiffFormat, PluginApproveArgs, PluginCommand, PluginDiffArgs, PluginHistoryArgs, PluginPlace, PluginRollbackArgs,
};
pub(crate) use release::ReleaseArgs;
pub(crate) use sign::{SignArgs, SignScriptArgs};
pub(crate) use tokens::{ApiKeysCommand, ScopeFlags, TokenOwner, TokensCommand};
pub(crate) use upgrade::{UpgradeCommand, UpgradePlanArgs, UpgradeWatchArgs};
pub(crate) use validate::ValidateArgs;
pub(crate) use version::ShowVersionArgs;

/// Reconciles a Kubernetes cluster with what its cloud says: node labels, cluster health and the cloud API.
#[derive(Debug, Parser)]
#[command(name = "tidewaiter", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The definition of the command line, with all of its help.
    pub(crate) fn complete_command() -> clap::Command {
        help::complete(Self::command())
    }

    /// Parses the command line. The name of the binary matters: `kops-controller` selects the controller role, so that
    /// the DaemonSet of kOps starts it when only the image is replaced, and kubectl calls its plugin
    /// `kubectl-tidewaiter`.
    ///
    /// # Errors
    /// The exit code, after an error or the requested help was printed.
    pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ExitCode> {
        let mut line: Vec<OsString> = arguments.into_iter().collect();
        let mut command = empty::unset(Self::complete_command(), &environment());
        match line
            .first()
            .map(Path::new)
            .and_then(Path::file_name)
            .and_then(|name| name.to_str())
        {
            Some("kops-controller") => {
                line.insert(1, "controller".into());
                // The inserted word is not part of what the user types.
                command = command.mut_subcommand("controller", |role| role.override_usage("kops-controller [OPTIONS]"));
            }
            Some("kubectl-tidewaiter") => command = command.bin_name("kubectl tidewaiter"),
            _ => {}
        }
        let validates = line.get(1).is_some_and(|word| word == "validate");
        let read = command.try_get_matches_from(line);
        read.and_then(|matches| Self::from_arg_matches(&matches))
            .map_err(|error| {
                if validates && error.use_stderr() {
                    return validate::refuse(&error);
                }
                // When standard error is closed, the message cannot be delivered.
                let _ = error.print();
                ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
            })
    }
}

const EXIT_CODES: &str = "Exit codes:
  0  done, or stopped by SIGTERM or SIGINT
  1  failed while running, or lost leadership: start it again
  2  invalid flags, settings or configuration file: nothing was started
validate and upgrade watch have other exit codes: see their --help";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the controller: labels each verified Node as its InstanceGroup defines, and reports the health of the
    /// cluster (replaces kops-controller)
    Controller(ControllerArgs),
    /// Runs the coordinator: mirrors users, registries, plugins, labels and roles from the cloud, gives every namespace
    /// its service account and pull secrets, labels Nodes, and reports the nodes to the cloud (replaces the coordinator
    /// of the Containership cluster manager)
    #[command(after_help = crate::coordinator::help())]
    Coordinator(SettingsArgs),
    /// Runs the agent of one node: writes which users may log in there with which SSH key, and undoes what others
    /// change (replaces the agent of the Containership cluster manager)
    Agent(SettingsArgs),
    /// Installs and runs the upgrade scripts that the agent offers, on a node, as root
    #[command(subcommand)]
    Host(HostCommand),
    /// Releases changes that the coordinator holds, such as deletions of most objects of a kind
    Release(ReleaseArgs),
    /// Shows and approves versions of plugins, and goes back to earlier ones
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Shows what an upgrade of Kubernetes does, and follows it
    #[command(subcommand)]
    Upgrade(UpgradeCommand),
    /// Validates the cluster: instance groups, instances, Nodes and system pods (as kops validate cluster); changes
    /// nothing
    Validate(ValidateArgs),
    /// Explains why a Node has or lacks a label, what a user or a team may do in the cluster, and who can log in on a
    /// node
    #[command(subcommand)]
    Explain(Explain),
    /// Manages or serves the cloud from which clusters mirror users, registries, plugins, labels, roles and upgrades
    #[command(subcommand, after_help = cloud::PROGRAM_VARIABLES)]
    Cloud(CloudCommand),
    /// Prints a token for kubectl (a credential plugin for users[].user.exec of a kubeconfig)
    Credential(CredentialArgs),
    /// Shows the versions of this program, the cloud's server and the cluster
    Version(ShowVersionArgs),
    /// Prints the CustomResourceDefinitions for `kubectl apply -f -`
    Crds {
        /// Only the definitions that this role needs [default: those of all roles]
        role: Option<CrdRole>,
    },
    /// Prints a shell completion script
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints the names that complete the last word of a command line
    #[command(hide = true)]
    Complete {
        /// The words
        #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Writes the manual pages into a folder, or prints them as one page of the documentation
    #[command(hide = true)]
    Manual {
        /// The folder
        folder: Option<PathBuf>,
    },
}

/// A role that has CustomResourceDefinitions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CrdRole {
    Controller,
    Coordinator,
    Agent,
}

impl From<CrdRole> for Role {
    fn from(role: CrdRole) -> Self {
        match role {
            CrdRole::Controller => Self::Controller,
            CrdRole::Coordinator => Self::Coordinator,
            CrdRole::Agent => Self::Agent,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    /// The configuration file that kOps wrote for kops-controller (YAML or JSON)
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/kubernetes/kops-controller/config.yaml"
    )]
    pub(crate) conf: PathBuf,

    /// The settings file (YAML). Environment variables (TIDEWAITER_…) override it, and flags override both
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    /// Prints the effective settings in the format of the settings file, then exits
    #[arg(long)]
    pub(crate) print_config: bool,

    /// The log verbosity, as for kops-controller: 4 or more is `debug`, 6 or more is `trace` [default: from the
    /// settings]
    #[arg(long = "v", value_name = "LEVEL", conflicts_with = "filter")]
    verbosity: Option<u8>,

    #[command(flatten)]
    flags: ControllerFlags,
}

impl ControllerArgs {
    /// The settings given as flags.
    pub(crate) fn flags(&self) -> ControllerFlags {
        let mut flags = self.flags.clone();
        let filter = match self.verbosity {
            None | Some(0..=3) => None,
            Some(4..=5) => Some("debug"),
            Some(_) => Some("trace"),
        };
        flags.role.log.filter = flags.role.log.filter.or(filter.map(str::to_owned));
        flags
    }
}

// The flags of a role that has no flags of its own. (A doc comment would become the description of the command.)
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// The settings file (YAML). Environment variables (TIDEWAITER_…) override it, and flags override both
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    /// Prints the effective settings in the format of the settings file, then exits
    #[arg(long)]
    pub(crate) print_config: bool,

    #[command(flatten)]
    pub(crate) flags: RoleFlags,
}

/// The settings that have a flag. A flag that is not given is absent, so that the file and the environment apply.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ControllerFlags {
    #[command(flatten)]
    #[serde(flatten)]
    role: RoleFlags,

    /// The address at which the MetricsServer serves /metrics [default: 0.0.0.0:3987]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_address: Option<String>,

    #[command(flatten)]
    #[serde(flatten)]
    policy: PolicyFlags,
}

/// The settings of every role in a cluster that have a flag.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RoleFlags {
    /// The kubeconfig file [default: KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,

    /// Where /metrics is served, besides /healthz and /readyz [default: 127.0.0.1:3984]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_address: Option<String>,

    /// Where /healthz and /readyz are served to probes [default: 127.0.0.1:3986]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    health_address: Option<String>,

    #[command(flatten)]
    log: LogFlags,
}

/// The settings that decide which changes are made to a Node.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyFlags {
    /// Whether the name of a Node must be one that the cloud gives its instance [default: enforce]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    node_names: Option<NodeNamesFlag>,

    /// How to handle labels on a proven Node that only other groups define [default: report]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    foreign_labels: Option<ForeignLabelsFlag>,

    /// How to handle a Node that is refused as forged [default: report]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    on_forgery: Option<OnForgeryFlag>,

    /// How to handle a Node whose instance is in another group than before [default: hold]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    on_group_change: Option<OnGroupChangeFlag>,

    /// The source of the labels of a proven Node [default: auto]
    #[arg(long, value_name = "SOURCE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    label_source: Option<LabelSourceFlag>,
}

#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct LogFlags {
    /// The log filter, as target=level,… [default: info]
    #[arg(long = "log-filter", value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,

    /// The log format [default: text on a terminal, else json]
    #[arg(long = "log-format", value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<LogFormatFlag>,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeNamesFlag {
    /// A Node with any other name is refused; on AWS by the scheme of kOps' file, if it names one
    Enforce,
    /// It must be the id of the instance (AWS)
    InstanceId,
    /// It must be the private DNS name of the instance (AWS)
    PrivateDns,
    /// Any name is accepted; if two Nodes claim one instance, both are refused
    Warn,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ForeignLabelsFlag {
    /// Report them in an Event and a condition
    Report,
    /// Remove them
    Remove,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnForgeryFlag {
    /// Report it in an Event and a condition; leave the Node unchanged
    Report,
    /// Remove the labels that only a proven Node may have, and taint it, within limits
    Quarantine,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnGroupChangeFlag {
    /// Report it in an Event and a condition; leave the Node unchanged
    Hold,
    /// Set the labels of the new group, except those of the control plane on a worker
    Follow,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LabelSourceFlag {
    /// The tags, else the state store, on AWS where kOps is 1.36 or newer (kops-version.txt in the state store); else
    /// the state store
    Auto,
    /// The definition of the Node's group in the state store
    Store,
    /// The tags of the instance (AWS); the state store is not read
    Tags,
    /// The state store; the tags while no definition has ever been available
    StoreThenTags,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormatFlag {
    /// Plain text
    Text,
    /// One JSON object per line
    Json,
}
