//! The managed instance groups of a cluster on Compute Engine: the result of each answer, the errors, and the number of
//! calls.

use std::time::Duration;

use serde_json::{Value, json};
use tidewaiter_identity::gce::{InstanceGroupManagers, api};
use tidewaiter_identity::{CloudGroup, CloudGroups as _, GroupsUnavailable, Member, MemberStatus, Sizes};
use tidewaiter_kit::CloudCalls;
use tidewaiter_testkit::fake_gce::{
    FakeGroup, FakeInstance, FakeTemplate, PROJECT, REGION, instance, regional_group, regional_template, template,
    zonal_group,
};
use tidewaiter_testkit::{FakeGce, Scripted};

use crate::setup::{CLUSTER, ZONE, count, groups_at, groups_with, rows as calls};
use crate::told::{Row, rows, told};

const ALL: &str = "instanceGroupManagers.aggregatedList";
const ZONAL: &str = "instanceGroupManagers.listManagedInstances";
const REGIONAL: &str = "regionInstanceGroupManagers.listManagedInstances";
const TEMPLATE: &str = "instanceTemplates.get";

async fn fake(groups: impl IntoIterator<Item = FakeGroup>) -> (FakeGce, InstanceGroupManagers, CloudCalls) {
    let fake = FakeGce::start().await;
    fake.groups(groups);
    fake.templates([nodes("v1"), nodes("v2"), theirs()]);
    let (provider, counted) = groups_at(&fake.endpoint()).await;
    (fake, provider, counted)
}

/// A template of ours, for the group `nodes`.
fn nodes(version: &str) -> FakeTemplate {
    template(&format!("nodes-{version}")).kops(CLUSTER, "nodes")
}

fn theirs() -> FakeTemplate {
    template("theirs").kops("other.example.com", "nodes")
}

fn named(zone: &str, name: &str) -> FakeInstance {
    instance(zone, name)
}

fn member(zone: &str, name: &str, status: MemberStatus) -> Member {
    Member {
        id: format!("{PROJECT}/{zone}/{name}"),
        provider_id: format!("gce://{PROJECT}/{zone}/{name}").parse().unwrap(),
        node_name: Some(name.parse().unwrap()),
        status,
        warm_pool: false,
    }
}

async fn ask(provider: &InstanceGroupManagers) -> Vec<CloudGroup> {
    let mut groups = provider.groups().await.unwrap();
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    groups
}

fn of_cloud(size: u32) -> Sizes {
    Sizes::OfCloud {
        target: size,
        min: size,
        max: size,
    }
}

/// The members of the only group, as `NAME STATUS`.
async fn members(provider: &InstanceGroupManagers) -> Vec<String> {
    let [group]: [CloudGroup; 1] = ask(provider).await.try_into().unwrap();
    let text = |member: Member| format!("{} {:?}", member.node_name.unwrap().as_str(), member.status);
    group.members.into_iter().map(text).collect()
}

