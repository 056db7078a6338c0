//! One zone in trouble, and the others.

use std::sync::Mutex;
use std::time::Duration;

use tidewaiter_identity::gce::api;
use tidewaiter_identity::{Identifier as _, Identity, Refusal};
use tidewaiter_testkit::FakeGce;
use tidewaiter_testkit::fake_gce::FakeInstance;

use crate::setup::{Provider, add_fleet, claims, count, fleet, reasons};

const BAD: &str = "us-central1-b";
const ALL: &str = "instances.aggregatedList";
const ZONE: &str = "instances.list";

fn expected(instances: &[FakeInstance]) -> Vec<&'static str> {
    let word = |instance: &FakeInstance| if instance.zone() == BAD { "Unavailable" } else { "ok" };
    instances.iter().map(word).collect()
}

#[tokio::test]
async fn a_zone_in_trouble_leaves_the_others_alone() {
    let (fake, provider, instances) = fleet(300).await;
    let all = claims(&instances);
    fake.fail_zone(BAD);
    assert_eq!(reasons(&provider.ask(&all).await), expected(&instances));
    let first = fake.take_calls();
    assert_eq!((count(&first, ALL), count(&first, ZONE)), (1, 3), "{first:?}");

    // From now on each zone at once.
    assert_eq!(reasons(&provider.ask(&all).await), expected(&instances));
    let second = fake.take_calls();
    assert_eq!((count(&second, ALL), count(&second, ZONE)), (0, 3), "{second:?}");
    assert_eq!(provider.calls.counted(api::LIST_ZONE, "failed"), 2);

    // Until all of them answer.
    fake.heal();
    assert!(provider.ask(&all).await.iter().all(Result::is_ok));
    fake.clear_calls();
    provider.ask(&all).await;
    let healed = fake.take_calls();
    assert_eq!((count(&healed, ALL), count(&healed, ZONE)), (1, 0), "{healed:?}");
}

#[tokio::test]
async fn zones_are_not_listed_one_by_one_for_ever() {
    let (fake, provider, instances) = fleet(30).await;
    let all = claims(&instances);
    fake.fail_zone(BAD);
    provider.ask(&all).await;
    provider.clock.advance(Duration::from_mins(16));
    fake.clear_calls();
    provider.ask(&all).await;
    assert_eq!(count(&fake.calls(), ALL), 1);
}

#[tokio::test]
async fn a_zone_that_a_listing_leaves_out_is_not_taken_for_empty() {
    let (fake, provider, instances) = fleet(300).await;
    fake.leave_out_zone(BAD);
    let results = provider.ask(&claims(&instances)).await;
    assert_eq!(reasons(&results), expected(&instances));
    let refusal = results.into_iter().find_map(Result::err).unwrap();
    assert_eq!(
        refusal.to_string(),
        "gce:compute.instances.aggregatedList: the cloud failed (the zone is not reachable)"
    );
    let calls = fake.calls();
    assert_eq!(
        (count(&calls, ALL), count(&calls, ZONE), count(&calls, "instances.get")),
        (1, 0, 0),
        "{calls:?}"
    );
}

#[tokio::test]
async fn a_few_of_a_zone_in_trouble() {
    let (fake, provider, instances) = fleet(3).await;
    fake.fail_zone(BAD);
    assert_eq!(reasons(&provider.ask(&claims(&instances)).await), expected(&instances));
}

#[tokio::test]
async fn a_zone_that_never_answers_holds_up_nobody() {
    let fake = FakeGce::start().await;
    let instances = add_fleet(&fake, 30, |group| group);
    fake.hang_zone(BAD);
    let provider = Provider::with(&fake.endpoint(), &fake.endpoint(), Duration::from_secs(1)).await;
    assert_eq!(reasons(&provider.ask(&claims(&instances)).await), expected(&instances));
    // Once the zone is known, and when a few are asked for by name, the others are answered before its call ends.
    for asked in [&instances[..], &instances[..3]] {
        let slow = |place: usize| asked[place].zone() == BAD;
        let order = Mutex::new(Vec::new());
        let note = |place: usize, result: Result<Identity, Refusal>| {
            assert_eq!(result.is_err(), slow(place), "{result:?}");
            order.lock().unwrap().push(slow(place));
        };
        provider.gce.identify(&claims(asked), &note).await;
        let order = order.into_inner().unwrap();
        assert!(order.is_sorted() && order.len() == asked.len(), "{order:?}");
    }
}
