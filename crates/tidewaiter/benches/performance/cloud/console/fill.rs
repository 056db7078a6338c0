//! The contents of the organization besides its clusters and registries, each made by the API.

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::cloud::server::{Cloud, PASSWORD, ssh_key, word};
use crate::cloud::wire::{Wire, request};

const USERS: usize = 5_000;
const TEAMS: usize = 200;
const ROLES: usize = 50;
/// The nodes of a cluster.
const NODES: usize = 10;
/// The connections on which objects are made at once.
const CONNECTIONS: usize = 64;

/// Fills the organization. Returns the pages by their names, and the e-mail addresses of people who may see them all.
pub async fn fill(cloud: &Cloud, people: usize) -> Result<(Vec<(&'static str, String)>, Vec<String>)> {
    let pools = each(cloud, cloud.clusters.len(), async |wire, number| {
        cluster(cloud, wire, number).await
    })
    .await?;
    let users = users(cloud).await?;
    let [team, role, binding] = grants(cloud, &users).await?;
    let made = [pools[0].clone(), users[0].clone(), team, role, binding];
    let upgrade = upgrade(cloud).await?;
    Ok((pages(cloud, &made, &upgrade), admins(cloud, people).await?))
}

/// Makes the users, each with an SSH key. Returns their ids.
async fn users(cloud: &Cloud) -> Result<Vec<String>> {
    let users = format!("{}/users", cloud.organization);
    each(cloud, USERS, async |wire, number| {
        let person = json!({"name": format!("Person {number}"), "email": format!("person-{number}@example.org")});
        let id = word(&cloud.ask(wire, "POST", &users, &person).await?, "id")?;
        let key = json!({"name": "laptop", "key": ssh_key(number)});
        cloud.ask(wire, "POST", &format!("{users}/{id}/ssh_keys"), &key).await?;
        Ok(id)
    })
    .await
}

/// Makes teams and roles, and a role binding of each user and each team. Returns the first id of each kind.
async fn grants(cloud: &Cloud, users: &[String]) -> Result<[String; 3]> {
    let below = |list: &str| format!("{}/{list}", cloud.organization);
    let [teams, roles, bindings] = ["teams", "roles", "role-bindings"].map(below);
    let teams = each(cloud, TEAMS, async |wire, number| {
        let members: Vec<&String> = users.iter().skip(number).step_by(TEAMS).collect();
        let team = json!({"name": format!("Team {number}"), "description": "", "user_ids": members});
        word(&cloud.ask(wire, "POST", &teams, &team).await?, "id")
    })
    .await?;
    let roles = each(cloud, ROLES, async |wire, number| {
        let reading = |resource: &str| {
            json!({"type": "kubernetes", "api_groups": [""], "resources": [resource], "resource_names": [],
                "non_resource_urls": [], "verbs": ["get", "list", "watch"]})
        };
        let all = ["pods", "services", "secrets", "endpoints", "events"].map(reading);
        let body = json!({"name": format!("Role {number}"), "description": "may look", "rules": all});
        word(&cloud.ask(wire, "POST", &roles, &body).await?, "id")
    })
    .await?;
    let bindings = each(cloud, USERS + TEAMS, async |wire, number| {
        let mut binding = json!({"type": "UserBinding", "authorization_role_id": roles[number % ROLES],
            "cluster_id": cloud.clusters[number % cloud.clusters.len()].id});
        match number.checked_sub(USERS) {
            None => binding["user_id"] = json!(users[number]),
            Some(team) => {
                binding["type"] = json!("TeamBinding");
                binding["team_id"] = json!(teams[team]);
            }
        }
        word(&cloud.ask(wire, "POST", &bindings, &binding).await?, "id")
    })
    .await?;
    Ok([&teams, &roles, &bindings].map(|ids| ids[0].clone()))
}

/// Does `work` for each number below `number`, on several connections at once. Returns the results in this order.
async fn each<T>(cloud: &Cloud, number: usize, work: impl AsyncFn(&mut Wire, usize) -> Result<T>) -> Result<Vec<T>> {
    let (work, part) = (&work, number.div_ceil(CONNECTIONS).max(1));
    let parts = (0..number).step_by(part).map(|begin| async move {
        let mut wire = Wire::open(cloud.address).await?;
        let mut done = Vec::new();
        for number in begin..number.min(begin + part) {
            done.push(work(&mut wire, number).await?);
        }
        anyhow::Ok(done)
    });
    Ok(try_join_all(parts).await?.into_iter().flatten().collect())
}

/// Makes the nodes of a cluster in a pool of their own, and reports for the cluster. Returns the id of the pool.
async fn cluster(cloud: &Cloud, wire: &mut Wire, number: usize) -> Result<String> {
    let cluster = &cloud.clusters[number];
    let pools = format!("{}/node-pools", cluster.path);
    let pool = json!({"name": "more", "count": NODES, "kubernetes_mode": "worker", "kubernetes_version": "1.30.1",
        "etcd": false, "is_schedulable": true});
    let pool = word(&cloud.ask(wire, "POST", &pools, &pool).await?, "id")?;
    for node in 0..NODES {
        let node = json!({"name": format!("node-{node}")});
        cloud.ask(wire, "POST", &format!("{pools}/{pool}/nodes"), &node).await?;
    }
    let kinds = [
        "User",
        "Registry",
        "Plugin",
        "ClusterLabel",
        "NodePool",
        "NodePoolLabel",
        "Role",
        "RoleBinding",
    ];
    let kinds = kinds.map(|kind| json!({"kind": kind, "objects": 100}));
    let report = json!({"synced": true, "accepts_releases": true, "kinds": kinds, "plugins": [],
        "agents": {"nodes": NODES, "reporting": NODES}});
    let path = format!("{}/report", cluster.path);
    let reply = wire
        .ask(&request("PUT", &path, &cluster.api_key, "", &report.to_string()))
        .await?;
    ensure!(reply.status == 200, "{path}: {reply:?}");
    Ok(pool)
}

/// Adds a plugin to the first cluster, and an upgrade that its nodes report. Returns the id of the upgrade.
async fn upgrade(cloud: &Cloud) -> Result<String> {
    let mut wire = Wire::open(cloud.address).await?;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}});
    cloud.add_plugin(&mut wire, "metrics", &json!([[config]])).await?;
    let cluster = &cloud.clusters[0];
    let upgrades = format!("{}/upgrades", cluster.path);
    let upgrade = json!({"type": "kubernetes", "description": "next", "targetVersion": "v1.31.0", "labelSelector": [],
        "nodeTimeoutSeconds": 900});
    let upgrade = word(&cloud.ask(&mut wire, "POST", &upgrades, &upgrade).await?, "id")?;
    let statuses = (0..NODES).map(|node| (format!("node-{node}"), json!("InProgress")));
    let statuses = Value::Object(statuses.collect());
    let report =
        json!({"status": {"clusterStatus": "InProgress", "nodeStatuses": statuses, "nodes": NODES, "done": 1}});
    let path = format!("{upgrades}/{upgrade}/status");
    let reply = wire
        .ask(&request("PUT", &path, &cluster.api_key, "", &report.to_string()))
        .await?;
    ensure!(reply.status == 200, "{path}: {reply:?}");
    Ok(upgrade)
}

