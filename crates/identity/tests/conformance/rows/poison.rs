//! One id that spoils a call, and the others.

use tidewaiter_identity::Refusal;
use tidewaiter_testkit::Scripted;

use crate::ask::reason;
use crate::bench::{Bench, claims};
use crate::cloud::{Faults, Launched};

/// The calls, none of which names `poison` together with others.
fn apart<C: Faults>(cloud: &C, poison: &Launched) -> usize {
    let calls = cloud.fake().take_calls();
    for call in &calls {
        let names = &call.names;
        assert!(names.len() < 2 || !names.contains(&poison.instance), "{names:?}");
    }
    calls.len()
}

pub(crate) async fn one_unknown_among_five_hundred<C: Faults>() {
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=501, "nodes").await;
    let gone = &fleet[250];
    cloud.remove(gone);
    let bench = Bench::of(&cloud).await;
    let (costs, all) = (C::COSTS, claims(&fleet));
    for pass in ["first", "second", "third"] {
        for (result, launched) in bench.ask(&all).await.iter().zip(&fleet) {
            match result {
                Ok(identity) => assert_eq!(identity.instance, launched.instance),
                Err(refusal) => {
                    let instance = gone.instance.clone();
                    assert_eq!(
                        (launched, refusal),
                        (gone, &Refusal::NotFound { instance }),
                        "{pass} pass"
                    );
                }
            }
        }
        // It may spoil one call, and never another.
        let calls = match pass {
            "first" => cloud.fake().take_calls().len(),
            _ => apart(&cloud, gone),
        };
        assert!(
            calls <= (costs.known)(500) + costs.unknown,
            "{pass} pass: {calls} calls"
        );
    }

    // Once it is there it is one of them again.
    cloud.launch(251..=251, "nodes").await;
    assert!(bench.ask(&all).await.iter().all(Result::is_ok));
    cloud.fake().clear_calls();
    bench.ask(&all).await;
    assert_eq!(cloud.fake().take_calls().len(), costs.again(501));
}

pub(crate) async fn one_that_makes_the_cloud_fail<C: Faults>() {
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=300, "nodes").await;
    let bad = &fleet[123];
    cloud.fake().fail(&bad.instance, Scripted::Failed);
    let bench = Bench::of(&cloud).await;
    let (costs, all) = (C::COSTS, claims(&fleet));
    for (pass, extra) in [("first", costs.bad.0), ("second", costs.bad.1)] {
        for (result, launched) in bench.ask(&all).await.iter().zip(&fleet) {
            match result {
                Ok(_) => {}
                Err(refusal) => assert!(
                    launched == bad && refusal.is_transient(),
                    "{pass} pass, {launched:?}: {refusal}"
                ),
            }
        }
        let calls = match pass {
            "first" => cloud.fake().take_calls().len(),
            _ => apart(&cloud, bad),
        };
        assert!(calls <= (costs.known)(300) + extra, "{pass} pass: {calls} calls");
    }
    // Of a few, each is asked for so that it matters.
    for (result, launched) in bench.ask(&claims(&fleet[122..125])).await.iter().zip(&fleet[122..125]) {
        let expected = if launched == bad { "Unavailable" } else { "ok" };
        assert_eq!(reason(result), expected, "{launched:?}");
    }

    cloud.fake().heal();
    assert!(bench.ask(&all).await.iter().all(Result::is_ok));
    cloud.fake().clear_calls();
    bench.ask(&all).await;
    assert_eq!(cloud.fake().take_calls().len(), costs.again(300));
}
