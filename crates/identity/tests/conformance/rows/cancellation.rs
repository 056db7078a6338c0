//! Callers that stop waiting.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tidewaiter_testkit::{FakeCloud, Protocol, Scripted, eventually};
use tokio::task::JoinSet;

use crate::ask::reason;
use crate::bench::{Bench, SOON, claim, claims};
use crate::cloud::Faults;

pub(crate) async fn a_query_that_is_dropped_leaves_nothing_behind<C: Faults>() {
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=30, "nodes").await;
    let bench = Bench::of(&cloud).await;
    let all = claims(&fleet);
    cloud.fake().always(Some(Scripted::Hang));
    let nothing = |_, _| panic!("nothing was answered");
    tokio::select! {
        () = bench.identifier.identify(&all, &nothing) => panic!("nothing answers"),
        () = is_asked(cloud.fake()) => (),
    }
    cloud.fake().always(None);
    cloud.fake().clear_calls();
    assert!(bench.ask(&all).await.iter().all(Result::is_ok));
    assert_eq!(cloud.fake().take_calls().len(), (C::COSTS.known)(30));
}

pub(crate) async fn who_goes_away_is_not_asked_for<C: Faults>() {
    let mut cloud = C::start().await;
    let fleet = cloud.launch(1..=3, "nodes").await;
    let [first, leaving, staying] = &fleet[..] else {
        panic!("three were launched: {fleet:?}");
    };
    let bench = Bench::of(&cloud).await;
    let running = bench.lookup();
    // Long enough for the others to begin to wait, also on a machine that stands still for a moment.
    cloud.fake().latency(Duration::from_secs(2));
    let mut tasks = JoinSet::new();
    let (lookup, own) = (Arc::clone(&running.lookup), claim(first));
    tasks.spawn(async move { lookup.identify(own).await });
    is_asked(cloud.fake()).await;
    // It begins to wait, and goes.
    assert!(running.lookup.identify(claim(leaving)).now_or_never().is_none());
    assert_eq!(reason(&running.lookup.identify(claim(staying)).await), "ok");
    assert_eq!(reason(&tasks.join_next().await.unwrap().unwrap()), "ok");
    let calls = cloud.fake().take_calls();
    assert!(
        calls.iter().all(|call| !call.names.contains(&leaving.instance)),
        "{calls:?}"
    );
    assert_eq!(calls.len(), (C::COSTS.known)(1) + C::COSTS.again(1));
}

async fn is_asked<P: Protocol>(fake: &FakeCloud<P>) {
    eventually("the cloud to be asked", SOON, async || match fake.calls().len() {
        0 => Err("no call"),
        _ => Ok(()),
    })
    .await;
}
