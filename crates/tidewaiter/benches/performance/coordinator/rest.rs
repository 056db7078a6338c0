//! The coordinator of a big cluster in which nothing changes: its memory, its CPU time, and what it asks the cloud.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_testkit::eventually;
use tidewaiter_testkit::usage::Memory;

use super::bed::{Bed, LONG, make_namespaces, make_nodes, numbered};
use super::namespaces::settle;
use super::{Sizes, pause};
use crate::cloud::server::Cloud;
use crate::cloud::wire::Wire;
use crate::process::{Role, page};
use crate::report::{Chapter, count, figure, most, note};
use crate::steady::REPORT_EVERY;

const SETTING_UP: usize = 64;

/// The time for which heartbeats are sent.
const HEARTBEATS: Duration = Duration::from_mins(1);

/// The results.
struct Found {
    empty: Memory,
    /// Of the process that created everything.
    first: Memory,
    rest: Memory,
    /// After heartbeats.
    after: Memory,
    /// Of a core, at rest and with heartbeats.
    cores: [f64; 2],
    /// Requests to the cloud in a minute, by list.
    asked: BTreeMap<String, f64>,
}

pub async fn measure(program: &Path, sizes: &Sizes, nodes: u32) -> Result<Chapter> {
    let (namespaces, nodes) = (sizes.namespaces, usize::try_from(nodes)?);
    note("rest: an empty cluster");
    let bed = Bed::start(program, 1).await?;
    let (coordinator, empty) = restarted(&bed, None).await?;
    coordinator.stop().await;
    note(&format!("rest: {namespaces} namespaces, {nodes} Nodes"));
    let all = make_namespaces(&bed.cluster, namespaces).await?;
    make_nodes(&bed.cluster, nodes).await?;
    name_in_cloud(&bed.cloud, nodes).await?;
    let (coordinator, first) = restarted(&bed, Some((all, nodes))).await?;
    coordinator.stop().await;
    note("rest: a new process, for as long as it is at rest");
    let (coordinator, _) = restarted(&bed, None).await?;
    pause(HEARTBEATS).await;
    let (before, cpu) = (asked(&bed.cloud).await?, coordinator.cpu_seconds());
    note(&format!("rest: {} s", sizes.rest_seconds));
    let time = Duration::from_secs(sizes.rest_seconds.into());
    pause(time).await;
    let core = (coordinator.cpu_seconds() - cpu) / time.as_secs_f64();
    let asked = per_minute(&before, &asked(&bed.cloud).await?, time.as_secs_f64() / 60.0);
    let rest = coordinator.memory();
    note("rest: heartbeats");
    let cpu = coordinator.cpu_seconds();
    heartbeats(&bed, nodes).await?;
    let beating = (coordinator.cpu_seconds() - cpu) / HEARTBEATS.as_secs_f64();
    let after = coordinator.memory();
    coordinator.stop().await;
    let found = Found {
        empty,
        first,
        rest,
        after,
        cores: [core, beating],
        asked,
    };
    let title = format!("The coordinator at rest, {namespaces} namespaces and {nodes} nodes");
    Ok(chapter(title, &found))
}

fn chapter(title: String, found: &Found) -> Chapter {
    let Found {
        empty,
        first,
        rest,
        after,
        asked,
        ..
    } = found;
    let size = |what: &str, key, found| figure(what, key, found, " MiB", 1);
    let share = |what: &str, key, found: f64| figure(what, key, found * 100.0, " %", 2);
    let lists = |what: &str, key, found| figure(what, key, found, "", 2);
    Chapter {
        key: "rest",
        title,
        figures: vec![
            size("memory of the process alone", "anonymous", rest.anonymous).at_most(40.0),
            size(
                "  of the process that created everything",
                "anonymousFirst",
                first.anonymous,
            ),
            size("  after heartbeats", "anonymousAfter", after.anonymous),
            size("  in an empty cluster", "anonymousEmpty", empty.anonymous),
            size(
                "  resident, with the pages of the program's file",
                "resident",
                rest.resident,
            ),
            size("  its peak, at the first lists", "peakResident", rest.peak),
            share("a core", "core", found.cores[0]).at_most(0.5),
            share("  with the heartbeats of all Nodes", "coreHeartbeats", found.cores[1]),
            lists(
                "requests to the cloud a minute, of the list with the most",
                "asked",
                most(asked.values().copied()),
            )
            .at_most(1.0),
            lists("  all lists together", "askedAll", asked.values().sum()),
        ],
        details: json!({"askedPerMinute": asked, "memory": rest, "first": first, "after": after, "empty": empty}),
    }
}

