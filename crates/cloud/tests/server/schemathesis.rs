//! Schemathesis makes requests from the server's own description, good and bad ones, as each principal, and every
//! answer is as described. Each principal asks a server of its own, whose organization has an object of each kind; a
//! DELETE gets spare ones, so that the others are there to the end.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_testkit::Schemathesis;
use uuid::Uuid;

use crate::world::{PASSWORD, World};

/// Off are: what takes for a fault that a request is refused for a reason that no schema knows, as a name that is taken
/// (`positive_data_acceptance`), or that one is granted in which an optional text is empty (`negative_data_rejection`);
/// what looks at sequences of requests; and `ignored_auth`, because nobody asks everything too.
const CHECKS: &[&str] = &[
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
];

const KEYS: [&str; 2] = [
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIFSjIL8j1rY4cUhqd7cyLRV+y01dVXDdDSVbjbRI6Kr alice@example",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5 alice@example",
];
const ORGANIZATION: &str = "/v3/organizations/{}";
const USER: &str = "/v3/organizations/{}/users/{}";
const CLUSTER: &str = "/v3/organizations/{}/clusters/{}";
const POOL: &str = "/v3/organizations/{}/clusters/{}/node-pools/{}";
const UPGRADE: &str = "/v3/organizations/{}/clusters/{}/upgrades/{}";
const VERSION: &str = "/v3/plugins/{type}/implementations/{implementation}/versions/{version}";

/// Each operation's example, and a random request where there is none.
const QUICK: &str =
    "stateful.enabled = false\nfuzzing.enabled = false\ncoverage.enabled = false\nexamples.fill-missing = true";
/// Random requests too, good and bad ones, and the borders of the parameters; those of the bodies take minutes.
const THOROUGH: &str = r#"stateful.enabled = false
examples.fill-missing = true
[[operations]]
include-method = ["POST", "PUT", "PATCH"]
phases.coverage.enabled = false
"#;

/// The values for the last parameter of a path; the parameters' names are left out.
type Ids = BTreeMap<String, String>;

/// A path without the names of its parameters: what some call `cluster_id`, others call `id`.
fn nameless(path: &str) -> String {
    let words = path
        .split('/')
        .map(|word| if word.starts_with('{') { "{}" } else { word });
    words.collect::<Vec<_>>().join("/")
}

/// The beginnings of a path that end with a parameter, each with that parameter's name.
fn parameters(path: &str) -> impl Iterator<Item = (String, &str)> {
    let ends = path.match_indices('}').map(|(end, _)| &path[..=end]);
    ends.map(|beginning| {
        let (_, name) = beginning.rsplit_once('{').unwrap();
        (nameless(beginning), name.trim_end_matches('}'))
    })
}

/// A server with two objects of each kind: one that stays, and a spare one to delete.
struct Filled {
    world: World,
    operator: String,
    document: Value,
    kept: Ids,
    spare: Ids,
    cluster_key: String,
}

impl Filled {
    async fn new() -> Self {
        let world = World::sqlite().await;
        let operator = world.owner().await;
        let document = world.get("", "/openapi.json").await.is(200).json();
        let spare = world.another_organization(&operator, "Spare").await;
        let mut filled = Self {
            kept: [(ORGANIZATION.to_owned(), world.organization.clone())].into(),
            spare: [(ORGANIZATION.to_owned(), spare)].into(),
            world,
            operator,
            document,
            cluster_key: String::new(),
        };
        filled.fill(0).await;
        filled.fill(1).await;
        filled.add_operators().await;
        filled
    }

