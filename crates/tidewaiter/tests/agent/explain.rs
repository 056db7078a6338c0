//! `tidewaiter explain access --user | --node` and `explain logins`.

use std::process::Command;

use serde_json::Value;
use tidewaiter_testkit::{Identity, eventually};

use crate::world::{KEYS, SOON, World, id};

async fn explain(world: &World, arguments: &[&str]) -> (bool, String) {
    let kubeconfig = world.cluster.kubeconfig(&Identity::Admin);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
    command
        .args(["explain", "access", "--kubeconfig"])
        .arg(kubeconfig)
        .args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn who_can_log_in_where_is_told() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    world.user(2, &["no key"]).await;
    let agent = world.agent(&[]).await;
    agent.report(|status| status.keys == 1).await;
    let silent = world.node();
    world.token(&silent).await;
    let (ok, text) = explain(&world, &["--node", &agent.node]).await;
    assert!(ok, "{text}");
    for words in [
        "CAN LOG IN",
        &id(1),
        "user-1",
        "SHA256:",
        "REFUSED KEYS",
        &id(2),
        "NODES",
        // Since when.
        "s ago",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains(&silent), "{text}");
    // By name, on all nodes: one of them has no agent.
    let (ok, text) = explain(&world, &["--user", "user-1", "-o", "json"]).await;
    assert!(ok, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["logins"]["applied"][0]["node"], agent.node.as_str());
    let since = answer["logins"]["applied"][0]["since"].as_str().unwrap();
    assert!(since.starts_with("20") && since.ends_with('Z'), "{since}");
    assert_eq!(answer["logins"]["pending"][0]["node"], silent.as_str());
    assert_eq!(answer["logins"]["pending"][0]["due"], "add");
    let (ok, text) = explain(&world, &["--node", "nowhere"]).await;
    assert!(!ok && text.contains("there is no Node \"nowhere\""), "{text}");
    // A user that is gone can log in until the agent has heard of it.
    agent.process.pause();
    world.remove(1).await;
    eventually("the removal that is due", SOON, async || {
        let (_, text) = explain(&world, &["--node", &agent.node]).await;
        if text.contains("remove") && text.contains("no such User any more") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    agent.process.resume();
}

#[test]
fn explain_logins_says_where_to_look() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidewaiter"))
        .args(["explain", "logins"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("journalctl -t containership-login"),
        "{text}"
    );
}
