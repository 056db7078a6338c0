//! One zone in trouble, and the others.

use std::sync::Mutex;
use std::time::Duration;

use tidewaiter_identity::{Identity, Refusal};

use crate::ask::reason;
use crate::bench::{Bench, claims};
use crate::cloud::{Faults, Launched};

/// Returns true if the row concerns this cloud; if not, says why.
fn applies<C: Faults>() -> bool {
    match C::zones() {
        Ok(()) => true,
        Err(not_applicable) => {
            not_applicable.say();
            false
        }
    }
}

pub(crate) async fn a_zone_in_trouble_leaves_the_others_alone<C: Faults>() {
    if !applies::<C>() {
        return;
    }
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=300, "nodes").await;
    let bad = fleet[0].zone.clone();
    let bench = Bench::of(&cloud).await;
    let costs = C::COSTS;
    let check = async |of: &[Launched]| {
        for (result, launched) in bench.ask(&claims(of)).await.iter().zip(of) {
            let expected = if launched.zone == bad { "Unavailable" } else { "ok" };
            assert_eq!(reason(result), expected, "{launched:?}");
        }
    };
    cloud.fake().fail_zone(&bad);
    for (pass, extra) in [("first", costs.zone.0), ("second", costs.zone.1)] {
        check(&fleet).await;
        let calls = cloud.fake().take_calls().len();
        assert!(calls <= (costs.known)(300) + extra, "{pass} pass: {calls} calls");
    }
    check(&fleet[..3]).await;

    // A zone that answers again is one of them again.
    cloud.fake().heal();
    assert!(bench.ask(&claims(&fleet)).await.iter().all(Result::is_ok));
    cloud.fake().clear_calls();
    bench.ask(&claims(&fleet)).await;
    assert_eq!(cloud.fake().take_calls().len(), costs.again(300));
}

pub(crate) async fn a_zone_that_never_answers_holds_up_nobody<C: Faults>() {
    if !applies::<C>() {
        return;
    }
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=30, "nodes").await;
    let bad = fleet[0].zone.clone();
    cloud.fake().hang_zone(&bad);
    let slow = |launched: &Launched| launched.zone == bad;
    let only_slow: Vec<Launched> = fleet.iter().filter(|launched| slow(launched)).cloned().collect();
    for asked_before in [&fleet, &only_slow] {
        let bench = Bench::with(&cloud, Duration::from_secs(3)).await;
        bench.ask(&claims(asked_before)).await;
        // Once the zone is known, and when a few are asked for, the others are answered before its call ends.
        for asked in [&fleet[..], &fleet[..3]] {
            let order = Mutex::new(Vec::new());
            let note = |place: usize, result: Result<Identity, Refusal>| {
                assert_eq!(result.is_err(), slow(&asked[place]), "{result:?}");
                order.lock().unwrap().push(slow(&asked[place]));
            };
            bench.identifier.identify(&claims(asked), &note).await;
            let order = order.into_inner().unwrap();
            assert!(order.is_sorted() && order.len() == asked.len(), "{order:?}");
        }
    }
}
