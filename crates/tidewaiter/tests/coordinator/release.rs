//! `tidewaiter release`, as a person runs it, beside a coordinator that holds deletions.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tidewaiter_api::CloudSync;
use tidewaiter_api::containership::{ClusterLabel, Registry};
use tidewaiter_testkit::{Identity, Terminal, eventually};
use tokio::process::Command;

use crate::cloud::{Cloud, Fault};
use crate::{SOON, World};

const MANY: usize = 6;

impl World {
    fn release(&self, identity: &Identity, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
        command.arg("release").args(arguments).arg("--kubeconfig");
        command.arg(self.cluster.kubeconfig(identity));
        command
    }

    /// Runs it without a terminal, in which it must fail with these words.
    async fn refuses(&self, identity: &Identity, arguments: &[&str], words: &str) {
        let output = self.release(identity, arguments).output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.lines().count() == 1 && error.contains(words), "{words}: {error}");
    }

    async fn sync(&self) -> Option<CloudSync> {
        let objects: Api<CloudSync> = Api::all(self.cluster.client(&Identity::Admin));
        objects.get_opt("cloud").await.unwrap()
    }

    /// Waits until `CloudSync` shows deletions of exactly these kinds as held.
    async fn holds(&self, expected: &[&str]) {
        eventually(format!("{expected:?} to be held"), SOON, async || {
            let kinds = self.sync().await.and_then(|sync| sync.status).unwrap_or_default().kinds;
            let held = kinds.iter().filter(|kind| kind.held.is_some());
            let held: Vec<&str> = held.map(|kind| &*kind.kind).collect();
            if held == expected {
                Ok(())
            } else {
                Err(format!("{held:?}"))
            }
        })
        .await;
    }

    /// Returns the number of labels, registries and Secrets with their credentials.
    async fn counts(&self) -> [usize; 3] {
        let client = self.cluster.client(&Identity::Admin);
        let core = "containership-core";
        let all = ListParams::default();
        let labels: Api<ClusterLabel> = Api::namespaced(client.clone(), core);
        let registries: Api<Registry> = Api::namespaced(client.clone(), core);
        let secrets: Api<Secret> = Api::namespaced(client, core);
        let credentials = ListParams::default().labels("tidewaiter.dev/registry");
        [
            labels.list(&all).await.unwrap().items.len(),
            registries.list(&all).await.unwrap().items.len(),
            secrets.list(&credentials).await.unwrap().items.len(),
        ]
    }

    async fn has(&self, expected: [usize; 3]) {
        eventually(format!("{expected:?} objects"), SOON, async || {
            let counts = self.counts().await;
            if counts == expected {
                Ok(())
            } else {
                Err(format!("{counts:?}"))
            }
        })
        .await;
    }
}

/// Creates labels and registries in the cloud; returns where they are.
async fn filled(cloud: &Cloud) -> Vec<String> {
    let mut paths = Vec::new();
    for number in 0..MANY {
        let label = json!({"key": format!("cluster.containership.io/label-{number}"), "value": "a"});
        let registry = json!({"serveraddress": format!("r{number}.registries.test"), "provider": "private",
            "description": "", "credentials": {"username": "u", "password": "hunter2"}});
        for (list, object) in [("^/labels", label), ("~/registries", registry)] {
            let made = cloud.post(list, object).await;
            paths.push(format!("{list}/{}", made["id"].as_str().unwrap()));
        }
    }
    paths
}

/// All at once, for who lists them: one after the other, each deletion would be one of few.
async fn wiped(cloud: &Cloud, paths: &[String]) {
    cloud.fault("GET ", Fault::Status(503));
    for path in paths {
        let (status, answer) = cloud.send(&cloud.owner, http::Method::DELETE, path, Value::Null).await;
        assert_eq!(status, 204, "{path}: {answer}");
    }
    cloud.heal();
}

