//! Hetzner Cloud: identifies a server.
//!
//! The group and the cluster come from the server's labels, which only holders of a project token with write permission
//! can change. A server has none: **such a token on a node breaks the proof**, because the node could label its own
//! server as a control plane.
//!
//! The calls of a query: a few servers are queried individually; more are looked up in one listing of the
//! cluster's servers, 50 per page. Servers missing from it (no label, another cluster's label, deleted, moved between
//! two pages) are queried individually, or, if there are too many, looked up in a listing of the whole project. After a
//! response that the quota is exhausted no call is made until enough of it is available again. No retries: the
//! controller queries a refused Node again, with a backoff that knows how often it has failed.
//!
//! The client is our own. The crate `hcloud` is generated from the whole API: it rejects a page because of an unknown
//! status, adds a second HTTP client with its own TLS, and has no timeouts.

mod call;
mod connect;
mod groups;
mod server;

use async_trait::async_trait;
use futures::future::join_all;
use tidewaiter_api::ClusterName;
use tidewaiter_kit::{CloudCalls, SharedClock};

pub use connect::{ApiToken, Client, ClientError, InvalidToken, client};

use crate::claimants::Claimants;
use crate::failure::Failure;
use crate::identifier::{AnswerFn, Claim, Identifier};
use call::{Caller, Listing};
use server::{ServerId, identity};

/// The calls. A read-only token may make them.
pub mod api {
    /// Reads one server by id.
    pub const GET: &str = "hcloud:servers.get";
    /// Lists the servers of the cluster, or of the project.
    pub const LIST: &str = "hcloud:servers.list";
}

/// The maximum number of servers that are queried individually, concurrently. A project may make 3,600 calls an hour,
/// and a cluster of 500 takes ten pages.
const FEW: usize = 10;

/// The servers of a cluster on Hetzner Cloud.
#[derive(Debug)]
pub struct Hetzner {
    caller: Caller,
    cluster: ClusterName,
    /// The label selector for the cluster's servers.
    selector: String,
    groups: tokio::sync::Mutex<groups::Listed>,
}

type Query<'a> = Claimants<'a, ServerId>;

impl Hetzner {
    /// A provider for the servers of `cluster` in the project of the client's token. Create the client with [`client`],
    /// whose timeouts bound each query.
    #[must_use]
    pub fn new(client: Client, cluster: ClusterName, clock: SharedClock, calls: CloudCalls) -> Self {
        // A cluster's name contains no character with a meaning in a selector.
        let selector = format!("{}={cluster}", server::CLUSTER_LABEL);
        Self {
            caller: Caller::new(client, clock, calls),
            cluster,
            selector,
            groups: tokio::sync::Mutex::default(),
        }
    }

    async fn one_by_one(&self, ids: &[ServerId], query: &Query<'_>) {
        let one = async |id: &ServerId| match self.caller.server(*id).await {
            Ok(server) => query.answer(id, &identity(api::GET, *id, &server, &self.cluster)),
            Err(failure) if failure.is_not_found() => query.not_found(id),
            Err(failure) => query.refuse(id, failure.refusal()),
        };
        join_all(ids.iter().map(one)).await;
    }

    /// Answers the servers in one listing and returns the missing ones. If the listing fails, all are refused.
    async fn listed(&self, selector: Option<&str>, ids: &[ServerId], query: &Query<'_>) -> Vec<ServerId> {
        let listing = match self.caller.list(selector, ids).await {
            Ok(listing) => listing,
            Err(failure) => {
                for id in ids {
                    query.refuse(id, failure.refusal());
                }
                return Vec::new();
            }
        };
        let (found, missing): (Vec<ServerId>, Vec<ServerId>) = ids.iter().partition(|id| listing.contains_key(id));
        for id in found {
            self.take(id, &listing, query);
        }
        missing
    }

    fn take(&self, id: ServerId, listing: &Listing, query: &Query<'_>) {
        match listing.get(&id).map(Vec::as_slice) {
            Some([Ok(server)]) => query.answer(&id, &identity(api::LIST, id, server, &self.cluster)),
            Some([Err(failure)]) => query.refuse(&id, failure.refusal()),
            rows => {
                let times = rows.map_or(0, <[_]>::len);
                let failure = Failure::unusable(api::LIST, format!("{id} is listed {times} times"));
                query.refuse(&id, failure.refusal());
            }
        }
    }
}

#[async_trait]
impl Identifier for Hetzner {
    fn scheme(&self) -> &'static str {
        "hcloud"
    }

    /// All: a listing returns every server, so each part of a split query would cost as much as the whole.
    fn max_batch(&self) -> usize {
        usize::MAX
    }

    async fn identify(&self, claims: &[Claim], answers: &AnswerFn<'_>) {
        let read = |claim: &Claim| ServerId::read(&claim.provider_id);
        let query = Query::new(claims, answers, read, |place, refusal| answers(place, Err(refusal)));
        let mut ids = query.targets();
        if ids.len() > FEW {
            ids = self.listed(Some(&self.selector), &ids, &query).await;
        }
        if ids.len() > FEW {
            for id in self.listed(None, &ids, &query).await {
                query.not_found(&id);
            }
            return;
        }
        self.one_by_one(&ids, &query).await;
    }
}
