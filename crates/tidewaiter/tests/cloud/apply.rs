//! Applies files: shown before it is done, all of it or nothing of it, and nothing the second time.

use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{ALICE, CLUSTER, Person, of_cluster, of_organization};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";

/// A folder that names one of each, in an order in which nothing could be made.
fn folder(person: &Person) -> String {
    person.file("folder/secrets/quay", "hunter2-file\n");
    person.file("folder/.hidden.yaml", "kind: [");
    person.file("folder/notes.txt", "kind: [");
    person.file(
        "folder/10-bindings.yaml",
        "kind: RoleBinding
cluster: production
spec: {role: viewer, user: bob@example.com, namespace: dev}
---
kind: RoleBinding
spec: {role: viewer, team: developers}
",
    );
    person.file(
        "folder/20-people.yaml",
        &format!(
            "kind: User
spec: {{name: Bob, email: bob@example.com, role: member, password: {{fromEnv: BOB}}}}
---
kind: SshKey
user: bob@example.com
spec: {{name: laptop, key: {KEY}}}
---
kind: Team
spec: {{name: developers, users: [bob@example.com, alice@example.com]}}
"
        ),
    );
    person.file(
        "folder/30-rest.json",
        &json!({"kind": "Role", "spec": {"name": "viewer", "rules": [
            {"type": "kubernetes", "api_groups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}})
        .to_string(),
    );
    person.file(
        "folder/cluster/all.yml",
        "kind: NodePoolLabel
nodePool: workers
spec: {key: nodepool.containership.io/disk, value: ssd}
---
kind: NodePool
spec: {name: workers, count: 3, kubernetes_mode: worker, kubernetes_version: v1.30.1, etcd: false, is_schedulable: true}
---
kind: ClusterLabel
cluster: production
spec: {key: cluster.containership.io/zone, value: a}
---
kind: Registry
spec:
  serveraddress: quay.io
  provider: quay
  credentials: {username: hunter2-user, password: {fromFile: ../secrets/quay}}
",
    );
    person.path("folder").to_str().unwrap().to_owned()
}

const BOB: [(&str, &str); 1] = [("BOB", "hunter2-bobby")];

#[tokio::test]
async fn a_folder_is_made_true_and_then_it_is() {
    let person = Person::logged_in().await;
    let folder = folder(&person);
    let apply = ["cloud", "apply", "-f", &folder];
    let out = person.run_with(&apply, &BOB).await.well();
    for word in [
        "+ User Bob",
        "+ SshKey laptop in user bob@example.com",
        "+ RoleBinding viewer for bob@example.com in cluster production",
        "password: (not shown)",
        "user_id: bob@example.com (new)",
        &format!("- alice@example.com ({ALICE})"),
        "10 to create, 0 to change, 0 to delete, 0 unchanged",
        "created NodePoolLabel nodepool.containership.io/disk",
    ] {
        assert!(out.contains(word), "{word} in {out}");
    }
    let list = |name: &str| person.cloud.list(&of_organization(name));
    let bob = list("users").iter().find(|user| user["name"] == "Bob").unwrap().clone();
    assert_eq!(
        (&bob["password"], &bob["role"]),
        (&json!("hunter2-bobby"), &json!("member"))
    );
    assert_eq!(
        person
            .cloud
            .list(&format!(
                "{}/{}/ssh_keys",
                of_organization("users"),
                bob["id"].as_str().unwrap()
            ))
            .len(),
        1
    );
    let (team, role) = (list("teams")[0].clone(), list("roles")[0].clone());
    assert_eq!(team["user_ids"], json!([bob["id"], ALICE]));
    let bindings = list("role-bindings");
    assert_eq!(bindings[0]["user_id"], bob["id"]);
    assert_eq!(bindings[0]["cluster_id"], CLUSTER);
    assert_eq!(
        (&bindings[1]["team_id"], &bindings[1]["authorization_role_id"]),
        (&team["id"], &role["id"])
    );
    assert_eq!(bindings[1]["cluster_id"], Value::Null);
    assert_eq!(
        list("registries")[0]["credentials"],
        json!({"username": "hunter2-user", "password": "hunter2-file"})
    );
    let pool = person.cloud.list(&of_cluster("node-pools"))[0].clone();
    assert_eq!(pool["kubernetes_version"], "1.30.1");
    let labels = person.cloud.list(&of_cluster(&format!(
        "node-pools/{}/labels",
        pool["id"].as_str().unwrap()
    )));
    assert_eq!(labels[0]["key"], "nodepool.containership.io/disk");

    person.cloud.seen();
    let out = person.run_with(&apply, &BOB).await.well();
    assert_eq!(out, "0 to create, 0 to change, 0 to delete, 10 unchanged\n");
    let seen = person.cloud.seen();
    assert!(seen.iter().all(|seen| seen.line.starts_with("GET ")), "{seen:?}");
    assert!(seen.len() <= 12, "each list once, and no object by itself: {seen:?}");
}

#[tokio::test]
async fn a_change_is_shown_and_sent_alone_with_the_version_that_was_seen() {
    let person = Person::logged_in().await;
    let folder = folder(&person);
    let apply = ["cloud", "apply", "-f", &folder];
    person.run_with(&apply, &BOB).await.well();
    person.file("folder/secrets/quay", "hunter2-new\n");
    person.file(
        "folder/cluster/b.yaml",
        "kind: ClusterLabel\nspec: {key: cluster.containership.io/tier, value: gold}\n",
    );
    let rule = json!({"type": "kubernetes", "api_groups": [""], "resources": ["pods"], "verbs": ["get"]});
    person.file(
        "folder/30-rest.json",
        &json!({"kind": "Role", "spec": {"name": "viewer", "rules": [rule]}}).to_string(),
    );
    person.cloud.seen();
    let diff = person.run_with(&["cloud", "diff", "-f", &folder], &BOB).await;
    assert_eq!(diff.code, 1, "{}", diff.err);
    let dry = person
        .run_with(&[&apply[..], &["--dry-run"]].concat(), &BOB)
        .await
        .well();
    assert_eq!(dry, diff.out);
    assert!(person.cloud.writes().is_empty(), "neither changes anything");
    for word in [
        "~ Role viewer",
        "-   - list",
        "~ Registry quay.io",
        "password: (another one, not shown)",
        "1 to create, 2 to change",
    ] {
        assert!(dry.contains(word), "{word} in {dry}");
    }
    person.run_with(&apply, &BOB).await.well();
    let writes = person.cloud.writes();
    let bodies: Vec<&Value> = writes.iter().map(|write| &write.body).collect();
    assert_eq!(bodies.len(), 3, "{bodies:?}");
    assert!(writes[0].line.starts_with("PATCH ") && writes[0].if_match.is_some());
    assert_eq!(bodies[0], &json!({"credentials": {"password": "hunter2-new"}}));
    assert_eq!(bodies[1]["rules"][0]["verbs"], json!(["get"]));
    let diff = person.run_with(&["cloud", "diff", "-f", &folder], &BOB).await;
    assert_eq!(diff.code, 0, "{}", diff.out);
}

#[tokio::test]
async fn one_wrong_document_and_nothing_is_asked_or_changed() {
    let person = Person::logged_in().await;
    person.file(
        "folder/a.yaml",
        "kind: ClusterLabel\nspec: {key: cluster.containership.io/zone, value: a}\n",
    );
    let folder = person.path("folder").to_str().unwrap().to_owned();
    for (text, words) in [
        (
            "kind: ClusterLabel\nspec: {key: 'a b', value: a}\n",
            &["b.yaml (document 1)", "spec: key"][..],
        ),
        (
            "kind: ClusterLabel\nspec: {key: cluster.containership.io/a, keey: a}\n",
            &["spec", "keey"],
        ),
        (
            "kind: User\nspec: {name: a, emial: a@example.com, password: hunter2hunter2}\n",
            &["spec: emial", "nearest known field is email"],
        ),
        ("kind: Rolle\nspec: {}\n", &["\"Rolle\"", "Role"]),
        ("kind: Role\nspeck: {}\n", &["spec is missing"]),
        ("kind: Role\nspec: {}\nname: a\n", &["\"name\"", "spec"]),
        (
            "kind: Role\ncluster: production\nspec: {name: a, rules: []}\n",
            &["cluster", "omit it"],
        ),
        (
            "kind: NodePoolLabel\nspec: {key: nodepool.containership.io/a, value: b}\n",
            &["nodePool is missing"],
        ),
        ("kind: Cluster\nspec: {name: a}\n", &["tidewaiter cloud create"]),
        ("kind: RoleBinding\nspec: {role: a, user: b, team: c}\n", &["spec"]),
        (
            "kind: ClusterLabel\nspec: {key: cluster.containership.io/a, value: a}\n---\n- 1\n",
            &["(document 2)", "must be a mapping"],
        ),
        ("kind: ClusterLabel\nkind: Role\n", &["b.yaml"]),
        ("kind: [", &["b.yaml"]),
        (
            "kind: Registry\nspec: {serveraddress: a, provider: quay, credentials: {username: u, password: {fromEnv: NONE}}}\n",
            &["credentials.password", "NONE is not set"],
        ),
        (
            "kind: Registry\nspec: {serveraddress: a, provider: quay, credentials: {username: u, password: {fromFile: none}}}\n",
            &["credentials.password", "none"],
        ),
        (
            "kind: User\nspec: {name: a, email: a@example.com, role: superadmin, password: hunter2hunter2}\n",
            &["superadmin", "read_only, member, admin, owner"],
        ),
        (
            "kind: User\nspec: {name: a, email: a@example.com, password: hunter2}\n",
            &["spec.password must have 12 to 256 characters"],
        ),
        (
            "kind: Registry\nspec: {serveraddress: 123456789012.dkr.ecr.us-east-1.amazonaws.com, provider: amazon_ec2_registry, credentials: {access_key: hunter2}}\n",
            &["must have secret_access_key"],
        ),
        (
            "kind: Registry\nspec: {serveraddress: ../kube-system, provider: private, credentials: {username: u, password: hunter2}}\n",
            &["../kube-system", "HOST:PORT"],
        ),
        (
            "kind: Registry\nspec: {serveraddress: a, provider: quay, credentials: {username: u, password: [hunter2]}}\n",
            &["credentials.password"],
        ),
    ] {
        person.file("folder/b.yaml", text);
        let ran = person.run(&["cloud", "apply", "-f", &folder, "--yes"]).await;
        ran.refused(1, words);
        assert!(person.cloud.seen().is_empty(), "{text}");
        person.run(&["cloud", "diff", "-f", &folder]).await.refused(2, words);
    }
}

#[tokio::test]
async fn a_text_that_yaml_reads_as_another_type_is_refused_with_the_remedy() {
    let person = Person::logged_in().await;
    for (text, said) in [
        (
            "kind: ClusterLabel\nspec: {key: cluster.containership.io/a, value: 01234}\n",
            "value: is the number 668, must be",
        ),
        (
            "kind: Role\nspec: {name: 2024, rules: []}\n",
            "name: is the number 2024, must be",
        ),
        ("kind: Role\nspec: {name: true, rules: []}\n", "name: is true, must be"),
        (
            "kind: ClusterLabel\ncluster: 0123\nspec: {}\n",
            "cluster must be a string",
        ),
        (
            "kind: Team\nspec: {name: a, users: [b, 2024]}\n",
            "spec.users[1] must be a string",
        ),
        (
            "kind: RoleBinding\nspec: {role: 7, team: a}\n",
            "spec.role must be a string",
        ),
        (
            "kind: Scope\nprune: [Role]\nclusters: [2024]\n",
            "clusters[0] must be a string",
        ),
        (
            "kind: User\nspec: {name: a, email: a@example.com, password: 123456789012}\n",
            "spec.password must be a string",
        ),
        (
            "kind: Provider\nspec: {provider: aws, credentials: {key: 1}}\n",
            "credentials.key: is a number, must be",
        ),
    ] {
        let file = person.file("a.yaml", text);
        let ran = person.run(&["cloud", "apply", "-f", &file]).await;
        ran.refused(1, &[said, "(in YAML, put it in quotes)"]);
    }
    let file = person.file(
        "a.yaml",
        "kind: Provider\nspec: {provider: aws, credentials: {region: ''}}\n",
    );
    let ran = person.run(&["cloud", "apply", "-f", &file]).await;
    ran.refused(1, &["credentials.region: is empty, must be"]);
    assert!(person.cloud.seen().is_empty());
}

#[tokio::test]
async fn several_files_and_the_standard_input_are_applied_together() {
    let person = Person::logged_in().await;
    let label = |key: &str| format!("kind: ClusterLabel\nspec: {{key: cluster.containership.io/{key}, value: a}}\n");
    person.file("folder/b.yaml", &label("b"));
    let (file, folder) = (person.file("a.yaml", &label("a")), person.path("folder"));
    let folder = folder.to_str().unwrap();
    let apply = ["cloud", "apply", "-f", &file, "-f", folder, "-f", "-"];
    let out = person.run_fed(&apply, &label("c")).await.well();
    assert!(out.contains("3 to create"), "{out}");
    assert_eq!(person.cloud.writes().len(), 3);
    let ran = person.run_fed(&apply, "kind: Rolle\n").await;
    ran.refused(1, &["the standard input (document 1)", "Rolle"]);
    person.file("empty/notes.txt", "");
    let empty = person.path("empty");
    let diff = ["cloud", "diff", "-f", &file, "-f", empty.to_str().unwrap()];
    person.run(&diff).await.refused(2, &["empty contains no .yaml"]);
    let create = ["cloud", "create", "cluster", "-f", "-", "-o", "name"];
    let made = person.run_fed(&create, "name: staging\n").await.well();
    assert!(made.starts_with("Cluster/"), "{made}");
}

#[tokio::test]
async fn all_invalid_documents_are_reported_at_once() {
    let person = Person::logged_in().await;
    let folder = folder(&person);
    person.file("folder/b.yaml", "kind: Rolle\n---\nkind: Team\nspec: {nam: a}\n");
    person.file("folder/c.yaml", "kind: [");
    person.file(
        "folder/d.yaml",
        "kind: Registry\nspec: {serveraddress: quay.io, provider: quay, credentials: {fromEnv: NONE}}\n",
    );
    let ran = person.run_with(&["cloud", "apply", "-f", &folder, "--yes"], &BOB).await;
    let lines: Vec<&str> = ran.err.lines().collect();
    for (line, words) in lines.iter().zip([
        &["b.yaml (document 1)", "Rolle"][..],
        &["b.yaml (document 2)", "nam"],
        &["c.yaml"],
        &["d.yaml", "NONE is not set"],
        &["4 documents are invalid", "nothing was changed"],
    ]) {
        assert!(
            line.starts_with("tidewaiter: ") && words.iter().all(|word| line.contains(word)),
            "{words:?}: {line}"
        );
    }
    assert_eq!((ran.code, lines.len()), (1, 5), "{}", ran.err);
    assert!(person.cloud.seen().is_empty());
}

#[tokio::test]
async fn a_name_that_nothing_has_or_two_have_changes_nothing() {
    let person = Person::logged_in().await;
    let label = |id: &str| json!({"id": id, "key": "cluster.containership.io/zone", "value": "a"});
    person
        .cloud
        .put(&of_cluster("labels"), vec![label(ALICE), label(CLUSTER)]);
    for (text, words) in [
        (
            "kind: Role\nspec: {name: a, rules: []}\n---\nkind: RoleBinding\nspec: {role: b, user: alice@example.com}\n",
            &["no Role \"b\""][..],
        ),
        (
            "kind: RoleBinding\nspec: {role: b, user: eve@example.com}\n",
            &["in the cloud or in these documents"],
        ),
        (
            "kind: ClusterLabel\ncluster: nowhere\nspec: {key: cluster.containership.io/a, value: a}\n",
            &["no Cluster \"nowhere\""],
        ),
        (
            "kind: ClusterLabel\nspec: {key: cluster.containership.io/zone, value: b}\n",
            &["2 objects of kind ClusterLabel", "use an id"],
        ),
        (
            "kind: ClusterLabel\nid: nobody\nspec: {key: cluster.containership.io/zone, value: b}\n",
            &["with the id nobody"],
        ),
        (
            "kind: Role\nspec: {name: a, rules: []}\n---\nkind: Role\nspec: {name: a, rules: []}\n",
            &["occurs twice", "(document 2)"],
        ),
    ] {
        let file = person.file("a.yaml", text);
        person.run(&["cloud", "apply", "-f", &file]).await.refused(1, words);
        assert!(person.cloud.writes().is_empty(), "{text}");
    }
    let text = format!("kind: ClusterLabel\nid: {ALICE}\nspec: {{key: cluster.containership.io/zone, value: b}}\n");
    let file = person.file("a.yaml", &text);
    person.run(&["cloud", "apply", "-f", &file]).await.well();
    assert_eq!(person.cloud.list(&of_cluster("labels"))[0]["value"], "b");
}

#[tokio::test]
async fn a_missing_version_or_permission_is_found_before_the_first_change() {
    let person = Person::logged_in().await;
    let plugin = |version: &str| {
        format!(
            "kind: Role\nspec: {{name: a, rules: []}}\n---\nkind: Plugin\nspec: {{type: logs, implementation: fluentd, version: {version}}}\n"
        )
    };
    let file = person.file("a.yaml", &plugin("1.0.0"));
    let apply = ["cloud", "apply", "-f", &file];
    let refused = async |words: &[&str]| {
        person
            .run(&apply)
            .await
            .refused(1, &[&["nothing was changed"][..], words].concat());
        assert!(person.cloud.writes().is_empty());
    };
    refused(&[
        "Plugin logs fluentd: the version 1.0.0 is not in the catalogue",
        "catalogue list",
    ])
    .await;
    let versions = "plugins/logs/implementations/fluentd/versions";
    let version = |version: &str, disabled: bool| json!({"id": version, "version": version, "disabled": disabled});
    person.cloud.put(versions, vec![version("1.0.0", true)]);
    refused(&["the version 1.0.0 is disabled"]).await;
    person.cloud.put(versions, vec![version("1.0.0", false)]);
    person.cloud.has_role("member");
    let admin = "requires the role admin, and yours is member: ask an owner";
    refused(&[&format!("Role a {admin}"), &format!("Plugin logs fluentd {admin}")]).await;
    person.cloud.has_role("admin");
    person.run(&apply).await.well();
    // So is that of a change; a dry run asks for neither.
    person.cloud.writes();
    person.file("a.yaml", &plugin("2.0.0"));
    refused(&["the version 2.0.0 is not in the catalogue"]).await;
    person.run(&[&apply[..], &["--dry-run"]].concat()).await.well();
    person.cloud.has_role("member");
    let label = "kind: ClusterLabel\nspec: {key: cluster.containership.io/zone, value: a}\n";
    person.file("a.yaml", label);
    person.run(&apply).await.well();
}

#[tokio::test]
async fn an_end_that_is_over_and_a_user_of_80_teams_are_found_before_the_first_change() {
    let person = Person::logged_in().await;
    let file = person.file("a.yaml", "");
    let refused = async |documents: &str, words: &[&str]| {
        person.file("a.yaml", documents);
        person
            .run(&["cloud", "apply", "-f", &file])
            .await
            .refused(1, &[&["nothing was changed"][..], words].concat());
        assert!(person.cloud.writes().is_empty(), "{documents}");
    };
    let over = "2020-01-31T18:00:00Z, which is over: set a later time, or omit it";
    let role = "kind: Role\nspec: {name: a, rules: []}\n";
    let binding =
        "---\nkind: RoleBinding\nspec: {role: a, user: alice@example.com, expires_at: '2020-01-31T18:00:00Z'}\n";
    refused(
        &format!("{role}{binding}"),
        &["RoleBinding ", &format!("expires_at is {over}")],
    )
    .await;
    let team =
        |name: &str, more: &str| format!("---\nkind: Team\nspec: {{name: {name}, users: [alice@example.com]{more}}}\n");
    let ends = team("shift", ", ends: {alice@example.com: '2020-01-31T18:00:00Z'}");
    refused(&ends, &["Team shift", "the end of alice@example.com", over]).await;

    let teams =
        (1..=79_u8).map(|number| json!({"id": number.to_string(), "name": number.to_string(), "user_ids": [ALICE]}));
    person.cloud.put(&of_organization("teams"), teams.collect());
    let full = "Team last: alice@example.com";
    let documents = format!("{role}{}{}", team("one-more", ""), team("last", ""));
    refused(
        &documents,
        &[full, "is in 80 teams, the maximum: remove the user from another"],
    )
    .await;
    // A user who leaves one of them may join another one.
    let left = "kind: Team\nspec: {name: '1', users: []}\n---\n";
    person.file("a.yaml", &format!("{left}{documents}"));
    person.run(&["cloud", "apply", "-f", &file]).await.well();
}

#[tokio::test]
async fn what_stops_it_on_the_way_says_how_far_it_came() {
    let person = Person::logged_in().await;
    let file = person.file(
        "a.yaml",
        "kind: Role\nspec: {name: a, rules: []}\n---\nkind: ClusterLabel\nspec: {key: cluster.containership.io/zone, value: a}\n",
    );
    person
        .cloud
        .refuse(&format!("POST /v3/{}", of_cluster("labels")), StatusCode::CONFLICT);
    let ran = person.run(&["cloud", "apply", "-f", &file]).await;
    ran.refused(
        1,
        &[
            "ClusterLabel cluster.containership.io/zone",
            "stopped after 1 of 2 changes",
            "apply again",
            "not now",
        ],
    );
    assert!(ran.out.contains("created Role a"), "{}", ran.out);
}

#[tokio::test]
async fn credentials_that_the_cloud_does_not_answer_are_sent_again() {
    let person = Person::logged_in().await;
    person.cloud.put(
        &of_organization("providers"),
        vec![json!({"id": ALICE, "provider": "aws", "description": "main"})],
    );
    let file = person.file(
        "a.yaml",
        "kind: Provider\nspec: {provider: aws, description: main, credentials: {key: hunter2}}\n",
    );
    let out = person.run(&["cloud", "apply", "-f", &file]).await.well();
    assert!(out.contains("key: (another one, not shown)"), "{out}");
    assert_eq!(
        person.cloud.writes()[0].body,
        json!({"credentials": {"key": "hunter2"}})
    );
    let file = person.file("a.yaml", "kind: Provider\nspec: {provider: aws, description: main}\n");
    assert!(
        person
            .run(&["cloud", "apply", "-f", &file])
            .await
            .well()
            .contains("1 unchanged")
    );
}

#[tokio::test]
async fn a_report_that_cannot_be_read_is_not_the_end_of_the_wait() {
    let person = Person::logged_in().await;
    let file = person.file(
        "a.yaml",
        "kind: ClusterLabel\nspec: {key: cluster.containership.io/zone, value: a}\n",
    );
    let apply = ["cloud", "apply", "-f", &file];
    person.run(&apply).await.well();
    let report = format!("GET /v3/{}", of_cluster("report"));
    person.cloud.refuse(&report, StatusCode::SERVICE_UNAVAILABLE);
    let ran = person.run(&[&apply[..], &["--wait=1s"]].concat()).await;
    let words = ["1 of 1 clusters have not followed", "its report cannot be read"];
    assert!(
        ran.code == 1 && words.iter().all(|word| ran.err.contains(word)),
        "{}",
        ran.err
    );
}
