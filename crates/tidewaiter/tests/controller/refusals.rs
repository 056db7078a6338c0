//! What EC2 answers of one instance, or instead of an answer: nobody gets a wrong label or loses one, nobody else is held up,
//! EC2 is not asked without bound, somebody is told, and it is over when the trouble is.

use std::time::Duration;

use kube::api::PostParams;
use tidewaiter_api::ConditionStatus::{False, True, Unknown};
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{Call, Scripted, TokenBucket, eventually, throughout};

use crate::world::{CLUSTER, Controller, Labels, SOON, World};

const LABELS: [(&str, &str); 3] = [
    ("kops.k8s.io/instancegroup", "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("team", "red"),
];

/// How an instance is spoilt, and what is said of its Node then.
struct Case {
    spoil: fn(FakeInstance) -> FakeInstance,
    reason: &'static str,
    forged: bool,
    words: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        spoil: |instance| instance.state("terminated"),
        reason: "NotRunning",
        forged: false,
        words: "No action is needed if the instance is being terminated",
    },
    Case {
        spoil: |instance| instance.tag("KubernetesCluster", "other.example.com"),
        reason: "ForeignProject",
        forged: true,
        words: "belongs to \"other.example.com\", not to test.example.com … who registered this Node",
    },
    Case {
        spoil: |instance| {
            instance
                .without_tag("KubernetesCluster")
                .without_tag("kubernetes.io/cluster/test.example.com")
        },
        reason: "ForeignProject",
        forged: false,
        words: "has no tag that assigns it to test.example.com … kops update cluster --yes",
    },
    Case {
        spoil: |instance| instance.without_tag("kops.k8s.io/instancegroup"),
        reason: "NotInGroup",
        forged: false,
        words: "has no tag that names its instance group … kops update cluster --yes",
    },
    Case {
        spoil: |instance| instance.tag("kops.k8s.io/instancegroup", "../masters"),
        reason: "NotInGroup",
        forged: false,
        words: "has the tag \"../masters\" for its instance group, which is not a valid name",
    },
    Case {
        spoil: |instance| instance.zone("us-east-1z"),
        reason: "ZoneMismatch",
        forged: true,
        words: "is in us-east-1z … who wrote this providerID",
    },
];

/// What each Node is, and what EC2 says of it in the end. The cases come first, then these.
const UNKNOWN: u32 = 6;
const ELSEWHERE: u32 = 7;
const FAILING: u32 = 8;
const ALL: std::ops::RangeInclusive<u32> = 0..=FAILING;

/// The instances of Nodes that were labelled before the trouble.
fn old(case: u32) -> FakeInstance {
    FakeInstance::numbered(100 + case).kops(CLUSTER, "nodes")
}

/// Those of Nodes that join during it.
fn new(case: u32) -> FakeInstance {
    FakeInstance::numbered(200 + case).kops(CLUSTER, "nodes")
}

#[tokio::test]
async fn an_answer_about_one_instance_concerns_its_node_alone() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    // Often enough that the Nodes are asked about again within the test.
    let often = [("TIDEWAITER_IDENTITY_EXPIRY_SECONDS", "2")];
    let controller = world.controller_with(&often).await;
    world.ec2.launch(ALL.map(old));
    for case in ALL {
        register(&world, &old(case)).await;
    }
    for case in ALL {
        world.has_labels(old(case).node_name(), &LABELS).await;
    }

    spoil(&world, ALL.map(old).collect());
    spoil(&world, ALL.map(new).collect());
    for case in ALL {
        register(&world, &new(case)).await;
    }
    // In the middle of it all somebody joins whom nothing is held against.
    let healthy = world.join(1, "nodes").await;
    at_once(world.has_labels(healthy.name(), &LABELS)).await;

    for (number, case) in (0..).zip(&CASES) {
        for instance in [old(number), new(number)] {
            refused(&world, &controller, instance.node_name(), case).await;
        }
    }
    are_neither(&world, &controller).await;
    for (state, nodes) in [
        ("verified", 1),
        ("forged", 4),
        ("refused", 10),
        ("undefined", 2),
        ("unanswered", 2),
    ] {
        controller.counts(state, nodes).await;
    }
    nothing_was_tried(&world).await;

    // It goes on so at a bounded rate, and everybody is right at the end.
    let calls = calls_during(&world, Duration::from_secs(3)).await;
    assert!(calls.len() <= 60, "{calls:?}");
    world.ec2.heal();
    world.ec2.launch(ALL.map(old).chain(ALL.map(new)));
    controller.counts("verified", 19).await;
    for instance in ALL.map(old).chain(ALL.map(new)) {
        world.has_labels(instance.node_name(), &LABELS).await;
        world.is_verified(instance.node_name(), True, "Proven").await;
    }
    for case in 0..=UNKNOWN {
        for instance in [old(case), new(case)] {
            let words = format!("instance {} of group nodes", instance.id());
            world.tells(instance.node_name(), "Verified", &words).await;
        }
    }
}

