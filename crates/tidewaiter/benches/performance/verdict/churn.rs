//! Changes without end: Nodes become not ready and ready again, one after the other, and so do pods of the system.
//!
//! At a pace, and not as fast as the API server takes them: it has the same cores, and would leave nothing of them to
//! what is measured.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::json;
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::interval;

use super::changes::{is_apart, patch_ready};
use crate::bed::Bed;
use crate::process::Role;
use crate::report::count;

/// The interval at which two Nodes are changed: each of 5,000 twice in less than two minutes.
const PACE: Duration = Duration::from_millis(20);
/// The number of changes that are observed.
const WATCHED: usize = 2_000;
/// A Node is ready again after this number of further Nodes.
const UNREADY: usize = 100;
const PODS: usize = 50;
/// After this number of Nodes a pod is changed.
const NODES_TO_A_POD: usize = 10;
const NAMESPACE: &str = "kube-system";

/// The account that kube-controller-manager creates; no pod is created without it.
const ACCOUNT: &str = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: kube-system}}";

pub struct Churn {
    changes: watch::Receiver<usize>,
    task: JoinHandle<Result<()>>,
}

/// The cost of the changes for the controller.
#[derive(Debug, Serialize)]
pub struct Churned {
    /// Changes a second.
    pub rate: f64,
    /// The part of a core that it used.
    pub core: f64,
}

impl Churn {
    #[expect(clippy::disallowed_methods, reason = "its end is looked at")]
    pub async fn start(bed: &Bed) -> Result<Self> {
        bed.cluster.apply(ACCOUNT).await;
        let pods: Api<Pod> = Api::namespaced(bed.admin(), NAMESPACE);
        for number in 0..PODS {
            let pod = pod(number, bed.instances[number].node_name())?;
            pods.create(&PostParams::default(), &pod).await?;
        }
        let indices = 0..bed.instances.len();
        let nodes = indices.filter(|index| !is_apart(*index));
        let nodes: Vec<_> = nodes.map(|index| bed.instances[index].clone()).collect();
        let (sender, changes) = watch::channel(0);
        let task = tokio::spawn(change_for_ever(bed.nodes(), pods, nodes, sender));
        Ok(Self { changes, task })
    }

    /// Measures what this number of changes costs.
    #[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
    pub async fn watch(&self, controller: &Role) -> Result<Churned> {
        let mut changes = self.changes.clone();
        let (begin, cpu, before) = (Instant::now(), controller.cpu_seconds(), *changes.borrow_and_update());
        let enough = |now: &usize| *now >= before + WATCHED;
        changes.wait_for(enough).await.context("the changes ended")?;
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Churned {
            rate: count(WATCHED) / seconds,
            core: (controller.cpu_seconds() - cpu) / seconds,
        })
    }

    /// # Errors
    /// When the changes ended before.
    pub async fn end(self, bed: &Bed) -> Result<()> {
        self.task.abort();
        match self.task.await {
            Err(ended) if ended.is_cancelled() => {}
            ended => ended??,
        }
        let pods: Api<Pod> = Api::namespaced(bed.admin(), NAMESPACE);
        for number in 0..PODS {
            pods.delete(&name(number), &DeleteParams::default().grace_period(0))
                .await?;
        }
        Ok(())
    }
}

async fn change_for_ever(
    nodes: Api<Node>,
    pods: Api<Pod>,
    all: Vec<FakeInstance>,
    changes: watch::Sender<usize>,
) -> Result<()> {
    let mut pace = interval(PACE);
    for number in 0.. {
        pace.tick().await;
        let node = |number: usize| all[number % all.len()].node_name();
        patch_ready(&nodes, node(number), false).await?;
        patch_ready(&nodes, node(number + all.len() - UNREADY), true).await?;
        changes.send_modify(|changes| *changes += 2);
        if number.is_multiple_of(NODES_TO_A_POD) {
            let number = number / NODES_TO_A_POD;
            let ready = json!({"name": "main", "ready": number / PODS % 2 == 1, "restartCount": 0, "image": "main:1", "imageID": "main"});
            let status = json!({"status": {"phase": "Running", "containerStatuses": [ready]}});
            let patch = Patch::Merge(status);
            pods.patch_status(&name(number % PODS), &PatchParams::default(), &patch)
                .await?;
            changes.send_modify(|changes| *changes += 1);
        }
    }
    Ok(())
}

fn name(number: usize) -> String {
    format!("churn-{number}")
}

fn pod(number: usize, node: &str) -> Result<Pod> {
    let pod = json!({
        "metadata": {"name": name(number), "namespace": NAMESPACE},
        "spec": {"priorityClassName": "system-node-critical", "nodeName": node,
            "containers": [{"name": "main", "image": "registry.example/main:1"}]},
    });
    Ok(serde_json::from_value(pod)?)
}
