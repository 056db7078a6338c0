//! The membership of an instance in a managed instance group, and of a group in an InstanceGroup, compared with kOps.
//!
//! kOps' results are those of `GetCloudGroups` and `matchInstanceGroup` in its
//! `upup/pkg/fi/cloudup/gce/instancegroups.go`. Where ours is another one, docs/validation.md names the difference.

use tidewaiter_identity::{CloudGroup, CloudGroups as _, MemberStatus};
use tidewaiter_testkit::FakeGce;
use tidewaiter_testkit::fake_gce::{FakeGroup, FakeTemplate, REGION, instance, regional_group, template, zonal_group};

use crate::setup::{CLUSTER, ZONE, groups_at};

const DOCS: &str = include_str!("../../../../docs/validation.md");
const LEAVING: &str = "Instances on their way out";
const BY_TEMPLATE: &str = "Managed instance groups by template";
const REGIONAL: &str = "Regional groups";
const TWO_VERSIONS: &str = "Two versions";
const PARTLY: &str = "Groups that cannot be read";

fn nodes(version: &str) -> FakeTemplate {
    template(&format!("nodes-{version}")).kops(CLUSTER, "nodes")
}

/// As kOps names the group of `nodes` in this zone.
fn group() -> FakeGroup {
    zonal_group(ZONE, "a-nodes-ours-example-com").version(&nodes("v1"))
}

async fn ask(group: FakeGroup) -> Result<Vec<CloudGroup>, String> {
    let fake = FakeGce::start().await;
    fake.groups([group]);
    let theirs = template("theirs").kops("other.example.com", "nodes");
    fake.templates([nodes("v0"), nodes("v1"), nodes("v2"), theirs]);
    let (provider, _) = groups_at(&fake.endpoint()).await;
    provider.groups().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn which_instances_are_members() {
    let listed = |action: &str| group().lists(&instance(ZONE, "n-1"), &nodes("v1")).doing(action);
    let absent = |action: &str| group().creates(ZONE, "n-1", &nodes("v1")).doing(action);
    let same = |what, group, kops| (what, group, kops, kops, "");
    let made_from = |version: &str| group().lists(&instance(ZONE, "n-1"), &nodes(version));
    let mut cases = vec![
        same("deleted by hand", absent("NONE"), "none"),
        same("being created", absent("CREATING"), "none"),
        same("being created once", absent("CREATING_WITHOUT_RETRIES"), "none"),
        same("being recreated, and gone", absent("RECREATING"), "none"),
        same("deleted", absent("DELETING"), "none"),
        same("created", listed("CREATING"), "UpToDate"),
        ("being deleted", listed("DELETING"), "UpToDate", "none", LEAVING),
        ("being abandoned", listed("ABANDONING"), "UpToDate", "none", LEAVING),
        same("of the template of before", made_from("v0"), "NeedsUpdate"),
        same(
            "of no version",
            group().lists_from(&instance(ZONE, "n-1"), ""),
            "NeedsUpdate",
        ),
        (
            "of the other version",
            made_from("v2").version(&nodes("v2")),
            "NeedsUpdate",
            "UpToDate",
            TWO_VERSIONS,
        ),
    ];
    for action in [
        "NONE",
        "RECREATING",
        "REFRESHING",
        "RESTARTING",
        "RESUMING",
        "STARTING",
        "STOPPING",
        "SUSPENDING",
        "VERIFYING",
        "AN_ACTION_OF_THE_FUTURE",
    ] {
        cases.push(same(action, listed(action), "UpToDate"));
    }
    for (what, group, kops, ours, difference) in cases {
        let groups = ask(group).await.unwrap();
        let found = match &groups[0].members[..] {
            [] => "none",
            [member] if member.status == MemberStatus::UpToDate => "UpToDate",
            [member] if member.status == MemberStatus::NeedsUpdate => "NeedsUpdate",
            other => panic!("{what}: {other:?}"),
        };
        assert_eq!(found, ours, "{what}; in kOps {kops}");
        assert_eq!(kops == ours, difference.is_empty(), "{what}");
        assert!(
            DOCS.contains(difference),
            "docs/validation.md does not name {difference:?}"
        );
    }
}

#[tokio::test]
async fn which_groups_are_an_instance_groups() {
    let same = |what, group, kops| (what, group, kops, kops, "");
    let theirs = template("theirs").kops("other.example.com", "nodes");
    let gone = template("gone").kops(CLUSTER, "nodes");
    for (what, group, kops, ours, difference) in [
        same("as kOps makes it", group(), "nodes"),
        same(
            "of another cluster",
            zonal_group(ZONE, "theirs").version(&theirs),
            "none",
        ),
        (
            "of another name",
            zonal_group(ZONE, "any-name").version(&nodes("v1")),
            "none",
            "nodes",
            BY_TEMPLATE,
        ),
        (
            "of a region",
            regional_group(REGION, "nodes-ours-example-com").version(&nodes("v1")),
            "none",
            "nodes",
            REGIONAL,
        ),
        (
            "with a template that is gone",
            zonal_group(ZONE, "a-nodes-ours-example-com").version(&gone),
            "none",
            "unknown",
            PARTLY,
        ),
        (
            "with a version of another cluster",
            group().version(&theirs),
            "nodes",
            "unknown",
            PARTLY,
        ),
    ] {
        let groups = ask(group).await;
        let found = match groups.as_deref() {
            Err(_) => "unknown",
            Ok([]) => "none",
            Ok([group]) => group.instance_group.as_str(),
            other => panic!("{what}: {other:?}"),
        };
        assert_eq!(found, ours, "{what}; in kOps {kops}");
        assert_eq!(kops == ours, difference.is_empty(), "{what}");
        assert!(
            DOCS.contains(difference),
            "docs/validation.md does not name {difference:?}"
        );
    }
}
