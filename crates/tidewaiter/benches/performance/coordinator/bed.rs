//! The setup for the coordinator: an API server, a cloud, and two registries that let it in.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use http::Request;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{
    AuditMark, ControlPlane, FakeRegistries, Identity, Process, Program, Scratch, eventually, free_port,
};

use crate::cloud::server::{Cloud, Contents, USERS, private_registry};
use crate::process::Role;

/// Longer than anything takes that happens in every namespace.
pub const LONG: std::time::Duration = std::time::Duration::from_mins(8);

/// The registries of the organization.
pub const HOSTS: [&str; 2] = ["one.registries.test", "two.registries.test"];
/// The password of both at the beginning.
pub const PASSWORD: &str = "at-first";

/// The setup. Cluster 0 of the cloud is the coordinator's.
pub struct Bed {
    pub cluster: ControlPlane,
    pub cloud: Cloud,
    pub registries: FakeRegistries,
    pub scratch: Scratch,
    pub program: PathBuf,
}

impl Bed {
    pub async fn start(program: &Path, clusters: usize) -> Result<Self> {
        Self::with_users(program, clusters, USERS, 1).await
    }

    /// Starts the setup with this number of users, and of SSH keys for each user.
    pub async fn with_users(program: &Path, clusters: usize, users: usize, keys: usize) -> Result<Self> {
        let registries = FakeRegistries::start().await;
        for host in HOSTS {
            registries.accept(host, &[&format!("u:{PASSWORD}")]);
        }
        let contents = Contents {
            clusters,
            users,
            keys,
            registries: HOSTS.map(|host| private_registry(host, PASSWORD)).into(),
        };
        Ok(Self {
            cluster: control_plane().await,
            cloud: Cloud::start(program, &contents).await?,
            registries,
            scratch: Scratch::new("bench-coordinator"),
            program: program.to_owned(),
        })
    }

    /// Starts a coordinator with the settings of the release, except for addresses and credentials.
    pub fn coordinator(&self) -> Role {
        self.coordinator_with(&[])
    }

    /// Starts a coordinator with more settings.
    pub fn coordinator_with(&self, settings: &[(&str, &str)]) -> Role {
        let own = &self.cloud.clusters[0];
        let local = || format!("127.0.0.1:{}", free_port());
        let admin = local();
        let organization = self.cloud.organization.rsplit('/').next().unwrap_or_default();
        let program = Program::new(&self.program)
            .name(format!("coordinator-{admin}"))
            .arg("coordinator")
            .env("TIDEWAITER_KUBECONFIG", self.cluster.kubeconfig(&account()))
            .env("TIDEWAITER_ADMIN_ADDRESS", &admin)
            .env("TIDEWAITER_HEALTH_ADDRESS", local())
            .env("TIDEWAITER_ENDPOINTS__ADDRESS", local())
            .env(
                "CONTAINERSHIP_CLOUD_API_BASE_URL",
                format!("http://{}", self.cloud.address),
            )
            .env("CONTAINERSHIP_CLOUD_ORGANIZATION_ID", organization)
            .env("CONTAINERSHIP_CLOUD_CLUSTER_ID", &own.id)
            .env("CONTAINERSHIP_CLOUD_CLUSTER_API_KEY", &own.api_key);
        let environment = self.registries.environment().into_iter();
        let program = environment.fold(program, |program, (key, value)| program.env(key, value));
        let program = settings
            .iter()
            .fold(program, |program, (key, value)| program.env(key, value));
        Role {
            process: Process::start(&self.scratch, program),
            metrics: format!("http://{admin}/metrics"),
            admin: format!("http://{admin}"),
        }
    }

    pub fn admin(&self) -> Client {
        self.cluster.client(&Identity::Admin)
    }

    /// The id of a registry, which is the name of its pull secret.
    pub fn registry_id(&self, number: usize) -> &str {
        self.cloud.registries[number].rsplit('/').next().unwrap_or_default()
    }

