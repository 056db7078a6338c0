//! The controller at rest: its memory, and the costs of heartbeats and of a relist.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tidewaiter_testkit::{ApiProxy, Process, eventually};

use crate::bed::Bed;
use crate::observer::Observer;
use crate::process::{self, SOON};
use crate::report::{Chapter, count, figure, note};
use tidewaiter_testkit::usage::{Memory, Peak};

/// Each kubelet reports at least so often when nothing changes (`nodeStatusReportFrequency`).
pub const REPORT_EVERY: Duration = Duration::from_mins(5);

pub async fn measure(bed: &Bed, seconds: u32) -> Result<Chapter> {
    let nodes = bed.instances.len();
    let proxy = ApiProxy::start(&bed.cluster, &Bed::account());
    note("at rest: without Nodes");
    let empty = without_nodes(bed, &proxy).await?;

    note(&format!("at rest: {nodes} Nodes"));
    bed.register(&bed.instances).await?;
    let mut observer = Observer::start(bed).await?;
    let controller = process::start_through(bed, &proxy);
    observer.labelled(nodes).await?;
    let labelled = controller.memory();
    process::settled(bed).await;
    bed.ec2.clear_calls();

    // As many as come in an hour of a cluster of this size, told in the time that there is.
    let rate = count(nodes) / REPORT_EVERY.as_secs_f64();
    note(&format!("at rest: {seconds} s of heartbeats, {rate:.1} a second"));
    let before = (process::writes(bed).await, controller.cpu_seconds());
    heartbeats(bed, rate, seconds).await?;
    ensure!(
        controller.process.is_running(),
        "the controller ended:\n{}",
        controller.process.log_tail()
    );
    let writes = process::writes(bed).await - before.0;
    let cpu = controller.cpu_seconds() - before.1;
    let calls = bed.take_identity_calls().len();
    let steady = controller.memory();

    note("at rest: every watch expires");
    let relist = relist(&proxy, &controller.process).await;
    // The allocator gives back what is free after a second.
    heartbeats(bed, rate, 5).await?;
    let after = controller.memory();
    controller.stop().await;
    bed.clear().await?;

    let per_node = (steady.anonymous - empty.anonymous) * 1024.0 / count(nodes);
    let figures = vec![
        figure("memory of the process alone", "anonymous", steady.anonymous, " MiB", 1).at_most(25.0),
        figure("  without Nodes", "anonymousEmpty", empty.anonymous, " MiB", 1),
        figure("  for each Node", "kibibytesPerNode", per_node, " KiB", 2),
        figure(
            "resident, with the pages of the program's file",
            "resident",
            steady.resident,
            " MiB",
            1,
        ),
        figure(
            "  its peak, at the cold start",
            "peakResident",
            labelled.peak,
            " MiB",
            1,
        ),
        figure(
            "peak of a relist / steady, of the process alone",
            "relistPeak",
            relist.anonymous / steady.anonymous,
            "",
            2,
        )
        .at_most(1.5),
        figure(
            "peak of a relist / steady, resident",
            "relistPeakResident",
            relist.peak / steady.resident,
            "",
            2,
        )
        .at_most(1.5),
        figure(
            "memory of the process alone after a relist",
            "anonymousAfterRelist",
            after.anonymous,
            " MiB",
            1,
        ),
        figure("writes for heartbeats", "idleWrites", count(writes), "", 0).at_most(0.0),
        figure("calls of EC2 for heartbeats", "idleCalls", count(calls), "", 0).at_most(0.0),
        figure(
            "a core, for heartbeats",
            "idleCore",
            cpu / f64::from(seconds) * 100.0,
            " %",
            2,
        )
        .at_most(1.0),
    ];
    Ok(Chapter {
        key: "steady",
        title: format!("At rest with {nodes} nodes, {rate:.1} heartbeats a second for {seconds} s"),
        figures,
        details: json!({
            "allocator": "jemalloc", "empty": empty, "labelled": labelled, "steady": steady, "relist": relist, "after": after,
        }),
    })
}

async fn without_nodes(bed: &Bed, proxy: &ApiProxy) -> Result<Memory> {
    let mut observer = Observer::start(bed).await?;
    let controller = process::start_through(bed, proxy);
    observer.led().await?;
    process::settled(bed).await;
    let memory = controller.memory();
    controller.stop().await;
    Ok(memory)
}

/// So many a second, for so long.
pub async fn heartbeats(bed: &Bed, rate: f64, seconds: u32) -> Result<()> {
    let mut pace = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
    let mut number = 0;
    while count(number) < rate * f64::from(seconds) {
        pace.tick().await;
        bed.heartbeat(number).await?;
        number += 1;
    }
    Ok(())
}

/// Ends every watch with 410 Gone, and waits until everything was relisted.
async fn relist(proxy: &ApiProxy, process: &Process) -> Memory {
    let watches = || {
        ["nodes", "nodeidentities", "pods"]
            .map(|resource| proxy.count(|request| request.resource() == resource && request.is_watch()))
    };
    // One that is answered 410, and one after the list.
    let done = watches().map(|before| before + 2);
    let mut peak = Peak::begin(process.pid());
    proxy.expire_watches();
    eventually("everything to be listed again", SOON, async || {
        peak.look();
        let watches = watches();
        if watches == done {
            Ok(())
        } else {
            Err(format!("{watches:?} watches, not {done:?}"))
        }
    })
    .await;
    peak.end()
}
