//! EC2 throttles every call for a while, and then answers: how soon every Node has its labels.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tidewaiter_testkit::TokenBucket;

use crate::bare::{self, Writes};
use crate::bed::Bed;
use crate::observer::Observer;
use crate::process;
use crate::report::{Chapter, count, figure, note};

/// How long EC2 throttles every call.
const AWAY: Duration = Duration::from_mins(1);

/// Writes at once of the bare client.
const CONCURRENCY: usize = 32;

const NOTHING: TokenBucket = TokenBucket {
    capacity: 0.0,
    refill: 0.0,
};

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn measure(bed: &Bed) -> Result<Chapter> {
    let nodes = bed.instances.len();
    note(&format!("recovery: {nodes} Nodes, EC2 throttles for {AWAY:?}"));
    bed.register(&bed.instances).await?;
    bed.ec2.throttle(Some(NOTHING));
    let mut observer = Observer::start(bed).await?;
    let controller = process::start(bed);
    observer.led().await?;
    tokio::time::sleep(AWAY).await;
    let calls = bed.take_identity_calls().len();
    bed.ec2.throttle(Some(TokenBucket::DESCRIBE));
    let back = Instant::now();
    let seconds = (observer.labelled(nodes).await? - back).as_secs_f64();
    let calls_after = bed.take_identity_calls().len();
    process::settled(bed).await;
    controller.stop().await;
    let writes = Writes::of_controller(bed).await?;
    bed.clear().await?;

    note("recovery: the bare client");
    bed.register(&bed.instances).await?;
    let bare = bare::send(bed, &writes, CONCURRENCY).await?;
    bed.clear().await?;
    Ok(Chapter {
        key: "recovery",
        title: format!("{nodes} nodes, after EC2 throttled every call for {AWAY:?}"),
        figures: vec![
            figure(
                "last label after EC2 is back, beyond the bare writes",
                "beyond",
                seconds - bare.seconds,
                " s",
                2,
            )
            .at_most(5.0),
            figure("  last label after EC2 is back", "seconds", seconds, " s", 2),
            figure("  the bare writes", "bareSeconds", bare.seconds, " s", 2),
            figure("calls of EC2 while it throttles", "calls", count(calls), "", 0)
                .at_most(AWAY.as_secs_f64() / 240.0 * 65.0 + 5.0),
            figure("calls of EC2 afterwards", "callsAfter", count(calls_after), "", 0),
        ],
        details: json!({"away": AWAY.as_secs()}),
    })
}
