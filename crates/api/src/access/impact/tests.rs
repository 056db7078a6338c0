use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::super::{Binding, permits};
use super::*;

/// `get,list pods,deployments.apps named a` or `get /metrics`, as [`super::super::words`] writes it.
fn rule(text: &str) -> PolicyRule {
    let owned = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let (text, names) = text
        .split_once(" named ")
        .map_or((text, None), |(text, names)| (text, Some(owned(names))));
    let (verbs, what) = text.split_once(' ').unwrap();
    let verbs = owned(verbs);
    if what.starts_with('/') {
        return PolicyRule {
            verbs,
            non_resource_urls: Some(owned(what)),
            ..PolicyRule::default()
        };
    }
    let groups: BTreeSet<&str> = what
        .split(',')
        .map(|it| it.split_once('.').map_or("", |(_, group)| group))
        .collect();
    let resources = what.split(',').map(|it| it.split('.').next().unwrap().to_owned());
    PolicyRule {
        verbs,
        api_groups: Some(groups.into_iter().map(str::to_owned).collect()),
        resources: Some(resources.collect()),
        resource_names: names,
        ..PolicyRule::default()
    }
}

/// `u:ann` or `t:web`.
fn subject(text: &str) -> Subject {
    match text.split_once(':').unwrap() {
        ("u", user) => Subject::User(user.to_owned()),
        (_, team) => Subject::Team(team.to_owned()),
    }
}

/// Roles as `name: rule; rule`, bindings as `role subject` or `role subject namespace`, teams as `name: user user`.
fn access(roles: &[&str], bindings: &[&str], teams: &[&str]) -> Access {
    let named = |text: &str| {
        let (name, rest) = text.split_once(':').unwrap();
        (name.to_owned(), rest.trim().to_owned())
    };
    let parsed = |text: &str| text.split("; ").filter(|it| !it.is_empty()).map(rule).collect();
    let users = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let bindings = bindings.iter().map(|text| {
        let mut words = text.split(' ');
        Binding {
            role: words.next().unwrap().to_owned(),
            subject: subject(words.next().unwrap()),
            namespace: words.next().map(str::to_owned),
        }
    });
    Access {
        roles: roles
            .iter()
            .map(|text| named(text))
            .map(|(name, text)| (name, parsed(&text)))
            .collect(),
        bindings: bindings.collect(),
        teams: teams
            .iter()
            .map(|text| named(text))
            .map(|(name, text)| (name, users(&text)))
            .collect(),
    }
}

/// The changes as lines.
fn told(before: &Access, after: &Access) -> Vec<String> {
    let line = |sign: &str, subject: &Subject, difference: &Difference| {
        let who = match subject {
            Subject::User(user) => format!("u:{user}"),
            Subject::Team(team) => format!("t:{team}"),
        };
        let except: Vec<String> = difference.except.iter().map(Grant::to_string).collect();
        let except = if except.is_empty() {
            String::new()
        } else {
            format!(" except {}", except.join("; "))
        };
        format!("{sign} {who} {}{except}", difference.grant)
    };
    let changes = changes(before, after);
    let lines = changes.iter().flat_map(|change| {
        let gains = change.gains.iter().map(|it| line("+", &change.subject, it));
        let loses = change.loses.iter().map(|it| line("-", &change.subject, it));
        gains.chain(loses).collect::<Vec<_>>()
    });
    lines.collect()
}

const VIEWER: &str = "viewer: get,list pods";
const ADMIN: &str = "admin: * pods";

#[test]
fn who_gains_and_who_loses_what() {
    let with = |bindings: &[&str], teams: &[&str]| access(&[VIEWER, ADMIN], bindings, teams);
    for (what, before, after, expected) in [
        (
            "nothing changes",
            with(&["viewer u:ann"], &[]),
            with(&["viewer u:ann"], &[]),
            vec![],
        ),
        (
            "a binding",
            with(&[], &[]),
            with(&["viewer u:ann dev"], &[]),
            vec!["+ u:ann get,list pods in namespace dev"],
        ),
        (
            "a binding goes",
            with(&["viewer t:web"], &["web: ann bob"]),
            with(&[], &["web: ann bob"]),
            vec!["- t:web get,list pods in the whole cluster"],
        ),
        (
            "it moves",
            with(&["viewer u:ann dev"], &[]),
            with(&["viewer u:ann ops"], &[]),
            vec![
                "+ u:ann get,list pods in namespace ops",
                "- u:ann get,list pods in namespace dev",
            ],
        ),
        (
            "it becomes wider",
            with(&["viewer u:ann dev"], &[]),
            with(&["viewer u:ann"], &[]),
            vec!["+ u:ann get,list pods in the whole cluster except get,list pods in namespace dev"],
        ),
        (
            "a role changes",
            access(&["r: get,list pods; get /metrics"], &["r u:ann"], &[]),
            access(&["r: get,watch pods,services; get /healthz"], &["r u:ann"], &[]),
            vec![
                "+ u:ann get,watch services in the whole cluster",
                "+ u:ann watch pods in the whole cluster",
                "+ u:ann get /healthz",
                "- u:ann list pods in the whole cluster",
                "- u:ann get /metrics",
            ],
        ),
        (
            "a wildcard goes, and a part of it stays",
            with(&["admin u:ann", "viewer u:ann dev"], &[]),
            with(&["viewer u:ann dev"], &[]),
            vec!["- u:ann * pods in the whole cluster except get,list pods in namespace dev"],
        ),
        (
            "what another binding gives",
            with(&["admin u:ann"], &[]),
            with(&["admin u:ann", "viewer u:ann dev"], &[]),
            vec![],
        ),
        (
            "what the team gives",
            with(&["viewer u:ann", "admin t:web"], &["web: ann"]),
            with(&["admin t:web"], &["web: ann"]),
            vec![],
        ),
        (
            "a role that is not there",
            with(&[], &[]),
            with(&["other u:ann"], &[]),
            vec![],
        ),
    ] {
        assert_eq!(told(&before, &after), expected, "{what}");
    }
}

