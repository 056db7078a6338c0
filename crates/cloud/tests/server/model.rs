//! Random requests by random principals, against a model that fits on a page: what is granted, what is then there, that
//! an ETag changes exactly when the answer does, and that a client that follows the stream from any cursor ends with
//! what a lister sees.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_cloud::server::principal::OrgRole;

use crate::fixture;
use crate::stream::{Listening, kinds};
use crate::world::World;

/// A request.
#[derive(Clone, Debug)]
enum Ask {
    Create(usize, u8),
    Edit(usize, u8, u8),
    Delete(usize, u8),
    /// Makes the user a role.
    Role(usize, OrgRole),
    /// Somebody begins to follow here.
    Follow,
}

/// The collections: the list, the kind that is heard, and the least role that writes.
const COLLECTIONS: [(&str, &str, OrgRole); 3] = [
    ("~/clusters/C/labels", "labels", OrgRole::Member),
    ("~/registries", "registries", OrgRole::Admin),
    ("~/clusters/C/node-pools", "node-pools", OrgRole::Admin),
];

fn body(collection: usize, name: u8, value: u8) -> Value {
    match collection {
        0 => json!({"key": format!("cluster.containership.io/k{name}"), "value": format!("v{value}")}),
        1 => {
            let mut registry = fixture::registry(&format!("k{name}"));
            registry["email"] = json!(format!("v{value}@example.org"));
            registry
        }
        _ => {
            let mut pool = fixture::pool(&format!("k{name}"));
            pool["count"] = json!(value);
            pool
        }
    }
}

fn asks() -> impl Strategy<Value = Vec<(usize, Ask)>> {
    let (collection, name) = (0..COLLECTIONS.len(), 0_u8..4);
    let role = prop::sample::select(&OrgRole::ALL[..3]);
    let ask = prop_oneof![
        4 => (collection.clone(), name.clone()).prop_map(|(collection, name)| Ask::Create(collection, name)),
        4 => (collection.clone(), name.clone(), 0_u8..3).prop_map(|(collection, name, value)| Ask::Edit(collection, name, value)),
        2 => (collection, name).prop_map(|(collection, name)| Ask::Delete(collection, name)),
        1 => (2_usize..5, role).prop_map(|(user, role)| Ask::Role(user, role)),
        1 => Just(Ask::Follow),
    ];
    prop::collection::vec((0_usize..7, ask), 1..60)
}

/// The items of a collection, in the order of their creation: id, name and value.
type Items = Vec<(String, u8, u8)>;

/// A case: who there is, and what there should be.
struct Model {
    tokens: Vec<String>,
    users: Vec<String>,
    /// None of a cluster and of somebody of another organization.
    roles: Vec<Option<OrgRole>>,
    items: [Items; 3],
    organization: String,
    cluster: String,
}

impl Model {
    async fn new(world: &World, operator: &str, case: usize) -> Self {
        let organization = world.another_organization(operator, "Case").await;
        let (mut tokens, mut users, mut roles) = (
            vec![operator.to_owned()],
            vec![world.owner.clone()],
            vec![Some(OrgRole::Owner)],
        );
        for role in [OrgRole::Owner, OrgRole::Admin, OrgRole::Member, OrgRole::ReadOnly] {
            let (id, token) = world
                .user(operator, &organization, &format!("{role}{case}"), role.word())
                .await;
            tokens.push(token);
            users.push(id);
            roles.push(Some(role));
        }
        let path = format!("/v3/organizations/{organization}/clusters");
        let made = world.post(operator, &path, json!({"name": "prod"})).await.is(201);
        let (_, stranger) = world
            .user(operator, &world.organization, &format!("stranger{case}"), "owner")
            .await;
        tokens.extend([made.field("api_key"), stranger]);
        roles.extend([None, None]);
        Self {
            tokens,
            users,
            roles,
            items: [const { Vec::new() }; 3],
            organization,
            cluster: made.field("id"),
        }
    }

    fn path(&self, template: &str) -> String {
        let path = template.replacen('~', &format!("/v3/organizations/{}", self.organization), 1);
        path.replacen("/C", &format!("/{}", self.cluster), 1)
    }

    /// Returns the status with which `who` is refused, if `least` is required.
    fn refusal(&self, who: usize, least: OrgRole) -> Option<u16> {
        match self.roles[who] {
            Some(role) if role >= least => None,
            Some(_) => Some(403),
            None if who == 5 => Some(403),
            None => Some(404),
        }
    }

