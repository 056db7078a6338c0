//! The abilities of the holder of a kubelet's credentials beyond registering a Node.

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_api::NodeIdentity;
use tidewaiter_api::names::UNIDENTIFIED_TAINT;
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{Identity, Kubelet};

use crate::field::{Field, OF_MASTER, OF_WORKER};
use crate::world::{Labels, World};

/// Every field that a kubelet can write, and our own field manager; what it cannot write is refused by the API server.
pub async fn looks_like_the_master(field: &Field) -> Vec<String> {
    let (world, scene) = (&field.world, field.scene());
    let (name, master) = (scene.own.node_name(), &scene.master);
    let kubelet = Kubelet::new(&world.cluster, name);
    let forged = scene
        .claims(master)
        .internal_ip(master.address())
        .taint(UNIDENTIFIED_TAINT, "NoSchedule");
    let of_the_master = node(master.node_name()).provider_id(&master.provider_id()).build();
    assert_eq!(status(kubelet.create(&of_the_master).await), 403);
    for (label, value) in &OF_MASTER[..3] {
        let labelled = forged.clone().label(label, value).build();
        assert_eq!(status(kubelet.create(&labelled).await), 403, "{label}");
    }
    kubelet.create(&forged.label("looks", "right").build()).await.unwrap();
    let ours = PatchParams {
        field_manager: Some("tidewaiter/node".to_owned()),
        ..PatchParams::default()
    };
    let looks = json!({"metadata": {
        "annotations": {"kops.k8s.io/instancegroup": "masters", "tidewaiter.dev/verified": "true"},
        "labels": {"group": "masters", "looks": "better"},
    }});
    kubelet.nodes().patch(name, &ours, &Patch::Merge(looks)).await.unwrap();
    let addresses = json!({"status": {"addresses": [
        {"type": "Hostname", "address": master.node_name()},
        {"type": "InternalDNS", "address": master.node_name()},
        {"type": "InternalIP", "address": master.address()},
    ]}});
    kubelet.patch_status(addresses).await.unwrap();
    assert_eq!(status(kubelet.patch(json!({"spec": {"taints": []}})).await), 403);
    world.is_verified(name, False, "NameMismatch").await;
    let own = [("group", "masters"), ("looks", "better")];
    field
        .has_gained_nothing(name, &own.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
        .await;
    assert!(world.is_tainted(name).await);
    vec![name.to_owned()]
}

/// The record of its Node, and those of others.
pub async fn writes_records(field: &Field) -> Vec<String> {
    let (world, scene) = (&field.world, field.scene());
    let name = scene.own.node_name();
    Kubelet::register(&world.cluster, &scene.claims(&scene.master).build()).await;
    let mut record = world.is_verified(name, False, "NameMismatch").await;
    let records: Api<NodeIdentity> = Api::all(world.cluster.client(&Identity::kubelet(name)));
    let (patch, params) = (
        Patch::Merge(json!({"status": {"instanceGroup": "masters"}})),
        PatchParams::default(),
    );
    assert_eq!(status(records.patch(name, &params, &patch).await), 403);
    assert_eq!(
        status(records.replace(name, &PostParams::default(), &record).await),
        403
    );
    assert_eq!(status(records.delete(name, &DeleteParams::default()).await), 403);
    record.metadata.name = Some("another".to_owned());
    record.metadata.resource_version = None;
    assert_eq!(status(records.create(&PostParams::default(), &record).await), 403);
    vec![name.to_owned()]
}

/// Both names are the instance's own, and one is not of the cluster's scheme; the other Node is not hurt.
pub async fn two_names_of_one_instance(field: &Field) -> Vec<String> {
    let honest = field.joins().await;
    let claims = node(honest.id())
        .provider_id(&honest.provider_id())
        .internal_ip(honest.address());
    let second = Kubelet::register(&field.world.cluster, &claims.build()).await;
    field.world.is_verified(second.name(), False, "NameScheme").await;
    field.has_gained_nothing(second.name(), &Labels::new()).await;
    field.world.is_verified(honest.node_name(), True, "Proven").await;
    field.is_labelled_as_ever(&honest).await;
    vec![second.name().to_owned()]
}

/// The record of the verified Node does not count for the new one. Nor does that of the forged one for an honest one
/// after it.
pub async fn registers_again(field: &Field) -> Vec<String> {
    let world = &field.world;
    let own = field.joins().await;
    let name = own.node_name();
    deletes(world, name).await;
    let forged = node(name).provider_id(&field.master.provider_id());
    let kubelet = Kubelet::register(&world.cluster, &forged.clone().build()).await;
    world.is_verified(name, False, "NameMismatch").await;
    assert_eq!(world.labels(name).await, Labels::new());
    world.is_recorded_as_nobody(name).await;
    deletes(world, name).await;
    kubelet.create(&World::node_of(&own).build()).await.unwrap();
    world.has_labels(name, &OF_WORKER).await;
    world.is_verified(name, True, "Proven").await;
    deletes(world, name).await;
    kubelet.create(&forged.build()).await.unwrap();
    vec![name.to_owned()]
}

/// The Node of the instance that is gone stays, and with it a name that now is a control plane's.
pub async fn inherits_a_name(field: &Field) -> Vec<String> {
    let old = field.joins().await;
    field.world.ec2.forget(old.id());
    let new = field.launches("masters").ip(old.address());
    field.world.ec2.launch([new]);
    field.world.is_verified(old.node_name(), False, "NotFound").await;
    field.is_labelled_as_ever(&old).await;
    vec![old.node_name().to_owned()]
}

/// Anyone who may change the tags of instances changes that of the group.
pub async fn is_tagged_as_a_master(field: &Field) -> Vec<String> {
    let worker = field.joins().await;
    let tagged = worker.clone().tag("kops.k8s.io/instancegroup", "masters");
    field.world.ec2.launch([tagged]);
    field.world.is_verified(worker.node_name(), False, "GroupChanged").await;
    field.is_labelled_as_ever(&worker).await;
    vec![worker.node_name().to_owned()]
}

async fn deletes(world: &World, name: &str) {
    world.nodes().delete(name, &DeleteParams::default()).await.unwrap();
}

/// The HTTP status of the API server's answer.
fn status<T>(answer: kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}
