//! `GET /upgrade/kubernetes?version=1.36.3`: the upgrade script of a node, for the agent of that node alone. So no
//! agent holds the API key of the cluster.
//!
//! - Which node it is, the token says: the API server puts the name of the node into the token of each pod. Nothing in
//!   the request can name another one.
//! - The token must be for the audience [`AUDIENCE`]. So anyone who takes it on the way here cannot use it on the API
//!   server.
//! - The coordinator is not trusted with what a script does: the host checks its signature.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use serde::Deserialize;
use tidewaiter_cloud::client::{ClientError, Fetched};
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::values::{KubernetesVersion, NodeId};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Chain, SharedClock};
use tokio::sync::Semaphore;
use tracing::{debug, info};

use super::{ANSWER, Refusal};
use crate::cloud::Cloud;

/// The audience of the tokens of agents.
pub const AUDIENCE: &str = "tidewaiter-coordinator";

/// The service account of the agents.
const AGENT: &str = "system:serviceaccount:tidewaiter-agent:tidewaiter-agent";

/// The key of the node's name in the API server's answer.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Questions to the API server whose a token is, at once. Further ones wait for their turn, in the order in which they
/// came: any pod may send what it likes, and must not keep out the agents.
const QUESTIONS: usize = 8;

/// Requests of agents at once, one for each node. Few nodes are upgraded at a time.
const AT_ONCE: usize = 8;

/// The minimum time between two lists of the nodes of the cloud: a node that the cloud does not have asks again and
/// again.
const MIN_LIST_INTERVAL: Duration = Duration::from_secs(5);

/// The time that the cloud may take.
const CLOUD: Duration = Duration::from_secs(20);

/// The parts of the handler.
pub(super) struct Relay {
    agents: Agents,
    cloud: Cloud,
    clock: SharedClock,
    nodes: Mutex<ListedNodes>,
    /// Held while the nodes are listed, so that all who wait use one list. A node that is known does not wait.
    listing: tokio::sync::Mutex<()>,
}

/// The nodes of the cloud when they were listed last.
#[derive(Default)]
struct ListedNodes {
    ids: BTreeMap<String, NodeId>,
    /// Monotonic.
    listed: Option<Duration>,
}

/// The owners of tokens, and the agents that are served now.
struct Agents {
    client: Client,
    clock: SharedClock,
    questions: Semaphore,
    served: Mutex<BTreeSet<String>>,
}

/// The agent of a node is served. Dropped, it may ask again.
struct Admitted<'a> {
    node: String,
    served: &'a Mutex<BTreeSet<String>>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut served = self.served.lock();
        served.remove(&self.node);
    }
}

/// The version to upgrade to, without `v`.
#[derive(Deserialize)]
pub(super) struct Asked {
    version: String,
}

impl Relay {
    pub(super) fn new(client: Client, cloud: Cloud, clock: SharedClock) -> Arc<Self> {
        let agents = Agents {
            client,
            clock: Arc::clone(&clock),
            questions: Semaphore::new(QUESTIONS),
            served: Mutex::default(),
        };
        Arc::new(Self {
            agents,
            cloud,
            clock,
            nodes: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
        })
    }

    async fn script(&self, node: &str, version: &KubernetesVersion) -> Result<Result<String, Refusal>, ClientError> {
        let Some(id) = self.find(node).await? else {
            return Ok(Err(unlisted()));
        };
        let Cloud { client, cluster, .. } = &self.cloud;
        let script = client.script(*cluster, id, version).await?;
        Ok(Ok(script.as_str().to_owned()))
    }

