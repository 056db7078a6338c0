//! A tenant: many objects with the label of a plugin, of which one is edited all the time. How soon everything
//! else takes effect, and the memory of the coordinator.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tidewaiter_api::names::PLUGIN_LABEL;
use tokio::task::JoinSet;

use super::access;
use super::bed::{Bed, copy, numbered, seen};
use super::{Sizes, latency, now, pause, plugins};
use crate::cloud::wire::Wire;
use crate::observer::{follow, next};
use crate::report::{Chapter, figure, most, note};

const NAMESPACE: &str = "tenant";
const STRANGER: &str = "stranger";
const BETWEEN_EDITS: Duration = Duration::from_millis(100);
/// The interval of new plugins.
const CHANGE_INTERVAL: Duration = Duration::from_millis(600);
/// The number of changes of each kind.
const ROUNDS: usize = 30;

pub async fn measure(program: &Path, sizes: &Sizes) -> Result<Chapter> {
    let strangers = sizes.strangers;
    note(&format!("tenant: {strangers} objects with the label of a plugin"));
    let bed = Bed::start(program, 1).await?;
    plugins::permit(&bed.cluster).await;
    let mut wire = Wire::open(bed.cloud.address).await?;
    let plugin = plugins::add(&bed, &mut wire, 0).await?;
    flood(&bed, &plugin, strangers).await?;
    let mut edits = JoinSet::new();
    edits.spawn(edit(bed.admin()));
    let (found, coordinator) = latency::rounds_of(&bed, ROUNDS).await?;
    plugins::applied(&bed, &[plugin]).await;
    let role = access::measured_role(&bed, &mut wire).await?;
    let (given, taken) = access::changes(&bed, &role, ROUNDS).await?;
    let applied = new_plugins(&bed, &mut wire).await?;
    let memory = coordinator.memory();
    coordinator.stop().await;
    if let Some(ended) = edits.try_join_next() {
        ended??;
    }
    let longest = |what: &str, key, seconds: &[f64]| {
        figure(what, key, most(seconds.iter().copied()) * 1000.0, " ms", 0).at_most(1000.0)
    };
    let [resource, label, pull_secret] = found.seconds();
    Ok(Chapter {
        key: "tenant",
        title: format!(
            "A tenant with {strangers} objects that have the label of a plugin, one edited every {BETWEEN_EDITS:?}"
        ),
        figures: vec![
            longest("a resource, the longest", "resource", resource),
            longest("a label on a Node", "label", label),
            longest("a pull secret in a namespace", "pullSecret", pull_secret),
            longest("a permission is given", "given", &given),
            longest("a permission is taken away", "taken", &taken),
            longest("an object of a new plugin", "plugin", &applied),
            figure("memory of the process alone", "anonymous", memory.anonymous, " MiB", 1).at_most(200.0),
            figure("  resident, its peak", "peakResident", memory.peak, " MiB", 1).at_most(200.0),
        ],
        details: json!({
            "resource": resource, "label": label, "pullSecret": pull_secret, "given": given, "taken": taken, "plugin": applied,
        }),
    })
}

/// Creates the objects of the tenant.
async fn flood(bed: &Bed, plugin: &str, strangers: usize) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(bed.admin());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let configs: Api<ConfigMap> = Api::namespaced(bed.admin(), NAMESPACE);
    let first = numbered(STRANGER, 0);
    let config = json!({"metadata": {"name": first, "labels": {PLUGIN_LABEL: plugin}}, "data": {"a": "theirs"}});
    let made = configs
        .create(&PostParams::default(), &serde_json::from_value(config)?)
        .await?;
    let uid = made.uid().context("a uid")?;
    copy(
        &bed.cluster,
        &format!("configmaps/{NAMESPACE}/{first}"),
        STRANGER,
        &uid,
        strangers,
    )
    .await;
    seen(&configs, &numbered(STRANGER, strangers - 1)).await;
    Ok(())
}

async fn edit(client: Client) -> Result<()> {
    let configs: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    for number in 0_u64.. {
        let change = Patch::Merge(json!({"data": {"a": number.to_string()}}));
        configs
            .patch(&numbered(STRANGER, 0), &PatchParams::default(), &change)
            .await?;
        pause(BETWEEN_EDITS).await;
    }
    Ok(())
}

/// Adds small plugins in the cloud. Seconds until the object of each is in the cluster.
async fn new_plugins(bed: &Bed, wire: &mut Wire) -> Result<Vec<f64>> {
    let configs: Api<ConfigMap> = Api::namespaced(bed.admin(), "default");
    let (mut events, watch) = follow(configs, watcher::Config::default(), |it| it.metadata.name.clone()).await?;
    let mut seconds = Vec::new();
    for number in 0..ROUNDS {
        pause(CHANGE_INTERVAL).await;
        let name = numbered("small", number);
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let asked = now();
        bed.cloud.add_plugin(wire, &name, &json!([[config]])).await?;
        let at = loop {
            let (at, seen) = next(&mut events).await?;
            if seen == name {
                break at;
            }
        };
        seconds.push(at.saturating_duration_since(asked).as_secs_f64());
    }
    watch.abort();
    Ok(seconds)
}
