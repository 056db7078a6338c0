//! The answers about one server.

use tidewaiter_api::Lifecycle;
use tidewaiter_identity::Identity;
use tidewaiter_testkit::fake_hetzner::server;

use crate::ask::reason;
use crate::setup::{CLUSTER, fake, ours};

const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";
const GROUP_LABEL: &str = "kops.k8s.io/instance-group";

#[tokio::test]
async fn a_server_of_ours() {
    let server = ours()
        .name("Nodes-1A2B")
        .ip("10.1.2.3")
        .alias("10.1.2.77")
        .public_ip("203.0.113.7")
        .public_v6("2001:db8:1:2::/64");
    let (_fake, provider) = fake(std::slice::from_ref(&server)).await;
    let expected = Identity {
        instance: "42".to_owned(),
        group: "nodes".parse().unwrap(),
        starting: false,
        zone: "fsn1".to_owned(),
        lifecycle: Lifecycle::OnDemand,
        names: vec!["nodes-1a2b".to_owned()],
        // Public ones too: a Node without a private network lists them as its own.
        addresses: ["10.1.2.3", "10.1.2.77", "203.0.113.7", "2001:db8:1:2::1"]
            .map(|address| address.parse().unwrap())
            .to_vec(),
        tag_labels: Vec::new(),
    };
    assert_eq!(provider.ask_one(&server).await.unwrap(), expected);
}

#[tokio::test]
async fn what_one_server_can_say() {
    for (described, expected, forged) in [
        (ours(), "ok", false),
        (ours().status("starting"), "ok", false),
        (ours().ip(""), "ok", false),
        (ours().public_v6("nonsense"), "ok", false),
        (ours().status("initializing"), "NotRunning", false),
        (ours().status("stopping"), "NotRunning", false),
        (ours().status("off"), "NotRunning", false),
        (ours().status("deleting"), "NotRunning", false),
        (ours().status("migrating"), "NotRunning", false),
        (ours().status("rebuilding"), "NotRunning", false),
        (ours().status("unknown"), "NotRunning", false),
        (ours().status("a-state-of-the-future"), "NotRunning", false),
        (server(42, "foreign").status("off"), "NotRunning", false),
        (ours().status(""), "Unavailable", false),
        (ours().location(""), "Unavailable", false),
        (ours().name(""), "Unavailable", false),
        (ours().label(CLUSTER_LABEL, "other.example.com"), "ForeignProject", true),
        (ours().label(CLUSTER_LABEL, "OURS.example.com"), "ForeignProject", true),
        (ours().label(CLUSTER_LABEL, ""), "ForeignProject", true),
        (ours().without_label(CLUSTER_LABEL), "ForeignProject", false),
        (ours().without_label(GROUP_LABEL), "NotInGroup", false),
        (ours().label(GROUP_LABEL, ""), "NotInGroup", false),
        (ours().label(GROUP_LABEL, "Nodes"), "NotInGroup", false),
        (ours().label(GROUP_LABEL, "../config"), "NotInGroup", false),
        // The label that kOps uses on other clouds is not read here.
        (
            ours()
                .without_label(GROUP_LABEL)
                .label("kops.k8s.io/instancegroup", "nodes"),
            "NotInGroup",
            false,
        ),
    ] {
        let (_fake, provider) = fake(std::slice::from_ref(&described)).await;
        let result = provider.ask_one(&described).await;
        assert_eq!(reason(&result), expected, "{described:?}");
        if let Err(refusal) = result {
            assert_eq!(refusal.is_forgery(), forged, "{refusal}");
        }
    }
}

#[tokio::test]
async fn what_is_missing_is_called_a_label() {
    for described in [ours().without_label(CLUSTER_LABEL), ours().without_label(GROUP_LABEL)] {
        let (_fake, provider) = fake(std::slice::from_ref(&described)).await;
        let refusal = provider.ask_one(&described).await.unwrap_err();
        assert!(refusal.to_string().contains("has no label that"), "{refusal}");
        assert!(
            refusal.remedy().contains("the labels that kOps sets on the server"),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn a_label_with_control_characters_is_shown_safely() {
    let described = server(42, "nodes-1a2b").kops(CLUSTER, "a\u{9}\u{85}b");
    let (_fake, provider) = fake(std::slice::from_ref(&described)).await;
    let refusal = provider.ask_one(&described).await.unwrap_err();
    assert_eq!(refusal.reason(), "NotInGroup");
    assert!(!refusal.to_string().contains(char::is_control), "{refusal}");
}
