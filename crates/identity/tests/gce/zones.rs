//! One zone in trouble, as Compute Engine alone tells it.

use std::time::Duration;

use tidewaiter_testkit::fake_gce::FakeInstance;

use crate::ask::reasons;
use crate::setup::{claims, count, fleet};

const BAD: &str = "us-central1-b";
const ALL: &str = "instances.aggregatedList";
const ZONE: &str = "instances.list";

fn expected(instances: &[FakeInstance]) -> Vec<&'static str> {
    let word = |instance: &FakeInstance| if instance.zone() == BAD { "Unavailable" } else { "ok" };
    instances.iter().map(word).collect()
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
        "gce:compute.instances.aggregatedList: the cloud failed (the zone is unreachable)"
    );
    let calls = fake.calls();
    assert_eq!(
        (count(&calls, ALL), count(&calls, ZONE), count(&calls, "instances.get")),
        (1, 0, 0),
        "{calls:?}"
    );
}
