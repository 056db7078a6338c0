//! What Auto Scaling says of a cluster's groups, from the fake: what each answer is read as, what keeps it from coming, and how
//! many calls it costs.

use std::time::Duration;

use tidewaiter_identity::aws::{API, AutoScaling, groups};
use tidewaiter_identity::{CloudGroup, CloudGroups as _, GroupsUnavailable, Member, MemberStatus};
use tidewaiter_testkit::fake_ec2::{self, FakeGroup, FakeInstance, FakeMember, group, instance, instances, member};
use tidewaiter_testkit::{FakeEc2, Scripted};

use crate::setup::{CLUSTER, SECRET, TOKEN, credentials, groups_at, groups_with, no_credentials};
use crate::told::{Row, rows, told};

const GROUPS: &str = "DescribeAutoScalingGroups";
const WARM_POOL: &str = "DescribeWarmPool";
const TEMPLATES: &str = "DescribeLaunchTemplates";
const INSTANCES: &str = "DescribeInstances";

/// Every call that there is, and how IAM names it.
const CALLS: [(&str, &str); 4] = [
    (GROUPS, groups::DESCRIBE_GROUPS),
    (WARM_POOL, groups::DESCRIBE_WARM_POOL),
    (TEMPLATES, groups::DESCRIBE_LAUNCH_TEMPLATES),
    (INSTANCES, API),
];

const NAME: &str = "nodes.ours.example.com";

async fn fake(groups: impl IntoIterator<Item = FakeGroup>) -> (FakeEc2, AutoScaling) {
    let fake = FakeEc2::start().await;
    fake.groups(groups);
    let (provider, _) = groups_at(&fake.endpoint());
    (fake, provider)
}

fn ours(name: &str) -> FakeGroup {
    group(name).kops(CLUSTER, "nodes").template("lt-1", "3")
}

fn id(number: u32) -> String {
    format!("i-{number:017x}")
}

/// In service and up to date.
fn up(number: u32) -> FakeMember {
    member(&id(number)).template("lt-1", "3")
}

fn old(number: u32) -> FakeMember {
    up(number).template("lt-1", "2")
}

/// As kOps leaves it: out of its group, marked, and still running.
fn detached_from(group: &str, number: u32) -> FakeInstance {
    let detached = instance(&id(number)).kops(CLUSTER, "nodes");
    detached.tag("kops.k8s.io/detached-from-asg", group)
}

/// Each call that was answered, with its rows, sorted.
fn calls(fake: &FakeEc2) -> Vec<(&'static str, usize)> {
    let mut calls: Vec<_> = fake
        .take_calls()
        .into_iter()
        .map(|call| (call.api, call.rows))
        .collect();
    calls.sort_unstable();
    calls
}

async fn names(provider: &AutoScaling) -> Vec<String> {
    let mut groups = provider.groups().await.unwrap();
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    groups.into_iter().map(|group| group.name).collect()
}

/// The members of the only group, as `NUMBER STATUS`.
fn members(groups: &[CloudGroup]) -> Vec<String> {
    let [group] = groups else {
        panic!("not one group: {groups:?}");
    };
    let text = |member: &Member| {
        let number = member.id.trim_start_matches("i-").trim_start_matches('0');
        assert_eq!(member.provider_id.as_str(), format!("aws:///us-east-1a/{}", member.id));
        let pool = if member.warm_pool { " warm" } else { "" };
        assert_eq!(member.node_name, None);
        format!("{number} {:?}{pool}", member.status)
    };
    let mut members: Vec<String> = group.members.iter().map(text).collect();
    members.sort();
    members
}

