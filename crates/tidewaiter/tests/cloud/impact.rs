//! The access that is gained and lost by what is applied is shown before it is done.

use serde_json::{Value, json};

use crate::world::{ALICE, CLUSTER, Person, of_cluster, of_organization};

const STAGING: &str = "44444444-4444-4444-8444-444444444444";
const VIEWER: &str = "55555555-5555-4555-8555-555555555555";
const BINDING: &str = "66666666-6666-4666-8666-666666666666";

/// A cloud with two clusters, in which Alice may get and list pods.
async fn person() -> Person {
    let person = Person::logged_in().await;
    let cluster = |id: &str, name: &str| json!({"id": id, "name": name, "status": {"type": "RUNNING"}});
    let clusters = vec![cluster(CLUSTER, "production"), cluster(STAGING, "staging")];
    person.cloud.put(&of_organization("clusters"), clusters);
    let rule =
        json!({"id": ALICE, "type": "kubernetes", "api_groups": [""], "resources": ["pods"], "verbs": ["get", "list"]});
    let viewer = json!({"id": VIEWER, "name": "viewer", "description": "", "rules": [rule]});
    person.cloud.put(&of_organization("roles"), vec![viewer]);
    let binding = json!({"id": BINDING, "type": "UserBinding", "user_id": ALICE, "team_id": null, "authorization_role_id": VIEWER,
        "cluster_id": CLUSTER, "namespace": null});
    person.cloud.put(&of_organization("role-bindings"), vec![binding]);
    person
}

const DOCUMENTS: &str = "kind: Scope
clusters: [production]
prune: [RoleBinding]
---
kind: Team
spec: {name: developers, users: [alice@example.com]}
---
kind: Role
spec: {name: viewer, rules: [{type: kubernetes, api_groups: [''], resources: [pods, services], verbs: [get]}]}
---
kind: RoleBinding
spec: {role: viewer, team: developers, namespace: dev}
";

const IMPACT: &str = "Access in cluster production:
  - user alice@example.com: get pods in the whole cluster (keeps get pods in namespace dev)
  - user alice@example.com: list pods in the whole cluster
  + team developers: get pods,services in namespace dev
Access in cluster staging:
  + team developers: get pods,services in namespace dev
";

#[tokio::test]
async fn a_deletion_shows_the_bindings_that_go_with_it_and_who_loses_what() {
    let person = person().await;
    let label = json!({"id": ALICE, "key": "cluster.containership.io/zone", "value": "a"});
    person.cloud.put(&of_cluster("labels"), vec![label]);
    let team = json!({"id": STAGING, "name": "developers", "description": "", "user_ids": [ALICE]});
    person.cloud.put(&of_organization("teams"), vec![team]);
    let mut bindings = person.cloud.list(&of_organization("role-bindings"));
    bindings.push(
        json!({"id": VIEWER, "type": "TeamBinding", "user_id": null, "team_id": STAGING, "authorization_role_id": VIEWER,
        "cluster_id": null, "namespace": "dev"}),
    );
    person.cloud.put(&of_organization("role-bindings"), bindings);
    let keys = |number: usize| vec![json!({ "id": ALICE }); number];
    person.cloud.put(&of_cluster("api-keys"), keys(2));
    person
        .cloud
        .put(&of_organization(&format!("users/{ALICE}/ssh_keys")), keys(3));
    person.cloud.put(&of_organization("invitations"), keys(4));
    let by_team = "- RoleBinding viewer for developers in namespace dev (";
    let by_user = "- RoleBinding viewer for alice@example.com in cluster production (";
    for (words, shown, hidden) in [
        (
            ["team", "developers"],
            &[by_team, "  - team developers: get"][..],
            by_user,
        ),
        (
            ["user", "alice@example.com"],
            &[
                by_user,
                "  - user alice@example.com: get",
                "- membership of the team developers\n",
                "With it go: ssh-keys (3)\nThe account goes: password, logins, tokens",
            ],
            by_team,
        ),
        (
            ["organization", "acme"],
            &["users (1), teams (1), clusters (2), roles (1), role-bindings (2), invitations (4)\nSo do the SSH keys"],
            by_team,
        ),
        (
            ["cluster", "production"],
            &[by_user, "With it go: labels (1), api-keys (2)\n"],
            by_team,
        ),
    ] {
        let ran = person.run(&[&["cloud", "delete"][..], &words].concat()).await;
        ran.refused(1, &["no terminal to confirm", "--yes"]);
        for line in shown {
            assert!(ran.out.contains(line), "{words:?}: {line} in {}", ran.out);
        }
        assert!(!ran.out.contains(hidden), "{words:?}: {}", ran.out);
    }
    // A user of another organization only leaves this one.
    let guest = json!({"id": ALICE, "email": "alice@example.com", "home": false});
    person.cloud.put(&of_organization("users"), vec![guest]);
    let ran = person.run(&["cloud", "delete", "user", "alice@example.com"]).await;
    assert!(
        ran.out.contains("The account stays, with its SSH keys") && !ran.out.contains("With it go"),
        "{}",
        ran.out
    );
    // The cloud does not delete a role that is bound: nobody is asked.
    let ran = person.run(&["cloud", "delete", "role", "viewer"]).await;
    let bound = "the role is used by role-bindings (2), for example viewer for alice@example.com in cluster production";
    ran.refused(1, &[bound, BINDING, "delete role-binding"]);
    assert!(!ran.err.contains("confirm"), "{}", ran.err);
    assert!(person.cloud.writes().is_empty());
    let ran = person.run(&["cloud", "delete", "team", "developers", "--yes"]).await;
    assert!(!ran.well().contains("RoleBinding"));
}

/// The order within a subject is of no importance.
fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn a_diff_and_a_dry_run_show_who_gains_and_who_loses_what_in_each_cluster() {
    let person = person().await;
    let file = person.file("a.yaml", DOCUMENTS);
    let diff = person.run(&["cloud", "diff", "-f", &file, "--prune"]).await;
    assert_eq!(diff.code, 1, "{}{}", diff.out, diff.err);
    let (_, impact) = diff.out.split_at(diff.out.find("Access in").unwrap());
    assert_eq!(lines(impact), lines(IMPACT), "{}", diff.out);
    let dry = ["cloud", "apply", "-f", &file, "--prune", "--dry-run"];
    assert_eq!(person.run(&dry).await.well(), diff.out);
    assert!(person.cloud.writes().is_empty(), "neither changes anything");

    // A change without an effect on access sends no further request, and prints nothing about it.
    let label = "kind: ClusterLabel\nspec: {key: cluster.containership.io/zone, value: a}\n";
    let file = person.file("b.yaml", label);
    person.cloud.seen();
    let diff = person.run(&["cloud", "diff", "-f", &file]).await;
    assert!(!diff.out.contains("Access"), "{}", diff.out);
    let roles = of_organization("roles");
    assert!(!person.cloud.seen().iter().any(|seen| seen.line.ends_with(&roles)));
    // A role that nobody has.
    let file = person.file("c.yaml", "kind: Role\nspec: {name: other, rules: []}\n");
    let diff = person.run(&["cloud", "diff", "-f", &file]).await;
    assert!(
        diff.out
            .ends_with("Access: nobody gains or loses anything in any cluster\n"),
        "{}",
        diff.out
    );
    assert_eq!(person.cloud.list(&of_cluster("labels")), Vec::<Value>::new());
}