/// EC2 says of each of these what its case wants.
fn spoil(world: &World, instances: Vec<FakeInstance>) {
    for (case, instance) in instances.into_iter().enumerate() {
        let id = instance.id().to_owned();
        match (CASES.get(case), u32::try_from(case).unwrap()) {
            (Some(case), _) => world.ec2.launch([(case.spoil)(instance)]),
            (None, UNKNOWN) => world.ec2.forget(&id),
            (None, ELSEWHERE) => world.ec2.launch([instance.tag("kops.k8s.io/instancegroup", "nowhere")]),
            (None, _) => {
                world.ec2.launch([instance]);
                world.ec2.fail(&id, Scripted::Failed);
            }
        }
    }
}

/// What is told of those who are refused by nobody's word about the instance: EC2 lists none, its group has no file, the call
/// fails.
async fn are_neither(world: &World, controller: &Controller) {
    let not_found = Case {
        spoil: |instance| instance,
        reason: "NotFound",
        forged: false,
        words: "the cloud does not list instance … delete the Node",
    };
    for instance in [old(UNKNOWN), new(UNKNOWN)] {
        refused(world, controller, instance.node_name(), &not_found).await;
    }
    let (reason, words) = (
        "DefinitionMissing",
        "instancegroup/nowhere: is missing from the state store",
    );
    for instance in [old(ELSEWHERE), new(ELSEWHERE)] {
        let name = instance.node_name();
        world.says(name, "Verified", True, "Proven", "of group nowhere").await;
        world.says(name, "LabelsValid", Unknown, reason, words).await;
        world.tells(name, reason, words).await;
    }
    controller.counts_refusal(reason, false).await;
    let (reason, words) = ("Unavailable", "ec2:DescribeInstances: the cloud failed (InternalError)");
    for instance in [old(FAILING), new(FAILING)] {
        world.tells(instance.node_name(), reason, words).await;
    }
    world
        .says(old(FAILING).node_name(), "Verified", True, "Proven", "")
        .await;
    world
        .says(new(FAILING).node_name(), "Verified", Unknown, reason, words)
        .await;
    controller.counts_refusal(reason, false).await;
}

/// No label was given or taken away, and the Nodes were not even written to.
async fn nothing_was_tried(world: &World) {
    for instance in ALL.map(old) {
        let name = instance.node_name();
        world.has_labels(name, &LABELS).await;
        assert_eq!(world.patches(name).await, 1, "{name}");
        assert_eq!(world.recorded(name).await.len(), LABELS.len(), "{name}");
    }
    for instance in ALL.map(new) {
        let name = instance.node_name();
        assert_eq!(world.labels(name).await, Labels::new(), "{name}");
        assert_eq!(world.patches(name).await, 0, "{name}");
        assert_eq!(world.recorded(name).await, Labels::new(), "{name}");
    }
}

#[tokio::test]
async fn without_an_answer_everything_stays_as_it_is() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let controller = world
        .controller_with(&[("TIDEWAITER_IDENTITY_EXPIRY_SECONDS", "1")])
        .await;
    let old = world.join(1, "nodes").await;
    world.has_labels(old.name(), &LABELS).await;
    let before = world.is_verified(old.name(), True, "Proven").await;

    for (number, trouble) in (2..).zip([
        Trouble::Throttled,
        Trouble::Answer(Scripted::Failed, "the cloud failed (InternalError)"),
        Trouble::Refused,
        Trouble::Answer(Scripted::Html, "unusable response … no proxy responds in its place"),
        Trouble::Answer(Scripted::Garbage, "unusable response"),
        Trouble::Answer(Scripted::Drop, "not reachable … Check routes"),
        Trouble::Answer(Scripted::BreakOff, "not reachable"),
        Trouble::Answer(
            Scripted::Denied,
            "permission denied (UnauthorizedOperation) … Grant the controller's role",
        ),
        Trouble::Answer(
            Scripted::Unauthenticated,
            "no valid credentials (AuthFailure) … instance profile",
        ),
    ]) {
        let (reason, words) = begin(&world, &trouble).await;
        // Until those who were labelled before are asked about again.
        controller.counts("unanswered", number - 1).await;
        let mark = world.cluster.audit_mark().await;
        let new = world.join(number, "nodes").await;
        world.says(new.name(), "Verified", Unknown, reason, words).await;
        for kubelet in [&old, &new] {
            world.tells(kubelet.name(), reason, words).await;
        }
        controller.counts("unanswered", number).await;
        controller.counts_refusal(reason, false).await;
        assert_eq!(world.labels(new.name()).await, Labels::new(), "{words}");
        world.has_labels(old.name(), &LABELS).await;
        let written = world.written_since(mark).await;
        let written: Vec<_> = written
            .iter()
            .filter(|write| !write.starts_with("create events "))
            .collect();
        assert_eq!(written, [&format!("create nodeidentities {}", new.name())], "{words}");

        end(&world).await;
        world.has_labels(new.name(), &LABELS).await;
        world.is_verified(new.name(), True, "Proven").await;
        controller.counts("verified", number).await;
    }
    let after = world.is_verified(old.name(), True, "Proven").await;
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(world.patches(old.name()).await, 1);
}

