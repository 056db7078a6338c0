//! Observes a cluster once: the state store, the cloud, the API server and DNS, concurrently.
//!
//! It always ends, and always with an [`Observation`]: a part that is late or incomplete is [`Unknown`](Part::Unknown)
//! with a reason. Nothing is cached between two observations except the contents of [`Definitions`], which are
//! requested again.

mod dns;
mod identities;
mod lists;

use std::sync::Arc;
use std::time::Duration;

use futures::join;
use k8s_openapi::api::core::v1::Node as FullNode;
use kube::Client;
use tidewaiter_api::ClusterName;
use tidewaiter_identity::CloudGroups;
use tidewaiter_kit::SharedClock;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kops::{Definitions, GroupSummary};

use crate::claims::ClaimTable;
use crate::instances::Instances;
use crate::objects::{Node, Pod, is_judged};
use crate::observation::{Dns, Identities, Observation, Part};

pub use dns::resolve;
use identities::identities;
use lists::ListError;

/// The timeout of the state store and of the cloud. It allows for more than one read of the store, and a DNS lookup
/// afterwards.
pub const LIMIT: Duration = Duration::from_secs(27);

/// The sources of an observation.
#[derive(Clone)]
pub struct Sources {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its InstanceGroups, and the DNS name of its API. They need not be [running](Definitions::run).
    pub definitions: Definitions,
    /// Its cloud.
    pub cloud: Arc<dyn CloudGroups>,
    /// Its API server.
    pub client: Client,
    /// The name of the API server in messages: its address, and the proxy that leads to it.
    pub server: String,
    /// The source of time.
    pub clock: SharedClock,
}

/// Observes everything now. An unavailable source takes at most 30 seconds; a long list continues while its pages
/// arrive.
pub async fn observe(sources: &Sources) -> Observation {
    let Sources { client, clock, .. } = sources;
    let (groups, cloud, nodes, identities, pods, dns) = join!(
        groups(sources),
        cloud(sources),
        lists::all::<FullNode, Node>(client, &**clock, |_| true),
        identities(client, &**clock),
        lists::all::<Pod, Pod>(client, &**clock, is_judged),
        api_addresses(sources),
    );
    let (nodes, pods) = (nodes.map_err(at(&sources.server)), pods.map_err(at(&sources.server)));
    let mut table = ClaimTable::default();
    let identities = match identities {
        None => Identities::NotInstalled,
        Some(records) => Identities::Installed(records.map(|records| {
            for record in records {
                let name = Arc::clone(record.node());
                table.set_record(&name, Some(record));
            }
        })),
    };
    let nodes = nodes.map(|nodes| {
        for node in nodes {
            let name = Arc::clone(&node.name);
            table.set_node(&name, Some(node));
        }
        table.claims(None)
    });
    Observation {
        cluster: sources.cluster.clone(),
        groups,
        cloud,
        // After the answer: a cloud may not know before.
        cloud_location: sources.cloud.location(),
        nodes: nodes.into(),
        identities,
        pods: pods.into(),
        dns,
    }
}

/// Names the API server, unless what helps is not there.
fn at(server: &str) -> impl Fn(ListError) -> String {
    move |error| match error {
        ListError::Denied { .. } | ListError::Missing { .. } => error.to_string(),
        ListError::Slow { .. } | ListError::Failed { .. } => format!("{error} (the API server is {server})"),
    }
}

/// The current InstanceGroups: the last valid version of a file that cannot be read any more does not count.
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

async fn cloud(sources: &Sources) -> Part<Arc<Instances>> {
    match timeout(&*sources.clock, LIMIT, sources.cloud.groups()).await {
        Ok(Err(error)) => Part::Unknown(match sources.cloud.location() {
            Some(location) => format!("{error} ({location})"),
            None => error.to_string(),
        }),
        Ok(groups) => groups.map(|groups| Arc::new(Instances::new(groups))).into(),
        Err(elapsed) => Part::Unknown(format!("the cloud: {elapsed}")),
    }
}

async fn api_addresses(sources: &Sources) -> Part<Dns> {
    match timeout(&*sources.clock, LIMIT, sources.definitions.cluster_summary()).await {
        Ok(Ok(cluster)) => dns::resolve(cluster.api_name.as_deref(), &*sources.clock).await,
        Ok(Err(error)) => Part::Unknown(format!("the API's host name is unknown: {error}")),
        Err(elapsed) => Part::Unknown(format!("the API's host name is unknown: the state store: {elapsed}")),
    }
}