#[test]
fn what_teams_names_and_paths_change() {
    let with = |bindings: &[&str], teams: &[&str]| access(&[VIEWER, ADMIN], bindings, teams);
    for (what, before, after, expected) in [
        (
            "somebody joins a team",
            with(&["viewer t:web"], &["web: ann"]),
            with(&["viewer t:web"], &["web: ann bob"]),
            vec!["+ u:bob get,list pods in the whole cluster"],
        ),
        (
            "somebody leaves a team, and another one gives the same",
            with(&["viewer t:web", "viewer t:ops"], &["web: ann bob", "ops: bob"]),
            with(&["viewer t:web", "viewer t:ops"], &["web:", "ops: bob"]),
            vec!["- u:ann get,list pods in the whole cluster"],
        ),
        (
            "a team comes, with its binding: it is told once",
            with(&[], &[]),
            with(&["viewer t:web"], &["web: ann bob"]),
            vec!["+ t:web get,list pods in the whole cluster"],
        ),
        (
            "a team goes",
            with(&["viewer t:web"], &["web: ann bob"]),
            with(&[], &[]),
            vec!["- t:web get,list pods in the whole cluster"],
        ),
        (
            "names",
            access(&["r: get configmaps named a,b"], &["r u:ann"], &[]),
            access(&["r: get configmaps named b,c,d"], &["r u:ann"], &[]),
            vec![
                "+ u:ann get configmaps named c,d in the whole cluster",
                "- u:ann get configmaps named a in the whole cluster",
            ],
        ),
        (
            "paths, which are in no namespace",
            access(&["r: get /metrics,/healthz"], &["r u:ann dev"], &[]),
            access(&["r: get /metrics,/healthz"], &["r u:ann"], &[]),
            vec!["+ u:ann get /metrics,/healthz"],
        ),
        (
            "wildcards of paths and subresources",
            access(&["r: get /healthz/etcd; get pods/log,nodes/status"], &["r u:ann"], &[]),
            access(&["r: get /healthz*; * */log"], &["r u:ann"], &[]),
            vec![
                "+ u:ann get /healthz* except get /healthz/etcd",
                "+ u:ann * */log in the whole cluster except get pods/log in the whole cluster",
                "- u:ann get nodes/status in the whole cluster",
            ],
        ),
    ] {
        assert_eq!(told(&before, &after), expected, "{what}");
    }
}

const USERS: [&str; 3] = ["ann", "bob", "cid"];
const TEAMS: [&str; 2] = ["ops", "web"];
const ROLES: [&str; 3] = ["a", "b", "c"];
const NAMESPACES: [Option<&str>; 3] = [None, Some("dev"), Some("ops")];
const ASKED: [Action<'static>; 12] = [
    on("get", "pods", ""),
    on("get", "pods", "x"),
    on("list", "pods", ""),
    on("watch", "pods", ""),
    on("get", "pods/log", "x"),
    on("get", "pods/exec", "y"),
    on("get", "services/log", ""),
    on("list", "services", ""),
    on("watch", "services", "y"),
    Action::Path {
        verb: "get",
        path: "/healthz",
    },
    Action::Path {
        verb: "get",
        path: "/healthz/etcd",
    },
    Action::Path {
        verb: "list",
        path: "/metrics",
    },
];

