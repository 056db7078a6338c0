//! The control plane behaves as a real cluster's does, and comes back with its port and data.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use tidewaiter_testkit::{ControlPlane, Identity, Kubelet, builders, eventually};

use crate::SOON;

/// The code of the API server's refusal.
fn code<T: std::fmt::Debug>(answer: kube::Result<T>) -> u16 {
    match answer {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_kubelet_cannot_give_itself_a_role_but_can_claim_any_instance() {
    let control_plane = ControlPlane::shared().await;
    let kubelet = Kubelet::register(control_plane, &builders::node("claims").internal_ip("10.0.0.1").build()).await;

    for label in ["node-role.kubernetes.io/control-plane", "kops.k8s.io/instancegroup"] {
        assert_eq!(
            code(kubelet.patch(json!({"metadata": {"labels": {label: ""}}})).await),
            403,
            "{label}"
        );
    }
    kubelet
        .patch(json!({"spec": {"providerID": "aws:///us-test-1a/i-00000000000000001"}}))
        .await
        .unwrap();
    assert_eq!(
        code(
            kubelet
                .patch(json!({"spec": {"providerID": "aws:///us-test-1a/i-2"}}))
                .await
        ),
        422
    );
    kubelet
        .patch(json!({"metadata": {"annotations": {"any": "thing"}, "labels": {"example.com/any": "thing"}}}))
        .await
        .unwrap();
    kubelet
        .patch_status(json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}}))
        .await
        .unwrap();
    assert_eq!(
        code(kubelet.nodes().delete("claims", &DeleteParams::default()).await),
        403
    );

    let other = Kubelet::new(control_plane, "other");
    assert_eq!(code(other.create(&builders::node("not-other").build()).await), 403);
    let forged = builders::node("other")
        .provider_id("aws:///us-test-1a/i-00000000000000001")
        .taint("t", "NoSchedule")
        .build();
    other.create(&forged).await.unwrap();
}

#[tokio::test]
async fn a_registered_node_has_real_size_and_a_heartbeat_changes_it() {
    let control_plane = ControlPlane::shared().await;
    let kubelet = Kubelet::register(control_plane, &builders::node("heartbeats").build()).await;
    let nodes: Api<Node> = Api::all(control_plane.client(&Identity::Admin));
    let before = nodes.get("heartbeats").await.unwrap();
    assert!(serde_json::to_vec(&before).unwrap().len() > 15_000);
    for _ in 0..2 {
        let version = nodes.get("heartbeats").await.unwrap().metadata.resource_version;
        kubelet.heartbeat().await;
        assert_ne!(
            nodes.get("heartbeats").await.unwrap().metadata.resource_version,
            version
        );
    }
}

#[tokio::test]
async fn kubectl_works_with_a_kubeconfig_that_only_its_owner_reads() {
    let control_plane = ControlPlane::shared().await;
    let kubeconfig = control_plane.kubeconfig(&Identity::Admin);
    assert_eq!(kubeconfig.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let identity = Identity::service_account("kube-system", "somebody");
    let output = control_plane
        .kubectl(&identity)
        .args(["auth", "whoami", "-o", "json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let user = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["status"]["userInfo"].clone();
    assert_eq!(user["username"], "system:serviceaccount:kube-system:somebody");
    let groups = json!([
        "system:serviceaccounts",
        "system:serviceaccounts:kube-system",
        "system:authenticated"
    ]);
    assert_eq!(user["groups"], groups);
}

#[tokio::test]
async fn restarts_keep_the_port_and_the_data() {
    let control_plane = ControlPlane::start().await;
    let configs: Api<ConfigMap> = Api::default_namespaced(control_plane.client(&Identity::Admin));
    let config = ConfigMap {
        metadata: kube::core::ObjectMeta {
            name: Some("kept".into()),
            ..Default::default()
        },
        ..Default::default()
    };
    configs.create(&PostParams::default(), &config).await.unwrap();

    control_plane.restart_apiserver().await;
    configs.get("kept").await.unwrap();

    control_plane.apiserver().kill();
    control_plane.etcd().kill();
    assert!(configs.get("kept").await.is_err());
    // Somebody else's server sits on the port for a while.
    let port = control_plane.url().rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let mut squatter = Some(TcpListener::bind(("127.0.0.1", port)).unwrap());
    let leaves = eventually("kube-apiserver to find its port taken", SOON, async || {
        if control_plane.apiserver().log().contains("address already in use") {
            squatter.take();
            Ok(())
        } else {
            Err(control_plane.apiserver().log())
        }
    });
    tokio::join!(control_plane.recover(), leaves);
    configs.get("kept").await.unwrap();
}

#[tokio::test]
async fn with_the_controller_manager_a_deleted_namespace_goes() {
    let control_plane = ControlPlane::builder().with_controller_manager().start().await;
    let namespaces: Api<Namespace> = Api::all(control_plane.client(&Identity::Admin));
    control_plane
        .apply("{apiVersion: v1, kind: Namespace, metadata: {name: short-lived}}")
        .await;
    namespaces
        .delete("short-lived", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the namespace to be gone", SOON, async || {
        match namespaces.get_opt("short-lived").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}
