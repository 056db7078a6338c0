//! Of several replicas one leads and writes, the others take over when it goes, however it goes; and a Lease that a
//! kops-controller written in Go holds is respected as client-go respects it.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::names::{INSTANCE_GROUP_LABEL, KOPS_LEASE};
use tidewaiter_testkit::{Action, Gate, Recorded, eventually, throughout};

use crate::world::{Controller, SOON, World, shown};

const NODE: &str = "node-role.kubernetes.io/node";
/// `make bench` measures the second that is promised. Without being handed over, the Lease is free after ten at the
/// earliest.
const HANDED_OVER: Duration = Duration::from_secs(9);
/// The duration of the Lease: a standby takes it no sooner after it was last renewed.
const HELD: Duration = Duration::from_secs(15);
/// `make bench` measures the 18 s that are promised. This is less than two durations of the Lease.
const TAKEN_OVER: Duration = Duration::from_secs(28);

#[tokio::test]
async fn one_leads_and_another_takes_over_when_it_stops_or_dies() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let labels = [(INSTANCE_GROUP_LABEL, "nodes"), (NODE, ""), ("team", "red")];
    let first = world.controller().await;
    first.leads().await;
    let second = world.controller().await;

    let kubelet = world.join(1, "nodes").await;
    world.has_labels(kubelet.name(), &labels).await;
    assert_eq!(second.proxy.count(Recorded::is_write), 0, "a standby writes nothing");
    assert_eq!(second.metric("tidewaiter_leader").await, 0.0);

    // SIGTERM: the best of three, because the other tests take their share of the machine.
    let mut fastest = Duration::MAX;
    for (leader, standby) in [(&first, &second), (&second, &first), (&first, &second)] {
        let told = now();
        leader.stops().await;
        standby.leads().await;
        fastest = fastest.min(first_lease_write(standby, told) - told);
        let written = world.leases().get(KOPS_LEASE).await.unwrap().spec.unwrap();
        assert_eq!(written.lease_duration_seconds, Some(15), "{written:?}");
        leader.process.start_again();
        leader.ready().await;
        assert_eq!(leader.metric("tidewaiter_leader").await, 0.0);
    }
    assert!(fastest < HANDED_OVER, "handed over within {fastest:?}");

    // SIGKILL: what happens while nobody leads waits, and is not lost.
    let killed = now();
    second.process.kill();
    world
        .patch(kubelet.name(), json!({"metadata": {"labels": {"team": "blue"}}}))
        .await;
    first.leads().await;
    let taken = first_lease_write(&first, killed);
    assert!(taken - killed < TAKEN_OVER, "took over after {:?}", taken - killed);
    // The dead one might have gone on writing until its renew deadline.
    let waited = taken - last_renewal(&second);
    assert!(waited >= HELD, "took over {waited:?} after the last renewal");
    world.has_labels(kubelet.name(), &labels).await;
    world.quiet(Duration::from_secs(2)).await;
    first.stops().await;
}

/// As kops-controller's pod and ours on one node, both with our image.
#[tokio::test]
async fn a_second_process_on_the_same_addresses_stands_by_and_takes_them_over() {
    let world = World::start().await;
    world.group("nodes", &[]);
    let first = world.controller().await;
    first.leads().await;
    let admin = first.admin_address();
    let addresses = [
        ("TIDEWAITER_ADMIN_ADDRESS", admin.as_str()),
        ("TIDEWAITER_METRICS_ADDRESS", &first.metrics_address),
        ("TIDEWAITER_HEALTH_ADDRESS", &first.health_address),
    ];
    let second = world.controller_that_is_not_ready(&addresses);
    for setting in ["adminAddress", "metricsAddress", "healthAddress"] {
        let words = format!("another process uses this address … {setting}");
        second.logs(&words).await;
    }
    first.stops().await;
    let kubelet = world.join(1, "nodes").await;
    let labels = [(INSTANCE_GROUP_LABEL, "nodes"), (NODE, "")];
    world.has_labels(kubelet.name(), &labels).await;
    eventually("the second one to serve all addresses", SOON, async || {
        for (address, path) in [
            (&admin, "/readyz"),
            (&first.metrics_address, "/metrics"),
            (&first.health_address, "/healthz"),
        ] {
            let answer = second.get(&format!("http://{address}"), path).await;
            answer.and_then(reqwest::Response::error_for_status).map_err(shown)?;
        }
        Ok::<(), String>(())
    })
    .await;
    second.stops().await;
}

