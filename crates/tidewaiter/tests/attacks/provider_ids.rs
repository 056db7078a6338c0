//! Malformed providerIDs: none of them reaches the cloud, and none is repeated at length.

use futures::future::join_all;
use kube::api::{Api, PostParams};
use tidewaiter_api::ConditionStatus::False;
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{Identity, Kubelet};

use crate::field::Field;

const PROVIDER_IDS: [&str; 12] = [
    // In place of these two, texts of 10 KiB.
    "LONG",
    "aws:///us-east-1a/i-LONG",
    "foo://bar",
    // Of another instance, the admission policy refuses it.
    "gce://project/us-central1-a/NAME",
    "i-0123456789abcdef0",
    "aws:////i-0123456789abcdef0",
    "AWS:///us-east-1a/i-0123456789abcdef0",
    "aws:///us-east-1a%2f/i-0123456789abcdef0",
    "aws:///us-east-1a/i-0123",
    "aws:///us-east-1a/i-0123456789abcdef0,i-0123456789abcdef1",
    "aws:///us-east-1a/i-0123456789abcdef0\n\u{1b}[31m",
    "aws:///us-east-1a/*",
];

pub async fn try_all(field: &Field) -> Vec<String> {
    let names = join_all(
        (0..)
            .zip(PROVIDER_IDS)
            .map(|(number, provider_id)| registers(field, number, provider_id)),
    )
    .await;
    for name in &names {
        field
            .world
            .says(name, "Verified", False, "InvalidProviderId", "providerID")
            .await;
        field
            .has_gained_nothing(name, &[("mine".to_owned(), "yes".to_owned())].into())
            .await;
        let record = field.world.records().get(name).await.unwrap();
        for text in [&record.spec.provider_id, &record.condition("Verified").unwrap().message] {
            assert!(text.len() <= 512 && !text.contains(char::is_control), "{text:?}");
        }
    }
    let hexadecimal = |id: &str| {
        id.strip_prefix("i-")
            .is_some_and(|id| id.len() == 17 && id.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let calls = field.world.identity_calls();
    assert!(
        calls.iter().flat_map(|call| &call.names).all(|id| hexadecimal(id)),
        "{calls:?}"
    );
    are_left_out(field).await;
    names
}

async fn registers(field: &Field, number: usize, provider_id: &str) -> String {
    let name = format!("malformed-{number}");
    let provider_id = provider_id
        .replace("LONG", &"x".repeat(10 * 1024))
        .replace("NAME", &name);
    let forged = node(&name).provider_id(&provider_id).label("mine", "yes").build();
    let cluster = &field.world.cluster;
    if Kubelet::new(cluster, &name).create(&forged).await.is_err() {
        // The admission policy refuses this form. The controller refuses it no matter who wrote it.
        let nodes = Api::all(cluster.client(&Identity::Admin));
        nodes.create(&PostParams::default(), &forged).await.unwrap();
    }
    name
}

/// A Node without a providerID waits for it, and nothing is told of it.
async fn are_left_out(field: &Field) {
    let world = &field.world;
    Kubelet::register(&world.cluster, &node("without").build()).await;
    Kubelet::register(&world.cluster, &node("empty").provider_id("").build()).await;
    field.controller.counts("waiting", 2).await;
    for name in ["without", "empty"] {
        assert_eq!(world.events(name).await, []);
        assert!(world.records().get_opt(name).await.unwrap().is_none());
    }
}
