//! A missing or wrong object at the coordinator's start is visible within seconds, and stops nothing else.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::ClusterLabel;
use tidewaiter_testkit::{Identity, eventually, free_port};
use tokio::time::timeout;

use crate::cloud::{Cloud, Fault};
use crate::{Replica, SOON, World, coordinator, deploy, unshared, write};

fn labels(world: &World) -> Api<ClusterLabel> {
    Api::namespaced(world.cluster.client(&Identity::Admin), "containership-core")
}

async fn has_label(world: &World, key: &str) {
    eventually(format!("the label {key}"), SOON, async || {
        let all = labels(world).list(&ListParams::default()).await;
        let keys: Vec<_> = all
            .map_err(|error| error.to_string())?
            .into_iter()
            .map(|label| label.spec.key.to_string())
            .collect();
        if keys.iter().any(|found| found == key) {
            Ok(())
        } else {
            Err(format!("{keys:?}"))
        }
    })
    .await;
}

async fn readiness(world: &World, replica: &Replica) -> String {
    let answer = world
        .http
        .get(format!("http://{}/readyz?verbose", replica.health))
        .send()
        .await;
    answer.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn a_missing_definition_stops_only_its_own_kind() {
    let world = World::on(unshared().await);
    let cloud = Cloud::start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.cluster.client(&Identity::Admin));
    let missing = [
        "plugins.containership.io",
        "autoscalingpolicies.cerebral.containership.io",
        "cloudsyncs.tidewaiter.dev",
    ];
    for name in missing {
        definitions.delete(name, &DeleteParams::default()).await.unwrap();
        eventually(format!("{name} to be gone"), SOON, async || {
            let found = definitions.get_opt(name).await.map_err(|error| error.to_string())?;
            found.map_or(Ok(()), |_| Err("it is there".to_owned()))
        })
        .await;
    }
    cloud
        .post("^/labels", json!({"key": "cluster.containership.io/a", "value": "b"}))
        .await;
    let replica = world.coordinator_of(&cloud);
    world.namespace("team").await;
    world.has_account("team").await;
    has_label(&world, "cluster.containership.io/a").await;
    let report = readiness(&world, &replica).await;
    for name in ["plugin", "autoscalingpolicy", "cloudsync"] {
        let line = report
            .lines()
            .find(|line| line.starts_with(&format!("[-]cache/{name} ")));
        assert!(
            line.is_some_and(|line| line.contains("deploy/crds/coordinator")),
            "{name}: {report}"
        );
    }
    world
        .cluster
        .apply_manifests(deploy().join("../crds/coordinator"))
        .await;
    world.synced("True Applied", SOON).await;
    eventually("the replica to be ready", SOON, async || {
        let report = readiness(&world, &replica).await;
        if report.contains("readyz check passed") {
            Ok(())
        } else {
            Err(report)
        }
    })
    .await;
}

#[tokio::test]
async fn a_cloud_that_cannot_be_used_is_visible_at_once_and_a_restart_writes_nothing() {
    let world = World::start().await;
    let cloud = Cloud::start().await;
    // The first installation: there is no object yet.
    cloud.fault("/registries", Fault::Hangs);
    let replica = world.coordinator_of(&cloud);
    world
        .synced_saying("Unknown Waiting", &["Registry", "has not listed it yet"], SOON)
        .await;
    cloud.heal();
    world.synced("True Applied", SOON).await;
    replica.process.stop(SOON).await;

    // On a busy machine a list can be late, which is shown. A restart in which none is writes nothing.
    for attempt in 0.. {
        let mark = world.cluster.audit_mark().await;
        let replica = world.coordinator_of(&cloud);
        let team = format!("team-{attempt}");
        world.namespace(&team).await;
        world.has_account(&team).await;
        let written = eventually("a write to CloudSync", SOON, async || {
            let writes = world.written_since(mark).await;
            let write = writes.into_iter().find(|write| write.contains("cloudsyncs"));
            write.ok_or("none")
        });
        let written = timeout(Duration::from_secs(12), written).await;
        replica.process.stop(SOON).await;
        if written.is_err() {
            break;
        }
        assert!(attempt < 4, "each restart writes: {written:?}");
    }

    // It does not answer: what the last process wrote is not believed for long.
    cloud.fault("/registries", Fault::Hangs);
    let replica = world.coordinator_of(&cloud);
    let words = ["Registry", "no answer"];
    let message = world.synced_saying("False ListFailed", &words, SOON).await;
    assert!(!message.contains("User"), "{message}");
    cloud.heal();
    replica.process.stop(SOON).await;
    let running = world.coordinator_of(&cloud);
    world.synced("True Applied", SOON).await;
    running.process.stop(SOON).await;

    // Nobody listens.
    let url = format!("http://127.0.0.1:{}", free_port());
    let mut variables = cloud.variables();
    variables[0].1.clone_from(&url);
    let replica = world.replica(&variables, None);
    let words = [url.as_str(), "cloud.apiBaseUrl", "User", "Registry"];
    let message = world.synced_saying("False ListFailed", &words, SOON).await;
    assert_eq!(
        message.matches("cloud.apiBaseUrl").count(),
        1,
        "said once for all kinds: {message}"
    );
    let log = replica.process.log();
    let warned = log.lines().filter(|line| line.contains("list cannot be used")).count();
    assert!((1..=12).contains(&warned), "{warned}: {log}");
    // The objects that were listed before are still there.
    let objects: Api<tidewaiter_api::CloudSync> = Api::all(world.cluster.client(&Identity::Admin));
    let status = objects.get("cloud").await.unwrap().status.unwrap();
    assert!(
        status
            .kinds
            .iter()
            .all(|kind| kind.last_success.is_some() && !kind.revision.is_empty()),
        "{status:?}"
    );
}