#[tokio::test]
async fn the_groups_of_a_cluster() {
    use MemberStatus::{NeedsUpdate, UpToDate};
    let control_plane = template("cp-v1").kops(CLUSTER, "control-plane");
    let zone_b = "us-central1-b";
    let one_of = |name: &str| named(ZONE, name);
    let (fake, provider, counted) = fake([
        zonal_group(ZONE, "cp")
            .version(&control_plane)
            .lists(&one_of("cp-1"), &control_plane),
        // While it tries a new version, what either of the two made is as its operator wants it.
        regional_group(REGION, "nodes")
            .version(&nodes("v1"))
            .version(&nodes("v2"))
            .target_size(7)
            .lists(&one_of("n-1"), &nodes("v1"))
            .lists(&named(zone_b, "n-2"), &nodes("v2"))
            .lists(&one_of("n-3"), &nodes("v0"))
            .lists(&one_of("n-4"), &nodes("v1"))
            .doing("DELETING")
            .lists_from(&one_of("n-5"), "")
            .doing("ABANDONING")
            .lists(&one_of("n-6"), &nodes("v1"))
            .doing("RECREATING")
            .creates(ZONE, "n-7", &nodes("v2")),
        zonal_group(ZONE, "theirs").lists(&one_of("t-1"), &theirs()),
    ])
    .await;
    fake.templates([control_plane]);

    let group = |name: &str, instance_group: &str, size, members| CloudGroup {
        name: name.to_owned(),
        instance_group: instance_group.parse().unwrap(),
        role: None,
        sizes: of_cloud(size),
        members,
    };
    let expected = [
        group(
            "us-central1-a/cp",
            "control-plane",
            1,
            vec![member(ZONE, "cp-1", UpToDate)],
        ),
        group(
            "us-central1/nodes",
            "nodes",
            7,
            vec![
                member(ZONE, "n-1", UpToDate),
                member(ZONE, "n-3", NeedsUpdate),
                member(ZONE, "n-6", UpToDate),
                member(zone_b, "n-2", UpToDate),
            ],
        ),
    ];
    assert_eq!(ask(&provider).await, expected);
    assert_eq!(counted.counted(api::LIST_ALL_GROUPS, "ok"), 1);
    assert_eq!(counted.counted(api::GET_GLOBAL_TEMPLATE, "ok"), 4);
}

#[tokio::test]
async fn which_groups_are_the_clusters() {
    let bare = || template("bare");
    let regional = || regional_template(REGION, "regional").kops(CLUSTER, "nodes");
    let listing = |template: &str| zonal_group(ZONE, "g").lists_from(&named(ZONE, "n-1"), template);
    let group = || zonal_group(ZONE, "g");
    for (what, group, expected) in [
        ("one version", group().version(&nodes("v1")), Some("nodes")),
        (
            "two of one group",
            group().version(&nodes("v1")).version(&nodes("v2")),
            Some("nodes"),
        ),
        ("another cluster's", group().version(&theirs()), None),
        ("nobody's", group().version(&bare()), None),
        ("theirs and nobody's", group().version(&theirs()).version(&bare()), None),
        ("a template of the region", group().version(&regional()), Some("nodes")),
        ("no template", group(), None),
        (
            "a template of another project",
            listing("projects/other-project/global/instanceTemplates/nodes-v1"),
            None,
        ),
        ("no link", listing("nodes-v1"), None),
    ] {
        let (fake, provider, _) = fake([group]).await;
        fake.templates([bare(), regional()]);
        let groups = ask(&provider).await;
        let names: Vec<&str> = groups.iter().map(|group| group.instance_group.as_str()).collect();
        assert_eq!(names, Vec::from_iter(expected), "{what}");
    }
}

/// Half of a group must not be reported as the whole, and a group that is left out as if it were not there.
#[tokio::test]
async fn a_group_of_ours_that_cannot_be_read_completely_is_unknown() {
    let other = || template("other").kops(CLUSTER, "others");
    let bare = || template("bare").kops(CLUSTER, "nodes").without_metadata("cluster-name");
    let misnamed = || template("misnamed").kops(CLUSTER, "No Name");
    let group = || zonal_group(ZONE, "b").version(&nodes("v1"));
    let elsewhere = template("v1");
    let mixed = "its versions are not all of one InstanceGroup of this cluster";
    for (what, group, expected) in [
        (
            "one without a cluster",
            group().version(&bare()),
            "global/instanceTemplates/bare, of one of its versions, names no InstanceGroup of this cluster",
        ),
        (
            "one of another cluster",
            group().version(&theirs()),
            "global/instanceTemplates/theirs, of one of its versions, names no InstanceGroup of this cluster",
        ),
        (
            "no name of a group",
            zonal_group(ZONE, "b").version(&misnamed()),
            "global/instanceTemplates/misnamed, of one of its versions, names no InstanceGroup of this cluster",
        ),
        ("two of two groups", group().version(&other()), mixed),
        (
            "one in another region",
            group().version(&regional_template("us-east1", "v1")),
            mixed,
        ),
        (
            "one that is gone",
            group().version(&elsewhere),
            "gce:compute.instanceTemplates.get: ",
        ),
    ] {
        let whole = zonal_group(ZONE, "a").version(&nodes("v1"));
        let (fake, provider, _) = fake([whole, group]).await;
        fake.templates([other(), bare(), misnamed()]);
        let GroupsUnavailable(words) = provider.groups().await.unwrap_err();
        assert!(words.contains(expected), "{what}: {words}");
        if !expected.starts_with("gce:") {
            let named =
                "managed instance group zones/us-central1-a/instanceGroupManagers/b cannot be read completely: ";
            assert!(words.starts_with(named), "{what}: {words}");
            assert!(words.ends_with("kops rolling-update cluster --yes."), "{what}: {words}");
        }
    }
}

