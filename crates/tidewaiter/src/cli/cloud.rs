//! The flags of the client commands of `tidewaiter cloud`. No flag takes a secret.

mod fields;
mod kind;
mod place;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tidewaiter_cloud::client::BaseUrl;
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::models::values::{Email, OrganizationId};

use super::sign::SIGN_SCRIPT_NEXT;
use super::validate::wait;
use super::{ActionCommand, CloudFormat, OperatorsCommand, ServerCommand, SignArgs, SignScriptArgs};

pub(crate) use fields::FieldFlags;
pub(crate) use kind::{KindParser, kind_of};
pub(crate) use place::{AccountPlace, ClusterPlace, NodePoolPlace, ObjectPlace, OrganizationPlace, Place};

/// The variables of the client commands that have no flag, for `--help`.
pub(super) const PROGRAM_VARIABLES: &str = "\
Variables of a program, which take the place of a context:
  TIDEWAITER_CLOUD_TOKEN         A token (tidewaiter cloud tokens create)
  TIDEWAITER_CLOUD_SERVER        The URL of its server
  TIDEWAITER_CLOUD_CA_FILE       The trusted CA certificates (PEM) [default: those of the system]
  TIDEWAITER_CLOUD_ORGANIZATION  The organization's id, where --organization is not given";

#[derive(Debug, Subcommand)]
pub(crate) enum CloudCommand {
    #[command(flatten)]
    Client(ClientCommand),
    #[command(flatten)]
    Server(ServerCommand),
}

/// The client commands; they run anywhere.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Logs in with the browser, with a code or with a password, and creates a context
    Login(LoginArgs),
    /// Ends the login of a context on the server, and removes the stored token
    Logout(LogoutArgs),
    /// Shows the logged-in user, the server and the role
    Whoami(WhoamiArgs),
    /// Lists objects of a kind, or shows one object
    Get(GetArgs),
    /// Shows all details of one object
    Describe(ObjectArgs),
    /// Creates one object from a file, or from flags
    Create(CreateArgs),
    /// Creates a cluster, or an API key of an existing one, and prints the manifests of its coordinator for
    /// `kubectl apply --server-side -f -`
    Attach(AttachArgs),
    /// Applies files to the cloud, after showing exactly what will change
    Apply(ApplyArgs),
    /// Shows what apply would change; exits with 1 if there are changes
    Diff(DiffArgs),
    /// Edits an object in $EDITOR
    Edit(ObjectArgs),
    /// Deletes an object, after showing what goes with it
    Delete(DeleteArgs),
    #[command(flatten)]
    Action(ActionCommand),
    /// Signs the manifests of a plugin for one cluster, without asking the cloud
    Sign(SignArgs),
    /// Signs the script of an upgrade for the nodes that may run it, and prints the signed script; does not ask the
    /// cloud
    #[command(after_help = SIGN_SCRIPT_NEXT)]
    SignScript(SignScriptArgs),
    /// Lists changes and their authors, newest first
    Audit(AuditArgs),
    /// Manages operators: the users who administer all organizations of the server
    #[command(subcommand)]
    Operators(OperatorsCommand),
    /// Manages contexts: the servers and accounts you are logged in to
    #[command(subcommand)]
    Context(ContextCommand),
}

/// A kind and its parent objects.
#[derive(Debug, Args)]
pub(crate) struct OfKind {
    /// The kind
    #[arg(value_name = "KIND", value_parser = KindParser, ignore_case = true)]
    pub(crate) kind: Kind,

    #[command(flatten)]
    pub(crate) place: ObjectPlace,
}

/// The documents, and the parent objects that they apply to.
#[derive(Debug, Args)]
pub(crate) struct DocumentArgs {
    /// A file of documents (YAML or JSON), a directory of such files, or - for the standard input; repeat it for
    /// several
    #[arg(short, long, value_name = "PATH", required = true)]
    pub(crate) filename: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) place: ClusterPlace,
}

#[derive(Debug, Args)]
pub(crate) struct Printed {
    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: CloudFormat,
}

