//! The pure functions say what the API server says (`SubjectAccessReview`), for random roles, bindings, users, teams
//! and questions.
//!
//! All that is random is created first, under names of its own for each history, and then asked about: one wait for
//! all.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding};
use kube::Resource;
use kube::api::{Api, PostParams};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidewaiter_api::access::{Access, Action, Binding, Change, Difference, Subject, changes};
use tidewaiter_testkit::eventually;

use crate::world::{SOON, World};

/// Pairs of a state before and a state after a change.
const HISTORIES: usize = 24;

/// Questions about each user in each state.
const QUESTIONS: usize = 16;

/// Requests at once.
const AT_ONCE: usize = 8;

const USERS: [&str; 3] = ["ann", "bob", "cid"];
const TEAMS: [&str; 2] = ["ops", "web"];
const NAMESPACES: [&str; 2] = ["red", "blue"];

/// The question, owned.
#[derive(Clone, Debug)]
struct Question {
    verb: &'static str,
    /// The group, resource and name; else it is a path.
    resource: Option<(&'static str, &'static str, &'static str)>,
    path: &'static str,
    namespace: Option<&'static str>,
}

impl Question {
    fn action(&self) -> Action<'_> {
        match self.resource {
            Some((group, resource, name)) => Action::Resource {
                verb: self.verb,
                group,
                resource,
                name,
            },
            None => Action::Path {
                verb: self.verb,
                path: self.path,
            },
        }
    }

    fn review(&self, user: &str, teams: &[String]) -> SubjectAccessReview {
        let groups: Vec<String> = teams
            .iter()
            .map(|team| Subject::Team(team.clone()).of_rbac().name)
            .collect();
        let mut spec = json!({"user": Subject::User(user.to_owned()).of_rbac().name, "groups": groups});
        match self.resource {
            Some((group, resource, name)) => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                spec["resourceAttributes"] = json!({"verb": self.verb, "group": group, "resource": resource,
                    "subresource": subresource, "name": name, "namespace": self.namespace.unwrap_or_default()});
            }
            None => spec["nonResourceAttributes"] = json!({"verb": self.verb, "path": self.path}),
        }
        serde_json::from_value(json!({ "spec": spec })).unwrap()
    }
}

fn any_question() -> impl Strategy<Value = Question> {
    let verb = || select(vec!["get", "list", "watch", "delete"]);
    let groups = vec!["", "apps"];
    let resources = vec![
        "pods",
        "pods/log",
        "pods/exec",
        "configmaps",
        "deployments",
        "deployments/scale",
        "nodes/proxy",
    ];
    let namespace = select(vec![None, Some(NAMESPACES[0]), Some(NAMESPACES[1])]);
    let on_resources = (
        verb(),
        select(groups),
        select(resources),
        select(vec!["", "a", "b", "c"]),
        namespace,
    )
        .prop_map(|(verb, group, resource, name, namespace)| Question {
            verb,
            resource: Some((group, resource, name)),
            path: "",
            namespace,
        });
    let paths = vec![
        "/",
        "/healthz",
        "/healthz/etcd",
        "/healthzz",
        "/metrics",
        "/apis",
        "/apis/apps",
    ];
    let on_paths = (verb(), select(paths)).prop_map(|(verb, path)| Question {
        verb,
        resource: None,
        path,
        namespace: None,
    });
    prop_oneof![3 => on_resources, 1 => on_paths]
}

fn any_rule() -> impl Strategy<Value = PolicyRule> {
    let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let verbs = || subsequence(vec!["get", "list", "watch", "delete", "*"], 1..=3);
    let groups = subsequence(vec!["", "apps", "*"], 1..=2);
    let resources = vec![
        "pods",
        "pods/log",
        "configmaps",
        "deployments",
        "*/scale",
        "*/log",
        "nodes/*",
        "*",
    ];
    let names = subsequence(vec!["a", "b"], 0..=2);
    let on_resources = (verbs(), groups, subsequence(resources, 1..=3), names);
    let on_resources = on_resources.prop_map(move |(verbs, groups, resources, names)| PolicyRule {
        verbs: owned(verbs),
        api_groups: Some(owned(groups)),
        resources: Some(owned(resources)),
        resource_names: (!names.is_empty()).then(|| owned(names)),
        ..PolicyRule::default()
    });
    let paths = subsequence(
        vec!["/", "/healthz", "/healthz/*", "/healthz*", "/api*", "/metrics", "*"],
        1..=2,
    );
    let on_paths = (verbs(), paths).prop_map(move |(verbs, paths)| PolicyRule {
        verbs: owned(verbs),
        non_resource_urls: Some(owned(paths)),
        ..PolicyRule::default()
    });
    prop_oneof![3 => on_resources, 1 => on_paths]
}

