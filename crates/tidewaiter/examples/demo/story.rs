//! The story, step by step. Each step shows what the components say, after it has made sure that it is so.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use tidewaiter_api::ConditionStatus;
use tidewaiter_api::names::{INSTANCE_GROUP_LABEL, ROLE_CONTROL_PLANE_LABEL, ROLE_NODE_LABEL, UNIDENTIFIED_TAINT};
use tidewaiter_testkit::moto::Launched;
use tidewaiter_testkit::{Identity, assets, eventually};

use crate::narrator::{Narrator, command, output, say};
use crate::world::{SOON, Stage, World, config_base, filtered, group, show, words};
use crate::{cloud, coordinator, health, plugins};

const TEAM: &str = "example.com/team";
const SPOT_ROLE: &str = "node-role.kubernetes.io/spot-worker";

/// The additional columns of `kubectl get nodes`.
const COLUMNS: &str = "kops.k8s.io/instancegroup";

/// One instance of each group, and one more of the workers that nobody has heard of yet.
struct Machines {
    control_plane: Launched,
    worker: Launched,
    spot: Launched,
    liar: Launched,
}

pub async fn tell(narrator: &Narrator, world: &mut World) -> Result<()> {
    narrator.step("A cluster: etcd and kube-apiserver, and moto in the place of AWS");
    let version = assets::kubernetes_version();
    say(&format!(
        "Kubernetes {version}, with Node and RBAC authorization and the NodeRestriction admission plugin."
    ));
    let stage = world.raise().await?;
    install(stage).await?;

    narrator.step("What kOps left there: its state store in S3, and instances with tags in EC2");
    let machines = set_up(stage).await?;

    narrator.step("Three machines boot, and their kubelets register them");
    register(stage, &machines).await?;

    narrator.step("Tidewaiter starts, with the file that kOps wrote for kops-controller");
    world.start_controller().await?;
    started(world).await?;
    say("It runs as its own service account, with no more rights than deploy/controller/rbac.yaml gives.");

    let stage = world.stage()?;
    narrator.step("EC2 vouches for each machine: its Node gets the labels of its group and loses the taint");
    labels_arrive(stage, &machines).await?;

    narrator.step("Where each label comes from is on record");
    records(stage, &machines).await?;

    narrator.step("A group's definition changes in S3, and the Node follows");
    change(stage, &machines).await?;

    narrator.step("Is the cluster healthy? The rules are those of kops validate cluster");
    health::is_shown(world, &machines.control_plane).await?;

    narrator.step("A node goes NotReady: the command line, the gauges and the condition say so");
    health::fails(world, &machines.worker).await?;

    narrator.step("It recovers, and whoever waits for that goes on");
    health::recovers(world, &machines.worker).await?;

    let stage = world.stage()?;
    narrator.step("A machine lies");
    lie(stage, &machines).await?;

    narrator.step("It gets nothing, and everybody can see why");
    refused(world, &machines).await?;

    follow(narrator, world, &machines.worker.name).await
}

/// The cloud, and the coordinator.
async fn follow(narrator: &Narrator, world: &mut World, worker: &str) -> Result<()> {
    narrator.step("A cloud of one's own, in two lines: it says what each cluster should have");
    world.cloud = Some(cloud::begins().await?);

    narrator.step("The cluster is attached to it: a coordinator, as its own service account");
    coordinator::is_attached(world).await?;

    narrator.step("A folder says who may log in, and what the cluster has. It is applied, and the cluster follows");
    coordinator::follows(world, worker).await?;

    narrator.step("An admin deletes a pull secret and a User by accident");
    coordinator::restores(world).await?;

    narrator.step("Somebody deletes a node pool in the cloud by mistake: the brake holds");
    coordinator::holds(world).await?;

    narrator.step("An API server that trusts the cloud: Alice may see pods in dev, and nothing else");
    cloud::is_believed(world).await?;

    narrator.step("Her team gets one more permission, and loses it");
    cloud::gives_and_takes(world).await?;

    narrator.step("A plugin of three objects, from the catalogue of the cloud into the cluster");
    plugins::is_installed(world).await?;

    narrator.step("It is upgraded; the version after that is broken, and says why");
    plugins::breaks(world).await?;

    narrator.step("The next version mends it");
    plugins::is_mended(world).await
}

async fn install(stage: &Stage) -> Result<()> {
    let args = ["apply", "-f", "deploy/crds", "-f", "deploy/controller/rbac.yaml"];
    show(stage, &args).await?;
    let established = [
        "wait",
        "--for=condition=Established",
        "crd/nodeidentities.tidewaiter.dev",
        "crd/clusterhealths.tidewaiter.dev",
    ];
    stage.kubectl(&Identity::Admin, &established).await?;
    Ok(())
}