    /// Makes an object of each kind, with this number where two may not be alike, all in the kept ones.
    async fn fill(&mut self, number: usize) {
        let name = format!("n{number}");
        let user = self.make(USER, json!({"email": format!("{name}@example.org")})).await;
        self.make(
            &format!("{USER}/ssh_keys/{{}}"),
            json!({"name": name, "key": KEYS[number]}),
        )
        .await;
        let team = json!({"name": name, "user_ids": [user]});
        self.make(&format!("{ORGANIZATION}/teams/{{}}"), team).await;
        let account = format!("{ORGANIZATION}/service-accounts/{{}}");
        self.make(&account, json!({"name": name})).await;
        self.make(&format!("{account}/tokens/{{}}"), json!({"name": name}))
            .await;
        let invitation = json!({"email": format!("{name}@example.net"), "team_ids": null, "expires_at": null});
        self.make(&format!("{ORGANIZATION}/invitations/{{}}"), invitation).await;
        let registry = json!({"serveraddress": format!("{name}.example.org"), "description": name});
        self.make(&format!("{ORGANIZATION}/registries/{{}}"), registry).await;
        let provider = json!({"description": name});
        self.make(&format!("{ORGANIZATION}/providers/{{}}"), provider).await;
        let role = self
            .make(&format!("{ORGANIZATION}/roles/{{}}"), json!({"name": name}))
            .await;
        let binding = json!({"user_id": user, "authorization_role_id": role, "cluster_id": null});
        self.make(&format!("{ORGANIZATION}/role-bindings/{{}}"), binding).await;

        self.make(CLUSTER, json!({"name": name, "provider_id": null})).await;
        self.make(
            &format!("{CLUSTER}/labels/{{}}"),
            json!({"key": format!("cluster.containership.io/{name}")}),
        )
        .await;
        let policy = format!("{CLUSTER}/autoscaling-policies/{{}}");
        let policy = self.make(&policy, json!({"name": name})).await;
        self.keep(&format!("{POOL}/autoscaling-policies/{{}}"), policy);
        self.publish(number).await;
        let plugin = json!({"type": "network", "implementation": name});
        self.make(&format!("{CLUSTER}/plugins/{{}}"), plugin).await;
        self.make(UPGRADE, json!({"description": name})).await;
        self.make(POOL, json!({"name": name})).await;
        let label = json!({"key": format!("nodepool.containership.io/{name}")});
        self.make(&format!("{POOL}/labels/{{}}"), label).await;
        let node = self.make(&format!("{POOL}/nodes/{{}}"), json!({"name": name})).await;
        self.keep(&format!("{CLUSTER}/nodes/{{}}"), node.clone());
        self.keep(&format!("{UPGRADE}/nodes/{{}}"), node);
        let keys = format!("{CLUSTER}/api-keys");
        let path = path(&keys, &self.kept);
        let made = self.world.post(&self.operator, &path, json!({})).await.is(201);
        self.keep(&format!("{keys}/{{}}"), made.field("id"));
        self.cluster_key = made.field("api_key");
    }

    /// The operator, and another one to spare.
    async fn add_operators(&mut self) {
        let user = json!({"name": "Spare", "email": "spare@example.org", "password": PASSWORD});
        let made = self.world.post(&self.operator, "~/users", user).await.is(201);
        let spare = format!("/v3/operators/{}", made.field("id"));
        self.world.put(&self.operator, &spare, json!({})).await.is(200);
        for id in [self.world.owner.clone(), made.field("id")] {
            self.keep("/v3/operators/{}", id);
        }
    }

    /// The first of a kind is to stay, the second is to spare.
    fn keep(&mut self, item: &str, id: String) {
        let ids = if self.kept.contains_key(item) {
            &mut self.spare
        } else {
            &mut self.kept
        };
        ids.insert(item.to_owned(), id);
    }

    /// Makes the example of the description with these fields, and gives its id.
    async fn make(&mut self, item: &str, fields: Value) -> String {
        let list = item.trim_end_matches("/{}");
        let mut paths = self.document["paths"].as_object().unwrap().iter();
        let (_, methods) = paths.find(|(path, _)| nameless(path) == list).unwrap();
        let mut body = methods["post"]["requestBody"]["content"]["application/json"]["example"].clone();
        json_patch::merge(&mut body, &fields);
        let path = path(list, &self.kept);
        let made = self.world.post(&self.operator, &path, body).await.is(201);
        let id = made.field("id");
        self.keep(item, id.clone());
        id
    }

