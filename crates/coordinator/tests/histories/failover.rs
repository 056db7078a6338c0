//! Two coordinators with the released timing: however the leader goes, the other one takes over in time, each change of
//! the cloud arrives once, and a leader that comes back writes nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::away::{is_settled, synced};
use crate::objects::Kind;
use crate::replica::simulated;
use crate::settled::check;
use crate::world::{Replica, World, sleep};

/// The end of a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    Sigterm,
    Sigkill,
    Sigstop,
}

impl Goes {
    /// The longest time until a change of the cloud is in the cluster.
    fn most(self) -> Duration {
        match self {
            Self::Sigterm => Duration::from_secs(1),
            Self::Sigkill | Self::Sigstop => Duration::from_secs(18),
        }
    }
}

#[test]
fn another_coordinator_takes_over_in_time_and_each_change_arrives_once() {
    for goes in [Goes::Sigterm, Goes::Sigkill, Goes::Sigstop] {
        for after in [0, 700, 1_900] {
            simulated(6, taken_over(goes, Duration::from_millis(after)));
        }
    }
}

async fn taken_over(goes: Goes, after: Duration) {
    let world = synced(&[(0, 1)], 2).await;
    let first = world.leader().unwrap();
    // The other one stands by.
    sleep(Duration::from_secs(20) + after).await;
    let begin = world.server.writes().len();
    match goes {
        Goes::Sigterm => first.stop.cancel(),
        Goes::Sigkill => first.process.kill(),
        Goes::Sigstop => first.process.stop(),
    }
    world.set(Kind::User, 0, Some(2));
    let took = world
        .until("mirrored by the other", Duration::from_mins(2), is_settled)
        .await;
    assert!(took <= goes.most(), "{goes:?}: {took:?}");
    let second = world.leader().unwrap();
    assert_ne!(second.process.name(), first.process.name(), "{goes:?}");
    for value in 3..40 {
        world.set(Kind::User, 0, Some(value));
        sleep(Duration::from_secs(1)).await;
    }
    if goes == Goes::Sigstop {
        comes_back(&world, &first).await;
    }
    world.until("mirrored", Duration::from_secs(5), is_settled).await;
    // A value that is written twice arrived twice.
    let writes = world.server.writes().split_off(begin);
    let of_user = writes
        .iter()
        .filter(|write| write.resource == "users" && write.has_changed());
    let values: Vec<String> = of_user
        .filter_map(|write| Some(Kind::shown("users", write.after()?)))
        .collect();
    let expected: Vec<String> = (2..40).map(|value| format!("v{value}")).collect();
    assert_eq!(values, expected, "{goes:?}");
    check(&world);
    assert_eq!(world.invariants.violations(), [""; 0], "{goes:?}");
}

/// The paused leader goes on, with a change of the cloud that it has not seen, and writes nothing.
async fn comes_back(world: &World, first: &Replica) {
    first.process.resume(&mut fastrand::Rng::with_seed(7));
    sleep(Duration::from_secs(30)).await;
    assert!(first.process.is_dead(), "it has lost the Lease, so it ends");
    let last = world
        .server
        .writes()
        .into_iter()
        .rfind(|write| write.by == first.process.name());
    let stopped = last.map(|write| write.at).unwrap_or_default();
    assert!(
        world.server.elapsed().saturating_sub(stopped) > Duration::from_mins(1),
        "it wrote after it came back"
    );
}

/// No deadline comes from the time of day.
#[test]
fn a_clock_that_jumps_delays_no_change_and_costs_no_lease() {
    simulated(9, async {
        let world = synced(&[(0, 1)], 2).await;
        sleep(Duration::from_secs(20)).await;
        let replicas: Vec<Replica> = world.replicas.lock().unwrap().iter().flatten().cloned().collect();
        let (leader, mut value) = (world.leader().unwrap(), 1);
        for (which, seconds) in [(0, 3_600), (1, -3_600), (0, -3_600), (1, 3_600), (0, 0), (1, 0)] {
            replicas[which].wrong_by.store(seconds, Ordering::Relaxed);
            for _ in 0..3 {
                value += 1;
                world.set(Kind::User, 0, Some(value));
                let took = world.until("mirrored", Duration::from_mins(2), is_settled).await;
                assert!(took <= Duration::from_secs(1), "{which} by {seconds} s: {took:?}");
                sleep(Duration::from_secs(40)).await;
            }
            let now = world.leader().unwrap();
            assert_eq!(now.process.name(), leader.process.name(), "{which} by {seconds} s");
        }
        check(&world);
        assert_eq!(world.invariants.violations(), [""; 0]);
    });
}
