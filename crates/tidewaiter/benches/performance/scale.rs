//! Up to 50,000 Nodes: what of the controller's cost grows faster than their number.
//!
//! No API server on this machine could store that many: the simulated one serves them over HTTP. It shares the cores
//! with the controller, so a time contains its work too; what the fakes use of the cores is reported next to what the
//! controller uses.

mod curve;
mod point;
mod world;

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::report::{Chapter, Figure, count, figure, note};
use curve::Measure;
use point::Point;

pub const SIZES: [u32; 5] = [1_000, 5_000, 10_000, 25_000, 50_000];

/// The size with which the largest cluster is compared.
const REFERENCE: u32 = 5_000;

/// A cost for each Node of the largest cluster, compared with the reference: what grows faster is not linear.
const GROWTH: f64 = 1.2;

/// No cost of the controller.
const FAKES: &str = "fakesCpuSeconds";

const MEASURES: [Measure; 13] = [
    Measure::of("time to the last label", "seconds", "s", 1, |point| point.seconds),
    Measure::of("of it to list the Nodes", "listSeconds", "s", 1, |point| {
        point.list_seconds
    }),
    Measure::of("time on a core, controller", "cpuSeconds", "s", 1, |point| {
        point.cpu_seconds
    }),
    Measure::of("time on a core, the fakes", FAKES, "s", 1, |point| {
        point.fakes_cpu_seconds
    }),
    Measure::of("EC2 calls for identities", "identityCalls", "", 0, |point| {
        count(point.identity_calls)
    }),
    Measure::of("EC2 calls for groups", "groupCalls", "", 0, |point| {
        count(point.group_calls)
    }),
    Measure::of("requests to the API server", "requests", "", 0, |point| {
        count(point.all_requests())
    }),
    Measure::of("peak memory, cold start", "peak", "MiB", 0, |point| point.peak),
    Measure::of("peak memory, at rest", "restPeak", "MiB", 0, |point| point.rest.peak),
    Measure::of("memory at rest", "settled", "MiB", 0, |point| point.rest.settled),
    Measure::of("a core at rest", "restCore", "%", 1, |point| point.rest.core * 100.0),
    // Not their sum: there is one at least every half minute, so a longer start has more of them.
    Measure::of("a verdict, cold start", "startVerdict", "ms", 1, |point| {
        point.verdicts.seconds / point.verdicts.count * 1000.0
    }),
    Measure::of("a verdict, at rest", "verdict", "ms", 1, |point| {
        point.rest.verdict_seconds * 1000.0
    }),
];

pub async fn measure(program: &Path, sizes: &[u32]) -> Result<Chapter> {
    let mut points = Vec::new();
    for nodes in sizes {
        note(&format!("scale: {nodes} Nodes"));
        let point = Point::measure(program, *nodes).await?;
        note(&serde_json::to_string(&point)?);
        points.push(point);
    }
    for measure in &MEASURES {
        measure.draw(&points).lines().for_each(note);
    }
    let largest = points.last().context("no size to measure")?;
    let reference = points.iter().find(|point| point.nodes == REFERENCE);
    let figures = reference
        .map(|reference| growth(reference, largest))
        .unwrap_or_default();
    Ok(Chapter {
        key: "scale",
        title: format!("The cost for each Node of {}, compared with {REFERENCE}", largest.nodes),
        figures,
        details: json!({"points": points}),
    })
}

fn growth(reference: &Point, largest: &Point) -> Vec<Figure> {
    let ours = MEASURES.iter().filter(|measure| measure.key != FAKES);
    let compared = ours.map(|measure| {
        let growth = measure.per_node(largest) / measure.per_node(reference);
        figure(measure.what, measure.key, growth, "", 2).at_most(GROWTH)
    });
    compared.collect()
}
