//! The flags of `tidewaiter cloud operators`.

use clap::{Args, Subcommand};

use super::{CloudFormat, CloudPlace};

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorsCommand {
    /// Lists them
    List {
        #[command(flatten)]
        place: CloudPlace,

        /// How it is printed
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: CloudFormat,
    },
    /// Makes a user of the organization, or whom an id names, an operator
    Add(OperatorArgs),
    /// Makes a user no operator any more; one always stays
    Remove(OperatorArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OperatorArgs {
    /// The user, by e-mail address or id
    #[arg(value_name = "OPERATOR")]
    pub(crate) operator: String,

    #[command(flatten)]
    pub(crate) place: CloudPlace,
}
