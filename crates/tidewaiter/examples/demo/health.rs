//! The chapter about the cluster's health: the command line, the gauges and the condition.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_api::names::KOPS_NAMESPACE;
use tidewaiter_testkit::moto::{Launched, text_of};
use tidewaiter_testkit::{Identity, Kubelet, eventually};

use crate::narrator::{command, output};
use crate::world::{CLUSTER, SOON, Stage, World, filtered, show, state_store, words};

/// The gauges that the story looks at.
const GAUGES: &str = "^kops_node";

/// The command line says that the cluster is ready.
pub async fn is_shown(world: &World, control_plane: &Launched) -> Result<()> {
    let stage = world.stage()?;
    control_plane_pods(stage, control_plane).await?;
    is_healthy(stage, "True").await?;
    validate(stage, 0, "Your cluster demo.example.com is ready").await
}

/// A worker is not ready any more.
pub async fn fails(world: &World, worker: &Launched) -> Result<()> {
    let stage = world.stage()?;
    report(stage, worker, false).await?;
    is_healthy(stage, "False").await?;
    let expected = format!("node \"{}\" of role \"node\" is not ready", worker.name);
    validate(stage, 2, &expected).await?;
    gauges(world, "kops_node_notReady{cluster_name=\"demo.example.com\"} 1").await?;
    show(stage, &["get", "clusterhealth"]).await
}

/// It is again.
pub async fn recovers(world: &World, worker: &Launched) -> Result<()> {
    let stage = world.stage()?;
    report(stage, worker, true).await?;
    let health = format!("clusterhealth/{CLUSTER}");
    show(stage, &["wait", "--for=condition=Healthy", "--timeout=30s", &health]).await?;
    gauges(world, "kops_node_notReady{cluster_name=\"demo.example.com\"} 0").await
}

/// Shows the verdict of the command line, which has to end with this code and to say this.
async fn validate(stage: &Stage, code: i32, expected: &str) -> Result<()> {
    let store = state_store();
    let args = ["validate", "--name", CLUSTER, "--state", store.as_str()];
    let (told, ended) = stage.tidewaiter(&args).await?;
    ensure!(
        ended == code && told.contains(expected),
        "it ended with {ended}:\n{told}"
    );
    command(&format!("tidewaiter {}; echo \"exit code $?\"", args.join(" ")));
    output(&format!("{told}exit code {ended}"));
    Ok(())
}

/// Shows the gauges when one of them says this.
async fn gauges(world: &World, expected: &str) -> Result<()> {
    let told = eventually(expected, SOON, async || {
        let text = world.scrape().await.map_err(words)?;
        let lines = filtered(&text, "grep", &[GAUGES]).await.map_err(words)?;
        if lines.contains(expected) {
            Ok(lines)
        } else {
            Err(lines)
        }
    })
    .await;
    command(&format!(
        "curl -s http://{}/metrics | grep '{GAUGES}'",
        world.metrics_server()?
    ));
    output(&told);
    Ok(())
}

/// Waits until `ClusterHealth` says this.
async fn is_healthy(stage: &Stage, status: &str) -> Result<()> {
    let condition = format!("--for=condition=Healthy={status}");
    let health = format!("clusterhealth/{CLUSTER}");
    eventually("the ClusterHealth", SOON, async || {
        let wait = ["wait", &condition, "--timeout=1s", &health];
        stage.kubectl(&Identity::Admin, &wait).await.map_err(words)
    })
    .await;
    Ok(())
}

/// Puts an instance into an Auto Scaling group of its own, made and tagged as kOps does it.
pub async fn auto_scaling_group(stage: &Stage, group: &str, instance: &Launched) -> Result<()> {
    let name = format!("{group}.{CLUSTER}");
    let form = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let owned = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        owned.collect()
    };
    let template = [
        ("LaunchTemplateName", name.as_str()),
        ("LaunchTemplateData.ImageId", "ami-12c6146b"),
        ("LaunchTemplateData.InstanceType", "t3.medium"),
    ];
    let made = stage.moto.ec2("CreateLaunchTemplate", &form(&template)).await;
    let template = text_of(&made, "launchTemplateId").context("a launch template has an id")?;
    let create = [
        ("AutoScalingGroupName", name.as_str()),
        ("AvailabilityZones.member.1", instance.zone.as_str()),
        ("LaunchTemplate.LaunchTemplateId", template),
        ("LaunchTemplate.Version", "1"),
        ("MinSize", "0"),
        ("DesiredCapacity", "0"),
        ("MaxSize", "3"),
        ("Tags.member.1.Key", "KubernetesCluster"),
        ("Tags.member.1.Value", CLUSTER),
        ("Tags.member.1.PropagateAtLaunch", "true"),
        ("Tags.member.2.Key", "kops.k8s.io/instancegroup"),
        ("Tags.member.2.Value", group),
        ("Tags.member.2.PropagateAtLaunch", "true"),
    ];
    stage.moto.autoscaling("CreateAutoScalingGroup", &form(&create)).await;
    let attach = [
        ("AutoScalingGroupName", name.as_str()),
        ("InstanceIds.member.1", &instance.id),
    ];
    stage.moto.autoscaling("AttachInstances", &form(&attach)).await;
    Ok(())
}

/// The pods that a control plane's kubelet runs from its manifests; here they stand for the processes that run.
async fn control_plane_pods(stage: &Stage, instance: &Launched) -> Result<()> {
    let client = stage.cluster.client(&Identity::Admin);
    let pods: Api<Pod> = Api::namespaced(client.clone(), KOPS_NAMESPACE);
    let accounts: Api<ServiceAccount> = Api::namespaced(client, KOPS_NAMESPACE);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let apply = PatchParams::apply("demo");
    accounts.patch("default", &apply, &Patch::Apply(account)).await?;
    for app in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": app, "labels": {"k8s-app": app}},
            "spec": {"priorityClassName": "system-cluster-critical", "nodeName": instance.name,
                "containers": [{"name": app, "image": format!("registry.k8s.io/{app}")}]}});
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await?;
        let container = json!({"name": app, "ready": true, "restartCount": 0, "image": app, "imageID": app});
        let running = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
        pods.patch_status(app, &PatchParams::default(), &Patch::Merge(running))
            .await?;
    }
    Ok(())
}

/// Has the kubelet of an instance report whether it is ready.
async fn report(stage: &Stage, instance: &Launched, ready: bool) -> Result<()> {
    let status = if ready { "True" } else { "False" };
    let condition = json!({"type": "Ready", "status": status, "reason": "Demo"});
    let kubelet = Kubelet::new(&stage.cluster, &instance.name);
    kubelet
        .patch_status(json!({"status": {"conditions": [condition]}}))
        .await?;
    Ok(())
}