    /// The id of the node of this name in the cloud. The last list names it, and the object shows whether it still has
    /// the name: a list of all nodes for each script would be megabytes, and each report of a status changes it.
    async fn find(&self, node: &str) -> Result<Option<NodeId>, ClientError> {
        let known = self.nodes.lock().ids.get(node).copied();
        if let Some(id) = known
            && self.has_name(id, node).await?
        {
            return Ok(Some(id));
        }
        let _listing = self.listing.lock().await;
        let now = self.clock.monotonic();
        let is_recent = |nodes: &ListedNodes| nodes.listed.is_some_and(|at| now < at + MIN_LIST_INTERVAL);
        if is_recent(&self.nodes.lock()) {
            return Ok(self.nodes.lock().ids.get(node).copied().filter(|id| Some(*id) != known));
        }
        let Cloud { client, cluster, .. } = &self.cloud;
        if let Fetched::Complete { value, .. } = client.list_each::<models::Node>(cluster.nodes(), None).await? {
            let named = value.into_iter().flatten();
            let named = named.filter_map(|node| Some((node.spec.name?.as_str().to_owned(), node.id)));
            *self.nodes.lock() = ListedNodes {
                ids: named.collect(),
                listed: Some(self.clock.monotonic()),
            };
        }
        Ok(self.nodes.lock().ids.get(node).copied())
    }

