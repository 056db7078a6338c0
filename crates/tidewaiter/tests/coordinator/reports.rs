//! The cloud's status of the nodes: the state of the cluster, and nothing that only a kubelet says of another node.

use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{Identity, Kubelet, eventually, settled, throughout};

use crate::cloud::{Cloud, Fault};
use crate::{SOON, World};

const NODE_ID: &str = "containership.io/node-id";

async fn shows(cloud: &Cloud, node: &str, status: &str) {
    eventually(format!("the cloud to show {status:?}"), SOON, async || {
        let shown = cloud.status(node).await;
        if shown == status { Ok(()) } else { Err(shown) }
    })
    .await;
}

async fn cluster_shows(cloud: &Cloud, status: &str) {
    eventually(
        format!("the cloud to show {status:?} of the cluster"),
        SOON,
        async || {
            let shown = cloud.shown("^").await;
            if shown == status { Ok(()) } else { Err(shown) }
        },
    )
    .await;
}

async fn ready(kubelet: &Kubelet, status: &str, reason: &str) {
    let condition = json!({"type": "Ready", "status": status, "reason": reason});
    let patched = kubelet
        .patch_status(json!({"status": {"conditions": [condition]}}))
        .await;
    patched.unwrap();
}

#[tokio::test]
async fn the_cloud_shows_what_the_nodes_are() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let pool = cloud.pool().await;
    let labelled = cloud.node(&pool, None).await;
    let named = cloud.node(&pool, Some("named")).await;
    let new = cloud.node(&pool, None).await;
    let provisioning = json!({"status": {"type": "PROVISIONING", "percent": 30}});
    let path = format!("^/nodes/{new}/status");
    cloud.send(&cloud.owner, Method::PUT, &path, provisioning).await;
    let first = Kubelet::register(&world.cluster, &node("labelled").label(NODE_ID, &labelled).build()).await;
    let second = Kubelet::register(&world.cluster, &node("named").ready("False").build()).await;
    let _process = world.coordinator_of(&cloud);

    shows(&cloud, &labelled, "RUNNING").await;
    shows(&cloud, &named, "NOT_READY not ready: KubeletReady").await;
    cluster_shows(&cloud, "RUNNING 1 of 2 Nodes are ready").await;
    assert_eq!(
        cloud.status(&new).await,
        "PROVISIONING",
        "there is no Node that says otherwise"
    );

    ready(&second, "True", "KubeletReady").await;
    shows(&cloud, &named, "RUNNING").await;
    ready(&first, "Unknown", "NodeStatusUnknown").await;
    shows(&cloud, &labelled, "NOT_READY not reachable: NodeStatusUnknown").await;
    cluster_shows(&cloud, "RUNNING 1 of 2 Nodes are ready").await;

    // A node that comes later, in the cloud and then in the cluster.
    let late = cloud.node(&pool, Some("late")).await;
    let heartbeating = Kubelet::register(&world.cluster, &node("late").build()).await;
    shows(&cloud, &late, "RUNNING").await;

    // A status that somebody overwrote is sent again.
    let overwritten = json!({"status": {"type": "FAILED", "percent": 0}});
    let path = format!("^/nodes/{late}/status");
    let (status, answer) = cloud.send(&cloud.owner, Method::PUT, &path, overwritten).await;
    assert!(status < 300, "{status} {answer}");
    shows(&cloud, &late, "RUNNING").await;

    let nodes: Api<Node> = Api::all(world.cluster.client(&Identity::Admin));
    nodes.delete("named", &DeleteParams::default()).await.unwrap();
    shows(&cloud, &named, "UNKNOWN the cluster has no Node for it").await;
    cluster_shows(&cloud, "RUNNING 1 of 2 Nodes are ready").await;

    // At rest nothing is sent, whatever the heartbeats say.
    let still = Duration::from_secs(2);
    let statuses = || {
        let sent = cloud.seen("PUT ").into_iter();
        sent.filter(|line| line.ends_with("/status")).collect::<Vec<_>>()
    };
    let sent = settled("what is sent", still, SOON, async || statuses().len()).await;
    throughout("nothing to be sent", Duration::from_secs(3), async || {
        heartbeating.heartbeat().await;
        let now = statuses();
        if now.len() == sent {
            Ok(())
        } else {
            Err(format!("{:?}", &now[sent..]))
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_kubelet_says_of_another_node_is_not_reported() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let pool = cloud.pool().await;
    let named = cloud.node(&pool, Some("victim")).await;
    let nameless = cloud.node(&pool, None).await;
    let lonely = cloud.node(&pool, None).await;
    let other = cloud.node(&pool, Some("other")).await;
    let register = async |name: &str, id: &str, ready: &str| {
        let built = node(name).label(NODE_ID, id).ready(ready).build();
        Kubelet::register(&world.cluster, &built).await
    };
    // The cloud knows its name: a label of another Node counts for nothing.
    register("evil", &named, "False").await;
    register("victim", &named, "True").await;
    // Two have the id of a node without a name.
    register("honest", &nameless, "True").await;
    register("liar", &nameless, "False").await;
    // The cloud knows who this is, so it is not the node that its label names.
    register("other", &lonely, "True").await;
    let _process = world.coordinator_of(&cloud);

    shows(&cloud, &named, "RUNNING").await;
    shows(&cloud, &other, "RUNNING").await;
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(world.cluster.client(&Identity::Admin), "default");
    for name in ["honest", "liar"] {
        eventually(format!("an Event on {name}"), SOON, async || {
            let all = events
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let about = all.items.iter().find(|event| {
                event.reason.as_deref() == Some("NodeIdConflict")
                    && event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name)
            });
            about.map(drop).ok_or_else(|| format!("{} Events", all.items.len()))
        })
        .await;
    }
    assert_eq!(cloud.status(&nameless).await, "UNKNOWN");
    assert_eq!(cloud.status(&lonely).await, "UNKNOWN");
    assert_eq!(cloud.seen(&format!("/nodes/{nameless}/status")), [""; 0]);
    // The label is corrected: the other one is the node.
    let liar = Kubelet::new(&world.cluster, "liar");
    liar.patch(json!({"metadata": {"labels": {NODE_ID: null}}}))
        .await
        .unwrap();
    shows(&cloud, &nameless, "RUNNING").await;
    assert_eq!(cloud.status(&named).await, "RUNNING");
}

#[tokio::test]
async fn a_node_that_the_cloud_does_not_take_delays_no_other() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let pool = cloud.pool().await;
    let mut ids = Vec::new();
    for number in 0..12 {
        let name = format!("node-{number}");
        ids.push(cloud.node(&pool, Some(&name)).await);
        Kubelet::register(&world.cluster, &node(&name).build()).await;
    }
    let faults = [
        Fault::Hangs,
        Fault::Status(429),
        Fault::Status(403),
        Fault::Status(503),
        Fault::Hangs,
    ];
    for (id, fault) in ids.iter().zip(faults) {
        cloud.fault(&format!("/nodes/{id}/status"), fault);
    }
    let begin = now();
    let _process = world.coordinator_of(&cloud);
    for id in &ids[faults.len()..] {
        shows(&cloud, id, "RUNNING").await;
    }
    cluster_shows(&cloud, "RUNNING 12 of 12 Nodes are ready").await;
    for id in &ids[..faults.len()] {
        assert_eq!(cloud.status(id).await, "UNKNOWN");
        let asked = cloud.seen(&format!(
            "PUT /v3/organizations/{}/clusters/{}/nodes/{id}/",
            cloud.organization, cloud.cluster
        ));
        let most = 6 + begin.elapsed().as_secs() / 5;
        assert!(
            !asked.is_empty() && asked.len() as u64 <= most,
            "retried, and moderately: {asked:?}, most {most}"
        );
    }
    cloud.heal();
    for id in &ids {
        shows(&cloud, id, "RUNNING").await;
    }
}

