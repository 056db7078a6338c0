//! EC2 answers no call for a while, and then all: how soon every Node has its labels.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tidewaiter_testkit::{Scripted, TokenBucket};

use crate::bare::{self, Writes};
use crate::bed::Bed;
use crate::observer::Observer;
use crate::process;
use crate::report::{Chapter, Figure, count, figure, note};

/// Writes at once of the bare client.
const CONCURRENCY: usize = 32;

const NOTHING: TokenBucket = TokenBucket {
    capacity: 0.0,
    refill: 0.0,
};

/// The fault of EC2 meanwhile.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// It throttles every call.
    Throttles,
    /// It takes every call and answers none.
    Silent,
    /// It takes no connection.
    Refuses,
    /// It answers every call with 500.
    Fails,
}

impl Trouble {
    /// Each in words, with the keys of its figures.
    const ALL: [(Self, &'static str, [&'static str; 4]); 4] = [
        (
            Self::Throttles,
            "throttles",
            ["beyond", "seconds", "calls", "callsAfter"],
        ),
        (
            Self::Silent,
            "is silent",
            ["silentBeyond", "silentSeconds", "silentCalls", "silentCallsAfter"],
        ),
        (
            Self::Refuses,
            "refuses connections",
            ["refusesBeyond", "refusesSeconds", "refusesCalls", "refusesCallsAfter"],
        ),
        (
            Self::Fails,
            "answers with 500",
            ["failsBeyond", "failsSeconds", "failsCalls", "failsCallsAfter"],
        ),
    ];

    async fn begin(self, bed: &Bed) {
        match self {
            Self::Throttles => bed.ec2.throttle(Some(NOTHING)),
            Self::Silent => bed.ec2.always(Some(Scripted::Hang)),
            Self::Refuses => bed.ec2.away().await,
            Self::Fails => bed.ec2.always(Some(Scripted::Failed)),
        }
    }

    async fn end(self, bed: &Bed) {
        bed.ec2.always(None);
        bed.ec2.throttle(Some(TokenBucket::DESCRIBE));
        if matches!(self, Self::Refuses) {
            bed.ec2.back().await;
        }
    }
}

struct Run {
    /// From the end of the trouble to the last label.
    seconds: f64,
    calls: usize,
    calls_after: usize,
    writes: Writes,
}

pub async fn measure(bed: &Bed, away: Duration) -> Result<Chapter> {
    let nodes = bed.instances.len();
    let mut runs = Vec::new();
    for (trouble, words, _) in Trouble::ALL {
        note(&format!("recovery: {nodes} Nodes, EC2 {words} for {away:?}"));
        runs.push(run(bed, trouble, away).await?);
    }
    note("recovery: the bare client");
    bed.register(&bed.instances).await?;
    let bare = bare::send(bed, &runs[0].writes, CONCURRENCY).await?;
    bed.clear().await?;
    let mut figures = vec![figure("the bare writes", "bareSeconds", bare.seconds, " s", 2)];
    for ((_, words, keys), run) in Trouble::ALL.into_iter().zip(&runs) {
        figures.extend(shown(words, keys, run, bare.seconds, away));
    }
    Ok(Chapter {
        key: "recovery",
        title: format!("{nodes} nodes, after EC2 answered no call for {away:?}"),
        figures,
        details: json!({"away": away.as_secs()}),
    })
}

fn shown(words: &str, keys: [&'static str; 4], run: &Run, bare: f64, away: Duration) -> [Figure; 4] {
    let [beyond, seconds, calls, calls_after] = keys;
    [
        figure(
            format!("EC2 {words}: last label after it is back, beyond the bare writes"),
            beyond,
            run.seconds - bare,
            " s",
            2,
        )
        .at_most(5.0),
        figure("  last label after it is back", seconds, run.seconds, " s", 2),
        figure("  calls of EC2 meanwhile", calls, count(run.calls), "", 0)
            .at_most(away.as_secs_f64() / 240.0 * 65.0 + 5.0),
        figure("  calls of EC2 afterwards", calls_after, count(run.calls_after), "", 0),
    ]
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
async fn run(bed: &Bed, trouble: Trouble, away: Duration) -> Result<Run> {
    let nodes = bed.instances.len();
    bed.register(&bed.instances).await?;
    trouble.begin(bed).await;
    let mut observer = Observer::start(bed).await?;
    let controller = process::start(bed);
    observer.led().await?;
    tokio::time::sleep(away).await;
    let calls = bed.take_identity_calls().len();
    trouble.end(bed).await;
    let back = Instant::now();
    let first = (observer.labelled(1).await? - back).as_secs_f64();
    let seconds = (observer.labelled(nodes - 1).await? - back).as_secs_f64();
    note(&format!(
        "recovery: the first label after {first:.2} s, the last one after {seconds:.2} s"
    ));
    let calls_after = bed.take_identity_calls().len();
    process::settled(bed).await;
    controller.stop().await;
    let writes = Writes::of_controller(bed).await?;
    bed.clear().await?;
    Ok(Run {
        seconds,
        calls,
        calls_after,
        writes,
    })
}
