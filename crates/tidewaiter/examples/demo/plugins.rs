//! The chapter about a plugin: it is installed and upgraded, a version breaks and says why, an operator goes back, and
//! the next version mends it.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use serde_json::Value;
use tidewaiter_api::ConditionStatus;
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, PLUGIN_LABEL};
use tidewaiter_testkit::{Identity, eventually};

use crate::cloud::{Cloud, write};
use crate::narrator::{command, output, say};
use crate::world::{SOON, Stage, World, show, words};

/// A version of the plugin.
struct Release {
    version: &'static str,
    /// The port of its service.
    port: u32,
    /// In its settings.
    title: &'static str,
}

const FIRST: Release = Release {
    version: "1.0.0",
    port: 8080,
    title: "Status",
};
const SECOND: Release = Release {
    version: "1.1.0",
    port: 8080,
    title: "Status of Acme",
};
const BROKEN: Release = Release {
    version: "1.2.0",
    port: 80800,
    title: "Status of everything",
};
const MENDED: Release = Release {
    version: "1.2.1",
    port: 8088,
    ..BROKEN
};

impl Release {
    /// Returns its manifests in the catalogue of the cloud: two groups, one after the other.
    fn manifests(&self) -> String {
        let (port, title) = (self.port, self.title);
        format!(
            r#"{{"manifests": [
  [{{"apiVersion": "v1", "kind": "Service", "metadata": {{"name": "status", "namespace": "dev"}},
    "spec": {{"selector": {{"app": "status"}}, "ports": [{{"port": {port}}}]}}}}],
  [{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "status", "namespace": "dev"}},
    "data": {{"title": "{title}"}}}},
   {{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {{"name": "status", "namespace": "dev"}}}}]],
 "jobs": {{}}}}
"#
        )
    }
}

/// The plugin comes into the cluster.
pub async fn is_installed(world: &World) -> Result<()> {
    let (stage, cloud) = (world.stage()?, world.cloud()?);
    say("Plugins may contain anything, so an operator of the cluster permits them by a binding of its own:");
    show(stage, &["apply", "-f", "deploy/coordinator/plugins"]).await?;
    offer(cloud, &FIRST).await?;
    let id = wanted(cloud, &FIRST).await?;
    is_ready(stage, &id, &FIRST).await?;
    let of_plugin = format!("{PLUGIN_LABEL}={id}");
    let objects = [
        "get",
        "services,configmaps,serviceaccounts",
        "-n",
        "dev",
        "-l",
        &of_plugin,
    ];
    show(stage, &objects).await
}

/// It is upgraded, and then to a version that the API server refuses.
pub async fn breaks(world: &World) -> Result<()> {
    let (stage, cloud) = (world.stage()?, world.cloud()?);
    offer(cloud, &SECOND).await?;
    let id = wanted(cloud, &SECOND).await?;
    is_ready(stage, &id, &SECOND).await?;
    shows_title(stage, &SECOND).await?;
    offer(cloud, &BROKEN).await?;
    wanted(cloud, &BROKEN).await?;
    let why = eventually("the plugin to say why", SOON, async || {
        let plugin = plugins(stage).get(&id).await.map_err(words)?;
        let status = plugin.status.unwrap_or_default();
        let stalled = status
            .conditions
            .into_iter()
            .find(|it| it.type_ == "Stalled" && it.status == ConditionStatus::True);
        let stalled = stalled.ok_or("it does not stall")?;
        let port = BROKEN.port.to_string();
        if stalled.message.contains(&port) {
            Ok(stalled.message)
        } else {
            Err(stalled.message)
        }
    })
    .await;
    let path = r#"jsonpath={.status.conditions[?(@.type=="Stalled")].message}"#;
    command(&format!(
        "kubectl -n {CONTAINERSHIP_NAMESPACE} get plugin {id} -o '{path}'"
    ));
    output(&why);
    say("Nothing behind the group that failed is applied, so the settings are still those of the version before:");
    shows_title(stage, &SECOND).await
}

