//! An object of ours that this version cannot decode: an admin edited it under an older CRD, or a newer version wrote
//! it before a rollback.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::ApiResource;
use serde_json::json;
use tidewaiter_api::{ClusterHealth, NodeIdentity};
use tidewaiter_testkit::{ControlPlane, Identity, eventually};

use crate::explain::{MAY_LOOK, explain};
use crate::world::{CLUSTER, SOON, World, shown};

const LABELS: [(&str, &str); 3] = [
    ("kops.k8s.io/instancegroup", "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("team", "red"),
];

/// The API server accepts any object of a kind, as one with an older CRD does.
async fn accept_anything(world: &World, plural: &str) {
    let crds: Api<CustomResourceDefinition> = Api::all(world.cluster.client(&Identity::Admin));
    let loose = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let name = &format!("{plural}.tidewaiter.dev");
    let mut crd = crds.get(name).await.unwrap();
    crd.spec.versions[0].schema = serde_json::from_value(loose).unwrap();
    crds.replace(name, &PostParams::default(), &crd).await.unwrap();
}

/// A ClusterHealth whose status is none.
async fn bad_cluster_health(world: &World) -> Api<DynamicObject> {
    accept_anything(world, "clusterhealths").await;
    let client = world.cluster.client(&Identity::Admin);
    let api = Api::all_with(client, &ApiResource::erase::<ClusterHealth>(&()));
    let bad = json!({
        "apiVersion": "tidewaiter.dev/v1alpha1", "kind": "ClusterHealth", "metadata": {"name": CLUSTER},
        "spec": {}, "status": {"conditions": "none", "counts": 7},
    });
    let bad: DynamicObject = serde_json::from_value(bad).unwrap();
    api.create(&PostParams::default(), &bad).await.unwrap();
    api
}

async fn is_written_anew(health: &Api<DynamicObject>) {
    eventually("the ClusterHealth to be written anew", SOON, async || {
        let found = health.get(CLUSTER).await.map_err(shown)?;
        let text = serde_json::to_string(&found).map_err(shown)?;
        let decoded: ClusterHealth = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        let status = decoded.status.filter(|status| !status.conditions.is_empty());
        status.map(drop).ok_or(text)
    })
    .await;
}

#[tokio::test]
async fn one_bad_record_blocks_no_other() {
    let world = World::on(ControlPlane::start().await).await;
    accept_anything(&world, "nodeidentities").await;
    let health = bad_cluster_health(&world).await;
    world.group("nodes", &[("team", "red")]);
    let bad = world.join(1, "nodes").await;
    let records: Api<DynamicObject> = Api::all_with(
        world.cluster.client(&Identity::Admin),
        &ApiResource::erase::<NodeIdentity>(&()),
    );
    let record = json!({
        "apiVersion": "tidewaiter.dev/v1alpha1", "kind": "NodeIdentity", "metadata": {"name": bad.name()},
        "spec": {"nodeUID": "u"},
        "status": {"labels": [{"key": "a b", "value": "c", "source": "GroupNodeLabels"}]},
    });
    let record: DynamicObject = serde_json::from_value(record).unwrap();
    records.create(&PostParams::default(), &record).await.unwrap();

    let controller = world.controller().await;
    is_written_anew(&health).await;
    let good = world.join(2, "nodes").await;
    world.has_labels(good.name(), &LABELS).await;
    world.tells(bad.name(), "Undecodable", "cannot read this object").await;
    world
        .tells(bad.name(), "RecordUndecodable", "status.labels[0].key")
        .await;
    let counted = "tidewaiter_undecodable_objects{kind=\"NodeIdentity\"}";
    controller.has_metric(counted, |count| count == 1.0).await;

    world.cluster.apply(MAY_LOOK).await;
    for (node, note) in [(&bad, true), (&good, false)] {
        let output = explain(&world, &["node", node.name()]).await;
        let text = String::from_utf8(output.stdout).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.success(), "{text}");
        assert_eq!(text.contains("its record cannot be decoded"), note, "{text}");
    }

    records.delete(bad.name(), &DeleteParams::default()).await.unwrap();
    world.has_labels(bad.name(), &LABELS).await;
    controller.has_metric(counted, |count| count == 0.0).await;
    controller.stops().await;
}
