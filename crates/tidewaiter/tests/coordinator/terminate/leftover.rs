//! Terminate, uninstall, install: the new installation says that it does nothing, and with which command it begins.

use std::process::Stdio;

use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use tidewaiter_api::containership::ClusterLabel;
use tidewaiter_api::{CloudSync, ConditionStatus};
use tidewaiter_testkit::{Identity, eventually};
use tokio::process::Command;

use super::CORE;
use crate::cloud::Cloud;
use crate::{Replica, SOON, World, coordinator};

const COMMAND: &str = "kubectl -n containership-core delete configmap tidewaiter-terminate";

impl World {
    async fn says_ready(&self, replica: &Replica, expected: bool) -> String {
        eventually(format!("ready: {expected}"), SOON, async || {
            let answer = self.http.get(format!("http://{}/readyz", replica.health)).send().await;
            let answer = answer.map_err(|error| error.to_string())?;
            let is_ready = answer.status() == 200;
            let said = answer.text().await.unwrap();
            if is_ready == expected && said.contains("[-]terminate failed") != expected {
                Ok(said)
            } else {
                Err(said)
            }
        })
        .await
    }

    /// The reason and the message of `Synced`.
    async fn is_synced(&self, expected: ConditionStatus) -> (String, String) {
        let syncs = Api::<CloudSync>::all(self.cluster.client(&Identity::Admin));
        eventually(format!("Synced: {expected:?}"), SOON, async || {
            let found = syncs.get_opt("cloud").await.map_err(|error| error.to_string())?;
            let condition = found.as_ref().and_then(|sync| sync.condition("Synced"));
            let condition = condition.filter(|condition| condition.status == expected);
            let condition = condition.ok_or_else(|| format!("{found:?}"))?;
            Ok::<_, String>((condition.reason.clone(), condition.message.clone()))
        })
        .await
    }

    async fn has_labels(&self, count: usize) {
        let labels: Api<ClusterLabel> = Api::namespaced(self.cluster.client(&Identity::Admin), CORE);
        eventually(format!("{count} labels"), SOON, async || {
            let found = labels.list(&ListParams::default()).await;
            let found = found.map_err(|error| error.to_string())?.items.len();
            if found == count { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
    }

    /// As the pod of `helm test` runs it. Returns whether it succeeded, and what it said.
    async fn explain_terminate(&self) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
        let kubeconfig = self.cluster.kubeconfig(&coordinator());
        command.args(["explain", "terminate", "--kubeconfig"]).arg(kubeconfig);
        let output = command.stdin(Stdio::null()).output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

#[tokio::test]
async fn an_installation_after_a_termination_says_so_until_it_begins_anew() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let label = json!({"key": "cluster.containership.io/before", "value": "v"});
    cloud.post("^/labels", label).await;
    let replica = world.coordinator_of(&cloud);
    world.has_labels(1).await;
    assert!(world.explain_terminate().await.0);
    world.removed(&replica, &cloud.terminator().await).await;
    world.has_labels(0).await;
    // The client that requested it asks how far it is.
    world.says_ready(&replica, true).await;
    let syncs = Api::<CloudSync>::all(world.cluster.client(&Identity::Admin));
    assert!(syncs.get_opt("cloud").await.unwrap().is_none());
    let (ok, said) = world.explain_terminate().await;
    assert!(!ok && said.contains("was removed") && said.contains(COMMAND), "{said}");
    replica.process.stop(SOON).await;

    let replica = world.coordinator_of(&cloud);
    let said = world.says_ready(&replica, false).await;
    assert!(said.contains(COMMAND), "{said}");
    let (reason, message) = world.is_synced(ConditionStatus::False).await;
    assert_eq!(reason, "Terminated");
    assert!(
        message.contains(COMMAND) && message.contains(" requested at 20"),
        "{message}"
    );
    // It does not show the objects that are left to be removed.
    world.removed(&replica, &cloud.terminator().await).await;
    assert!(syncs.get_opt("cloud").await.unwrap().is_some());
    world.has_labels(0).await;

    let marker = world.marker();
    marker
        .delete("tidewaiter-terminate", &DeleteParams::default())
        .await
        .unwrap();
    world.says_ready(&replica, true).await;
    world.has_labels(1).await;
    world.is_synced(ConditionStatus::True).await;
    assert!(world.explain_terminate().await.0);
    let sync = syncs.get("cloud").await.unwrap();
    let managers = sync.metadata.managed_fields.unwrap();
    let managers = managers.iter().filter_map(|entry| entry.manager.as_deref());
    assert!(managers.into_iter().all(|manager| manager == "tidewaiter/cloud-sync"));
}
