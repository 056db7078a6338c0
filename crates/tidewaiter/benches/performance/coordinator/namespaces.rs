//! A service account and the pull secrets of two registries in every one of many namespaces.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tidewaiter_testkit::usage::Memory;
use tidewaiter_testkit::{Audit, eventually};

use super::bare::Bodies;
use super::bed::{Bed, HOSTS, LONG, account, make_namespaces};
use super::{Sizes, now, pause};
use crate::cloud::wire::Wire;
use crate::process::Role;
use crate::report::{Chapter, count, figure, note};

/// The number of measurements of the coordinator, with the bare client before and after: the speed of a machine changes
/// by a quarter within minutes.
const TURNS: usize = 3;

/// The interval at which the metrics are read, which take time on the cores that are measured.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The results of the coordinator.
struct Found {
    rate: Rate,
    /// Seconds from the start of the process until every namespace had its children.
    filled: f64,
    memory: Memory,
    cpu_seconds: f64,
    /// Writes after a restart, in a pass over every namespace.
    restarted: Vec<String>,
    /// Seconds until a changed credential, and the removal of a registry, was in every namespace.
    changed: f64,
    removed: f64,
}

pub async fn measure(program: &Path, sizes: &Sizes) -> Result<Chapter> {
    let number = sizes.namespaces;
    note("namespaces: learning what the coordinator creates");
    let bodies = Bodies::learn(program).await?;
    note(&format!("namespaces: the bare client in {number}"));
    let mut bare = vec![Rate::of(&bodies.create(number).await?)?];
    let (mut rates, mut found) = (Vec::new(), None);
    for turn in 1..=TURNS {
        note("namespaces: the coordinator");
        let filled = Filled::of(program, number).await?;
        if turn < TURNS {
            rates.push(filled.rate);
            filled.coordinator.stop().await;
        } else {
            found = Some(of_coordinator(filled).await?);
        }
        note("namespaces: the bare client again");
        bare.push(Rate::of(&bodies.create(number).await?)?);
    }
    let found = found.context("a turn")?;
    let title = format!("A service account and 2 pull secrets in each of {number} namespaces");
    Ok(chapter(title, &found, &rates, &bare))
}

/// A cluster whose namespaces a coordinator has filled.
struct Filled {
    bed: Bed,
    coordinator: Role,
    namespaces: usize,
    rate: Rate,
    seconds: f64,
}

impl Filled {
    async fn of(program: &Path, number: usize) -> Result<Self> {
        let bed = Bed::start(program, 1).await?;
        let namespaces = make_namespaces(&bed.cluster, number).await?;
        let begin = now();
        let coordinator = bed.coordinator();
        let seconds = filled(&coordinator, namespaces, begin).await?;
        let rate = Rate::of(&bed.cluster.audit().await.by(&account()).writes())?;
        note(&format!("namespaces: {rate:?}"));
        Ok(Self {
            bed,
            coordinator,
            namespaces,
            rate,
            seconds,
        })
    }
}

async fn of_coordinator(filled: Filled) -> Result<Found> {
    let Filled {
        bed,
        coordinator,
        namespaces,
        rate,
        seconds: filled,
    } = filled;
    let (memory, cpu_seconds) = (coordinator.memory(), coordinator.cpu_seconds());
    let changed = change_credential(&bed, &coordinator, namespaces).await?;
    coordinator.stop().await;
    let mark = bed.cluster.audit_mark().await;
    let coordinator = bed.coordinator();
    passed(&coordinator, namespaces).await;
    settle(&coordinator).await?;
    let restarted = bed.children_written(mark).await;
    let removed = remove_registry(&bed, &coordinator, namespaces).await?;
    coordinator.stop().await;
    Ok(Found {
        rate,
        filled,
        memory,
        cpu_seconds,
        restarted,
        changed,
        removed,
    })
}

fn chapter(title: String, found: &Found, before: &[Rate], bare: &[Rate]) -> Chapter {
    let mean = |rates: &[&Rate]| rates.iter().map(|rate| rate.creations_per_second).sum::<f64>() / count(rates.len());
    let of_coordinator: Vec<&Rate> = before.iter().chain([&found.rate]).collect();
    let (rate, bare_rate) = (mean(&of_coordinator), mean(&bare.iter().collect::<Vec<_>>()));
    let seconds = |what: &str, key, seconds| figure(what, key, seconds, " s", 1);
    let number = |what: &str, key, number| figure(what, key, number, "", 0);
    let ratio = rate / bare_rate;
    Chapter {
        key: "namespaces",
        title,
        figures: vec![
            figure("creations a second, coordinator / bare client", "ratio", ratio, "", 2).at_least(0.9),
            number("  coordinator", "rate", rate),
            number("  bare client", "bareRate", bare_rate),
            seconds("  from the start of the process", "filled", found.filled),
            number(
                "  writes that are no creations",
                "otherWrites",
                count(found.rate.others),
            ),
            seconds("  time on a core, coordinator", "cpuSeconds", found.cpu_seconds),
            figure(
                "  memory of the process alone afterwards",
                "anonymous",
                found.memory.anonymous,
                " MiB",
                1,
            ),
            number("writes after a restart", "restart", count(found.restarted.len())).at_most(0.0),
            seconds("a changed credential in all namespaces", "changed", found.changed),
            seconds("a registry removed from all namespaces", "removed", found.removed),
        ],
        details: json!({
            "bare": bare.iter().map(Rate::seen).collect::<Vec<_>>(), "coordinator": of_coordinator.iter().map(|rate| rate.seen()).collect::<Vec<_>>(),
            "restart": found.restarted,
        }),
    }
}