async fn set_up(stage: &Stage) -> Result<Machines> {
    stage.put_cluster().await;
    stage
        .put_group(&group("control-plane", "ControlPlane", &[]), "control-plane")
        .await;
    stage
        .put_group(&group("nodes", "Node", &[(TEAM, "web")]), "nodes")
        .await;
    stage
        .put_group(&group("spot", "Node", &[(TEAM, "batch")]), "spot")
        .await;
    let machines = Machines {
        control_plane: stage.launch("10.0.0.10", "control-plane", false).await,
        worker: stage.launch("10.0.0.20", "nodes", false).await,
        spot: stage.launch("10.0.0.30", "spot", true).await,
        liar: stage.launch("10.0.0.21", "nodes", false).await,
    };
    for (group, machine) in [
        ("control-plane", &machines.control_plane),
        ("nodes", &machines.worker),
        ("spot", &machines.spot),
    ] {
        health::auto_scaling_group(stage, group, machine).await?;
    }
    output(&format!(
        "{}/\n  cluster-completed.spec\n  instancegroup/control-plane  role: ControlPlane\n  instancegroup/nodes          role: Node, \
         nodeLabels: {{{TEAM}: web}}\n  instancegroup/spot           role: Node, nodeLabels: {{{TEAM}: batch}}\n",
        config_base()
    ));
    let mut table = vec![format!(
        "{:<21}{:<32}{:<11}{INSTANCE_GROUP_LABEL}",
        "INSTANCE", "PRIVATE DNS NAME", "BILLED"
    )];
    for (machine, billed, group) in [
        (&machines.control_plane, "on demand", "control-plane"),
        (&machines.worker, "on demand", "nodes"),
        (&machines.spot, "spot", "spot"),
        (&machines.liar, "on demand", "nodes"),
    ] {
        table.push(format!("{:<21}{:<32}{billed:<11}{group}", machine.id, machine.name));
    }
    output(&table.join("\n"));
    say("The first three are in Auto Scaling groups, one for each InstanceGroup.");
    Ok(machines)
}

async fn register(stage: &Stage, machines: &Machines) -> Result<()> {
    for machine in [&machines.control_plane, &machines.worker, &machines.spot] {
        stage.register(machine).await;
    }
    show(stage, &["get", "nodes", "-L", COLUMNS]).await?;
    say(&format!(
        "Nothing says yet what they are for. Each has the taint {UNIDENTIFIED_TAINT}, which keeps pods away."
    ));
    Ok(())
}

async fn started(world: &World) -> Result<()> {
    let endpoint = world.stage()?.moto.endpoint();
    command(&format!(
        "export AWS_ENDPOINT_URL={endpoint} TIDEWAITER_STATE_ENDPOINT={endpoint}"
    ));
    command("tidewaiter controller --conf config.yaml --kubeconfig controller.kubeconfig &");
    command(&format!("curl -s http://{}/readyz", world.admin()?));
    output(&world.get("/readyz").await?);
    Ok(())
}

async fn labels_arrive(stage: &Stage, machines: &Machines) -> Result<()> {
    let control_plane = [
        (INSTANCE_GROUP_LABEL, "control-plane"),
        (ROLE_CONTROL_PLANE_LABEL, ""),
        ("kops.k8s.io/kops-controller-pki", ""),
        ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
    ];
    has_labels(stage, &machines.control_plane, &control_plane).await;
    let worker = [(INSTANCE_GROUP_LABEL, "nodes"), (ROLE_NODE_LABEL, ""), (TEAM, "web")];
    has_labels(stage, &machines.worker, &worker).await;
    let spot = [
        (INSTANCE_GROUP_LABEL, "spot"),
        (ROLE_NODE_LABEL, ""),
        (SPOT_ROLE, "true"),
        (TEAM, "batch"),
    ];
    has_labels(stage, &machines.spot, &spot).await;
    show(stage, &["get", "nodes", "-L", COLUMNS]).await
}

async fn records(stage: &Stage, machines: &Machines) -> Result<()> {
    let wait = [
        "wait",
        "--for=condition=Verified",
        "nodeidentities",
        "--all",
        "--timeout=30s",
    ];
    show(stage, &wait).await?;
    show(stage, &["get", "nodeidentities"]).await?;
    let get = ["get", "nodeidentity", &machines.spot.name, "-o", "yaml"];
    let yaml = stage.kubectl(&Identity::Admin, &get).await?;
    let labels = "/^  labels:/,/^  lifecycle:/p";
    command(&format!("kubectl {} | sed -n '{labels}'", get.join(" ")));
    output(&filtered(&yaml, "sed", &["-n", labels]).await?);
    Ok(())
}

async fn change(stage: &Stage, machines: &Machines) -> Result<()> {
    say(&format!(
        "instancegroup/nodes: {TEAM}: web becomes shop; example.com/tier: front is new."
    ));
    let changed = group("nodes", "Node", &[(TEAM, "shop"), ("example.com/tier", "front")]);
    stage.put_group(&changed, "nodes").await;
    let expected = [
        (INSTANCE_GROUP_LABEL, "nodes"),
        (ROLE_NODE_LABEL, ""),
        (TEAM, "shop"),
        ("example.com/tier", "front"),
    ];
    has_labels(stage, &machines.worker, &expected).await;
    let columns = "example.com/team,example.com/tier";
    show(stage, &["get", "node", &machines.worker.name, "-L", columns]).await
}

