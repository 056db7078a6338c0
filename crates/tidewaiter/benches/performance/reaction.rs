//! From a new Node to its labels, in a cluster that is otherwise at rest.

use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::bare::Writes;
use crate::bed::{Bed, LATENCY};
use crate::observer::Observer;
use crate::process;
use crate::report::{Chapter, figure, note, quantile};

const NODES: usize = 200;

pub async fn measure(bed: &Bed) -> Result<Chapter> {
    let nodes = bed.instances.get(..NODES).context("the bed has too few instances")?;
    note(&format!("reaction: {NODES} Nodes, one after the other"));
    let mut observer = Observer::start(bed).await?;
    let controller = process::start(bed);
    observer.led().await?;
    process::settled(bed).await;
    let mut reactions = Vec::new();
    for node in nodes {
        bed.register(std::slice::from_ref(node)).await?;
        reactions.push(until_labelled(&mut observer).await?);
    }
    controller.stop().await;
    let writes = Writes::of_controller(bed).await?;
    bed.clear().await?;

    note("reaction: the bare client");
    let mut round_trips = Vec::new();
    for node in nodes {
        bed.register(std::slice::from_ref(node)).await?;
        let (name, record, patch) = writes
            .bodies(bed, Some(node.node_name()))
            .await?
            .pop()
            .context("one Node")?;
        let (client, begin) = (bed.cluster.client(&Bed::account()), now());
        crate::bare::write(&client, &name, record, patch).await?;
        round_trips.push((observer.labelled(1).await? - begin).as_secs_f64());
    }
    bed.clear().await?;

    let cloud = LATENCY.as_secs_f64();
    let at = |values: &[f64], part| quantile(values.iter().copied(), part);
    let ratio = |part| at(&reactions, part) / (at(&round_trips, part) + cloud);
    let milliseconds = |what: &str, key, seconds: f64| figure(what, key, seconds * 1000.0, " ms", 1);
    Ok(Chapter {
        key: "reaction",
        title: format!("From a new Node to its labels, {NODES} times"),
        figures: vec![
            figure(
                "p99, controller / (bare client + cloud)",
                "ratioP99",
                ratio(0.99),
                "",
                2,
            )
            .at_most(2.0),
            figure("p50, controller / (bare client + cloud)", "ratioP50", ratio(0.5), "", 2),
            milliseconds("  p50, controller", "p50", at(&reactions, 0.5)),
            milliseconds("  p99, controller", "p99", at(&reactions, 0.99)),
            milliseconds("  p50, bare client", "bareP50", at(&round_trips, 0.5)),
            milliseconds("  p99, bare client", "bareP99", at(&round_trips, 0.99)),
            milliseconds("  a call of EC2", "cloud", cloud),
        ],
        details: json!({"reactions": reactions, "bare": round_trips}),
    })
}

/// The Node was created just now.
async fn until_labelled(observer: &mut Observer) -> Result<f64> {
    let begin = now();
    Ok((observer.labelled(1).await? - begin).as_secs_f64())
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
fn now() -> Instant {
    Instant::now()
}
