//! A cloud server in this process, with a cluster and two node pools.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tidewaiter_cloud::client::{Client, ClientSettings, Cluster};
use tidewaiter_cloud::models::Kind;
use tidewaiter_coordinator::changes::Changes;
use tidewaiter_coordinator::controllers::NodePoolSource;
use tidewaiter_coordinator::node_pools::NodePools;
use tidewaiter_coordinator::node_pools::sync::CloudNodes;
use tidewaiter_kit::{Kit, Leadership, SystemClock, Tasks};
use tidewaiter_testkit::leaks;

use crate::cloud_world::{World, beside};

pub struct Cloud {
    server: World,
    owner: String,
    cluster: String,
    key: String,
    /// The names of the nodes that its lists lack, with the ETag of the right ones.
    lacks: Arc<Mutex<Vec<String>>>,
}

impl Cloud {
    pub async fn start() -> Self {
        let server = World::sqlite().await;
        let owner = server.owner().await;
        let cluster = server.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
        Self {
            cluster: cluster.field("id"),
            key: leaks::secret(cluster.field("api_key")),
            owner: leaks::secret(owner),
            server,
            lacks: Arc::default(),
        }
    }

    fn path(&self, rest: &str) -> String {
        format!("~/clusters/{}/{rest}", self.cluster)
    }

    /// Creates a node pool; returns its id.
    pub async fn pool(&self, name: &str) -> String {
        let pool = json!({"name": name, "count": 1, "kubernetes_mode": "worker", "kubernetes_version": "1.30.1", "etcd": false,
            "is_schedulable": true});
        let created = self.server.post(&self.owner, &self.path("node-pools"), pool).await;
        created.is(201).field("id")
    }

    pub async fn delete_pool(&self, pool: &str) {
        let path = self.path(&format!("node-pools/{pool}"));
        self.server.delete(&self.owner, &path).await.is(204);
    }

    /// Creates a node in the pool, with this name or without one; returns its path.
    pub async fn node(&self, pool: &str, name: Option<&str>) -> String {
        let path = self.path(&format!("node-pools/{pool}/nodes"));
        let created = self
            .server
            .post(&self.owner, &path, json!({"name": name}))
            .await
            .is(201);
        format!("{path}/{}", created.field("id"))
    }

    pub async fn delete_node(&self, path: &str) {
        self.server.delete(&self.owner, path).await.is(204);
    }

    /// From now on its lists lack these nodes, though it has them.
    pub fn lacks(&self, names: &[&str]) {
        *self.lacks.lock().unwrap() = names.iter().map(|name| (*name).to_owned()).collect();
    }

    /// Another name of a node, or another node pool: what is not given stays.
    pub async fn change_node(&self, path: &str, change: Value) {
        let request = self
            .server
            .request(&self.owner, reqwest::Method::PATCH, path)
            .json(&change);
        self.server.send(request).await.is(200);
    }

    pub async fn stops(&mut self) {
        self.server.stop().await;
    }

    /// The source of the node pools, woken by the change stream.
    pub fn source(&self, setting: NodePools, interval: Duration) -> NodePoolSource {
        let mut settings = ClientSettings::new(self.server.base.parse().unwrap());
        settings.token = Some(self.key.parse().unwrap());
        settings.sync_interval = interval;
        settings.deadline = Duration::from_secs(2);
        settings.allow_plain_http = true;
        let client = Client::new(&settings, SystemClock::shared()).unwrap();
        let (http, lacks) = (reqwest::Client::new(), Arc::clone(&self.lacks));
        let client = client.over(move |request| {
            let (http, lacks) = (http.clone(), Arc::clone(&lacks));
            async move {
                let is_list = request.url().path().ends_with("/nodes");
                let answer = http.execute(request).await?;
                let lacks = lacks.lock().unwrap().clone();
                if !is_list || lacks.is_empty() || answer.status() != 200 {
                    return Ok(answer);
                }
                let etag = answer.headers()["etag"].clone();
                let mut nodes: Vec<Value> = answer.json().await?;
                nodes.retain(|node| !lacks.iter().any(|name| node["name"] == **name));
                let wrong = http::Response::builder()
                    .header("content-type", "application/json")
                    .header("etag", etag);
                Ok::<reqwest::Response, reqwest::Error>(wrong.body(json!(nodes).to_string()).unwrap().into())
            }
        });
        let cluster = Cluster {
            organization: self.server.organization.parse().unwrap(),
            id: self.cluster.parse().unwrap(),
        };
        let clock = SystemClock::shared();
        let mut tasks = Tasks::new(clock.clone());
        let metrics = Kit::new(clock.clone()).unwrap().metrics;
        let changes = Changes::start(client.clone(), cluster, Leadership::always(clock), &metrics, &mut tasks);
        beside(async move {
            tasks.run_until(std::future::pending()).await.unwrap();
        });
        let asked = changes.unwrap().of(&[Kind::Node]);
        let cloud = tidewaiter_coordinator::Cloud {
            client,
            cluster,
            interval,
        };
        let cloud = CloudNodes { cloud, asked };
        NodePoolSource {
            setting,
            cloud: Some(cloud),
        }
    }

    /// The nodes as the cluster reads them.
    pub async fn listed(&self) -> Value {
        self.server.get(&self.key, &self.path("nodes")).await.is(200).json()
    }
}