#[tokio::test]
async fn the_groups_of_a_cluster() {
    use MemberStatus::{Detached, NeedsUpdate, UpToDate};
    let (fake, provider) = fake([
        ours(NAME)
            .sizes(2, 3, 9)
            .template("lt-1", "$Latest")
            .with([up(1), old(2), up(3).state("Terminating:Wait")])
            .warm_pool([up(4).state("Warmed:Stopped")]),
        ours("more-nodes").with([up(5).zone("us-east-1c")]),
        group("cp.masters.ours.example.com")
            .tag("KubernetesCluster", CLUSTER)
            .sizes(1, 1, 1)
            .configuration("cp-2")
            .with([
                member(&id(6)).configuration("cp-2"),
                member(&id(7)).configuration("cp-1"),
            ]),
        group("theirs").kops("other.example.com", "nodes").with([up(8)]),
    ])
    .await;
    fake.launch_template("lt-1", 1, 3);
    fake.launch([detached_from(NAME, 9).zone("us-east-1b"), detached_from("another", 10)]);

    let mut groups = provider.groups().await.unwrap();
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    let provider_id = |number: u32| {
        let zone = match number {
            5 => "us-east-1c",
            9 => "us-east-1b",
            _ => "us-east-1a",
        };
        format!("aws:///{zone}/{}", id(number)).parse().unwrap()
    };
    let member = |number, status, warm_pool| Member {
        id: id(number),
        provider_id: provider_id(number),
        node_name: None,
        status,
        warm_pool,
    };
    let group = |name: &str, instance_group: &str, [min_size, target_size, max_size]: [u32; 3], members| CloudGroup {
        name: name.to_owned(),
        instance_group: instance_group.parse().unwrap(),
        target_size,
        min_size,
        max_size,
        members,
    };
    let expected = [
        group(
            "cp.masters.ours.example.com",
            "cp",
            [1, 1, 1],
            vec![member(6, UpToDate, false), member(7, NeedsUpdate, false)],
        ),
        group("more-nodes", "nodes", [0, 1, 10], vec![member(5, UpToDate, false)]),
        group(
            NAME,
            "nodes",
            [2, 3, 9],
            vec![
                member(1, UpToDate, false),
                member(2, NeedsUpdate, false),
                member(4, UpToDate, true),
                member(9, Detached, false),
            ],
        ),
    ];
    assert_eq!(groups, expected);
    let expected = [(GROUPS, 3), (INSTANCES, 2), (TEMPLATES, 1), (WARM_POOL, 1)];
    assert_eq!(calls(&fake), expected);
}

#[tokio::test]
async fn a_filter_proves_nothing() {
    let (fake, provider) = fake([ours(NAME).with([up(1)])]).await;
    let untagged = detached_from(NAME, 2).without_tag("KubernetesCluster");
    let instances_of_others = instances(&[
        detached_from(NAME, 3).tag("KubernetesCluster", "other.example.com"),
        untagged.without_tag("kubernetes.io/cluster/ours.example.com"),
        detached_from(NAME, 4).state("stopped"),
        detached_from(NAME, 5).without_tag("kops.k8s.io/detached-from-asg"),
        detached_from(NAME, 6),
    ]);
    let groups_of_others = [
        ours(NAME).with([up(1)]),
        ours("theirs").kops("other.example.com", "nodes"),
        ours("nobodys.ours.example.com").without_tag("KubernetesCluster"),
        ours("nameless").without_tag("kops.k8s.io/instancegroup"),
        ours("misnamed.ours.example.com").tag("kops.k8s.io/instancegroup", "No Name"),
    ];
    fake.script_for(INSTANCES, [instances_of_others]);
    fake.script_for(GROUPS, [fake_ec2::groups(&groups_of_others, None)]);
    assert_eq!(members(&provider.groups().await.unwrap()), ["1 UpToDate", "6 Detached"]);
}

