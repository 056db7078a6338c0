//! The behaviour of a controller whose connection to the API server fails: it misses nothing, asks at a bounded rate
//! meanwhile, and writes no more often than it has to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use serde_json::json;
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_testkit::{Action, Gate, Kubelet, Moment, Recorded, eventually, throughout};

use crate::world::{Controller, SOON, World, service_account};

const NODE: &str = "node-role.kubernetes.io/node";

/// The labels of a Node of the group `nodes` when it gives this team.
fn of_team(team: &str) -> [(&str, &str); 3] {
    [(INSTANCE_GROUP_LABEL, "nodes"), (NODE, ""), ("team", team)]
}

#[tokio::test]
async fn connections_that_end() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let controller = world.controller().await;
    let nodes = [
        world.join(1, "nodes").await,
        world.join(2, "nodes").await,
        world.join(3, "nodes").await,
    ];
    for node in &nodes {
        world.has_labels(node.name(), &of_team("red")).await;
    }

    closed(&world, &controller, &nodes[0]).await;
    gone(&world, &controller, &nodes).await;
    broken_writes(&world, &controller).await;
    restarted(&world, &controller, &nodes[0]).await;
    closed_again_and_again(&world, &controller, &nodes[0]).await;

    world.quiet(Duration::from_secs(3)).await;
    controller.stops().await;
}

/// A watch that is closed goes on from where it was: nothing is listed anew.
async fn closed(world: &World, controller: &Controller, node: &Kubelet) {
    let before = controller.proxy.requests().len();
    controller.proxy.cut_watches();
    changes(world, node).await;
    let asked = reads_since(controller, before);
    assert!(asked.iter().all(Recorded::is_watch), "{asked:?}");
    // Three, and each once more where the machine is busy.
    assert!(asked.len() <= 6, "{asked:?}");
}

/// A server, or something before it, that closes each watch as soon as it has begun.
async fn closed_again_and_again(world: &World, controller: &Controller, node: &Kubelet) {
    let before = controller.proxy.requests().len();
    throughout(
        "watches to be begun at a bounded rate",
        Duration::from_secs(4),
        async || {
            controller.proxy.cut_watches();
            let asked = reads_since(controller, before);
            if asked.len() <= 24 {
                Ok(())
            } else {
                Err(format!("{} requests", asked.len()))
            }
        },
    )
    .await;
    changes(world, node).await;
}

/// 410 Gone: what happened meanwhile is found by listing: a Node that was changed, one that became another, one that
/// went, and one that came.
async fn gone(world: &World, controller: &Controller, nodes: &[Kubelet; 3]) {
    let [changed, other, went] = nodes;
    let before = controller.proxy.requests().len();
    let gate = hold_watches(controller);
    controller.proxy.expire_watches();
    eventually("the watches to be begun again", SOON, async || {
        if gate.held() == 3 { Ok(()) } else { Err(gate.held()) }
    })
    .await;
    let drifted = json!({"metadata": {"labels": {"team": "blue"}}});
    world.patch(changed.name(), drifted).await;
    for node in [other, went] {
        let deleted = world.nodes().delete(node.name(), &DeleteParams::default()).await;
        deleted.unwrap();
    }
    world.join(2, "nodes").await;
    let came = world.join(4, "nodes").await;
    gate.open();
    for node in [changed, other, &came] {
        world.has_labels(node.name(), &of_team("red")).await;
    }
    controller
        .has_metric("tidewaiter_nodes{state=\"verified\"}", |nodes| nodes == 3.0)
        .await;
    let asked = reads_since(controller, before);
    assert!(asked.len() <= 12, "{asked:?}");
    controller.proxy.clear_hook();
}

