//! The verdict on a cluster of 5,000 Nodes and 150,000 pods: what it costs to hold, how soon it is there after a
//! change, how fast it is told, and how long `tidewaiter validate` takes for one.

mod changes;
mod churn;
mod scrapes;
mod validate;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use tidewaiter_testkit::usage::Memory;
use tidewaiter_testkit::{ApiProxy, eventually};

use crate::bed::Bed;
use crate::observer::Observer;
use crate::pods::{self, PODS};
use crate::process::{self, Role};
use crate::report::{Chapter, Figure, count, figure, median, note, quantile};
use crate::steady::{REPORT_EVERY, heartbeats};
use changes::{Delays, Probe};
use churn::{Churn, Churned};
use scrapes::Scraper;
use validate::Validated;

const HEARTBEAT_SECONDS: u32 = 60;
/// Longer than the first verdict takes.
const SOON: Duration = Duration::from_mins(2);

/// The measurements in one state of the cluster.
struct Measured {
    /// Seconds that each scrape took.
    scrapes: Vec<f64>,
    delays: Delays,
}

pub async fn measure(bed: &Bed) -> Result<Chapter> {
    let nodes = bed.instances.len();
    let proxy = ApiProxy::start(&bed.cluster, &Bed::account());
    label_all(bed).await?;
    note(&format!("verdict: the first one, with {PODS} pods"));
    pods::feed(bed, &proxy).await?;
    let (controller, first) = first_verdict(bed, &proxy).await?;
    let listed = controller.memory();
    let rate = count(nodes) / REPORT_EVERY.as_secs_f64();
    note(&format!("verdict: {HEARTBEAT_SECONDS} s at rest"));
    let before = controller.cpu_seconds();
    heartbeats(bed, rate, HEARTBEAT_SECONDS).await?;
    let idle = (controller.cpu_seconds() - before) / f64::from(HEARTBEAT_SECONDS);
    let at_rest = controller.memory();

    let mut probe = Probe::start(bed, &controller).await?;
    note("verdict: scrapes and changes at rest");
    let rest = Measured {
        scrapes: scrapes::many(&controller).await?,
        delays: probe.delays().await?,
    };
    note("verdict: tidewaiter validate");
    let validated = validate::measure(bed, &proxy).await?;
    note("verdict: while everything changes");
    let churn = Churn::start(bed).await?;
    let churned = churn.watch(&controller).await?;
    let busy = Measured {
        scrapes: scrapes::many(&controller).await?,
        delays: probe.delays().await?,
    };
    let memory = [listed, at_rest, controller.memory()];
    churn.end(bed).await?;
    ensure!(
        controller.process.is_running(),
        "the controller ended:\n{}",
        controller.process.log_tail()
    );
    controller.stop().await;
    bed.clear().await?;

    let mut figures = costs(&memory, first, idle, &churned);
    figures.extend(speeds(&rest, &busy));
    figures.extend(of_validate(&validated));
    let (rest, busy) = (&rest.delays, &busy.delays);
    Ok(Chapter {
        key: "verdict",
        title: format!("The verdict on {nodes} nodes and {PODS} pods"),
        figures,
        details: json!({"memory": memory, "churn": churned, "delays": {"rest": rest, "churn": busy}, "validate": validated}),
    })
}

/// Has a controller label all Nodes: what is measured later is no cold start.
async fn label_all(bed: &Bed) -> Result<()> {
    note(&format!("verdict: {} Nodes are labelled", bed.instances.len()));
    bed.register(&bed.instances).await?;
    let mut observer = Observer::start(bed).await?;
    let controller = process::start(bed);
    observer.labelled(bed.instances.len()).await?;
    process::settled(bed).await;
    controller.stop().await;
    Ok(())
}

