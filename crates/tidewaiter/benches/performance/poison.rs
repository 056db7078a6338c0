//! One id among 500 that EC2 does not know: it fails every call that names it.

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::bed::Bed;
use crate::process;
use crate::report::{Chapter, count, figure, median, note};

const NODES: usize = 500;

/// The number of runs with and without it, in turn.
const PAIRS: usize = 3;

pub async fn measure(bed: &Bed) -> Result<Chapter> {
    let nodes = bed.instances.get(..NODES).context("the bed has too few instances")?;
    let poison = nodes[NODES / 2].id();
    let mut runs = Vec::new();
    for number in 1..=PAIRS {
        note(&format!("poison: {number} of {PAIRS}"));
        let clean = run(bed, NODES).await?;
        bed.ec2.forget(poison);
        let poisoned = run(bed, NODES - 1).await?;
        bed.ec2.launch([nodes[NODES / 2].clone()]);
        runs.push((clean, poisoned));
    }
    let delay = median(runs.iter().map(|(clean, poisoned)| poisoned.0 - clean.0));
    let more = median(runs.iter().map(|(clean, poisoned)| count(poisoned.1) - count(clean.1)));
    Ok(Chapter {
        key: "poison",
        title: format!("One unknown id among {NODES} nodes, medians of {PAIRS} pairs"),
        figures: vec![
            figure("delay of the last healthy Node", "delay", delay, " s", 2).at_most(1.0),
            figure("more calls of EC2", "moreCalls", more, "", 0).at_most(10.0),
        ],
        details: json!({"secondsAndCalls": runs}),
    })
}

/// The time to the last label, and the calls of EC2 until then.
async fn run(bed: &Bed, healthy: usize) -> Result<(f64, usize)> {
    bed.register(&bed.instances[..NODES]).await?;
    let (run, controller) = process::cold_start(bed, healthy).await?;
    controller.stop().await;
    bed.clear().await?;
    Ok((run.seconds_from_leadership, run.ec2_calls))
}
