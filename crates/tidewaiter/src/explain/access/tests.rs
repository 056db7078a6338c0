//! The subjects that a question means, and the answer from the objects of a cluster.

use jiff::Timestamp;
use serde_json::{Value, json};
use tidewaiter_api::containership::{AuthorizationRoleBinding, User};

use super::live::{Bound, Details};
use super::*;

const ANN: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";
const BOB: &str = "0b8e4a52-13f7-4f0e-9d3c-7a6b5c4d3e2f";
const OTHER_BOB: &str = "11111111-1111-4111-8111-111111111111";
const NOBODY: &str = "22222222-2222-4222-8222-222222222222";

fn live() -> Live {
    let user = |(id, name): (&str, &str)| -> User {
        serde_json::from_value(json!({"metadata": {"name": id}, "spec": {"id": id, "name": name}})).unwrap()
    };
    let binding = |(field, kind, who): (&str, &str, &str)| -> AuthorizationRoleBinding {
        let mut spec = json!({"id": "b", "type": kind, "authorization_role_id": "r"});
        spec[field] = json!(who);
        serde_json::from_value(json!({"metadata": {"name": "b"}, "spec": spec})).unwrap()
    };
    Live {
        users: [(ANN, "Ann"), (BOB, "Bob"), (OTHER_BOB, "Bob")].map(user).into(),
        bindings: [("user_id", "UserBinding", "ci"), ("team_id", "TeamBinding", "web")]
            .map(binding)
            .into(),
        ..Live::default()
    }
}

#[test]
fn a_user_is_found_by_name_or_id_and_a_team_by_id() {
    for (user, teams, expected) in [
        (Some("Ann"), &[][..], Ok(Some(ANN))),
        (Some(ANN), &["web", NOBODY], Ok(Some(ANN))),
        (Some(BOB), &[], Ok(Some(BOB))),
        (Some(NOBODY), &[], Ok(Some(NOBODY))),
        (Some("ci"), &[], Ok(Some("ci"))),
        (None, &["web"], Ok(None)),
        (
            Some("ann"),
            &[],
            Err("there is no User \"ann\" in this cluster (it has Ann (9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e), Bob ("),
        ),
        (
            Some("Bob"),
            &[],
            Err("2 Users are named \"Bob\": give one of the ids 0b8e4a52-13f7-4f0e-9d3c-7a6b5c4d3e2f, 11111111"),
        ),
        (
            None,
            &["developers"],
            Err(
                "\"developers\" is no id of a team, and the cluster does not know the names of teams (its bindings name web)",
            ),
        ),
    ] {
        let question = Question {
            user: user.map(str::to_owned),
            teams: teams.iter().map(ToString::to_string).collect(),
            namespace: None,
        };
        let found = Asked::find(&live(), &question).map(|asked| asked.user.map(|user| user.id));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), expected, "{user:?}"),
            (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{error}"),
            other => panic!("{user:?} {teams:?}: {other:?}"),
        }
    }
    let none = Asked::find(
        &Live::default(),
        &Question {
            user: Some("Ann".to_owned()),
            ..Question::default()
        },
    );
    assert!(none.unwrap_err().to_string().contains("in this cluster (it has none)"));
}

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// The `ClusterRole` of the role `r` as another coordinator has written it, bound to Ann for the whole cluster, while
/// the cloud binds the role for `namespaces`.
fn with_role(namespaces: &[&str]) -> Live {
    let rule = json!({"id": "1", "type": "kubernetes", "api_groups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let made = json!({"metadata": {"name": "r", "labels": {"containership.io/managed": "true"}},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let binding = |namespace: &&str| {
        read(
            json!({"metadata": {"name": "b"}, "spec": {"id": "b", "type": "UserBinding", "user_id": ANN,
            "authorization_role_id": "r", "namespace": namespace}}),
        )
    };
    Live {
        roles: vec![read(
            json!({"metadata": {"name": "r"}, "spec": {"id": "r", "rules": [rule]}}),
        )],
        cluster_roles: vec![read(made)],
        bindings: namespaces.iter().map(binding).collect(),
        bound: vec![Bound {
            name: "b".to_owned(),
            namespace: None,
            role: read(json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"})),
            subjects: vec![tidewaiter_api::access::Subject::User(ANN.to_owned()).of_rbac()],
            is_managed: true,
            is_default: false,
        }],
        ..Live::default()
    }
}

fn about_ann(live: &Live) -> AccessExplained {
    about_ann_at(live, Timestamp::UNIX_EPOCH)
}

fn about_ann_at(live: &Live, now: Timestamp) -> AccessExplained {
    let question = Question {
        user: Some(ANN.to_owned()),
        ..Question::default()
    };
    let asked = Asked::find(live, &question).unwrap();
    let details = Details {
        now,
        ..Details::default()
    };
    describe::explain(live, &details, &asked)
}

#[test]
fn a_rule_of_a_held_role_is_still_permitted() {
    let explained = about_ann(&with_role(&[""]));
    assert_eq!(explained.grants[0].what, "* *.*");
    let lost = &explained.refused[0];
    assert!(lost.what == "* *.*" && lost.why.contains("still permitted"), "{lost:?}");
    assert_eq!((explained.refused.len(), explained.waiting.len()), (1, 0));
}

#[test]
fn a_binding_says_what_it_waits_for() {
    let why = |live: &Live| about_ann(live).waiting.pop().map(|waiting| waiting.why);
    let mut live = with_role(&["later"]);
    let expected = "there is no namespace later, or it is being deleted";
    assert_eq!(why(&live).as_deref(), Some(expected));
    live.cluster_roles.clear();
    assert_eq!(
        why(&live).as_deref(),
        Some("the ClusterRole r is not as its role says yet")
    );
    live.roles.clear();
    assert_eq!(why(&live).as_deref(), Some("there is no role r"));
}

#[test]
fn an_end_is_shown_with_the_user_and_the_grant_and_then_with_the_binding() {
    let end = "2027-01-31T18:00:00Z";
    let mut live = with_role(&[""]);
    live.users = vec![read(
        json!({"metadata": {"name": ANN}, "spec": {"id": ANN, "name": "Ann", "expires_at": end}}),
    )];
    live.bindings[0].spec.expires_at = end.to_owned();
    let explained = about_ann(&live);
    assert_eq!(explained.grants[0].expires_at.as_deref(), Some(end));
    assert_eq!(explained.user.unwrap().expires_at.as_deref(), Some(end));
    live.bound.clear();
    let why = |now: &str| about_ann_at(&live, now.parse().unwrap()).waiting.remove(0).why;
    let before = why("2027-01-31T17:59:59Z");
    assert!(before.starts_with("it is not bound yet"), "{before}");
    let ended = why(end);
    assert!(ended.starts_with(&format!("it ended at {end}: set a later")), "{ended}");
}