    async fn has_name(&self, id: NodeId, name: &str) -> Result<bool, ClientError> {
        let Cloud { client, cluster, .. } = &self.cloud;
        match client.get::<models::Node>(cluster.nodes().below(id), None).await {
            Ok(Fetched::Complete { value, .. }) => Ok(value.spec.name.is_some_and(|its| its.as_str() == name)),
            Ok(Fetched::Unchanged) | Err(ClientError::NotOurs { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Agents {
    /// Admits the agent that has this token, once at a time for each node.
    async fn admit(&self, token: &str) -> Result<Admitted<'_>, Refusal> {
        let node = self.node(token).await?;
        let mut served = self.served.lock();
        if served.len() >= AT_ONCE || !served.insert(node.clone()) {
            return Err(Refusal::later("too many requests at once: try again", 1));
        }
        Ok(Admitted {
            node,
            served: &self.served,
        })
    }

    /// The node whose agent has this token.
    async fn node(&self, token: &str) -> Result<String, Refusal> {
        let later = || Refusal::later("the API server cannot be asked now whose the token is: try again", 5);
        let question = timeout(&*self.clock, ANSWER, self.questions.acquire()).await;
        let Ok(Ok(_question)) = question else {
            return Err(later());
        };
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
}

/// Serves the script.
pub(super) async fn script(
    State(relay): State<Arc<Relay>>,
    asked: Result<Query<Asked>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let token = super::token(&headers).ok_or_else(unknown)?;
    let version = asked
        .ok()
        .and_then(|asked| asked.version.parse::<KubernetesVersion>().ok());
    let version = version.ok_or_else(|| {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "version must be a version, for example ?version=1.36.3",
        )
    })?;
    let admitted = relay.agents.admit(token).await?;
    let node = admitted.node.as_str();
    let answer = timeout(&*relay.clock, CLOUD, relay.script(node, &version)).await;
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
    let script = script?;
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

fn unlisted() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "the cloud has no node of this name in the cluster, so no script for it: create it with tidewaiter cloud create node",
    )
}

fn absent() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "the cloud has no upgrade script for this node and version: upload one with tidewaiter cloud set-script",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures::future::join_all;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tidewaiter_cloud::client::{ClientSettings, Cluster};
    use tidewaiter_kit::{SimulatedClock, SystemClock};
    use tokio::sync::watch;
    use uuid::Uuid;

    use super::*;

    /// An API server that knows the tokens of agents, `agent.NODE.x`, and answers no question about another one before
    /// it is told to. It counts the questions.
    fn agents(answers: watch::Receiver<bool>, asked: Arc<AtomicUsize>) -> Agents {
        let api = tower::service_fn(move |request: http::Request<Body>| {
            let (mut answers, asked) = (answers.clone(), Arc::clone(&asked));
            async move {
                let body = request.into_body().collect_bytes().await?;
                let review: TokenReview = serde_json::from_slice(&body).unwrap();
                asked.fetch_add(1, Ordering::SeqCst);
                let node = review.spec.token.split('.').nth(1).unwrap().to_owned();
                let mut status = json!({ "authenticated": false });
                if review.spec.token.starts_with("agent.") {
                    status = self::review(AGENT, &json!([AUDIENCE]), &json!({NODE_NAME: [node]}));
                } else {
                    answers.wait_for(|may| *may).await.unwrap();
                }
                let answer = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {"token": ""},
                    "status": status});
                Ok::<_, kube::Error>(http::Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        Agents {
            client: Client::new(api, "default"),
            clock: SystemClock::shared(),
            questions: Semaphore::new(QUESTIONS),
            served: Mutex::default(),
        }
    }

    #[tokio::test]
    async fn a_flood_of_tokens_delays_the_agents_and_does_not_keep_them_out() {
        let ((answer, answers), asked) = (watch::channel(false), Arc::new(AtomicUsize::new(0)));
        let agents = agents(answers, Arc::clone(&asked));
        let flood = join_all((0..3 * QUESTIONS).map(|_| agents.admit("forged.x.y")));
        let an_agent = async {
            // All questions are taken, and more wait.
            while asked.load(Ordering::SeqCst) < QUESTIONS {
                tokio::task::yield_now().await;
            }
            let admitted = agents.admit("agent.w1.x");
            let (admitted, ()) = tokio::join!(admitted, async {
                answer.send_replace(true);
            });
            admitted
                .map(|admitted| admitted.node.clone())
                .map_err(|refused| refused.status)
        };
        let (flood, admitted) = tokio::join!(flood, an_agent);
        assert_eq!(admitted, Ok("w1".to_owned()));
        assert!(
            flood
                .iter()
                .all(|refused| refused.as_ref().is_err_and(|it| it.status == StatusCode::UNAUTHORIZED))
        );
    }

    #[tokio::test]
    async fn each_agent_is_served_once_at_a_time() {
        let agents = agents(watch::channel(true).1, Arc::default());
        let first = agents
            .admit("agent.w1.x")
            .await
            .map_err(|refused| refused.status)
            .unwrap();
        let status = async |token| agents.admit(token).await.err().map(|refused| refused.status);
        assert_eq!(status("agent.w1.x").await, Some(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(status("agent.w2.x").await, None, "another node");
        drop(first);
        assert_eq!(status("agent.w1.x").await, None);
        let names: Vec<String> = (0..AT_ONCE).map(|number| format!("agent.n{number}.x")).collect();
        let all = join_all(names.iter().map(|name| agents.admit(name))).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(status("agent.w1.x").await, Some(StatusCode::SERVICE_UNAVAILABLE));
    }

    /// A cloud with these nodes, by id and name, which logs the requests.
    struct ScriptedCloud {
        nodes: Mutex<Vec<(Uuid, String)>>,
        requests: Mutex<Vec<String>>,
        /// It does not answer a list.
        hangs: AtomicBool,
    }

    impl ScriptedCloud {
        fn new(nodes: &[(Uuid, &str)]) -> Arc<Self> {
            let nodes = nodes.iter().map(|(id, name)| (*id, (*name).to_owned()));
            Arc::new(Self {
                nodes: Mutex::new(nodes.collect()),
                requests: Mutex::default(),
                hangs: AtomicBool::new(false),
            })
        }

        fn relay(self: &Arc<Self>, clock: &SharedClock) -> Arc<Relay> {
            let scripted = Arc::clone(self);
            let settings = ClientSettings::new("https://cloud.example.com".parse().unwrap());
            let client = tidewaiter_cloud::client::Client::new(&settings, Arc::clone(clock)).unwrap();
            let client = client.over(move |request| {
                let path = request.url().path().to_owned();
                let hangs = path.ends_with("/nodes") && scripted.hangs.load(Ordering::SeqCst);
                let (status, body) = scripted.answer(&path);
                let response = http::Response::builder().status(status).body(body).unwrap();
                async move {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    Ok(response.into())
                }
            });
            let cluster = Cluster {
                organization: Uuid::nil().to_string().parse().unwrap(),
                id: Uuid::nil().to_string().parse().unwrap(),
            };
            let interval = Duration::from_secs(30);
            let agents = agents(watch::channel(true).1, Arc::default());
            let cloud = Cloud {
                client,
                cluster,
                interval,
            };
            Relay::new(agents.client, cloud, Arc::clone(clock))
        }

        fn answer(&self, path: &str) -> (u16, String) {
            let node = |(id, name): &(Uuid, String)| {
                json!({"id": id.to_string(), "created_at": "1", "updated_at": "1", "name": name, "node_pool_id": Uuid::nil().to_string(),
                    "status": {"type": "UNKNOWN", "message": "", "percent": 0}})
            };
            let nodes = self.nodes.lock();
            let mut segments = path.split('/').skip(7);
            let Some(id) = segments.next() else {
                self.requests.lock().push("list".to_owned());
                return (200, nodes.iter().map(node).collect::<Value>().to_string());
            };
            let what = segments.next().unwrap_or("get");
            self.requests.lock().push(what.to_owned());
            match nodes.iter().find(|(known, _)| known.to_string() == id) {
                None => (404, json!({"code": 404, "message": "not found"}).to_string()),
                Some(_) if what == "upgrade" => (200, format!("#!/bin/sh\n# {id}\n")),
                Some(found) => (200, node(found).to_string()),
            }
        }

        fn takes(&self) -> Vec<String> {
            std::mem::take(&mut self.requests.lock())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_nodes_of_the_cloud_are_listed_only_when_they_have_changed() {
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let (cloud, clock) = (
            ScriptedCloud::new(&[(one, "w1"), (two, "w2")]),
            SimulatedClock::shared(),
        );
        let relay = cloud.relay(&clock);
        let version = "1.36.3".parse().unwrap();
        let of = async |node: &str| match relay.script(node, &version).await.unwrap() {
            Ok(script) => [one, two].into_iter().find(|id| script.contains(&id.to_string())),
            Err(refused) => {
                assert_eq!(refused.status, StatusCode::NOT_FOUND);
                None
            }
        };
        assert_eq!(of("w1").await, Some(one));
        assert_eq!(cloud.takes(), ["list", "upgrade"]);
        for (node, id) in [("w2", two), ("w1", one), ("w2", two)] {
            assert_eq!(of(node).await, Some(id));
            assert_eq!(cloud.takes(), ["get", "upgrade"]);
        }
        // The names are exchanged: nobody gets the script of the other.
        *cloud.nodes.lock() = vec![(one, "w2".to_owned()), (two, "w1".to_owned())];
        assert_eq!(of("w1").await, None, "the last list is too recent");
        clock.sleep(MIN_LIST_INTERVAL).await;
        assert_eq!((of("w1").await, of("w2").await), (Some(two), Some(one)));
        // A node is created again.
        cloud.nodes.lock().retain(|(id, _)| *id == one);
        clock.sleep(MIN_LIST_INTERVAL).await;
        cloud.takes();
        for _ in 0..20 {
            assert_eq!(of("w1").await, None);
        }
        let lists = cloud.takes().iter().filter(|request| *request == "list").count();
        assert_eq!(lists, 1);
        cloud.nodes.lock().push((two, "w1".to_owned()));
        clock.sleep(MIN_LIST_INTERVAL).await;
        assert_eq!(of("w1").await, Some(two));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_hangs_delays_no_node_that_is_known() {
        let (cloud, clock) = (
            ScriptedCloud::new(&[(Uuid::from_u128(1), "w1")]),
            SimulatedClock::shared(),
        );
        let (relay, version) = (cloud.relay(&clock), "1.36.3".parse().unwrap());
        let serve = async |node: &str| timeout(&*clock, CLOUD, relay.script(node, &version)).await;
        assert!(serve("w1").await.is_ok());
        clock.sleep(MIN_LIST_INTERVAL).await;
        cloud.hangs.store(true, Ordering::SeqCst);
        let begun = clock.monotonic();
        let known = async {
            while !cloud.takes().contains(&"list".to_owned()) {
                tokio::task::yield_now().await;
            }
            assert!(serve("w1").await.is_ok());
            assert_eq!(clock.monotonic(), begun);
        };
        // Each has its own deadline, also while it waits for the list of another one.
        let (first, second, ()) = tokio::join!(serve("w2"), serve("w3"), known);
        assert!(first.is_err() && second.is_err());
        assert_eq!(clock.monotonic(), begun + CLOUD);
        cloud.hangs.store(false, Ordering::SeqCst);
        assert!(serve("w2").await.is_ok(), "it is not listed, which is an answer");
    }

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
