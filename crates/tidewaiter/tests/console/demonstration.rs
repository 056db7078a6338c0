//! An organization that has something of everything: for the checks that each page passes, and for pictures.

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_kit::{Clock as _, SystemClock};

use crate::world::Ask;
use crate::{Scene, page};

pub const PLUGIN: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";
pub const DIGEST: &str = "5d41402abc4b2a76b9719d911017c592";
pub const REVISION: &str = "0123456789ab";
pub const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";

/// The report of a cluster that holds changes, and has a version of a plugin to approve.
pub fn report() -> Value {
    let now = SystemClock.now().to_string();
    let held = json!({"revision": REVISION, "deletions": 2, "names": ["quentin", "rosa"],
        "reason": "2 of 4 objects at once"});
    let waiting = json!({"version": "1.1.0", "digest": DIGEST, "creates": 1, "changes": 1,
        "diff": ["create ConfigMap monitoring/rules", "change Deployment monitoring/prometheus"]});
    let prometheus = json!({"id": PLUGIN, "name": "metrics/prometheus", "version": "1.1.0", "applied_version": "1.0.0",
        "state": "Blocked", "waiting": waiting});
    json!({"synced": false, "accepts_releases": true, "plugins": [prometheus], "agents": {"nodes": 5, "reporting": 4},
    "kinds": [
        {"kind": "User", "objects": 4, "last_success": now, "held": held, "refused_objects": 1,
            "refused": [{"id": "bob", "reason": "no key"}]},
        {"kind": "Registry", "objects": 1, "last_success": now},
    ]})
}

/// Creates the organization's content. Returns the pages of the console with their names.
pub async fn pages(scene: &Scene) -> Vec<(&'static str, String)> {
    let mut pages = of_everybody();
    pages.extend(of_clusters(scene).await);
    pages.extend(of_access(scene).await);
    pages.extend(of_catalogue(scene).await);
    pages
}

/// The pages that belong to no organization.
fn of_everybody() -> Vec<(&'static str, String)> {
    let command_line =
        "/sign-in/cli?redirect_uri=http%3A%2F%2F127.0.0.1%3A4711%2F&state=s&code_challenge=c&name=laptop";
    let pages = [
        ("home", "/"),
        ("sign-in", "/sign-in"),
        ("command-line", command_line),
        ("device", "/device?user_code=ABCD-EFGH"),
        ("join", "/invitation/join?secret=none"),
        ("account", "/account"),
        ("identities", "/account/identities"),
        ("operators", "/operators"),
        ("server-audit", "/operators/audit"),
    ];
    pages.map(|(name, path)| (name, path.to_owned())).into()
}

/// Replaces something, or reports its status, as the owner.
async fn put(scene: &Scene, path: &str, body: &Value) {
    send(scene, Method::PUT, path, body).await;
}

async fn send(scene: &Scene, method: Method, path: &str, body: &Value) {
    let sent = scene.server.send(&scene.land.token, method, path, Ask::body(body));
    let answer = sent.await.unwrap();
    assert!(answer.status.is_success(), "{path}: {answer:?}");
}

async fn of_clusters(scene: &Scene) -> Vec<(&'static str, String)> {
    let (server, land) = (&scene.server, &scene.land);
    for (name, status) in [("staging", "RUNNING"), ("edge-lisbon", "UPDATING")] {
        let cluster = json!({"name": name, "environment": "test", "version": "1.31.0"});
        let id = scene.make("clusters", cluster).await;
        let path = format!("{}/clusters/{id}/status", land.organization);
        put(scene, &path, &json!({"status": {"type": status}})).await;
    }
    let described = json!({"environment": "production", "version": "1.30.1", "provider_name": "aws"});
    send(scene, Method::PATCH, &land.cluster, &described).await;
    let running = json!({"status": {"type": "RUNNING"}});
    put(scene, &format!("{}/status", land.cluster), &running).await;
    scene.report(&format!("{}/report", land.cluster), &report()).await;
    let below = async |list: &str, body: Value| {
        let path = format!("{}/{list}", land.cluster);
        server.post(&land.token, &path, &body).await.is(201).field("id")
    };
    let masters = json!({"name": "control-plane", "count": 3, "kubernetes_mode": "master",
        "kubernetes_version": "1.31.0", "etcd": true, "is_schedulable": false});
    below("node-pools", masters).await;
    below(
        "labels",
        json!({"key": "cluster.containership.io/zone", "value": "eu-west"}),
    )
    .await;
    for name in ["worker-1", "worker-2", "worker-3"] {
        let node = server.post(&land.token, &land.nodes, &json!({"name": name})).await;
        let path = format!("{}/nodes/{}/status", land.cluster, node.is(201).field("id"));
        put(scene, &path, &running).await;
    }
    let pool = land.nodes.trim_end_matches("/nodes");
    let label = json!({"key": "nodepool.containership.io/disk", "value": "ssd"});
    server
        .post(&land.token, &format!("{pool}/labels"), &label)
        .await
        .is(201);
    let upgrade = json!({"type": "kubernetes", "description": "The release of spring", "targetVersion": "v1.31.0",
        "labelSelector": [], "nodeTimeoutSeconds": 900});
    let upgrade = below("upgrades", upgrade).await;
    let progress = json!({"status": {"clusterStatus": "InProgress", "nodes": 6, "done": 4, "currentNode": "worker-2",
        "message": "worker-2 is being upgraded", "nodeStatuses": {"control-plane-1": "Success",
        "control-plane-2": "Success", "control-plane-3": "Success", "worker-1": "Success", "worker-2": "InProgress"}}});
    let path = format!("{}/upgrades/{upgrade}/status", land.cluster);
    scene.report(&path, &progress).await;
    let cluster = page(&land.cluster);
    vec![
        ("clusters", scene.page("clusters")),
        ("attach", scene.page("attach")),
        ("pool", page(pool).replace("/node-pools/", "/pools/")),
        ("upgrade", format!("{cluster}/upgrades/{upgrade}")),
        ("missing", format!("{cluster}/upgrades/missing")),
        ("cluster", cluster),
    ]
}

