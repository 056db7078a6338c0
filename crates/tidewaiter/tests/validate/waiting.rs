//! Several looks: what is told in between, and how they end.

use rustix::process::Signal;

use tidewaiter_testkit::Scripted;

use crate::world::{CLUSTER, World};

#[tokio::test]
async fn each_look_is_told_until_the_time_is_over() {
    let world = World::start().await;
    world.pending_pod("dns").await;
    // Long enough for a first look on any machine.
    let mut running = world.running(&["--wait", "8s", "--interval", "1s"]);
    let line = running.told().await;
    let (time, said) = line.split_once(' ').unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok(), "{line}");
    let expected = format!("{CLUSTER} is not ready: system-cluster-critical pod \"dns\" is pending");
    assert!(said.starts_with(&expected), "{line}");
    let (code, printed) = running.ended().await;
    assert_eq!(code, Some(2));
    assert!(printed.ends_with("Validation Failed\n"), "{printed}");
}

#[tokio::test]
async fn a_signal_ends_it_with_the_last_verdict() {
    let world = World::start().await;
    world.ec2.always(Some(Scripted::Denied));
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut running = world.running(&["--wait", "1h", "--interval", "1h"]);
        running.tells("cannot tell whether").await;
        running.signal(signal);
        let (ended, printed) = running.ended().await;
        assert_eq!(ended, Some(code));
        let start = format!("Validating cluster {CLUSTER}\n\nINSTANCE GROUPS\n");
        assert!(printed.starts_with(&start), "{printed}");
    }
}
