//! The command line: what can be asked for, in words that a person can read.

mod cloud;
mod cloud_server;
mod operators;
mod validate;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::Serialize;
use tidewaiter_api::{ClusterName, InstanceGroupName, Lifecycle, NodeName};
use url::Url;

pub(crate) use cloud::{
    ApplyArgs, AuditArgs, ClientCommand, CloudCommand, CloudFormat, CloudKind, ContextCommand, CreateArgs,
    CredentialArgs, DeleteArgs, DiffArgs, DocumentArgs, GetArgs, LoginArgs, LogoutArgs, ObjectArgs,
    Place as CloudPlace, WhoamiArgs,
};
pub(crate) use cloud_server::{BackupArgs, InitArgs, KeysCommand, RestoreArgs, ServeArgs, ServerCommand, ServerPlace};
pub(crate) use operators::OperatorsCommand;
pub(crate) use validate::ValidateArgs;

/// Makes true in a Kubernetes cluster what its cloud says.
#[derive(Debug, Parser)]
#[command(name = "tidewaiter", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads the command line. The name under which the binary was called counts: `kops-controller` is the controller role, so
    /// that a container which kOps described starts it unchanged but for the image, and kubectl calls its plugin
    /// `kubectl-tidewaiter`.
    ///
    /// # Errors
    /// When something is wrong, which has been told, or only help was asked for, which has been given: the code to end with.
    pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ExitCode> {
        let mut line: Vec<OsString> = arguments.into_iter().collect();
        let mut command = Self::command();
        match line
            .first()
            .map(Path::new)
            .and_then(Path::file_name)
            .and_then(|name| name.to_str())
        {
            Some("kops-controller") => line.insert(1, "controller".into()),
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
                // Nobody is left to tell when standard error is closed.
                let _ = error.print();
                ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
            })
    }
}

const EXIT_CODES: &str = "Exit codes:
  0  done, or stopped by SIGTERM or SIGINT
  1  failed while running, or no longer the leader: start it again
  2  bad flags, settings or configuration file: nothing was started
Those of validate say the verdict: tidewaiter validate --help";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Gives each Node the labels of its InstanceGroup, once the cloud vouches for it, and says whether the cluster is healthy
    /// (the role of kops-controller)
    Controller(ControllerArgs),
    /// Ensures the service account containership in every namespace (the first controller of the coordinator role)
    Coordinator(CoordinatorArgs),
    /// Says whether the cluster is ready: groups, instances, Nodes, the system's pods (as kops validate cluster); writes nothing
    Validate(ValidateArgs),
    /// Says why a Node has, or has not, a label
    #[command(subcommand)]
    Explain(Explain),
    /// The cloud from which clusters mirror users, registries, plugins, labels, roles and upgrades: asks it, changes it, serves it
    #[command(subcommand)]
    Cloud(CloudCommand),
    /// Gives kubectl a token for a cluster (a plugin, as users[].user.exec of a kubeconfig names it)
    Credential(CredentialArgs),
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

    /// How much is logged, as kops-controller counts it: from 4 on `debug`, from 6 on `trace` [default: what the settings say]
    #[arg(long = "v", value_name = "LEVEL", conflicts_with = "filter")]
    verbosity: Option<u8>,

    #[command(flatten)]
    flags: ControllerFlags,
}

impl ControllerArgs {
    /// The settings that were given as flags.
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

#[derive(Debug, Args)]
pub(crate) struct CoordinatorArgs {
    /// The settings (YAML); the environment (TIDEWAITER_…) overrides it, and flags override both
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    /// Prints the settings that are in force as a settings file, and exits
    #[arg(long)]
    pub(crate) print_config: bool,