#[expect(clippy::disallowed_methods, reason = "retries are counted in real time")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test]
async fn a_standby_reports_nothing() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let pool = cloud.pool().await;
    let id = cloud.node(&pool, Some("node-1")).await;
    Kubelet::register(&world.cluster, &node("node-1").build()).await;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(world.cluster.client(&Identity::Admin), "containership-core");
    let held = json!({"metadata": {"name": "tidewaiter-coordinator"}, "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 0}});
    let held = serde_json::from_value(held).unwrap();
    leases.create(&PostParams::default(), &held).await.unwrap();
    let process = world.coordinator_of(&cloud);
    eventually("the endpoints to answer", SOON, async || {
        let asked = world.get(&process, "/metadata", &cloud.owner).await;
        asked.map(drop).map_err(|error| error.to_string())
    })
    .await;
    throughout(
        "nothing to be asked or sent about nodes",
        Duration::from_secs(4),
        async || {
            let seen = cloud.seen("/nodes");
            if seen.is_empty() {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        },
    )
    .await;
    leases
        .delete("tidewaiter-coordinator", &DeleteParams::default())
        .await
        .unwrap();
    shows(&cloud, &id, "RUNNING").await;
}

/// The number of the change up to which a kind of a report is synced, and its objects.
fn synced_kind(report: &Value, kind: &str) -> Option<(u64, u64)> {
    let kind = report["kinds"].as_array()?.iter().find(|found| found["kind"] == kind)?;
    Some((kind["change"].as_str()?.parse().ok()?, kind["objects"].as_u64()?))
}

#[tokio::test]
async fn the_cloud_knows_what_the_cluster_has_followed_and_how_its_nodes_are() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    Kubelet::register(&world.cluster, &node("node-1").build()).await;
    let begin = now();
    let mut variables = cloud.variables();
    variables.push(("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "1s".to_owned()));
    let _process = world.replica(&variables, None);
    let reported = async |what: &str, is: &dyn Fn(&Value) -> bool| {
        eventually(format!("a report with {what}"), SOON, async || {
            let (status, report) = cloud.send(&cloud.owner, Method::GET, "^/report", json!(null)).await;
            if status == 200 && report["synced"] == true && is(&report) {
                Ok(report)
            } else {
                Err(format!("{status}: {report}"))
            }
        })
        .await
    };
    let labels = |report: &Value| synced_kind(report, "ClusterLabel").unwrap();
    let mut changes = Vec::new();
    for number in 1..=2 {
        let label = json!({"key": format!("cluster.containership.io/label-{number}"), "value": ""});
        cloud.post("^/labels", label).await;
        let has_all = |report: &Value| synced_kind(report, "ClusterLabel").is_some_and(|kind| kind.1 == number);
        let report = reported("all labels", &has_all).await;
        assert_eq!(report["agents"]["nodes"], 1, "{report}");
        changes.push(labels(&report).0);
    }
    assert!(changes[0] < changes[1], "{changes:?}");

    // What others change is no news of the labels, however often these are listed, and is not reported.
    let last = changes[1];
    let bindings = |report: &Value| synced_kind(report, "AuthorizationRoleBinding").map(|kind| kind.0);
    let mut lowest = last;
    for name in ["first", "second"] {
        let before = cloud.seen("/labels").len();
        eventually("more lists of labels", SOON, async || {
            let more = cloud.seen("/labels").len() - before;
            if more >= 2 { Ok(()) } else { Err(more) }
        })
        .await;
        let team = json!({"name": name, "description": "", "user_ids": []});
        cloud.post("~/teams", team).await;
        let has_team = |report: &Value| bindings(report).is_some_and(|change| change > lowest);
        let report = reported("the change of a team", &has_team).await;
        assert_eq!(labels(&report).0, last, "{report}");
        lowest = bindings(&report).unwrap();
    }

    let sent = cloud.seen("/report").len() as u64;
    let most = 2 + begin.elapsed().as_secs() / 10;
    assert!(sent <= most, "{sent} reports, at most {most}");
}
