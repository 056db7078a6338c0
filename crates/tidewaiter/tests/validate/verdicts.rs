//! One verdict: its code, what is printed, and what it takes.

use std::process::Stdio;

use tidewaiter_testkit::Identity;

use crate::world::{CLUSTER, World, alice, command, finished, json_of, text, unknown};

#[tokio::test]
async fn what_is_known_to_be_wrong_fails_whatever_is_unknown() {
    let world = World::start().await;
    world.ec2.always(Some(tidewaiter_testkit::Scripted::Denied));
    let mark = world.cluster.audit_mark().await;
    let output = world.validate(&["-o", "json"]).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let parts: Vec<_> = unknown(&output).into_iter().map(|(part, _)| part).collect();
    assert_eq!(parts, ["cloud"], "{output:?}");
    assert_eq!(text(&output.stderr), "", "one look tells nothing but its verdict");

    world.pending_pod("dns").await;
    let output = world.validate(&["-o", "json"]).await;
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let verdict = json_of(&output);
    assert_eq!(verdict["failures"][0]["name"], "kube-system/dns");
    let yaml = world.validate(&["-o", "yaml"]).await;
    assert_eq!(yaml.status.code(), Some(2));
    let parsed: serde_json::Value = serde_saphyr::from_str(&text(&yaml.stdout)).unwrap();
    assert_eq!(parsed, verdict);

    let table = text(&world.validate(&[]).await.stdout);
    let start =
        format!("Validating cluster {CLUSTER}\n\nINSTANCE GROUPS\nNAME\tROLE\tMACHINETYPE\tMIN\tMAX\tSUBNETS\n");
    assert!(table.starts_with(&start), "{table}");
    assert!(table.ends_with("\n\nValidation Failed\n"), "{table}");
    assert!(!table.contains('\u{1b}'), "colours are for terminals: {table:?}");

    // It has looked, and no more: four commands, two lists and the list of API groups each.
    let asked = world.cluster.audit().await.since(mark).by(&alice());
    assert_eq!((asked.clone().writes().count(), asked.count()), (0, 12));
}

#[tokio::test]
async fn an_answer_that_nobody_reads_to_its_end_is_no_error() {
    let world = World::start().await;
    world.pending_pod("dns").await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = world.command(&[]);
    command.stdout(Stdio::from(writer)).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), String::new()));
}

#[tokio::test]
async fn of_a_kubeconfigs_contexts_the_one_with_the_clusters_name_is_used() {
    let world = World::start().await;
    let good = std::fs::read_to_string(world.cluster.kubeconfig(&alice())).unwrap();
    let mut kubeconfig: serde_json::Value = serde_saphyr::from_str(&good).unwrap();
    let mut push = |list: &str, more: serde_json::Value| kubeconfig[list].as_array_mut().unwrap().push(more);
    push(
        "clusters",
        serde_json::json!({"name": "away", "cluster": {"server": "https://127.0.0.1:1"}}),
    );
    let context = |cluster: &str| serde_json::json!({"cluster": cluster, "user": "testkit"});
    push(
        "contexts",
        serde_json::json!({"name": "away", "context": context("away")}),
    );
    push(
        "contexts",
        serde_json::json!({"name": CLUSTER, "context": context("testkit")}),
    );
    kubeconfig["current-context"] = "away".into();
    let path = world
        .store
        .write("kubeconfig", &kubeconfig.to_string())
        .display()
        .to_string();
    let look = async |more: &[(&str, &str)]| {
        let mut command = command(&world.store.url(), &path, &["-o", "json"]);
        command.envs(world.ec2.environment()).envs(more.iter().copied());
        unknown(&finished(command).await)
    };
    let parts = |unknown: &[(String, String)]| unknown.iter().any(|(part, _)| part == "Nodes");
    assert!(!parts(&look(&[]).await));
    // Without one the current context is used.
    kubeconfig["contexts"].as_array_mut().unwrap().pop();
    world.store.write("kubeconfig", &kubeconfig.to_string());
    assert!(parts(&look(&[]).await));
}

#[tokio::test]
async fn who_may_not_look_is_told_what_to_be_given() {
    let world = World::start().await;
    let mallory = world
        .cluster
        .kubeconfig(&Identity::user("mallory", &[]))
        .display()
        .to_string();
    let mut command = command(&world.store.url(), &mallory, &["-o", "json"]);
    command.envs(world.ec2.environment());
    let output = finished(command).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let unknown = unknown(&output);
    let nodes = unknown.iter().find(|(part, _)| part == "Nodes").unwrap();
    assert!(
        nodes.1.starts_with("permission to list nodes is missing: ") && nodes.1.contains("mallory"),
        "{nodes:?}"
    );
}
