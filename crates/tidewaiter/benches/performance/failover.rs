//! From a leader's end to the moment that the next one holds the Lease.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use crate::bed::Bed;
use crate::observer::Observer;
use crate::process::{self, SOON};
use crate::report::{Chapter, figure, most, note};

const TERMINATIONS: usize = 5;

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn measure(bed: &Bed) -> Result<Chapter> {
    let mut observer = Observer::start(bed).await?;
    let mut leader = process::start(bed);
    let (_, mut holder) = observer.led().await?;
    let mut terminated = Vec::new();
    for number in 1..=TERMINATIONS {
        note(&format!("failover: SIGTERM, {number} of {TERMINATIONS}"));
        let standby = process::start(bed);
        standby.ready().await;
        let told = Instant::now();
        leader.process.terminate();
        terminated.push(taken(&mut observer, &mut holder, told).await?);
        leader.process.exited(SOON).await;
        leader = standby;
    }
    note("failover: SIGKILL");
    let standby = process::start(bed);
    standby.ready().await;
    let told = Instant::now();
    leader.process.kill();
    let killed = taken(&mut observer, &mut holder, told).await?;
    standby.stop().await;
    Ok(Chapter {
        key: "failover",
        title: "From a leader's end to the next one's beginning".to_owned(),
        figures: vec![
            figure(
                format!("SIGTERM, the longest of {TERMINATIONS}"),
                "terminated",
                most(terminated.iter().copied()),
                " s",
                2,
            )
            .at_most(1.0),
            figure("SIGKILL", "killed", killed, " s", 2).at_most(18.0),
        ],
        details: json!({"terminated": terminated, "killed": killed}),
    })
}

/// When somebody else held the Lease.
async fn taken(observer: &mut Observer, holder: &mut String, told: Instant) -> Result<f64> {
    loop {
        let (at, now) = observer.led().await?;
        if now != *holder {
            *holder = now;
            return Ok((at - told).as_secs_f64());
        }
    }
}
