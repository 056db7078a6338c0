//! Whatever is away, there is a verdict within half a minute that says what is not known and why.

use std::process::Output;
use std::time::Duration;

use tidewaiter_testkit::Scripted;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::world::{Store, aws, command, unknown};

/// The promised limit, and the time to start a process on a busy machine.
const LIMIT: Duration = Duration::from_secs(30 + 45);

async fn in_time(mut command: Command) -> Output {
    let output = tokio::time::timeout(LIMIT, command.output()).await;
    output.expect("there is a verdict in time").unwrap()
}

/// A port that takes connections and never answers.
async fn deaf() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn cannot_tell(output: &Output, expected: &[(&str, &str)]) {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let unknown = unknown(output);
    for (part, words) in expected {
        let found = unknown.iter().find(|(name, _)| name == part);
        let (_, reason) = found.unwrap_or_else(|| panic!("{part} is unknown: {unknown:?}"));
        assert!(reason.contains(words), "{part}: {words} in {reason}");
    }
}

#[tokio::test]
async fn an_api_server_that_is_away_or_deaf_leaves_nodes_and_pods_unknown() {
    let (store, ec2) = (Store::new(), aws().await);
    let (_listener, port) = deaf().await;
    let (closed, open) = ("https://127.0.0.1:1".to_owned(), format!("https://127.0.0.1:{port}"));
    for (server, words) in [(closed, "cannot be listed"), (open, "did not return")] {
        let kubeconfig = store.kubeconfig(&server);
        let mut command = command(&store.url(), &kubeconfig, &["-o", "json"]);
        command.envs(ec2.environment());
        let address = format!("(the API server is {server})");
        cannot_tell(
            &in_time(command).await,
            &[
                ("Nodes", words),
                ("Pods", words),
                ("Nodes", &address),
                ("Pods", &address),
            ],
        );
    }
}

#[tokio::test]
async fn a_state_store_that_is_away_or_deaf_leaves_all_that_it_says_unknown() {
    let (store, ec2) = (Store::new(), aws().await);
    let kubeconfig = store.kubeconfig("https://127.0.0.1:1");
    let (_listener, port) = deaf().await;
    for port in [1, port] {
        let mut command = command("s3://bucket", &kubeconfig, &["-o", "json"]);
        command.envs(ec2.environment());
        command.env("TIDEWAITER_STATE_ENDPOINT", format!("http://127.0.0.1:{port}"));
        let parts = [
            ("InstanceGroups", "the state store does not return"),
            ("InstanceGroups", "the host is 127.0.0.1"),
            ("cloud", "cluster-completed.spec"),
            ("dns", "cluster-completed.spec"),
            ("Nodes", "nodes cannot be listed"),
        ];
        cannot_tell(&in_time(command).await, &parts);
    }
}

#[tokio::test]
async fn a_broken_file_is_named_and_no_failure_of_the_cluster() {
    let (store, ec2) = (Store::new(), aws().await);
    let kubeconfig = store.kubeconfig("https://127.0.0.1:1");
    store.put("instancegroup/nodes", "spec: [");
    store.put_cluster(|cluster| cluster.set(&["spec", "cloudProvider"], "moon"));
    let mut command = command(&store.url(), &kubeconfig, &["-o", "json"]);
    command.envs(ec2.environment());
    let parts = [
        ("InstanceGroups", "instancegroup/nodes: is not valid YAML"),
        ("cloud", "spec.cloudProvider: is \"moon\""),
    ];
    cannot_tell(&in_time(command).await, &parts);
}

#[tokio::test]
async fn a_cloud_that_does_not_answer_leaves_its_groups_unknown() {
    let (store, ec2) = (Store::new(), aws().await);
    let kubeconfig = store.kubeconfig("https://127.0.0.1:1");
    ec2.always(Some(Scripted::Hang));
    let mut command = command(&store.url(), &kubeconfig, &["-o", "json"]);
    command.envs(ec2.environment());
    cannot_tell(
        &in_time(command).await,
        &[("cloud", "autoscaling:DescribeAutoScalingGroups")],
    );
}