/// An operator goes back, and the next version is right.
pub async fn is_mended(world: &World) -> Result<()> {
    let (stage, cloud) = (world.stage()?, world.cloud()?);
    say("Until there is a better version, an operator goes back to the last one that worked:");
    for args in [
        ["plugin", "rollback", "status", "--yes"].as_slice(),
        &["plugin", "history", "status"],
    ] {
        let (told, code) = stage.tidewaiter(args).await?;
        ensure!(code == 0, "tidewaiter {}: {told}", args.join(" "));
        command(&format!("tidewaiter {}", args.join(" ")));
        output(&told);
    }
    offer(cloud, &MENDED).await?;
    let id = wanted(cloud, &MENDED).await?;
    is_ready(stage, &id, &MENDED).await?;
    shows_title(stage, &MENDED).await
}

/// An operator adds the version to the catalogue.
async fn offer(cloud: &Cloud, release: &Release) -> Result<()> {
    let version = release.version;
    cloud.adds_plugin("status", "page", version).await?;
    let (file, manifests) = (format!("status-{version}.json"), release.manifests());
    write(&cloud.folder().join(&file), &manifests)?;
    if version == FIRST.version {
        command(&format!("cat {file}"));
        output(&manifests);
    } else {
        let before = if version == SECOND.version { &FIRST } else { &SECOND };
        command(&format!("diff status-{}.json {file} | grep '>'", before.version));
        let earlier = before.manifests();
        let new = manifests.lines().filter(|line| !earlier.lines().any(|it| it == *line));
        output(&new.map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n"));
    }
    let manifests: Value = serde_json::from_str(&manifests).context("manifests in JSON")?;
    cloud.adds_manifests("status", "page", version, &file, &manifests).await
}

/// The cluster is to have the version. Returns the id of the plugin.
async fn wanted(cloud: &Cloud, release: &Release) -> Result<String> {
    let document = format!(
        "kind: Plugin\ncluster: production\nspec: {{type: status, implementation: page, version: {}}}\n",
        release.version
    );
    write(&cloud.folder().join("status.yaml"), &document)?;
    let apply = ["cloud", "apply", "-f", "status.yaml"];
    let told = cloud.owner().runs(&apply).await?;
    let last = told.lines().last().unwrap_or_default();
    command(&format!("tidewaiter {} | tail -1", apply.join(" ")));
    output(last);
    let plugins = cloud.owner().runs(&["cloud", "get", "plugins", "-o", "json"]).await?;
    let plugins: Vec<Value> = serde_json::from_str(&plugins).context("plugins in JSON")?;
    let ours = plugins.iter().find(|it| it["type"] == "status");
    let id = ours.and_then(|it| it["id"].as_str());
    Ok(id.context("the cluster has the plugin")?.to_owned())
}

/// Waits until the version is applied and healthy.
async fn is_ready(stage: &Stage, id: &str, release: &Release) -> Result<()> {
    eventually(format!("version {} to be ready", release.version), SOON, async || {
        let status = plugins(stage).get(id).await.map_err(words)?.status.unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let is_ready = conditions.any(|it| it.type_ == "Ready" && it.status == ConditionStatus::True);
        if is_ready && status.applied_version == release.version {
            return Ok(());
        }
        Err(format!("{status:?}"))
    })
    .await;
    let plugin = format!("plugin/{id}");
    show(
        stage,
        &["-n", CONTAINERSHIP_NAMESPACE, "wait", "--for=condition=Ready", &plugin],
    )
    .await
}

/// Shows the settings of the plugin, which are those of this version.
async fn shows_title(stage: &Stage, release: &Release) -> Result<()> {
    let get = [
        "-n",
        "dev",
        "get",
        "configmap",
        "status",
        "-o",
        "jsonpath={.data.title}",
    ];
    let title = stage.kubectl(&Identity::Admin, &get).await?;
    ensure!(title == release.title, "the title is {title}");
    command(&format!("kubectl {}", get.join(" ")));
    output(&title);
    Ok(())
}

fn plugins(stage: &Stage) -> Api<Plugin> {
    Api::namespaced(stage.cluster.client(&Identity::Admin), CONTAINERSHIP_NAMESPACE)
}