#[tokio::test]
async fn a_leader_that_was_stopped_past_its_deadline_writes_nothing_more_and_exits() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let labels = [(INSTANCE_GROUP_LABEL, "nodes"), (NODE, ""), ("team", "red")];
    let first = world.controller().await;
    first.leads().await;
    let second = world.controller().await;

    // Work in hand: the first one's question about these Nodes is with EC2 when it is stopped.
    world.ec2.latency(Duration::from_secs(2));
    let mut nodes = Vec::new();
    for number in 1..=5 {
        nodes.push(world.join(number, "nodes").await);
    }
    eventually("EC2 to be asked about all of them", SOON, async || {
        let asked = world
            .identity_calls()
            .iter()
            .map(|call| call.names.len())
            .sum::<usize>();
        if asked >= nodes.len() { Ok(()) } else { Err(asked) }
    })
    .await;
    // The writes of the second one are hidden from it, so that it has every reason to write.
    let never = Gate::new();
    first.proxy.hook(move |request| {
        if request.is_watch() {
            Action::Hold(never.clone())
        } else {
            Action::Forward
        }
    });
    first.proxy.cut_watches();
    first.process.pause();
    world.ec2.latency(Duration::ZERO);

    second.leads().await;
    for node in &nodes {
        world.has_labels(node.name(), &labels).await;
    }
    let before = first.proxy.requests().len();
    first.process.resume();
    let line = first.loses().await;
    assert!(line.ends_with(": not renewed within 10s"), "{line}");
    let written: Vec<Recorded> = first.proxy.requests().split_off(before);
    assert!(!written.iter().any(Recorded::is_write), "{written:?}");
    assert_eq!(second.metric("tidewaiter_leader").await, 1.0);
    world.quiet(Duration::from_secs(2)).await;
    second.stops().await;
}

#[tokio::test]
async fn a_lease_of_a_go_kops_controller_is_respected_and_left_as_client_go_leaves_it() {
    let world = World::start().await;
    world.group("nodes", &[]);
    let labels = [(INSTANCE_GROUP_LABEL, "nodes"), (NODE, "")];
    let go = Go(world.leases());
    go.creates().await;
    let controller = world.controller().await;
    let kubelet = world.join(1, "nodes").await;

    respects(&controller, &go).await;
    world.has_labels(kubelet.name(), &labels).await;
    let renewed = renews_as_client_go(&go).await;

    controller.stops().await;
    let left = go.spec().await;
    let times = (left.acquire_time.clone(), left.renew_time.clone());
    assert!(times.0 == times.1 && times.1 > renewed.renew_time, "{left:?}");
    let given_back = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: times.0,
        renew_time: times.1,
        ..renewed
    };
    assert_eq!(left, given_back);

    // The Go one takes it, and gives it back in turn.
    go.takes().await;
    controller.process.start_again();
    controller.ready().await;
    let released = now();
    go.releases().await;
    controller.leads().await;
    let took = first_lease_write(&controller, released) - released;
    assert!(took < Go::LASTS, "took over after {took:?}");

    // It takes it without asking: ours stops, and does not give back what is not its own.
    go.takes().await;
    let line = controller.loses().await;
    assert!(line.ends_with(&format!(": {} holds it", Go::NAME)), "{line}");
    assert_eq!(go.spec().await.holder_identity.as_deref(), Some(Go::NAME));
}

/// The last pod of kops-controller is gone, however it left the Lease.
#[tokio::test]
async fn a_lease_is_won_whether_it_expires_or_is_released_or_deleted() {
    let world = World::start().await;
    world.group("nodes", &[]);
    let go = Go(world.leases());
    for (number, how) in [(1, "expires"), (2, "is released"), (3, "is deleted")] {
        go.creates().await;
        let controller = world.controller().await;
        let kubelet = world.join(number, "nodes").await;
        throughout(
            "the other one to lead",
            Duration::from_secs(2),
            async || match controller.proxy.count(Recorded::is_write) {
                0 => Ok(()),
                written => Err(format!("{written} writes before the Lease {how}")),
            },
        )
        .await;
        match how {
            "expires" => go.renews(2001).await,
            "is released" => go.releases().await,
            _ => go.deletes().await,
        }
        controller.leads().await;
        world
            .has_labels(kubelet.name(), &[(INSTANCE_GROUP_LABEL, "nodes"), (NODE, "")])
            .await;
        assert_ne!(go.spec().await.holder_identity.as_deref(), Some(Go::NAME), "{how}");
        controller.stops().await;
        go.deletes().await;
    }
}

