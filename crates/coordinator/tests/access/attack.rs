//! The attack suite `rbac`: each row of the table of full control, escalated for real with a role that the coordinator
//! bound.
//!
//! Each attack runs twice, on an API server with kube-controller-manager: with `allowPrivileged: true` it succeeds, so
//! the row is no invention; by default each of its steps is forbidden, and the harmless neighbours of its rules stay.
//! What only a kubelet could show is asked of the API server as the kubelet asks it (`SubjectAccessReview`).

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Client;
use kube::api::PostParams;
use kube::config::AuthInfo;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tidewaiter_api::access::{FullControl, ROWS, Scope, full_control};
use tidewaiter_coordinator::controllers::RbacSettings;
use tidewaiter_testkit::{Identity, eventually};

use crate::world::{SOON, World, id};

mod acts;
mod rows;

use rows::{ATTACKS, Attack, ORDINARY};

/// Requests at once.
const AT_ONCE: usize = 8;

/// The API server refused a step.
#[derive(Debug)]
struct Forbidden;

type Escalated = Result<(), Forbidden>;

/// A rule in short, `verbs groups resources` or `verbs paths`, as [`ATTACKS`] has them.
fn words(text: &str) -> Vec<Vec<&str>> {
    let long = |word| match word {
        "core" => "",
        "rbac" => "rbac.authorization.k8s.io",
        "admission" => "admissionregistration.k8s.io",
        "certificates" => "certificates.k8s.io",
        other => other,
    };
    text.split(' ')
        .map(|list| list.split(',').map(long).collect())
        .collect()
}

fn cloud_rule(text: &str) -> Value {
    match &words(text)[..] {
        [verbs, paths] => json!({"id": id(), "type": "kubernetes", "verbs": verbs, "non_resource_urls": paths}),
        [verbs, groups, resources] => {
            json!({"id": id(), "type": "kubernetes", "verbs": verbs, "api_groups": groups, "resources": resources})
        }
        _ => panic!("{text}"),
    }
}

fn policy_rule(text: &str) -> PolicyRule {
    let rule = match &words(text)[..] {
        [verbs, paths] => json!({"verbs": verbs, "nonResourceURLs": paths}),
        [verbs, groups, resources] => json!({"verbs": verbs, "apiGroups": groups, "resources": resources}),
        _ => panic!("{text}"),
    };
    serde_json::from_value(rule).unwrap()
}

/// One question to the API server about the rule: its first verb, on its first resource or path.
fn question(text: &str, namespace: &str) -> Value {
    let concrete = |word: &str| word.replace('*', "x");
    match &words(text)[..] {
        [verbs, paths] => json!({"nonResourceAttributes": {"verb": concrete(verbs[0]), "path": concrete(paths[0])}}),
        [verbs, groups, resources] => {
            let resource = concrete(resources[0]);
            let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
            json!({"resourceAttributes": {"verb": concrete(verbs[0]), "group": concrete(groups[0]), "resource": resource,
                "subresource": subresource, "namespace": namespace, "name": "some"}})
        }
        _ => panic!("{text}"),
    }
}

fn user_name(user: &str) -> String {
    format!("containership.io/user_id#{user}")
}

/// Returns true if the API server lets the user do it.
async fn is_allowed(world: &World, user: &str, question: &Value) -> bool {
    let mut spec = question.clone();
    spec["user"] = json!(user_name(user));
    let review: SubjectAccessReview = serde_json::from_value(json!({ "spec": spec })).unwrap();
    let reviewed = world.all().create(&PostParams::default(), &review).await.unwrap();
    reviewed.status.unwrap().allowed
}

/// Somebody with the role of an attack, as a client of the API server.
struct Eve<'a> {
    world: &'a World,
    user: String,
    client: Client,
    namespace: &'static str,
    name: &'static str,
}

