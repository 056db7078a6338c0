//! The definitions of the Go coordinator and of Cerebral, as clusters have stored them since they were made through
//! apiextensions v1beta1.

use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

/// A definition of the Go coordinator or of Cerebral.
#[derive(Clone, Copy, Debug)]
pub struct GoDefinition {
    /// The group of its API.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// Its plural.
    pub plural: &'static str,
    /// Its short name.
    pub short: &'static str,
}

/// The definitions of the Go coordinator.
#[rustfmt::skip]
pub static GO_DEFINITIONS: [GoDefinition; 10] = [
    GoDefinition { group: "containership.io", version: "v3", kind: "User", plural: "users", short: "usr" },
    GoDefinition { group: "containership.io", version: "v3", kind: "Registry", plural: "registries", short: "reg" },
    GoDefinition { group: "containership.io", version: "v3", kind: "Plugin", plural: "plugins", short: "plgn" },
    GoDefinition { group: "containership.io", version: "v3", kind: "ClusterLabel", plural: "clusterlabels", short: "cl" },
    GoDefinition { group: "provision.containership.io", version: "v3", kind: "NodePoolLabel", plural: "nodepoollabels", short: "npl" },
    GoDefinition { group: "provision.containership.io", version: "v3", kind: "ClusterUpgrade", plural: "clusterupgrades", short: "cup" },
    GoDefinition { group: "auth.containership.io", version: "v3", kind: "AuthorizationRole", plural: "authorizationroles", short: "authrole" },
    GoDefinition { group: "auth.containership.io", version: "v3", kind: "AuthorizationRoleBinding", plural: "authorizationrolebindings", short: "authbinding" },
    GoDefinition { group: "cerebral.containership.io", version: "v1alpha1", kind: "AutoscalingGroup", plural: "autoscalinggroups", short: "asg" },
    GoDefinition { group: "cerebral.containership.io", version: "v1alpha1", kind: "AutoscalingPolicy", plural: "autoscalingpolicies", short: "asp" },
];

impl GoDefinition {
    /// That of this object.
    #[must_use]
    pub fn of(object: &Value) -> &'static Self {
        let kind = object["kind"].as_str().unwrap();
        GO_DEFINITIONS.iter().find(|old| old.kind == kind).unwrap()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    fn is_cerebral(&self) -> bool {
        self.group.starts_with("cerebral")
    }

    /// Returns the definition as `kubectl apply` sent it.
    fn applied(&self) -> Value {
        let scope = if self.is_cerebral() { "Cluster" } else { "Namespaced" };
        let names = json!({"kind": self.kind, "plural": self.plural, "shortNames": [self.short]});
        let mut definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1beta1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name()},
            "spec": {"group": self.group, "version": self.version, "scope": scope, "names": names},
        });
        if self.is_cerebral() {
            // Cerebral's definitions had schemas, which refused `null`. They were not structural, so nothing was
            // pruned.
            let spec = json!({"properties": {"spec": {"required": [], "properties": {"policies": {"type": "array"}}}}});
            definition["spec"]["validation"] = json!({"openAPIV3Schema": spec});
        } else {
            definition["metadata"]["labels"] = json!({"containership.io/managed": "true"});
        }
        if self.kind == "AutoscalingGroup" {
            definition["spec"]["subresources"] = json!({"status": {}});
        }
        definition
    }

    /// Returns its key in the API server's storage.
    #[must_use]
    pub fn key(&self) -> String {
        format!("apiextensions.k8s.io/customresourcedefinitions/{}", self.name())
    }

    /// As the API server of that time stored it: see [`ControlPlane::store`](crate::ControlPlane::store).
    #[must_use]
    pub fn stored(&self, number: usize) -> Value {
        let mut definition = self.applied();
        let applied = definition.to_string();
        let metadata = definition["metadata"].as_object_mut().unwrap();
        metadata.insert("uid".to_owned(), json!(format!("00000000-0000-4000-9000-{number:012}")));
        metadata.insert("creationTimestamp".to_owned(), json!("2019-03-25T21:00:00Z"));
        metadata.insert("generation".to_owned(), json!(1));
        metadata.insert(
            "annotations".to_owned(),
            json!({"kubectl.kubernetes.io/last-applied-configuration": applied}),
        );
        let (singular, list) = (self.kind.to_lowercase(), format!("{}List", self.kind));
        let names = json!({
            "kind": self.kind, "plural": self.plural, "singular": singular, "listKind": list, "shortNames": [self.short],
        });
        let spec = definition["spec"].as_object_mut().unwrap();
        spec.insert("names".to_owned(), names.clone());
        let version = json!([{"name": self.version, "served": true, "storage": true}]);
        spec.insert("versions".to_owned(), version);
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
        spec.insert("preserveUnknownFields".to_owned(), json!(true));
        let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2019-03-25T21:00:00Z"});
        definition["status"] = json!({
            "acceptedNames": names,
            "conditions": [condition("NamesAccepted"), condition("Established")],
            "storedVersions": [self.version],
        });
        definition
    }

    /// Its objects.
    #[must_use]
    pub fn api(&self, client: &kube::Client) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.plural);
        if self.is_cerebral() {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), "containership-core", &resource)
        }
    }
}
