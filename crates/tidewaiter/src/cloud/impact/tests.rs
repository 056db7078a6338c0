use serde_json::json;

use super::*;

fn objects(rules: &Value, bindings: Vec<Value>, members: &[&str]) -> AccessObjects {
    AccessObjects {
        users: vec![
            json!({"id": "a", "name": "Alice", "email": "alice@example.com"}),
            json!({"id": "b", "name": "Bob\u{1b}", "email": ""}),
        ],
        teams: vec![json!({"id": "t", "name": "developers", "user_ids": members})],
        roles: vec![json!({"id": "r", "rules": rules})],
        bindings,
    }
}

fn rule(verbs: &[&str], resources: &[&str]) -> Value {
    json!({"type": "kubernetes", "api_groups": [""], "resources": resources, "resource_names": null, "verbs": verbs})
}

fn binding(field: &str, who: &str, cluster: &Value, namespace: &Value) -> Value {
    let kind = if field == "team_id" {
        "TeamBinding"
    } else {
        "UserBinding"
    };
    let mut binding = json!({"id": "x", "type": kind, "user_id": null, "team_id": null, "authorization_role_id": "r",
        "cluster_id": cluster, "namespace": namespace});
    binding[field] = json!(who);
    binding
}

/// The lines without colours.
fn shown(before: &AccessObjects, after: &AccessObjects) -> String {
    let clusters = ["one", "two", "three"].map(|name| json!({"id": format!("id-of-{name}"), "name": name}));
    let text = Impact::new(&clusters, before, after).shown();
    anstream::adapter::strip_str(&text).to_string()
}

#[test]
fn each_cluster_says_who_gains_and_who_loses_what() {
    let pods = json!([rule(&["get", "list"], &["pods"])]);
    let services = json!([rule(&["get", "list"], &["services"])]);
    let execs = json!([rule(&["create"], &["pods/exec"])]);
    let in_namespace = |name: &str| vec![binding("user_id", "b", &json!("id-of-two"), &json!(name))];
    let cloud_only =
        json!([{"type": "containership", "api_groups": [], "resources": ["clusters"], "verbs": ["delete"]}]);
    let none = || objects(&pods, vec![], &["a"]);
    let of_team = || binding("team_id", "t", &Value::Null, &json!("dev"));
    let of_bob = || binding("user_id", "b", &json!("id-of-two"), &Value::Null);
    for (what, before, after, expected) in [
        ("nothing", none(), none(), "Access: nobody gains or loses anything in any cluster\n"),
        (
            "a binding of all clusters, and one of a cluster",
            none(),
            objects(&pods, vec![of_team(), of_bob()], &["a"]),
            "Access in clusters one, three:
  + team developers: get,list pods in namespace dev
Access in cluster two:
  + user Bob\\u{1b}: get,list pods in the whole cluster
  + team developers: get,list pods in namespace dev
",
        ),
        (
            "a role becomes larger, up to all Secrets",
            objects(&services, vec![of_bob()], &[]),
            objects(&json!([rule(&["*"], &["services"]), rule(&["list"], &["secrets"])]), vec![of_bob()], &[]),
            "Access in cluster two:
  + user Bob\\u{1b}: list secrets in the whole cluster (only where the coordinator has allowPrivileged: true, because it permits to read or write Secrets)
  + user Bob\\u{1b}: * services in the whole cluster (had get,list services in the whole cluster)
",
        ),
        (
            "the binding of another one turns a rule of the role into full control",
            objects(&json!([rule(&["get"], &["secrets"])]), in_namespace("dev"), &[]),
            objects(
                &json!([rule(&["get"], &["secrets"])]),
                [in_namespace("dev"), vec![binding("user_id", "a", &json!("id-of-two"), &Value::Null)]].concat(),
                &[],
            ),
            "Access in cluster two:
  + user alice@example.com: get secrets in the whole cluster (only where the coordinator has allowPrivileged: true, because it permits to read or write Secrets)
  - user Bob\\u{1b}: get secrets in namespace dev
",
        ),
        (
            "a role becomes smaller",
            objects(&json!([rule(&["*"], &["services"]), rule(&["get"], &["nodes/proxy"])]), vec![of_bob()], &[]),
            objects(&services, vec![of_bob()], &[]),
            "Access in cluster two:
  - user Bob\\u{1b}: get nodes/proxy in the whole cluster (only where the coordinator has allowPrivileged: true, because it permits nodes/proxy)
  - user Bob\\u{1b}: * services in the whole cluster (keeps get,list services in the whole cluster)
",
        ),
        (
            "commands in pods of an ordinary namespace",
            none(),
            objects(&execs, in_namespace("dev"), &["a"]),
            "Access in cluster two:\n  + user Bob\\u{1b}: create pods/exec in namespace dev\n",
        ),
        (
            "commands in pods of a system namespace",
            none(),
            objects(&execs, in_namespace("kube-system"), &["a"]),
            "Access in cluster two:
  + user Bob\\u{1b}: create pods/exec in namespace kube-system (only where the coordinator has allowPrivileged: true, because it permits to run commands in pods)
",
        ),
        (
            "rules of the cloud",
            objects(&pods, vec![of_bob()], &[]),
            objects(&cloud_only, vec![of_bob()], &[]),
            "Access in cluster two:\n  - user Bob\\u{1b}: get,list pods in the whole cluster\n",
        ),
        (
            "somebody joins a team, and somebody leaves it",
            objects(&pods, vec![of_team()], &["a"]),
            objects(&pods, vec![of_team()], &["b"]),
            "Access in clusters one, two, three:
  - user alice@example.com: get,list pods in namespace dev
  + user Bob\\u{1b}: get,list pods in namespace dev
",
        ),
        (
            "a user goes, and the binding with the user",
            objects(&pods, vec![of_bob()], &[]),
            AccessObjects {
                users: vec![],
                ..objects(&pods, vec![of_bob()], &[])
            },
            "Access in cluster two:\n  - user Bob\\u{1b}: get,list pods in the whole cluster\n",
        ),
    ] {
        assert_eq!(shown(&before, &after), expected, "{what}");
    }
}

#[test]
fn a_rule_that_is_refused_by_default_hides_no_other() {
    let everything =
        json!({"type": "kubernetes", "api_groups": ["*"], "resources": ["*"], "resource_names": null, "verbs": ["*"]});
    let bound = || vec![binding("team_id", "t", &Value::Null, &Value::Null)];
    let before = objects(&json!([everything]), bound(), &["a"]);
    let after = objects(&json!([everything, rule(&["delete"], &["pods"])]), bound(), &["a"]);
    assert_eq!(
        shown(&before, &after),
        "Access in clusters one, two, three:\n  + team developers: delete pods in the whole cluster\n"
    );
}
