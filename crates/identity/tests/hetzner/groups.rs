//! The InstanceGroups of a cluster and their servers, beside what kOps makes of the same (`GetCloudGroups` in its
//! `upup/pkg/fi/cloudup/hetzner/cloud.go`). Where ours is another one, docs/validation.md names the difference.

use serde_json::json;
use tidewaiter_identity::{CloudGroup, CloudGroups as _, MemberStatus, Sizes};
use tidewaiter_testkit::Scripted;

use crate::setup::{CLUSTER, Provider, fake, fleet, ours, pages};

const DOCS: &str = include_str!("../../../../docs/validation.md");
const LEAVING: &str = "Instances on their way out";

async fn ask(provider: &Provider) -> Vec<CloudGroup> {
    provider.hetzner.groups().await.unwrap()
}

#[tokio::test]
async fn which_servers_are_members() {
    let same = |what, server, kops| (what, server, kops, kops, "");
    for (what, server, kops, expected, difference) in [
        same("running", ours(), "nodes UpToDate"),
        same("starting", ours().status("starting"), "nodes UpToDate"),
        same("initializing", ours().status("initializing"), "nodes UpToDate"),
        same("off", ours().status("off"), "nodes UpToDate"),
        same("stopping", ours().status("stopping"), "nodes UpToDate"),
        same("a state of the future", ours().status("dreaming"), "nodes UpToDate"),
        ("deleting", ours().status("deleting"), "nodes UpToDate", "none", LEAVING),
        same(
            "kOps would make it otherwise",
            ours().label("kops.k8s.io/needs-update", ""),
            "nodes NeedsUpdate",
        ),
        same(
            "another group's",
            ours().label("kops.k8s.io/instance-group", "others"),
            "others UpToDate",
        ),
        same("no group's", ours().without_label("kops.k8s.io/instance-group"), "none"),
        same(
            "another cluster's",
            ours().label("kops.k8s.io/cluster", "other.example.com"),
            "none",
        ),
        same("no cluster's", ours().without_label("kops.k8s.io/cluster"), "none"),
    ] {
        let (_fake, provider) = fake(&[server]).await;
        let found = match &ask(&provider).await[..] {
            [] => "none".to_owned(),
            [group] => {
                assert_eq!(
                    (group.sizes, group.members.len()),
                    (Sizes::OfInstanceGroup, 1),
                    "{what}"
                );
                assert_eq!(group.members[0].provider_id.as_str(), "hcloud://42");
                format!("{} {:?}", group.instance_group, group.members[0].status)
            }
            more => panic!("{what}: {more:?}"),
        };
        assert_eq!(found, expected, "{what}; in kOps {kops}");
        assert_eq!(
            kops == expected,
            difference.is_empty() && DOCS.contains(difference),
            "{what}"
        );
    }
    assert!(DOCS.contains(LEAVING));
}

/// Without regard to the quota, 500 servers would cost three replicas more than a project may ask.
#[tokio::test]
async fn a_listing_of_many_pages_answers_several_queries() {
    for (servers, answers) in [(1, 1), (100, 1), (101, 2), (500, 5)] {
        let (fake, provider) = fake(&fleet(servers)).await;
        for query in 0..2 * answers {
            let groups = ask(&provider).await;
            assert_eq!(groups[0].members.len(), servers as usize);
            assert!(
                groups[0]
                    .members
                    .iter()
                    .all(|member| member.status == MemberStatus::UpToDate)
            );
            let expected = if query % answers == 0 { servers.div_ceil(50) } else { 0 };
            assert_eq!(
                pages(&fake.take_calls()).len(),
                expected as usize,
                "{servers}: query {query}"
            );
        }
    }
}

#[tokio::test]
async fn half_a_listing_is_no_answer() {
    let (fake, provider) = fake(&[ours()]).await;
    let malformed = json!({"servers": [{"id": 7, "labels": {"kops.k8s.io/cluster": CLUSTER}, "name": 7}],
        "meta": {"pagination": {"next_page": null}}});
    for (answer, words) in [
        (Scripted::json(&malformed), "unusable response (7 is malformed)"),
        (Scripted::Denied, "denied"),
        (Scripted::Failed, "the cloud failed"),
    ] {
        fake.script([answer]);
        let error = provider.hetzner.groups().await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(ask(&provider).await.len(), 1, "no answer is kept of a failed query");
}