impl Eve<'_> {
    /// Sends a request; a body that is a list is a JSON patch.
    async fn send(&self, method: &str, path: &str, body: Value) -> Result<Value, Forbidden> {
        self.send_as(method, path, body, &[]).await
    }

    async fn get(&self, path: &str) -> Result<Value, Forbidden> {
        self.send("GET", path, Value::Null).await
    }

    /// Sends a request with these headers. Any refusal but 403 is a mistake of the test.
    async fn send_as(&self, method: &str, path: &str, body: Value, headers: &[[&str; 2]]) -> Result<Value, Forbidden> {
        match self.try_send(method, path, &body, headers).await {
            Ok(text) => Ok(serde_json::from_str(&text).unwrap_or(Value::String(text))),
            Err(kube::Error::Api(status)) if status.code == 403 => Err(Forbidden),
            Err(error) => panic!("{}: {method} {path}: {error}", self.name),
        }
    }

    async fn try_send(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[[&str; 2]],
    ) -> Result<String, kube::Error> {
        let kind = match method {
            "PATCH" if body.is_array() => "application/json-patch+json",
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind);
        for [name, value] in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        self.client.request_text(request.body(body).unwrap()).await
    }

    /// The same of an admin, who is here the victim, or cleans up.
    fn admin(&self) -> Self {
        Self {
            client: self.world.cluster.client(&Identity::Admin),
            user: self.user.clone(),
            ..*self
        }
    }

    /// Asks what a kubelet or the API server would ask.
    async fn may(&self, rule: &str) -> Escalated {
        let question = question(rule, self.namespace);
        let allowed = is_allowed(self.world, &self.user, &question).await;
        if allowed { Ok(()) } else { Err(Forbidden) }
    }

    /// Checks if the holder of the token may give itself everything.
    async fn owns_the_cluster(&self, token: &str) {
        let mut config = self.world.cluster.config(&Identity::Admin);
        config.auth_info = AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        };
        let client = Client::try_from(config).unwrap();
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "escalate", "group": "rbac.authorization.k8s.io", "resource": "clusterroles"}}});
        let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())
            .unwrap();
        let reviewed: Value = serde_json::from_str(&client.request_text(request).await.unwrap()).unwrap();
        assert_eq!(reviewed["status"]["allowed"], true, "{}: {reviewed}", self.name);
    }
}

/// The role of an attack, and the two users who have it: one attacks while it is allowed, the other by default, because
/// the API server remembers for a while whom a user may impersonate.
struct Prepared {
    attack: &'static Attack,
    users: [String; 2],
    role: String,
}

impl Prepared {
    async fn new(world: &World, number: usize, attack: &'static Attack) -> Self {
        let (users, role) = ([format!("eve-{number}"), format!("mallory-{number}")], id());
        let rules = attack.rules.iter().chain(attack.neighbours);
        let rules: Vec<Value> = rules.map(|rule| cloud_rule(rule)).collect();
        world.role(&role, &rules).await;
        for user in &users {
            world.bind_user(&id(), &role, user, attack.namespace).await;
        }
        Self { attack, users, role }
    }

