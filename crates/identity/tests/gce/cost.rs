//! The cost of a query: calls and rows.

use std::time::Duration;

use tidewaiter_testkit::fake_gce::{FakeGroup, FakeInstance, PROJECT_NUMBER, zonal_group};
use tidewaiter_testkit::{FakeGce, TokenBucket};

use crate::ask::{claim_of, reason, reasons};
use crate::setup::{CLUSTER, Provider, add_fleet, claims, count, fleet, rows};

const ALL: &str = "instances.aggregatedList";
const GROUP: &str = "regionInstanceGroupManagers.listManagedInstances";
const TEMPLATE: &str = "instanceTemplates.get";

#[tokio::test]
async fn a_group_of_a_thousand_is_two_listings_and_one_template() {
    let (fake, provider, instances) = fleet(1000).await;
    let results = provider.ask(&claims(&instances)).await;
    for (result, instance) in results.iter().zip(&instances) {
        assert_eq!(result.as_ref().unwrap().instance, instance.key());
    }
    assert_eq!(
        rows(&fake.take_calls()),
        [(ALL, 500), (ALL, 500), (GROUP, 1000), (TEMPLATE, 1)]
    );

    add_fleet(&fake, 1000, FakeGroup::paginated);
    assert!(provider.ask(&claims(&instances)).await.iter().all(Result::is_ok));
    let calls = fake.calls();
    assert_eq!(rows(&calls), [(ALL, 500), (ALL, 500), (GROUP, 500), (GROUP, 500)]);
    assert_eq!(
        calls[0].filter.as_deref(),
        Some("labels.k8s-io-cluster-name=ours-example-com")
    );
}

#[tokio::test]
async fn a_large_cluster_is_listed_once() {
    let (fake, provider, instances) = fleet(10_500).await;
    assert!(provider.ask(&claims(&instances)).await.iter().all(Result::is_ok));
    assert_eq!(count(&fake.calls(), ALL), 10_500 / 500);
}

/// A template never changes, but its name may be used again.
#[tokio::test]
async fn a_template_is_read_again_only_when_it_may_be_another() {
    let (fake, provider, instances) = fleet(20).await;
    for (minutes, reads) in [(0, 1), (0, 0), (14, 0), (1, 1), (14, 0)] {
        provider.clock.advance(Duration::from_mins(minutes));
        assert!(provider.ask(&claims(&instances)).await.iter().all(Result::is_ok));
        assert_eq!(count(&fake.take_calls(), TEMPLATE), reads);
    }
}

#[tokio::test]
async fn another_clusters_instances_are_not_read() {
    let (fake, provider, instances) = fleet(20).await;
    let group = zonal_group("us-central1-a", "theirs");
    fake.launch((1..=30).map(|number| {
        tidewaiter_testkit::fake_gce::instance("us-central1-a", &format!("theirs-{number}"))
            .kops("other.example.com", &group)
    }));
    provider.ask(&claims(&instances)).await;
    assert_eq!(rows(&fake.calls()), [(ALL, 20), (GROUP, 20), (TEMPLATE, 1)]);
}

#[tokio::test]
async fn a_few_are_asked_for_by_name() {
    let (fake, provider, instances) = fleet(50).await;
    provider.ask(&claims(&instances[..4])).await;
    let calls = fake.take_calls();
    assert_eq!(count(&calls, "instances.get"), 4);
    assert_eq!((count(&calls, GROUP), count(&calls, TEMPLATE)), (1, 1), "{calls:?}");
    provider.ask(&claims(&instances[..5])).await;
    let calls = fake.take_calls();
    assert_eq!(
        (count(&calls, "instances.get"), count(&calls, ALL)),
        (0, 1),
        "{calls:?}"
    );
}

#[tokio::test]
async fn an_instance_without_the_label_is_found_by_name() {
    let (fake, provider, instances) = fleet(40).await;
    let hidden = instances[7].clone().without_labels();
    let disguised = instances[8].clone().label("k8s-io-cluster-name", "other-example-com");
    fake.launch([hidden, disguised]);
    assert!(provider.ask(&claims(&instances)).await.iter().all(Result::is_ok));
    assert_eq!(count(&fake.calls(), "instances.get"), 2);
}

#[tokio::test]
async fn a_cluster_without_labels_is_listed_zone_by_zone() {
    let (fake, provider, instances) = fleet(300).await;
    fake.launch(instances.iter().map(|instance| instance.clone().without_labels()));
    let mut asked = claims(&instances);
    asked.push(claim_of("gce://our-project/us-central1-a/no-such"));
    let results = provider.ask(&asked).await;
    assert!(results[..300].iter().all(Result::is_ok));
    assert_eq!(reason(&results[300]), "NotFound");
    let mut calls = rows(&fake.calls());
    calls.sort_unstable();
    let zone = ("instances.list", 100);
    assert_eq!(calls, [(TEMPLATE, 1), (ALL, 0), zone, zone, zone, (GROUP, 300)]);
}

#[tokio::test]
async fn whatever_kubelets_claim_a_query_ends_in_a_bounded_number_of_calls() {
    let fake = FakeGce::start().await;
    let healthy = add_fleet(&fake, 100, |group| group);
    // Each names a group of its own, which does not exist.
    let liars: Vec<FakeInstance> = (101..=600)
        .map(|number| {
            let said = format!("projects/{PROJECT_NUMBER}/regions/us-central1/instanceGroupManagers/made-up-{number}");
            FakeInstance::numbered(number)
                .label("k8s-io-cluster-name", &CLUSTER.replace('.', "-"))
                .metadata("created-by", &said)
        })
        .collect();
    fake.launch(liars.clone());
    let provider = Provider::at(&fake.endpoint()).await;
    let all: Vec<FakeInstance> = liars.iter().chain(&healthy).cloned().collect();
    let results = provider.ask(&claims(&all)).await;
    assert!(
        results[500..].iter().all(Result::is_ok),
        "those that tell the truth come first: {:?}",
        reasons(&results[500..])
    );
    assert!(results[..500].iter().all(Result::is_err));
    let calls = fake.take_calls();
    assert!(calls.len() <= 2 + 256 + 1, "{} calls", calls.len());

    // Each names a zone of its own.
    let zones: Vec<_> = (1..=400)
        .map(|number| claim_of(&format!("gce://our-project/moon-east{number}-a/n")))
        .collect();
    provider.ask(&zones).await;
    let calls = fake.take_calls();
    assert_eq!(
        (count(&calls, ALL), count(&calls, "instances.list")),
        (2, 32),
        "two pages of all that are labelled, and no more zones"
    );
}

#[tokio::test]
async fn the_token_bucket_throttles() {
    let (fake, provider, instances) = fleet(20).await;
    fake.throttle(Some(TokenBucket {
        capacity: 4.0,
        refill: 0.0,
    }));
    assert!(provider.ask(&claims(&instances)).await.iter().all(Result::is_ok));
    let results = provider.ask(&claims(&instances)).await;
    assert_eq!(reasons(&results), ["Throttled"; 20]);
    fake.throttle(Some(TokenBucket::COMPUTE));
    assert!(provider.ask(&claims(&instances)).await.iter().all(Result::is_ok));
}
