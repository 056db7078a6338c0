//! Switching from kops-controller, and back: each command of docs/takeover.md has its effect, in a cluster with kOps'
//! own manifest. What a container that kOps described does, unchanged but for the image.

mod control_plane_nodes;
mod page;

use serde_json::json;
use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{ControlPlane, Identity, Kubelet};

use self::control_plane_nodes::ControlPlaneNodes;
use self::page::Section;
use crate::world::{CLUSTER, Labels, World, repository};

const KOPS_IMAGE: &str = "registry.k8s.io/kops/kops-controller:1.34.0";
const OUR_IMAGE: &str = "registry.example.com/kops-controller:0.1.0";

/// The pods of kops-controller, and those of `deploy/controller`.
const KOPS: &str = "k8s-app=kops-controller";
const OURS: &str = "app.kubernetes.io/name=tidewaiter";

const LEADER: &str = "kubectl -n kube-system get lease kops-controller-leader -o jsonpath='{.spec.holderIdentity}'";
const DELETE_PODS: &str = "kubectl -n kube-system delete pods -l k8s-app=kops-controller";

#[tokio::test]
async fn what_kops_describes_starts_it_and_may_do_all_that_it_does() {
    let world = World::start().await;
    world
        .cluster
        .apply_manifests(repository().join("deploy/takeover/rbac.yaml"))
        .await;
    world.group("nodes", &[("team", "red")]);
    let controller = world.kops_controller().await;
    let kubelet = world.join(3, "nodes").await;
    let expected = [
        ("kops.k8s.io/instancegroup", "nodes"),
        ("node-role.kubernetes.io/node", ""),
        ("team", "red"),
    ];
    world.has_labels(kubelet.name(), &expected).await;
    world.is_verified(kubelet.name(), True, "Proven").await;

    // A label that somebody changed is put back, for which the record is read.
    world
        .patch(kubelet.name(), json!({"metadata": {"labels": {"team": "blue"}}}))
        .await;
    world.has_labels(kubelet.name(), &expected).await;

    // Events and refusals too.
    let liar = FakeInstance::numbered(4);
    let claim = World::node_of(&liar).provider_id(&FakeInstance::numbered(3).provider_id());
    let liar = Kubelet::register(&world.cluster, &claim.build()).await;
    world.is_verified(liar.name(), False, "NameMismatch").await;
    world
        .tells(liar.name(), "NameMismatch", "Find out who registered this Node")
        .await;
    assert_eq!(world.labels(liar.name()).await, Labels::new());
    controller.stops().await;
}

/// A world as kOps leaves it, with a control plane of two nodes that run kops-controller, and none of our objects.
async fn kops_cluster() -> (World, ControlPlaneNodes) {
    let cluster = ControlPlane::builder().with_controller_manager().start().await;
    let world = World::as_it_is(cluster).await;
    world.group("nodes", &[("team", "red")]);
    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kops-controller", "namespace": "kube-system"},
        "data": {"config.yaml": world.config()},
    });
    world.cluster.apply(&config.to_string()).await;
    let manifest = "crates/tidewaiter/tests/controller/takeover/kops-controller.yaml";
    world.cluster.apply_manifests(repository().join(manifest)).await;
    let nodes = ControlPlaneNodes::start(&world.cluster).await;
    nodes.run(KOPS, KOPS_IMAGE).await;
    (world, nodes)
}

fn section(title: &str, world: &World, node: &str) -> Section {
    let config = world.file("config.yaml", &world.config());
    let placeholders = [
        ("REGISTRY/kops-controller:0.1.0", OUR_IMAGE.to_owned()),
        ("KOPS_IMAGE", KOPS_IMAGE.to_owned()),
        ("NODE", node.to_owned()),
        ("GROUP", "nodes".to_owned()),
        ("CLUSTER", CLUSTER.to_owned()),
        (
            "s3://BUCKET",
            world.store.url().trim_end_matches(&format!("/{CLUSTER}")).to_owned(),
        ),
        ("config.yaml", config.display().to_string()),
    ];
    Section::of(title, &world.cluster, world.ec2.environment(), placeholders)
}

#[tokio::test]
async fn the_page_on_what_is_taken_over_and_on_tags_is_true() {
    let (world, _nodes) = kops_cluster().await;
    let tag = "k8s.io/cluster-autoscaler/node-template/label/team";
    let instance = FakeInstance::numbered(1).kops(CLUSTER, "nodes").tag(tag, "red");
    world.ec2.launch([instance.clone()]);
    let kubelet = Kubelet::register(&world.cluster, &World::node_of(&instance).build()).await;

    let mut page = section("What Tidewaiter takes over", &world, kubelet.name());
    let printed = page
        .run(r"kubectl -n kube-system get configmap kops-controller -o jsonpath='{.data.config\.yaml}'")
        .await;
    assert_eq!(printed, world.config());
    page.ends();

    let mut page = section("Newer kOps: labels from tags", &world, kubelet.name());
    page.run("kubectl apply -f deploy/crds").await;
    let printed = page
        .run("tidewaiter explain node NODE --conf config.yaml --from-cloud")
        .await;
    assert!(
        printed.contains("kops.k8s.io/instancegroup") && printed.contains("team"),
        "{printed}"
    );
    page.ends();
}

