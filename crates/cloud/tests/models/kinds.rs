//! One example of each kind with every field in it, and how it is read and written.

use std::fmt::Debug;

use serde::Serialize;
use serde_json::{Value, json};
use tidewaiter_cloud::models::{
    Account, AutoscalingPolicy, AutoscalingPolicySpec, Cluster, ClusterLabel, ClusterLabelSpec, ClusterSpec, Failure,
    Identity, InvalidField, Login, Model, Node, NodePool, NodePoolLabel, NodePoolLabelSpec, NodePoolSpec, NodeSpec,
    NodeStatusReport, Organization, OrganizationSpec, Plugin, PluginDefinition, PluginManifests, PluginSpec,
    PluginVersion, Provider, Registry, Role, RoleBinding, RoleBindingSpec, RoleSpec, ServiceAccount,
    ServiceAccountSpec, SshKeySpec, Team, TeamSpec, Unknown, Upgrade, UpgradeSpec, User, UserSpec, parse,
};
use utoipa::ToSchema;

use crate::schemas;

/// Part of every secret of the examples, and of nothing else.
pub const SECRET: &str = "hunter2";

pub const ID: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";
pub const OTHER_ID: &str = "0b8e4a52-13f7-4f0e-9d3c-7a6b5c4d3e2f";
pub const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5 alice@example.com";
pub const OTHER_KEY: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBKohQ80ObZWEG/S9wLD9bE/4q4MIu72ixvI4d+E2rxqmYcngU41+nDB4VDTOx973z5lpwPlQcF/rXavbG3rbRao=";
pub const FINGERPRINT: &str = "SHA256:m17ZU7hsyzWBFKqJ1CFX9iV5aFCCCwvuDg+IdcK5NY4";
const TIME: &str = "1551441600000";

/// The forms of a document that was accepted.
pub struct Outcome {
    /// As a client gets it.
    pub written: Value,
    /// `Debug` and plain `Serialize`, neither of which may hold a secret.
    pub shown: String,
}

pub struct Kind {
    pub name: &'static str,
    pub example: Value,
    /// Reads, writes and reads again; panics when that is not what was read first.
    pub accept: fn(&[u8]) -> Result<Outcome, InvalidField>,
    /// Returns true if the schema refuses it too.
    pub is_invalid: fn(&Value) -> bool,
}

fn accept<T: Model + Debug + PartialEq + ToSchema>(
    bytes: &[u8],
    write: fn(&T) -> Value,
    show: fn(&T) -> String,
) -> Result<Outcome, InvalidField> {
    let model: T = parse(bytes, Unknown::Refuse)?;
    schemas::assert_valid::<T>(bytes);
    let written = write(&model);
    let again: T = parse(written.to_string().as_bytes(), Unknown::Refuse).expect("what is written can be read");
    assert_eq!(again, model);
    let shown = format!("{model:?} {model:#?} {}", show(&model));
    Ok(Outcome { written, shown })
}

fn value<T: Serialize>(model: &T) -> Value {
    serde_json::to_value(model).unwrap()
}

fn text<T: Serialize>(model: &T) -> String {
    serde_json::to_string(model).unwrap()
}

fn kind<T: Model + Debug + PartialEq + Serialize + ToSchema>(name: &'static str, example: Value) -> Kind {
    Kind {
        name,
        example,
        accept: |bytes| accept::<T>(bytes, value, text),
        is_invalid: schemas::is_invalid::<T>,
    }
}

/// The response of the server to a caller who may see the credentials.
fn revealed(registry: &Registry) -> Value {
    with(
        value(registry),
        json!({"credentials": registry.spec.credentials.revealed()}),
    )
}

/// The request of a client.
fn sent(login: &Login) -> Value {
    json!({"email": login.email, "password": login.password.expose()})
}

/// `example` with `more` fields.
fn with(mut example: Value, more: Value) -> Value {
    let (Value::Object(fields), Value::Object(more)) = (&mut example, more) else {
        panic!("no objects");
    };
    fields.extend(more);
    example
}

/// The fields that the kinds of an organization share.
fn stamped() -> Value {
    json!({"id": ID, "created_at": TIME, "updated_at": TIME})
}

