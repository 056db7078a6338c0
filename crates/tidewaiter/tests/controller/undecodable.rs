//! A record that this version cannot decode: an admin edited it under an older CRD, or a newer version wrote it before a rollback.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::ApiResource;
use serde_json::json;
use tidewaiter_api::NodeIdentity;
use tidewaiter_testkit::{ControlPlane, Identity};

use crate::explain::{MAY_LOOK, explain};
use crate::world::World;

const LABELS: [(&str, &str); 3] = [
    ("kops.k8s.io/instancegroup", "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("team", "red"),
];

/// The API server accepts any record, as one with an older CRD does.
async fn accept_anything(world: &World) {
    let crds: Api<CustomResourceDefinition> = Api::all(world.cluster.client(&Identity::Admin));
    let loose = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let name = "nodeidentities.tidewaiter.dev";
    let mut crd = crds.get(name).await.unwrap();
    crd.spec.versions[0].schema = serde_json::from_value(loose).unwrap();
    crds.replace(name, &PostParams::default(), &crd).await.unwrap();
}

#[tokio::test]
async fn one_bad_record_blocks_no_other() {
    let world = World::on(ControlPlane::start().await).await;
    accept_anything(&world).await;
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
