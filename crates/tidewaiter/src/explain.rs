//! `tidewaiter explain`: why a Node has, or has not, a label.
//!
//! It reads, and writes nothing. What it says follows from the functions that the controller itself goes by.

mod group;
mod output;

use crate::Failure;
use crate::cli::Explain;

/// Answers the question on standard output.
pub(crate) fn main(question: &Explain) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Running(error.into()))?;
    match question {
        Explain::Group(args) => runtime.block_on(group::explain(args)),
    }
}