/// The children of namespaces in an audit log.
#[derive(Debug)]
struct Rate {
    /// From the first write to the last one.
    creations_per_second: f64,
    creations: usize,
    others: usize,
}

impl Rate {
    fn of(audit: &Audit) -> Result<Self> {
        let children = audit
            .clone()
            .filter(|entry| matches!(entry.object_ref.resource.as_str(), "secrets" | "serviceaccounts"));
        // The copies only: the mirror writes the Secrets with the credentials.
        let children = children.filter(|entry| !entry.uri.contains("/registry-"));
        let times = || children.iter().map(|entry| entry.request_received_timestamp);
        let (first, last) = (times().min().context("no write")?, times().max().context("no write")?);
        let creations = children
            .iter()
            .filter(|entry| entry.verb == "create" && entry.response_status.code == 201)
            .count();
        Ok(Self {
            creations_per_second: count(creations) / last.duration_since(first).as_secs_f64(),
            creations,
            others: children.count() - creations,
        })
    }

    fn seen(&self) -> Value {
        json!({"creationsPerSecond": self.creations_per_second, "creations": self.creations, "others": self.others})
    }
}

/// Seconds until every namespace has its children, and nothing more is written.
async fn filled(coordinator: &Role, namespaces: usize, begin: Instant) -> Result<f64> {
    written(coordinator, "secrets", "create", count(2 * namespaces)).await;
    written(coordinator, "serviceaccounts", "create", count(namespaces)).await;
    let seconds = begin.elapsed().as_secs_f64();
    settle(coordinator).await?;
    Ok(seconds)
}

async fn change_credential(bed: &Bed, coordinator: &Role, namespaces: usize) -> Result<f64> {
    note("namespaces: a changed credential");
    let before = writes(coordinator, "secrets", "patch").await?;
    bed.registries.accept(HOSTS[0], &["u:changed"]);
    let mut wire = Wire::open(bed.cloud.address).await?;
    let begin = now();
    let credentials = json!({"credentials": {"username": "u", "password": "changed"}});
    bed.cloud
        .ask(&mut wire, "PATCH", &bed.cloud.registries[0], &credentials)
        .await?;
    written(coordinator, "secrets", "patch", before + count(namespaces)).await;
    let seconds = begin.elapsed().as_secs_f64();
    settle(coordinator).await?;
    Ok(seconds)
}

async fn remove_registry(bed: &Bed, coordinator: &Role, namespaces: usize) -> Result<f64> {
    note("namespaces: a registry is removed");
    let mut wire = Wire::open(bed.cloud.address).await?;
    let begin = now();
    bed.cloud.delete(&mut wire, &bed.cloud.registries[1]).await?;
    written(coordinator, "secrets", "delete", count(namespaces)).await;
    written(coordinator, "serviceaccounts", "patch", count(namespaces)).await;
    Ok(begin.elapsed().as_secs_f64())
}

async fn writes(coordinator: &Role, resource: &str, verb: &str) -> Result<f64> {
    let series = format!("tidewaiter_writes_total{{outcome=\"ok\",resource=\"{resource}\",verb=\"{verb}\"}}");
    let found = coordinator.series(&series).await?;
    Ok(if found.is_nan() { 0.0 } else { found })
}

/// Waits until the coordinator has made this number of writes.
async fn written(coordinator: &Role, resource: &str, verb: &str, wanted: f64) {
    eventually(format!("{wanted} of {verb} {resource}"), LONG, async || {
        pause(LOOK_EVERY).await;
        let found = writes(coordinator, resource, verb)
            .await
            .map_err(|error| error.to_string())?;
        if found >= wanted {
            Ok(())
        } else {
            Err(format!("{found}"))
        }
    })
    .await;
}

/// The passes so far of the two controllers that look at namespaces.
async fn passes(coordinator: &Role) -> Result<[f64; 2]> {
    let of = async |controller: &str| {
        let series = format!("tidewaiter_reconciles_total{{controller=\"{controller}\",outcome=\"ok\"}}");
        let found = coordinator.series(&series).await?;
        anyhow::Ok(if found.is_nan() { 0.0 } else { found })
    };
    Ok([of("containership").await?, of("pullsecret").await?])
}

/// Waits until both have looked at every namespace.
async fn passed(coordinator: &Role, namespaces: usize) {
    eventually("a pass over every namespace", LONG, async || {
        let now = passes(coordinator).await.map_err(|error| error.to_string())?;
        if now.iter().all(|now| *now >= count(namespaces)) {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    })
    .await;
}

/// Waits until no more passes take place.
pub async fn settle(coordinator: &Role) -> Result<()> {
    let mut before = passes(coordinator).await?;
    loop {
        pause(Duration::from_secs(2)).await;
        let now = passes(coordinator).await?;
        if (now[0] - before[0]) + (now[1] - before[1]) < 1.0 {
            return Ok(());
        }
        before = now;
    }
}
