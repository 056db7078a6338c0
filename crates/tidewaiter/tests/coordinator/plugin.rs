//! `tidewaiter plugin`, as a person runs it, beside a coordinator whose plugins need approval.

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use serde_json::{Value, json};
use tidewaiter_api::containership::Plugin;
use tidewaiter_testkit::{Identity, Terminal, eventually};
use tokio::process::Command;

use crate::cloud::Cloud;
use crate::{SOON, World, deploy};

impl World {
    fn plugin(&self, identity: &Identity, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
        command.arg("plugin").args(arguments).arg("--kubeconfig");
        command.arg(self.cluster.kubeconfig(identity));
        command
    }

    /// Runs it without a terminal, and returns what it shows.
    pub async fn says_of_plugin(&self, arguments: &[&str]) -> String {
        let output = self.plugin(&Identity::Admin, arguments).output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs it without a terminal, in which it must fail with these words.
    async fn refuses_plugin(&self, identity: &Identity, arguments: &[&str], words: &str) {
        let output = self.plugin(identity, arguments).output().await.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.lines().count() == 1 && error.contains(words), "{words}: {error}");
    }

    /// Waits until this version awaits approval.
    async fn awaits(&self, version: &str) {
        let plugins: Api<Plugin> = Api::namespaced(self.cluster.client(&Identity::Admin), "containership-core");
        eventually(format!("{version} to await approval"), SOON, async || {
            let all = plugins.list(&kube::api::ListParams::default()).await;
            let all = all.map_err(|error| error.to_string())?.items;
            let mut pending = all.iter().filter_map(|plugin| plugin.status.as_ref()?.pending.as_ref());
            let found = pending.any(|pending| pending.version == version);
            if found { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
    }

    /// Waits until the ConfigMap of the plugin has this value.
    async fn has_config(&self, value: &str) {
        let configs: Api<ConfigMap> = Api::namespaced(self.cluster.client(&Identity::Admin), "default");
        eventually(format!("the value {value}"), SOON, async || {
            let found = configs.get_opt("metrics").await.map_err(|error| error.to_string())?;
            let data = found.and_then(|found| found.data).unwrap_or_default();
            if data.get("a").is_some_and(|it| it == value) {
                Ok(())
            } else {
                Err(format!("{data:?}"))
            }
        })
        .await;
    }
}

/// The catalogue has the version with this value.
async fn catalogued(cloud: &Cloud, version: &str, value: &str) {
    let path = format!("/v3/plugins/metrics/implementations/prometheus/versions/{version}");
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "metrics"}, "data": {"a": value, "b": "esc\u{1b}[2J"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "metrics"}, "stringData": {"password": "hunter2"}});
    for (path, body) in [
        (path.clone(), json!({"version": version})),
        (format!("{path}/manifests"), json!({"manifests": [[config, secret]]})),
    ] {
        let (status, answer) = cloud.send(&cloud.owner, Method::PUT, &path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
    }
}

#[tokio::test]
async fn versions_are_shown_approved_and_taken_back() {
    let (world, cloud) = tokio::join!(World::start(), Cloud::start());
    world.cluster.apply_manifests(deploy().join("plugins")).await;
    let admin = Identity::Admin;
    let plugins: Api<Plugin> = Api::namespaced(world.cluster.client(&admin), "containership-core");
    eventually("Plugins to be served", SOON, async || {
        let listed = plugins.list(&kube::api::ListParams::default()).await;
        listed.map(drop).map_err(|error| error.to_string())
    })
    .await;
    world
        .refuses_plugin(&admin, &["diff", "metrics"], "there is no plugin in this cluster")
        .await;
    catalogued(&cloud, "1.0.0", "1").await;
    let made = json!({"type": "metrics", "implementation": "prometheus", "version": "1.0.0"});
    let made = cloud.post("^/plugins", made).await;
    let mut variables = cloud.variables();
    variables.push(("TIDEWAITER_PLUGIN_APPROVAL", "manual".to_owned()));
    let _coordinator = world.replica(&variables, None);
    world.awaits("1.0.0").await;

    let nobody = Identity::service_account("default", "nobody");
    let words = "needs the permission to list plugins.containership.io in the namespace containership-core";
    world.refuses_plugin(&nobody, &["diff", "metrics"], words).await;
    let words = "no plugin is logs; the plugins are metrics/prometheus (";
    world.refuses_plugin(&admin, &["diff", "logs"], words).await;
    let text = world.says_of_plugin(&["diff", "metrics"]).await;
    for words in [
        "version 1.0.0\n",
        "create ConfigMap default/metrics\n",
        "+   a: ",
        "password: SHA-256",
        "2 to create",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
    let value = world
        .says_of_plugin(&["diff", "metrics/prometheus", "-o", "json"])
        .await;
    let value: Value = serde_json::from_str(&value).unwrap();
    let digest = value["digest"].as_str().unwrap();
    assert!(text.trim_end().ends_with(digest), "{text}");
    let secrets = world.says_of_plugin(&["diff", "metrics", "--show-secrets"]).await;
    // hunter2 in base64.
    let value = "aHVudGVyMg==";
    assert!(!text.contains(value) && secrets.contains(value), "{secrets}");

    world
        .refuses_plugin(&admin, &["approve", "metrics"], "no terminal to confirm on: add --yes")
        .await;
    let words = "the digest of the diff is";
    world
        .refuses_plugin(&admin, &["approve", "metrics", "--yes", "--digest", "abc"], words)
        .await;
    world
        .refuses_plugin(&admin, &["history", "metrics"], "was accepted yet")
        .await;
    let text = world
        .says_of_plugin(&["approve", "metrics", "--yes", "--digest", digest])
        .await;
    assert!(
        text.contains("\napproved version 1.0.0 of metrics/prometheus ("),
        "{text}"
    );
    world.has_config("1").await;

    catalogued(&cloud, "1.1.0", "2").await;
    let path = format!("^/plugins/{}", made["id"].as_str().unwrap());
    let (status, answer) = cloud
        .send(&cloud.owner, Method::PATCH, &path, json!({"version": "1.1.0"}))
        .await;
    assert_eq!(status, 200, "{answer}");
    world.awaits("1.1.0").await;
    for (answer, words) in [
        ("n\r", "tidewaiter: nothing was changed"),
        ("y\r", "approved version 1.1.0"),
    ] {
        let mut terminal = Terminal::start(&world.plugin(&admin, &["approve", "metrics"]));
        terminal.shows(&["1.1.0 in place of 1.0.0", "data.a", "? [y/N]"]).await;
        terminal.type_in(answer).await;
        terminal.shows(&[words]).await;
        terminal.ended().await;
    }
    world.has_config("2").await;
    eventually("nothing to await approval", SOON, async || {
        let all = plugins.list(&kube::api::ListParams::default()).await;
        let status = all.map_err(|error| error.to_string())?.items.remove(0).status;
        status
            .unwrap_or_default()
            .pending
            .map_or(Ok(()), |pending| Err(pending.version))
    })
    .await;
    world
        .refuses_plugin(&admin, &["approve", "metrics", "--yes"], "awaits approval")
        .await;
    takes_back(&world).await;
}

async fn takes_back(world: &World) {
    let admin = Identity::Admin;
    let text = world.says_of_plugin(&["history", "metrics"]).await;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("1.0.0") && lines[1].ends_with("yes"), "{text}");
    assert!(lines[2].starts_with("1.1.0") && lines[2].ends_with("applied"), "{text}");
    world
        .refuses_plugin(&admin, &["rollback", "metrics", "--undo"], "is not rolled back")
        .await;
    world
        .refuses_plugin(
            &admin,
            &["rollback", "metrics", "--to", "3"],
            "no accepted version is 3",
        )
        .await;
    let text = world.says_of_plugin(&["rollback", "metrics", "--yes"]).await;
    assert!(text.contains("goes back to version 1.0.0"), "{text}");
    world.has_config("1").await;
    assert!(
        world
            .says_of_plugin(&["history", "metrics"])
            .await
            .contains("rollback in force: ")
    );
    let text = world.says_of_plugin(&["rollback", "metrics", "--undo"]).await;
    assert!(text.contains("goes on to version 1.1.0 of the cloud"), "{text}");
    world.awaits("1.1.0").await;
    world.has_config("1").await;
}
