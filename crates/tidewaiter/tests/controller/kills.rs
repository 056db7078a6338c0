//! Killed (SIGKILL) again and again while many Nodes are labelled, at random writes, the process ends where an
//! undisturbed one does.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{ListParams, PostParams};
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_kit::random;
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{ApiRequest, Moment, eventually};

use crate::world::{CLUSTER, SOON, World, labels_of, shown};

/// The number of concurrent requests of the controller.
const REQUESTS: usize = 32;

/// Returns the number of Nodes; a thousand take a minute.
#[expect(clippy::disallowed_methods, reason = "a test by hand takes more of them")]
fn count() -> u32 {
    std::env::var("TIDEWAITER_KILLED_NODES").map_or(100, |count| count.parse().unwrap())
}

#[tokio::test]
async fn killed_at_random_writes_it_labels_all_nodes() {
    let nodes = count();
    let longest = nodes as usize / 4;
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let instances: Vec<_> = (1..=nodes)
        .map(|number| FakeInstance::numbered(number).kops(CLUSTER, "nodes"))
        .collect();
    world.ec2.launch(instances.clone());
    let register = async |instance: &FakeInstance| {
        let node = World::node_of(instance).build();
        world.nodes().create(&PostParams::default(), &node).await.map(drop)
    };
    let all = stream::iter(&instances).map(register).buffer_unordered(16);
    all.try_collect::<()>().await.unwrap();

    let labelled = async || {
        let nodes = world.nodes().list(&ListParams::default()).await.unwrap().items;
        let has = |node: &&_| {
            labels_of(node)
                .get(INSTANCE_GROUP_LABEL)
                .is_some_and(|group| group == "nodes")
        };
        u32::try_from(nodes.iter().filter(has).count()).unwrap()
    };
    let mark = world.cluster.audit_mark().await;
    let controller = world.controller_that_is_not_ready(&[]);
    let mut kills = 0;
    while labelled().await < nodes {
        let nth = 1 + random::index(longest);
        let moment = [Moment::Before, Moment::After][random::index(2)];
        let writes = |request: &ApiRequest| request.is_write() && request.resource() != "leases";
        controller.proxy.kill_at(&controller.process, nth, moment, writes);
        eventually("it to be killed, or to be done", SOON, async || {
            match (controller.process.is_running(), labelled().await) {
                (true, done) if done < nodes => Err(format!("{done} of {nodes} Nodes")),
                _ => Ok(()),
            }
        })
        .await;
        if !controller.process.is_running() {
            kills += 1;
            world.expire_lease().await;
            controller.process.start_again();
        }
    }
    controller.proxy.clear_hook();
    // The last write may have killed it, too.
    controller.process.start_again();
    controller.ready().await;
    controller
        .has_metric("tidewaiter_nodes{state=\"verified\"}", |verified| {
            verified == f64::from(nodes)
        })
        .await;
    let records = world
        .records()
        .list(&ListParams::default())
        .await
        .map_err(shown)
        .unwrap()
        .items;
    assert!(
        records
            .iter()
            .all(|record| record.status.as_ref().is_some_and(|status| status.labels.len() == 3))
    );
    assert_eq!(records.len(), nodes as usize);
    // Two for each Node. What was on its way when the process was killed may have been done, and is looked at again.
    let written = world.writes_since(mark).await.len();
    assert!(
        written <= 2 * nodes as usize + (kills + 1) * REQUESTS,
        "{written} writes, {kills} kills"
    );
    assert!(kills > 1, "{kills} kills");
    world.quiet(Duration::from_secs(2)).await;
    controller.stops().await;
}