    fn eve<'a>(&self, world: &'a World, user: &str) -> Eve<'a> {
        Eve {
            world,
            client: world.cluster.client(&Identity::user(user_name(user), &[])),
            user: user.to_owned(),
            namespace: self.attack.namespace,
            name: self.attack.name,
        }
    }

    fn scope(&self) -> Scope {
        let namespace = Some(self.attack.namespace).filter(|it| !it.is_empty());
        Scope::of(namespace, &RbacSettings::default().system_namespaces)
    }

    /// Waits until the user may do what the rules of the table permit, or may not, and in any case what the others
    /// permit.
    async fn becomes(&self, world: &World, user: &str, of_table: bool) {
        for rule in self.attack.rules.iter().chain(self.attack.neighbours) {
            let is_of_table = full_control(&policy_rule(rule), self.scope()).is_some();
            let expected = of_table || !is_of_table;
            let question = question(rule, self.attack.namespace);
            let what = format!("{}: \"{rule}\" to be allowed: {expected}", self.attack.name);
            eventually(what, SOON, async || {
                let found = is_allowed(world, user, &question).await;
                if found == expected { Ok(()) } else { Err(found) }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn each_row_escalates_where_it_is_allowed_and_is_refused_by_default() {
    let world = World::with_controller_manager().await;
    acts::prepare(&world).await;
    let mut prepared = Vec::new();
    for (number, attack) in ATTACKS.iter().enumerate() {
        prepared.push(Prepared::new(&world, number, attack).await);
    }
    let allowed = RbacSettings {
        allow_privileged: true,
        ..RbacSettings::default()
    };
    let running = world.run(allowed).await;
    for attack in &prepared {
        let [eve, _] = &attack.users;
        attack.becomes(&world, eve, true).await;
        let done = (attack.attack.act)(&attack.eve(&world, eve)).await;
        assert!(done.is_ok(), "{} is no way to full control", attack.attack.name);
    }
    running.stop().await;

    let running = world.run(RbacSettings::default()).await;
    for attack in &prepared {
        for user in &attack.users {
            attack.becomes(&world, user, false).await;
        }
        let [_, mallory] = &attack.users;
        let role: ClusterRole = world.all().get(&attack.role).await.unwrap();
        let kept = role
            .rules
            .iter()
            .flatten()
            .filter(|rule| full_control(rule, attack.scope()).is_some());
        assert_eq!(kept.count(), 0, "{}: {role:?}", attack.attack.name);
        let done = (attack.attack.act)(&attack.eve(&world, mallory)).await;
        assert!(done.is_err(), "{} succeeds by default", attack.attack.name);
    }
    drop(running);

    // Every row is attacked.
    let tried = prepared.iter().flat_map(|it| {
        let rules = it.attack.rules.iter();
        rules.filter_map(|rule| full_control(&policy_rule(rule), it.scope()))
    });
    let tried: Vec<&FullControl> = tried.collect();
    let missing: Vec<&FullControl> = ROWS.iter().filter(|row| !tried.contains(row)).collect();
    assert!(missing.is_empty(), "no attack tries {missing:?}");
}

/// The rights of an admin of an ordinary namespace, and harmless rights in the whole cluster, apply by default.
#[tokio::test]
async fn an_admin_of_an_ordinary_namespace_is_not_hindered() {
    let world = World::start().await;
    world.namespace("apps").await;
    let (role, user) = (id(), "admin-of-apps");
    let rules: Vec<Value> = ORDINARY.iter().map(|rule| cloud_rule(rule)).collect();
    world.role(&role, &rules).await;
    world.bind_user(&id(), &role, user, "apps").await;
    let running = world.run(RbacSettings::default()).await;
    for rule in ORDINARY {
        let question = question(rule, "apps");
        eventually(format!("{rule} to be allowed"), SOON, async || {
            if is_allowed(&world, user, &question).await {
                Ok(())
            } else {
                Err("it is not")
            }
        })
        .await;
    }
    running
        .counts("tidewaiter_role_rules_refused{reason=\"privileged\"}", 0)
        .await;
}

/// A binding in a system namespace waits until the role is without the rule, whatever made the namespace one.
#[tokio::test]
async fn a_binding_that_widens_the_scope_waits_until_the_rule_is_gone() {
    let world = World::start().await;
    for namespace in ["apps", "argocd"] {
        world.namespace(namespace).await;
    }
    for namespace in ["kube-system", "containership-core", "argocd", ""] {
        let (role, wide, user) = (id(), id(), format!("eve-{namespace}"));
        world
            .role(
                &role,
                &[cloud_rule("get,create core secrets"), cloud_rule("get core services")],
            )
            .await;
        world.bind_user(&id(), &role, &user, "apps").await;
        let settings = RbacSettings {
            system_namespaces: tidewaiter_api::access::SystemNamespaces::and(vec!["argo*".to_owned()]),
            ..RbacSettings::default()
        };
        let running = world.run(settings).await;
        world.becomes(&user, ("get", "secrets", "apps"), true).await;
        let watched = AtomicUsize::new(0);
        let never = async {
            loop {
                assert!(
                    !world.may(&user, &[], "get", "secrets", namespace).await,
                    "a moment with Secrets of {namespace:?}"
                );
                watched.fetch_add(1, Ordering::Relaxed);
            }
        };
        let widened = async {
            world.bind_user(&wide, &role, &user, namespace).await;
            world.becomes(&user, ("get", "services", namespace), true).await;
            let seen = watched.load(Ordering::Relaxed);
            eventually("another look", SOON, async || {
                if watched.load(Ordering::Relaxed) > seen {
                    Ok(())
                } else {
                    Err("none yet")
                }
            })
            .await;
        };
        tokio::select! {
            () = widened => {}
            () = never => {}
        }
        world.becomes(&user, ("get", "secrets", "apps"), false).await;
        // The role has the rule again once nothing binds it there any more.
        world.delete(&world.bindings(), &wide).await;
        world.becomes(&user, ("get", "secrets", "apps"), true).await;
        running.stop().await;
    }
}

/// Rules with what a row has, which permit something of it if nothing else is chosen, and with harmless neighbours.
fn any_rule() -> impl Strategy<Value = PolicyRule> {
    let own = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let some = |of_row: &[&'static str], others: &[&'static str]| {
        let mut texts = [of_row, others].concat();
        texts.retain(|text| !text.ends_with("/*"));
        let most = texts.len().min(3);
        subsequence(texts, 1..=most)
    };
    let rows: Vec<&'static FullControl> = ROWS.iter().filter(|row| !row.groups.is_empty()).collect();
    let on_resources = select(rows).prop_flat_map(move |row| {
        let resources = [
            "userextras/scopes",
            "services",
            "nodes",
            "*/scale",
            "*/exec",
            "pods/log",
            "nodes/metrics",
        ];
        (
            some(row.verbs, &["get", "list", "delete"]),
            some(row.groups, &["example.com"]),
            some(row.resources, &resources),
        )
    });
    let on_resources = on_resources.prop_map(move |(verbs, groups, resources)| PolicyRule {
        verbs: own(verbs),
        api_groups: Some(own(groups)),
        resources: Some(own(resources)),
        ..PolicyRule::default()
    });
    let paths = vec![
        "/", "/healthz", "/lo*", "/logs", "/logs/*", "/logs/x", "/debug*", "/metrics", "/d*", "*",
    ];
    let on_paths = (subsequence(vec!["get", "put"], 1..=2), subsequence(paths, 1..=2));
    let on_paths = on_paths.prop_map(move |(verbs, paths)| PolicyRule {
        verbs: own(verbs),
        non_resource_urls: Some(own(paths)),
        ..PolicyRule::default()
    });
    prop_oneof![8 => on_resources, 1 => on_paths]
}

/// The questions to the API server that show if a rule permits anything of the row.
fn questions(row: &FullControl, rule: &PolicyRule, namespace: &str) -> Vec<Value> {
    let mut questions = Vec::new();
    if row.groups.is_empty() {
        for verb in &rule.verbs {
            for path in row.resources {
                questions.push(json!({"nonResourceAttributes": {"verb": verb, "path": path.replace('*', "x")}}));
            }
        }
        return questions;
    }
    let of_rule: Vec<&str> = rule.api_groups.iter().flatten().map(String::as_str).collect();
    let groups = if row.groups == ["*"] { &of_rule[..] } else { row.groups };
    for group in groups {
        for resource in row.resources {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let subresources = match subresource {
                // Not "scale": nobody is known by an attribute of that name.
                "*" => &["scopes", "exec"][..],
                one => &[one],
            };
            for subresource in subresources {
                for verb in row.verbs {
                    questions.push(
                        json!({"resourceAttributes": {"verb": verb, "group": group, "resource": resource,
                        "subresource": subresource, "namespace": namespace}}),
                    );
                }
            }
        }
    }
    questions
}

const RANDOM_RULES: usize = 60;

#[tokio::test]
async fn random_rules_amount_to_full_control_where_the_api_server_permits_a_row() {
    let world = World::start().await;
    world.namespace("apps").await;
    let mut random = TestRunner::default();
    let places = [
        (Scope::Namespace, "apps"),
        (Scope::SystemNamespace, "kube-system"),
        (Scope::Cluster, ""),
    ];
    let (mut cases, mut objects) = (Vec::new(), Vec::new());
    for number in 0..RANDOM_RULES {
        let rule = any_rule().new_tree(&mut random).unwrap().current();
        let (scope, namespace) = places[number % places.len()];
        let name = format!("random-{number}");
        let probe = json!({"verbs": ["get"], "apiGroups": ["example.org"], "resources": ["probes"]});
        let definition = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [rule, probe]});
        let mut binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user_name(&name)}]});
        if !namespace.is_empty() {
            binding["kind"] = json!("RoleBinding");
            binding["metadata"]["namespace"] = json!(namespace);
        }
        objects.extend([definition.to_string(), binding.to_string()]);
        cases.push((name, rule, scope, namespace));
    }
    world.cluster.apply(&objects.join("\n---\n")).await;
    let seen = [AtomicUsize::new(0), AtomicUsize::new(0)];
    for (name, rule, scope, namespace) in &cases {
        let probe = json!({"resourceAttributes": {"verb": "get", "group": "example.org", "resource": "probes", "namespace": namespace}});
        eventually(format!("{name} to be bound"), SOON, async || {
            if is_allowed(&world, name, &probe).await {
                Ok(())
            } else {
                Err("not yet")
            }
        })
        .await;
        let rows = ROWS.iter().filter(|row| row.scope <= *scope);
        let asked: Vec<Value> = rows.flat_map(|row| questions(row, rule, namespace)).collect();
        let answers = stream::iter(asked).map(async |question| is_allowed(&world, name, &question).await);
        let permitted = answers.buffer_unordered(AT_ONCE).any(async |allowed| allowed).await;
        assert_eq!(full_control(rule, *scope).is_some(), permitted, "{scope:?}: {rule:?}");
        seen[usize::from(permitted)].fetch_add(1, Ordering::Relaxed);
    }
    // Neither answer is rare, so each is tested.
    assert!(
        seen.iter()
            .all(|count| count.load(Ordering::Relaxed) > RANDOM_RULES / 10),
        "{seen:?}"
    );
}