#[tokio::test]
async fn what_the_brake_holds_is_released_by_kind_or_all_together_and_only_after_a_yes() {
    let (world, cloud) = tokio::join!(World::start(), Cloud::start());
    let admin = Identity::Admin;
    world
        .refuses(&admin, &[], "there is no CloudSync in this cluster")
        .await;
    let objects = filled(&cloud).await;
    let mut variables = cloud.variables();
    variables.push(("TIDEWAITER_MASS_DELETION", "release".to_owned()));
    variables.push(("TIDEWAITER_REGISTRIES__VERIFY_CREDENTIALS", "false".to_owned()));
    let _coordinator = world.replica(&variables, None);
    world.has([MANY; 3]).await;
    world.holds(&[]).await;
    world.refuses(&admin, &["--yes"], "nothing is held").await;

    wiped(&cloud, &objects).await;
    world.holds(&["ClusterLabel", "Registry", "Secret"]).await;
    let nobody = Identity::service_account("default", "nobody");
    world
        .refuses(
            &nobody,
            &["--yes"],
            "needs the permission to get cloudsyncs.tidewaiter.dev",
        )
        .await;
    world.refuses(&admin, &[], "no terminal to confirm on: add --yes").await;
    world
        .refuses(
            &admin,
            &["User", "--yes"],
            "nothing of User is held, but of ClusterLabel, Registry, Secret",
        )
        .await;
    world
        .refuses(&admin, &["pods"], "pods is not a kind that can be held")
        .await;

    let output = world
        .release(&admin, &["clusterlabel", "--yes"])
        .output()
        .await
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{shown}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        shown.starts_with("ClusterLabel: 6 of 6 would be deleted (")
            && shown.contains("); held since ")
            && shown.contains("  cluster.containership.io/label-0=a (")
            && shown.ends_with("released ClusterLabel\n")
            && shown.lines().count() == MANY + 2,
        "{shown}"
    );
    // It has waited for the deletions, and the others are held as before.
    assert_eq!(world.counts().await, [0, MANY, MANY]);
    world.holds(&["Registry", "Secret"]).await;

    for (answer, words, left) in [
        ("n\r", "tidewaiter: nothing was changed", [0, MANY, MANY]),
        ("y\r", "released Secret", [0, 0, 0]),
    ] {
        let mut terminal = Terminal::start(&world.release(&admin, &[]));
        terminal
            .shows(&[
                "Registry: 6 of 6",
                "  r0.registries.test (",
                "Secret: 6 of 6",
                "? [y/N]",
            ])
            .await;
        terminal.type_in(answer).await;
        terminal.shows(&[words]).await;
        terminal.ended().await;
        assert_eq!(world.counts().await, left, "{}", terminal.shown());
    }
    world.holds(&[]).await;
    let annotations = world.sync().await.unwrap().metadata.annotations;
    assert_eq!(annotations.unwrap_or_default().len(), 0, "nothing stays requested");
    // By default, the cloud has no say in it.
    assert_eq!(cloud.seen("/decisions"), [""; 0]);
}

/// Waits until the cluster reports that it holds the kind; returns the revision.
async fn reported(cloud: &Cloud, kind: &str) -> String {
    eventually(format!("a report that {kind} is held"), SOON, async || {
        let (_, report) = cloud
            .send(&cloud.owner, http::Method::GET, "^/report", Value::Null)
            .await;
        let kinds = report["kinds"].as_array().cloned().unwrap_or_default();
        let found = kinds.iter().find(|found| found["kind"] == kind);
        let revision = found.and_then(|found| found["held"]["revision"].as_str().map(str::to_owned));
        revision.ok_or_else(|| report.to_string())
    })
    .await
}

#[tokio::test]
async fn where_the_cluster_accepts_it_the_cloud_releases_exactly_what_is_held_and_once() {
    let (world, cloud) = tokio::join!(World::start(), Cloud::start());
    let objects = filled(&cloud).await;
    let mut variables = cloud.variables();
    for (name, value) in [
        ("TIDEWAITER_MASS_DELETION", "release"),
        ("TIDEWAITER_REGISTRIES__VERIFY_CREDENTIALS", "false"),
        ("TIDEWAITER_ACCEPT_RELEASES_FROM_CLOUD", "true"),
    ] {
        variables.push((name, value.to_owned()));
    }
    let _coordinator = world.replica(&variables, None);
    world.has([MANY; 3]).await;
    wiped(&cloud, &objects).await;
    world.holds(&["ClusterLabel", "Registry", "Secret"]).await;

    let release = async |kind: &str, revision: &str| {
        let body = json!({"kind": kind, "revision": revision});
        let sent = cloud.send(&cloud.owner, http::Method::POST, "^/releases", body).await;
        sent.0
    };
    let (labels, registries) = (
        reported(&cloud, "ClusterLabel").await,
        reported(&cloud, "Registry").await,
    );
    assert_eq!(release("ClusterLabel", &registries).await, 409);
    assert_eq!(release("ClusterLabel", &labels).await, 204);
    world.has([0, MANY, MANY]).await;
    world.holds(&["Registry", "Secret"]).await;
    let (_, decisions) = cloud
        .send(&cloud.owner, http::Method::GET, "^/decisions", Value::Null)
        .await;
    assert_eq!(decisions, json!([]), "it was taken");

    let annotations = world.sync().await.unwrap().metadata.annotations;
    assert_eq!(annotations.unwrap_or_default().len(), 0, "nothing stays requested");
    assert_eq!(world.counts().await, [0, MANY, MANY]);
}