    /// Puts two versions into the catalogue: the first plugin's, and this plugin's.
    async fn publish(&mut self, number: usize) {
        let name = format!("n{number}");
        let version = format!("1.2.{number}");
        for (implementation, version) in [("n0", &*version), (&*name, "1.2.3")] {
            let path = format!("/v3/plugins/network/implementations/{implementation}/versions/{version}");
            let put = self.world.put(&self.operator, &path, json!({"version": version}));
            put.await.is(200);
        }
        for (item, id) in parameters(VERSION)
            .map(|(item, _)| item)
            .zip(["network".to_owned(), name, version])
        {
            self.keep(&item, id);
        }
    }

    /// Logs a new user in who has this role in this organization.
    async fn user(&self, organization: &str, role: &str) -> String {
        let email = format!("{role}@example.com");
        let user = json!({"name": role, "email": email, "role": role, "password": PASSWORD});
        let users = format!("/v3/organizations/{organization}/users");
        self.world.post(&self.operator, &users, user).await.is(201);
        self.world.log_in(&email, PASSWORD).await.is(200).field("token")
    }

    /// Returns the settings: the operations, and the objects with which each is tested.
    fn settings(&self, phases: &str) -> String {
        let mut settings = format!("[phases]\n{phases}\n");
        let paths = self.document["paths"].as_object().unwrap();
        let operations = paths
            .iter()
            .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |method| (path, method)));
        for (path, method) in operations {
            let (whole, method) = (nameless(path), method.to_uppercase());
            let one = parameters(path).filter_map(|(item, name)| {
                let spare = (method == Method::DELETE.as_str() && item == whole) || path.ends_with("/locked");
                // A stream that is granted has no end: here there is no such cluster or organization.
                let id = if path.strip_suffix("/events").is_some_and(|of| nameless(of) == item) {
                    Uuid::nil().to_string()
                } else {
                    if spare { &self.spare } else { &self.kept }.get(&item)?.clone()
                };
                Some(format!("\"path.{name}\" = \"{id}\""))
            });
            let one = one.collect::<Vec<_>>().join(", ");
            if !one.is_empty() {
                writeln!(
                    settings,
                    "[[operations]]\ninclude-name = \"{method} {path}\"\nparameters = {{ {one} }}"
                )
                .unwrap();
            }
        }
        settings
    }

    async fn assert_described(&self, token: &str, thorough: bool) {
        let (examples, phases) = if thorough { (2, THOROUGH) } else { (1, QUICK) };
        let description = format!("{}/openapi.json", self.world.base);
        let schemathesis = Schemathesis {
            description: &description,
            token,
            settings: &self.settings(phases),
            checks: CHECKS,
            seed: 1,
            examples,
            deadline: Duration::from_mins(30),
        };
        schemathesis.run().await.assert_clean();
    }
}

/// The path with the ids of its parameters.
fn path(nameless: &str, ids: &Ids) -> String {
    let mut path = String::new();
    for (at, word) in nameless.split_inclusive("{}").scan(0, |end, part| {
        *end += part.len();
        Some((*end, part))
    }) {
        path.push_str(word.trim_end_matches("{}"));
        if word.ends_with("{}") {
            path.push_str(&ids[&nameless[..at]]);
        }
    }
    path
}

#[tokio::test]
async fn nobody_is_answered_as_described() {
    Filled::new().await.assert_described("", false).await;
}

#[tokio::test]
async fn an_operator_is_answered_as_described() {
    let filled = Filled::new().await;
    filled.assert_described(&filled.operator, true).await;
}

#[tokio::test]
async fn a_member_is_answered_as_described() {
    let filled = Filled::new().await;
    let token = filled.user(&filled.world.organization, "member").await;
    filled.assert_described(&token, false).await;
}

#[tokio::test]
async fn a_reader_is_answered_as_described() {
    let filled = Filled::new().await;
    let token = filled.user(&filled.world.organization, "read_only").await;
    filled.assert_described(&token, false).await;
}

#[tokio::test]
async fn a_user_of_another_organization_is_answered_as_described() {
    let filled = Filled::new().await;
    let token = filled.user(&filled.spare[ORGANIZATION], "owner").await;
    filled.assert_described(&token, false).await;
}

#[tokio::test]
async fn a_cluster_is_answered_as_described() {
    let filled = Filled::new().await;
    filled.assert_described(&filled.cluster_key, false).await;
}