#[tokio::test]
async fn a_new_api_key_in_the_file_is_used_without_a_restart() {
    let world = World::start().await;
    let cloud = Cloud::start().await;
    let file = world.scratch.path().join("api-key");
    write(&file, &format!("{}\n", cloud.key));
    let mut variables = cloud.variables();
    variables.retain(|(name, _)| !name.ends_with("API_KEY"));
    variables.push(("TIDEWAITER_CLOUD__API_KEY_FILE", file.display().to_string()));
    variables.push(("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "1s".to_owned()));
    let replica = world.replica(&variables, None);
    world.synced("True Applied", SOON).await;

    let (_, keys) = cloud
        .send(&cloud.owner, http::Method::GET, "^/api-keys", Value::Null)
        .await;
    let old = keys[0]["id"].as_str().unwrap();
    let new = cloud.post("^/api-keys", json!({})).await["api_key"]
        .as_str()
        .unwrap()
        .to_owned();
    let (status, _) = cloud
        .send(
            &cloud.owner,
            http::Method::DELETE,
            &format!("^/api-keys/{old}"),
            Value::Null,
        )
        .await;
    assert_eq!(status, 204);
    let message = world.synced("False ListFailed", SOON).await;
    assert!(message.contains("cloud.apiKeyFile"), "{message}");
    // A file that contains no key changes nothing.
    write(&file, "");
    write(&file, &new);
    world.synced("True Applied", SOON).await;
    cloud
        .post("^/labels", json!({"key": "cluster.containership.io/a", "value": "b"}))
        .await;
    has_label(&world, "cluster.containership.io/a").await;
    let log = replica.process.log();
    assert!(!log.contains(&cloud.key) && !log.contains(&new), "{log}");
}

#[tokio::test]
async fn a_wrong_server_or_authority_in_the_kubeconfig_is_named() {
    let world = World::start().await;
    let (server, closed) = (world.cluster.url(), format!("https://127.0.0.1:{}", free_port()));
    let other = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    let authority = world.scratch.path().join("other.crt");
    write(&authority, &other.cert.pem());
    for (fields, named, remedy) in [
        (json!({"server": closed}), closed.clone(), "check that it runs"),
        (
            json!({"server": server, "certificate-authority": authority}),
            server.clone(),
            "another authority issued its certificate",
        ),
    ] {
        let file = world.cluster.kubeconfig_with(&coordinator(), &fields);
        let replica = world.replica(&world.away, Some(file.clone()));
        eventually(format!("{fields} to be named"), SOON, async || {
            let log = replica.process.log();
            let error = format!("cannot connect to the API server {named} ({remedy}");
            let origin = format!("the kubeconfig {}", file.display());
            if log.contains(&error) && log.contains(&origin) {
                Ok(())
            } else {
                Err(log)
            }
        })
        .await;
        let report = readiness(&world, &replica).await;
        assert!(report.contains("cannot connect to the API server"), "{report}");
    }
}
