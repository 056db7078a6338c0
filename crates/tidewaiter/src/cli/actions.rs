//! The flags of the commands of `tidewaiter cloud` that do something with an object other than to create, change or
//! delete it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;
use tidewaiter_api::InvalidValue;
use tidewaiter_api::values::EndTime;
use tidewaiter_cloud::models::values::{DecisionId, Slug, TargetVersion, Version};
use tidewaiter_cloud::server::principal::OrgRole;

use super::{
    AcceptArgs, AccountPlace, ApiKeysCommand, CloudFormat, ClusterPlace, Confirmation, InvitationsCommand, InviteArgs,
    NodePoolPlace, OrganizationPlace, TokensCommand,
};

const SET_SCRIPT_NEXT: &str = "\
A node runs the script only if it is signed with a key that is pinned there:
  1. create the upgrade, which is paused unless --start is given:
     tidewaiter cloud create upgrade -f FILE
  2. sign the script, unless the server signs it (its setting scriptKeys):
     tidewaiter cloud sign-script -f upgrade.sh … > signed.sh
  3. upload it:
     tidewaiter cloud set-script UPGRADE -f signed.sh
  4. begin the upgrade:
     tidewaiter cloud resume-upgrade UPGRADE
docs/upgrades.md describes the scripts and the keys.";

const SCRIPT_TEMPLATES_NEXT: &str = "\
An upgrade without a script of its own (tidewaiter cloud set-script) has that
of the closest template:
  1. of the cluster, for the version of the upgrade
  2. of the cluster, for any version
  3. of all clusters of the organization, for the version of the upgrade
  4. of all clusters of the organization, for any version
The server signs it with the keys of its setting scriptKeys. Without these keys,
nodes refuse it. docs/upgrades.md describes the scripts and the keys.";

#[derive(Debug, Subcommand)]
pub(crate) enum ActionCommand {
    /// Sets the role of a user in the organization
    SetRole {
        #[command(flatten)]
        user: ActionUser,

        #[arg(value_name = "ROLE", value_parser = role, help = "read_only, member, admin or owner")]
        role: OrgRole,

        #[arg(
            long,
            value_name = "TIME",
            value_parser = end,
            help = "The end of the membership, for example 2027-01-31T18:00:00Z, or never [default: as it is]"
        )]
        expires_at: Option<Value>,
    },
    /// Sets the password of a user, or your own; the user's logins end, except your current one
    SetPassword(SetPasswordArgs),
    /// Ends all logins of a user, revokes the user's tokens and unlinks sign-in providers
    EndLogins(ActionUser),
    /// Invites a person, and prints a link that works once, with which the person chooses a password
    Invite(InviteArgs),
    /// Manages the invitations that nobody has accepted
    #[command(subcommand)]
    Invitations(InvitationsCommand),
    /// Accepts an invitation, with a new account or with your own
    Accept(AcceptArgs),
    /// Removes everything of a person after confirmation: logins, tokens, SSH keys, role bindings, operator rights
    Offboard(OffboardArgs),
    /// Manages tokens for programs: your own, or those of a service account
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Manages the API keys of a cluster
    #[command(subcommand)]
    ApiKeys(ApiKeysCommand),
    /// Releases what a cluster holds of a kind, after showing it; only where the cluster accepts that from the cloud
    Release {
        /// The kind in the cluster, for example User
        #[arg(value_name = "KIND", required_unless_present_any = ["list", "withdraw"])]
        kind: Option<String>,

        /// Releases without confirmation
        #[arg(short, long)]
        yes: bool,

        /// Only lists the releases and approvals that the cluster has yet to take
        #[arg(long, conflicts_with_all = ["kind", "withdraw"])]
        list: bool,

        /// Withdraws a release or an approval that the cluster has yet to take
        #[arg(long, value_name = "ID", conflicts_with = "kind")]
        withdraw: Option<DecisionId>,

        #[command(flatten)]
        place: ClusterPlace,
    },
    /// Approves the version of a plugin that awaits approval in a cluster, after showing what it would change; only
    /// where the cluster accepts that from the cloud
    Approve {
        /// The plugin, by type, implementation, both (TYPE/IMPLEMENTATION) or id
        #[arg(value_name = "PLUGIN")]
        plugin: String,

        /// Approves without confirmation
        #[arg(short, long)]
        yes: bool,

        #[command(flatten)]
        place: ClusterPlace,
    },
    /// Uploads the script that the nodes of an upgrade run as root, in place of the one before
    #[command(after_help = SET_SCRIPT_NEXT)]
    SetScript(SetScriptArgs),
    /// Manages script templates: the scripts of the upgrades that have none of their own
    #[command(subcommand, after_help = SCRIPT_TEMPLATES_NEXT)]
    ScriptTemplates(ScriptTemplatesCommand),
    /// Pauses an upgrade that is not over: no further node is started, and the node in progress is finished
    PauseUpgrade(UpgradeArgs),
    /// Resumes an upgrade that was paused here
    ResumeUpgrade(UpgradeArgs),
    /// Aborts an upgrade that is not over: no further node is started, and it fails when the node in progress is
    /// finished
    AbortUpgrade(UpgradeArgs),
    /// Assigns an autoscaling policy to the node pool --node-pool
    Assign(PolicyArgs),
    /// Ends the assignment of an autoscaling policy to the node pool --node-pool
    Unassign(PolicyArgs),
    /// Manages the catalogue of plugins; only operators can change it
    #[command(subcommand)]
    Catalogue(CatalogueCommand),
    /// Locks the organization against all changes; only operators can
    Lock(OrganizationPlace),
    /// Unlocks the organization; only operators can
    Unlock(OrganizationPlace),
}

