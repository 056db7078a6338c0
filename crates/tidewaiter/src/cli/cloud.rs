//! The flags of `tidewaiter cloud`: what a person asks the cloud for. No flag takes a secret.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tidewaiter_cloud::client::BaseUrl;
use tidewaiter_cloud::models::values::{Email, OrganizationId};

use super::{OperatorsCommand, ServerCommand};

#[derive(Debug, Subcommand)]
pub(crate) enum CloudCommand {
    #[command(flatten)]
    Client(ClientCommand),
    #[command(flatten)]
    Server(ServerCommand),
}

/// What is asked of a cloud from anywhere.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Logs in with a password, and makes a context of it
    Login(LoginArgs),
    /// Forgets the token of a context
    Logout(LogoutArgs),
    /// Says who is logged in where, and with which role
    Whoami(WhoamiArgs),
    /// Lists the objects of a kind, or shows one
    Get(GetArgs),
    /// Shows one object with everything that is known of it
    Describe(ObjectArgs),
    /// Makes one object from a file
    Create(CreateArgs),
    /// Makes true in the cloud what files say; shows first exactly what will change
    Apply(ApplyArgs),
    /// Shows what apply would change; ends with 1 when that is anything
    Diff(DiffArgs),
    /// Opens an object in $EDITOR and sends what was changed
    Edit(ObjectArgs),
    /// Deletes an object
    Delete(DeleteArgs),
    /// Lists who changed what, the newest first
    Audit(AuditArgs),
    /// Who may do what concerns all organizations of the server
    #[command(subcommand)]
    Operators(OperatorsCommand),
    /// Where one is logged in
    #[command(subcommand)]
    Context(ContextCommand),
}

/// Where to look.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Place {
    /// The context [default: the current one]
    #[arg(long, value_name = "NAME", env = "TIDEWAITER_CLOUD_CONTEXT")]
    pub(crate) context: Option<String>,

    /// The organization's id [default: that of the context]
    #[arg(long, value_name = "ID")]
    pub(crate) organization: Option<OrganizationId>,

    /// The cluster, by name or id [default: that of the context]
    #[arg(long, value_name = "CLUSTER")]
    pub(crate) cluster: Option<String>,

    /// The node pool, by name or id: for its nodes and labels
    #[arg(long, value_name = "POOL")]
    pub(crate) node_pool: Option<String>,

    /// The user, by e-mail address or id: for SSH keys [default: who is logged in]
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
}

/// Of which kind, and where.
#[derive(Debug, Args)]
pub(crate) struct OfKind {
    /// The kind
    #[arg(value_name = "KIND")]
    pub(crate) kind: CloudKind,

    #[command(flatten)]
    pub(crate) place: Place,
}

/// What files say, and where it is to be true.
#[derive(Debug, Args)]
pub(crate) struct DocumentArgs {
    /// A file of documents (YAML or JSON), or a folder of such files
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: PathBuf,

    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct Printed {
    /// How it is printed
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: CloudFormat,
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEWAITER_CLOUD_SERVER",
        help = "Where the cloud is, for example https://cloud.example.com"
    )]
    pub(crate) server: BaseUrl,

    /// Your e-mail address
    #[arg(value_name = "EMAIL")]
    pub(crate) email: Email,

    #[arg(
        long,
        value_name = "FILE",
        help = "A file that holds the password [default: TIDEWAITER_CLOUD_PASSWORD, else it is asked for]"
    )]
    pub(crate) password_file: Option<PathBuf>,

    /// The certificates (PEM) that are trusted [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,

    /// What the context is called [default: the server's host]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The organization's id [default: yours, if you are in one only]
    #[arg(long, value_name = "ID")]
    pub(crate) organization: Option<OrganizationId>,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The context [default: the current one]
    #[arg(long, value_name = "NAME", env = "TIDEWAITER_CLOUD_CONTEXT")]
    pub(crate) context: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WhoamiArgs {
    #[command(flatten)]
    pub(crate) place: Place,

    #[command(flatten)]
    pub(crate) printed: Printed,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) of: OfKind,

    /// The object, by id or by what it is called; all of them without it
    #[arg(value_name = "OBJECT")]
    pub(crate) object: Option<String>,

    #[command(flatten)]
    pub(crate) printed: Printed,

    /// Prints the credentials of registries too, for whom the cloud gives them
    #[arg(long)]
    pub(crate) show_secrets: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ObjectArgs {
    #[command(flatten)]
    pub(crate) of: OfKind,

    /// The object, by id or by what it is called
    #[arg(value_name = "OBJECT")]
    pub(crate) object: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) object: ObjectArgs,

    /// Does not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// One document (YAML or JSON)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: PathBuf,

    #[command(flatten)]
    pub(crate) of: OfKind,

    /// How the answer is printed; that to a cluster holds its API key, once
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) output: CloudFormat,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) documents: DocumentArgs,

    /// Deletes what no document names, of the kinds that a document of the kind Scope lists
    #[arg(long)]
    pub(crate) prune: bool,

    /// Only shows what would change
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Does not ask before it deletes
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) documents: DocumentArgs,

    /// Shows what `apply --prune` would delete too
    #[arg(long)]
    pub(crate) prune: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) place: Place,

    /// How many
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,

    /// Only changes before the one with this id
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<u32>,

    #[command(flatten)]
    pub(crate) printed: Printed,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Lists the contexts
    List,
    /// Makes a context the current one
    Use {
        /// The context
        name: String,
    },
    /// Changes what a context looks at
    Set {
        /// The context [default: the current one]
        name: Option<String>,

        /// The organization's id
        #[arg(long, value_name = "ID")]
        organization: Option<OrganizationId>,

        /// The cluster, by name or id
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
    },
}

/// For kubectl: `users[].user.exec` of a kubeconfig.
#[derive(Debug, Args)]
pub(crate) struct CredentialArgs {
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CloudFormat {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs
    Yaml,
    /// Kind and id of each, one a line
    Name,
}

/// The kinds, in the order in which one may refer to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub(crate) enum CloudKind {
    /// Organizations that you are in
    #[value(alias = "organization", alias = "orgs")]
    Organizations,
    /// Members of the organization
    #[value(alias = "user")]
    Users,
    /// SSH keys of a user
    #[value(alias = "ssh-key", alias = "keys")]
    SshKeys,
    /// Users to whom roles are given together
    #[value(alias = "team")]
    Teams,
    /// Roles and their rules
    #[value(alias = "role")]
    Roles,
    /// Container registries
    #[value(alias = "registry")]
    Registries,
    /// Accounts at clouds
    #[value(alias = "provider")]
    Providers,
    /// Clusters
    #[value(alias = "cluster")]
    Clusters,
    /// Labels of every node of a cluster
    #[value(alias = "label")]
    Labels,
    /// Plugins of a cluster
    #[value(alias = "plugin")]
    Plugins,
    /// Policies by which a cluster is scaled
    #[value(alias = "autoscaling-policy")]
    AutoscalingPolicies,
    /// Node pools of a cluster
    #[value(alias = "node-pool", alias = "pools")]
    NodePools,
    /// Labels of every node of a node pool
    #[value(alias = "node-pool-label")]
    NodePoolLabels,
    /// Nodes of a node pool, or of a cluster
    #[value(alias = "node")]
    Nodes,
    /// Who has which role
    #[value(alias = "role-binding", alias = "bindings")]
    RoleBindings,
    /// Upgrades of a cluster
    #[value(alias = "upgrade")]
    Upgrades,
}
