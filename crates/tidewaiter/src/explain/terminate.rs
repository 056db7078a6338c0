//! `tidewaiter explain terminate`: whether everything that the coordinator manages is to be removed. `helm test` asks
//! it.

use std::path::Path;

use anyhow::{Result, bail};
use kube::Client;
use tidewaiter_coordinator::terminate::read;
use tidewaiter_kit::role::kube_config;
use tidewaiter_kit::{Kit, Leadership, SystemClock, client};

use crate::cli::ExplainTerminateArgs;
use crate::cloud::print;

/// Prints that nothing is to be removed.
///
/// # Errors
/// When something is, or the API server does not say it.
pub(super) async fn explain(args: &ExplainTerminateArgs) -> Result<()> {
    match read(reader(args.kubeconfig.as_deref()).await?).await? {
        Some(progress) => bail!("{}", progress.remedy()),
        None => print("nobody requests that what the coordinator manages is removed\n"),
    }
}

async fn reader(kubeconfig: Option<&Path>) -> Result<Client> {
    let kit = Kit::new(SystemClock::shared())?;
    let config = kube_config(kubeconfig, None).await?;
    let never = Leadership::never(kit.clock.clone());
    Ok(client::fenced(&config, &never, &kit).await?)
}
