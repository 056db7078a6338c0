//! A cloud that asks for fewer calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidewaiter_identity::Refusal;
use tidewaiter_testkit::{Scripted, eventually, throughout};
use tokio::task::JoinSet;

use crate::ask::reason;
use crate::bench::{Bench, SOON, claim};
use crate::cloud::Faults;

const NODES: u32 = 200;

/// The longest that the first, second and third wait is. The shortest is half of it.
const WAITS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// Each Node asks again as soon as it is refused, and all the same there is one call after each wait, for all of them.
pub(crate) async fn everybody_slows_down_together<C: Faults>() {
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=NODES, "nodes").await;
    let bench = Bench::of(&cloud).await;
    let running = bench.lookup();
    cloud.fake().always(Some(Scripted::Throttled));
    assert_eq!(reason(&running.lookup.identify(claim(&fleet[0])).await), "Throttled");
    assert_eq!(cloud.fake().take_calls().len(), 1);

    let asked = Arc::new(AtomicUsize::new(0));
    let mut nodes = JoinSet::new();
    for launched in &fleet {
        let (lookup, asked, own) = (Arc::clone(&running.lookup), Arc::clone(&asked), claim(launched));
        nodes.spawn(async move {
            loop {
                asked.fetch_add(1, Ordering::SeqCst);
                match lookup.identify(own.clone()).await {
                    Err(Refusal::Throttled { .. }) => {}
                    other => return reason(&other),
                }
            }
        });
    }
    for (round, wait) in WAITS.into_iter().enumerate() {
        let all = fleet.len() * (round + 1);
        eventually("all to ask once more", SOON, async || {
            match asked.load(Ordering::SeqCst) {
                found if found == all => Ok(()),
                found => Err(found),
            }
        })
        .await;
        assert_eq!(cloud.fake().calls().len(), round, "none before the wait is over");
        if round == WAITS.len() - 1 {
            cloud.fake().always(None);
        }
        let moment = Duration::from_millis(1);
        bench.clock.advance((wait / 2).saturating_sub(moment));
        throughout(
            "the lookup to wait on",
            Duration::from_millis(200),
            async || match cloud.fake().calls().len() {
                found if found == round => Ok(()),
                found => Err(found),
            },
        )
        .await;
        bench.clock.advance(wait / 2 + moment);
    }
    for result in nodes.join_all().await {
        assert_eq!(result, "ok");
    }
    let refused = WAITS.len() - 1;
    assert_eq!(cloud.fake().take_calls().len(), refused + (C::COSTS.known)(fleet.len()));
}
