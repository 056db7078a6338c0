//! Wrong input: one line that names the flag, the value and what helps; nothing judged, nothing printed, code 1.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::Signal;
use serde_json::{Value, json};
use tidewaiter_testkit::eventually;

use crate::world::{CLUSTER, Running, SOON, Store, bare, command, finished, text};

/// The promised limit, and the time to start a process on a busy machine.
const LIMIT: Duration = Duration::from_secs(30 + 45);

/// A port on which nobody listens.
const CLOSED: &str = "https://127.0.0.1:1";

fn refused(output: &Output, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(text(&output.stdout), "", "{said}");
    assert!(said.starts_with("tidewaiter: ") && said.lines().count() == 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[tokio::test]
async fn a_flag_that_is_wrong_is_named_with_its_value_and_what_is_allowed() {
    let store = Store::new();
    let (url, kubeconfig) = (store.url(), store.kubeconfig(CLOSED));
    let ran = async |arguments: &[&str]| finished(command(&url, &kubeconfig, arguments)).await;
    for (arguments, words) in [
        (
            &["-o", "xml"][..],
            &["'xml'", "--output", "table, wide, json, yaml"][..],
        ),
        (&["--interval", "-5s"], &["'-5s'", "--interval", "at least 1s", "1m30s"]),
        (&["--interval", "0"], &["'0'", "--interval", "at least 1s"]),
        (&["--wait", "-1m"], &["'-1m'", "--wait", "0 or more", "1m30s"]),
        (
            &["--wait", "ten minutes or so"],
            &["'ten minutes or so'", "--wait", "1m30s"],
        ),
        (&["--wait", "90"], &["'90'", "--wait", "90s"]),
        (&["--count", "0"], &["'0'", "--count", "1.."]),
        (&["--count", "-1"], &["'-1'", "--count", "1.."]),
        (&["--max-unready-nodes", "-1"], &["'-1'", "--max-unready-nodes", "0.."]),
        (&["--waitt", "10m"], &["'--waitt'", "'--wait'"]),
        (&["cluster"], &["'cluster'"]),
    ] {
        refused(&ran(arguments).await, words);
    }
}

#[tokio::test]
async fn a_cluster_that_is_not_named_or_not_there_is_said() {
    let store = Store::new();
    let (url, kubeconfig) = (store.url(), store.kubeconfig(CLOSED));
    refused(
        &finished(bare(&[])).await,
        &["--name", "KOPS_CLUSTER_NAME", "--state", "--conf"],
    );
    refused(
        &finished(bare(&["--name", CLUSTER])).await,
        &["--state", "KOPS_STATE_STORE"],
    );
    refused(
        &finished(bare(&["--name", "../x", "--state", &url])).await,
        &["'../x'", "--name"],
    );
    for state in ["my-bucket", "http://bucket", "file://relative", ""] {
        let output = finished(command(state, &kubeconfig, &[])).await;
        refused(&output, &["--state", "s3://BUCKET", CLUSTER]);
    }
    let mut other = bare(&[
        "--name",
        "other.example.com",
        "--wait",
        "10m",
        "--kubeconfig",
        &kubeconfig,
    ]);
    other.env("KOPS_STATE_STORE", &url);
    let words = [
        "no cluster other.example.com",
        &url,
        "--name",
        "--state",
        "cluster-completed.spec",
    ];
    refused(&finished(other).await, &words);
    let conf = store.write("conf", "clusterName: [a]\n").display().to_string();
    refused(
        &finished(bare(&["--conf", &conf])).await,
        &[&conf, "clusterName", "a list"],
    );
    refused(&finished(bare(&["--conf", "/nowhere/conf"])).await, &["/nowhere/conf"]);
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_named() {
    let store = Store::new();
    let url = store.url();
    let broken = store.write("broken", "contexts: [\n- {").display().to_string();
    let empty = store
        .write("empty", "apiVersion: v1\nkind: Config\n")
        .display()
        .to_string();
    for kubeconfig in ["/nowhere/kubeconfig", &broken, &empty] {
        let output = finished(command(&url, kubeconfig, &[])).await;
        refused(&output, &["--kubeconfig", kubeconfig, "kops export kubeconfig"]);
    }
    let nowhere = bare(&["--name", CLUSTER, "--state", &url]);
    refused(&finished(nowhere).await, &["--kubeconfig", "kops export kubeconfig"]);
    let named = command(&url, &store.kubeconfig(CLOSED), &["--context", "staging"]);
    let output = finished(named).await;
    refused(&output, &["no context \"staging\"", "its contexts are: any"]);
}

/// A kubeconfig whose user gets its credentials from `command`.
fn with_plugin(store: &Store, command: &str) -> String {
    let exec =
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "installHint": "get it"}});
    let path = store.kubeconfig(CLOSED);
    let mut kubeconfig: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    kubeconfig["users"][0]["user"] = exec;
    store.write("kubeconfig", &kubeconfig.to_string());
    path
}