pub fn all() -> Vec<Kind> {
    [people(), secrets(), clusters(), plugins(), nodes(), rules()]
        .into_iter()
        .flatten()
        .collect()
}

pub fn named(name: &str) -> Kind {
    all().into_iter().find(|kind| kind.name == name).unwrap()
}

fn people() -> Vec<Kind> {
    let user = json!({"name": "Zoë O'Neill", "email": "zoe@example.com", "avatar_url": "https://example.com/z.png",
        "expires_at": "2027-01-31T18:00:00Z"});
    let team = json!({"name": "Night shift", "description": "Who is awake", "user_ids": [ID, OTHER_ID],
        "user_ends": {ID: "2027-01-31T18:00:00Z"}});
    let account =
        json!({"name": "CI", "description": "Deploys", "role": "admin", "expires_at": "2027-01-31T18:00:00Z"});
    let key = json!({"id": ID, "created_at": TIME, "updated_at": TIME, "user_id": OTHER_ID, "fingerprint": FINGERPRINT,
        "name": "laptop", "key": KEY, "expires_at": "2027-01-31T18:00:00Z"});
    vec![
        kind::<Account>(
            "account",
            with(
                stamped(),
                json!({"name": "Alice", "enabled": true, "email": "alice@example.com", "phone": "+1 555 0100",
                    "avatar_url": "https://example.com/a.png"}),
            ),
        ),
        kind::<OrganizationSpec>(
            "organization spec",
            json!({"name": "Example", "passwords_disabled": true, "second_factor_required": true}),
        ),
        kind::<Organization>(
            "organization",
            with(
                stamped(),
                json!({"name": "Example", "owner_id": OTHER_ID, "locked": false}),
            ),
        ),
        kind::<Identity>(
            "identity",
            json!({"id": ID, "created_at": TIME, "user_id": OTHER_ID, "provider": "corp",
                "issuer": "https://id.example.com/", "subject": "248289761001"}),
        ),
        kind::<UserSpec>("user spec", user.clone()),
        kind::<User>(
            "user",
            with(user, json!({"id": OTHER_ID, "added_at": TIME, "ssh_keys": [key]})),
        ),
        kind::<SshKeySpec>("ssh key spec", json!({"name": "laptop", "key": KEY})),
        kind::<TeamSpec>("team spec", team.clone()),
        kind::<Team>(
            "team",
            with(with(stamped(), team), json!({"organization_id": OTHER_ID})),
        ),
        kind::<ServiceAccountSpec>("service account spec", account.clone()),
        kind::<ServiceAccount>(
            "service account",
            with(
                with(stamped(), account),
                json!({"organization_id": OTHER_ID, "owner_id": OTHER_ID}),
            ),
        ),
        kind::<Failure>(
            "failure",
            json!({"code": 422, "message": "name: is empty", "field": "name"}),
        ),
    ]
}

fn secrets() -> Vec<Kind> {
    vec![
        Kind {
            name: "registry",
            example: with(
                stamped(),
                json!({"added_at": TIME, "organization_id": OTHER_ID, "owner": OTHER_ID, "description": "ours",
                    "provider": "private", "serveraddress": "registry.example.com:5000", "email": "ci@example.com",
                    "credentials": {"username": "ci", "password": "hunter2\u{e4} 1"}}),
            ),
            accept: |bytes| accept::<Registry>(bytes, revealed, text),
            is_invalid: schemas::is_invalid::<Registry>,
        },
        Kind {
            name: "login",
            example: json!({"email": "alice@example.com", "password": "hunter2 2"}),
            accept: |bytes| accept::<Login>(bytes, sent, |_| String::new()),
            is_invalid: schemas::is_invalid::<Login>,
        },
        kind::<Provider>(
            "provider",
            with(
                stamped(),
                json!({"organization_id": OTHER_ID, "provider": "digital_ocean", "description": "ours"}),
            ),
        ),
    ]
}