/// Why EC2 cannot be asked.
enum Trouble {
    Throttled,
    Refused,
    Answer(Scripted, &'static str),
}

/// Brings it about; returns the reason that is told, and words of the message.
async fn begin(world: &World, trouble: &Trouble) -> (&'static str, &'static str) {
    match trouble {
        Trouble::Throttled => {
            world.ec2.throttle(Some(NOTHING));
            (
                "Throttled",
                "ec2:DescribeInstances is throttled … No action is needed if this is temporary",
            )
        }
        Trouble::Refused => {
            world.ec2.away().await;
            ("Unavailable", "not reachable (Connection refused … Check routes")
        }
        Trouble::Answer(answer, words) => {
            world.ec2.always(Some(answer.clone()));
            ("Unavailable", words)
        }
    }
}

async fn end(world: &World) {
    world.ec2.throttle(None);
    world.ec2.always(None);
    world.ec2.back().await;
}

const NOTHING: TokenBucket = TokenBucket {
    capacity: 0.0,
    refill: 0.0,
};

#[tokio::test]
async fn a_crowd_asks_ec2_no_more_than_one_node_would() {
    const NODES: u32 = 60;
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let controller = world.controller().await;
    world.ec2.throttle(Some(NOTHING));
    let fleet: Vec<FakeInstance> = (1..=NODES)
        .map(|number| FakeInstance::numbered(number).kops(CLUSTER, "nodes"))
        .collect();
    world.ec2.launch(fleet.clone());
    for instance in &fleet {
        register(&world, instance).await;
    }
    controller.counts("unanswered", NODES).await;
    let throttled = calls_during(&world, Duration::from_secs(5)).await;
    // The pause grows to half a minute. Not one of the Nodes makes a call of its own.
    assert!(throttled.len() <= 6, "{throttled:?}");

    world.ec2.throttle(None);
    world.ec2.always(Some(Scripted::Failed));
    world.ec2.clear_calls();
    eventually("EC2 to be asked again", SOON, async || {
        let asked = world.identity_calls().len();
        if asked > 0 { Ok(()) } else { Err(asked) }
    })
    .await;
    let failed = calls_during(&world, Duration::from_secs(5)).await;
    // A call a second at most, and one more for each zone.
    assert!(failed.len() <= 40, "{failed:?}");

    world.ec2.always(None);
    controller.counts("verified", NODES).await;
    for instance in &fleet {
        world.has_labels(instance.node_name(), &LABELS).await;
    }
}

#[tokio::test]
async fn a_zone_in_trouble_concerns_its_nodes_alone() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let often = [("TIDEWAITER_IDENTITY_EXPIRY_SECONDS", "2")];
    let controller = world.controller_with(&often).await;
    // The zones are a, b, c in turn.
    for number in [3, 4, 5] {
        let kubelet = world.join(number, "nodes").await;
        world.has_labels(kubelet.name(), &LABELS).await;
    }
    world.ec2.hang_zone("us-east-1b");
    world.ec2.fail_zone("us-east-1c");
    controller.counts("unanswered", 2).await;
    let (hanging, failing) = (world.join(7, "nodes").await, world.join(8, "nodes").await);
    let words = "the cloud failed (InternalError)";
    world
        .says(failing.name(), "Verified", Unknown, "Unavailable", words)
        .await;
    let words = "not reachable (timeout)";
    world
        .says(hanging.name(), "Verified", Unknown, "Unavailable", words)
        .await;

    // They are asked about for ever, and whoever comes now waits for none of it.
    let healthy = world.join(6, "nodes").await;
    at_once(world.has_labels(healthy.name(), &LABELS)).await;
    controller.counts("verified", 2).await;
    controller.counts("unanswered", 4).await;
    for kubelet in [&hanging, &failing] {
        assert_eq!(world.labels(kubelet.name()).await, Labels::new());
    }
    for number in [4, 5] {
        world
            .has_labels(FakeInstance::numbered(number).node_name(), &LABELS)
            .await;
    }

    world.ec2.heal();
    controller.counts("verified", 6).await;
    for kubelet in [&hanging, &failing] {
        world.has_labels(kubelet.name(), &LABELS).await;
    }
}

/// In less time than a call to EC2 that is not answered takes: whoever waits for one is held up.
async fn at_once(what: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(8), what)
        .await
        .expect("this does not depend on others");
}

async fn calls_during(world: &World, time: Duration) -> Vec<Call> {
    world.ec2.clear_calls();
    throughout("nothing", time, async || Ok::<_, String>(())).await;
    world.identity_calls()
}

/// Creates the Node of an instance, as its kubelet would.
async fn register(world: &World, instance: &FakeInstance) {
    let node = World::node_of(instance).build();
    world.nodes().create(&PostParams::default(), &node).await.unwrap();
}

/// The record, an Event and a metric tell of the refusal.
async fn refused(world: &World, controller: &Controller, name: &str, case: &Case) {
    world.says(name, "Verified", False, case.reason, case.words).await;
    world.tells(name, case.reason, case.words).await;
    controller.counts_refusal(case.reason, case.forged).await;
}
