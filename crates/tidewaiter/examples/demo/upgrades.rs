//! The chapters of `make demo NODES=3` about an upgrade: nodes with a kubelet of the release before, a script that is
//! signed away from the cloud, and a workload that keeps what its budget promises while its pods are moved.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use minisign::KeyPair;
use serde_json::{Value, json};
use tidewaiter_testkit::site::{SOON, WORKERS};
use tidewaiter_testkit::{Identity, KubeletVersion, RealNode, eventually};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::narrator::{command, output, say};
use crate::nodes::World;
use crate::world::binary;

const SCRIPT: &str = include_str!("../../../../deploy/host/examples/systemd.sh");

/// The pods of the workload, and how many of them must be there at any time.
const REPLICAS: usize = 3;
const BUDGET: usize = 2;

/// The nodes trust a key, and the coordinator and the agents may upgrade them.
pub async fn are_prepared(world: &World) -> Result<()> {
    let site = world.site()?;
    let pair = KeyPair::generate_unencrypted_keypair().context("a key of minisign")?;
    let public = pair.pk.to_box().context("the public key")?.into_string();
    site.file(
        "minisign.key",
        &pair.sk.to_box(None).context("the secret key")?.into_string(),
    );
    command("minisign -G -p minisign.pub -s minisign.key");
    let made = world
        .owner_runs(&["cloud", "get", "cluster", "prod", "-o", "json"])
        .await?;
    let cluster = text(&made, "id")?;
    for node in &site.nodes {
        node.links_kubelet(KubeletVersion::Previous).await;
        node.installs_host(&binary()?, &cluster, &public).await;
    }
    say("On each node, as root:");
    command(&format!(
        "tidewaiter host install --cluster {cluster} --node $(hostname) --key minisign.pub"
    ));
    command("systemctl enable --now tidewaiter-upgrade.path tidewaiter-upgrade.service");
    site.kubectl("label nodes --all containership.io/managed=true").await;
    command("kubectl label nodes --all containership.io/managed=true");
    enable(world).await?;
    for node in &site.nodes {
        let document = site.file("node.yaml", &format!("name: {}\n", node.name()));
        let file = document.display().to_string();
        if node.name() == site.nodes[0].name() {
            let pool = "{name: machines, count: 3, kubernetes_mode: worker, kubernetes_version: v1.35.4, etcd: false, is_schedulable: true}";
            let pool = site.file("pool.yaml", pool).display().to_string();
            world.owner_runs(&["cloud", "create", "node-pool", "-f", &pool]).await?;
        }
        world
            .owner_runs(&["cloud", "create", "node", "--node-pool", "machines", "-f", &file])
            .await?;
    }
    say("The cloud knows the nodes by their names, and serves scripts to no others:");
    world.owner(&["cloud", "get", "nodes", "--node-pool", "machines"]).await
}

/// There is no DNS here, so agents get the address of the coordinator's Service.
async fn enable(world: &World) -> Result<()> {
    let site = world.site()?;
    let address = site.service("containership-core", "tidewaiter-coordinator").await;
    let upgrade = format!(
        "upgrade tidewaiter deploy/chart --reset-then-reuse-values --set coordinator.settings.upgrades=enabled \
         --set coordinator.upgrades.drain=true --set agent.settings.upgrades=enabled \
         --set agent.settings.coordinator.url=http://{address}:8000"
    );
    site.helm(&upgrade, &json!({})).await;
    command(
        "helm upgrade tidewaiter deploy/chart --reset-then-reuse-values --set coordinator.settings.upgrades=enabled,agent.settings.upgrades=enabled,…",
    );
    site.rolled_out("containership-core", "deployment/tidewaiter-coordinator")
        .await;
    site.rolled_out("tidewaiter-agent", "daemonset/tidewaiter-agent").await;
    Ok(())
}

/// The upgrade, from its order to its end.
pub async fn run(world: &World) -> Result<()> {
    let site = world.site()?;
    workload(world).await?;
    world.show("get nodes").await?;
    let id = order(world).await?;
    let kubeconfig = site.control_plane.kubeconfig(&Identity::Admin).display().to_string();
    let (seen, watched) = tokio::join!(least(world, &id), watch(&id, &kubeconfig));
    watched?;
    world.show("get nodes").await?;
    let (samples, least) = seen?;
    ensure!(least >= BUDGET, "{least} pods of the workload");
    say(&format!(
        "The workload was looked at {samples} times meanwhile. Its pods were moved, and {least} of {REPLICAS} were there at any time; its budget asks for {BUDGET}."
    ));
    world
        .show("get pods -l app=web -o custom-columns=POD:.metadata.name,NODE:.spec.nodeName")
        .await
}

