//! Plugins of 500 objects: the time to apply one, a second pass, drift, and the memory with many.
//!
//! The bare client applies the same objects in the same order: the namespace first. It takes turns with the
//! coordinator, on the same API server, and each begins every other turn.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::{Value, json};
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_testkit::usage::Memory;
use tidewaiter_testkit::{Audit, AuditEntry, AuditMark, ControlPlane, eventually};

use super::applies::{self, send, span};
use super::bed::{Bed, LONG, account, numbered};
use super::{now, pause};
use crate::cloud::wire::Wire;
use crate::observer::{follow, next};
use crate::process::{Role, SOON};
use crate::report::{Chapter, count, figure, median, most, note};
use contents::{CONTENTS, labelled, name, objects};

mod contents;

const PLUGINS: usize = 20;
/// The first of them are applied one after the other, each while nothing else happens.
const ALONE: usize = 15;
/// The number of changes of an object. A controller corrects the objects of a plugin 20 times at once, and then once in
/// ten seconds.
const EDITS: usize = 15;
const CHANGE_INTERVAL: Duration = Duration::from_millis(400);

const OBJECTS: usize = 500;

/// As the audit log has the field manager of the plugin controller.
const MANAGER: &str = "fieldManager=tidewaiter%2Fplugin";

/// The results of the coordinator.
struct Found {
    /// From the Plugin in the cluster to the last object, of each plugin that was applied alone.
    alone: Vec<f64>,
    /// The same of the bare client.
    bare: Vec<f64>,
    /// The lists of a second pass by resource, and its writes.
    lists: BTreeMap<String, usize>,
    again: Vec<String>,
    /// The writes after a restart.
    restarted: Vec<String>,
    /// From the end of an edit until a watcher sees the object as it was.
    drift: Vec<f64>,
    /// Of all other plugins at once.
    together: f64,
    cpu_seconds: f64,
    /// Of the process that applied everything, and of a new one.
    memory: [Memory; 2],
}

pub async fn measure(program: &Path) -> Result<Chapter> {
    Ok(chapter(&of_coordinator(program).await?))
}

fn chapter(found: &Found) -> Chapter {
    let middle = |seconds: &[f64]| median(seconds.iter().copied());
    let seconds = |what: &str, key, seconds| figure(what, key, seconds, " s", 2);
    let number = |what: &str, key, number| figure(what, key, count(number), "", 0);
    let size = |what: &str, key, size| figure(what, key, size, " MiB", 1);
    let [first, new] = found.memory;
    let lists = found.lists.values().max().copied().unwrap_or_default();
    Chapter {
        key: "plugins",
        title: format!("{PLUGINS} plugins of {OBJECTS} objects"),
        figures: vec![
            figure(
                "a plugin is applied, coordinator / bare client",
                "ratio",
                median(found.alone.iter().zip(&found.bare).map(|(ours, bare)| ours / bare)),
                "",
                2,
            )
            .at_most(1.25),
            seconds("  coordinator", "seconds", middle(&found.alone)),
            seconds("  bare client", "bareSeconds", middle(&found.bare)),
            seconds(&format!("  {} at once", PLUGINS - ALONE), "together", found.together),
            seconds(
                "  time on a core, coordinator, for all",
                "cpuSeconds",
                found.cpu_seconds,
            ),
            number("lists of a kind in a second pass, the most", "lists", lists).at_most(1.0),
            number("writes of a second pass", "secondPass", found.again.len()).at_most(0.0),
            number("writes after a restart", "restart", found.restarted.len()).at_most(0.0),
            seconds(
                "drift of an object is undone, the longest",
                "drift",
                most(found.drift.iter().copied()),
            )
            .at_most(1.0),
            seconds("  median", "driftP50", middle(&found.drift)),
            size(
                "memory of the process alone, of a new process",
                "anonymous",
                new.anonymous,
            )
            .at_most(60.0),
            size(
                "  of the process that applied everything",
                "anonymousFirst",
                first.anonymous,
            )
            .at_most(60.0),
            size(
                "  resident, with the pages of the program's file",
                "resident",
                new.resident,
            ),
            size("  its peak", "peakResident", new.peak),
        ],
        details: json!({
            "bare": found.bare, "alone": found.alone, "drift": found.drift, "lists": found.lists, "secondPass": found.again,
            "restart": found.restarted,
        }),
    }
}

