//! The membership of an instance in an Auto Scaling group, and of a group in an InstanceGroup, compared with kOps.
//!
//! kOps' results are those of `getCloudGroups`, `awsBuildCloudInstanceGroup` and `matchInstanceGroup` in its
//! `upup/pkg/fi/cloudup/awsup`. Where ours is another one, docs/validation.md names the difference.

use tidewaiter_identity::{CloudGroup, CloudGroups as _, MemberStatus, Sizes};
use tidewaiter_testkit::FakeEc2;
use tidewaiter_testkit::fake_ec2::{FakeGroup, FakeInstance, group, instance, member};

use crate::setup::{CLUSTER, groups_at};

const ID: &str = "i-0123456789abcdef0";
const DOCS: &str = include_str!("../../../../docs/validation.md");

/// The differences, as docs/validation.md names them.
const LEAVING: &str = "Instances on their way out";
const DETACHED: &str = "Detached by tag";
const ONCE: &str = "Listed twice";

/// The place in which the group lists the instance.
#[derive(Clone, Copy)]
enum Listed {
    Nowhere,
    Group(&'static str),
    WarmPool(&'static str),
    Both(&'static str, &'static str),
}

/// The instance as EC2 describes it.
type Seen = Option<fn(FakeInstance) -> FakeInstance>;

fn running(instance: FakeInstance) -> FakeInstance {
    instance
}

fn pending(instance: FakeInstance) -> FakeInstance {
    instance.state("pending")
}

fn stopping(instance: FakeInstance) -> FakeInstance {
    instance.state("stopping")
}

fn stopped(instance: FakeInstance) -> FakeInstance {
    instance.state("stopped")
}

fn shutting_down(instance: FakeInstance) -> FakeInstance {
    instance.state("shutting-down")
}

fn terminated(instance: FakeInstance) -> FakeInstance {
    instance.state("terminated")
}

fn of_another_group(instance: FakeInstance) -> FakeInstance {
    instance.tag("kops.k8s.io/instancegroup", "others")
}

fn of_no_group(instance: FakeInstance) -> FakeInstance {
    instance.without_tag("kops.k8s.io/instancegroup")
}

fn of_another_cluster(instance: FakeInstance) -> FakeInstance {
    instance.tag("KubernetesCluster", "other.example.com")
}

fn detached(instance: FakeInstance) -> FakeInstance {
    instance.tag("kops.k8s.io/detached-from-asg", "nodes.ours.example.com")
}

async fn ask(groups: impl IntoIterator<Item = FakeGroup>, instances: Vec<FakeInstance>) -> Vec<CloudGroup> {
    let fake = FakeEc2::start().await;
    fake.launch(instances);
    fake.groups(groups);
    // The groups launch what is not there.
    let (provider, _) = groups_at(&fake.endpoint());
    let mut groups = provider.groups().await.unwrap();
    groups.retain(|group| group.sizes != Sizes::Unmanaged);
    groups
}

fn nodes() -> FakeGroup {
    group("nodes.ours.example.com").kops(CLUSTER, "nodes")
}

async fn status(listed: Listed, seen: Seen) -> &'static str {
    let listed = match listed {
        Listed::Nowhere => nodes(),
        Listed::Group(state) => nodes().with([member(ID).state(state)]),
        Listed::WarmPool(state) => nodes().warm_pool([member(ID).state(state)]),
        Listed::Both(state, pool) => nodes()
            .with([member(ID).state(state)])
            .warm_pool([member(ID).state(pool)]),
    };
    // A terminated instance that has no tags any more is like one that EC2 does not list.
    let absent = |()| instance(ID).state("terminated");
    let there = instance(ID).kops(CLUSTER, "nodes");
    let groups = ask([listed], vec![seen.map_or_else(|| absent(()), |seen| seen(there))]).await;
    match &groups[0].members[..] {
        [] => "none",
        [member] if member.status == MemberStatus::Detached => "detached",
        [member] if member.warm_pool => "warm",
        [_] => "member",
        _ => "several",
    }
}

#[tokio::test]
async fn which_instances_are_members() {
    use Listed::{Both, Group, Nowhere, WarmPool};
    let same = |listed, seen: Seen, kops| (listed, seen, kops, kops, "");
    let differs = |listed, seen: Seen, kops, ours, difference| (listed, seen, kops, ours, difference);
    let cases = [
        same(Group("InService"), Some(running), "member"),
        same(Group("InService"), Some(pending), "member"),
        same(Group("InService"), Some(stopping), "member"),
        same(Group("InService"), Some(stopped), "member"),
        same(Group("InService"), Some(shutting_down), "none"),
        same(Group("InService"), Some(terminated), "none"),
        same(Group("InService"), None, "none"),
        same(Group("InService"), Some(of_another_group), "none"),
        same(Group("InService"), Some(of_no_group), "none"),
        same(Group("InService"), Some(of_another_cluster), "none"),
        same(Group("Pending"), Some(pending), "member"),
        same(Group("Pending"), None, "none"),
        same(Group("Pending:Wait"), Some(running), "member"),
        same(Group("Pending:Proceed"), Some(running), "member"),
        same(Group("Standby"), Some(running), "member"),
        same(Group("Standby"), Some(terminated), "none"),
        same(Group("EnteringStandby"), Some(running), "member"),
        same(Group("Quarantined"), Some(running), "member"),
        same(Group("ReplacingRootVolume"), Some(running), "member"),
        same(Group("AStateOfTheFuture"), Some(running), "member"),
        same(Group("Terminating"), Some(running), "none"),
        same(Group("Terminating"), Some(shutting_down), "none"),
        differs(Group("Terminating:Wait"), Some(running), "member", "none", LEAVING),
        differs(Group("Terminating:Proceed"), Some(running), "member", "none", LEAVING),
        differs(Group("Terminating:Retained"), Some(running), "member", "none", LEAVING),
        same(Group("Terminating:Proceed"), Some(terminated), "none"),
        differs(Group("Terminated"), Some(running), "member", "none", LEAVING),
        same(Group("Terminated"), Some(terminated), "none"),
        differs(Group("Detaching"), Some(running), "member", "none", LEAVING),
        differs(Group("Detached"), Some(running), "member", "none", LEAVING),
        same(Group("Detaching"), Some(terminated), "none"),
        differs(Group("InService"), Some(detached), "member", "detached", DETACHED),
        differs(Group("Detaching"), Some(detached), "member", "detached", DETACHED),
        differs(Group("Terminating"), Some(detached), "none", "detached", DETACHED),
        same(Nowhere, Some(detached), "detached"),
        same(Nowhere, Some(|it| stopped(detached(it))), "detached"),
        same(Nowhere, Some(|it| shutting_down(detached(it))), "none"),
        same(Nowhere, Some(|it| of_another_group(detached(it))), "none"),
        same(
            Nowhere,
            Some(|it| it.tag("kops.k8s.io/detached-from-asg", "before.ours.example.com")),
            "detached",
        ),
        same(Nowhere, Some(running), "none"),
        same(WarmPool("Warmed:Pending"), Some(pending), "warm"),
        same(WarmPool("Warmed:Pending:Wait"), Some(running), "warm"),
        same(WarmPool("Warmed:Pending:Proceed"), Some(running), "warm"),
        same(WarmPool("Warmed:Running"), Some(running), "warm"),
        same(WarmPool("Warmed:Stopped"), Some(stopped), "warm"),
        same(WarmPool("Warmed:Hibernated"), Some(stopped), "warm"),
        same(WarmPool("Warmed:Stopped"), Some(terminated), "none"),
        same(WarmPool("Warmed:Stopped"), None, "none"),
        same(WarmPool("Warmed:Stopped"), Some(of_another_group), "none"),
        same(WarmPool("InService"), Some(running), "member"),
        differs(WarmPool("Warmed:Terminating"), Some(running), "warm", "none", LEAVING),
        differs(
            WarmPool("Warmed:Terminating:Wait"),
            Some(running),
            "warm",
            "none",
            LEAVING,
        ),
        differs(WarmPool("Warmed:Terminated"), Some(stopped), "warm", "none", LEAVING),
        differs(
            Both("InService", "Warmed:Running"),
            Some(running),
            "member, warm",
            "member",
            ONCE,
        ),
        same(Both("Terminating", "Warmed:Running"), Some(running), "warm"),
    ];
    assert!(cases.len() > 50);
    for (number, (listed, seen, kops, ours, difference)) in cases.into_iter().enumerate() {
        assert_eq!(status(listed, seen).await, ours, "case {number}; in kOps {kops}");
        assert_eq!(kops == ours, difference.is_empty(), "case {number}");
        assert!(
            DOCS.contains(difference),
            "docs/validation.md does not name {difference:?}"
        );
    }
}

#[tokio::test]
async fn which_groups_are_an_instance_groups() {
    for (what, group, expected) in [
        ("as kOps makes it", nodes(), Some("nodes")),
        ("being deleted", nodes().status("Delete in progress"), None),
        ("of another name", group("any-name").kops(CLUSTER, "nodes"), None),
        (
            "with the tag of another group",
            nodes().tag("kops.k8s.io/instancegroup", "others"),
            Some("nodes"),
        ),
        (
            "without its tag",
            nodes().without_tag("kops.k8s.io/instancegroup"),
            Some("nodes"),
        ),
        (
            "of another cluster",
            nodes().tag("KubernetesCluster", "other.example.com"),
            None,
        ),
        ("of no cluster", nodes().without_tag("KubernetesCluster"), None),
        (
            "of a control plane",
            group("cp.masters.ours.example.com").kops(CLUSTER, "cp"),
            Some("cp"),
        ),
    ] {
        let there = instance(ID).kops(CLUSTER, "nodes");
        let groups = ask([group.with([member(ID)])], vec![there]).await;
        let names: Vec<&str> = groups.iter().map(|group| group.instance_group.as_str()).collect();
        assert_eq!(names, Vec::from_iter(expected), "{what}");
        // The instance is one of `nodes`, whatever group lists it.
        let members: usize = groups.iter().map(|group| group.members.len()).sum();
        assert_eq!(members, usize::from(expected == Some("nodes")), "{what}");
    }
}
