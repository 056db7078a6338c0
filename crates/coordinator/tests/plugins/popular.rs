//! Five plugins that people run, of their shape and size, at once on a real control plane with the controller-manager.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_coordinator::controllers::PluginSettings;
use tidewaiter_testkit::eventually;

use crate::cluster::SOON;
use crate::shapes::{job, object};
use crate::world::{World, id, plugin_of};

mod manifests;

use manifests::{cerebral, cert_manager, ingress_nginx, metrics_server, prometheus_operator};

/// A plugin.
struct Popular {
    /// The namespace and name of its Deployment and its Service.
    main: &'static str,
    /// Its groups in the versions 1, 2 and later ones.
    groups: fn(u8) -> Vec<Vec<Value>>,
    /// The jobs behind its objects.
    jobs: &'static [&'static str],
    /// The instance whose definition serves another version from version 2 on: apiVersion and plural, namespace, and
    /// name of the instance that is then in the other version.
    moves: Option<[&'static str; 4]>,
    /// The object that is not healthy where there is no network between pods.
    unhealthy: Option<&'static str>,
}

const POPULAR: [Popular; 5] = [
    Popular {
        main: "kube-system/metrics-server",
        groups: metrics_server,
        jobs: &[],
        moves: None,
        unhealthy: Some("APIService.apiregistration.k8s.io v1beta1.metrics.k8s.io"),
    },
    Popular {
        main: "ingress-nginx/ingress-nginx-controller",
        groups: ingress_nginx,
        jobs: &["ingress-nginx/admission-create", "ingress-nginx/admission-patch"],
        moves: None,
        unhealthy: None,
    },
    Popular {
        main: "monitoring/prometheus-operator",
        groups: prometheus_operator,
        jobs: &[],
        moves: Some([
            "monitoring.coreos.com/v1beta1",
            "alertmanagerconfigs",
            "monitoring",
            "main",
        ]),
        unhealthy: None,
    },
    Popular {
        main: "cert-manager/cert-manager",
        groups: cert_manager,
        jobs: &["cert-manager/startupapicheck"],
        moves: None,
        unhealthy: None,
    },
    Popular {
        main: "cerebral/cerebral",
        groups: cerebral,
        jobs: &[],
        moves: Some(["cerebral.containership.io/v1", "metricsbackends", "", "prometheus"]),
        unhealthy: None,
    },
];

/// Objects that others had before: they are used and do not become the plugin's.
const FOREIGN: [&str; 2] = [
    "CustomResourceDefinition autoscalinggroups.cerebral.containership.io",
    "CustomResourceDefinition autoscalingpolicies.cerebral.containership.io",
];

/// A plugin in the world.
struct Life<'a> {
    world: &'a World,
    number: usize,
    plugin: &'a Popular,
}

