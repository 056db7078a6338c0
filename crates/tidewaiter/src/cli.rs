//! The command line: what can be asked for, in words that a person can read.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::Serialize;

/// Makes true in a Kubernetes cluster what its cloud says.
#[derive(Debug, Parser)]
#[command(name = "tidewaiter", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes:
  0  done, or stopped by SIGTERM or SIGINT
  1  failed while running, or no longer the leader: start it again
  2  bad flags, settings or configuration file: nothing was started";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Gives each Node the labels of its InstanceGroup, once the cloud vouches for it (the role of kops-controller)
    Controller(ControllerArgs),
    /// Prints the CustomResourceDefinitions, for `kubectl apply -f -`
    Crds,
    /// Prints the completions of a shell
    Completions {
        /// The shell to complete in
        shell: Shell,
    },
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

    /// Tidewaiter's own settings (YAML); the environment (TIDEWAITER_…) wins over it, and flags over both
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    /// Prints the settings that are in force, each as it would stand in the settings file, and ends
    #[arg(long)]
    pub(crate) print_config: bool,

    #[command(flatten)]
    pub(crate) flags: ControllerFlags,
}

/// The settings that have a flag. One that is not given says nothing, so that the file and the environment are heard.
#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ControllerFlags {
    /// The kubeconfig to use outside a cluster [default: in the cluster its service account, else KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,

    /// Where /healthz, /readyz and /metrics are served [default: 127.0.0.1:3989]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_address: Option<String>,

    /// Whether a Node must have a name that the cloud gives its instance [default: enforce]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    node_names: Option<NodeNamesFlag>,

    /// What becomes of labels on a proven Node that only other groups define [default: report]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    foreign_labels: Option<ForeignLabelsFlag>,

    /// What becomes of a Node that is refused for forgery [default: report]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    on_forgery: Option<OnForgeryFlag>,

    #[command(flatten)]
    log: LogFlags,
}

#[derive(Debug, Args, Serialize)]
pub(crate) struct LogFlags {
    /// What is logged, as target=level,… [default: info]
    #[arg(long = "log-filter", value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,

    /// How logs are written [default: text on a terminal, else json]
    #[arg(long = "log-format", value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<LogFormatFlag>,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NodeNamesFlag {
    /// It must: a Node of any other name is refused
    Enforce,
    /// It need not: of two Nodes that claim one instance both are refused
    Warn,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ForeignLabelsFlag {
    /// Somebody is told, and they stay
    Report,
    /// They go
    Remove,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnForgeryFlag {
    /// Somebody is told, and the Node stays as it is
    Report,
    /// It loses what only a proven Node may have and is tainted, within limits
    Quarantine,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormatFlag {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}
