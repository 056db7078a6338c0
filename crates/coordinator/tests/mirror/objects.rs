//! Objects of the cloud of every mirrored kind, each with one text that changes, and where the resource shows that
//! text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The organization and the cluster.
pub const ORGANIZATION: &str = "aaaaaaaa-0000-4000-8000-000000000001";
pub const CLUSTER: &str = "bbbbbbbb-0000-4000-8000-000000000001";
/// The node pool that the labels of node pools are of.
pub const POOL: &str = "dddddddd-0000-4000-8000-000000000001";

const TIME: &str = "1551441600000";

/// A mirrored kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    User,
    Registry,
    Plugin,
    ClusterLabel,
    NodePoolLabel,
    Role,
    RoleBinding,
    AutoscalingPolicy,
    /// A node pool that is scaled automatically.
    AutoscalingGroup,
    Upgrade,
}

pub const KINDS: [Kind; 10] = [
    Kind::User,
    Kind::Registry,
    Kind::Plugin,
    Kind::ClusterLabel,
    Kind::NodePoolLabel,
    Kind::Role,
    Kind::RoleBinding,
    Kind::AutoscalingPolicy,
    Kind::AutoscalingGroup,
    Kind::Upgrade,
];

/// An id that ends with this number.
pub fn id(number: usize) -> String {
    format!("cccccccc-0000-4000-8000-{number:012}")
}

impl Kind {
    /// The path of the cloud's list, below its organization.
    pub fn path(self) -> String {
        let of_cluster = |rest: &str| format!("clusters/{CLUSTER}/{rest}");
        match self {
            Self::User => of_cluster("ssh-users"),
            Self::Registry => "registries".to_owned(),
            Self::Plugin => of_cluster("plugins"),
            Self::ClusterLabel => of_cluster("labels"),
            Self::NodePoolLabel => of_cluster(&format!("node-pools/{POOL}/labels")),
            Self::Role => of_cluster("roles"),
            Self::RoleBinding => "role-bindings".to_owned(),
            Self::AutoscalingPolicy => of_cluster("autoscaling-policies"),
            Self::AutoscalingGroup => of_cluster("node-pools"),
            Self::Upgrade => of_cluster("upgrades"),
        }
    }

