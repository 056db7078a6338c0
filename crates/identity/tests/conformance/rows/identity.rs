//! The identity of an instance, the requirements on its Node, and each refusal that is about the instance.

use tidewaiter_api::Lifecycle;
use tidewaiter_identity::{Claim, NodeNames, Refusal, prove};

use crate::ask::{claim_of, reason, reasons};
use crate::bench::{Bench, claim, claims};
use crate::cloud::Cloud;

pub(crate) async fn an_instance_of_ours<C: Cloud>() {
    let mut cloud = C::start().await;
    let workers = cloud.launch(1..=2, "nodes").await;
    let masters = cloud.launch(3..=3, "masters").await;
    let all: Vec<_> = workers.iter().chain(&masters).cloned().collect();
    let bench = Bench::of(&cloud).await;
    let results = bench.ask(&claims(&all)).await;
    for ((result, launched), group) in results.iter().zip(&all).zip(["nodes", "nodes", "masters"]) {
        let identity = result.as_ref().unwrap();
        assert_eq!(identity.instance, launched.instance);
        assert_eq!(identity.group.as_str(), group);
        assert_eq!(identity.zone, launched.zone);
        assert_eq!(identity.lifecycle, Lifecycle::OnDemand);
        assert!(identity.has_name(&launched.node), "{identity:?}");
        assert!(identity.has_address(launched.address.parse().unwrap()), "{identity:?}");
    }

    // The proof that follows: its own Node, and one with another instance's credentials.
    let identity = results[0].clone().unwrap();
    let outcome = |claim: &Claim, names| prove(claim, identity.clone().into(), names);
    let own = claim(&all[0]);
    assert_eq!(reason(&outcome(&own, NodeNames::Enforce)), "ok");
    let named_otherwise = Claim {
        node: all[2].node.parse().unwrap(),
        ..own.clone()
    };
    let elsewhere = Claim {
        addresses: vec![all[2].address.parse().unwrap()],
        ..own.clone()
    };
    let claimed_twice = Claim {
        rivals: vec![all[2].node.parse().unwrap()],
        ..own
    };
    for (claim, names, expected, forged) in [
        (&named_otherwise, NodeNames::Enforce, "NameMismatch", true),
        (&elsewhere, NodeNames::Enforce, "AddressMismatch", true),
        (&claimed_twice, NodeNames::Warn, "Duplicate", false),
    ] {
        let refusal = outcome(claim, names).unwrap_err();
        assert_eq!((refusal.reason(), refusal.is_forgery()), (expected, forged));
    }
}

/// Each beside a healthy one, which it does not hurt.
pub(crate) async fn each_refusal<C: Cloud>() {
    let mut cloud = C::start().await;
    let all = cloud.launch(1..=4, "nodes").await;
    let [healthy, stopped, foreign, bare] = &all[..] else {
        panic!("four were launched: {all:?}");
    };
    cloud.stop(stopped).await;
    cloud.give_away(foreign).await;
    cloud.ungroup(bare).await;
    let bench = Bench::of(&cloud).await;
    let mut asked = claims(&all);
    asked.push(claim_of(C::unknown()));
    let mut expected = vec![
        ("ok", false),
        ("NotRunning", false),
        ("ForeignProject", true),
        ("NotInGroup", false),
        ("NotFound", false),
    ];
    match C::elsewhere(healthy) {
        Ok((provider_id, reason)) => {
            asked.push(claim_of(&provider_id));
            expected.push((reason, reason == "ZoneMismatch"));
        }
        Err(not_applicable) => not_applicable.say(),
    }
    let results = bench.ask(&asked).await;
    for ((result, expected), claim) in results.iter().zip(&expected).zip(&asked) {
        let forged = result.as_ref().is_err_and(Refusal::is_forgery);
        assert_eq!((reason(result), forged), *expected, "{claim:?}: {result:?}");
        if let Err(refusal) = result {
            assert!(!refusal.is_transient(), "{refusal}");
        }
    }
}

pub(crate) async fn several_claims_of_one_instance<C: Cloud>() {
    let mut cloud = C::start().await;
    let one = cloud.launch(1..=1, "nodes").await.remove(0);
    let bench = Bench::of(&cloud).await;
    let asked: Vec<Claim> = (0..20).map(|_| claim(&one)).collect();
    assert_eq!(reasons(&bench.ask(&asked).await), ["ok"; 20]);
}
