//! `GET /upgrade/kubernetes?version=1.36.3`: the upgrade script of a node, for the agent of that node alone. So no agent holds the API key of the cluster.
//!
//! - Which node it is, the token says: the API server puts the name of the node into the token of each pod. Nothing in the request can name another one.
//! - The token must be for the audience [`AUDIENCE`]. So whoever takes it on the way here cannot use it on the API server.
//! - The coordinator is not trusted with what a script does: the host checks its signature.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Client;
use kube::api::{Api, PostParams};
use serde::Deserialize;
use tidewaiter_cloud::client::{ClientError, Fetched};
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::values::KubernetesVersion;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Chain, SharedClock};
use tokio::sync::Semaphore;
use tracing::{debug, info};

use super::{ANSWER, Refusal};
use crate::controllers::Cloud;

/// The audience of the tokens of agents.
pub const AUDIENCE: &str = "tidewaiter-coordinator";

/// The service account of the agents.
const AGENT: &str = "system:serviceaccount:tidewaiter-agent:tidewaiter-agent";

/// Where the API server puts the name of the node.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Requests at once. One node is upgraded at a time.
const AT_ONCE: usize = 8;

/// How long the cloud may take.
const CLOUD: Duration = Duration::from_secs(20);

/// What the handler needs.
pub(super) struct Relay {
    client: Client,
    cloud: Cloud,
    clock: SharedClock,
    permits: Semaphore,
}

/// The version to upgrade to, without `v`.
#[derive(Deserialize)]
pub(super) struct Asked {
    version: String,
}

impl Relay {
    pub(super) fn new(client: Client, cloud: Cloud, clock: SharedClock) -> Arc<Self> {
        Arc::new(Self {
            client,
            cloud,
            clock,
            permits: Semaphore::new(AT_ONCE),
        })
    }

    /// The node whose agent has this token.
    async fn node(&self, token: &str) -> Result<String, Refusal> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                token: token.to_owned(),
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let params = PostParams::default();
        let answer = timeout(&*self.clock, ANSWER, api.create(&params, &review)).await;
        let later = || Refusal::later("the API server cannot be asked now whose the token is: try again", 5);
        let review = match answer {
            Ok(Ok(review)) => review,
            // The library's error may show the request, which has the token.
            Ok(Err(kube::Error::Api(status))) => {
                debug!(reason = status.reason, "the API server does not say whose a token is");
                return Err(later());
            }
            Ok(Err(_)) | Err(_) => return Err(later()),
        };
        node_of(&review.status.unwrap_or_default())
    }

    async fn script(&self, node: &str, version: &KubernetesVersion) -> Result<String, ClientError> {
        let Cloud { client, cluster, .. } = &self.cloud;
        let listed = client.list_each::<models::Node>(cluster.nodes(), None).await?;
        let Fetched::Complete { value, .. } = listed else {
            return Ok(String::new());
        };
        let of_name = |found: &models::Node| found.spec.name.as_ref().is_some_and(|name| name.as_str() == node);
        let Some(found) = value.into_iter().flatten().find(of_name) else {
            return Ok(String::new());
        };
        let script = client.script(*cluster, found.id, version).await?;
        Ok(script.as_str().to_owned())
    }
}

/// Serves the script.
pub(super) async fn script(
    State(relay): State<Arc<Relay>>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let token = super::token(&headers).ok_or_else(unknown)?;
    let version: KubernetesVersion = asked.version.parse().map_err(|_| {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "version must be a version without v, for example 1.36.3",
        )
    })?;
    let Ok(_permit) = relay.permits.try_acquire() else {
        return Err(Refusal::later("too many requests at once: try again", 1));
    };
    let node = relay.node(token).await?;
    let answer = timeout(&*relay.clock, CLOUD, relay.script(&node, &version)).await;
    let script = answer.map_err(|_| away())?.map_err(|error| {
        info!(node, %version, error = %Chain(&error), "the cloud has no script for a node");
        match error {
            ClientError::NotOurs { .. } => absent(),
            ClientError::Rejected { .. } => Refusal::new(
                StatusCode::CONFLICT,
                "the cloud cannot serve the script of this node; the log of the coordinator says why",
            ),
            _ => away(),
        }
    })?;
    if script.is_empty() {
        return Err(absent());
    }
    info!(node, %version, "the agent of a node has taken its upgrade script");
    Ok(([(CONTENT_TYPE, "text/x-shellscript; charset=utf-8")], script).into_response())
}

/// The node in a token of an agent for this audience.
fn node_of(status: &TokenReviewStatus) -> Result<String, Refusal> {
    let audiences = status.audiences.as_deref().unwrap_or_default();
    // An API server that does not know audiences returns none, whatever was asked.
    if status.authenticated != Some(true) || !audiences.iter().any(|audience| audience == AUDIENCE) {
        return Err(unknown());
    }
    let user = status.user.as_ref();
    let is_agent = user.and_then(|user| user.username.as_deref()) == Some(AGENT);
    let extra = user.and_then(|user| user.extra.as_ref());
    let names = extra.and_then(|extra| extra.get(NODE_NAME)).map(Vec::as_slice);
    match names {
        Some([name]) if is_agent && !name.is_empty() => Ok(name.clone()),
        _ => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "only the agent of a node gets a script, and only that of its node",
        )),
    }
}

fn unknown() -> Refusal {
    Refusal::new(
        StatusCode::UNAUTHORIZED,
        "no valid token: send Authorization: Bearer TOKEN with a token of the agent for the audience tidewaiter-coordinator",
    )
}

fn away() -> Refusal {
    Refusal::later("the cloud cannot be asked now for the script: try again", 10)
}

fn absent() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "the cloud has no upgrade script for this node and version: upload one with tidewaiter cloud set-script",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn says(status: Value) -> Result<String, u16> {
        let status: TokenReviewStatus = serde_json::from_value(status).unwrap();
        node_of(&status).map_err(|refusal| refusal.status.as_u16())
    }

    fn review(username: &str, audiences: &Value, extra: &Value) -> Value {
        json!({"authenticated": true, "audiences": audiences, "user": {"username": username, "extra": extra}})
    }

    #[test]
    fn only_a_token_of_an_agent_for_this_audience_names_a_node() {
        let ours = json!([AUDIENCE]);
        let node = json!({NODE_NAME: ["w1"]});
        assert_eq!(says(review(AGENT, &ours, &node)), Ok("w1".to_owned()));
        for (status, refused) in [
            (json!({}), 401),
            (json!({"authenticated": false, "audiences": ours}), 401),
            (review(AGENT, &json!(["https://kubernetes.default.svc"]), &node), 401),
            (review(AGENT, &Value::Null, &node), 401),
            (
                review("system:serviceaccount:default:tidewaiter-agent", &ours, &node),
                403,
            ),
            (review("system:node:w1", &ours, &node), 403),
            (review(AGENT, &ours, &json!({})), 403),
            (review(AGENT, &ours, &json!({NODE_NAME: [""]})), 403),
            (review(AGENT, &ours, &json!({NODE_NAME: ["w1", "w2"]})), 403),
        ] {
            assert_eq!(says(status.clone()), Err(refused), "{status}");
        }
    }
}
