//! Three organizations with everything in them, and somebody of each sort.
//!
//! `near` is the one that is asked for. `far` has the same in it, and nobody of `near` may know that it is there. The
//! operator is at home in the world's first organization and in neither of the two.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidewaiter_cloud::models::{Kind, schema};
use tidewaiter_cloud::server::http::endpoint::Input;
use tidewaiter_cloud::server::routes::ENDPOINTS;
use uuid::Uuid;

use crate::world::{PASSWORD, World};

/// The objects below an organization: a path of the table of endpoints with its parameters can be filled from this.
#[derive(Clone, Debug, Default)]
pub struct Place(BTreeMap<&'static str, String>);

impl Place {
    pub fn of(&self, name: &str) -> &str {
        &self.0[name]
    }

    pub fn set(&mut self, name: &'static str, id: impl Into<String>) {
        self.0.insert(name, id.into());
    }

    /// `template` with the ids of this place.
    pub fn path(&self, template: &str) -> String {
        let mut path = Vec::new();
        let mut before = "";
        for segment in template.split('/') {
            let filled = match segment {
                "{organization_id}" => self.of("organization"),
                "{cluster_id}" => self.of("cluster"),
                "{node_pool_id}" => self.of("pool"),
                "{user_id}" => self.of("user"),
                "{upgrade_id}" => self.of("upgrades"),
                "{service_account_id}" => self.of("service-accounts"),
                "{id}" if before == "labels" && template.contains("{node_pool_id}") => self.of("pool labels"),
                "{id}" => self.of(before),
                "{method}" => "password",
                "{type}" => "metrics",
                "{implementation}" => "prometheus",
                "{version}" => "1.0.0",
                "{target}" => TEMPLATE_TARGET,
                literal => literal,
            };
            path.push(filled.to_owned());
            before = segment;
        }
        path.join("/")
    }
}

/// An SSH key that nobody else has.
pub fn ssh_key() -> String {
    let (mut blob, point) = (
        Vec::new(),
        [*Uuid::new_v4().as_bytes(), *Uuid::new_v4().as_bytes()].concat(),
    );
    for part in [&b"ssh-ed25519"[..], &point] {
        blob.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
        blob.extend(part);
    }
    format!("ssh-ed25519 {} somebody@example.org", STANDARD.encode(blob))
}

pub fn registry(description: &str) -> Value {
    json!({"description": description, "provider": "private", "serveraddress": "registry.example.org",
        "credentials": {"username": "puller", "password": "hunter2 registry"}})
}

pub fn provider() -> Value {
    json!({"description": "ours", "provider": "digital_ocean", "credentials": {"token": "hunter2 provider"}})
}

pub fn pool(name: &str) -> Value {
    json!({"name": name, "count": 3, "kubernetes_mode": "worker", "kubernetes_version": "1.30.1", "etcd": false,
        "is_schedulable": true})
}

pub fn policy() -> Value {
    let step =
        json!({"threshold": 0.5, "comparison_operator": ">=", "adjustment_type": "absolute", "adjustment_value": 1});
    json!({"name": "By CPU", "metrics_backend": "prometheus", "metric": "cpu_percent_utilization",
        "metric_configuration": {}, "poll_interval": 15, "sample_period": 600,
        "scaling_policy": {"scale_up": step, "scale_down": step}})
}

pub fn role(name: &str) -> Value {
    json!({"name": name, "description": "may look", "rules": [{"type": "kubernetes", "api_groups": [""], "resources": ["pods"],
        "resource_names": [], "verbs": ["get"], "non_resource_urls": []}]})
}

pub fn upgrade() -> Value {
    json!({"type": "kubernetes", "description": "next", "targetVersion": "v1.30.1", "labelSelector": [],
        "nodeTimeoutSeconds": 900})
}

pub fn plugin() -> Value {
    json!({"type": "metrics", "implementation": "prometheus", "version": "1.0.0", "configuration": {}})
}

pub fn plugin_version(version: &str) -> Value {
    json!({"version": version, "disabled": false, "configuration_schema": [],
        "compatibility": {"kubernetes": {"min": null, "max": null}, "upgrades": [], "plugins": {}}})
}

pub fn manifests() -> Value {
    json!({"manifests": [[{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "metrics"}}]],
        "jobs": {"pre_apply": [], "post_apply": []}})
}

