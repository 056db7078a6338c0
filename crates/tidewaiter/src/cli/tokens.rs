//! The flags of `tidewaiter cloud tokens` and `tidewaiter cloud api-keys`.

use clap::{Args, Subcommand};
use tidewaiter_cloud::models::Kind;

use super::actions::ListArgs;
use super::cloud::KindParser;
use super::{ClusterPlace, Confirmation, OrganizationPlace};

/// The owner of tokens.
#[derive(Debug, Args)]
pub(crate) struct TokenOwner {
    /// The service account, by name or id [default: yourself]
    #[arg(long, value_name = "ACCOUNT")]
    pub(crate) service_account: Option<String>,

    #[command(flatten)]
    pub(crate) place: OrganizationPlace,
}

/// The scope of a new token; without a flag, the token has all permissions of its owner.
#[derive(Debug, Args)]
pub(crate) struct ScopeFlags {
    /// A kind that the token is limited to; may be repeated
    #[arg(long = "kind", value_name = "KIND", value_parser = KindParser, ignore_case = true)]
    pub(crate) kinds: Vec<Kind>,

    /// A cluster that the token is limited to, by name or id; may be repeated
    #[arg(long = "cluster", value_name = "CLUSTER")]
    pub(crate) clusters: Vec<String>,

    /// Limits the token to reading
    #[arg(long)]
    pub(crate) read_only: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Lists tokens, and your logins
    List(ListArgs<TokenOwner>),
    /// Creates a token, which is shown only once
    Create {
        /// Its name, for the list
        name: String,

        /// The days until it expires
        #[arg(long, value_name = "N", default_value = "30", value_parser = clap::value_parser!(u32).range(1..=365))]
        days: u32,

        #[command(flatten)]
        scope: ScopeFlags,

        #[command(flatten)]
        owner: TokenOwner,
    },
    /// Revokes a token after confirmation
    Revoke {
        /// The token, by name or id
        token: String,

        #[command(flatten)]
        confirmation: Confirmation,

        #[command(flatten)]
        owner: TokenOwner,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApiKeysCommand {
    /// Lists the keys of the cluster, without their texts
    List(ListArgs<ClusterPlace>),
    /// Creates a key, which is shown only once; the others stay valid
    Create(ClusterPlace),
    /// Deletes a key after confirmation: its user is refused from the next request on
    Delete {
        /// The key's id, as `tidewaiter cloud api-keys list` shows it
        #[arg(value_name = "KEY")]
        key: String,

        #[command(flatten)]
        confirmation: Confirmation,

        #[command(flatten)]
        place: ClusterPlace,
    },
}