#[tokio::test]
async fn an_instance_counts_once_however_it_is_listed() {
    for (what, listed, expected) in [
        ("once", ours(NAME).with([up(1)]), vec!["1 UpToDate"]),
        ("twice", ours(NAME).with([up(1), up(1)]), vec!["1 UpToDate"]),
        ("old last", ours(NAME).with([up(1), old(1)]), vec!["1 NeedsUpdate"]),
        ("old first", ours(NAME).with([old(1), up(1)]), vec!["1 NeedsUpdate"]),
        (
            "in its group and the warm pool",
            ours(NAME).with([up(1)]).warm_pool([up(1).state("Warmed:Running")]),
            vec!["1 UpToDate"],
        ),
        (
            "in the warm pool twice",
            ours(NAME)
                .with([up(1).state("Warmed:Running")])
                .warm_pool([up(1).state("Warmed:Running")]),
            vec!["1 UpToDate warm"],
        ),
        (
            "leaving one list",
            ours(NAME)
                .with([up(1).state("Terminating")])
                .warm_pool([up(1).state("Warmed:Running"), up(2).state("Warmed:Terminating")]),
            vec!["1 UpToDate warm"],
        ),
        (
            "detached, and listed still",
            ours(NAME).with([up(7), up(1)]),
            vec!["1 UpToDate", "7 Detached"],
        ),
    ] {
        let (fake, provider) = fake([listed]).await;
        if what.starts_with("detached") {
            fake.launch([detached_from(NAME, 7)]);
        }
        assert_eq!(members(&provider.groups().await.unwrap()), expected, "{what}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_no_answer() {
    let (fake, provider) = fake([]).await;
    let no_size = |what| format!("{NAME} has no valid {what} size");
    let no_id = || format!("{NAME} has an instance without a valid id");
    let no_zone = || format!("{NAME} lists {} without a valid zone", id(1));
    let two_zones = || format!("{NAME} lists aws:///us-east-1a/{0} and aws:///us-east-1b/{0}", id(1));
    for (listed, detail) in [
        (ours(NAME).sizes(0, -1, 1), no_size("desired")),
        (ours(NAME).sizes(-1, 1, 1), no_size("smallest")),
        (ours(NAME).sizes(0, 1, -1), no_size("largest")),
        (ours(NAME).with([member("")]), no_id()),
        (ours(NAME).with([member("i-1\nx")]), no_id()),
        (ours(NAME).with([up(1).zone("")]), no_zone()),
        (ours(NAME).with([up(1).zone("us-east-1a/x")]), no_zone()),
        (ours(NAME).with([up(1), up(1).zone("us-east-1b")]), two_zones()),
    ] {
        fake.script_for(GROUPS, [fake_ec2::groups(&[ours("well").with([up(1)]), listed], None)]);
        let GroupsUnavailable(words) = provider.groups().await.unwrap_err();
        let expected = format!("{}: unusable response ({detail}). ", groups::DESCRIBE_GROUPS);
        assert!(words.starts_with(&expected), "{words}");
    }
}

#[tokio::test]
async fn pages_are_read_to_their_end() {
    let many: Vec<FakeGroup> = (0..150).map(|number| ours(&format!("g{number:03}"))).collect();
    let (fake, provider) = fake(many).await;
    fake.groups([ours("g000").warm_pool((1..=120).map(|number| up(number).state("Warmed:Stopped")))]);
    fake.launch((2_001..=3_002).map(|number| detached_from("g000", number)));
    let groups = provider.groups().await.unwrap();
    let first = groups.iter().find(|group| group.name == "g000").unwrap();
    assert_eq!((groups.len(), first.members.len()), (150, 120 + 1_002));
    let expected = [
        (GROUPS, 50),
        (GROUPS, 100),
        (INSTANCES, 2),
        (INSTANCES, 1_000),
        (WARM_POOL, 20),
        (WARM_POOL, 50),
        (WARM_POOL, 50),
    ];
    assert_eq!(calls(&fake), expected);
}

#[tokio::test]
async fn pages_that_do_not_end_are_no_answer() {
    let (fake, provider) = fake([]).await;
    let page = |token: &str| fake_ec2::groups(&[ours(NAME)], Some(token));
    let endless = format!(
        "{}: unusable response (the pagination does not end). ",
        groups::DESCRIBE_GROUPS
    );
    let refused = format!("{}: the cloud failed (InvalidNextToken). ", groups::DESCRIBE_GROUPS);
    for (what, answers, expected, at_most) in [
        ("a loop", vec![page("a"), page("b"), page("a")], &endless, 3),
        (
            "no end",
            (0..100).map(|number| page(&number.to_string())).collect(),
            &endless,
            100,
        ),
        ("a token cut short", vec![page("cut")], &refused, 2),
    ] {
        fake.script_for(GROUPS, answers);
        let GroupsUnavailable(words) = provider.groups().await.unwrap_err();
        assert!(words.starts_with(expected), "{what}: {words}");
        let asked = fake.take_calls().iter().filter(|call| call.api == GROUPS).count();
        assert!(asked <= at_most, "{what}: {asked} calls");
    }
}

/// A group that every call is made for.
fn all_calls() -> FakeGroup {
    ours(NAME)
        .template("lt-1", "$Default")
        .with([up(1)])
        .warm_pool([up(2).state("Warmed:Stopped")])
}

fn trouble() -> Vec<Row> {
    let own = [
        (Scripted::Throttled, "throttled", ""),
        (Scripted::error(400, "Throttling"), "throttled", ""),
        (Scripted::Denied, "denied", "UnauthorizedOperation"),
        (Scripted::error(403, "AccessDenied"), "denied", "AccessDenied"),
        (Scripted::Unauthenticated, "no_credentials", "AuthFailure"),
        (Scripted::error(403, "ExpiredToken"), "no_credentials", "ExpiredToken"),
        (Scripted::Failed, "failed", "InternalError"),
        (
            Scripted::error(503, "ServiceUnavailable"),
            "failed",
            "ServiceUnavailable",
        ),
        (Scripted::error(400, "ValidationError"), "failed", "ValidationError"),
    ];
    rows("AWS", own)
}

#[tokio::test]
async fn what_keeps_each_call_from_answering() {
    let fake = FakeEc2::start().await;
    fake.groups([all_calls()]);
    fake.launch_template("lt-1", 3, 4);
    let (provider, counted) = groups_at(&fake.endpoint());
    for (method, api) in CALLS {
        for (answer, outcome, detail) in trouble() {
            let before = counted.counted(api, outcome);
            fake.clear_calls();
            fake.script_for(method, [answer.clone()]);
            let groups = provider.groups().await;
            if method == TEMPLATES && outcome == "denied" {
                // kOps' own role may not ask, and the rest is told all the same.
                assert_eq!(members(&groups.unwrap()), ["1 Unresolved", "2 Unresolved warm"]);
                assert_eq!(counted.counted(api, outcome), before + 1, "{answer:?}");
                continue;
            }
            let GroupsUnavailable(words) = groups.unwrap_err();
            let expected = format!("{api}{}. ", told(outcome, &detail));
            assert!(words.starts_with(&expected), "{answer:?}: {words}");
            assert!(
                words.ends_with('.') && !words.contains(SECRET) && !words.contains(TOKEN),
                "{words}"
            );
            assert_eq!(counted.counted(api, outcome), before + 1, "{answer:?}");
            let asked = fake.calls().iter().filter(|call| call.api == method).count();
            assert_eq!(asked, 1, "no retries: {answer:?}");
        }
        assert_eq!(
            members(&provider.groups().await.unwrap()),
            ["1 UpToDate", "2 UpToDate warm"]
        );
    }
}

#[tokio::test]
async fn what_does_not_answer_in_time() {
    let fake = FakeEc2::start().await;
    fake.groups([all_calls()]);
    fake.launch_template("lt-1", 3, 4);
    let (provider, counted) = groups_with(&credentials(), &fake.endpoint(), Duration::from_secs(2));
    for (method, api) in CALLS {
        fake.script_for(method, [Scripted::Hang]);
        let GroupsUnavailable(words) = provider.groups().await.unwrap_err();
        assert!(
            words.starts_with(&format!("{api}: not reachable (timeout). ")),
            "{words}"
        );
        assert_eq!(counted.counted(api, "timeout"), 1);
    }
    let (nobody, _) = groups_with(&no_credentials(), &fake.endpoint(), Duration::from_secs(20));
    let GroupsUnavailable(words) = nobody.groups().await.unwrap_err();
    assert!(words.contains(": no valid credentials. "), "{words}");
}

#[tokio::test]
async fn a_launch_template_that_is_gone_concerns_its_own_group() {
    let number = |number: u32| (format!("g{number}"), format!("lt-{number}"));
    let fake = FakeEc2::start().await;
    for (name, template) in (1..=9).map(number) {
        let made = member(&id(1)).template(&template, "2");
        fake.groups([ours(&name).template(&template, "$Latest").with([made])]);
        if name != "g4" {
            fake.launch_template(&template, 1, 2);
        }
    }
    let (provider, _) = groups_at(&fake.endpoint());
    for group in provider.groups().await.unwrap() {
        let expected = if group.name == "g4" {
            MemberStatus::NeedsUpdate
        } else {
            MemberStatus::UpToDate
        };
        assert_eq!(group.members[0].status, expected, "{}", group.name);
    }
    let asked = fake.take_calls().iter().filter(|call| call.api == TEMPLATES).count();
    assert!(asked <= 9, "{asked} calls");
}

#[tokio::test]
async fn what_a_mixed_instances_policy_makes() {
    let arm = |version| up(1).instance_type("m6g.large").template("lt-arm", version);
    let policy = || {
        let mixed = group(NAME).kops(CLUSTER, "nodes").mixed("lt-1", "$Default");
        mixed.but_for("m6g.large", "lt-arm", "$Latest")
    };
    let (fake, provider) = fake([policy().with([arm("8"), up(2), old(3)])]).await;
    fake.launch_template("lt-1", 3, 4);
    fake.launch_template("lt-arm", 7, 8);
    let expected = ["1 UpToDate", "2 UpToDate", "3 NeedsUpdate"];
    assert_eq!(members(&provider.groups().await.unwrap()), expected);
    fake.groups([policy().with([arm("7")])]);
    assert_eq!(members(&provider.groups().await.unwrap()), ["1 NeedsUpdate"]);
}

#[tokio::test]
async fn five_thousand_instances_cost_three_calls() {
    let groups = (0..50).map(|nth| {
        let members = (1..=100).map(move |number| up(nth * 100 + number));
        ours(&format!("g{nth}")).template("lt-1", "$Latest").with(members)
    });
    let (fake, provider) = fake(groups).await;
    fake.launch_template("lt-1", 1, 3);
    let groups = provider.groups().await.unwrap();
    let up_to_date = |member: &&Member| member.status == MemberStatus::UpToDate;
    let members = groups.iter().flat_map(|group| &group.members).filter(up_to_date);
    assert_eq!((groups.len(), members.count()), (50, 5_000));
    assert_eq!(calls(&fake), [(GROUPS, 50), (INSTANCES, 0), (TEMPLATES, 1)]);
    fake.forget_group("g7");
    assert_eq!(names(&provider).await.len(), 49);
}
