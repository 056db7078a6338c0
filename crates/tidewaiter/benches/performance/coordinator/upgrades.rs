//! An upgrade of nodes that take no time: what the coordinator costs for each, how soon the next one is started, and
//! its memory in a large cluster.
//!
//! The upgrade is made in the cloud, so its progress is reported there meanwhile. What a node does is played: as soon
//! as it is current, its kubelet reports the new version. No agent runs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::json;
use tidewaiter_api::containership::{ClusterUpgrade, UpgradeStatus};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::usage::Peak;
use tokio::sync::mpsc::UnboundedReceiver;

use super::bed::{Bed, account, make_nodes_like};
use super::{Sizes, now, pause};
use crate::cloud::server::word;
use crate::cloud::wire::Wire;
use crate::observer::{follow, next};
use crate::process::Role;
use crate::report::{Chapter, count, figure, note, quantile};

const OLD: &str = "v1.35.4";
const TARGET: &str = "v1.36.3";
/// The state of an upgrade that is over.
const OVER: &str = "";

const ENABLED: [(&str, &str); 1] = [("TIDEWAITER_UPGRADES", "enabled")];

/// After the start, until everything that is cached is cached and freed memory is returned.
const SETTLE_DURATION: Duration = Duration::from_secs(20);

/// The cost of an upgrade.
struct Upgraded {
    nodes: usize,
    cpu_seconds: f64,
    writes: usize,
    /// Seconds from the API server's answer that a node has the version and is Ready until the next one is seen to be
    /// current.
    next: Vec<f64>,
    /// The most anonymous memory meanwhile, in MiB.
    peak: f64,
}

/// The results in the large cluster, in MiB.
struct Large {
    /// At rest, without upgrades.
    rest: f64,
    /// At rest, with upgrades enabled.
    enabled: f64,
    upgraded: Upgraded,
}

pub async fn measure(program: &Path, sizes: &Sizes, nodes: u32) -> Result<Chapter> {
    let (few, many) = (sizes.upgraded, usize::try_from(nodes)?);
    note(&format!("upgrades: {few} nodes"));
    let bed = cluster(program, few).await?;
    let coordinator = started(&bed, &ENABLED).await;
    let small = upgrade(&bed, &coordinator, few).await?;
    coordinator.stop().await;
    drop(bed);
    note(&format!("upgrades: {many} nodes at rest"));
    let bed = cluster(program, many).await?;
    let coordinator = started(&bed, &[]).await;
    let rest = coordinator.memory().anonymous;
    coordinator.stop().await;
    let coordinator = started(&bed, &ENABLED).await;
    let enabled = coordinator.memory().anonymous;
    note(&format!("upgrades: {few} of {many} nodes"));
    let upgraded = upgrade(&bed, &coordinator, few).await?;
    coordinator.stop().await;
    let large = Large {
        rest,
        enabled,
        upgraded,
    };
    Ok(chapter(&small, &large, many))
}

fn chapter(small: &Upgraded, large: &Large, many: usize) -> Chapter {
    let nodes = count(small.nodes);
    let at = |of: &Upgraded, part| quantile(of.next.iter().copied(), part) * 1000.0;
    let milliseconds = |what: &str, key, found| figure(what, key, found, " ms", 1);
    let size = |what: &str, key, found| figure(what, key, found, " MiB", 1);
    let Large {
        rest,
        enabled,
        upgraded,
    } = large;
    Chapter {
        key: "upgrades",
        title: format!("An upgrade of {nodes} nodes that take no time, and of as many in a cluster of {many}"),
        figures: vec![
            milliseconds(
                "time on a core for each node",
                "cpu",
                small.cpu_seconds * 1000.0 / nodes,
            )
            .at_most(50.0),
            figure("writes for each node", "writes", count(small.writes) / nodes, "", 2).at_most(6.0),
            milliseconds(
                "from a node's readiness to the next order, p99",
                "next",
                at(small, 0.99),
            )
            .at_most(1000.0),
            milliseconds("  p50", "nextP50", at(small, 0.5)),
            milliseconds(
                &format!("time on a core for each node, of {many}"),
                "cpuLarge",
                upgraded.cpu_seconds * 1000.0 / count(upgraded.nodes),
            ),
            milliseconds(
                "  from a node's readiness to the next order, p99",
                "nextLarge",
                at(upgraded, 0.99),
            ),
            size(
                &format!("memory more than at rest, of {many}"),
                "more",
                upgraded.peak - rest,
            )
            .at_most(30.0),
            size("  at rest, upgrades disabled", "rest", *rest),
            size("  at rest, upgrades enabled", "enabled", *enabled),
            size("  its peak during the upgrade", "peak", upgraded.peak),
        ],
        details: json!({"next": small.next, "nextLarge": upgraded.next, "cpuSeconds": small.cpu_seconds, "writes": small.writes}),
    }
}

