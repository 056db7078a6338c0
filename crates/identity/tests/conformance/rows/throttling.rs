//! A cloud that asks for fewer calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use tidewaiter_testkit::{Scripted, eventually, throughout};
use tokio::task::JoinSet;

use crate::ask::reason;
use crate::bench::{Bench, SOON, claim};
use crate::cloud::Faults;

const NODES: u32 = 200;

/// Longer than the time between two tries, and shorter than two of them.
const TRY: Duration = Duration::from_secs(5);

/// However often each Node asks, there is one call after each wait, for all of them; and all are announced when the
/// cloud is back.
pub(crate) async fn everybody_slows_down_together<C: Faults>() {
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=NODES, "nodes").await;
    let bench = Bench::of(&cloud).await;
    let running = bench.lookup();
    cloud.fake().always(Some(Scripted::Throttled));
    assert_eq!(reason(&running.lookup.identify(claim(&fleet[0])).await), "Throttled");
    assert_eq!(cloud.fake().take_calls().len(), 1);

    let mut nodes = JoinSet::new();
    for launched in &fleet[1..] {
        let (lookup, own) = (Arc::clone(&running.lookup), claim(launched));
        nodes.spawn(async move { reason(&lookup.identify(own).await) });
    }
    throughout(
        "the lookup to wait on",
        Duration::from_millis(200),
        async || match cloud.fake().calls().len() {
            0 => Ok(()),
            found => Err(found),
        },
    )
    .await;
    bench.clock.advance(Duration::from_secs(1));
    assert!(nodes.join_all().await.iter().all(|reason| *reason == "Throttled"));
    let ask_all = async || join_all(fleet.iter().map(|launched| running.lookup.identify(claim(launched)))).await;
    drop(cloud.fake().take_calls());
    for _ in 0..5 {
        let answers = ask_all().await;
        assert!(answers.iter().all(|answer| reason(answer) == "Throttled"));
        assert_eq!(cloud.fake().calls().len(), 0, "a Node that waits costs no call");
        bench.clock.advance(TRY);
        eventually("the next try", SOON, async || match cloud.fake().calls().len() {
            0 => Err("no call"),
            _ => Ok(()),
        })
        .await;
        throughout("one try at a time", Duration::from_millis(50), async || {
            match cloud.fake().calls().len() {
                1 => Ok(()),
                found => Err(found),
            }
        })
        .await;
        assert_eq!(cloud.fake().take_calls().len(), 1);
    }
    assert_eq!(running.back.load(Ordering::SeqCst), 0);

    cloud.fake().always(None);
    bench.clock.advance(TRY);
    eventually("all to be announced", SOON, async || {
        match running.back.load(Ordering::SeqCst) {
            found if found == fleet.len() => Ok(()),
            found => Err(found),
        }
    })
    .await;
    assert!(ask_all().await.iter().all(|answer| reason(answer) == "ok"));
    // What the try has answered is cached.
    let calls = cloud.fake().take_calls().len();
    let known = (C::COSTS.known)(fleet.len());
    assert!(calls <= 2 * known, "{calls} calls, {known} for all");
}
