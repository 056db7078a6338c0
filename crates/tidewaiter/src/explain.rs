//! `tidewaiter explain`: explains why a Node has or lacks a label, what a user or a team may do in the cluster, who can
//! log in, and whether everything is to be removed.
//!
//! It only reads. Its output comes from the same functions that the controllers use.

mod access;
mod forgeries;
mod group;
mod logins;
mod node;
pub(crate) mod output;
mod sources;
mod terminate;

use crate::Failure;
use crate::cli::Explain;

/// Answers the question on standard output.
pub(crate) fn main(question: &Explain) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Running(error.into()))?;
    let result = match question {
        Explain::Group(args) => runtime.block_on(group::explain(args)),
        Explain::Node(args) => runtime.block_on(node::explain(args)),
        Explain::Forgeries(args) => runtime.block_on(forgeries::explain(args)),
        Explain::Access(args) => runtime.block_on(access::explain(args)),
        Explain::Terminate(args) => runtime.block_on(terminate::explain(args)).map_err(Failure::Running),
        Explain::Logins => logins::where_to_look().map_err(Failure::Running),
    };
    // A credential plugin or a DNS lookup may block a thread.
    runtime.shutdown_background();
    result
}
