//! `tidewaiter explain terminate`: shows if everything that the coordinator manages is to be removed. `helm test` asks
//! it.

use anyhow::{Result, bail};
use tidewaiter_coordinator::terminate::read;

use crate::cli::ExplainTerminateArgs;
use crate::cloud::print;
use crate::upgrade::reader;

/// Prints that nothing is to be removed.
///
/// # Errors
/// When something is, or the API server does not say it.
pub(super) async fn explain(args: &ExplainTerminateArgs) -> Result<()> {
    let (client, _) = reader(&args.cluster).await?;
    match read(client).await? {
        Some(progress) => bail!("{}", progress.remedy()),
        None => print("nobody requests that what the coordinator manages is removed\n"),
    }
}