/// Starts a controller, and waits until it has judged all of the cluster. The seconds that took.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
async fn first_verdict(bed: &Bed, proxy: &ApiProxy) -> Result<(Role, f64)> {
    let begin = Instant::now();
    let controller = process::start_through(bed, proxy);
    let scraper = Scraper::new(&controller)?;
    eventually("a verdict that rests on everything", SOON, async || {
        let page = scraper.page().await.map_err(|error| error.to_string())?;
        let observed = |line: &&str| line.starts_with("tidewaiter_cluster_observed{");
        match page.lines().filter(observed).find(|line| line.ends_with(" 0")) {
            _ if page.is_empty() => Err("no verdict".to_owned()),
            Some(unknown) => Err(unknown.to_owned()),
            None => Ok(()),
        }
    })
    .await;
    Ok((controller, begin.elapsed().as_secs_f64()))
}

fn costs([listed, at_rest, busy]: &[Memory; 3], first: f64, idle: f64, churned: &Churned) -> Vec<Figure> {
    let mebibytes = |what: &str, key, found| figure(what, key, found, " MiB", 1);
    let percent = |what: &str, key, found| figure(what, key, found * 100.0, " %", 2);
    vec![
        mebibytes(
            "resident, with the pages of the program's file",
            "resident",
            at_rest.resident,
        )
        .at_most(60.0),
        mebibytes("memory of the process alone", "anonymous", at_rest.anonymous),
        mebibytes("resident, while everything changes", "residentBusy", busy.resident).at_most(60.0),
        mebibytes("  of the process alone", "anonymousBusy", busy.anonymous),
        mebibytes("its peak, at the first lists", "peakResident", listed.peak),
        figure("from the start to the first verdict", "firstVerdict", first, " s", 1),
        percent("a core, for heartbeats", "idleCore", idle),
        percent("a core, while everything changes", "busyCore", churned.core),
        figure("  changes a second", "changes", churned.rate, "", 0),
    ]
}

fn speeds(rest: &Measured, busy: &Measured) -> Vec<Figure> {
    let at = |values: &[f64], part| quantile(values.iter().copied(), part) * 1000.0;
    let milliseconds = |what: &str, key, found| figure(what, key, found, " ms", 1);
    let of = |measured: &Measured, keys: [&'static str; 6], when: &str| {
        let Delays { verdict, watch } = &measured.delays;
        let [p50, p99, watch_p50, watch_p99, scrape_p50, scrape_p99] = keys;
        [
            milliseconds(
                &format!("a verdict after a change, {when}, p99"),
                p99,
                at(verdict, 0.99),
            )
            .at_most(100.0),
            milliseconds("  p50", p50, at(verdict, 0.5)),
            milliseconds("  a bare watch, p99", watch_p99, at(watch, 0.99)),
            milliseconds("  a bare watch, p50", watch_p50, at(watch, 0.5)),
            milliseconds(
                &format!("a scrape, {when}, p99"),
                scrape_p99,
                at(&measured.scrapes, 0.99),
            )
            .at_most(10.0),
            milliseconds("  p50", scrape_p50, at(&measured.scrapes, 0.5)),
        ]
    };
    let keys = ["p50", "p99", "watchP50", "watchP99", "scrapeP50", "scrapeP99"];
    let keys_busy = [
        "p50Busy",
        "p99Busy",
        "watchP50Busy",
        "watchP99Busy",
        "scrapeP50Busy",
        "scrapeP99Busy",
    ];
    let rest = of(rest, keys, "at rest");
    rest.into_iter()
        .chain(of(busy, keys_busy, "while everything changes"))
        .collect()
}

fn of_validate(validated: &Validated) -> Vec<Figure> {
    let [validate, bare] = [&validated.validate, &validated.bare].map(|seconds| median(seconds.iter().copied()));
    let rate = |what: &str, key, found| figure(what, key, found, " MB/s", 0);
    vec![
        figure("validate / the bare lists", "validateRatio", validate / bare, "", 2).at_most(2.0),
        figure("  validate", "validate", validate, " s", 2),
        figure("  the bare lists", "bareLists", bare, " s", 2),
        rate("  pods as they are fed", "podsRate", validated.pods_rate),
        rate(
            "  Nodes as the API server lists them",
            "nodesRate",
            validated.nodes_rate,
        ),
    ]
}