    /// The writes of the coordinator since `mark` that concern children of namespaces: verb and path.
    pub async fn children_written(&self, mark: AuditMark) -> Vec<String> {
        let audit = self.cluster.audit().await.since(mark).by(&account()).writes();
        let audit = audit.filter(|entry| matches!(entry.object_ref.resource.as_str(), "secrets" | "serviceaccounts"));
        audit
            .iter()
            .map(|entry| format!("{} {}", entry.verb, entry.uri))
            .collect()
    }
}

/// The service account of the coordinator.
pub fn account() -> Identity {
    Identity::service_account("containership-core", "tidewaiter-coordinator")
}

/// An API server with everything that `deploy/coordinator` brings.
pub async fn control_plane() -> ControlPlane {
    let cluster = ControlPlane::start().await;
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    cluster.apply_manifests(deploy.join("coordinator")).await;
    cluster.apply_manifests(deploy.join("crds/coordinator")).await;
    list_each_kind(&cluster).await;
    cluster
}

/// Lists each kind once. The API server prepares a kind at the first request for it, which is not to be measured.
async fn list_each_kind(cluster: &ControlPlane) {
    let client = cluster.client(&Identity::Admin);
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    eventually("each kind to be served", LONG, async || {
        for definition in definitions.list(&ListParams::default()).await? {
            let spec = definition.spec;
            for version in spec.versions.iter().filter(|version| version.served) {
                let path = format!("/apis/{}/{}/{}", spec.group, version.name, spec.names.plural);
                client.request_text(Request::get(path).body(Vec::new())?).await?;
            }
        }
        anyhow::Ok(())
    })
    .await;
}

/// The name of the `number`th namespace, or Node, of this kind.
pub fn numbered(kind: &str, number: usize) -> String {
    format!("{kind}-{number:05}")
}

/// Creates this number of namespaces. Returns how many the cluster has.
pub async fn make_namespaces(cluster: &ControlPlane, count: usize) -> Result<usize> {
    let namespaces: Api<Namespace> = Api::all(cluster.client(&Identity::Admin));
    let first = numbered("many", 0);
    let namespace = serde_json::from_value(json!({"metadata": {"name": first}}))?;
    let made = namespaces.create(&PostParams::default(), &namespace).await?;
    copy(
        cluster,
        &format!("namespaces/{first}"),
        "many",
        &made.uid().context("a uid")?,
        count,
    )
    .await;
    seen(&namespaces, &numbered("many", count - 1)).await;
    Ok(namespaces.list_metadata(&ListParams::default()).await?.items.len())
}

/// Creates this number of Nodes as kubelets write them.
pub async fn make_nodes(cluster: &ControlPlane, count: usize) -> Result<()> {
    let first = node(&numbered("node", 0)).internal_ip("172.20.0.1").build();
    make_nodes_like(cluster, &first, &json!({}), count).await
}

/// Creates this number of Nodes like the first one, with this status.
pub async fn make_nodes_like(cluster: &ControlPlane, first: &Node, status: &Value, count: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(cluster.client(&Identity::Admin));
    let name = numbered("node", 0);
    nodes.create(&PostParams::default(), first).await?;
    let status = Patch::Strategic(json!({ "status": status }));
    let made = nodes.patch_status(&name, &PatchParams::default(), &status).await?;
    copy(
        cluster,
        &format!("minions/{name}"),
        "node",
        &made.uid().context("a uid")?,
        count,
    )
    .await;
    seen(&nodes, &numbered("node", count - 1)).await;
    Ok(())
}

/// Copies an object of this kind until there are this many, with numbers in their names.
pub async fn copy(cluster: &ControlPlane, key: &str, kind: &str, uid: &str, count: usize) {
    let tail = uid.len() - 5;
    let copies = (1..count).map(|number| [numbered(kind, number), format!("{}{number:05}", &uid[..tail])]);
    cluster.copy(key, [&numbered(kind, 0), uid], copies).await;
}

/// Waits until the API server knows the object.
pub async fn seen<K>(api: &Api<K>, name: &str)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    eventually(format!("the API server to know {name}"), LONG, async || {
        api.get_metadata(name)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await;
}