/// Returns the example of a kind in the description of the API.
pub fn example(kind: Kind) -> Value {
    let spec = ((kind.code().unwrap().spec)().described)();
    schema::example(&spec.request(), &BTreeMap::new())
}

/// The version of the script templates, to which nothing is upgraded.
const TEMPLATE_TARGET: &str = "v1.31.0";

pub const SCRIPT: &str = "#!/bin/sh\necho hunter2 script\n";

impl World {
    async fn id(&self, token: &str, path: &str, body: Value) -> String {
        self.post(token, path, body).await.is(201).field("id")
    }

    /// Creates an organization, and returns its id. Its owner is the operator who creates it.
    pub async fn another_organization(&self, operator: &str, name: &str) -> String {
        self.id(operator, "/v3/organizations", json!({ "name": name })).await
    }

    /// Makes a user who can log in, and logs him in.
    pub async fn user(&self, token: &str, organization: &str, name: &str, role: &str) -> (String, String) {
        let email = format!("{}@example.org", name.to_lowercase());
        let body = json!({"name": name, "email": email, "role": role, "password": PASSWORD});
        let id = self
            .id(token, &format!("/v3/organizations/{organization}/users"), body)
            .await;
        (id, self.log_in(&email, PASSWORD).await.is(200).field("token"))
    }

    /// The operator puts a version into the catalogue.
    pub async fn catalogue(&self, operator: &str) {
        let version = "/v3/plugins/metrics/implementations/prometheus/versions/1.0.0";
        self.put(operator, version, plugin_version("1.0.0")).await.is(200);
        let path = format!("{version}/manifests");
        self.put(operator, &path, manifests()).await.is(204);
    }

    /// Makes one of each kind in an organization.
    pub async fn fill(&self, token: &str, organization: &str, user: &str) -> Place {
        let mut place = Place::default();
        place.set("organization", organization);
        place.set("user", user);
        place.set("identities", Uuid::nil());
        place.set("security-keys", Uuid::nil());
        let base = format!("/v3/organizations/{organization}");
        let keys = format!("{base}/users/{user}/ssh_keys");
        let key = json!({"name": "laptop", "key": ssh_key()});
        place.set("ssh_keys", self.id(token, &keys, key).await);
        // None, until a test makes one.
        place.set("invitations", Uuid::nil());
        let team = json!({"name": "Night shift", "description": "", "user_ids": [user]});
        for (name, body) in [
            ("teams", team),
            ("registries", registry("ours")),
            ("providers", provider()),
            ("roles", role("Reader")),
        ] {
            place.set(name, self.id(token, &format!("{base}/{name}"), body).await);
        }
        let cluster = self
            .post(token, &format!("{base}/clusters"), json!({"name": "prod"}))
            .await
            .is(201);
        place.set("cluster", cluster.field("id"));
        place.set("decisions", Uuid::new_v4());
        place.set("key", cluster.field("api_key"));
        let inside = format!("{base}/clusters/{}", place.of("cluster"));
        let binding = json!({"type": "UserBinding", "user_id": user, "authorization_role_id": place.of("roles"),
            "cluster_id": place.of("cluster"), "namespace": "dev"});
        place.set(
            "role-bindings",
            self.id(token, &format!("{base}/role-bindings"), binding).await,
        );
        place.set(
            "pool",
            self.id(token, &format!("{inside}/node-pools"), pool("workers")).await,
        );
        for (name, body) in [
            ("plugins", plugin()),
            ("labels", json!({"key": "cluster.containership.io/env", "value": "dev"})),
            ("autoscaling-policies", policy()),
            ("upgrades", upgrade()),
        ] {
            place.set(name, self.id(token, &format!("{inside}/{name}"), body).await);
        }
        let below = format!("{inside}/node-pools/{}", place.of("pool"));
        let label = json!({"key": "nodepool.containership.io/disk", "value": "ssd"});
        place.set("pool labels", self.id(token, &format!("{below}/labels"), label).await);
        place.set(
            "nodes",
            self.id(token, &format!("{below}/nodes"), json!({"name": "node-1"}))
                .await,
        );
        for kind in Kind::resources().filter(|kind| !kind.facts().has_own_endpoints) {
            let list = ENDPOINTS
                .iter()
                .find(|endpoint| endpoint.kind == Some(kind) && endpoint.takes != Input::Nothing);
            let facts = kind.facts();
            let is_there = ["clusters", "node-pools", "node-pool-labels"].contains(&facts.word);
            if !is_there && !place.0.contains_key(facts.segment) {
                let list = place.path(&list.unwrap().path);
                place.set(facts.segment, self.id(token, &list, example(kind)).await);
            }
        }
        let tokens = format!("{base}/service-accounts/{}/tokens", place.of("service-accounts"));
        let token_of_account = json!({"name": "ci", "expires_in_seconds": 3600});
        place.set("tokens", self.id(token, &tokens, token_of_account).await);
        let rules = self.get(token, &format!("{base}/rules")).await.is(200).json();
        place.set("rules", rules[0]["id"].as_str().unwrap());
        let script = self.request(
            token,
            reqwest::Method::PUT,
            &place.path(&format!("{inside}/upgrades/{{id}}/script")),
        );
        self.send(script.body(SCRIPT)).await.is(204);
        for above in [&inside, &base] {
            let path = format!("{above}/script-templates/{TEMPLATE_TARGET}");
            let template = self.request(token, reqwest::Method::PUT, &path);
            self.send(template.body(SCRIPT)).await.is(204);
        }
        place
    }
}

