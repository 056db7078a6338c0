//! Observes a cluster once, whole: the state store, the cloud, the API server and DNS, all at the same time.
//!
//! It always ends, and always with an [`Observation`]: what could not be had in time, or only in part, is
//! [`Unknown`](Part::Unknown) with a reason. Nothing is kept from one time to the next but what [`Definitions`] keeps, and
//! that is asked about anew.

mod dns;
mod lists;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::join;
use kube::{Client, ResourceExt as _};
use tidewaiter_api::{ClusterName, NodeIdentity};
use tidewaiter_identity::{CloudGroup, CloudGroups, Refusal};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Clock, SharedClock};
use tidewaiter_kops::{Definitions, GroupSummary};

use crate::judge::contested;
use crate::objects::{Node, Pod, is_judged};
use crate::observation::{Dns, Observation, Part};

pub use dns::resolve;

/// The longest that the state store or the cloud may take: more than one read of the store does, and a name after it.
pub const LIMIT: Duration = Duration::from_secs(27);

/// Whom to ask.
#[derive(Clone)]
pub struct Sources {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its InstanceGroups, and under which name its API is found. Nobody needs to [`run`](Definitions::run) them.
    pub definitions: Definitions,
    /// Its cloud.
    pub cloud: Arc<dyn CloudGroups>,
    /// Its API server.
    pub client: Client,
    /// The source of time.
    pub clock: SharedClock,
}

/// Observes everything now. What is away takes half a minute at most; a long list goes on while its pages come.
pub async fn observe(sources: &Sources) -> Observation {
    let Sources { client, clock, .. } = sources;
    let (groups, cloud, nodes, pods, dns) = join!(
        groups(sources),
        cloud(sources),
        lists::all::<Node>(client, &**clock, |_| true),
        lists::all::<Pod>(client, &**clock, is_judged),
        api_addresses(sources),
    );
    Observation {
        cluster: sources.cluster.clone(),
        groups,
        cloud,
        forged: match &nodes {
            Ok(nodes) if contested(nodes) => forged(client, &**clock).await,
            _ => BTreeSet::new(),
        },
        nodes: nodes.into(),
        pods: pods.into(),
        dns,
    }
}

/// Where there are no records, or nobody may read them, none: of several claims the worst counts then.
async fn forged(client: &Client, clock: &dyn Clock) -> BTreeSet<String> {
    let forged = |record: &NodeIdentity| record.status.as_ref().is_some_and(Refusal::recorded_forgery);
    let records = lists::all(client, clock, forged).await.unwrap_or_default();
    records.iter().map(|record| record.name_any()).collect()
}

/// The InstanceGroups as they are now: the last good version of a file that cannot be read any more is not taken for it.
async fn groups(sources: &Sources) -> Part<Vec<GroupSummary>> {
    let definitions = &sources.definitions;
    let now = async {
        definitions.refresh().await;
        let summaries = definitions.summaries().await?;
        match definitions.stale() {
            Some(stale) => Err(stale.error),
            None => Ok(summaries),
        }
    };
    match timeout(&*sources.clock, LIMIT, now).await {
        Ok(summaries) => summaries.into(),
        Err(elapsed) => Part::Unknown(format!("the state store: {elapsed}")),
    }
}

async fn cloud(sources: &Sources) -> Part<Vec<CloudGroup>> {
    match timeout(&*sources.clock, LIMIT, sources.cloud.groups()).await {
        Ok(groups) => groups.into(),
        Err(elapsed) => Part::Unknown(format!("the cloud: {elapsed}")),
    }
}

async fn api_addresses(sources: &Sources) -> Part<Dns> {
    match timeout(&*sources.clock, LIMIT, sources.definitions.cluster_summary()).await {
        Ok(Ok(cluster)) => dns::resolve(cluster.api_name.as_deref(), &*sources.clock).await,
        Ok(Err(error)) => Part::Unknown(format!("the name of the API is not known: {error}")),
        Err(elapsed) => Part::Unknown(format!("the name of the API is not known: the state store: {elapsed}")),
    }
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for Part<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(error) => Self::Unknown(error.to_string()),
        }
    }
}