    /// Its name in the change stream.
    pub fn changed(self) -> &'static str {
        match self {
            Self::User => "users",
            Self::Registry => "registries",
            Self::Plugin => "plugins",
            Self::ClusterLabel => "labels",
            Self::NodePoolLabel => "node-pool-labels",
            Self::Role => "roles",
            Self::RoleBinding => "role-bindings",
            Self::AutoscalingPolicy => "autoscaling-policies",
            Self::AutoscalingGroup => "node-pools",
            Self::Upgrade => "upgrades",
        }
    }

    /// The plurals of the resources that it becomes, and the groups of their API.
    pub fn resources(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::User => &[("users", "containership.io/v3")],
            Self::Registry => &[("registries", "containership.io/v3"), ("secrets", "v1")],
            Self::Plugin => &[("plugins", "containership.io/v3")],
            Self::ClusterLabel => &[("clusterlabels", "containership.io/v3")],
            Self::NodePoolLabel => &[("nodepoollabels", "provision.containership.io/v3")],
            Self::Role => &[("authorizationroles", "auth.containership.io/v3")],
            Self::RoleBinding => &[("authorizationrolebindings", "auth.containership.io/v3")],
            Self::AutoscalingPolicy => &[("autoscalingpolicies", "cerebral.containership.io/v1alpha1")],
            Self::AutoscalingGroup => &[("autoscalinggroups", "cerebral.containership.io/v1alpha1")],
            Self::Upgrade => &[("clusterupgrades", "provision.containership.io/v3")],
        }
    }

    /// The object with this number, and a number that changes.
    pub fn object(self, number: usize, value: usize) -> Value {
        let id = id(number);
        let mut object = match self {
            Self::User => {
                json!({"name": format!("v{value}"), "email": "a@example.org", "avatar_url": null, "added_at": TIME,
                "ssh_keys": []})
            }
            Self::Registry => json!({"added_at": null, "organization_id": ORGANIZATION, "owner": null,
                "description": format!("v{value}"), "provider": "private", "serveraddress": "registry.example.org", "email": null,
                "credentials": {"username": "puller", "password": format!("hunter2 v{value}")}}),
            Self::Plugin => {
                json!({"added_at": null, "organization_id": ORGANIZATION, "cluster_id": CLUSTER, "type": "CNI",
                "implementation": "calico", "version": "1.2.3", "description": format!("v{value}"), "configuration": {}})
            }
            Self::ClusterLabel => {
                json!({"key": format!("cluster.containership.io/k{number}"), "value": format!("v{value}")})
            }
            Self::NodePoolLabel => {
                json!({"key": format!("nodepool.containership.io/k{number}"), "value": format!("v{value}"),
                "node_pool_id": POOL})
            }
            Self::Role => json!({"name": "Reader", "description": format!("v{value}"), "organization_id": ORGANIZATION,
                "owner_id": null, "rules": []}),
            Self::RoleBinding => {
                json!({"type": "UserBinding", "user_id": id, "team_id": null, "authorization_role_id": id,
                "cluster_id": CLUSTER, "namespace": format!("v{value}"), "organization_id": ORGANIZATION, "owner_id": null})
            }
            Self::AutoscalingPolicy => {
                json!({"name": "By CPU", "metrics_backend": "prometheus", "metric": format!("v{value}"),
                "metric_configuration": {}, "poll_interval": 15, "sample_period": 600, "scaling_policy": {"scale_up": null, "scale_down":
                    {"threshold": 1, "comparison_operator": "<", "adjustment_type": "absolute", "adjustment_value": 1}}})
            }
            Self::AutoscalingGroup => pool(&id, Some(value)),
            Self::Upgrade => json!({"addedAt": "1551441600", "type": "kubernetes", "description": format!("v{value}"),
                "targetVersion": "v1.30.2", "labelSelector": [], "nodeTimeoutSeconds": 900, "status": null}),
        };
        object["id"] = json!(id);
        for stamp in ["created_at", "updated_at"] {
            object[stamp] = json!(TIME);
        }
        object
    }

    /// The name of the resource of this kind with this number.
    pub fn name(resource: &str, number: usize) -> String {
        let id = id(number);
        if resource == "secrets" {
            format!("registry-{id}")
        } else {
            id
        }
    }

    /// The number that changes, as a resource shows it.
    pub fn shown(resource: &str, object: &Value) -> String {
        let at = |pointer: &str| match object.pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            other => format!("{other:?}"),
        };
        match resource {
            "users" => at("/spec/name"),
            "secrets" => {
                let bytes = STANDARD.decode(at("/data/credentials.json")).unwrap_or_default();
                let credentials: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let password = credentials["password"].as_str().unwrap_or_default();
                password.trim_start_matches("hunter2 ").to_owned()
            }
            "registries" | "plugins" | "authorizationroles" | "clusterupgrades" => at("/spec/description"),
            "clusterlabels" | "nodepoollabels" => at("/spec/value"),
            "authorizationrolebindings" => at("/spec/namespace"),
            "autoscalingpolicies" => at("/spec/metric"),
            "autoscalinggroups" => format!("v{}", object["spec"]["maxNodes"].as_u64().unwrap_or_default()),
            other => panic!("{other} is not mirrored"),
        }
    }
}

/// A node pool; with a maximum, it is scaled automatically.
pub fn pool(id: &str, most: Option<usize>) -> Value {
    json!({"id": id, "status": {"type": "RUNNING", "percent": 100}, "name": "workers", "os": null, "count": 0, "docker_version": "",
        "kubernetes_mode": "worker", "kubernetes_version": "1.30.1", "etcd": false, "etcd_version": null, "is_schedulable": true,
        "autoscaling": {"enabled": most.is_some(), "min_nodes": 0, "max_nodes": most.unwrap_or_default()}})
}
