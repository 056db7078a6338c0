//! Our own definitions are deleted and applied again, and with them every Plugin and every inventory.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use tidewaiter_coordinator::controllers::PluginSettings;
use tidewaiter_testkit::eventually;

use crate::approval::manual;
use crate::cluster::deploy;
use crate::jobs::job;
use crate::world::{SOON, World, config};

const DEFINITIONS: [&str; 2] = ["plugins.containership.io", "plugininventories.tidewaiter.dev"];

impl World {
    /// As `kubectl delete crd`, and `kubectl apply` once they are gone.
    async fn replace_definitions(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client());
        for name in DEFINITIONS {
            definitions.delete(name, &DeleteParams::default()).await.unwrap();
        }
        for name in DEFINITIONS {
            eventually(format!("{name} to be gone"), SOON, async || {
                match definitions.get_opt(name).await {
                    Ok(None) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })
            .await;
        }
        self.plane().apply_manifests(deploy("crds/coordinator")).await;
    }

    /// Of each object of the plugin, its uid and generation.
    async fn running(&self) -> Vec<String> {
        let configs = self.configs().list(&ListParams::default()).await.unwrap();
        let jobs = Api::<Job>::namespaced(self.client(), "default");
        let jobs = jobs.list(&ListParams::default()).await.unwrap();
        let configs = configs.items.into_iter().map(|config| config.metadata);
        let all = configs.chain(jobs.items.into_iter().map(|job| job.metadata));
        all.filter(|meta| meta.labels.is_some())
            .map(|meta| format!("{:?} {:?} {:?}", meta.name, meta.uid, meta.generation))
            .collect()
    }
}

#[tokio::test]
async fn what_runs_stays_when_the_definitions_are_replaced_and_earlier_versions_can_come_back() {
    let world = World::with_controller_manager().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1"), config("gone", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.offer_with(
        1,
        "2.0.0",
        &json!([[config("one", "2"), config("two", "2")]]),
        &json!({"post_apply": [job("after")]}),
    );
    world.is_ready(1, "2.0.0").await;
    world.config_is("gone", None).await;
    world.stores(1, 2).await;
    let before = world.running().await;
    assert_eq!(before.len(), 3, "{before:?}");

    world.replace_definitions().await;
    world.is_ready(1, "2.0.0").await;
    world.is_quiet().await;
    assert_eq!(world.running().await, before);
    world.stores(1, 2).await;

    // Anyone who must approve versions has nothing to approve.
    running.stop().await;
    let _running = world.run(manual()).await;
    world.replace_definitions().await;
    world.is_ready(1, "2.0.0").await;
    world.is_quiet().await;
    assert_eq!(world.running().await, before);

    // It is remembered as before: an earlier version comes back, and everything goes with the plugin.
    world.stores(1, 2).await;
    world.roll_back(1, "2.0.0", "1.0.0").await;
    world.condition(1, "2.0.0", "Ready", "True RolledBack").await;
    world.config_is("one", Some("1")).await;
    world.config_is("two", None).await;
    world.withdraw(1);
    world.config_is("one", None).await;
    world.is_forgotten(1).await;
    world.stores(1, 0).await;
}
