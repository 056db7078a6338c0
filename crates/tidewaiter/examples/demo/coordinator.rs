//! The chapter about the coordinator: the cluster is attached to the cloud and follows it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, ListParams};
use serde_json::Value;
use tidewaiter_testkit::{AuditMark, FakeRegistries, Identity, Process, Program, eventually, free_port};

use crate::cloud::{Cloud, REGISTRY_PASSWORD, write};
use crate::narrator::{command, output, say};
use crate::times;
use crate::world::{SOON, Stage, World, binary, show, words};

const CORE: &str = "containership-core";
const REGISTRY: &str = "acme.registries.test";
const ENVIRONMENT: &str = "cluster.containership.io/environment";
const TEAM: &str = "nodepool.containership.io/team";

/// The time for which the coordinator writes nothing.
const QUIET: SignedDuration = SignedDuration::from_secs(2);

/// The released coordinator, and the registry whose credentials it tries.
#[derive(Debug)]
pub struct Coordinator {
    process: Process,
    _registries: FakeRegistries,
}

impl Coordinator {
    /// The end of its log, for a demo that failed.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

/// The user that it runs as.
pub fn identity() -> Identity {
    Identity::service_account(CORE, "tidewaiter-coordinator")
}

/// The cluster gets an entry in the cloud and a coordinator, which has its API key.
pub async fn is_attached(world: &mut World) -> Result<()> {
    let (stage, cloud) = (world.stage()?, world.cloud()?);
    let manifests = ["apply", "-f", "deploy/crds/coordinator", "-f", "deploy/coordinator"];
    let told = stage.kubectl(&Identity::Admin, &manifests).await?;
    command(&format!("kubectl {} | wc -l", manifests.join(" ")));
    output(&told.lines().count().to_string());

    let settings = created(cloud).await?;
    command("sed \"s|$PWD/||\" coordinator.yaml");
    output(&settings.replace(&format!("{}/", cloud.folder().display()), ""));
    let file = cloud.folder().join("coordinator.yaml");
    write(&file, &settings)?;
    let registries = FakeRegistries::start().await;
    registries.accept(REGISTRY, &[&format!("acme:{REGISTRY_PASSWORD}")]);
    let address = || format!("127.0.0.1:{}", free_port());
    let program = Program::new(binary()?)
        .name("coordinator")
        .args(["coordinator", "--settings"])
        .arg(&file)
        .arg("--kubeconfig")
        .arg(stage.cluster.kubeconfig(&identity()))
        .env("TIDEWAITER_ADMIN_ADDRESS", address())
        .env("TIDEWAITER_HEALTH_ADDRESS", address())
        .env("TIDEWAITER_ENDPOINTS__ADDRESS", address())
        .env("TIDEWAITER_LOG__FORMAT", "text");
    let environment = registries.environment().into_iter();
    let program = environment.fold(program, |program, (key, value)| program.env(key, value));
    let process = Process::start(stage.scratch(), program);
    command("tidewaiter coordinator --settings coordinator.yaml --kubeconfig coordinator.kubeconfig &");
    world.coordinator = Some(Coordinator {
        process,
        _registries: registries,
    });
    let stage = world.stage()?;
    is_synced(stage).await;
    show(stage, &["wait", "--for=condition=Synced", "cloudsync/cloud"]).await
}

/// Creates the cluster in the cloud; returns the settings of its coordinator.
async fn created(cloud: &Cloud) -> Result<String> {
    let (folder, owner) = (cloud.folder(), cloud.owner());
    write(&folder.join("production.yaml"), "name: production\n")?;
    let create = ["cloud", "create", "cluster", "-f", "production.yaml"];
    let made = owner.runs(&[&create[..], &["-o", "json"]].concat()).await?;
    command(&format!(
        "tidewaiter {} | sed -n 's/^api_key: //p' > api-key",
        create.join(" ")
    ));
    owner
        .shows(&["cloud", "context", "set", "--cluster", "production"])
        .await?;
    let made: Value = serde_json::from_str(&made)?;
    let field = |name: &str| {
        made[name]
            .as_str()
            .with_context(|| format!("a cluster has the field {name}"))
    };
    write(&folder.join("api-key"), field("api_key")?)?;
    Ok(format!(
        "cloud:
  apiBaseUrl: {}
  caFile: {folder}/ca.crt
  organizationId: {}
  clusterId: {}
  apiKeyFile: {folder}/api-key
massDeletion: release
",
        cloud.url(),
        field("organization_id")?,
        field("id")?,
        folder = folder.display(),
    ))
}

/// Waits until the cluster is as the cloud lists it.
async fn is_synced(stage: &Stage) {
    eventually("the coordinator to have read the cloud", SOON, async || {
        let wait = ["wait", "--for=condition=Synced", "--timeout=1s", "cloudsync/cloud"];
        stage.kubectl(&Identity::Admin, &wait).await.map_err(words)
    })
    .await;
}

/// A folder is applied, and what it says is in the cluster.
pub async fn follows(world: &World, worker: &str) -> Result<()> {
    let (stage, cloud) = (world.stage()?, world.cloud()?);
    cloud.adds_plugin("logs", "fluentd", "1.0.0").await?;
    let (owner, before) = (cloud.owner(), cloud.changes().await?.len());
    let apply = ["cloud", "apply", "-f", "examples/acme"];
    let told = owner.runs(&apply).await?;
    let done: Vec<&str> = told.lines().skip_while(|line| line.starts_with(['+', ' '])).collect();
    command(&format!("tidewaiter {} | tail -{}", apply.join(" "), done.len()));
    output(&done.join("\n"));
    write(&cloud.folder().join("worker.yaml"), &format!("name: {worker}\n"))?;
    let create = ["cloud", "create", "node", "--node-pool", "workers", "-f", "worker.yaml"];
    let made = owner.runs(&create).await?;
    command(&format!("tidewaiter {} | grep ^name:", create.join(" ")));
    output(
        made.lines()
            .find(|line| line.starts_with("name:"))
            .context("a node has a name")?,
    );
    labels_arrive(stage, worker).await?;
    let registry = pull_secrets_arrive(stage, cloud).await?;
    is_synced(stage).await;
    let mut changes = cloud.changes().await?;
    // The latest are first.
    changes.truncate(changes.len() - before);
    let audit = stage.cluster.audit().await.by(&identity()).writes();
    output(&times::table(&changes, &audit, worker, &registry)?);
    owner.shows(&apply).await
}

/// Waits until each Node has the label of the cluster, and the worker those of its node pool; shows them.
async fn labels_arrive(stage: &Stage, worker: &str) -> Result<()> {
    eventually("the labels on the Nodes", SOON, async || {
        let nodes = stage.nodes().list(&ListParams::default()).await.map_err(words)?;
        let labels = nodes.into_iter().map(|node| {
            let labels = node.metadata.labels.unwrap_or_default();
            (node.metadata.name.unwrap_or_default(), labels)
        });
        let labels: BTreeMap<_, _> = labels.collect();
        let of_pool =
            |labels: &BTreeMap<String, String>| labels.keys().filter(|key| key.starts_with("nodepool.")).count();
        let arrived = labels.iter().all(|(name, labels)| {
            labels.contains_key(ENVIRONMENT) && of_pool(labels) == if name == worker { 6 } else { 0 }
        });
        if arrived { Ok(()) } else { Err(format!("{labels:?}")) }
    })
    .await;
    shows_labels(stage).await
}

async fn shows_labels(stage: &Stage) -> Result<()> {
    show(stage, &["get", "nodes", "-L", &format!("{ENVIRONMENT},{TEAM}")]).await
}

/// Waits until every namespace has the pull secret; returns its name.
async fn pull_secrets_arrive(stage: &Stage, cloud: &Cloud) -> Result<String> {
    let registry = cloud.id("registry", REGISTRY).await?;
    let client = stage.cluster.client(&Identity::Admin);
    let (namespaces, secrets): (Api<Namespace>, Api<Secret>) = (Api::all(client.clone()), Api::all(client));
    let named = ListParams::default().fields(&format!("metadata.name={registry}"));
    eventually("a pull secret in every namespace", SOON, async || {
        let wanted = namespaces
            .list(&ListParams::default())
            .await
            .map_err(words)?
            .items
            .len();
        let found = secrets.list(&named).await.map_err(words)?.items.len();
        if found == wanted {
            Ok(())
        } else {
            Err(format!("{found} of {wanted}"))
        }
    })
    .await;
    Ok(registry)
}

/// An admin deletes a pull secret and a User, which come back.
pub async fn restores(world: &World) -> Result<()> {
    let (stage, cloud) = (world.stage()?, world.cloud()?);
    let registry = cloud.id("registry", REGISTRY).await?;
    let alice = cloud.id("user", "alice@example.com").await?;
    for (resource, namespace, name) in [("secrets", "default", &registry), ("users", CORE, &alice)] {
        let mark = stage.cluster.audit_mark().await;
        show(stage, &["-n", namespace, "delete", resource, name]).await?;
        let restored = eventually("it to be there again", SOON, async || {
            restored_in(stage, mark, resource).await
        })
        .await;
        say(&format!(
            "It is there again {} ms after it was deleted.",
            restored.as_millis()
        ));
        show(stage, &["-n", namespace, "get", resource, name]).await?;
    }
    Ok(())
}

/// From the end of a deletion by the admin to the end of the coordinator's write after it.
async fn restored_in(stage: &Stage, mark: AuditMark, resource: &str) -> Result<SignedDuration, String> {
    let audit = stage.cluster.audit().await.since(mark).of(resource).writes();
    let deleted = audit
        .iter()
        .find(|entry| entry.verb == "delete")
        .ok_or("nothing was deleted")?;
    let created = audit
        .iter()
        .find(|entry| entry.user.username == identity().username() && entry.response_status.code == 201);
    let created = created.ok_or("nothing was created")?;
    Ok(created.stage_timestamp.duration_since(deleted.stage_timestamp))
}

/// A node pool is deleted in the cloud by mistake, with all of its labels. Nothing happens in the cluster before
/// somebody releases it.
pub async fn holds(world: &World) -> Result<()> {
    let (stage, cloud) = (world.stage()?, world.cloud()?);
    cloud
        .owner()
        .shows(&["cloud", "delete", "node-pool", "workers", "--yes"])
        .await?;
    show(
        stage,
        &["wait", "--for=condition=Held", "--timeout=30s", "cloudsync/cloud"],
    )
    .await?;
    show(stage, &["get", "cloudsync"]).await?;
    shows_labels(stage).await?;
    say("The Node keeps its labels, for as long as it takes. Here the deletion is what was meant:");
    let (told, code) = stage.tidewaiter(&["release", "NodePoolLabel", "--yes"]).await?;
    ensure!(
        code == 0 && told.contains("released NodePoolLabel"),
        "it ended with {code}: {told}"
    );
    command("tidewaiter release NodePoolLabel --yes");
    output(&told);
    let nodes = stage.nodes();
    eventually("the labels of the node pool to be gone", SOON, async || {
        let all = nodes.list(&ListParams::default()).await.map_err(words)?;
        let left: Vec<_> = all
            .into_iter()
            .filter_map(|node| node.metadata.labels?.remove(TEAM))
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    shows_labels(stage).await?;
    is_synced(stage).await;
    is_quiet(stage).await;
    Ok(())
}

/// Waits until the coordinator has written nothing for a while, except its Lease.
#[expect(clippy::disallowed_methods, reason = "the age of what the audit log says")]
async fn is_quiet(stage: &Stage) {
    eventually("the coordinator to write nothing", SOON, async || {
        let audit = stage.cluster.audit().await.by(&identity()).writes();
        let last = audit.iter().rfind(|entry| entry.object_ref.resource != "leases");
        let last = last.ok_or("it has written nothing at all")?;
        if Timestamp::now().duration_since(last.stage_timestamp) >= QUIET {
            Ok(())
        } else {
            Err("it writes")
        }
    })
    .await;
    say(&format!(
        "Then it is quiet: 0 writes in {} s, by the API server's audit log; only the Lease is renewed.",
        QUIET.as_secs()
    ));
}
