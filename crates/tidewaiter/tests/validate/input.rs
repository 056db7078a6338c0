//! What is given wrongly: one line that names the flag, the value and what helps; nothing judged, nothing printed, code 1.

use std::process::Output;

use crate::world::{CLUSTER, Store, bare, command, finished, text};

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
        (&["-o", "xml"][..], &["'xml'", "--output", "table, json, yaml"][..]),
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
        "The context with the cluster's name",
    ] {
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(word), "{word} in {said}");
    }
}
