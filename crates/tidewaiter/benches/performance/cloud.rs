//! The cloud's server on `SQLite`, with fsync: what a thousand clusters that poll cost it, how many requests and writes
//! it takes, the delay of a change on its streams, the cost of an open one.

mod attacked;
#[path = "../../tests/cloud_server/attackers.rs"]
mod attackers;
pub mod console;
mod constant;
pub mod polls;
pub mod server;
pub mod streams;
pub mod wire;
mod writes;
mod year;

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::report::{Chapter, Figure, figure, median, note, quantile};
pub use constant::serve as serve_constant;
use server::{Cloud, Contents};

pub async fn measure(program: &Path) -> Result<Chapter> {
    note(&format!("a cloud with {} clusters", server::CLUSTERS));
    let mut cloud = Cloud::start(program, &Contents::large()).await?;
    let writes = writes::measure(&cloud).await?;
    let restart = writes::kill(&mut cloud).await?;
    note(&format!("cloud: {writes:?}, ready {restart:.2} s after SIGKILL"));
    let polls = polls::measure(&cloud).await?;
    note(&format!("cloud: {:.0} polls a second", polls.rate));
    let unchanged = constant::measure(&cloud).await?;
    note(&format!("cloud: {unchanged:?}"));
    let streams = streams::measure(&cloud).await?;
    note(&format!("cloud: {:?}, {:?}", streams.before, streams.open));
    let attacked = attacked::measure(&cloud).await?;
    note(&format!("cloud: {attacked:?}"));
    let year = year::measure(&mut cloud).await?;
    note(&format!("cloud: {year:?}"));
    cloud.stop().await;

    let mut figures = of_polls(&polls);
    let rate = |what: &str, key, found| figure(what, key, found, "", 0);
    let [ours, bare] = [&unchanged.server, &unchanged.constant].map(|rates| median(rates.iter().copied()));
    figures.extend([
        rate("unchanged lists a second", "unchanged", ours).at_least(20_000.0),
        rate("  a constant by axum alone", "constant", bare),
        figure("  the one / the other", "unchangedRatio", ours / bare, "", 2).at_least(0.5),
        rate("writes a second, 200 writers, fsync", "writes", writes.rate).at_least(1_000.0),
        rate("  bare fsyncs a second of the same disk", "fsyncs", writes.fsyncs),
        figure(
            "  writes / bare fsyncs",
            "writesRatio",
            writes.rate / writes.fsyncs,
            "",
            2,
        ),
        figure(
            "ready after SIGKILL, with all of them writing",
            "restart",
            restart,
            " s",
            2,
        )
        .at_most(2.0),
    ]);
    figures.extend(of_streams(&streams));
    figures.extend(of_attacks(&attacked));
    figures.extend(of_year(&year));
    Ok(Chapter {
        key: "cloud",
        title: "The cloud's server".to_owned(),
        figures,
        details: json!({"writes": writes, "restart": restart, "polls": polls, "unchanged": unchanged, "streams": streams,
            "attacked": attacked, "year": year}),
    })
}

fn of_polls(polls: &polls::Polls) -> Vec<Figure> {
    let at = |part| quantile(polls.seconds.iter().copied(), part) * 1000.0;
    vec![
        figure(
            "a core, for 1,000 clusters that poll",
            "pollCore",
            polls.core * 100.0,
            " %",
            1,
        )
        .at_most(10.0),
        figure("a poll's answer, p99", "pollP99", at(0.99), " ms", 2).at_most(5.0),
        figure("  p50", "pollP50", at(0.5), " ms", 2),
        figure("  polls a second", "polls", polls.rate, "", 0),
        figure("  of them with a body", "pollsChanged", polls.changed * 100.0, " %", 2),
    ]
}

fn of_streams(streams: &streams::Streams) -> Vec<Figure> {
    let at = |seconds: &[f64], part| quantile(seconds.iter().copied(), part) * 1000.0;
    let milliseconds = |what: &str, key, found| figure(what, key, found, " ms", 2);
    let size = |what: &str, key, found| figure(what, key, found, " MiB", 1);
    vec![
        milliseconds(
            "a stream tells of a change, after its answer, p99",
            "toldP99",
            at(&streams.told, 0.99),
        )
        .at_most(20.0),
        milliseconds("  p50", "toldP50", at(&streams.told, 0.5)),
        milliseconds(
            "  from the request, with its commit, p99",
            "toldFromRequestP99",
            at(&streams.from_request, 0.99),
        ),
        milliseconds(
            "  one that concerns all 10,000, the last",
            "toldAll",
            streams.all * 1000.0,
        ),
        size(
            "memory of the process alone, 10,000 streams",
            "streams",
            streams.open.anonymous,
        )
        .at_most(150.0),
        size("  before them", "streamsBefore", streams.before.anonymous),
        size(
            "  resident, with the pages of the program's file",
            "streamsResident",
            streams.open.resident,
        ),
    ]
}

fn of_attacks(attacked: &attacked::Attacked) -> Vec<Figure> {
    let ratio = |seconds: f64| seconds / attacked.quiet;
    let worst = attacked
        .attacks
        .iter()
        .map(|(_, seconds)| ratio(*seconds))
        .fold(0.0, f64::max);
    let worst = figure(
        "an honest client's p99 beside an attack / without, the worst",
        "attackedRatio",
        worst,
        "",
        1,
    );
    let quiet = figure(
        "  without an attack",
        "attackedQuiet",
        attacked.quiet * 1000.0,
        " ms",
        1,
    );
    let memory = figure(
        "memory of the process alone beside the attacks, the most",
        "attackedMemory",
        attacked.memory,
        " MiB",
        1,
    );
    let of_each = attacked.attacks.iter();
    let of_each = of_each.map(|(name, seconds)| figure(format!("  {name}"), "attacked", ratio(*seconds), "", 1));
    [worst.at_most(10.0), memory.at_most(512.0), quiet]
        .into_iter()
        .chain(of_each)
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "a size of some GB")]
fn of_year(year: &year::Year) -> Vec<Figure> {
    let milliseconds = |what: &str, key, seconds: f64| figure(what, key, seconds * 1000.0, " ms", 1);
    vec![
        figure(
            "a year of a busy server: its database",
            "yearSize",
            year.size as f64 / 1e6,
            " MB",
            0,
        ),
        figure("  ready after a start", "yearReady", year.ready, " s", 2),
        milliseconds("  100 changes of the audit log, p99", "yearAudit", year.audit),
        milliseconds("  the same, half a year back", "yearOldAudit", year.old_audit),
        milliseconds("  a list after a change, p99", "yearList", year.list).at_most(50.0),
        milliseconds("  a write, p99", "yearWrite", year.write),
        milliseconds("  the longest", "yearLongestWrite", year.longest_write),
    ]
}