#[tokio::test]
async fn another_clusters_template_that_cannot_be_read_leaves_ours_known() {
    let gone = template("gone");
    let ours = || zonal_group(ZONE, "a-nodes-ours-example-com").version(&nodes("v1"));
    let known = || zonal_group(ZONE, "a-nodes-other-example-com").version(&theirs());
    for (what, group, known_still) in [
        (
            "named as kOps names the groups of a cluster that another template names",
            zonal_group(ZONE, "b-nodes-other-example-com").version(&gone),
            true,
        ),
        (
            "with a version of theirs",
            zonal_group(ZONE, "b").version(&theirs()).version(&gone),
            true,
        ),
        (
            "named as ours",
            zonal_group(ZONE, "b-nodes-ours-example-com").version(&gone),
            false,
        ),
        ("nobody knows whose", zonal_group(ZONE, "b").version(&gone), false),
    ] {
        for answer in [Scripted::Denied, Scripted::Failed, Scripted::error(404, "notFound")] {
            let (fake, provider, _) = fake([ours(), known(), group.clone()]).await;
            fake.fail("global/gone", answer.clone());
            let groups = provider.groups().await;
            assert_eq!(groups.is_ok(), known_still, "{what}: {answer:?}: {groups:?}");
            if let Ok(groups) = groups {
                assert_eq!(groups.len(), 1, "{what}: {groups:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_instance_counts_once_in_whatever_order() {
    let (v1, v2) = (nodes("v1"), nodes("v2"));
    let one = named(ZONE, "n-1");
    let group = || zonal_group(ZONE, "g").version(&v1);
    for (group, expected) in [
        (group().lists(&one, &v1).lists(&one, &v1), "n-1 UpToDate"),
        (group().lists(&one, &v1).lists(&one, &v2), "n-1 NeedsUpdate"),
        (group().lists(&one, &v2).lists(&one, &v1), "n-1 NeedsUpdate"),
        (
            group().lists(&one, &v2).doing("DELETING").lists(&one, &v1),
            "n-1 UpToDate",
        ),
        (group().lists_from(&one, ""), "n-1 NeedsUpdate"),
    ] {
        let (_fake, provider, _) = fake([group]).await;
        assert_eq!(members(&provider).await, [expected]);
    }
}

#[tokio::test]
async fn a_template_is_read_once_as_long_as_a_group_uses_it() {
    let made_from = |version: &str| zonal_group(ZONE, "g").version(&nodes(version));
    let (fake, provider, _) = fake([made_from("v1"), zonal_group(ZONE, "t").version(&theirs())]).await;
    for (version, reads) in [("v1", 2), ("v1", 0), ("v2", 1), ("v2", 0), ("v1", 1)] {
        fake.groups([made_from(version)]);
        fake.clear_calls();
        assert_eq!(ask(&provider).await.len(), 1);
        assert_eq!(count(&fake.calls(), TEMPLATE), reads, "{version}");
    }
    // What was read is kept, though another template could not be.
    fake.groups([made_from("v2"), zonal_group(ZONE, "u").version(&nodes("v3"))]);
    for reads in [2, 1] {
        fake.clear_calls();
        provider.groups().await.unwrap_err();
        assert_eq!(count(&fake.calls(), TEMPLATE), reads);
    }
}

#[tokio::test]
async fn pages_are_read_to_their_end() {
    let fleet = (1..=1_200).fold(regional_group(REGION, "nodes").paginated(), |group, number| {
        group.lists(&FakeInstance::numbered(number), &nodes("v1"))
    });
    let others = (0..500).map(|number| zonal_group(ZONE, &format!("t{number:03}")).version(&theirs()));
    let (fake, provider, _) = fake(others.chain([fleet])).await;
    let groups = ask(&provider).await;
    assert_eq!(
        (groups.len(), groups[0].members.len(), groups[0].sizes),
        (1, 1_200, of_cloud(1_200))
    );
    let mut asked = calls(&fake.take_calls());
    asked.sort_unstable();
    let expected = [
        (ALL, 1),
        (ALL, 500),
        (TEMPLATE, 1),
        (TEMPLATE, 1),
        (REGIONAL, 200),
        (REGIONAL, 500),
        (REGIONAL, 500),
    ];
    assert_eq!(asked, expected);

    let page = json!({"kind": "compute#instanceGroupManagerAggregatedList", "nextPageToken": "0"});
    fake.script_for(ALL, (0..200).map(|_| Scripted::json(&page)));
    fake.clear_calls();
    let GroupsUnavailable(words) = provider.groups().await.unwrap_err();
    assert!(
        words.contains("unusable response (the pagination does not end)"),
        "{words}"
    );
    assert_eq!(count(&fake.calls(), ALL), 2, "the first token that repeats ends it");
}

fn trouble() -> Vec<Row> {
    let own = [
        (Scripted::Throttled, "throttled", ""),
        (Scripted::Denied, "denied", "403 forbidden"),
        (Scripted::Unauthenticated, "no_credentials", "401 authError"),
        (Scripted::Failed, "failed", "503 backendError"),
        (Scripted::error(400, "invalid"), "failed", "400 invalid"),
    ];
    rows("Compute Engine", own)
}

/// One zonal and one regional group, so that every call is made.
fn two_groups() -> [FakeGroup; 2] {
    let (zonal, regional) = (zonal_group(ZONE, "a"), regional_group(REGION, "b"));
    [
        zonal.lists(&named(ZONE, "a-1"), &nodes("v1")),
        regional.lists(&named(ZONE, "b-1"), &nodes("v1")),
    ]
}

#[tokio::test]
async fn what_keeps_each_call_from_answering() {
    let (fake, _, _) = fake(two_groups()).await;
    for (method, api) in [
        (ALL, api::LIST_ALL_GROUPS),
        (ZONAL, api::LIST_ZONAL_GROUP),
        (REGIONAL, api::LIST_REGIONAL_GROUP),
        (TEMPLATE, api::GET_GLOBAL_TEMPLATE),
    ] {
        for (answer, outcome, detail) in trouble() {
            // One that has not read the template.
            let (provider, counted) = groups_at(&fake.endpoint()).await;
            fake.clear_calls();
            fake.script_for(method, [answer.clone()]);
            let GroupsUnavailable(words) = provider.groups().await.unwrap_err();
            let expected = format!("{api}{}. ", told(outcome, &detail));
            assert!(words.starts_with(&expected), "{answer:?}: {words}");
            assert_eq!(counted.counted(api, outcome), 1, "{answer:?}");
            assert_eq!(count(&fake.calls(), method), 1, "no retries: {answer:?}");
            assert_eq!(ask(&provider).await.len(), 2, "and is well again");
        }
        let (late, counted) = groups_with(&fake.endpoint(), Duration::from_secs(5)).await;
        fake.script_for(method, [Scripted::Hang]);
        let GroupsUnavailable(words) = late.groups().await.unwrap_err();
        assert!(
            words.starts_with(&format!("{api}: not reachable (timeout). ")),
            "{words}"
        );
        assert_eq!(counted.counted(api, "timeout"), 1);
    }
}

#[tokio::test]
async fn a_zone_or_a_group_that_is_not_told_is_no_answer() {
    let (fake, provider, _) = fake(two_groups()).await;
    let failed = |api: &str, detail: &str| format!("{api}: the cloud failed ({detail}). ");
    let expect = async |expected: String| {
        let GroupsUnavailable(words) = provider.groups().await.unwrap_err();
        assert!(words.starts_with(&expected), "{words}");
    };
    let silent = || failed(api::LIST_ALL_GROUPS, "a zone or region is unreachable");
    let answer = |scopes: Value, unreachable: Value| {
        let kind = "compute#instanceGroupManagerAggregatedList";
        Scripted::json(&json!({"kind": kind, "items": scopes, "unreachables": unreachable}))
    };
    let warning = json!({"zones/us-central1-f": {"warning": {"code": "UNREACHABLE"}}});
    for part in [
        answer(warning, json!([])),
        answer(json!({}), json!(["zones/us-central1-f"])),
    ] {
        fake.script_for(ALL, [part]);
        expect(silent()).await;
    }
    // Groups that go between one call and the next.
    fake.script_for(ZONAL, [Scripted::error(404, "notFound")]);
    expect(failed(api::LIST_ZONAL_GROUP, "not found")).await;
    assert_eq!(ask(&provider).await.len(), 2, "and is well again");
}

#[tokio::test]
async fn what_makes_no_sense_is_no_answer() {
    let (fake, provider, _) = fake(two_groups()).await;
    let url = nodes("v1").url();
    let scoped = |group: Value| {
        let items = json!({"zones/us-central1-a": {"instanceGroupManagers": [group]}});
        Scripted::json(&json!({"kind": "compute#instanceGroupManagerAggregatedList", "items": items}))
    };
    let row = |mut row: Value| {
        row["instanceStatus"] = "RUNNING".into();
        Scripted::json(&json!({"managedInstances": [row]}))
    };
    let size = "zones/us-central1-a/instanceGroupManagers/a has no size";
    let unnamed = "zones/us-central1-a/instanceGroupManagers/a lists an instance without a name";
    let elsewhere = "projects/other-project/zones/us-central1-a/instances/a-1";
    for (method, answer, api, detail) in [
        (
            ALL,
            scoped(json!({"instanceTemplate": url})),
            api::LIST_ALL_GROUPS,
            "a group without a name",
        ),
        (
            ALL,
            scoped(json!({"name": "a", "instanceTemplate": url})),
            api::LIST_ALL_GROUPS,
            size,
        ),
        (
            ALL,
            scoped(json!({"name": "a", "instanceTemplate": url, "targetSize": -1})),
            api::LIST_ALL_GROUPS,
            size,
        ),
        (
            ALL,
            Scripted::json(&json!({"kind": "compute#instanceList"})),
            api::LIST_ALL_GROUPS,
            "no list of managed instance groups",
        ),
        (ZONAL, row(json!({"id": "7"})), api::LIST_ZONAL_GROUP, unnamed),
        (ZONAL, row(json!({"instance": "a-1"})), api::LIST_ZONAL_GROUP, unnamed),
        (
            ZONAL,
            row(json!({"instance": elsewhere})),
            api::LIST_ZONAL_GROUP,
            unnamed,
        ),
    ] {
        fake.script_for(method, [answer]);
        let GroupsUnavailable(words) = provider.groups().await.unwrap_err();
        let expected = format!("{api}: unusable response ({detail}). ");
        assert!(words.starts_with(&expected), "{words}");
    }
}
