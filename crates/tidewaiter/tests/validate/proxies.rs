//! The servers that are reached through a proxy, and those that never are.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use tidewaiter_testkit::{ConnectProxy, FakeGce};
use tokio::process::Command;

use crate::world::{World, alice, command, finished, text, unknown};

/// An address that nobody resolves: a client that reaches it came through the proxy, which leads to the API server.
const ELSEWHERE: &str = "https://api.test.example.com";

/// The path to the API server.
#[derive(Debug)]
enum Reached {
    Through,
    Directly,
    /// Without the proxy, and there is no other way.
    No,
}

/// The command as alice runs it for a cluster with these fields in its kubeconfig.
fn in_cluster(world: &World, fields: &Value, environment: &[(&str, &str)]) -> Command {
    let kubeconfig = world.cluster.kubeconfig_with(&alice(), fields).display().to_string();
    let mut command = command(&world.store.url(), &kubeconfig, &["-o", "json"]);
    command.envs(world.ec2.environment()).envs(environment.iter().copied());
    command
}

/// The `CONNECT` lines since the last time.
fn connected(proxy: &ConnectProxy, before: &mut usize) -> Vec<String> {
    let seen = proxy.seen();
    let lines = seen[*before..].iter().filter_map(|head| head.lines().next());
    let lines = lines.map(str::to_owned).collect();
    *before = seen.len();
    lines
}

fn server_is_unknown(output: &Output) -> bool {
    unknown(output).iter().any(|(part, _)| part == "Nodes")
}

#[tokio::test]
async fn a_kubeconfig_takes_the_proxy_of_the_environment_as_kubectl_does() {
    let world = World::start().await;
    let proxy = ConnectProxy::start(world.cluster.address()).await;
    let (url, with_password) = (
        format!("http://{}", proxy.address()),
        format!("http://alice:s%40cret@{}", proxy.address()),
    );
    let (elsewhere, here) = (json!({"server": ELSEWHERE}), json!({"server": world.cluster.url()}));
    let chosen = json!({"server": ELSEWHERE, "proxy-url": url});
    let mut before = 0;
    for (cluster, environment, reached) in [
        (&elsewhere, &[("HTTPS_PROXY", url.as_str())][..], Reached::Through),
        (
            &elsewhere,
            &[("https_proxy", &with_password), ("HTTPS_PROXY", "")],
            Reached::Through,
        ),
        (
            &elsewhere,
            &[("HTTPS_PROXY", &url), ("NO_PROXY", "example.com:6443,10.0.0.0/8")],
            Reached::Through,
        ),
        (
            &elsewhere,
            &[("HTTPS_PROXY", &url), ("NO_PROXY", "10.0.0.0/8, .example.com:443")],
            Reached::No,
        ),
        (&elsewhere, &[("HTTPS_PROXY", &url), ("NO_PROXY", "*")], Reached::No),
        (&here, &[("HTTPS_PROXY", &url)], Reached::Directly),
        (&chosen, &[("NO_PROXY", "*")], Reached::Through),
    ] {
        let output = finished(in_cluster(&world, cluster, environment)).await;
        let lines = connected(&proxy, &mut before);
        let case = format!("{reached:?}: {cluster} with {environment:?}: {output:?}, {lines:?}");
        let is_through = lines
            .iter()
            .any(|line| line == "CONNECT api.test.example.com:443 HTTP/1.1");
        assert_eq!(is_through, matches!(reached, Reached::Through), "{case}");
        assert!(is_through || lines.is_empty(), "{case}");
        match reached {
            Reached::Through | Reached::Directly => assert_eq!(output.status.code(), Some(0), "{case}"),
            Reached::No => assert!(server_is_unknown(&output), "{case}"),
        }
    }
    let passwords = proxy.seen();
    let passwords = passwords.iter().filter(|head| head.contains("YWxpY2U6c0BjcmV0"));
    assert_ne!(passwords.count(), 0, "alice:s@cret in base64");
}

#[tokio::test]
async fn an_https_proxy_is_trusted_as_the_system_trusts_it() {
    let world = World::start().await;
    let proxy = ConnectProxy::start_with_tls(world.cluster.address()).await;
    let fields = json!({"server": ELSEWHERE, "proxy-url": format!("https://{}", proxy.address())});
    let ran = async |certificates: &Path| {
        let certificates = certificates.display().to_string();
        finished(in_cluster(&world, &fields, &[("SSL_CERT_FILE", &certificates)])).await
    };
    let output = ran(&proxy.certificate()).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let trusted = proxy.seen().len();
    assert_ne!(trusted, 0);

    let output = ran(&world.cluster.folder().join("pki/ca.crt")).await;
    assert!(server_is_unknown(&output), "{output:?}");
    assert_eq!(proxy.seen().len(), trusted, "it was told nothing");
}

#[tokio::test]
async fn a_proxy_that_cannot_be_used_is_named_without_its_password() {
    let world = World::start().await;
    for (url, words) in [
        (
            "ftp://user:secret@proxy.example",
            ["ftp://proxy.example", "socks5://HOST:PORT"],
        ),
        ("http://user:secret@ proxy", ["not a URL such as http://", "proxy-url"]),
    ] {
        let fields = json!({"server": ELSEWHERE, "proxy-url": url});
        let output = finished(in_cluster(&world, &fields, &[])).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[tokio::test]
async fn this_machine_and_metadata_services_are_never_asked_through_a_proxy() {
    let (world, gce) = (World::start().await, FakeGce::start().await);
    let proxy = ConnectProxy::start(world.cluster.address()).await;
    let url = format!("http://{}", proxy.address());
    let ran = async |environment: &[(&str, String)]| {
        let mut command = in_cluster(&world, &json!({"server": world.cluster.url()}), &[("NO_PROXY", "")]);
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env(name, &url).env(name.to_lowercase(), &url);
        }
        for (name, value) in environment {
            match value.as_str() {
                "" => command.env_remove(name),
                value => command.env(name, value),
            };
        }
        finished(command).await
    };
    let unset = |name| (name, String::new());

    let output = ran(&[]).await;
    assert_eq!(output.status.code(), Some(0), "EC2 is on this machine: {output:?}");
    ran(&[unset("AWS_ACCESS_KEY_ID"), unset("AWS_EC2_METADATA_DISABLED")]).await;

    let endpoint = ("TIDEWAITER_GCE_ENDPOINT", gce.endpoint());
    let project = ("TIDEWAITER_PROJECT", "our-project".to_owned());
    world
        .store
        .put_cluster(|cluster| cluster.set(&["spec", "cloudProvider"], "gce"));
    let google = [gce.environment(), vec![endpoint.clone(), project.clone()]].concat();
    ran(&google).await;
    assert_ne!(gce.calls().len(), 0, "Compute Engine is on this machine");
    ran(&[endpoint, project]).await;

    assert_eq!(proxy.seen(), [""; 0]);
}