/// The connection of a write breaks before it has arrived, or before its answer has: each write in turn, of a new Node
/// and of a changed definition.
async fn broken_writes(world: &World, controller: &Controller) {
    let breaks = (1..=3).flat_map(|nth| [(nth, Moment::Before), (nth, Moment::After)]);
    for (number, (nth, moment)) in (10..).zip(breaks) {
        let group = format!("{moment:?}-{nth}").to_lowercase();
        let labels = |team| [(INSTANCE_GROUP_LABEL, group.as_str()), (NODE, ""), ("team", team)];
        let before = controller.proxy.requests().len();
        world.group(&group, &[("left", "yes"), ("team", "red")]);
        break_write(controller, nth, moment);
        let node = world.join(number, &group).await;
        world
            .has_labels(node.name(), &[&labels("red")[..], &[("left", "yes")]].concat())
            .await;

        break_write(controller, nth, moment);
        world.group(&group, &[("team", "green")]);
        world.has_labels(node.name(), &labels("green")).await;
        eventually(format!("the record of {group} to be narrowed"), SOON, async || {
            let recorded = world.recorded(node.name()).await;
            if recorded.contains_key("left") {
                Err(format!("{recorded:?}"))
            } else {
                Ok(())
            }
        })
        .await;
        // Two for the new Node, three for the change; what is not known to have been accepted is sent once more at
        // most.
        let written = writes_since(controller, before);
        assert!((5..=8).contains(&written.len()), "{written:?}");
    }
    controller.proxy.clear_hook();
}

/// The API server dies and is started again.
async fn restarted(world: &World, controller: &Controller, node: &Kubelet) {
    let (before, begun) = (controller.proxy.requests().len(), now());
    world.cluster.apiserver().kill();
    world.cluster.recover().await;
    let up = controller.proxy.requests().len();
    eventually("the Lease to be renewed", SOON, async || {
        if !controller.process.is_running() {
            // On a machine so slow that it took longer than the renew deadline.
            controller.loses().await;
            world.expire_lease().await;
            controller.process.start_again();
            controller.ready().await;
        }
        let since = controller.proxy.requests().split_off(up);
        let renewed = |request: &Recorded| request.resource() == "leases" && matches!(request.status, Some(200 | 201));
        if since.iter().any(|request| request.is_write() && renewed(request)) {
            Ok(())
        } else {
            Err(format!("{since:?}"))
        }
    })
    .await;
    changes(world, node).await;
    let asked = reads_since(controller, before);
    // The API server starts as slowly as the machine does.
    let most = 60 + 2 * usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!(asked.len() <= most, "most {most}: {asked:?}");
}

#[tokio::test]
async fn an_api_server_that_is_away_for_thirty_seconds() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let leader = world.controller().await;
    leader.leads().await;
    let standby = world.controller().await;
    let (changed, deleted) = (world.join(1, "nodes").await, world.join(2, "nodes").await);
    for node in [&changed, &deleted] {
        world.has_labels(node.name(), &of_team("red")).await;
    }

    // The one finds its connections refused, the other finds them broken off.
    let away = now();
    let before = standby.proxy.requests().len();
    leader.proxy.down().await;
    is_away(&standby);
    let mark = world.cluster.audit_mark().await;
    world.group("nodes", &[("team", "green")]);
    world
        .nodes()
        .delete(deleted.name(), &DeleteParams::default())
        .await
        .unwrap();
    let new = world.join(3, "nodes").await;

    // A leader may not go on for longer than its renew deadline. The kubelet starts it again.
    let line = leader.loses().await;
    assert!(line.ends_with(": not renewed within 10s"), "{line}");
    is_away(&leader);
    leader.proxy.up().await;
    let between = leader.proxy.requests().len();
    leader.process.start_again();
    let left = AWAY.saturating_sub(away.elapsed());
    throughout("both to run, and to ask at a bounded rate", left, async || {
        runs_and_asks_at_most(60, &standby, before)?;
        runs_and_asks_at_most(60, &leader, between)
    })
    .await;
    let unheard = world.writes_since(mark).await;
    assert!(unheard.is_empty(), "{unheard:?}");

    standby.proxy.clear_hook();
    leader.proxy.clear_hook();
    // The standby has seen for long enough that nobody renews the Lease, the other one only begins to look. On a
    // machine on which the standby gets no answer for 15 s, the other one may lead.
    let next = one_leads([&standby, &leader]).await;
    for node in [&changed, &new] {
        world.has_labels(node.name(), &of_team("green")).await;
    }
    next.has_metric("tidewaiter_nodes{state=\"verified\"}", |nodes| nodes == 2.0)
        .await;
    for controller in [&leader, &standby] {
        controller.ready().await;
    }
    world.quiet(Duration::from_secs(2)).await;
    // The record and the Node for each, and no more; again at most once, if the Lease changes hands between them on a
    // slow machine. About the deleted one it heard last.
    let audit = world.cluster.audit().await.since(mark).by(&service_account()).writes();
    let written = audit.filter(|entry| {
        let about = &entry.object_ref;
        matches!(about.resource.as_str(), "nodes" | "nodeidentities") && about.name != deleted.name()
    });
    let writes: Vec<_> = written.iter().map(|entry| (&entry.verb, &entry.object_ref)).collect();
    assert!((4..=8).contains(&writes.len()), "{writes:?}");
    standby.stops().await;
    leader.stops().await;
}