async fn lie(stage: &Stage, machines: &Machines) -> Result<()> {
    let Machines {
        control_plane, liar, ..
    } = machines;
    say(
        "Somebody has the credentials of a worker's kubelet. The API server lets it create its own Node, and takes the \
         providerID on trust: here, that of the control plane.",
    );
    let node = format!(
        "apiVersion: v1
kind: Node
metadata:
  name: {}
spec:
  providerID: {}
  taints: [{{key: {UNIDENTIFIED_TAINT}, effect: NoSchedule}}]
status:
  addresses: [{{type: InternalIP, address: {}}}]
",
        liar.name,
        control_plane.provider_id(),
        control_plane.address
    );
    let file = stage.write("lie.yaml", &node)?;
    command("cat lie.yaml");
    output(&node);
    let kubelet = Identity::kubelet(&liar.name);
    command("kubectl --kubeconfig worker.kubeconfig create -f lie.yaml");
    let created = stage
        .kubectl(&kubelet, &["create", "-f", &file.display().to_string()])
        .await?;
    output(&created);
    Ok(())
}

async fn refused(world: &World, machines: &Machines) -> Result<()> {
    let stage = world.stage()?;
    let Machines {
        control_plane, liar, ..
    } = machines;
    is_refused(stage, liar, "NameMismatch").await;
    show(stage, &["get", "nodeidentities"]).await?;
    show(stage, &["get", "nodes", "-L", COLUMNS]).await?;
    has_no_labels(stage, liar).await?;

    let describe = ["describe", "node", &liar.name];
    let parts = "/^Taints/,/^Unschedulable/p; /^Events/,$p";
    let described = eventually("the Event on the Node", SOON, async || {
        let text = stage.kubectl(&Identity::Admin, &describe).await.map_err(words)?;
        let text = filtered(&text, "sed", &["-n", parts]).await.map_err(words)?;
        let told = text.contains(UNIDENTIFIED_TAINT) && text.contains("NameMismatch");
        if told { Ok(text) } else { Err(text) }
    })
    .await;
    command(&format!("kubectl {} | sed -n '{parts}'", describe.join(" ")));
    output(&described);

    let pattern = "^tidewaiter_(nodes|refusals)";
    let metrics = eventually("the forgery in the metrics", SOON, async || {
        let text = world.get("/metrics").await.map_err(words)?;
        let lines = filtered(&text, "grep", &["-E", pattern]).await.map_err(words)?;
        let expected = [
            "tidewaiter_nodes{state=\"forged\"} 1",
            "tidewaiter_nodes{state=\"verified\"} 3",
            "tidewaiter_refusals_total{forged=\"true\",reason=\"NameMismatch\"}",
        ];
        if expected.iter().all(|line| lines.contains(line)) {
            Ok(lines)
        } else {
            Err(lines)
        }
    })
    .await;
    command(&format!(
        "curl -s http://{}/metrics | grep -E '{pattern}'",
        world.admin()?
    ));
    output(&metrics);
    say(&format!("{}, the real one, keeps its labels.", control_plane.name));
    Ok(())
}

/// Waits until the Node has exactly these labels besides its kubelet's own, and no startup taint.
async fn has_labels(stage: &Stage, machine: &Launched, expected: &[(&str, &str)]) {
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let nodes = stage.nodes();
    eventually(
        format!("Node {} to have the labels {expected:?}", machine.name),
        SOON,
        async || {
            let node = nodes.get(&machine.name).await.map_err(words)?;
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let labels = given(node.metadata.labels.unwrap_or_default());
            let tainted = taints.iter().any(|taint| taint.key == UNIDENTIFIED_TAINT);
            if labels == expected && !tainted {
                Ok(())
            } else {
                Err(format!("{labels:?}, taints {taints:?}"))
            }
        },
    )
    .await;
}

/// Makes sure that the Node has no label besides its kubelet's own.
async fn has_no_labels(stage: &Stage, machine: &Launched) -> Result<()> {
    let node = stage.nodes().get(&machine.name).await?;
    let labels = given(node.metadata.labels.unwrap_or_default());
    ensure!(
        labels.is_empty(),
        "the refused Node {} has the labels {labels:?}",
        machine.name
    );
    Ok(())
}

/// Without the labels that a kubelet sets itself.
fn given(labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = |key: &str| {
        key.starts_with("kubernetes.io/")
            || key.starts_with("beta.kubernetes.io/")
            || key == "node.kubernetes.io/instance-type"
    };
    labels.into_iter().filter(|(key, _)| !own(key)).collect()
}

/// Waits until the Node's record says that the cloud does not vouch for it, for this reason.
async fn is_refused(stage: &Stage, machine: &Launched, reason: &str) {
    let records = stage.records();
    eventually(
        format!("the record of {} to say {reason}", machine.name),
        SOON,
        async || {
            let record = records.get(&machine.name).await.map_err(words)?;
            match record.condition("Verified") {
                Some(found) if found.status == ConditionStatus::False && found.reason == reason => Ok(()),
                other => Err(format!("{other:?}")),
            }
        },
    )
    .await;
}
