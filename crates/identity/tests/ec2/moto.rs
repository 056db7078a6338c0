//! The same provider against moto, which we have not written: what it says of instances that it has launched itself.

use tidewaiter_api::Lifecycle;
use tidewaiter_identity::{NodeNames, Refusal, prove};
use tidewaiter_testkit::Moto;
use tidewaiter_testkit::moto::Launch;

use crate::setup::{CLUSTER, Provider, claim, reasons};

fn tags(group: &str) -> Vec<(&'static str, &str)> {
    vec![("KubernetesCluster", CLUSTER), ("kops.k8s.io/instancegroup", group)]
}

#[tokio::test]
async fn instances_from_launch_to_termination() {
    let moto = Moto::start().await;
    let provider = Provider::at(moto.endpoint());
    let worker = moto
        .launch(&Launch {
            tags: tags("nodes"),
            ..Launch::default()
        })
        .await;
    let spot = moto
        .launch(&Launch {
            tags: tags("spot"),
            spot: true,
            zone: "us-east-1b",
            ..Launch::default()
        })
        .await;
    let foreign = [
        ("KubernetesCluster", "other.example.com"),
        ("kops.k8s.io/instancegroup", "nodes"),
    ];
    let foreign = moto
        .launch(&Launch {
            tags: foreign.to_vec(),
            ..Launch::default()
        })
        .await;
    let bare = moto.launch(&Launch::default()).await;
    let gone = moto
        .launch(&Launch {
            tags: tags("nodes"),
            ..Launch::default()
        })
        .await;
    moto.terminate(&gone.id).await;

    let all = [&worker, &spot, &foreign, &bare, &gone].map(|launched| claim(&launched.provider_id()));
    let results = provider.ask(&all).await;
    assert_eq!(
        reasons(&results),
        ["ok", "ok", "ForeignProject", "ForeignProject", "NotRunning"]
    );

    let identity = results[0].clone().unwrap();
    assert_eq!(
        (identity.group.as_str(), identity.lifecycle),
        ("nodes", Lifecycle::OnDemand)
    );
    assert!(
        identity.has_name(&worker.name) && identity.has_name(&worker.id),
        "{identity:?}"
    );
    assert!(identity.has_address(worker.address.parse().unwrap()), "{identity:?}");
    let mut own = claim(&worker.provider_id());
    own.node = worker.name.parse().unwrap();
    own.addresses = vec![worker.address.parse().unwrap()];
    prove(&own, identity.clone().into(), NodeNames::Enforce).unwrap();
    own.node = spot.name.parse().unwrap();
    let forged = prove(&own, identity.into(), NodeNames::Enforce).unwrap_err();
    assert!(forged.is_forgery(), "{forged}");

    let identity = results[1].clone().unwrap();
    assert_eq!(
        (identity.zone.as_str(), identity.lifecycle),
        ("us-east-1b", Lifecycle::Spot)
    );

    // An id that it does not know fails its whole call, and costs the others nothing.
    let unknown = claim("aws:///us-east-1a/i-00000000000000bad");
    let results = provider.ask(&[unknown, claim(&worker.provider_id())]).await;
    assert_eq!(reasons(&results), ["NotFound", "ok"]);
    let asked = [
        claim("aws:///us-east-1a/i-00000000000000bad"),
        claim(&spot.provider_id()),
    ];
    assert_eq!(
        reasons(&provider.ask(&asked).await),
        ["NotFound", "ok"],
        "by filter from now on"
    );

    // A tag that changes is seen.
    moto.tag(&worker.id, "kops.k8s.io/instancegroup", "Not A Name").await;
    let refusal = provider.ask_one(&worker.provider_id()).await.unwrap_err();
    assert!(matches!(refusal, Refusal::NotInGroup { .. }), "{refusal}");
}