/// Waits until one of them leads.
async fn one_leads(controllers: [&Controller; 2]) -> &Controller {
    eventually("one of them to lead", 3 * SOON, async || {
        for controller in controllers {
            if controller.metric("tidewaiter_leader").await == 1.0 {
                return Ok(controller);
            }
        }
        Err(controllers.map(|controller| controller.process.log_tail()).join("\n"))
    })
    .await
}

/// As long as the API server is away.
const AWAY: Duration = Duration::from_secs(30);

fn runs_and_asks_at_most(most: usize, controller: &Controller, since: usize) -> Result<(), String> {
    let asked = controller.proxy.requests().split_off(since);
    if controller.process.is_running() && asked.len() <= most {
        Ok(())
    } else {
        Err(format!("{asked:?}\n{}", controller.process.log_tail()))
    }
}

/// Breaks off all connections of this one from now on.
fn is_away(controller: &Controller) {
    controller.proxy.hook(|_| Action::Drop);
    controller.proxy.cut_watches();
}

/// Somebody changes a label of ours, and it is changed back.
async fn changes(world: &World, node: &Kubelet) {
    world
        .patch(node.name(), json!({"metadata": {"labels": {"team": "blue"}}}))
        .await;
    world.has_labels(node.name(), &of_team("red")).await;
}

/// Holds the watches that are begun from now on, until the gate is opened.
fn hold_watches(controller: &Controller) -> Gate {
    let gate = Gate::new();
    let hold = gate.clone();
    controller.proxy.hook(move |request| {
        if request.is_watch() {
            Action::Hold(hold.clone())
        } else {
            Action::Forward
        }
    });
    gate
}

/// Returns true if its writes are counted. Those of the cluster's health come whenever it is looked at, which depends
/// on the machine.
fn is_of_a_node(resource: &str) -> bool {
    ["nodes", "nodeidentities"].contains(&resource)
}

/// Breaks the connection of the nth write to a Node or a record from now on.
fn break_write(controller: &Controller, nth: usize, moment: Moment) {
    let seen = AtomicUsize::new(0);
    controller.proxy.hook(move |request| {
        let counts = request.is_write() && is_of_a_node(request.resource());
        if !counts || seen.fetch_add(1, Ordering::Relaxed) + 1 != nth {
            return Action::Forward;
        }
        match moment {
            Moment::Before => Action::Drop,
            Moment::After => Action::LoseAnswer,
        }
    });
}

/// Lists and watches. The read of one record belongs to the write that follows it.
fn reads_since(controller: &Controller, before: usize) -> Vec<Recorded> {
    let mut since = controller.proxy.requests().split_off(before);
    since.retain(|request| !request.is_write() && request.path.ends_with(request.resource()));
    since
}

fn writes_since(controller: &Controller, before: usize) -> Vec<Recorded> {
    let mut since = controller.proxy.requests().split_off(before);
    since.retain(|request| request.is_write() && is_of_a_node(request.resource()));
    since
}

#[expect(
    clippy::disallowed_methods,
    reason = "half a minute over real processes is the subject"
)]
fn now() -> Instant {
    Instant::now()
}
