//! The flags of the commands about invitations. The link of one contains its secret, which works once.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;
use tidewaiter_cloud::models::values::{DisplayName, Email};
use tidewaiter_cloud::server::principal::OrgRole;
use url::Url;

use super::actions::{end, role};
use super::{AccountPlace, Confirmation, ListArgs, OrganizationPlace};

#[derive(Debug, Args)]
pub(crate) struct InviteArgs {
    /// The e-mail address with which the person will log in
    #[arg(value_name = "EMAIL")]
    pub(crate) email: Email,

    #[arg(
        long,
        value_name = "ROLE",
        value_parser = role,
        default_value = "member",
        help = "read_only, member, admin or owner"
    )]
    pub(crate) role: OrgRole,

    /// A team of the new member, by name or id; repeat it for several
    #[arg(long, value_name = "TEAM")]
    pub(crate) team: Vec<String>,

    /// The days until the link ends [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=30))]
    pub(crate) days: Option<u32>,

    #[arg(
        long,
        value_name = "TIME",
        value_parser = end,
        help = "The end of the membership, for example 2027-01-31T18:00:00Z [default: never]"
    )]
    pub(crate) expires_at: Option<Value>,

    #[command(flatten)]
    pub(crate) place: OrganizationPlace,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InvitationsCommand {
    /// Lists the invitations that nobody has accepted, without their links
    List(ListArgs<OrganizationPlace>),
    /// Revokes an invitation after confirmation
    Revoke {
        /// The invitation, by e-mail address or id
        #[arg(value_name = "INVITATION")]
        invitation: String,

        #[command(flatten)]
        confirmation: Confirmation,

        #[command(flatten)]
        place: OrganizationPlace,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AcceptArgs {
    /// The link of the invitation
    #[arg(value_name = "LINK")]
    pub(crate) link: Url,

    /// Your name, for a new account [default: a prompt]
    #[arg(long, value_name = "NAME", conflicts_with = "with_login")]
    pub(crate) name: Option<DisplayName>,

    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "with_login",
        help = "A file with the password of the new account [default: TIDEWAITER_CLOUD_NEW_PASSWORD, else a prompt]"
    )]
    pub(crate) password_file: Option<PathBuf>,

    /// Accepts with the account that you are logged in with, in place of a new one
    #[arg(long)]
    pub(crate) with_login: bool,

    /// The trusted CA certificates (PEM) [default: those of a context of the server, else those of the system]
    #[arg(long, value_name = "FILE", conflicts_with = "with_login")]
    pub(crate) ca_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) place: AccountPlace,
}
