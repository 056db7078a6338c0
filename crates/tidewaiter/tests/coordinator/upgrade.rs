//! `tidewaiter upgrade`, as a person runs it, beside a coordinator that upgrades nodes. What the nodes do is played.

use std::io::Write as _;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{Identity, Process, Program, Terminal, eventually};
use tokio::process::Command;

use crate::{SOON, World, deploy};

const OLD: &str = "v1.35.4";
const NEW: &str = "v1.36.3";

impl World {
    fn upgrade(&self, identity: &Identity, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
        command.arg("upgrade").args(arguments).arg("--kubeconfig");
        command.arg(self.cluster.kubeconfig(identity));
        command
    }

    /// Runs it without a terminal; returns the exit code and what it shows.
    async fn says_of_upgrade(&self, identity: &Identity, arguments: &[&str]) -> (i32, String) {
        let output = self.upgrade(identity, arguments).output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    fn upgrades(&self) -> Api<ClusterUpgrade> {
        Api::namespaced(self.cluster.client(&Identity::Admin), "containership-core")
    }

    /// Nodes are done at once.
    async fn create_upgrade(&self, name: &str, mut policy: Value) {
        policy["minReadySeconds"] = json!(0);
        let upgrade = json!({"metadata": {"name": name, "labels": {"containership.io/managed": "true"}},
            "spec": {"type": "kubernetes", "targetVersion": NEW, "nodeTimeoutSeconds": 5, "policy": policy}});
        let upgrade = serde_json::from_value(upgrade).unwrap();
        self.upgrades().create(&PostParams::default(), &upgrade).await.unwrap();
    }

    async fn join(&self, name: &str, version: &str, managed: bool) {
        let built = node(name).label("containership.io/managed", if managed { "true" } else { "false" });
        let nodes: Api<Node> = Api::all(self.cluster.client(&Identity::Admin));
        nodes.create(&PostParams::default(), &built.build()).await.unwrap();
        self.is_at(name, version).await;
    }

    async fn is_at(&self, name: &str, version: &str) {
        let nodes: Api<Node> = Api::all(self.cluster.client(&Identity::Admin));
        let status = Patch::Strategic(json!({"status": {"nodeInfo": {"kubeletVersion": version}}}));
        nodes
            .patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }

    async fn unpause(&self, name: &str) {
        let patch = Patch::Merge(json!({"spec": {"policy": {"paused": null}}}));
        self.upgrades()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Waits until the upgrade waits for this.
    async fn upgrade_waits(&self, name: &str, words: &str) {
        eventually(format!("{name} to wait: {words}"), SOON, async || {
            let conditions = self
                .upgrades()
                .get(name)
                .await
                .unwrap()
                .status
                .unwrap_or_default()
                .conditions;
            let found = conditions.iter().any(|condition| condition.message.contains(words));
            if found { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await;
    }

    /// Follows the upgrade without a terminal.
    fn follow(&self, name: &str) -> Process {
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter")).name(format!("watch-{name}"));
        let kubeconfig = self.cluster.kubeconfig(&Identity::Admin);
        let program = program.args(["upgrade", "watch", name, "--kubeconfig"]).arg(kubeconfig);
        Process::start(&self.scratch, program)
    }

    fn upgrading_coordinator(&self) -> crate::Replica {
        let mut variables = self.away.clone();
        variables.push(("TIDEWAITER_UPGRADES", "enabled".to_owned()));
        self.replica(&variables, None)
    }
}

/// Waits until the process has printed this.
async fn says(process: &Process, words: &str) {
    eventually(format!("it to say {words}"), SOON, async || {
        let log = process.log();
        if log.contains(words) { Ok(()) } else { Err(log) }
    })
    .await;
}

/// The plan of a file is that of the upgrade when it is created, and creates nothing.
async fn is_planned_before_it_is_created(world: &World) {
    let file = world.scratch.path().join("upgrade.yaml");
    let text = format!("type: kubernetes\ntargetVersion: {NEW}\nnodeTimeoutSeconds: 900\n");
    std::fs::File::create(&file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .unwrap();
    let plan = ["plan", "-f", file.to_str().unwrap()];
    let (code, text) = world.says_of_upgrade(&Identity::Admin, &plan).await;
    assert_eq!(code, 0, "{text}");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in [
        "The upgrade upgrade.yaml to v1.36.3 has not begun: 1 of 3 nodes are at the version, 0 failed.",
        "It is not created yet.",
        "w1 worker v1.35.4 waits for its turn",
        "other worker v1.35.4 left out: it does not have the label containership.io/managed=true",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(lines.contains(&words), "{line}:\n{text}");
    }
    assert!(!text.contains("No coordinator has looked at it"), "{text}");
    let created = world.upgrades().list(&ListParams::default()).await.unwrap();
    assert!(created.items.is_empty(), "{created:?}");
}

#[tokio::test]
async fn an_upgrade_is_shown_and_followed_to_its_end() {
    let world = World::start().await;
    world.cluster.apply_manifests(deploy().join("upgrades")).await;
    let admin = Identity::Admin;
    for (name, version, managed) in [
        ("w1", OLD, true),
        ("w2", OLD, true),
        ("w3", NEW, true),
        ("other", OLD, false),
    ] {
        world.join(name, version, managed).await;
    }
    let (code, text) = world.says_of_upgrade(&admin, &["plan", "u"]).await;
    assert!(code == 1 && text.contains("there is no ClusterUpgrade u in"), "{text}");
    is_planned_before_it_is_created(&world).await;
    world.create_upgrade("u", json!({"paused": true})).await;
    let (code, text) = world.says_of_upgrade(&admin, &["plan", "u"]).await;
    assert_eq!(code, 0, "{text}");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |words: &str| lines.contains(&words.split_whitespace().collect());
    for line in [
        "The upgrade u to v1.36.3 has not begun: 1 of 3 nodes are at the version, 0 failed.",
        "It waits: spec.policy.paused is set; remove it to continue.",
        "No coordinator has looked at it yet: check that one runs with `upgrades: enabled`.",
        "No agent of its nodes reports upgrades, so none of them runs the script: install the agent with `upgrades: enabled`.",
        "w1 worker v1.35.4 waits for its turn",
        "w3 worker v1.36.3 skipped: it is at the version",
        "other worker v1.35.4 left out: it does not have the label containership.io/managed=true",
    ] {
        assert!(has(line), "{line}:\n{text}");
    }
    let nobody = Identity::service_account("default", "nobody");
    let (code, text) = world.says_of_upgrade(&nobody, &["plan", "u"]).await;
    assert!(
        code == 1 && text.contains("cannot list ClusterUpgrades") && text.contains("is forbidden"),
        "{text}"
    );

    let _coordinator = world.upgrading_coordinator();
    world.upgrade_waits("u", "spec.policy.paused is set").await;
    let watch = world.follow("u");
    says(&watch, "spec.policy.paused is set").await;
    world.unpause("u").await;
    world.upgrade_waits("u", "upgrading w1").await;
    let mut terminal = Terminal::start(&world.upgrade(&admin, &["watch", "u"]));
    terminal
        .shows(&["It is upgrading w1.", "  w1  v1.35.4     in progress since"])
        .await;
    for name in ["w1", "w2"] {
        says(&watch, &format!("{name} is to be upgraded")).await;
        world.is_at(name, NEW).await;
        says(&watch, &format!("{name} is at the version, and Ready")).await;
    }
    let end = "the upgrade has succeeded: every selected node is at the version";
    says(&watch, end).await;
    assert_eq!(watch.exited(SOON).await.code(), Some(0));
    assert_eq!(terminal.ended().await.code(), Some(0));
    let left = terminal.shown();
    assert!(left.contains(end) && !left.contains("in progress"), "{left}");
    let (code, text) = world.says_of_upgrade(&admin, &["plan", "u", "-o", "json"]).await;
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &plan["nodes"][0]["plan"]), (0, &json!("done")));
    assert_eq!(
        plan["summary"][1],
        "The coordinator says: every selected node is at the version"
    );
}

#[tokio::test]
async fn an_upgrade_that_fails_or_is_deleted_ends_with_its_own_code() {
    let world = World::start().await;
    world.cluster.apply_manifests(deploy().join("upgrades")).await;
    world.join("w1", OLD, true).await;
    world.create_upgrade("gone", json!({"paused": true})).await;
    let watch = world.follow("gone");
    let _coordinator = world.upgrading_coordinator();
    says(&watch, "spec.policy.paused is set").await;
    world.upgrades().delete("gone", &DeleteParams::default()).await.unwrap();
    says(&watch, "the upgrade gone was deleted").await;
    assert_eq!(watch.exited(SOON).await.code(), Some(1));
    // The node does nothing, and fails.
    world.create_upgrade("u", json!({})).await;
    let watch = world.follow("u");
    says(&watch, "w1 has failed").await;
    says(&watch, "the upgrade has failed: node w1 failed: ").await;
    assert_eq!(watch.exited(SOON).await.code(), Some(3));
    let mut terminal = Terminal::start(&world.upgrade(&Identity::Admin, &["watch", "u"]));
    assert_eq!(terminal.ended().await.code(), Some(3));
}
