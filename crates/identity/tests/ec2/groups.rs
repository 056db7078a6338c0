//! The Auto Scaling groups of a cluster, from the fake: the result of each answer, the errors, and the number of calls.

use std::time::Duration;

use tidewaiter_api::values::Role;
use tidewaiter_identity::aws::{API, AutoScaling, groups};
use tidewaiter_identity::{CloudGroup, CloudGroups as _, GroupsUnavailable, Member, MemberStatus, Sizes};
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

/// As kOps makes it for workers.
fn of(instance_group: &str) -> FakeGroup {
    ours(&format!("{instance_group}.{CLUSTER}")).kops(CLUSTER, instance_group)
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
fn detached_from(instance_group: &str, number: u32) -> FakeInstance {
    let detached = instance(&id(number)).kops(CLUSTER, instance_group);
    detached.tag("kops.k8s.io/detached-from-asg", &format!("{instance_group}.{CLUSTER}"))
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
    let mut groups = managed(provider.groups().await.unwrap());
    groups.sort_by(|one, other| one.name.cmp(&other.name));
    groups.into_iter().map(|group| group.name).collect()
}

fn managed(mut groups: Vec<CloudGroup>) -> Vec<CloudGroup> {
    groups.retain(|group| group.sizes != Sizes::Unmanaged);
    groups
}

/// The members of the only Auto Scaling group, as `NUMBER STATUS`.
fn members(groups: Vec<CloudGroup>) -> Vec<String> {
    let [group] = &managed(groups)[..] else {
        panic!("not one group");
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
        of("more-nodes").with([up(5).zone("us-east-1c")]),
        group("cp.masters.ours.example.com")
            .kops(CLUSTER, "cp")
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
    fake.launch([
        detached_from("nodes", 9).zone("us-east-1b"),
        detached_from("another", 10),
    ]);

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
    let group = |name: &str, instance_group: &str, [min, target, max]: [u32; 3], members| CloudGroup {
        name: name.to_owned(),
        instance_group: instance_group.parse().unwrap(),
        role: None,
        sizes: Sizes::OfCloud { target, min, max },
        members,
    };
    let unmanaged = |name: &str, number| CloudGroup {
        sizes: Sizes::Unmanaged,
        ..group(
            name,
            name,
            [0; 3],
            vec![member(number, MemberStatus::Unresolved, false)],
        )
    };
    let expected = [
        unmanaged("another", 10),
        group(
            "cp.masters.ours.example.com",
            "cp",
            [1, 1, 1],
            vec![member(6, UpToDate, false), member(7, NeedsUpdate, false)],
        ),
        group(
            "more-nodes.ours.example.com",
            "more-nodes",
            [0, 1, 10],
            vec![member(5, UpToDate, false)],
        ),
        unmanaged("nodes", 3),
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
    // Those that are going, those with a mark, and all.
    let instances = [0, 2, 9].map(|rows| (INSTANCES, rows));
    let others = [(TEMPLATES, 1), (WARM_POOL, 1)];
    assert_eq!(calls(&fake), [&[(GROUPS, 3)][..], &instances, &others].concat());
}

#[tokio::test]
async fn the_role_of_a_group_stands_in_its_own_tags() {
    let (fake, provider) = fake([]).await;
    let role = |name: &str| format!("k8s.io/role/{name}");
    for (tags, expected) in [
        (&[("control-plane", "1"), ("master", "1")][..], Some(Role::ControlPlane)),
        (&[("master", "1")], Some(Role::ControlPlane)),
        (&[("node", "1")], Some(Role::Node)),
        (&[("bastion", "1")], Some(Role::Bastion)),
        (&[("apiserver", "1")], Some(Role::ApiServer)),
        (&[("scheduler", "1"), ("apiserver", "1")], Some(Role::ApiServer)),
        (&[("etcd", "1")], Some(Role::Etcd)),
        (&[("kubecontrollermanager", "1")], Some(Role::KubeControllerManager)),
        (&[("node", "0")], None),
        (&[("worker", "1")], None),
        (&[], None),
    ] {
        let tagged = tags
            .iter()
            .fold(of("nodes"), |group, (key, value)| group.tag(&role(key), value));
        fake.groups([tagged.with([up(1)])]);
        // What an instance has does not count.
        let instance = instance(&id(1)).kops(CLUSTER, "nodes");
        fake.launch([instance.tag(&role("control-plane"), "1")]);
        let groups = provider.groups().await.unwrap();
        assert_eq!(groups[0].role, expected, "{tags:?}");
    }
}

#[tokio::test]
async fn instances_without_a_group_are_workers_if_karpenter_made_one() {
    let (fake, provider) = fake([]).await;
    let of = |number, group: &str| instance(&id(number)).kops(CLUSTER, group);
    fake.launch([
        of(1, "new").tag("karpenter.sh/nodepool", "new"),
        of(2, "new"),
        of(3, "old").tag("karpenter.sh/provisioner-name", "old"),
        detached_from("gone", 4).tag("k8s.io/role/node", "1"),
    ]);
    let groups = provider.groups().await.unwrap();
    let roles: Vec<_> = groups
        .iter()
        .map(|group| (group.name.as_str(), group.role, group.members.len()))
        .collect();
    let node = Some(Role::Node);
    assert_eq!(roles, [("gone", None, 1), ("new", node, 2), ("old", node, 1)]);
}

#[tokio::test]
async fn a_filter_proves_nothing() {
    let (fake, provider) = fake([ours(NAME).with([up(1)])]).await;
    let untagged = detached_from("nodes", 2).without_tag("KubernetesCluster");
    let instances_of_others = instances(&[
        instance(&id(1)).kops(CLUSTER, "nodes"),
        detached_from("nodes", 3).tag("KubernetesCluster", "other.example.com"),
        untagged.without_tag("kubernetes.io/cluster/ours.example.com"),
        detached_from("nodes", 4).state("terminated"),
        detached_from("nodes", 5).without_tag("kops.k8s.io/detached-from-asg"),
        detached_from("nodes", 6),
    ]);
    let groups_of_others = [
        ours(NAME).with([up(1)]),
        ours("theirs").kops("other.example.com", "nodes"),
        ours("nobodys.ours.example.com").without_tag("KubernetesCluster"),
        ours("nameless").without_tag("kops.k8s.io/instancegroup"),
        ours("No Name.ours.example.com").tag("kops.k8s.io/instancegroup", "No Name"),
    ];
    fake.script_for(INSTANCES, [(); 3].map(|()| instances_of_others.clone()));
    fake.script_for(GROUPS, [fake_ec2::groups(&groups_of_others, None)]);
    assert_eq!(members(provider.groups().await.unwrap()), ["1 UpToDate", "6 Detached"]);
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
            fake.launch([detached_from("nodes", 7)]);
        }
        assert_eq!(members(provider.groups().await.unwrap()), expected, "{what}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_no_answer() {
    let (fake, provider) = fake([]).await;
    fake.launch([instance(&id(1)).kops(CLUSTER, "nodes")]);
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
        fake.script_for(GROUPS, [fake_ec2::groups(&[of("well").with([up(1)]), listed], None)]);
        let GroupsUnavailable(words) = provider.groups().await.unwrap_err();
        let expected = format!("{}: unusable response ({detail}). ", groups::DESCRIBE_GROUPS);
        assert!(words.starts_with(&expected), "{words}");
    }
}

#[tokio::test]
async fn pages_are_read_to_their_end() {
    let many: Vec<FakeGroup> = (0..150).map(|number| of(&format!("g{number:03}"))).collect();
    let (fake, provider) = fake(many).await;
    fake.groups([of("g000").warm_pool((1..=120).map(|number| up(number).state("Warmed:Stopped")))]);
    fake.launch((2_001..=3_002).map(|number| detached_from("g000", number)));
    let groups = provider.groups().await.unwrap();
    let first = groups
        .iter()
        .find(|group| group.instance_group.as_str() == "g000")
        .unwrap();
    assert_eq!((groups.len(), first.members.len()), (150, 120 + 1_002));
    let rows = |api, rows: &[usize]| rows.iter().map(|rows| (api, *rows)).collect::<Vec<_>>();
    let expected = [
        rows(GROUPS, &[50, 100]),
        rows(INSTANCES, &[0, 2, 122, 1_000, 1_000]),
        rows(WARM_POOL, &[20, 50, 50]),
    ];
    assert_eq!(calls(&fake), expected.concat());
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
    let each = CALLS
        .into_iter()
        .flat_map(|call| trouble().into_iter().map(move |row| (call, row)));
    for ((method, api), (answer, outcome, detail)) in each {
        // Of its own: a failed call does not wait for those beside it.
        let fake = FakeEc2::start().await;
        fake.groups([all_calls()]);
        fake.launch_template("lt-1", 3, 4);
        let (provider, counted) = groups_at(&fake.endpoint());
        fake.script_for(method, [answer.clone()]);
        let groups = provider.groups().await;
        assert_eq!(counted.counted(api, outcome), 1, "{answer:?}");
        if method == TEMPLATES && outcome == "denied" {
            // kOps' own role may not ask, and the rest is told all the same.
            assert_eq!(members(groups.unwrap()), ["1 Unresolved", "2 Unresolved warm"]);
            continue;
        }
        let GroupsUnavailable(words) = groups.unwrap_err();
        let expected = format!("{api}{}. ", told(outcome, &detail));
        assert!(words.starts_with(&expected), "{answer:?}: {words}");
        assert!(
            words.ends_with('.') && !words.contains(SECRET) && !words.contains(TOKEN),
            "{words}"
        );
        let asked = fake.calls().iter().filter(|call| call.api == method).count();
        // Two of these are made at once.
        let most = if method == INSTANCES { 2 } else { 1 };
        assert!((1..=most).contains(&asked), "no retries: {answer:?}: {asked}");
        let expected = ["1 UpToDate", "2 UpToDate warm"];
        assert_eq!(members(provider.groups().await.unwrap()), expected, "{answer:?}");
    }
}

#[tokio::test]
async fn what_does_not_answer_in_time() {
    let fake = FakeEc2::start().await;
    fake.groups([all_calls()]);
    fake.launch_template("lt-1", 3, 4);
    let (provider, counted) = groups_with(&credentials(), &fake.endpoint(), Duration::from_secs(5));
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
    let fake = FakeEc2::start().await;
    for number in 1..=9 {
        let template = format!("lt-{number}");
        let made = member(&id(number)).template(&template, "2");
        fake.groups([of(&format!("g{number}")).template(&template, "$Latest").with([made])]);
        if number != 4 {
            fake.launch_template(&template, 1, 2);
        }
    }
    let (provider, _) = groups_at(&fake.endpoint());
    for group in provider.groups().await.unwrap() {
        let expected = if group.instance_group.as_str() == "g4" {
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
    assert_eq!(members(provider.groups().await.unwrap()), expected);
    fake.groups([policy().with([arm("7")])]);
    assert_eq!(members(provider.groups().await.unwrap()), ["1 NeedsUpdate"]);
}

#[tokio::test]
async fn five_thousand_instances_cost_three_calls_and_a_listing_every_twelfth_time() {
    let groups = (0..50).map(|nth| {
        let members = (1..=100).map(move |number| up(nth * 100 + number));
        of(&format!("g{nth}")).with(members)
    });
    let (fake, provider) = fake(groups).await;
    for query in 0..=12 {
        let groups = provider.groups().await.unwrap();
        let up_to_date = |member: &&Member| member.status == MemberStatus::UpToDate;
        let members = groups.iter().flat_map(|group| &group.members).filter(up_to_date);
        assert_eq!((groups.len(), members.count()), (50, 5_000));
        let all = if query % 12 == 0 { 5 } else { 0 };
        let expected = [
            vec![(GROUPS, 50), (INSTANCES, 0), (INSTANCES, 0)],
            vec![(INSTANCES, 1_000); all],
        ];
        assert_eq!(calls(&fake), expected.concat(), "query {query}");
    }
    fake.forget_group(&format!("g7.{CLUSTER}"));
    assert_eq!(names(&provider).await.len(), 49);
}

/// The current state in EC2 is used, though not all is listed again.
#[tokio::test]
async fn what_changes_between_two_listings() {
    let (fake, provider) = fake([ours(NAME).with([up(1), up(2), up(3)])]).await;
    let ask = async || {
        fake.clear_calls();
        let groups = provider.groups().await.unwrap();
        let unmanaged = groups.iter().filter(|group| group.sizes == Sizes::Unmanaged);
        let ids = unmanaged
            .flat_map(|group| &group.members)
            .map(|member| member.id.clone());
        let ids: Vec<String> = ids.collect();
        let asked = fake.take_calls().iter().filter(|call| call.api == INSTANCES).count();
        (members(groups), ids, asked)
    };
    assert_eq!(ask().await.2, 3, "the first one lists all");
    for (state, left) in [("shutting-down", "1 UpToDate"), ("terminated", "1 UpToDate")] {
        fake.change(&id(2), |instance| instance.state(state));
        assert_eq!(
            ask().await,
            (vec![left.to_owned(), "3 UpToDate".to_owned()], vec![], 2),
            "{state}"
        );
    }
    fake.groups([ours(NAME).with([up(1), up(3), up(4)])]);
    let all = ["1 UpToDate", "3 UpToDate", "4 UpToDate"].map(str::to_owned).to_vec();
    assert_eq!(ask().await, (all.clone(), vec![], 3), "the new one is looked for");
    assert_eq!(ask().await, (all.clone(), vec![], 2));
    let karpenters = |number| instance(&id(number)).kops(CLUSTER, "karpenter");
    fake.launch([karpenters(5).tag("karpenter.sh/nodepool", "karpenter")]);
    assert_eq!(ask().await, (all.clone(), vec![id(5)], 2), "Karpenter's");
    // Nothing tells of these but the next listing.
    fake.launch([karpenters(6)]);
    fake.change(&id(1), |instance| instance.tag("kops.k8s.io/instancegroup", "other"));
    fake.forget(&id(3));
    for _ in 6..12 {
        assert_eq!(ask().await, (all.clone(), vec![id(5)], 2));
    }
    let (members, mut unmanaged, asked) = ask().await;
    unmanaged.sort();
    assert_eq!(
        (members, unmanaged, asked),
        (vec!["4 UpToDate".to_owned()], vec![id(1), id(5), id(6)], 3)
    );
    let (members, _, asked) = ask().await;
    assert_eq!(
        (members, asked),
        (vec!["4 UpToDate".to_owned()], 3),
        "what is missing is looked for"
    );
}