#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEWAITER_CLOUD_SERVER",
        help = "The URL of the cloud, for example https://cloud.example.com [default: that of the context]"
    )]
    pub(crate) server: Option<BaseUrl>,

    /// Your e-mail address, to log in with a password. Without it, the browser is opened, unless a password is set
    #[arg(value_name = "EMAIL")]
    pub(crate) email: Option<Email>,

    #[arg(
        long,
        value_name = "FILE",
        help = "A file with the password [default: TIDEWAITER_CLOUD_PASSWORD, else a prompt]"
    )]
    pub(crate) password_file: Option<PathBuf>,

    /// Prints a code, which you type in a browser on any machine
    #[arg(long, conflicts_with_all = ["email", "password_file"])]
    pub(crate) device: bool,

    /// Prints the link instead of opening the browser
    #[arg(long, conflicts_with_all = ["email", "password_file", "device"])]
    pub(crate) no_browser: bool,

    /// The trusted CA certificates (PEM) [default: those of the context, else those of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,

    /// The name of the context [default: the server's host, and the current context without --server]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The organization's id [default: your organization, if you are a member of exactly one]
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
    pub(crate) place: AccountPlace,

    #[command(flatten)]
    pub(crate) printed: Printed,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) of: OfKind,

    /// The object, by name or id; all of them without it
    #[arg(value_name = "OBJECT")]
    pub(crate) object: Option<String>,

    #[command(flatten)]
    pub(crate) printed: Printed,

    /// Also prints the credentials of registries, if the cloud returns them to you
    #[arg(long)]
    pub(crate) show_secrets: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ObjectArgs {
    #[command(flatten)]
    pub(crate) of: OfKind,

    /// The object, by name or id
    #[arg(value_name = "OBJECT")]
    pub(crate) object: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) object: ObjectArgs,

    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
}

/// Whether the user is asked before something is deleted.
#[derive(Debug, Args)]
pub(crate) struct Confirmation {
    /// Deletes without confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// A file with one document (YAML or JSON), or - for the standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) of: OfKind,

    /// The output format. For a cluster, the output contains its API key, which is shown only once
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) output: CloudFormat,

    /// Starts an upgrade at once: without this flag, it is created paused
    #[arg(long)]
    pub(crate) start: bool,

    #[command(flatten)]
    pub(crate) fields: FieldFlags,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The cluster, by name or id
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: String,

    /// The image of Tidewaiter in a registry from which the cluster pulls
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub(crate) image: String,

    /// The URL of the cloud for the cluster [default: that of the context]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<BaseUrl>,

    /// Permits the coordinator to apply plugins, as cluster-admin
    #[arg(long)]
    pub(crate) plugins: bool,

    #[command(flatten)]
    pub(crate) place: OrganizationPlace,
}

/// Refuses what no runtime takes for the name of an image, before a key is made for it.
fn image(text: &str) -> Result<String, &'static str> {
    let is_part = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-:@[]".contains(c))
    };
    let is_image = text.len() <= 512 && text.split('/').all(is_part);
    is_image
        .then(|| text.to_owned())
        .ok_or("must name an image, for example registry.example.com/tidewaiter:0.1.0")
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) documents: DocumentArgs,

    /// Deletes objects that no document names, of the kinds listed in a document of kind Scope
    #[arg(long)]
    pub(crate) prune: bool,

    /// Shows what would change, and changes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Waits until every cluster that the documents concern has followed them, for at most this time; --wait alone is
    /// --wait=5m
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "5m",
        value_parser = wait)]
    pub(crate) wait: Option<Duration>,

    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) documents: DocumentArgs,

    /// Also shows what `apply --prune` would delete
    #[arg(long)]
    pub(crate) prune: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) place: OrganizationPlace,

    /// The maximum number of changes
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) limit: u32,

    /// Lists only changes older than the one with this id (-o wide shows it)
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<u32>,

    #[command(flatten)]
    pub(crate) printed: Printed,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Lists the contexts
    List(Printed),
    /// Selects the current context
    Use {
        /// The context
        name: String,
    },
    /// Sets the organization or the cluster of a context
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

/// The flags of kubectl's credential plugin.
#[derive(Debug, Args)]
pub(crate) struct CredentialArgs {
    #[command(flatten)]
    pub(crate) place: ClusterPlace,
}
