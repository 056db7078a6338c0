//! The same provider against moto, which we have not written: what it says of instances beside what all clouds are
//! tried for.

use tidewaiter_api::Lifecycle;
use tidewaiter_testkit::Moto;
use tidewaiter_testkit::moto::Launch;

use crate::ask::{claim_of, reasons};
use crate::setup::{CLUSTER, Provider};

fn tags(group: &str) -> Vec<(&'static str, &str)> {
    vec![("KubernetesCluster", CLUSTER), ("kops.k8s.io/instancegroup", group)]
}

#[tokio::test]
async fn a_spot_instance_one_without_tags_and_one_that_is_gone() {
    let moto = Moto::start().await;
    let provider = Provider::at(moto.endpoint());
    let spot = moto
        .launch(&Launch {
            tags: tags("spot"),
            spot: true,
            zone: "us-east-1b",
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

    let all = [&spot, &bare, &gone].map(|launched| claim_of(&launched.provider_id()));
    let results = provider.ask(&all).await;
    assert_eq!(reasons(&results), ["ok", "ForeignProject", "NotRunning"]);
    let identity = results[0].clone().unwrap();
    assert_eq!(identity.lifecycle, Lifecycle::Spot);
    assert!(
        identity.has_name(&spot.name) && identity.has_name(&spot.id),
        "{identity:?}"
    );

    // An id that it does not know fails its whole call, and costs the others nothing; from then on it is asked by
    // filter.
    let unknown = "aws:///us-east-1a/i-00000000000000bad";
    for _ in 0..2 {
        let asked = [claim_of(unknown), claim_of(&spot.provider_id())];
        assert_eq!(reasons(&provider.ask(&asked).await), ["NotFound", "ok"]);
    }
}
