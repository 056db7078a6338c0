//! The errors of a cloud: the refusal of each, that it is not retried by itself, and that it passes.

use std::time::Duration;

use tidewaiter_identity::{Refusal, UnavailableCause};
use tidewaiter_testkit::Scripted;

use crate::bench::Bench;
use crate::cloud::Faults;

/// The fault, what it is told as, and how its call is counted. Throttling has a refusal of its own.
const TABLE: [(Scripted, Option<UnavailableCause>, &str); 9] = [
    (Scripted::Throttled, None, "throttled"),
    (Scripted::Failed, Some(UnavailableCause::Failed), "failed"),
    (Scripted::Denied, Some(UnavailableCause::Denied), "denied"),
    (
        Scripted::Unauthenticated,
        Some(UnavailableCause::Credentials),
        "no_credentials",
    ),
    (Scripted::Html, Some(UnavailableCause::Unusable), "unusable"),
    (Scripted::Garbage, Some(UnavailableCause::Unusable), "unusable"),
    (Scripted::Drop, Some(UnavailableCause::Unreachable), "unreachable"),
    (Scripted::BreakOff, Some(UnavailableCause::Unreachable), "unreachable"),
    (Scripted::Hang, Some(UnavailableCause::Unreachable), "timeout"),
];

pub(crate) async fn what_keeps_the_cloud_from_answering<C: Faults>() {
    let mut cloud = C::start().await;
    let one = cloud.launch(1..=1, "nodes").await.remove(0);
    for (fault, cause, outcome) in TABLE {
        let bench = Bench::with(&cloud, Duration::from_secs(8)).await;
        cloud.fake().always(Some(fault.clone()));
        let refusal = bench.ask_one(&one).await.unwrap_err();
        assert!(
            refusal.is_transient() && !refusal.is_forgery(),
            "{fault:?}: {refusal:?}"
        );
        let (api, told) = match &refusal {
            Refusal::Throttled { api } => (*api, None),
            Refusal::Unavailable { api, cause, .. } => (*api, Some(*cause)),
            other => panic!("{fault:?}: {other:?}"),
        };
        assert_eq!(told, cause, "{fault:?}: {refusal}");
        assert_eq!(bench.counted.counted(api, outcome), 1, "{fault:?}: {refusal}");
        assert_eq!(cloud.fake().take_calls().len(), 1, "no retries: {fault:?}");
        cloud.fake().always(None);
        assert!(bench.ask_one(&one).await.is_ok(), "and is well again after {fault:?}");
        cloud.fake().clear_calls();
    }
}

pub(crate) async fn away_and_back<C: Faults>() {
    let mut cloud = C::start().await;
    let one = cloud.launch(1..=1, "nodes").await.remove(0);
    let bench = Bench::of(&cloud).await;
    assert!(bench.ask_one(&one).await.is_ok());
    cloud.fake().away().await;
    let refusal = bench.ask_one(&one).await.unwrap_err();
    let Refusal::Unavailable { api, .. } = &refusal else {
        panic!("{refusal:?}");
    };
    assert_eq!(
        refusal.to_string(),
        format!("{api}: not reachable (Connection refused (os error 111))")
    );
    assert_eq!(bench.counted.counted(api, "unreachable"), 1);
    cloud.fake().back().await;
    assert!(bench.ask_one(&one).await.is_ok());
}