#[tokio::test]
async fn a_credential_plugin_that_is_not_there_is_named_with_its_user_and_file() {
    let store = Store::new();
    for command_of_plugin in ["no-such-plugin", "/nowhere/no-such-plugin"] {
        let kubeconfig = with_plugin(&store, command_of_plugin);
        let output = finished(command(&store.url(), &kubeconfig, &[])).await;
        let user = "user \"u\"";
        refused(
            &output,
            &[&kubeconfig, user, command_of_plugin, "not installed (\"get it\")"],
        );
    }
}

/// A program that says that it runs and then waits without end.
fn hanging_plugin(store: &Store) -> (String, PathBuf) {
    let runs = store.write("runs", "");
    std::fs::remove_file(&runs).unwrap();
    let script = format!("#!/bin/sh\n: > {}\nexec sleep 600\n", runs.display());
    let plugin = store.write("plugin", &script);
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o700)).unwrap();
    (with_plugin(store, plugin.to_str().unwrap()), runs)
}

#[tokio::test]
async fn a_credential_plugin_that_hangs_is_named_in_time() {
    let store = Store::new();
    let (kubeconfig, _) = hanging_plugin(&store);
    let mut hangs = command(&store.url(), &kubeconfig, &[]);
    hangs.env("PATH", "/usr/bin:/bin");
    // The plugin runs on, and keeps standard error open.
    let mut running = Running::start(hangs);
    let said = tokio::time::timeout(LIMIT, running.told())
        .await
        .expect("an error in time");
    for word in ["tidewaiter: there are no credentials", "15s", "/plugin"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    assert_eq!(running.ended().await, (Some(1), String::new()));
}

#[tokio::test]
async fn a_signal_ends_it_while_a_credential_plugin_hangs() {
    let store = Store::new();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (kubeconfig, runs) = hanging_plugin(&store);
        let mut hangs = command(&store.url(), &kubeconfig, &[]);
        hangs.env("PATH", "/usr/bin:/bin");
        let running = Running::start(hangs);
        eventually("the plugin to run", SOON, async || {
            runs.exists().then_some(()).ok_or("it does not run")
        })
        .await;
        running.signal(signal);
        let ended = tokio::time::timeout(Duration::from_secs(10), running.ended()).await;
        assert_eq!(ended.expect("the signal ends it"), (Some(code), String::new()));
    }
}

#[tokio::test]
async fn what_is_no_file_is_refused_and_never_opened() {
    let store = Store::new();
    let (url, good) = (store.url(), store.kubeconfig(CLOSED));
    let pipe = store.write("pipe", "");
    std::fs::remove_file(&pipe).unwrap();
    mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
    let pipe = pipe.display().to_string();
    let words = [pipe.as_str(), "must be a file, but is a named pipe"];
    refused(&finished(bare(&["--conf", &pipe, "--kubeconfig", &good])).await, &words);
    refused(&finished(command(&url, &good, &["--settings", &pipe])).await, &words);
    refused(&finished(command(&url, &pipe, &[])).await, &words);
    let mut default = bare(&["--name", CLUSTER, "--state", &url]);
    default.env("KUBECONFIG", &pipe);
    refused(&finished(default).await, &words);

    let key = "-----BEGIN PRIVATE KEY-----\nhash\n-----END PRIVATE KEY-----\n";
    for content in ["root:$6$salt$hash:19000:0:99999:7:::\n", key] {
        let secret = store.write("secret", content).display().to_string();
        for output in [
            finished(command(&url, &good, &["--settings", &secret])).await,
            finished(command(&url, &secret, &[])).await,
        ] {
            refused(&output, &[&secret]);
            assert!(!text(&output.stderr).contains("hash"), "{output:?}");
        }
    }
}

#[tokio::test]
async fn a_state_store_of_another_cloud_is_reported_as_that_cloud() {
    let kubeconfig = Store::new().kubeconfig(CLOSED);
    let output = finished(command("azureblob://state", &kubeconfig, &[])).await;
    refused(
        &output,
        &[
            "--state",
            "a state store of azure",
            "supports aws, gce and hetzner only",
        ],
    );
}

#[tokio::test]
async fn help_says_the_exit_codes_and_is_no_failure() {
    let output = finished(bare(&["--help"])).await;
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for word in [
        "Exit codes:",
        "130",
        "143",
        "unknown: no failure was found",
        "the one with the cluster's name",
    ] {
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(word), "{word} in {said}");
    }
}