/// Roles, bindings and teams whose names begin with `prefix`.
fn any_access(prefix: String) -> impl Strategy<Value = Access> {
    let own = move |name: &str| format!("{prefix}-{name}");
    let subject = {
        let (user, team) = (own.clone(), own.clone());
        prop_oneof![
            select(USERS.to_vec()).prop_map(move |name| Subject::User(user(name))),
            select(TEAMS.to_vec()).prop_map(move |name| Subject::Team(team(name))),
        ]
    };
    let namespace = select(vec![None, Some(NAMESPACES[0]), Some(NAMESPACES[1])]);
    let of_binding = own.clone();
    let binding = (select(vec!["x", "y"]), subject, namespace).prop_map(move |(role, subject, namespace)| Binding {
        role: of_binding(role),
        subject,
        namespace: namespace.map(str::to_owned),
    });
    let rules = || proptest::collection::vec(any_rule(), 1..=3);
    let members = || subsequence(USERS.to_vec(), 0..=3);
    let parts = (
        [rules(), rules()],
        proptest::collection::vec(binding, 2..=5),
        [members(), members()],
    );
    parts.prop_map(move |(roles, bindings, members)| Access {
        roles: ["x", "y"]
            .iter()
            .map(|name| own(name))
            .zip(roles)
            .collect::<BTreeMap<_, _>>(),
        bindings,
        teams: TEAMS
            .iter()
            .zip(members)
            .map(|(team, users)| (own(team), users.into_iter().map(&own).collect()))
            .collect(),
    })
}

/// The same with another prefix.
fn renamed(access: &Access, from: &str, to: &str) -> Access {
    let new = |name: &String| name.replacen(from, to, 1);
    Access {
        roles: access
            .roles
            .iter()
            .map(|(name, rules)| (new(name), rules.clone()))
            .collect(),
        bindings: access
            .bindings
            .iter()
            .map(|binding| Binding {
                role: new(&binding.role),
                subject: match &binding.subject {
                    Subject::User(user) => Subject::User(new(user)),
                    Subject::Team(team) => Subject::Team(new(team)),
                },
                namespace: binding.namespace.clone(),
            })
            .collect(),
        teams: access
            .teams
            .iter()
            .map(|(team, users)| (new(team), users.iter().map(new).collect()))
            .collect(),
    }
}

struct Server {
    roles: Api<ClusterRole>,
    everywhere: Api<ClusterRoleBinding>,
    in_namespaces: BTreeMap<&'static str, Api<RoleBinding>>,
    reviews: Api<SubjectAccessReview>,
}

impl Server {
    /// Makes the namespaces.
    async fn of(world: &World) -> Self {
        for namespace in NAMESPACES {
            world.namespace(namespace).await;
        }
        Self {
            roles: world.all(),
            everywhere: world.all(),
            in_namespaces: NAMESPACES.map(|namespace| (namespace, world.within(namespace))).into(),
            reviews: world.all(),
        }
    }