/// The end of a membership, as the API has it.
pub(super) fn end(text: &str) -> Result<Value, InvalidValue> {
    match text {
        "never" => Ok(Value::Null),
        text => text.parse::<EndTime>().map(|end| end.to_string().into()),
    }
}

pub(super) fn role(word: &str) -> Result<OrgRole, String> {
    OrgRole::of(word).ok_or_else(|| "must be read_only, member, admin or owner".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct ActionUser {
    /// The user, by e-mail address or id
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,

    #[command(flatten)]
    pub(crate) place: OrganizationPlace,
}

#[derive(Debug, Args)]
pub(crate) struct OffboardArgs {
    /// The person, by e-mail address or id
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,

    #[command(flatten)]
    pub(crate) place: AccountPlace,

    /// Only shows what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) confirmation: Confirmation,
}

#[derive(Debug, Args)]
pub(crate) struct SetPasswordArgs {
    /// The user, by e-mail address or id [default: yourself]
    #[arg(value_name = "MEMBER", conflicts_with = "old_password_file")]
    pub(crate) member: Option<String>,

    #[arg(
        long,
        value_name = "FILE",
        help = "A file with the new password [default: TIDEWAITER_CLOUD_NEW_PASSWORD, else a prompt]"
    )]
    pub(crate) password_file: Option<PathBuf>,

    #[arg(
        long,
        value_name = "FILE",
        help = "A file with your current password [default: TIDEWAITER_CLOUD_PASSWORD, else a prompt]"
    )]
    pub(crate) old_password_file: Option<PathBuf>,

    /// Also revokes the tokens of programs and unlinks sign-in providers
    #[arg(long)]
    pub(crate) end_tokens: bool,

    #[command(flatten)]
    pub(crate) place: OrganizationPlace,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs<P: Args> {
    #[command(flatten)]
    pub(crate) place: P,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: CloudFormat,
}

#[derive(Debug, Args)]
pub(crate) struct SetScriptArgs {
    /// The upgrade's id, as `tidewaiter cloud get upgrades` shows it
    #[arg(value_name = "UPGRADE")]
    pub(crate) upgrade: String,

    /// The file with the script, which begins with #!/, or - for the standard input: what `tidewaiter cloud
    /// sign-script` printed, or without signatures if the server signs
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: PathBuf,

    /// The node in the cloud, by name or id, that alone runs this script [default: all nodes that have none of their
    /// own]
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,

    #[command(flatten)]
    pub(crate) place: ClusterPlace,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScriptTemplatesCommand {
    /// Lists the templates of the cluster and of the organization; those without a cluster serve for all clusters
    List(ListArgs<ClusterPlace>),
    /// Prints the script of a template
    Get(ScriptTemplateArgs),
    /// Uploads a script as a template, in place of the one for the same version
    Set {
        /// The file with the script, or - for the standard input. It begins with #!/ and has no signatures: a signature
        /// is for one upgrade
        #[arg(short, long, value_name = "FILE")]
        filename: PathBuf,

        #[command(flatten)]
        of: ScriptTemplateArgs,
    },
    /// Deletes a template after confirmation
    Delete {
        #[command(flatten)]
        of: ScriptTemplateArgs,

        #[command(flatten)]
        confirmation: Confirmation,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ScriptTemplateArgs {
    #[arg(
        long,
        value_name = "VERSION",
        help = "The version of Kubernetes that it upgrades to, for example v1.36.3 [default: the template for any version]"
    )]
    pub(crate) target_version: Option<TargetVersion>,

    /// The template for all clusters of the organization [default: that of the cluster]
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) all_clusters: bool,

    #[command(flatten)]
    pub(crate) place: ClusterPlace,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// The upgrade's id, as `tidewaiter cloud get upgrades` shows it
    #[arg(value_name = "UPGRADE")]
    pub(crate) upgrade: String,

    #[command(flatten)]
    pub(crate) place: ClusterPlace,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// The autoscaling policy, by name or id
    #[arg(value_name = "POLICY")]
    pub(crate) policy: String,

    #[command(flatten)]
    pub(crate) place: NodePoolPlace,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CatalogueCommand {
    /// Lists the versions of all plugins
    List(ListArgs<AccountPlace>),
    /// Adds a version with its manifests
    Add {
        #[command(flatten)]
        version: VersionArgs,

        /// A file with the manifests (YAML or JSON): a mapping with `manifests`, or the Kubernetes objects, one per
        /// document; or a directory of files with objects, or - for the standard input. Repeat it for several
        #[arg(short, long, value_name = "PATH", required = true)]
        filename: Vec<PathBuf>,

        /// A file with the other fields of the version, for example `compatibility`
        #[arg(long, value_name = "FILE")]
        definition: Option<PathBuf>,

        /// Replaces the manifests of a version that the catalogue has with others, in every cluster that has the
        /// version
        #[arg(long)]
        replace: bool,
    },
    /// Removes a version that no cluster has, after confirmation
    Remove {
        #[command(flatten)]
        version: VersionArgs,

        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// A version in the catalogue.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// The plugin's type
    #[arg(value_name = "TYPE")]
    pub(crate) plugin_type: Slug,

    /// The plugin's implementation
    #[arg(value_name = "IMPLEMENTATION")]
    pub(crate) implementation: Slug,

    /// The version
    #[arg(value_name = "VERSION")]
    pub(crate) plugin_version: Version,

    #[command(flatten)]
    pub(crate) place: AccountPlace,
}