const fn on(verb: &'static str, resource: &'static str, name: &'static str) -> Action<'static> {
    Action::Resource {
        verb,
        group: "",
        resource,
        name,
    }
}

fn any_rule() -> impl Strategy<Value = PolicyRule> {
    let verbs = || subsequence(vec!["get", "list", "watch", "*"], 1..3);
    let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let resources = subsequence(vec!["pods", "services", "pods/log", "*/log", "*"], 1..3);
    let names = subsequence(vec!["x", "y"], 0..2);
    let on_resources = (verbs(), resources, names).prop_map(move |(verbs, resources, names)| PolicyRule {
        verbs: owned(verbs),
        api_groups: Some(vec![String::new()]),
        resources: Some(owned(resources)),
        resource_names: (!names.is_empty()).then(|| owned(names)),
        ..PolicyRule::default()
    });
    let paths = subsequence(vec!["/healthz", "/healthz/*", "/met*", "*"], 1..3);
    let on_paths = (verbs(), paths).prop_map(move |(verbs, paths)| PolicyRule {
        verbs: owned(verbs),
        non_resource_urls: Some(owned(paths)),
        ..PolicyRule::default()
    });
    prop_oneof![3 => on_resources, 1 => on_paths]
}

fn any_access() -> impl Strategy<Value = Access> {
    let roles = proptest::collection::vec(proptest::collection::vec(any_rule(), 0..3), ROLES.len());
    let subject = prop_oneof![
        select(USERS.to_vec()).prop_map(|user| Subject::User(user.to_owned())),
        select(TEAMS.to_vec()).prop_map(|team| Subject::Team(team.to_owned())),
    ];
    let binding =
        (select(ROLES.to_vec()), subject, select(NAMESPACES.to_vec())).prop_map(|(role, subject, namespace)| Binding {
            role: role.to_owned(),
            subject,
            namespace: namespace.map(str::to_owned),
        });
    let members = || proptest::option::of(subsequence(USERS.to_vec(), 0..=3));
    let parts = (roles, proptest::collection::vec(binding, 0..5), [members(), members()]);
    parts.prop_map(|(roles, bindings, members)| Access {
        roles: ROLES
            .iter()
            .map(ToString::to_string)
            .zip(roles)
            .collect::<BTreeMap<_, _>>(),
        bindings,
        teams: TEAMS
            .iter()
            .zip(members)
            .filter_map(|(team, users)| Some(((*team).to_owned(), users?.into_iter().map(str::to_owned).collect())))
            .collect(),
    })
}

/// Returns true if the bindings of the subject alone permit it, written in the simplest way.
fn gives(access: &Access, subject: &Subject, action: Action<'_>, namespace: Option<&str>) -> bool {
    access.bindings.iter().any(|binding| {
        let here = binding.namespace.is_none() || binding.namespace.as_deref() == namespace;
        let in_place = here && (binding.namespace.is_none() || matches!(action, Action::Resource { .. }));
        let rules = access.roles.get(&binding.role).into_iter().flatten();
        binding.subject == *subject && in_place && rules.into_iter().any(|rule| permits(rule, action))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn it_is_told_exactly_who_may_do_more_or_less(before in any_access(), after in any_access()) {
        let changes = changes(&before, &after);
        let of = |subject: &Subject| changes.iter().find(|change| change.subject == *subject);
        for action in ASKED {
            for namespace in NAMESPACES {
                let says = |list: &[Difference]| list.iter().any(|it| it.permits(action, namespace));
                let team = |access: &Access, team: &str| gives(access, &Subject::Team(team.to_owned()), action, namespace);
                for name in TEAMS {
                    let (had, has) = (team(&before, name), team(&after, name));
                    let told = of(&Subject::Team(name.to_owned()));
                    prop_assert_eq!(told.is_some_and(|it| says(&it.gains)), !had && has, "{} gains {:?} {:?}", name, action, namespace);
                    prop_assert_eq!(told.is_some_and(|it| says(&it.loses)), had && !has, "{} loses {:?} {:?}", name, action, namespace);
                }
                for user in USERS {
                    let own = Subject::User(user.to_owned());
                    let may = |access: &Access| {
                        gives(access, &own, action, namespace) || access.teams_of(user).any(|name| team(access, name))
                    };
                    let (could, can) = (may(&before), may(&after));
                    prop_assert_eq!(before.allows(user, action, namespace), could);
                    let told = of(&own);
                    let (gains, loses) = (told.is_some_and(|it| says(&it.gains)), told.is_some_and(|it| says(&it.loses)));
                    prop_assert!(!gains || !could && can, "{} gains {:?} {:?}", user, action, namespace);
                    prop_assert!(!loses || could && !can, "{} loses {:?} {:?}", user, action, namespace);
                    let team_says = |access: &Access, list: fn(&Change) -> &[Difference]| {
                        access.teams_of(user).any(|name| of(&Subject::Team(name.clone())).is_some_and(|it| says(list(it))))
                    };
                    if !could && can {
                        prop_assert!(gains || team_says(&after, |it| &it.gains), "{} may {:?} {:?}", user, action, namespace);
                    }
                    if could && !can {
                        prop_assert!(loses || team_says(&before, |it| &it.loses), "{} may not {:?} {:?}", user, action, namespace);
                    }
                }
            }
        }
    }
}