/// The memory of a new coordinator when it has nothing more to do.
async fn restarted(bed: &Bed, work: Option<(usize, usize)>) -> Result<(Role, Memory)> {
    let coordinator = bed.coordinator();
    coordinator.ready().await;
    if let Some((namespaces, nodes)) = work {
        complete(&coordinator, namespaces, nodes).await;
    }
    settle(&coordinator).await?;
    let memory = coordinator.memory();
    Ok((coordinator, memory))
}

/// The Nodes are those of the cluster's node pool.
async fn name_in_cloud(cloud: &Cloud, nodes: usize) -> Result<()> {
    let mut wire = Wire::open(cloud.address).await?;
    let pools = format!("{}/node-pools", cloud.clusters[0].path);
    let pool = cloud.ask(&mut wire, "GET", &pools, &Value::Null).await?;
    let pool = pool[0]["id"].as_str().context("a node pool")?.to_owned();
    let path = format!("{pools}/{pool}/nodes");
    let all = stream::iter((0..SETTING_UP).map(Ok::<_, anyhow::Error>));
    all.try_for_each_concurrent(None, |first| {
        let path = &path;
        async move {
            let mut wire = Wire::open(cloud.address).await?;
            for number in (first..nodes).step_by(SETTING_UP) {
                cloud
                    .ask(&mut wire, "POST", path, &json!({"name": numbered("node", number)}))
                    .await?;
            }
            Ok(())
        }
    })
    .await
}

/// Waits until every namespace has its children, every Node its label, and the cloud every status.
async fn complete(coordinator: &Role, namespaces: usize, nodes: usize) {
    let of = |resource: &str, verb: &str| {
        format!("tidewaiter_writes_total{{outcome=\"ok\",resource=\"{resource}\",verb=\"{verb}\"}}")
    };
    let wanted = [
        // The empty cluster had some of them.
        (of("secrets", "create"), count(2 * namespaces) - 100.0),
        (of("nodes", "patch"), count(nodes)),
        (
            "tidewaiter_reconciles_total{controller=\"reports\",outcome=\"ok\"}".to_owned(),
            count(nodes),
        ),
    ];
    for (series, wanted) in wanted {
        eventually(format!("{wanted} of {series}"), LONG, async || {
            let found = coordinator.series(&series).await.map_err(|error| error.to_string())?;
            if found >= wanted {
                Ok(())
            } else {
                Err(found.to_string())
            }
        })
        .await;
    }
}

/// Every Node reports as often as its kubelet does when nothing changes.
async fn heartbeats(bed: &Bed, nodes: usize) -> Result<()> {
    let api: Api<Node> = Api::all(bed.admin());
    let mut pace = tokio::time::interval(REPORT_EVERY.div_f64(count(nodes)));
    let beats = HEARTBEATS.as_secs_f64() / REPORT_EVERY.as_secs_f64() * count(nodes);
    for number in (0..nodes).take_while(|number| count(*number) < beats) {
        pace.tick().await;
        let time = format!("2026-01-12T10:{:02}:{:02}Z", number / 60 % 60, number % 60);
        let status = json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": time}]}});
        api.patch_status(
            &numbered("node", number),
            &PatchParams::default(),
            &Patch::Strategic(status),
        )
        .await?;
    }
    Ok(())
}

/// The requests to the cloud so far, by the path of the list.
async fn asked(cloud: &Cloud) -> Result<BTreeMap<String, f64>> {
    let page = page(&format!("http://{}/metrics", cloud.admin)).await?;
    let mut paths = BTreeMap::new();
    for line in page.lines() {
        let Some(series) = line.strip_prefix("tidewaiter_cloud_requests_total{method=\"GET\",path=\"") else {
            continue;
        };
        let (path, rest) = series.split_once('"').context("a path")?;
        let value: f64 = rest.rsplit(' ').next().context("a value")?.parse()?;
        *paths.entry(path.to_owned()).or_default() += value;
    }
    Ok(paths)
}

fn per_minute(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, minutes: f64) -> BTreeMap<String, f64> {
    let rate = |(path, count): (&String, &f64)| {
        (
            path.clone(),
            (count - before.get(path).copied().unwrap_or_default()) / minutes,
        )
    };
    let rates = after.iter().map(rate);
    rates.filter(|(_, rate)| *rate > 0.0).collect()
}