    async fn ask(&mut self, world: &World, who: usize, ask: &Ask) {
        let token = self.tokens[who].clone();
        let send = async |method: Method, path: String, body: Value| {
            world.send(world.request(&token, method, &path).json(&body)).await
        };
        match *ask {
            Ask::Follow => {}
            Ask::Role(user, role) => {
                let path = self.path(&format!("~/users/{}/role", self.users[user]));
                let answer = send(Method::PUT, path, json!({"role": role.word()})).await;
                answer.is(self.refusal(who, OrgRole::Admin).unwrap_or(200));
                if self.refusal(who, OrgRole::Admin).is_none() {
                    self.roles[user] = Some(role);
                }
            }
            Ask::Create(collection, name) => {
                let (path, _, least) = COLLECTIONS[collection];
                let is_named = self.items[collection].iter().any(|item| item.1 == name);
                let status = self.refusal(who, least).unwrap_or(if is_named { 409 } else { 201 });
                let answer = send(Method::POST, self.path(path), body(collection, name, 0))
                    .await
                    .is(status);
                if status == 201 {
                    self.items[collection].push((answer.field("id"), name, 0));
                }
            }
            Ask::Edit(collection, name, value) => {
                let (path, _, least) = COLLECTIONS[collection];
                let found = self.items[collection].iter().position(|item| item.1 == name);
                let id = found.map_or("9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e".to_owned(), |found| {
                    self.items[collection][found].0.clone()
                });
                let status = self
                    .refusal(who, least)
                    .unwrap_or(if found.is_some() { 200 } else { 404 });
                let path = format!("{}/{id}", self.path(path));
                let method = if value == 1 { Method::PUT } else { Method::PATCH };
                send(method, path, body(collection, name, value)).await.is(status);
                if let (Some(found), 200) = (found, status) {
                    self.items[collection][found].2 = value;
                }
            }
            Ask::Delete(collection, name) => {
                let (path, _, least) = COLLECTIONS[collection];
                let found = self.items[collection].iter().position(|item| item.1 == name);
                let id = found.map_or("9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e".to_owned(), |found| {
                    self.items[collection][found].0.clone()
                });
                let status = self
                    .refusal(who, least)
                    .unwrap_or(if found.is_some() { 204 } else { 404 });
                send(Method::DELETE, format!("{}/{id}", self.path(path)), Value::Null)
                    .await
                    .is(status);
                if let (Some(found), 204) = (found, status) {
                    self.items[collection].remove(found);
                }
            }
        }
    }

    /// Returns the items that the list must contain.
    fn wanted(&self, collection: usize) -> Vec<(String, Value)> {
        let item = |(id, name, value): &(String, u8, u8)| (id.clone(), body(collection, *name, *value));
        self.items[collection].iter().map(item).collect()
    }
}

fn assert_is(listed: &Value, wanted: &[(String, Value)]) {
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), wanted.len(), "{listed:?}");
    for (item, (id, body)) in listed.iter().zip(wanted) {
        assert_eq!(item["id"], **id);
        for (field, value) in body.as_object().unwrap() {
            assert_eq!(item[field], *value, "{field}");
        }
    }
}

async fn case(world: &World, operator: &str, number: usize, asks: Vec<(usize, Ask)>) {
    let mut model = Model::new(world, operator, number).await;
    let (cluster, path) = (model.tokens[5].clone(), model.path("~/clusters/C"));
    let mut lists: BTreeMap<usize, (String, String)> = BTreeMap::new();
    let mut followers = Vec::new();
    for (who, ask) in asks {
        model.ask(world, who, &ask).await;
        for (collection, (list, _, _)) in COLLECTIONS.iter().enumerate() {
            let before = lists.get(&collection).cloned().unwrap_or_default();
            let request = world
                .request(&cluster, Method::GET, &model.path(list))
                .header("if-none-match", &before.1);
            let seen = world.send(request).await;
            if seen.status == 304 {
                assert_is(&serde_json::from_str(&before.0).unwrap(), &model.wanted(collection));
                continue;
            }
            let seen = seen.is(200);
            assert_is(&seen.json(), &model.wanted(collection));
            assert!(
                seen.body != before.0 && seen.header("etag") != before.1,
                "{ask:?} changed nothing, and yet the answer"
            );
            lists.insert(collection, (seen.body.clone(), seen.header("etag")));
        }
        if matches!(ask, Ask::Follow) {
            let cursor = Listening::to(world, &cluster, &path, None).await.heard().await.id;
            followers.push((cursor, lists.clone()));
        }
    }
    for (cursor, mut mirror) in followers {
        if mirror == lists {
            continue;
        }
        // Everything since is told at once, because it has been.
        let event = Listening::to(world, &cluster, &path, Some(&cursor)).await.heard().await;
        for (collection, (_, kind, _)) in COLLECTIONS.iter().enumerate() {
            if kinds(&event).iter().any(|heard| heard == kind) {
                mirror.insert(collection, lists[&collection].clone());
            }
        }
        assert_eq!(mirror, lists);
    }
}

async fn holds(world: World) {
    let operator = world.owner().await;
    let config = Config {
        cases: 10,
        failure_persistence: None,
        max_shrink_iters: 40,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let number = std::cell::Cell::new(0);
    let run = runner.run(&asks(), |asks| {
        number.set(number.get() + 1);
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(case(&world, &operator, number.get(), asks));
        });
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_do_what_the_model_says_on_sqlite() {
    holds(World::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_do_what_the_model_says_on_postgres() {
    holds(World::postgres().await).await;
}
