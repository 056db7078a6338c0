//! The cost of queries, alone and joined, and the time for which their answers are cached.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tidewaiter_testkit::eventually;
use tokio::task::JoinSet;

use crate::ask::reason;
use crate::bench::{Bench, SOON, claim, claims};
use crate::cloud::Faults;

const HOUR: Duration = Duration::from_hours(1);

pub(crate) async fn a_thousand_cost_what_the_provider_says<C: Faults>() {
    for count in [1, 3, 30, 1000] {
        let mut cloud = C::start().await;
        let fleet = cloud.launch(1..=count, "nodes").await;
        let bench = Bench::of(&cloud).await;
        let results = bench.ask(&claims(&fleet)).await;
        for (result, launched) in results.iter().zip(&fleet) {
            assert_eq!(result.as_ref().unwrap().instance, launched.instance);
        }
        assert_eq!(
            cloud.fake().take_calls().len(),
            (C::COSTS.known)(fleet.len()),
            "for {count}"
        );
        // However many claim it, an instance is asked for once.
        let same: Vec<_> = (0..50).map(|_| claim(&fleet[0])).collect();
        bench.ask(&same).await;
        assert_eq!(cloud.fake().take_calls().len(), C::COSTS.again(1));
    }
}

pub(crate) async fn a_cold_start_asks_at_once_and_joins_the_rest<C: Faults>() {
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=1000, "nodes").await;
    let bench = Bench::of(&cloud).await;
    let running = bench.lookup();
    // Long enough for the others to come while the first call is under way, also on a machine that stands still for a
    // moment.
    cloud.fake().latency(Duration::from_secs(3));
    let mut first = JoinSet::new();
    let (lookup, own) = (Arc::clone(&running.lookup), claim(&fleet[0]));
    first.spawn(async move { lookup.identify(own).await });
    eventually("the first to be asked for at once", SOON, async || {
        match cloud.fake().calls().len() {
            0 => Err("no call"),
            _ => Ok(()),
        }
    })
    .await;
    let rest = join_all(
        fleet[1..]
            .iter()
            .map(|launched| running.lookup.identify(claim(launched))),
    )
    .await;
    assert!(rest.iter().all(Result::is_ok));
    assert_eq!(reason(&first.join_next().await.unwrap().unwrap()), "ok");
    let costs = C::COSTS;
    assert_eq!(cloud.fake().take_calls().len(), (costs.known)(1) + costs.again(999));
}

pub(crate) async fn an_answer_expires_and_is_asked_for_again_with_the_others<C: Faults>() {
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=300, "nodes").await;
    let bench = Bench::of(&cloud).await;
    let running = bench.lookup();
    let ask_all = async || join_all(fleet.iter().map(|launched| running.lookup.identify(claim(launched)))).await;
    assert!(ask_all().await.iter().all(Result::is_ok));
    cloud.fake().clear_calls();
    cloud.ungroup(&fleet[7]).await;
    // Most of an answer's time, no more.
    bench.clock.advance(HOUR * 7 / 10);
    assert!(ask_all().await.iter().all(Result::is_ok));
    assert_eq!(cloud.fake().calls().len(), 0, "a Node's heartbeat costs nothing");
    bench.clock.advance(HOUR * 3 / 10);
    for (answer, launched) in ask_all().await.iter().zip(&fleet) {
        let expected = if *launched == fleet[7] { "NotInGroup" } else { "ok" };
        assert_eq!(reason(answer), expected, "{launched:?}");
    }
    assert_eq!(cloud.fake().take_calls().len(), (C::COSTS.known)(300));
}