fn clusters() -> Vec<Kind> {
    let cluster = json!({"name": "Production", "environment": "production", "version": "v1.12.3",
        "api_server_address": "https://10.0.0.1:6443", "worker_nodes_address": "workers.example.com",
        "provider_id": OTHER_ID, "provider_name": "digital_ocean", "engine": "containership_kubernetes_engine"});
    let label = json!({"key": "cluster.containership.io/env", "value": "dev"});
    let pool_label = json!({"key": "nodepool.containership.io/disk", "value": ""});
    vec![
        kind::<ClusterSpec>("cluster spec", cluster.clone()),
        kind::<Cluster>(
            "cluster",
            with(
                with(stamped(), cluster),
                json!({"organization_id": OTHER_ID, "owner_id": OTHER_ID,
                    "configuration": {"provider": {"any": [1, "\u{430}"]}, "resource": {"thing": {}}},
                    "status": {"type": "RUNNING", "message": "all is well", "percent": 100},
                    "provision_service_version": "2.1.0"}),
            ),
        ),
        kind::<ClusterLabelSpec>("cluster label spec", label.clone()),
        kind::<ClusterLabel>("cluster label", with(stamped(), label)),
        kind::<NodePoolLabelSpec>("node pool label spec", pool_label.clone()),
        kind::<NodePoolLabel>(
            "node pool label",
            with(stamped(), with(pool_label, json!({"node_pool_id": OTHER_ID}))),
        ),
    ]
}

fn plugins() -> Vec<Kind> {
    let plugin = json!({"type": "CNI", "implementation": "calico", "version": "1.2.3-rc.1", "description": "network",
        "configuration": {"mtu": 1450}});
    let version = json!({"version": "1.2.3", "disabled": false, "configuration_schema": [{"name": "mtu"}],
        "compatibility": {"kubernetes": {"min": "1.10.0", "max": "1.12.99"}, "upgrades": ["1.2.4"],
            "plugins": {"metrics": {"implementation": "prometheus", "min": "1.0.0", "max": ""}}}});
    let definition = json!({"type": "CNI", "implementation": "calico", "versions": [version]});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"},
        "spec": {"activeDeadlineSeconds": 60, "template": {}}});
    vec![
        kind::<PluginSpec>("plugin spec", plugin.clone()),
        kind::<Plugin>(
            "plugin",
            with(
                with(stamped(), plugin),
                json!({"added_at": TIME, "organization_id": OTHER_ID, "cluster_id": OTHER_ID}),
            ),
        ),
        kind::<PluginVersion>("plugin version", version),
        kind::<PluginDefinition>("plugin definition", definition),
        kind::<PluginManifests>(
            "manifests",
            json!({"manifests": [[{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}], []],
                "jobs": {"pre_apply": [job], "post_apply": []}, "depends_on": ["CNI", "metrics/prometheus"]}),
        ),
    ]
}

fn nodes() -> Vec<Kind> {
    let pool = json!({"name": "Workers", "os": "ubuntu 16.04", "count": 3, "docker_version": "17.03.2-ce",
        "kubernetes_mode": "master", "kubernetes_version": "1.12.3", "etcd": true, "etcd_version": "3.2.24",
        "is_schedulable": true,
        "autoscaling": {"enabled": true, "suspended": false, "min_nodes": 1, "max_nodes": 5, "cooldown_period": 300,
            "scaling_strategy": {"scale_up": "random", "scale_down": "oldest"}}});
    let node = json!({"name": "node-1", "provider_id": "aws:///us-east-1a/i-0123456789abcdef0"});
    let status = json!({"type": "UPDATING", "message": "one of three", "percent": 33.3});
    let step = json!({"threshold": 0.7, "comparison_operator": ">=", "adjustment_type": "percent",
        "adjustment_value": 12.5});
    let policy = json!({"name": "By CPU", "metrics_backend": "prometheus", "metric": "cpu_percent_utilization",
        "metric_configuration": {"aggregation": "avg"}, "poll_interval": 15, "sample_period": 600,
        "scaling_policy": {"scale_up": step, "scale_down": {"threshold": -1, "comparison_operator": "<",
            "adjustment_type": "absolute", "adjustment_value": 1}}});
    let upgrade = json!({"type": "kubernetes", "description": "to 1.12", "targetVersion": "v1.12.3",
        "labelSelector": [{"label": "example.com/zone", "operator": "in", "value": ["a", "b"]}],
        "nodeTimeoutSeconds": 900, "policy": {"paused": true, "maxUnavailable": "25%", "maxFailures": 1, "minReadySeconds": 60, "canary": 1, "drain": true, "onDrainTimeout": "fail",
            "maintenanceWindows": [{"days": ["Fri"], "start": "22:00", "end": "04:00", "timeZone": "Europe/Berlin"}]}});
    vec![
        kind::<NodePoolSpec>("node pool spec", pool.clone()),
        kind::<NodePool>("node pool", with(pool, json!({"id": ID, "status": status}))),
        kind::<NodeSpec>("node spec", node.clone()),
        kind::<Node>(
            "node",
            with(
                with(stamped(), node),
                json!({"status": status, "addresses": {}, "node_pool_id": OTHER_ID}),
            ),
        ),
        kind::<NodeStatusReport>("node status", json!({"status": status})),
        kind::<AutoscalingPolicySpec>("autoscaling policy spec", policy.clone()),
        kind::<AutoscalingPolicy>("autoscaling policy", with(policy, json!({"id": ID}))),
        kind::<UpgradeSpec>("upgrade spec", upgrade.clone()),
        kind::<Upgrade>(
            "upgrade",
            with(
                upgrade,
                json!({"id": ID, "addedAt": "1551441600", "status": {"clusterStatus": "InProgress",
                    "nodeStatuses": {"node-1": "Success", "node-2": "InProgress"}, "currentNode": "node-2",
                    "currentStartTime": "Fri Mar  1 12:01:00 UTC 2019", "nodes": 3, "done": 1, "failed": 0,
                    "message": "node-2 is upgraded"}}),
            ),
        ),
    ]
}