/// Makes admins who are operators. Returns their e-mail addresses.
async fn admins(cloud: &Cloud, number: usize) -> Result<Vec<String>> {
    let mut wire = Wire::open(cloud.address).await?;
    let mut emails = Vec::new();
    for number in 0..number {
        let email = format!("admin-{number}@example.org");
        let admin = json!({"name": format!("Admin {number}"), "email": email, "role": "admin", "password": PASSWORD});
        let users = format!("{}/users", cloud.organization);
        let id = word(&cloud.ask(&mut wire, "POST", &users, &admin).await?, "id")?;
        let operator = format!("/v3/operators/{id}");
        cloud.ask(&mut wire, "PUT", &operator, &Value::Null).await?;
        emails.push(email);
    }
    Ok(emails)
}

/// The pages by their names: of the organization, of objects in it, of the person, and of operators.
fn pages(cloud: &Cloud, made: &[String; 5], upgrade: &str) -> Vec<(&'static str, String)> {
    let [pool, user, team, role, binding] = made;
    let registry = cloud.registries[0].rsplit('/').next().unwrap_or_default();
    let cluster = format!("clusters/{}", cloud.clusters[0].id);
    let organization = cloud.organization.trim_start_matches("/v3");
    let of_organization = [
        ("clusters", "clusters".to_owned()),
        ("attach", "attach".to_owned()),
        ("cluster", cluster.clone()),
        ("pool", format!("{cluster}/pools/{pool}")),
        ("upgrade", format!("{cluster}/upgrades/{upgrade}")),
        ("access", "access".to_owned()),
        ("access of a person", "access?person=person-4999@example.org".to_owned()),
        ("access of a team", format!("access?team={team}")),
        ("access to a cluster", "access?cluster=cluster-999".to_owned()),
        ("logins", "access/logins".to_owned()),
        ("grant", "access/grant".to_owned()),
        ("binding", format!("access/{binding}")),
        ("people", "people".to_owned()),
        ("people by name", "people?person=Person+4999".to_owned()),
        ("new person", "people/new".to_owned()),
        ("person", format!("people/{user}")),
        ("team", format!("teams/{team}")),
        ("roles", "roles".to_owned()),
        ("new role", "roles/new".to_owned()),
        ("role", format!("roles/{role}")),
        ("registries", "registries".to_owned()),
        ("new registry", "registries/new".to_owned()),
        ("registry", format!("registries/{registry}")),
        ("catalogue", "catalogue".to_owned()),
        ("plugin", "catalogue/metrics/objects".to_owned()),
        ("version of a plugin", "catalogue/metrics/objects/1.0.0".to_owned()),
        ("audit", "audit".to_owned()),
        ("audit of a kind", "audit?kind=organizations".to_owned()),
        ("audit of a person", "audit?actor=person-4999@example.org".to_owned()),
    ];
    let of_organization = of_organization.map(|(name, rest)| (name, format!("{organization}/{rest}")));
    let others = [
        ("account", "/account"),
        ("identities", "/account/identities"),
        ("operators", "/operators"),
        ("audit of the server", "/operators/audit"),
    ];
    let others = others.map(|(name, path)| (name, path.to_owned()));
    of_organization.into_iter().chain(others).collect()
}