    async fn create(&self, access: &Access, prefix: &str) {
        for (name, rules) in &access.roles {
            make(&self.roles, json!({"metadata": {"name": name}, "rules": rules})).await;
        }
        for (number, binding) in access.bindings.iter().enumerate() {
            let object = json!({
                "metadata": {"name": format!("{prefix}-{number}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": binding.role},
                "subjects": [binding.subject.of_rbac()],
            });
            match &binding.namespace {
                None => make(&self.everywhere, object).await,
                Some(namespace) => make(&self.in_namespaces[namespace.as_str()], object).await,
            }
        }
    }

    async fn allows(&self, question: &Question, user: &str, teams: &[String]) -> bool {
        let review = question.review(user, teams);
        let reviewed = self.reviews.create(&PostParams::default(), &review).await.unwrap();
        reviewed.status.unwrap().allowed
    }

    /// Waits until the authorizer knows all that was created before: it learns of each kind in order.
    async fn knows_all(&self) {
        let role = "last".to_owned();
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        make(&self.roles, json!({"metadata": {"name": role}, "rules": rules})).await;
        let mut last = Access::default();
        for (user, namespace) in [
            ("everywhere", None),
            (NAMESPACES[0], Some(NAMESPACES[0])),
            (NAMESPACES[1], Some(NAMESPACES[1])),
        ] {
            last.bindings.push(Binding {
                role: role.clone(),
                subject: Subject::User(user.to_owned()),
                namespace: namespace.map(str::to_owned),
            });
        }
        self.create(&last, "last").await;
        for binding in &last.bindings {
            let Subject::User(user) = &binding.subject else {
                continue;
            };
            let namespace = NAMESPACES
                .into_iter()
                .find(|it| binding.namespace.as_deref() == Some(it));
            let question = Question {
                verb: "get",
                resource: Some(("", "pods", "")),
                path: "",
                namespace,
            };
            eventually("the authorizer to know the last binding", SOON, async || {
                if self.allows(&question, user, &[]).await {
                    Ok(())
                } else {
                    Err("it does not")
                }
            })
            .await;
        }
    }
}

async fn make<K>(api: &Api<K>, object: Value)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
{
    let made = serde_json::from_value(object.clone()).unwrap();
    if let Err(error) = api.create(&PostParams::default(), &made).await {
        panic!("{object}: {error}");
    }
}

/// Compares the answers of the pure functions about a user with those of the API server before and after.
fn agrees(history: &(Access, Access), told: &[Change], user: &str, question: &Question, answers: (bool, bool)) {
    let (before, after) = history;
    let (could, can) = answers;
    let (action, namespace) = (question.action(), question.namespace);
    let context = || format!("{user}: {question:?}\nbefore: {before:#?}\nafter: {after:#?}");
    assert_eq!(before.allows(user, action, namespace), could, "{}", context());
    assert_eq!(after.allows(user, action, namespace), can, "{}", context());
    let says = |subject: &Subject, list: fn(&Change) -> &[Difference]| {
        let change = told.iter().find(|change| change.subject == *subject);
        change.is_some_and(|change| list(change).iter().any(|it| it.permits(action, namespace)))
    };
    let of_teams = |access: &Access, list: fn(&Change) -> &[Difference]| {
        let teams = access.teams.iter().filter(|(_, users)| users.contains(user));
        let mut teams = teams.map(|(team, _)| Subject::Team(team.clone()));
        teams.any(|team| says(&team, list))
    };
    let own = Subject::User(user.to_owned());
    let (gains, loses) = (says(&own, |it| &it.gains), says(&own, |it| &it.loses));
    assert!(!gains || !could && can, "gains: {}", context());
    assert!(!loses || could && !can, "loses: {}", context());
    assert!(
        could || !can || gains || of_teams(after, |it| &it.gains),
        "does not gain: {}",
        context()
    );
    assert!(
        !could || can || loses || of_teams(before, |it| &it.loses),
        "does not lose: {}",
        context()
    );
}

#[tokio::test]
async fn the_pure_functions_agree_with_the_api_server() {
    let world = World::start().await;
    let server = Server::of(&world).await;
    // A failure prints the whole history, so the seed need not be known.
    let mut random = TestRunner::default();
    let histories: Vec<(Access, Access)> = (0..HISTORIES)
        .map(|number| {
            let state = || any_access(format!("h{number:02}"));
            (state(), state()).new_tree(&mut random).unwrap().current()
        })
        .collect();
    let questions = proptest::collection::vec(any_question(), QUESTIONS);
    // The state after the change is in the cluster beside the one before, under other names.
    let states: Vec<(Access, String)> = histories
        .iter()
        .enumerate()
        .flat_map(|(number, (before, after))| {
            let (old, new) = (format!("h{number:02}"), format!("i{number:02}"));
            [(before.clone(), old.clone()), (renamed(after, &old, &new), new)]
        })
        .collect();
    stream::iter(&states)
        .for_each_concurrent(AT_ONCE, |(access, prefix)| server.create(access, prefix))
        .await;
    server.knows_all().await;

    let mut allowed = [0, 0];
    for (number, history) in histories.iter().enumerate() {
        let told = changes(&history.0, &history.1);
        let [before, after] = [&states[2 * number].0, &states[2 * number + 1].0];
        let questions = questions.new_tree(&mut random).unwrap().current();
        let asked = USERS
            .iter()
            .flat_map(|user| questions.iter().map(move |question| (*user, question)));
        let server = &server;
        let ask = |(user, question): (&'static str, _)| async move {
            let [old, new] = ["h", "i"].map(|side| format!("{side}{number:02}-{user}"));
            let could = server.allows(question, &old, &teams_of(before, &old)).await;
            let can = server.allows(question, &new, &teams_of(after, &new)).await;
            (old, question, (could, can))
        };
        let answers: Vec<_> = stream::iter(asked).map(ask).buffer_unordered(AT_ONCE).collect().await;
        for (user, question, answers) in answers {
            agrees(history, &told, &user, question, answers);
            for answer in [answers.0, answers.1] {
                allowed[usize::from(answer)] += 1;
            }
        }
    }
    // Neither answer is rare, so each is tested.
    assert!(
        allowed.iter().all(|count| *count * 50 > allowed[0] + allowed[1]),
        "{allowed:?}"
    );
}

fn teams_of(access: &Access, user: &str) -> Vec<String> {
    let teams = access.teams.iter().filter(|(_, users)| users.contains(user));
    teams.map(|(team, _)| team.clone()).collect()
}

/// Rules about signers and about users to impersonate, which are no objects. For signers, the API server asks for the
/// name and for `DOMAIN/*` (`IsAuthorizedForSignerName`).
#[tokio::test]
async fn names_of_signers_and_of_whom_to_impersonate_permit_what_the_api_server_says() {
    const CERTIFICATES: &str = "certificates.k8s.io";
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let rules = [
        ("signers", CERTIFICATES, "signers", "approve,sign", "example.com/*"),
        ("trusted", CERTIFICATES, "signers", "approve", "kubernetes.io/*"),
        ("all", "*", "deployments", "*", ""),
        (
            "person",
            "",
            "users",
            "impersonate",
            "https://issuer.example.com/a%20#ann b",
        ),
        (
            "extra",
            AUTHENTICATION,
            "userextras/example.com/team",
            "impersonate",
            "",
        ),
        ("constrained", AUTHENTICATION, "users", "impersonate:user-info", "bob"),
    ];
    let mut questions = Vec::new();
    for verb in ["approve", "sign", "get"] {
        for name in [
            "",
            "*",
            "example.com/*",
            "example.com/a",
            "kubernetes.io/*",
            "kubernetes.io/kubelet-serving",
        ] {
            questions.push((verb, CERTIFICATES, "signers", name));
        }
    }
    for verb in ["impersonate", "impersonate:user-info"] {
        for name in ["", "bob", "https://issuer.example.com/a%20#ann b"] {
            for resource in ["users", "groups", "serviceaccounts"] {
                questions.extend(["", AUTHENTICATION].map(|group| (verb, group, resource, name)));
            }
            for resource in ["uids", "nodes", "userextras/scopes", "userextras/example.com/team"] {
                questions.push((verb, AUTHENTICATION, resource, name));
            }
        }
    }
    questions.extend([
        ("create", "apps", "deployments", ""),
        ("get", "apps", "deployments", "a"),
    ]);

    let world = World::start().await;
    let server = Server::of(&world).await;
    let mut access = Access::default();
    for (role, group, resource, verbs, name) in rules {
        let rule = PolicyRule {
            verbs: verbs.split(',').map(str::to_owned).collect(),
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            resource_names: (!name.is_empty()).then(|| vec![name.to_owned()]),
            ..PolicyRule::default()
        };
        access.roles.insert(role.to_owned(), vec![rule]);
        access.bindings.push(Binding {
            role: role.to_owned(),
            subject: Subject::User(role.to_owned()),
            namespace: None,
        });
    }
    server.create(&access, "named").await;
    server.knows_all().await;
    let mut allowed: BTreeMap<&str, usize> = BTreeMap::new();
    for (role, ..) in rules {
        for &(verb, group, resource, name) in &questions {
            let question = Question {
                verb,
                resource: Some((group, resource, name)),
                path: "",
                namespace: None,
            };
            let answer = server.allows(&question, role, &[]).await;
            assert_eq!(
                access.allows(role, question.action(), None),
                answer,
                "{role}: {question:?}"
            );
            *allowed.entry(role).or_default() += usize::from(answer);
        }
    }
    // Its two Deployments, and nobody to impersonate.
    let expected = [
        ("all", 2),
        ("constrained", 1),
        ("extra", 3),
        ("person", 1),
        ("signers", 2),
        ("trusted", 1),
    ];
    assert_eq!(allowed, expected.into());
}
