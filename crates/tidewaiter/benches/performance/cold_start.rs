//! Nodes that nobody has labelled, all at once, next to a bare client that sends the same writes.

use anyhow::Result;
use serde_json::json;

use crate::bare::{self, Writes};
use crate::bed::Bed;
use crate::process::{self, ColdStart};
use crate::report::{Chapter, count, figure, median, most, note};

/// Writes under way at once that the bare client is tried with; it is measured with the best.
const CONCURRENCY: [usize; 3] = [16, 32, 64];

pub async fn measure(bed: &Bed, pairs: u32, bare_writes_at_once: Option<usize>) -> Result<Chapter> {
    note("cold start: warming up, and learning what the controller writes");
    bed.register(&bed.instances).await?;
    controller(bed).await?;
    let writes = Writes::of_controller(bed).await?;
    bed.clear().await?;

    let (concurrency, tried) = match bare_writes_at_once {
        Some(given) => (given, Vec::new()),
        None => best_concurrency(bed, &writes).await?,
    };
    let mut runs = Vec::new();
    for number in 0..pairs {
        note(&format!("cold start: pair {} of {pairs}", number + 1));
        runs.push(pair(bed, &writes, concurrency, number % 2 == 1).await?);
    }

    let all = |of: fn(&ColdStart) -> f64| runs.iter().map(move |(run, _)| of(run));
    let bare = || runs.iter().map(|(_, bare)| bare);
    let ratios = runs.iter().map(|(run, bare)| run.seconds / bare.seconds);
    let figures = vec![
        figure(
            "time to the last label, controller / bare client",
            "ratio",
            median(ratios),
            "",
            2,
        )
        .at_most(1.25),
        figure("  controller", "seconds", median(all(|run| run.seconds)), " s", 2),
        figure(
            "  of it as the leader",
            "secondsFromLeadership",
            median(all(|run| run.seconds_from_leadership)),
            " s",
            2,
        ),
        figure(
            format!("  bare client, {concurrency} writes at once"),
            "bareSeconds",
            median(bare().map(|bare| bare.seconds)),
            " s",
            2,
        ),
        figure("calls of EC2", "ec2Calls", most(all(|run| count(run.ec2_calls))), "", 0)
            .at_most(count(bed.instances.len().div_ceil(1000).max(2))),
        figure(
            "requests to the API server, controller",
            "requests",
            median(all(|run| count(run.requests.values().sum()))),
            "",
            0,
        ),
        figure(
            "requests to the API server, bare client",
            "bareRequests",
            median(bare().map(|bare| count(bare.requests))),
            "",
            0,
        ),
        figure(
            "time on a core, controller",
            "cpuSeconds",
            median(all(|run| run.cpu_seconds)),
            " s",
            2,
        ),
        figure(
            "time on a core, API server for the controller",
            "apiServerCpuSeconds",
            median(all(|run| run.api_server_cpu_seconds)),
            " s",
            2,
        ),
        figure(
            "time on a core, API server for the bare client",
            "bareApiServerCpuSeconds",
            median(bare().map(|bare| bare.api_server_cpu_seconds)),
            " s",
            2,
        ),
    ];
    let pairs: Vec<_> = runs
        .iter()
        .map(|(run, bare)| json!({"controller": run, "bare": bare}))
        .collect();
    Ok(Chapter {
        key: "coldStart",
        title: format!(
            "Cold start of {} nodes, medians of {} pairs",
            bed.instances.len(),
            pairs.len()
        ),
        figures,
        details: json!({"bareWritesAtOnce": concurrency, "bareTried": tried, "pairs": pairs}),
    })
}

/// The number of writes at once with which the bare client is fastest, and how fast it is with each.
async fn best_concurrency(bed: &Bed, writes: &Writes) -> Result<(usize, Vec<(usize, f64)>)> {
    let mut tried = Vec::new();
    for concurrency in CONCURRENCY {
        note(&format!(
            "cold start: the bare client with {concurrency} writes at once"
        ));
        tried.push((concurrency, bare_client(bed, writes, concurrency).await?.seconds));
    }
    let best = tried.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    Ok((best.map_or(CONCURRENCY[0], |(concurrency, _)| *concurrency), tried))
}

/// One run of each, each on Nodes that are new.
async fn pair(bed: &Bed, writes: &Writes, concurrency: usize, bare_first: bool) -> Result<(ColdStart, bare::Run)> {
    let mut bare = None;
    if bare_first {
        bare = Some(bare_client(bed, writes, concurrency).await?);
    }
    bed.register(&bed.instances).await?;
    let run = controller(bed).await?;
    bed.clear().await?;
    let bare = match bare {
        Some(bare) => bare,
        None => bare_client(bed, writes, concurrency).await?,
    };
    Ok((run, bare))
}

async fn controller(bed: &Bed) -> Result<ColdStart> {
    let (run, controller) = process::cold_start(bed, bed.instances.len()).await?;
    controller.stop().await;
    Ok(run)
}

async fn bare_client(bed: &Bed, writes: &Writes, concurrency: usize) -> Result<bare::Run> {
    bed.register(&bed.instances).await?;
    let run = bare::send(bed, writes, concurrency).await?;
    bed.clear().await?;
    Ok(run)
}