async fn of_access(scene: &Scene) -> Vec<(&'static str, String)> {
    let (server, land) = (&scene.server, &scene.land);
    let mut people = Vec::new();
    for (name, email, role) in [
        ("Paula Reyes", "paula@example.org", "admin"),
        ("Quentin Okafor", "quentin@example.org", "member"),
        ("Rosa Lind", "rosa@example.org", "member"),
        ("Sam Ito", "sam@example.org", "read_only"),
    ] {
        let person = json!({"name": name, "email": email, "role": role});
        people.push(scene.make("users", person).await);
    }
    let [paula, quentin, rosa, _] = &people[..] else {
        panic!("{people:?}")
    };
    let key = json!({"name": "laptop", "key": KEY});
    scene.make(&format!("users/{paula}/ssh_keys"), key).await;
    let key = json!({"name": "desk", "key": KEY.replace("rsOV", "rsOW")});
    server.post(&land.token, "/v3/account/ssh_keys", &key).await.is(201);
    let token = json!({"name": "pipeline", "expires_in_seconds": 86_400});
    server.post(&land.token, "/v3/account/tokens", &token).await.is(201);
    let end = "2099-01-31T18:00:00Z";
    let team = json!({"name": "Night shift", "description": "On call at night", "user_ids": [quentin, rosa],
        "user_ends": {rosa: end}});
    let team = scene.make("teams", team).await;
    let pods = json!({"type": "kubernetes", "api_groups": [""], "resources": ["pods"], "verbs": ["get", "list"]});
    let role = json!({"name": "Reader", "description": "Looks at workloads", "rules": [pods]});
    let role = scene.make("roles", role).await;
    let cluster = land.cluster.rsplit('/').next().unwrap();
    let binding = json!({"type": "TeamBinding", "team_id": team, "authorization_role_id": role, "cluster_id": cluster});
    scene.make("role-bindings", binding).await;
    let binding = json!({"type": "UserBinding", "user_id": paula, "authorization_role_id": role, "namespace": "shop",
        "cluster_id": cluster, "expires_at": end});
    let binding = scene.make("role-bindings", binding).await;
    scene
        .make("invitations", json!({"email": "tomas@example.org", "role": "member"}))
        .await;
    let pipeline = scene
        .make("service-accounts", json!({"name": "Pipeline", "role": "admin"}))
        .await;
    let token = json!({"name": "deploys", "expires_in_seconds": 86_400});
    scene.make(&format!("service-accounts/{pipeline}/tokens"), token).await;
    [
        ("access", "access".to_owned()),
        ("logins", "access/logins".to_owned()),
        ("grant", "access/grant".to_owned()),
        ("binding", format!("access/{binding}")),
        ("people", "people".to_owned()),
        ("new-person", "people/new".to_owned()),
        ("person", format!("people/{paula}")),
        ("team", format!("teams/{team}")),
        ("roles", "roles".to_owned()),
        ("new-role", "roles/new".to_owned()),
        ("role", format!("roles/{role}")),
        ("service-accounts", "service-accounts".to_owned()),
        ("service-account", format!("service-accounts/{pipeline}")),
    ]
    .map(|(name, path)| (name, scene.page(&path)))
    .into()
}

async fn of_catalogue(scene: &Scene) -> Vec<(&'static str, String)> {
    let (server, land) = (&scene.server, &scene.land);
    let registry = json!({"description": "Images of the shop", "provider": "private",
        "serveraddress": "registry.example.org",
        "credentials": {"username": "puller", "password": "hunter2 registry"}});
    let registry = scene.make("registries", registry).await;
    let version = json!({"version": "1.0.0", "disabled": false, "configuration_schema": [],
        "compatibility": {"kubernetes": {"min": null, "max": null}, "upgrades": [], "plugins": {}}});
    let path = "/v3/plugins/metrics/implementations/prometheus/versions/1.0.0";
    put(scene, path, &version).await;
    let manifests = json!({"manifests": [[{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metrics"}}]],
        "jobs": {"pre_apply": [], "post_apply": []}});
    put(scene, &format!("{path}/manifests"), &manifests).await;
    let plugin = json!({"type": "metrics", "implementation": "prometheus", "version": "1.0.0", "configuration": {}});
    let plugins = format!("{}/plugins", land.cluster);
    server.post(&land.token, &plugins, &plugin).await.is(201);
    [
        ("registries", "registries".to_owned()),
        ("new-registry", "registries/new".to_owned()),
        ("registry", format!("registries/{registry}")),
        ("catalogue", "catalogue".to_owned()),
        ("plugin", "catalogue/metrics/prometheus".to_owned()),
        ("version", "catalogue/metrics/prometheus/1.0.0".to_owned()),
        ("audit", "audit".to_owned()),
        ("settings", "settings".to_owned()),
    ]
    .map(|(name, path)| (name, scene.page(&path)))
    .into()
}