impl Life<'_> {
    fn offer(&self, version: u8) {
        let groups = (self.plugin.groups)(version);
        let jobs: Vec<Value> = self.plugin.jobs.iter().map(|place| job(place)).collect();
        self.world.offer_with(
            self.number,
            &of(version),
            &json!(groups),
            &json!({ "post_apply": jobs }),
        );
    }

    /// Waits until it is applied, and as healthy as it can be here, and has exactly the objects of the version.
    async fn has(&self, version: u8) {
        match self.plugin.unhealthy {
            None => self.world.is_ready(self.number, &of(version)).await,
            Some(object) => {
                eventually(format!("{object} to be all that is missing"), SOON, async || {
                    let message = self
                        .world
                        .condition(self.number, &of(version), "Ready", "False Unhealthy")
                        .await;
                    if message.contains(object) { Ok(()) } else { Err(message) }
                })
                .await;
            }
        }
        let objects = (self.plugin.groups)(version).into_iter().flatten();
        let all = objects.map(|object| {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let namespace = text(&object["metadata"]["namespace"]).map(|namespace| namespace + "/");
            let [kind, name] = [&object["kind"], &object["metadata"]["name"]].map(|value| text(value).unwrap());
            format!("{kind} {}{name}", namespace.unwrap_or_default())
        });
        let mut wanted: BTreeSet<String> = all.filter(|name| !FOREIGN.contains(&name.as_str())).collect();
        let found = self.world.labelled(self.number).await.unwrap();
        let jobs: Vec<String> = found.into_iter().filter(|name| name.starts_with("Job ")).collect();
        assert_eq!(jobs.len(), self.plugin.jobs.len(), "{jobs:?}");
        wanted.extend(jobs);
        self.world.has_exactly(self.number, &wanted).await;
        if let Some([api_version, plural, namespace, name]) = self.plugin.moves.filter(|_| version > 1) {
            let api = self
                .world
                .objects(api_version, plural, "", Some(namespace).filter(|it| !it.is_empty()));
            self.world
                .shows(&api, name, |found| plugin_of(found) == Some(id(self.number).as_str()))
                .await;
        }
    }

    fn main(&self, api_version: &str, plural: &str) -> (kube::Api<kube::core::DynamicObject>, &str) {
        let (namespace, name) = self.plugin.main.split_once('/').unwrap();
        (self.world.objects(api_version, plural, "", Some(namespace)), name)
    }

    /// A person changes one object and deletes another one; both become as they were.
    async fn is_corrected(&self) {
        let (deployments, name) = self.main("apps/v1", "deployments");
        let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
        deployments.patch(name, &PatchParams::default(), &patch).await.unwrap();
        let (services, name) = self.main("v1", "services");
        let uid = services.get(name).await.unwrap().metadata.uid;
        services.delete(name, &DeleteParams::default()).await.unwrap();
        self.world
            .shows(&deployments, name, |found| found["spec"]["replicas"] == 1)
            .await;
        self.world
            .shows(&services, name, |found| {
                found.is_object() && found["metadata"]["uid"].as_str() != uid.as_deref()
            })
            .await;
    }

    /// Breaks the plugin: each write of its Deployments calls a webhook that does not exist.
    async fn is_broken(&self) {
        let name = format!("broken-{}", self.number);
        let rules =
            json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}]);
        let webhook = json!({"name": "broken.example.com", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": rules,
            "objectSelector": {"matchLabels": {PLUGIN_LABEL: id(self.number)}}});
        let rest = json!({ "webhooks": [webhook] });
        let webhooks = object(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            &name,
            rest,
        );
        self.world.put(&self.broken(), &webhooks).await;
        let (deployments, name) = self.main("apps/v1", "deployments");
        let dry = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"tried": "1"}}}));
        eventually("the webhook to be asked", SOON, async || {
            match deployments.patch(name, &dry, &patch).await {
                Ok(_) => Err("it is not"),
                Err(_) => Ok(()),
            }
        })
        .await;
    }

    fn broken(&self) -> kube::Api<kube::core::DynamicObject> {
        let plural = "validatingwebhookconfigurations";
        self.world.objects("admissionregistration.k8s.io/v1", plural, "", None)
    }

    async fn says_that_it_is_broken(&self, version: u8) {
        let message = self
            .world
            .condition(self.number, &of(version), "Ready", "False ApplyFailed")
            .await;
        assert!(
            message.contains("Deployment.apps") && message.contains("broken.example.com"),
            "{message}"
        );
        self.broken()
            .delete(&format!("broken-{}", self.number), &DeleteParams::default())
            .await
            .unwrap();
    }

    async fn is_gone(&self) {
        self.world.is_forgotten(self.number).await;
        self.world.has_exactly(self.number, &[].into()).await;
    }
}

fn of(version: u8) -> String {
    format!("{version}.0.0")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_popular_plugins_live_together() {
    let world = World::with_controller_manager().await;
    let lives: Vec<Life<'_>> = (1..)
        .zip(&POPULAR)
        .map(|(number, plugin)| Life {
            world: &world,
            number,
            plugin,
        })
        .collect();
    let running = world.run(PluginSettings::default()).await;
    // Installed at once: one needs a kind of another.
    for life in &lives {
        life.offer(1);
    }
    for life in &lives {
        life.has(1).await;
    }
    for life in &lives {
        life.is_corrected().await;
    }
    // Upgraded at once, some of them with a webhook that fails: they say so, the others do not wait, and when it is
    // gone, they go on.
    for (version, broken) in [(2, 0), (3, 1)] {
        let (bad, good): (Vec<_>, Vec<_>) = lives.iter().partition(|life| life.number % 2 == broken);
        for life in &bad {
            life.is_broken().await;
        }
        for life in &lives {
            life.offer(version);
        }
        for life in good {
            life.has(version).await;
        }
        for life in &bad {
            life.says_that_it_is_broken(version).await;
        }
        for life in bad {
            life.has(version).await;
        }
    }
    // Two are removed while the others are upgraded, and come back.
    let (first, rest) = lives.split_at(2);
    for life in first {
        world.withdraw(life.number);
    }
    for life in rest {
        life.offer(4);
    }
    for life in first {
        life.is_gone().await;
    }
    for life in rest {
        life.has(4).await;
    }
    first[0].offer(4);
    first[0].has(4).await;
    world.is_quiet_for(Duration::from_secs(1)).await;
    // The controller-manager finishes no namespace while an APIService is not available.
    for life in rest {
        world.withdraw(life.number);
    }
    for life in rest {
        world.says(&id(life.number), "RemovalWaits", "metrics.k8s.io").await;
    }
    world.withdraw(first[0].number);
    for life in lives.iter().filter(|life| life.number != 2) {
        life.is_gone().await;
    }
    running.stop().await;
}
