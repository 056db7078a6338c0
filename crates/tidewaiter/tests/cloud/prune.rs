//! The objects that are deleted because no document names them: those in the scope, and no others.

use serde_json::{Value, json};

use crate::world::{ALICE, CLUSTER, Person, of_cluster, of_organization};

const OTHER: &str = "55555555-5555-4555-8555-555555555555";
const THIRD: &str = "66666666-6666-4666-8666-666666666666";

/// A cloud that holds more than the documents say.
async fn person(scope: &str) -> (Person, String) {
    let person = Person::logged_in().await;
    let label = |id: &str, key: &str| json!({"id": id, "key": key, "value": "a"});
    person.cloud.put(
        &of_cluster("labels"),
        vec![
            label(OTHER, "cluster.containership.io/zone"),
            label(THIRD, "cluster.containership.io/old"),
        ],
    );
    let role = |id: &str, name: &str| json!({"id": id, "name": name, "description": "", "rules": []});
    person.cloud.put(
        &of_organization("roles"),
        vec![role(OTHER, "viewer"), role(THIRD, "old")],
    );
    person.cloud.put(
        &of_organization("teams"),
        vec![json!({"id": THIRD, "name": "old", "user_ids": []})],
    );
    let binding = |id: &str, cluster: Value| json!({"id": id, "type": "UserBinding", "user_id": ALICE, "authorization_role_id": THIRD, "cluster_id": cluster});
    let bindings = vec![binding(THIRD, json!(CLUSTER)), binding(OTHER, json!(OTHER))];
    person.cloud.put(&of_organization("role-bindings"), bindings);
    let text = "kind: Role\nspec: {name: viewer, rules: []}\n---\nkind: ClusterLabel\nspec: {key: cluster.containership.io/zone, value: a}\n";
    let file = person.file("a.yaml", &format!("{text}{scope}"));
    (person, file)
}

fn deleted(person: &Person) -> Vec<String> {
    person
        .cloud
        .writes()
        .into_iter()
        .map(|seen| {
            assert!(seen.line.starts_with("DELETE ") && seen.if_match.is_some(), "{seen:?}");
            seen.line.rsplitn(3, '/').take(2).collect::<Vec<_>>()[1].to_owned()
        })
        .collect()
}

#[tokio::test]
async fn only_the_kinds_and_clusters_of_the_scope_are_pruned_and_the_last_first() {
    let scope = "---\nkind: Scope\nprune: [Role, ClusterLabel, RoleBinding, User]\nclusters: [production]\n";
    let (person, file) = person(scope).await;
    let apply = ["cloud", "apply", "-f", &file];
    assert!(
        person.run(&apply).await.well().contains("0 to delete"),
        "not without --prune"
    );
    let prune = [&apply[..], &["--prune"]].concat();
    let refused = person.run(&prune).await;
    refused.refused(1, &["no terminal to confirm", "--yes"]);
    assert!(
        refused.out.contains("- Role old") && refused.out.contains("3 to delete"),
        "{}",
        refused.out
    );
    assert!(
        person
            .run(&[&prune[..], &["--dry-run"]].concat())
            .await
            .well()
            .contains("3 to delete")
    );
    assert!(person.cloud.writes().is_empty());
    person.run(&[&prune[..], &["--yes"]].concat()).await.well();
    assert_eq!(deleted(&person), ["labels", "role-bindings", "roles"]);
    assert_eq!(
        person.cloud.list(&of_organization("teams")).len(),
        1,
        "not in the scope"
    );
    assert_eq!(
        person.cloud.list(&of_organization("users")).len(),
        1,
        "whoever prunes stays"
    );
    assert_eq!(
        person.cloud.list(&of_organization("role-bindings"))[0]["id"],
        OTHER,
        "another cluster's"
    );
}

#[tokio::test]
async fn without_clusters_in_the_scope_the_bindings_of_clusters_stay() {
    let (person, file) = person("---\nkind: Scope\nprune: [RoleBinding]\n").await;
    let everywhere = json!({"id": ALICE, "type": "UserBinding", "user_id": ALICE, "authorization_role_id": THIRD, "cluster_id": null});
    let mut bindings = person.cloud.list(&of_organization("role-bindings"));
    bindings.push(everywhere);
    person.cloud.put(&of_organization("role-bindings"), bindings);
    let apply = ["cloud", "apply", "-f", &file, "--prune", "--yes"];
    person.run(&apply).await.well();
    let left = person.cloud.list(&of_organization("role-bindings"));
    let left: Vec<_> = left.iter().map(|binding| &binding["id"]).collect();
    assert_eq!(left, [THIRD, OTHER]);
}

#[tokio::test]
async fn without_a_scope_nothing_is_pruned() {
    for (scope, words) in [
        ("", &["--prune", "kind: Scope"][..]),
        (
            "---\nkind: Scope\nprune: [ClusterLabel]\n",
            &["ClusterLabel", "clusters: [NAME]"],
        ),
        (
            "---\nkind: Scope\nprune: [Cluster]\n",
            &["\"Cluster\"", "not a kind that can be pruned"],
        ),
        (
            "---\nkind: Scope\nprune: [Role]\nclusters: [nowhere]\n",
            &["no Cluster \"nowhere\""],
        ),
        ("---\nkind: Scope\nprune: Role\n", &["prune must be a list"]),
        ("---\nkind: Scope\nkinds: [Role]\n", &["\"kinds\""]),
        ("---\nkind: Scope\n---\nkind: Scope\n", &["a second Scope"]),
    ] {
        let (person, file) = person(scope).await;
        person
            .run(&["cloud", "apply", "-f", &file, "--prune", "--yes"])
            .await
            .refused(1, words);
        assert!(person.cloud.writes().is_empty(), "{scope}");
    }
}