/// Seconds of the bare client for the objects of a plugin.
async fn bare(cluster: &ControlPlane, number: usize) -> Result<f64> {
    let mut objects = objects(&numbered("bare", number)).into_iter();
    let mark = cluster.audit_mark().await;
    send(cluster, objects.next().map(labelled).into_iter().collect()).await?;
    send(cluster, objects.map(labelled).collect()).await?;
    let writes = cluster.audit().await.since(mark).by(&account()).writes();
    span(&writes.filter(|entry| entry.uri.contains(applies::MANAGER)))
}

/// Lets the service account apply plugins.
pub async fn permit(cluster: &ControlPlane) {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    cluster.apply_manifests(deploy.join("coordinator/plugins")).await;
    let all: Api<ConfigMap> = Api::all(cluster.client(&account()));
    eventually("the permission to apply plugins", SOON, async || {
        let listed = all.list_metadata(&ListParams::default().limit(1)).await;
        listed.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

async fn of_coordinator(program: &Path) -> Result<Found> {
    let bed = Bed::start(program, 1).await?;
    permit(&bed.cluster).await;
    let coordinator = bed.coordinator();
    coordinator.ready().await;
    let mut wire = Wire::open(bed.cloud.address).await?;
    let before = coordinator.cpu_seconds();
    let (mut alone, mut bare_client, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..ALONE {
        note(&format!("plugins: {} of {PLUGINS}", number + 1));
        // The second pays for garbage of the first, for example in the API server.
        for turn in [number, number + 1] {
            settle(&coordinator).await?;
            if turn % 2 == 0 {
                bare_client.push(bare(&bed.cluster, number).await?);
                continue;
            }
            let mark = bed.cluster.audit_mark().await;
            ids.push(add(&bed, &mut wire, number).await?);
            applied(&bed, &ids).await;
            alone.push(span(&applying(&bed.cluster, mark).await)?);
        }
    }
    note("plugins: a second pass");
    let (lists, again) = pass_again(&bed, &coordinator, &ids[0]).await?;
    note(&format!("plugins: {EDITS} edits"));
    let drift = drift(&bed).await?;
    note("plugins: the others at once");
    settle(&coordinator).await?;
    let mark = bed.cluster.audit_mark().await;
    for number in ALONE..PLUGINS {
        ids.push(add(&bed, &mut wire, number).await?);
    }
    applied(&bed, &ids).await;
    let together = span(&applying(&bed.cluster, mark).await)?;
    let cpu_seconds = coordinator.cpu_seconds() - before;
    rest(&coordinator).await?;
    let first = coordinator.memory();
    coordinator.stop().await;
    note("plugins: a new process");
    let mark = bed.cluster.audit_mark().await;
    let coordinator = bed.coordinator();
    passed(&coordinator, count(PLUGINS)).await;
    rest(&coordinator).await?;
    let restarted = written(&bed.cluster.audit().await.since(mark));
    let new = coordinator.memory();
    coordinator.stop().await;
    Ok(Found {
        alone,
        bare: bare_client,
        lists,
        again,
        restarted,
        drift,
        together,
        cpu_seconds,
        memory: [first, new],
    })
}

/// The cluster gets the `number`th plugin in the cloud. Returns its id.
pub async fn add(bed: &Bed, wire: &mut Wire, number: usize) -> Result<String> {
    let mut objects = objects(&numbered("plugin", number)).into_iter();
    let namespace = objects.next().map(|(_, namespace)| namespace);
    let rest: Vec<Value> = objects.map(|(_, object)| object).collect();
    let kind = format!("kind-{number}");
    bed.cloud.add_plugin(wire, &kind, &json!([[namespace], rest])).await
}

/// Waits until these plugins are applied to their ends.
pub async fn applied(bed: &Bed, ids: &[String]) {
    let plugins: Api<Plugin> = Api::namespaced(bed.admin(), CONTAINERSHIP_NAMESPACE);
    for id in ids {
        eventually(format!("the plugin {id} to be applied"), LONG, async || {
            let status = plugins.get(id).await.map_err(|error| error.to_string())?.status;
            let conditions = status.iter().flat_map(|status| &status.conditions);
            let ready = conditions
                .clone()
                .any(|it| it.type_ == "Ready" && it.reason == "Applied");
            if ready {
                return Ok(());
            }
            Err(conditions
                .map(|it| format!("{}: {}", it.type_, it.message))
                .collect::<Vec<_>>()
                .join("; "))
        })
        .await;
    }
}

/// From the Plugin that the mirror creates to the last object.
async fn applying(cluster: &ControlPlane, mark: AuditMark) -> Audit {
    let concerned = |entry: &AuditEntry| match entry.object_ref.resource.as_str() {
        "plugins" => entry.response_status.code == 201,
        "plugininventories" => false,
        _ => entry.uri.contains(MANAGER),
    };
    cluster
        .audit()
        .await
        .since(mark)
        .by(&account())
        .writes()
        .filter(concerned)
}

/// The writes of the plugin controller.
fn written(audit: &Audit) -> Vec<String> {
    let writes = audit.clone().by(&account()).writes();
    let ours = writes.filter(|entry| entry.uri.contains(MANAGER) || entry.verb == "delete");
    ours.iter()
        .map(|entry| format!("{} {}", entry.verb, entry.uri))
        .collect()
}

/// Has the controller look at the plugin once more. The lists by resource, and the writes.
async fn pass_again(bed: &Bed, coordinator: &Role, id: &str) -> Result<(BTreeMap<String, usize>, Vec<String>)> {
    settle(coordinator).await?;
    let (mark, before) = (bed.cluster.audit_mark().await, passes(coordinator).await?);
    let plugins: Api<Plugin> = Api::namespaced(bed.admin(), CONTAINERSHIP_NAMESPACE);
    let noted = json!({"metadata": {"annotations": {"example.com/note": "looked at"}}});
    plugins.patch(id, &PatchParams::default(), &Patch::Merge(noted)).await?;
    passed(coordinator, before + 1.0).await;
    settle(coordinator).await?;
    let audit = bed.cluster.audit().await.since(mark);
    let mut lists = BTreeMap::new();
    let listing = audit.clone().by(&account()).verb("list");
    // Not the further pages of a list.
    for entry in &listing.filter(|entry| entry.uri.contains(id) && !entry.uri.contains("continue=")) {
        *lists.entry(entry.object_ref.resource.clone()).or_default() += 1;
    }
    // The namespace is read by its name.
    ensure!(lists.len() == CONTENTS.len(), "a pass lists each kind: {lists:?}");
    Ok((lists, written(&audit)))
}

/// Changes one object after the other. Seconds until each was as before.
async fn drift(bed: &Bed) -> Result<Vec<f64>> {
    let namespace = numbered("plugin", 0);
    let maps: Api<ConfigMap> = Api::namespaced(bed.admin(), &namespace);
    let mode = |map: &ConfigMap| {
        let mode = map.data.as_ref()?.get("mode")?;
        Some(format!("{} {mode}", map.metadata.name.as_deref()?))
    };
    let (mut events, watch) = follow(maps.clone(), watcher::Config::default(), mode).await?;
    let mut seconds = Vec::new();
    for number in 0..EDITS {
        pause(CHANGE_INTERVAL).await;
        let edit = json!({"data": {"mode": "edited"}});
        maps.patch(&name(number), &PatchParams::default(), &Patch::Merge(edit))
            .await?;
        let edited = now();
        let restored = format!("{} plain", name(number));
        let seen = async {
            loop {
                let (at, seen) = next(&mut events).await?;
                if seen == restored {
                    return anyhow::Ok(at);
                }
            }
        };
        let seen = tokio::time::timeout(SOON, seen).await;
        let at = seen.with_context(|| format!("{restored} was not seen within {SOON:?}"))??;
        seconds.push(at.saturating_duration_since(edited).as_secs_f64());
    }
    watch.abort();
    Ok(seconds)
}

/// The passes of the controller so far.
async fn passes(coordinator: &Role) -> Result<f64> {
    coordinator
        .total("tidewaiter_reconciles_total{controller=\"plugin\"")
        .await
}

async fn passed(coordinator: &Role, wanted: f64) {
    eventually(format!("{wanted} passes over plugins"), LONG, async || {
        match passes(coordinator).await {
            Ok(passes) if passes >= wanted => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Waits until no more passes take place.
async fn settle(coordinator: &Role) -> Result<()> {
    let mut before = passes(coordinator).await?;
    loop {
        pause(Duration::from_secs(1)).await;
        let now = passes(coordinator).await?;
        if now - before < 1.0 {
            return Ok(());
        }
        before = now;
    }
}

/// The same, and until what is free went back to the system.
async fn rest(coordinator: &Role) -> Result<()> {
    settle(coordinator).await?;
    pause(Duration::from_secs(5)).await;
    Ok(())
}