/// Leaves the Lease alone while the Go one renews it, and takes it when it has not been renewed for as long as it says.
/// The clock of the Go one is another one: only that the record changes counts, from when it is seen.
async fn respects(controller: &Controller, go: &Go) {
    let mut renewed = now();
    for year in [2001, 2099] {
        renewed = now();
        go.renews(year).await;
        throughout("the other one to lead", Duration::from_secs(3), async || {
            let written = controller.proxy.count(Recorded::is_write);
            if written == 0 {
                Ok(())
            } else {
                Err(format!("{written} writes"))
            }
        })
        .await;
    }
    controller.leads().await;
    let waited = first_lease_write(controller, renewed) - renewed;
    assert!(waited >= Go::LASTS, "took over after {waited:?}");
}

/// One more transition, our duration, and then only the time of the renewal changes.
async fn renews_as_client_go(go: &Go) -> LeaseSpec {
    let taken = go.spec().await;
    assert_ne!(taken.holder_identity.as_deref(), Some(Go::NAME));
    let numbers = (taken.lease_duration_seconds, taken.lease_transitions);
    assert_eq!(numbers, (Some(15), Some(8)));
    let renewed = eventually("the Lease to be renewed", SOON, async || {
        let spec = go.spec().await;
        if spec.renew_time > taken.renew_time {
            Ok(spec)
        } else {
            Err(format!("{spec:?}"))
        }
    })
    .await;
    let expected = LeaseSpec {
        renew_time: renewed.renew_time.clone(),
        ..taken
    };
    assert_eq!(renewed, expected);
    renewed
}

/// A kops-controller written in Go, as far as its Lease shows.
struct Go(Api<Lease>);

impl Go {
    const NAME: &str = "ip-10-9-9-9.ec2.internal_0e1f9a6c-7d5e-4f0b-9a51-3f6f3b1f6f10";
    /// Much longer than the test takes between two renewals.
    const LASTS: Duration = Duration::from_secs(20);

    /// As an elector that has held the Lease for a while.
    async fn creates(&self) {
        let spec = json!({
            "holderIdentity": Self::NAME, "leaseDurationSeconds": 60, "leaseTransitions": 7,
            "acquireTime": "2001-01-12T09:21:08.000000Z", "renewTime": "2001-01-12T09:21:08.000000Z",
        });
        let lease = json!({"metadata": {"name": KOPS_LEASE}, "spec": spec});
        let lease = serde_json::from_value(lease).unwrap();
        self.0.create(&PostParams::default(), &lease).await.unwrap();
    }

    async fn renews(&self, year: u16) {
        let time = format!("{year}-01-12T09:21:18.000000Z");
        self.merge(json!({"renewTime": time, "leaseDurationSeconds": Self::LASTS.as_secs()}))
            .await;
    }

    async fn takes(&self) {
        self.merge(json!({"holderIdentity": Self::NAME, "leaseDurationSeconds": 60}))
            .await;
    }

    async fn releases(&self) {
        self.merge(json!({"holderIdentity": "", "leaseDurationSeconds": 1}))
            .await;
    }

    async fn deletes(&self) {
        self.0.delete(KOPS_LEASE, &DeleteParams::default()).await.unwrap();
    }

    async fn spec(&self) -> LeaseSpec {
        self.0.get(KOPS_LEASE).await.unwrap().spec.unwrap()
    }

    async fn merge(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.0.patch(KOPS_LEASE, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// When this one last renewed the Lease and was answered.
fn last_renewal(controller: &Controller) -> Instant {
    let mut requests = controller.proxy.requests();
    requests.retain(|request| request.is_write() && request.resource() == "leases" && request.status == Some(200));
    requests.last().expect("it led").at
}

/// When this one first wrote the Lease after the given time.
fn first_lease_write(controller: &Controller, after: Instant) -> Instant {
    let requests = controller.proxy.requests();
    let mut writes = requests
        .iter()
        .filter(|request| request.is_write() && request.resource() == "leases");
    writes.find(|write| write.at >= after).expect("it leads").at
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it takes over real processes is the subject"
)]
fn now() -> Instant {
    Instant::now()
}
