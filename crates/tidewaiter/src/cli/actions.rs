//! The flags of the commands of `tidewaiter cloud` that do something with an object other than to create, change or delete it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tidewaiter_cloud::models::values::{Slug, TargetVersion, Version};
use tidewaiter_cloud::server::principal::OrgRole;

use super::{CloudFormat, CloudPlace};

#[derive(Debug, Subcommand)]
pub(crate) enum ActionCommand {
    /// Sets the role of a user in the organization
    SetRole {
        #[command(flatten)]
        user: ActionUser,

        #[arg(value_name = "ROLE", value_parser = role, help = "read_only, member, admin or owner")]
        role: OrgRole,
    },
    /// Sets the password of a user, or your own; the user's tokens become invalid, except your current one
    SetPassword(SetPasswordArgs),
    /// Ends all logins of a user and revokes the user's tokens
    EndLogins(ActionUser),
    /// Manages your own tokens, for programs
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Manages the API keys of a cluster
    #[command(subcommand)]
    ApiKeys(ApiKeysCommand),
    /// Sets the script of an upgrade, for all nodes or for one
    SetScript(SetScriptArgs),
    /// Manages script templates, which serve for each upgrade that has no script of its own
    #[command(subcommand)]
    ScriptTemplates(ScriptTemplatesCommand),
    /// Pauses an upgrade: no further node is started, and the node in progress is finished
    PauseUpgrade(UpgradeArgs),
    /// Resumes an upgrade that was paused here
    ResumeUpgrade(UpgradeArgs),
    /// Aborts an upgrade: no further node is started, and it fails when the node in progress is finished
    AbortUpgrade(UpgradeArgs),
    /// Assigns an autoscaling policy to the node pool --node-pool
    Assign(PolicyArgs),
    /// Ends the assignment of an autoscaling policy to the node pool --node-pool
    Unassign(PolicyArgs),
    /// Manages the catalogue of plugins; only operators can change it
    #[command(subcommand)]
    Catalogue(CatalogueCommand),
    /// Locks the organization against all changes; only operators can
    Lock(ActionPlace),
    /// Unlocks the organization; only operators can
    Unlock(ActionPlace),
}

fn role(word: &str) -> Result<OrgRole, String> {
    OrgRole::of(word).ok_or_else(|| "must be read_only, member, admin or owner".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct ActionPlace {
    #[command(flatten)]
    pub(crate) place: CloudPlace,
}

#[derive(Debug, Args)]
pub(crate) struct ActionUser {
    /// The user, by e-mail address or id
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,

    #[command(flatten)]
    pub(crate) place: CloudPlace,
}

#[derive(Debug, Args)]
pub(crate) struct SetPasswordArgs {
    /// The user, by e-mail address or id [default: yourself]
    #[arg(value_name = "MEMBER", conflicts_with = "old_password_file")]
    pub(crate) member: Option<String>,

    #[arg(
        long,
        value_name = "FILE",
        help = "A file with the new password [default: TIDEWAITER_CLOUD_PASSWORD, else a prompt]"
    )]
    pub(crate) password_file: Option<PathBuf>,

    /// A file with your current password [default: a prompt]
    #[arg(long, value_name = "FILE")]
    pub(crate) old_password_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) place: CloudPlace,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Lists your tokens and logins
    List(ListArgs),
    /// Creates a token, which is shown only once
    Create {
        /// Its name, for the list
        name: String,

        /// The days until it expires
        #[arg(long, value_name = "N", default_value = "30", value_parser = clap::value_parser!(u32).range(1..=365))]
        days: u32,

        #[command(flatten)]
        of: ActionPlace,
    },
    /// Revokes a token
    Revoke {
        /// The token, by name or id
        token: String,

        #[command(flatten)]
        of: ActionPlace,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) place: CloudPlace,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: CloudFormat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApiKeysCommand {
    /// Lists the keys of the cluster, without their texts
    List(ListArgs),
    /// Creates a key, which is shown only once; the others stay valid
    Create(ActionPlace),
    /// Deletes a key: whoever uses it is refused from the next request on
    Delete {
        /// The key's id
        #[arg(value_name = "KEY")]
        key: String,

        #[command(flatten)]
        of: ActionPlace,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SetScriptArgs {
    /// The upgrade's id
    #[arg(value_name = "UPGRADE")]
    pub(crate) upgrade: String,

    /// The file with the script
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: PathBuf,

    /// The node, by name or id [default: all nodes]
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,

    #[command(flatten)]
    pub(crate) place: CloudPlace,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScriptTemplatesCommand {
    /// Lists the templates of the cluster and of the organization
    List(ListArgs),
    /// Prints a template
    Get(ScriptTemplateArgs),
    /// Sets a template
    Set {
        /// The file with the script, without signatures
        #[arg(short, long, value_name = "FILE")]
        filename: PathBuf,

        #[command(flatten)]
        of: ScriptTemplateArgs,
    },
    /// Deletes a template
    Delete(ScriptTemplateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ScriptTemplateArgs {
    /// The version that it upgrades to [default: any]
    #[arg(long, value_name = "VERSION")]
    pub(crate) target_version: Option<TargetVersion>,

    /// Of the organization: for all of its clusters
    #[arg(long, conflicts_with = "cluster")]
    pub(crate) all_clusters: bool,

    #[command(flatten)]
    pub(crate) place: CloudPlace,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// The upgrade's id
    #[arg(value_name = "UPGRADE")]
    pub(crate) upgrade: String,

    #[command(flatten)]
    pub(crate) place: CloudPlace,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// The autoscaling policy, by name or id
    #[arg(value_name = "POLICY")]
    pub(crate) policy: String,

    #[command(flatten)]
    pub(crate) place: CloudPlace,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CatalogueCommand {
    /// Lists the versions of all plugins
    List(ListArgs),
    /// Adds a version with its manifests
    Add {
        #[command(flatten)]
        version: VersionArgs,

        /// A file with the manifests (YAML or JSON): a mapping with `manifests`, or the Kubernetes objects, one per document
        #[arg(short, long, value_name = "FILE")]
        filename: PathBuf,

        /// A file with the other fields of the version, for example `compatibility`
        #[arg(long, value_name = "FILE")]
        definition: Option<PathBuf>,

        /// Replaces the manifests if the version has been published with others
        #[arg(long)]
        replace: bool,
    },
    /// Removes a version that no cluster has
    Remove(VersionArgs),
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
    pub(crate) place: CloudPlace,
}
