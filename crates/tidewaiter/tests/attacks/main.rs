//! The attacks on the controller: one row for each attack, through the released binary, as its own service account, on
//! a real API server.
//!
//! After every attack a new honest Node is labelled as ever, a control plane has kept all that it has, and the process
//! runs. docs/developing.md says how to add a row.
//!
//! ```text
//! # the rows with this word in their names
//! TIDEWAITER_ATTACK=kubelet cargo test --workspace --test attacks -- --nocapture
//! ```
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests"
)]
#![allow(clippy::float_cmp, reason = "a metric that counts is a whole number")]

mod attack;
mod clouds;
mod field;
mod floods;
mod instance_groups;
mod kubelets;
mod lease;
mod policies;
mod provider_ids;
mod verdicts;
#[path = "../controller/world.rs"]
#[expect(dead_code, reason = "the tests of the controller use the rest")]
mod world;

use serde_json::json;
use tidewaiter_testkit::Scripted;

use attack::Act::{Creates, Does, PatchesIn, Registers, Silences, Spoils};
use attack::Outcome::{Forged, Refused, Served, TakenBack, Unanswered, Undefined};
use attack::{Attack, run};
use world::CLUSTER;

const WHO: &str = "Find out who registered this Node";

/// The attacks. `attack.rs` says what the attacker may do, and what each outcome demands.
const ATTACKS: &[Attack] = &[
    // Anyone who holds the credentials of a kubelet.
    Attack {
        name: "forged by a kubelet: the instance of a control plane whose Node is there",
        act: Registers(|it| it.claims(&it.master)),
        outcome: Forged("NameMismatch", "is not instance … Find out who registered this Node"),
    },
    Attack {
        name: "forged by a kubelet: the instance of a control plane that has not registered yet",
        act: Registers(|it| it.claims(&it.booting)),
        outcome: Forged("NameMismatch", "is not instance … Find out who registered this Node"),
    },
    Attack {
        name: "forged by a kubelet: everything that it can write, to look like a control plane",
        act: Does(|field| Box::pin(kubelets::looks_like_the_master(field))),
        outcome: Forged("NameMismatch", WHO),
    },
    Attack {
        name: "forged by a kubelet: its own record",
        act: Does(|field| Box::pin(kubelets::writes_records(field))),
        outcome: Forged("NameMismatch", WHO),
    },
    Attack {
        name: "forged by a kubelet: the address of another instance",
        act: Registers(|it| it.claims(&it.own).internal_ip("10.9.9.9")),
        outcome: Forged(
            "AddressMismatch",
            "none of the addresses … Find out who registered this Node",
        ),
    },
    Attack {
        name: "forged by a kubelet: another zone",
        act: Registers(|it| it.claims_as(&it.own.provider_id().replace("us-east-1", "us-west-9"))),
        outcome: Forged(
            "ZoneMismatch",
            "names zone us-west-9 … Find out who wrote this providerID",
        ),
    },
    Attack {
        name: "forged by a kubelet: an instance that does not exist",
        act: Registers(|it| it.claims_as("aws:///us-east-1a/i-0123456789abcdef0")),
        outcome: Refused("NotFound", "the cloud does not list instance"),
    },
    Attack {
        name: "forged by a kubelet: 12 malformed providerIDs",
        act: Does(|field| Box::pin(provider_ids::try_all(field))),
        outcome: Refused("InvalidProviderId", "Check that the cloud controller manager runs"),
    },
    Attack {
        name: "forged by an administrator: a control plane's labels and its instance",
        act: Creates(|it| {
            it.claims(&it.master)
                .label("node-role.kubernetes.io/control-plane", "")
                .label("vault", "open")
        }),
        outcome: Forged("NameMismatch", WHO),
    },
    Attack {
        name: "patched in later: the providerID of a control plane",
        act: PatchesIn(|it| json!({"spec": {"providerID": it.booting.provider_id()}})),
        outcome: Forged("NameMismatch", WHO),
    },
    Attack {
        name: "secondary interface: lends its name to a control plane that boots",
        act: Registers(|it| {
            let booting = it.booting.clone().interface(it.own.address(), it.own.node_name());
            it.world.ec2.launch([booting.clone()]);
            it.claims(&booting)
        }),
        outcome: Forged("NameMismatch", WHO),
    },
    Attack {
        name: "two Nodes on one instance: by its name, and by the one of the scheme that the cluster does not use",
        act: Does(|field| Box::pin(kubelets::two_names_of_one_instance(field))),
        outcome: Refused("NameScheme", "the Nodes of this cluster have the private DNS names"),
    },
    Attack {
        name: "recycled name: a verified Node is deleted, and registers again as a control plane",
        act: Does(|field| Box::pin(kubelets::registers_again(field))),
        outcome: Forged("NameMismatch", WHO),
    },
    Attack {
        name: "recycled name: another group's instance gets the address of one that is gone",
        act: Does(|field| Box::pin(kubelets::inherits_a_name(field))),
        outcome: Refused("NotFound", "the cloud does not list instance"),
    },
    Attack {
        name: "changed group: the instance of a verified worker is tagged as one of the control plane",
        act: Does(|field| Box::pin(kubelets::is_tagged_as_a_master(field))),
        outcome: Refused(
            "GroupChanged",
            "names group masters, but its Node was verified for group nodes … never becomes one of the control plane",
        ),
    },
    // Anyone who wants the cluster to look ready.
    Attack {
        name: "unproven: a Node claims the last missing instance while the cloud throttles, or the records are unreadable",
        act: Does(|field| Box::pin(verdicts::unproven(field))),
        outcome: Unanswered("Throttled", "ec2:DescribeInstances is throttled"),
    },
    // The response of the cloud about one instance.
    Attack {
        name: "another cluster's instance",
        act: Spoils(|ec2, it| ec2.launch([it.tag("KubernetesCluster", "other.example.com")])),
        outcome: Forged(
            "ForeignProject",
            "belongs to \"other.example.com\", not to test.example.com … who registered this Node",
        ),
    },
    Attack {
        name: "nobody's instance",
        act: Spoils(|ec2, it| {
            let untagged = it.without_tag("KubernetesCluster");
            ec2.launch([untagged.without_tag(&format!("kubernetes.io/cluster/{CLUSTER}"))]);
        }),
        outcome: Refused(
            "ForeignProject",
            "has no tag that assigns it to test.example.com … kops update cluster --yes",
        ),
    },
    Attack {
        name: "an instance without a group",
        act: Spoils(|ec2, it| ec2.launch([it.without_tag("kops.k8s.io/instancegroup")])),
        outcome: Refused(
            "NotInGroup",
            "has no tag that names its instance group … kops update cluster --yes",
        ),
    },
    Attack {
        name: "an instance whose group is a path",
        act: Spoils(|ec2, it| ec2.launch([it.tag("kops.k8s.io/instancegroup", "../masters")])),
        outcome: Refused(
            "NotInGroup",
            "has the tag \"../masters\" for its instance group, which is not a valid name",
        ),
    },
    Attack {
        name: "an instance whose group has no file",
        act: Spoils(|ec2, it| ec2.launch([it.tag("kops.k8s.io/instancegroup", "nowhere")])),
        outcome: Undefined(
            "DefinitionMissing",
            "instancegroup/nowhere: is missing from the state store",
        ),
    },
    Attack {
        name: "an instance that has moved to another zone",
        act: Spoils(|ec2, it| ec2.launch([it.zone("us-east-1z")])),
        outcome: Forged("ZoneMismatch", "is in us-east-1z … who wrote this providerID"),
    },
    Attack {
        name: "an instance that is pending, and has no name yet",
        act: Spoils(|ec2, it| ec2.launch([it.state("pending").name("")])),
        outcome: Refused("Starting", "is starting … the cloud is queried again every few seconds"),
    },
    Attack {
        name: "an instance that is terminated",
        act: Spoils(|ec2, it| ec2.launch([it.state("terminated")])),
        outcome: Refused("NotRunning", "No action is needed if the instance is being terminated"),
    },
    Attack {
        name: "an instance that is gone",
        act: Spoils(|ec2, it| ec2.forget(it.id())),
        outcome: Refused("NotFound", "the cloud does not list instance … delete the Node"),
    },
    Attack {
        name: "an instance that fails every call that names it",
        act: Spoils(|ec2, it| {
            ec2.fail(it.id(), Scripted::Failed);
            ec2.launch([it]);
        }),
        outcome: Unanswered("Unavailable", "ec2:DescribeInstances: the cloud failed (InternalError)"),
    },
    // Anyone who writes the state store.
    Attack {
        name: "32 hostile InstanceGroups",
        act: Does(|field| Box::pin(instance_groups::try_all(field))),
        outcome: Undefined("DefinitionInvalid", "instancegroup/hostile-"),
    },
    // Silent clouds: nobody loses a label, and nothing is written for a Node that was answered before.
    Attack {
        name: "silent cloud: throttled",
        act: Silences(|ec2| Box::pin(async { clouds::throttles(ec2) })),
        outcome: Unanswered(
            "Throttled",
            "ec2:DescribeInstances is throttled … No action is needed if this is temporary",
        ),
    },
    Attack {
        name: "silent cloud: accepts calls and never answers",
        act: Silences(|ec2| Box::pin(async { clouds::answers(ec2, Scripted::Hang) })),
        outcome: Unanswered("Unavailable", "not reachable (timeout) … Check routes"),
    },
    Attack {
        name: "silent cloud: refuses connections",
        act: Silences(|ec2| Box::pin(ec2.away())),
        outcome: Unanswered("Unavailable", "not reachable (Connection refused … Check routes"),
    },
    Attack {
        name: "silent cloud: breaks connections",
        act: Silences(|ec2| Box::pin(async { clouds::answers(ec2, Scripted::BreakOff) })),
        outcome: Unanswered("Unavailable", "not reachable … Check routes"),
    },
    Attack {
        name: "silent cloud: a proxy answers that all is well",
        act: Silences(|ec2| Box::pin(async { clouds::answers(ec2, Scripted::Html) })),
        outcome: Unanswered("Unavailable", "unusable response … no proxy responds in its place"),
    },
    Attack {
        name: "silent cloud: nonsense",
        act: Silences(|ec2| Box::pin(async { clouds::answers(ec2, Scripted::Garbage) })),
        outcome: Unanswered("Unavailable", "unusable response"),
    },
    Attack {
        name: "silent cloud: denies the call",
        act: Silences(|ec2| Box::pin(async { clouds::answers(ec2, Scripted::Denied) })),
        outcome: Unanswered(
            "Unavailable",
            "permission denied (UnauthorizedOperation) … Grant the controller's role",
        ),
    },
    Attack {
        name: "silent cloud: rejects the credentials",
        act: Silences(|ec2| Box::pin(async { clouds::answers(ec2, Scripted::Unauthenticated) })),
        outcome: Unanswered("Unavailable", "no valid credentials (AuthFailure) … instance profile"),
    },
    Attack {
        name: "silent cloud: one zone hangs, another one fails",
        act: Does(|field| Box::pin(clouds::two_zones_in_trouble(field))),
        outcome: Unanswered("Unavailable", "not reachable (timeout)"),
    },
    // Floods.
    Attack {
        name: "flood: kubelets that flip their addresses",
        act: Does(|field| Box::pin(floods::flipped_addresses(field))),
        outcome: Forged("AddressMismatch", "none of the addresses"),
    },
    Attack {
        name: "flood: Nodes that join while the cloud throttles or fails",
        act: Does(|field| Box::pin(floods::nodes_during_an_outage(field))),
        outcome: Unanswered("Throttled", "ec2:DescribeInstances is throttled"),
    },
    Attack {
        name: "flood: Nodes that claim instances which do not exist",
        act: Does(|field| Box::pin(floods::missing_instances(field))),
        outcome: Refused("NotFound", "the cloud does not list instance"),
    },
    Attack {
        name: "flood: connections that are idle, half-open or never read, on every port",
        act: Does(|field| Box::pin(floods::busy_ports(field))),
        outcome: Served,
    },
    // Anyone who may write the Lease.
    Attack {
        name: "stolen Lease with bad times",
        act: Does(|field| Box::pin(lease::stolen(field))),
        outcome: TakenBack,
    },
];

#[tokio::test]
async fn every_attack_fails() {
    run(ATTACKS).await;
}
