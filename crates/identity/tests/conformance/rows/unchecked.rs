//! Nothing of a providerID is sent but what has the form of an instance's name.

use tidewaiter_api::ProviderId;

use crate::ask::{claim_of, reasons};
use crate::bench::Bench;
use crate::cloud::Faults;

const OF_OTHERS: [&str; 7] = [
    "aws:///us-east-1a/i-0123456789abcdef0",
    "gce://our-project/us-central1-a/nodes-x7k2",
    "hcloud://42",
    "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m",
    "openstack:///0b4f7c5e-0000-4000-8000-000000000000",
    "digitalocean://42",
    "no-such-cloud://42",
];

pub(crate) async fn nothing_unchecked_is_sent<C: Faults>() {
    let mut cloud = C::start().await;
    let one = cloud.launch(1..=1, "nodes").await.remove(0);
    let bench = Bench::of(&cloud).await;
    let scheme = bench.identifier.scheme();
    let own = format!("{scheme}://");
    let long = format!("{scheme}://{}", "x".repeat(500));
    let others = OF_OTHERS.into_iter().filter(|other| !other.starts_with(&own));
    // All but the scheme is an instance's.
    let of_another_cloud = format!("other-{}", one.provider_id);
    let malformed = C::malformed();
    assert!(!malformed.is_empty() && malformed.iter().all(|text| text.starts_with(&own)));
    let asked: Vec<_> = malformed
        .into_iter()
        .chain(others)
        .chain([long.as_str(), &of_another_cloud])
        .map(claim_of)
        .collect();
    for (result, claim) in bench.ask(&asked).await.iter().zip(&asked) {
        let refusal = result.as_ref().unwrap_err();
        assert_eq!(refusal.reason(), "InvalidProviderId", "{claim:?}");
        assert!(!refusal.is_forgery() && refusal.to_string().len() < 300, "{refusal}");
    }
    assert!(
        format!("{scheme}://{}", "x".repeat(10_240))
            .parse::<ProviderId>()
            .is_err()
    );
    assert!(reasons(&bench.ask(&[]).await).is_empty());
    assert_eq!(cloud.fake().calls(), [], "above all none for everything");
}
