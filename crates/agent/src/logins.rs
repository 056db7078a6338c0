//! The users that can log in on each node, for a person: from the Users, from what each agent reports, and
//! from how old that is.
//!
//! - What an agent has applied decides, not what a User requests. A key that a User requests and no report has is
//!   listed by itself, and so is a key that a report has and no User requests any more.
//! - A report says what its agent last did. Only where the Node and the agent's pod on it are ready is that so now.
//! - Nothing is written, and nothing is read from a node.

mod describe;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node as FullNode, Pod as FullPod};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource};
use serde::{Deserialize, Serialize};
use tidewaiter_api::NodeReport;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::{Cacheable, Clock as _, Guarded, SystemClock};

use crate::user_controller::User;
pub use describe::describe;

/// The namespace of the agents.
const AGENTS: &str = "tidewaiter-agent";

/// The filters of the answer.
#[derive(Clone, Debug, Default)]
pub struct LoginQuestion {
    /// Only this user, by id or by name.
    pub user: Option<String>,
    /// Only this node.
    pub node: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginsExplained {
    /// The keys that agents have applied.
    pub applied: Vec<LoginExplained>,
    /// The keys of Users that agents have not applied, or not any more.
    pub pending: Vec<PendingExplained>,
    /// The keys that agents refuse.
    pub refused: Vec<RefusedExplained>,
    /// The nodes, and how far their reports can be relied on.
    pub nodes: Vec<NodeExplained>,
}

/// A key with which somebody can log in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginExplained {
    /// The node.
    pub node: String,
    /// The id of the user.
    pub user: String,
    /// The name of the user; empty when there is no such User any more.
    pub name: String,
    /// The fingerprint of the key.
    pub fingerprint: String,
    /// The end of the key or of the user, whichever is first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The time since which the user has exactly these keys there.
    pub since: String,
}

/// A difference between the Users and a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingExplained {
    /// The node.
    pub node: String,
    /// The id of the user.
    pub user: String,
    /// The name of the user; empty when there is no such User any more.
    pub name: String,
    /// The fingerprint of the key.
    pub fingerprint: String,
    /// The due action: `add` or `remove`.
    pub due: &'static str,
    /// The reason why it is not done, as far as the report says it.
    pub why: String,
}

/// A key that is not written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedExplained {
    /// The name of the User object.
    pub user: String,
    /// The name of the key.
    pub key: String,
    /// The reason.
    pub why: String,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplained {
    /// Its name.
    pub node: String,
    /// True if the report is what the agent last saw, and it still runs.
    pub is_current: bool,
    /// The state in the report, and why it may be old.
    pub state: String,
    /// Lines that are not the agent's.
    pub foreign_lines: u32,
    /// The fingerprints and comments of the first keys in these lines.
    pub foreign_keys: Vec<String>,
    /// The time at which lines that stay until then are removed; empty if there are none.
    pub foreign_lines_until: String,
    /// The fingerprints of the break-glass keys, and which users have the same key.
    pub break_glass_keys: Vec<String>,
    /// The number of changes that the agent has undone since it started.
    pub restores: u32,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LoginsError {
    /// There is no such node, and no report of it.
    #[error("there is no Node {0:?} in this cluster, and no NodeReport of it: kubectl get nodes lists them")]
    NoNode(String),
    /// The API server does not know the kind.
    #[error(
        "this cluster has no {0}: install the agent and the coordinator, or apply their definitions in deploy/crds"
    )]
    NoDefinition(&'static str),
    /// The API server does not let itself be read.
    #[error("{what} cannot be read")]
    Read {
        /// The object that could not be read.
        what: &'static str,
        /// The cause.
        source: kube::Error,
    },
}

/// A Node with its condition `Ready`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = FullNode)]
pub struct Node {
    #[serde(deserialize_with = "tidewaiter_kit::slim::without_labels")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: NodeStatus,
}

/// A slim status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<NodeCondition>,
}

/// A slim condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl NodeStatus {
    fn is_ready(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }
}

/// A pod of an agent, with its node and its condition `Ready`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = FullPod)]
struct Pod {
    #[serde(deserialize_with = "tidewaiter_kit::slim::without_labels")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: NodeStatus,
}

/// A slim spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: String,
}

/// Answers the question.
///
/// # Errors
/// As [`LoginsError`] says. That nobody can log in is an answer.
pub async fn explain(client: &Client, question: &LoginQuestion) -> Result<LoginsExplained, LoginsError> {
    let users = list::<User>(Api::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE), "Users").await?;
    let reports = list::<NodeReport>(Api::all(client.clone()), "NodeReports").await?;
    let nodes = list::<Node>(Api::all(client.clone()), "Nodes").await?;
    if let Some(node) = &question.node {
        let named = |meta: &ObjectMeta| meta.name.as_ref() == Some(node);
        let is_known = nodes.iter().any(|it| named(&it.metadata)) || reports.iter().any(|it| named(&it.metadata));
        if !is_known {
            return Err(LoginsError::NoNode(node.clone()));
        }
    }
    let agents = agents(client).await?;
    let now = SystemClock.now();
    Ok(describe(&users, &reports, &nodes, agents.as_ref(), question, now))
}

/// The nodes with an agent that is ready; None if the caller may not see the pods.
async fn agents(client: &Client) -> Result<Option<BTreeSet<String>>, LoginsError> {
    let pods = match list::<Pod>(Api::namespaced(client.clone(), AGENTS), "pods of the agents").await {
        Err(LoginsError::Read {
            source: kube::Error::Api(status),
            ..
        }) if status.code == 403 => return Ok(None),
        pods => pods?,
    };
    let ready = pods.into_iter().filter(|pod| pod.status.is_ready());
    Ok(Some(ready.map(|pod| pod.spec.node_name).collect()))
}

async fn list<K>(api: Api<Guarded<K>>, what: &'static str) -> Result<Vec<K>, LoginsError>
where
    K: Cacheable + serde::de::DeserializeOwned,
{
    match list_all(&api).await {
        Ok((items, _)) => Ok(items),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(LoginsError::NoDefinition(what)),
        Err(source) => Err(LoginsError::Read { what, source }),
    }
}
