//! Manifests of any kind, in any order, and what they then allow.

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use tidewaiter_testkit::{ControlPlane, Identity, Scratch};

const TIDES: &str = "
apiVersion: example.com/v1
kind: Tide
metadata: {name: high}
spec: {metres: 4}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: pilot, namespace: harbour}
---
# nothing but a comment
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pilot}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pilot}
subjects: [{kind: ServiceAccount, name: pilot, namespace: harbour}]
";

const DEFINITIONS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pilot}
rules: [{apiGroups: [example.com], resources: [tides], verbs: [list]}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tides.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Tide, plural: tides, singular: tide}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {metres: {type: integer}}}}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: harbour}
";

#[tokio::test]
async fn a_folder_is_applied_whatever_its_order_and_rbac_is_in_force() {
    let control_plane = ControlPlane::shared().await;
    let scratch = Scratch::new("manifests");
    for (file, text) in [("a.yaml", TIDES), ("b.yml", DEFINITIONS), ("c.txt", "not: a manifest")] {
        std::io::Write::write_all(
            &mut std::fs::File::create(scratch.path().join(file)).unwrap(),
            text.as_bytes(),
        )
        .unwrap();
    }
    control_plane.apply_manifests(scratch.path()).await;
    control_plane.apply_manifests(scratch.path().join("a.yaml")).await;

    let tides = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Tide"));
    let of = |name: &str| -> Api<DynamicObject> {
        Api::all_with(
            control_plane.client(&Identity::service_account("harbour", name)),
            &tides,
        )
    };
    let listed = of("pilot").list(&ListParams::default()).await.unwrap();
    assert_eq!(listed.items[0].data["spec"]["metres"], 4);
    assert!(of("stranger").list(&ListParams::default()).await.is_err());
}