/// A cluster with this number of nodes at the old version, which may be upgraded.
async fn cluster(program: &Path, nodes: usize) -> Result<Bed> {
    let bed = Bed::start(program, 1).await?;
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/coordinator/upgrades");
    bed.cluster.apply_manifests(deploy).await;
    let first = node("node-00000")
        .internal_ip("172.20.0.1")
        .label(MANAGED_LABEL, MANAGED_VALUE);
    make_nodes_like(
        &bed.cluster,
        &first.build(),
        &json!({"nodeInfo": {"kubeletVersion": OLD}}),
        nodes,
    )
    .await?;
    Ok(bed)
}

async fn started(bed: &Bed, settings: &[(&str, &str)]) -> Role {
    let coordinator = bed.coordinator_with(settings);
    coordinator.ready().await;
    pause(SETTLE_DURATION).await;
    coordinator
}

/// Upgrades this number of nodes.
async fn upgrade(bed: &Bed, coordinator: &Role, nodes: usize) -> Result<Upgraded> {
    let upgrades = Api::<ClusterUpgrade>::namespaced(bed.admin(), CONTAINERSHIP_NAMESPACE);
    let (mut seen, watch) = follow(upgrades, watcher::Config::default(), current).await?;
    let mark = bed.cluster.audit_mark().await;
    let (cpu, mut peak) = (coordinator.cpu_seconds(), Peak::begin(coordinator.process.pid()));
    let mut wire = Wire::open(bed.cloud.address).await?;
    let path = format!("{}/upgrades", bed.cloud.clusters[0].path);
    let body = json!({"type": "kubernetes", "targetVersion": TARGET, "labelSelector": [], "nodeTimeoutSeconds": 3600,
        "policy": {"minReadySeconds": 0}});
    let made = bed.cloud.ask(&mut wire, "POST", &path, &body).await?;
    let all: Api<Node> = Api::all(bed.admin());
    let version = Patch::Strategic(json!({"status": {"nodeInfo": {"kubeletVersion": TARGET}}}));
    let (mut last, mut next) = (String::new(), Vec::new());
    let mut ready: Option<Instant> = None;
    for upgraded in 0..=nodes {
        let (at, name) = other(&mut seen, &last).await?;
        if let Some(ready) = ready {
            next.push(at.saturating_duration_since(ready).as_secs_f64());
        }
        if name == OVER || upgraded == nodes {
            break;
        }
        all.patch_status(&name, &PatchParams::default(), &version).await?;
        ready = Some(now());
        peak.look();
        last = name;
    }
    ensure!(
        next.len() == nodes,
        "only {} of {nodes} nodes were upgraded",
        next.len()
    );
    let cpu_seconds = coordinator.cpu_seconds() - cpu;
    let audit = bed.cluster.audit().await.since(mark).by(&account()).writes();
    let writes = audit.filter(|entry| entry.object_ref.resource != "leases").count();
    let peak = peak.end().anonymous;
    watch.abort();
    // The next one begins on a cluster without an upgrade in progress.
    bed.cloud
        .delete(&mut wire, &format!("{path}/{}", word(&made, "id")?))
        .await?;
    Ok(Upgraded {
        nodes,
        cpu_seconds,
        writes,
        next,
        peak,
    })
}

/// The node that is current, or that the upgrade is over; None in between.
fn current(upgrade: &ClusterUpgrade) -> Option<String> {
    let progress = upgrade.spec.status.as_ref()?;
    match progress.cluster_status {
        UpgradeStatus::Success | UpgradeStatus::Failed => Some(OVER.to_owned()),
        _ => Some(progress.current_node.clone()).filter(|node| !node.is_empty()),
    }
}

/// Returns the first state that is not `last`.
async fn other(seen: &mut UnboundedReceiver<(Instant, String)>, last: &str) -> Result<(Instant, String)> {
    loop {
        let (at, name) = next(seen).await.with_context(|| format!("nothing follows {last:?}"))?;
        if name != last {
            return Ok((at, name));
        }
    }
}