#[tokio::test]
async fn the_way_next_to_kops_controller_leads_there_and_back() {
    let (world, nodes) = kops_cluster().await;
    let kubelet = world.join(3, "nodes").await;
    let mut page = section("Next to kops-controller", &world, kubelet.name());
    let printed = page
        .run("tidewaiter explain group GROUP --name CLUSTER --state s3://BUCKET")
        .await;
    assert!(printed.contains("team"), "{printed}");

    page.run("kubectl apply -f deploy/crds").await;
    page.run("kubectl apply -f deploy/controller").await;
    page.run("kubectl -n kube-system rollout status daemonset/tidewaiter-controller")
        .await;
    nodes.run(OURS, "registry.invalid/tidewaiter:0.1.0").await;
    nodes.are_behind_the_service(OURS).await;
    let controller = world.controller_with(&[]).await;

    let before = nodes.pods(KOPS).await;
    page.run(DELETE_PODS).await;
    nodes.run(KOPS, KOPS_IMAGE).await;
    let after = nodes.pods(KOPS).await;
    assert!(
        after.keys().all(|name| !before.contains_key(name)),
        "{after:?} after {before:?}"
    );

    world.is_verified(kubelet.name(), True, "Proven").await;
    let holder = page.run(LEADER).await;
    assert_eq!(world.holder().await, Some(holder));
    let printed = page.run("kubectl get nodeidentities").await;
    assert!(
        printed.contains(kubelet.name()) && printed.contains("Proven"),
        "{printed}"
    );
    let labels = world.labels(kubelet.name()).await;

    controller.stops().await;
    page.run("kubectl -n kube-system delete daemonset tidewaiter-controller --cascade=foreground")
        .await;
    assert!(nodes.pods(OURS).await.is_empty(), "it waits for the pods");
    page.run("kubectl delete -f deploy/controller -f deploy/crds --ignore-not-found")
        .await;
    page.ends();
    as_kops_left_it(&world).await;
    nodes.run(KOPS, KOPS_IMAGE).await;
    assert_eq!(world.labels(kubelet.name()).await, labels);
}

#[tokio::test]
async fn the_way_in_place_of_kops_controller_leads_there_and_back() {
    let (world, nodes) = kops_cluster().await;
    let kubelet = world.join(3, "nodes").await;
    let mut page = section("In place of kops-controller", &world, kubelet.name());
    page.skip(
        "docker build -f deploy/image/Containerfile --target kops-controller -t REGISTRY/kops-controller:0.1.0 .",
    );
    page.run("kubectl apply -f deploy/crds").await;
    page.run("kubectl apply -f deploy/controller/rbac.yaml -f deploy/controller/admission.yaml -f deploy/takeover")
        .await;

    let image =
        "kubectl -n kube-system get daemonset kops-controller -o jsonpath='{.spec.template.spec.containers[0].image}'";
    assert_eq!(page.run(image).await, KOPS_IMAGE);
    let before = nodes.pods(KOPS).await;
    page.run(
        "kubectl -n kube-system set image daemonset/kops-controller kops-controller=REGISTRY/kops-controller:0.1.0",
    )
    .await;
    nodes.has_observed("kops-controller").await;
    assert_eq!(nodes.pods(KOPS).await, before, "the DaemonSet replaces no pod");

    page.run(DELETE_PODS).await;
    nodes.run(KOPS, OUR_IMAGE).await;
    nodes.are_behind_the_service(KOPS).await;
    let columns = "-o custom-columns='NAME:.metadata.name,IMAGE:.spec.containers[0].image'";
    let printed = page
        .run(&format!("kubectl -n kube-system get pods -l {KOPS} {columns}"))
        .await;
    assert!(
        printed.contains(OUR_IMAGE) && !printed.contains(KOPS_IMAGE),
        "{printed}"
    );
    let controller = world.kops_controller().await;
    world.is_verified(kubelet.name(), True, "Proven").await;
    let printed = page.run("kubectl get nodeidentities").await;
    assert!(printed.contains("Proven"), "{printed}");
    let labels = world.labels(kubelet.name()).await;

    page.run("kubectl -n kube-system set image daemonset/kops-controller kops-controller=KOPS_IMAGE")
        .await;
    page.run(DELETE_PODS).await;
    controller.stops().await;
    nodes.run(KOPS, KOPS_IMAGE).await;
    page.run("kubectl delete -f deploy/takeover -f deploy/controller/rbac.yaml -f deploy/controller/admission.yaml -f deploy/crds")
        .await;
    page.ends();
    as_kops_left_it(&world).await;
    assert_eq!(world.labels(kubelet.name()).await, labels);
}

/// Nothing of ours is left, and all of kOps' is.
async fn as_kops_left_it(world: &World) {
    let kubectl = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::from(world.cluster.kubectl(&Identity::Admin));
        let output = command.args(arguments).output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let kinds = "crds,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,services,daemonsets,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let left = kubectl(&["get", "-A", "-o", "name", kinds]).await;
    let left: Vec<&str> = left
        .lines()
        .filter(|line| line.contains("tidewaiter") || line.contains("kops-controller"))
        .collect();
    assert_eq!(
        left,
        [
            "clusterrole.rbac.authorization.k8s.io/kops-controller",
            "clusterrolebinding.rbac.authorization.k8s.io/kops-controller",
            "role.rbac.authorization.k8s.io/kops-controller",
            "rolebinding.rbac.authorization.k8s.io/kops-controller",
            "serviceaccount/kops-controller",
            "daemonset.apps/kops-controller",
        ]
    );
}