    #[command(flatten)]
    pub(crate) flags: RoleFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    /// The labels that the state store gives the nodes of an InstanceGroup; asks no cluster and no instance
    Group(ExplainGroupArgs),
    /// What a Node is, each of its labels with its source, and what a pass over it would write now; writes nothing
    Node(ExplainNodeArgs),
    /// Which Nodes are refused for forgery, and what `onForgery: quarantine` would do to each; writes nothing
    Forgeries(ExplainForgeriesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainNodeArgs {
    /// The Node
    pub(crate) node: NodeName,

    /// Asks the cloud who the Node is, with your own credentials, in place of its record
    #[arg(long, requires = "conf")]
    pub(crate) from_cloud: bool,

    #[command(flatten)]
    pub(crate) sources: ExplainSources,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainForgeriesArgs {
    #[command(flatten)]
    pub(crate) sources: ExplainSources,
}

/// Which cluster, and where its definitions are.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The configuration file that kOps wrote for kops-controller; wins over --name and --state
    #[arg(long, value_name = "FILE")]
    pub(crate) conf: Option<PathBuf>,

    /// The cluster; with --state
    #[arg(long, value_name = "CLUSTER", env = "KOPS_CLUSTER_NAME")]
    pub(crate) name: Option<ClusterName>,

    #[arg(
        long,
        value_name = "URL",
        env = "KOPS_STATE_STORE",
        help = "The state store, as kOps has it; with --name: s3://BUCKET, gs://BUCKET or file:///FOLDER"
    )]
    pub(crate) state: Option<String>,
}

/// Where to look. Without a configuration file, or a cluster and its state store, only the records are read.
#[derive(Debug, Args)]
pub(crate) struct ExplainSources {
    #[command(flatten)]
    pub(crate) place: Place,

    /// The controller's settings (YAML), so that the answer is what it would do; the environment (TIDEWAITER_…) wins over it
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: ExplainFlags,

    /// How the answer is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

/// The settings that have a flag here.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplainFlags {
    /// The kubeconfig to use [default: what KUBECONFIG names, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    #[serde(flatten)]
    policy: PolicyFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainGroupArgs {
    /// The InstanceGroup
    pub(crate) group: InstanceGroupName,

    /// The cluster
    #[arg(long, value_name = "CLUSTER", env = "KOPS_CLUSTER_NAME")]
    pub(crate) name: ClusterName,

    /// The state store
    #[arg(
        long,
        value_name = "URL",
        env = "KOPS_STATE_STORE",
        help = "The state store, as kOps has it: s3://BUCKET, gs://BUCKET or file:///FOLDER"
    )]
    pub(crate) state: String,

    /// The state store's address, where it is not the cloud's own
    #[arg(long, value_name = "URL", env = "TIDEWAITER_STATE_ENDPOINT")]
    pub(crate) state_endpoint: Option<Url>,

    /// The region in which to look for the state store first
    #[arg(long, env = "AWS_REGION")]
    pub(crate) region: Option<String>,

    /// How the cloud bills the instance
    #[arg(long, value_name = "LIFECYCLE", default_value = "on-demand")]
    pub(crate) lifecycle: LifecycleFlag,

    /// How the answer is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LifecycleFlag {
    /// At the full price
    OnDemand,
    /// At what the market asks
    Spot,
    /// At fixed hours
    Scheduled,
}

impl From<LifecycleFlag> for Lifecycle {
    fn from(flag: LifecycleFlag) -> Self {
        match flag {
            LifecycleFlag::OnDemand => Self::OnDemand,
            LifecycleFlag::Spot => Self::Spot,
            LifecycleFlag::Scheduled => Self::Scheduled,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs
    Yaml,
}

/// The settings that have a flag. One that is not given is left out, so that the file and the environment count.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ControllerFlags {
    #[command(flatten)]
    #[serde(flatten)]
    role: RoleFlags,

    /// Where the MetricsServer serves /metrics [default: 0.0.0.0:3987]
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
    /// The kubeconfig to use outside a cluster [default: in the cluster its service account, else KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,

    /// Where /metrics is served, besides /healthz and /readyz [default: 127.0.0.1:3989]
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

/// What decides what is done to a Node.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyFlags {
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

    /// Where the labels of a proven Node come from [default: store]
    #[arg(long, value_name = "SOURCE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    label_source: Option<LabelSourceFlag>,
}

#[derive(Clone, Debug, Args, Serialize)]
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
#[serde(rename_all = "kebab-case")]
pub(crate) enum LabelSourceFlag {
    /// What the state store defines for the Node's group
    Store,
    /// The tags of its instance (AWS); the state store is not read
    Tags,
    /// The state store; tags where there never was a definition
    StoreThenTags,
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormatFlag {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}