/// Three organizations with every kind of object, and callers of each role.
pub struct Fixture {
    pub world: World,
    pub near: Place,
    pub far: Place,
    /// Another cluster of `near`.
    pub beside: String,
    /// The callers: a name and a token each, in the order of the table's columns.
    pub principals: Vec<(&'static str, String)>,
}

impl Fixture {
    pub async fn new(world: World) -> Self {
        let operator = world.owner().await;
        world.catalogue(&operator).await;
        let mut places = Vec::new();
        let mut owners = Vec::new();
        for (name, user) in [("Near", "Alice"), ("Far", "Bob")] {
            let organization = world.another_organization(&operator, name).await;
            let (_, owner) = world
                .user(&operator, &organization, &format!("{name}-owner"), "owner")
                .await;
            let leave = format!("/v3/organizations/{organization}/users/{}", world.owner);
            world.delete(&operator, &leave).await.is(204);
            let (id, _) = world.user(&owner, &organization, user, "member").await;
            places.push(world.fill(&owner, &organization, &id).await);
            owners.push(owner);
        }
        let [near, far] = places.try_into().unwrap();
        let [owner, stranger] = owners.try_into().unwrap();
        let organization = near.of("organization").to_owned();
        let mut principals = vec![
            ("nobody", String::new()),
            ("bad token", "eyJhbGciOiJub25lIn0.e30.".to_owned()),
            ("owner", owner.clone()),
        ];
        for role in ["admin", "member", "read_only"] {
            principals.push((role, world.user(&owner, &organization, role, role).await.1));
        }
        let path = |rest: &str| near.path(&format!("/v3/organizations/{{organization_id}}{rest}"));
        let beside = world
            .post(&owner, &path("/clusters"), json!({"name": "beside"}))
            .await
            .is(201);
        let kubernetes = world
            .post(&owner, &path("/clusters/{cluster_id}/token"), json!({}))
            .await
            .is(200);
        let revoked = json!({"name": "short", "expires_in_seconds": 3600});
        let revoked = world.post(&owner, "/v3/account/tokens", revoked).await.is(201);
        world.get(&revoked.field("token"), "/v3/account").await.is(200);
        let revoke = format!("/v3/account/tokens/{}", revoked.field("id"));
        world.delete(&owner, &revoke).await.is(204);
        principals.extend([
            ("stranger", stranger),
            ("operator", operator),
            ("cluster", near.of("key").to_owned()),
            ("beside", beside.field("api_key")),
            ("far cluster", far.of("key").to_owned()),
            ("kubernetes", kubernetes.field("token")),
            ("revoked", revoked.field("token")),
        ]);
        Self {
            beside: beside.field("id"),
            world,
            near,
            far,
            principals,
        }
    }

    pub fn token(&self, name: &str) -> &str {
        let found = self.principals.iter().find(|(known, _)| *known == name);
        &found.unwrap_or_else(|| panic!("nobody is {name}")).1
    }

    pub fn near(&self, rest: &str) -> String {
        self.near.path(&format!("/v3/organizations/{{organization_id}}{rest}"))
    }
}