fn rules() -> Vec<Kind> {
    let rule = json!({"type": "kubernetes", "api_groups": ["", "apps"], "resources": ["pods", "deployments/scale"],
        "resource_names": ["web"], "verbs": ["get", "list"], "non_resource_urls": []});
    let paths = json!({"type": "kubernetes", "api_groups": null, "resources": [], "resource_names": [], "verbs": ["get"],
        "non_resource_urls": ["/healthz", "/metrics/*"]});
    let reader = json!({"name": "Reader", "description": "may look"});
    let binding = json!({"type": "UserBinding", "user_id": OTHER_ID, "team_id": null,
        "authorization_role_id": OTHER_ID, "cluster_id": OTHER_ID, "namespace": "dev", "expires_at": "2027-01-31T18:00:00Z"});
    let rules = json!([
        with(rule.clone(), stamped()),
        with(
            paths.clone(),
            json!({"id": OTHER_ID, "created_at": null,
        "updated_at": null})
        )
    ]);
    vec![
        kind::<RoleSpec>("role spec", with(reader.clone(), json!({"rules": [rule, paths]}))),
        kind::<Role>(
            "role",
            with(
                with(stamped(), reader),
                json!({"organization_id": OTHER_ID, "owner_id": OTHER_ID, "rules": rules}),
            ),
        ),
        kind::<RoleBindingSpec>("role binding spec", binding.clone()),
        kind::<RoleBinding>(
            "role binding",
            with(
                with(stamped(), binding),
                json!({"organization_id": OTHER_ID, "owner_id": null}),
            ),
        ),
    ]
}

/// One step of a path.
#[derive(Clone, Debug)]
pub enum Step {
    Key(String),
    Index(usize),
}

/// The paths of all values below `value`, itself not included.
pub fn paths(value: &Value) -> Vec<Vec<Step>> {
    let children: Vec<(Step, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (Step::Key(key.clone()), value)).collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| (Step::Index(index), item))
            .collect(),
        _ => Vec::new(),
    };
    let below = children.into_iter().flat_map(|(step, value)| {
        let below = paths(value).into_iter().map({
            let step = step.clone();
            move |path| [vec![step.clone()], path].concat()
        });
        [vec![vec![step.clone()]], below.collect()].concat()
    });
    below.collect()
}

pub fn at<'a>(value: &'a mut Value, path: &[Step]) -> &'a mut Value {
    path.iter().fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key).unwrap(),
        Step::Index(index) => value.get_mut(index).unwrap(),
    })
}

/// The path as an error names it.
pub fn shown(path: &[Step]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Key(key) => format!(".{key}"),
        Step::Index(index) => format!("[{index}]"),
    });
    steps.collect::<String>().trim_start_matches('.').to_owned()
}