async fn workload(world: &World) -> Result<()> {
    let labels = json!({"app": "web"});
    let container = json!({"name": "web", "image": "testkit.invalid/pause:1"});
    let spec = json!({"terminationGracePeriodSeconds": 1, "nodeSelector": {"kops.k8s.io/instancegroup": WORKERS}, "containers": [container]});
    let set = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}});
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": BUDGET, "selector": {"matchLabels": labels}}});
    let site = world.site()?;
    for object in [set, budget] {
        site.kubectl_with("create -f -", &object.to_string()).await;
    }
    site.rolled_out("default", "deployment/web").await;
    say("A workload on the workers, with a budget for disruptions:");
    world.show("get poddisruptionbudgets").await
}

/// Orders it in the cloud, signs the script, uploads it, and has the workers drained. Returns its id.
async fn order(world: &World) -> Result<String> {
    let site = world.site()?;
    let version = KubeletVersion::Current.as_str();
    let upgrade = format!("type: kubernetes\ntargetVersion: {version}\nnodeTimeoutSeconds: 300\n");
    site.file("upgrade.yaml", &upgrade);
    command("cat upgrade.yaml");
    output(&upgrade);
    let create = ["cloud", "create", "upgrade", "-f", "upgrade.yaml"];
    let id = text(&world.owner_runs(&[&create[..], &["-o", "json"]].concat()).await?, "id")?;
    command(&format!("tidewaiter {}", create.join(" ")));
    let drain = r#"{"spec":{"policy":{"drain":true}}}"#;
    let patch = format!("-n containership-core patch clusterupgrade {id} --type merge -p {drain}");
    eventually("the upgrade to be in the cluster", SOON, async || {
        site.try_kubectl(&patch).await
    })
    .await;
    command(&format!(
        "kubectl -n containership-core patch clusterupgrade {id} --type merge -p '{drain}'"
    ));

    site.file("upgrade.sh", SCRIPT);
    let cluster = text(
        &world
            .owner_runs(&["cloud", "get", "cluster", "prod", "-o", "json"])
            .await?,
        "id",
    )?;
    let mut sign = vec![
        "cloud",
        "sign-script",
        "-f",
        "upgrade.sh",
        "--cluster",
        &cluster,
        "--upgrade",
        &id,
    ];
    sign.extend(["--target-version", version, "--secret-key", "minisign.key"]);
    sign.extend(site.nodes.iter().map(RealNode::name).flat_map(|name| ["--node", name]));
    let signed = world.owner_runs(&sign).await?;
    site.file("signed.sh", &signed);
    say(
        "The script is deploy/host/examples/systemd.sh. It is signed without the cloud, and then uploaded. (Several nodes of the control plane \
         are named with --control-plane: then each has a window of its own.)",
    );
    let shown = sign.join(" ").replace(&cluster, "$CLUSTER").replace(&id, "$ID");
    command(&format!("tidewaiter {shown} >signed.sh"));
    world
        .owner_runs(&["cloud", "set-script", &id, "-f", "signed.sh"])
        .await?;
    command("tidewaiter cloud set-script $ID -f signed.sh");
    world.owner_runs(&["cloud", "resume-upgrade", &id]).await?;
    command("tidewaiter cloud resume-upgrade $ID");
    Ok(id)
}

/// Shows what `tidewaiter upgrade watch` prints, while it prints it.
async fn watch(id: &str, kubeconfig: &str) -> Result<()> {
    command("tidewaiter upgrade watch $ID");
    let mut child = tokio::process::Command::new(binary()?)
        .args(["upgrade", "watch", id, "--kubeconfig", kubeconfig])
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("tidewaiter cannot be run")?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    while let Some(line) = lines.next_line().await? {
        output(&line);
    }
    let status = child.wait().await?;
    ensure!(status.success(), "the upgrade has failed: {status}");
    Ok(())
}

/// Returns the number of looks at the workload until the upgrade was over, and the fewest pods that were there.
async fn least(world: &World, id: &str) -> Result<(usize, usize)> {
    let site = world.site()?;
    let pods: Api<Pod> = Api::default_namespaced(site.control_plane.client(&Identity::Admin));
    let (mut samples, mut least) = (0, REPLICAS);
    let get = format!("-n containership-core get clusterupgrade {id} -o jsonpath={{.spec.status.clusterStatus}}");
    eventually("the upgrade to be over", SOON, async || {
        for _ in 0..10 {
            let listed = pods.list(&ListParams::default().labels("app=web")).await;
            let listed = listed.map_err(|error| error.to_string())?;
            samples += 1;
            least = least.min(listed.iter().filter(|pod| is_there(pod)).count());
        }
        match site.try_kubectl(&get).await?.as_str() {
            "Success" | "Failed" => Ok(()),
            other => Err(other.to_owned()),
        }
    })
    .await;
    Ok((samples, least))
}

fn is_there(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    pod.metadata.deletion_timestamp.is_none() && conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

fn text(json: &str, field: &str) -> Result<String> {
    let object: Value = serde_json::from_str(json).context("an object in JSON")?;
    Ok(object[field]
        .as_str()
        .with_context(|| format!("it has {field}"))?
        .to_owned())
}
