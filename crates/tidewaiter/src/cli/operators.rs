//! The flags of `tidewaiter cloud operators`.

use clap::{Args, Subcommand};

use super::{AccountPlace, CloudFormat, Confirmation, OrganizationPlace};

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorsCommand {
    /// Lists the operators
    List {
        #[command(flatten)]
        place: AccountPlace,

        /// The output format
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: CloudFormat,
    },
    /// Makes a user an operator: a member of the organization, or any user by id
    Add(OperatorArgs<OrganizationPlace>),
    /// Removes an operator after confirmation; the last operator cannot be removed
    Remove {
        #[command(flatten)]
        operator: OperatorArgs<AccountPlace>,

        #[command(flatten)]
        confirmation: Confirmation,
    },
}

#[derive(Debug, Args)]
pub(crate) struct OperatorArgs<P: Args> {
    /// The user, by e-mail address or id
    #[arg(value_name = "OPERATOR")]
    pub(crate) operator: String,

    #[command(flatten)]
    pub(crate) place: P,
}
