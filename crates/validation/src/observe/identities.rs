//! Lists the `NodeIdentities`, if the API server serves them.
//!
//! The answer is in its discovery documents, which every authenticated user may read. The list
//! itself cannot answer this: the API server denies it before it looks for the kind.

use std::sync::Arc;
use std::time::Duration;

use kube::error::DiscoveryError;
use kube::{Client, Error, Resource as _, discovery};
use tidewaiter_api::NodeIdentity;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Chain, Clock, Guarded};

use super::lists;
use crate::objects::{IdentityRecord, Listed};
use crate::observation::Part;

/// The timeout of discovery.
const LIMIT: Duration = Duration::from_secs(10);

/// Returns the proofs of the Nodes' claims; None if the API server does not serve `NodeIdentities`. A record that
/// cannot be decoded proves nothing.
pub(super) async fn identities(client: &Client, clock: &dyn Clock) -> Option<Part<Vec<IdentityRecord>>> {
    match timeout(clock, LIMIT, is_served(client)).await {
        Ok(Ok(true)) => Some(list(client, clock).await),
        Ok(Ok(false)) => None,
        Ok(Err(error)) => Some(Part::Unknown(unserved(&Chain(&error)))),
        Err(elapsed) => Some(Part::Unknown(unserved(&elapsed))),
    }
}

fn unserved(why: &impl std::fmt::Display) -> String {
    format!("whether the API server serves NodeIdentities is unknown: {why}")
}

async fn is_served(client: &Client) -> Result<bool, Error> {
    match discovery::group(client, &NodeIdentity::group(&())).await {
        Ok(group) => {
            let plural = NodeIdentity::plural(&());
            Ok(group
                .resources_by_stability()
                .iter()
                .any(|(kind, _)| kind.plural == plural))
        }
        Err(Error::Discovery(DiscoveryError::MissingApiGroup(_))) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn list(client: &Client, clock: &dyn Clock) -> Part<Vec<IdentityRecord>> {
    let listed = lists::all::<NodeIdentity, Guarded<Listed>>(client, clock, |listed| listed.0.is_ok()).await;
    let records = |listed: Vec<Arc<Guarded<Listed>>>| {
        let decoded = listed
            .into_iter()
            .filter_map(|listed| Arc::unwrap_or_clone(listed).0.ok());
        decoded.map(|listed| listed.record).collect::<Vec<_>>()
    };
    listed.map(records).into()
}
