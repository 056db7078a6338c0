//! Clouds that do not answer, or answer something else.

use std::time::Duration;

use tidewaiter_api::ConditionStatus::Unknown;
use tidewaiter_testkit::{FakeEc2, Kubelet, Scripted, TokenBucket};

use crate::attack::now;
use crate::field::{Field, OF_WORKER};
use crate::world::{Labels, World};

const NOTHING: TokenBucket = TokenBucket {
    capacity: 0.0,
    refill: 0.0,
};

pub fn throttles(ec2: &FakeEc2) {
    ec2.throttle(Some(NOTHING));
}

pub fn answers(ec2: &FakeEc2, answer: Scripted) {
    ec2.always(Some(answer));
}

/// The Nodes of these zones wait for their own answers alone; a Node that joins in another zone waits for none of it.
pub async fn two_zones_in_trouble(field: &Field) -> Vec<String> {
    let world = &field.world;
    world.ec2.hang_zone("us-east-1y");
    world.ec2.fail_zone("us-east-1z");
    let [hanging, failing] = ["us-east-1y", "us-east-1z"].map(|zone| {
        let instance = field.launches("nodes").zone(zone);
        world.ec2.launch([instance.clone()]);
        instance
    });
    for instance in [&hanging, &failing] {
        Kubelet::register(&world.cluster, &World::node_of(instance).build()).await;
    }
    let words = "the cloud failed (InternalError)";
    world
        .says(failing.node_name(), "Verified", Unknown, "Unavailable", words)
        .await;
    world
        .says(
            hanging.node_name(),
            "Verified",
            Unknown,
            "Unavailable",
            "not reachable (timeout)",
        )
        .await;
    // In less time than a call that is not answered takes: a pass that waits for one is held up. One of three, because
    // the machine may be busy.
    let mut in_time = false;
    for _ in 0..3 {
        let begin = now();
        field.joins().await;
        in_time |= begin.elapsed() < Duration::from_secs(8);
    }
    assert!(in_time, "this depends on neither zone");
    for instance in [&hanging, &failing] {
        assert_eq!(world.labels(instance.node_name()).await, Labels::new());
    }
    world
        .tells(hanging.node_name(), "Unavailable", "not reachable (timeout)")
        .await;
    field.heals().await;
    for instance in [&hanging, &failing] {
        world.has_labels(instance.node_name(), &OF_WORKER).await;
    }
    Vec::new()
}
