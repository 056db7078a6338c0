//! Instances that the cloud does not list yet.

use super::*;
use crate::lookup::state::UNLISTED_AT_ONCE;

const MINUTE: Duration = Duration::from_mins(1);
/// Within this time an instance that is listed is seen.
const SEEN: Duration = Duration::from_secs(5);

fn not_found() -> Refusal {
    Refusal::NotFound {
        instance: "x".to_owned(),
    }
}

fn starting() -> Refusal {
    Refusal::Starting {
        instance: "x".to_owned(),
    }
}

impl Bench {
    /// Lets the time pass. Each call in it answers these Nodes, and refuses the others. The sizes of the calls.
    fn pass(&mut self, time: Duration, listed: &[&str], refusal: &Refusal) -> Vec<usize> {
        let mut calls = Vec::new();
        for _ in 0..time.as_millis() / 100 {
            self.advance(SECOND / 10);
            while let Ok(asked) = self.asked.try_recv() {
                calls.push(asked.claims.len());
                for (place, claim) in asked.claims.iter().enumerate() {
                    let is_listed = listed.contains(&claim.node.as_str());
                    asked.give(
                        place,
                        is_listed.then(|| identity_of(claim)).ok_or_else(|| refusal.clone()),
                    );
                }
                drop(asked);
                self.settle();
            }
        }
        calls
    }

    fn ask_all(&mut self, nodes: &[String]) -> Vec<usize> {
        nodes.iter().map(|node| self.ask(claim(node))).collect()
    }

    fn announced(&self) -> Vec<String> {
        self.back.lock().drain(..).map(|node| node.to_string()).collect()
    }
}

#[test]
fn any_number_of_them_costs_few_calls_and_each_is_seen_soon_after_it_is_listed() {
    for (refusal, count) in [
        (not_found(), 1),
        (not_found(), 40),
        (starting(), 40),
        (not_found(), 1_000),
    ] {
        let mut bench = Bench::new();
        let nodes: Vec<_> = (0..count).map(|n| format!("n{n}")).collect();
        bench.ask_all(&nodes);
        let mut calls = 0;
        for _ in 0..60 {
            calls += bench.pass(SECOND, &[], &refusal).len();
            // Whatever makes a pass over a Node makes no call.
            for number in bench.ask_all(&nodes) {
                assert_eq!(bench.answer(number), Err(refusal.clone()));
            }
        }
        assert!(
            (10..=20).contains(&calls),
            "{calls} calls for {count} in the first minute"
        );
        bench.announced();
        if count > UNLISTED_AT_ONCE {
            let sizes = bench.pass(MINUTE, &[], &refusal);
            assert!(sizes.iter().all(|size| *size == UNLISTED_AT_ONCE), "{sizes:?}");
            continue;
        }
        bench.pass(SEEN, &["n0"], &refusal);
        assert_eq!(bench.announced(), ["n0"], "and no other");
        let number = bench.ask(claim("n0"));
        assert!(bench.answer(number).is_ok());
        bench.no_call();
    }
}

#[test]
fn one_that_is_never_listed_is_asked_about_less_and_less_until_another_one_comes() {
    let mut bench = Bench::new();
    bench.ask(claim("gone"));
    bench.pass(10 * MINUTE, &[], &not_found());
    let hour = bench.pass(60 * MINUTE, &[], &not_found()).len();
    assert!((10..=16).contains(&hour), "{hour} calls in an hour");
    bench.ask(claim("new"));
    bench.pass(SECOND, &[], &not_found());
    bench.pass(SEEN, &["new", "gone"], &not_found());
    assert_eq!(bench.announced().len(), 2, "they are tried together");
    assert!(bench.pass(10 * MINUTE, &[], &not_found()).is_empty(), "nobody waits");
}

/// The answer about an instance that is starting is judged by what its Node says now.
#[test]
fn a_claim_is_tried_as_it_is_now() {
    let mut bench = Bench::new();
    let with = |address: &str| Claim {
        addresses: vec![address.parse().unwrap()],
        ..claim("a")
    };
    let answer = |asked: Asked| {
        let (addresses, starting) = (vec!["10.0.0.1".parse().unwrap()], true);
        let identity = identity_of(&asked.claims[0]);
        asked.give(
            0,
            Ok(Identity {
                starting,
                addresses,
                ..identity
            }),
        );
    };
    let number = bench.ask(with("10.0.0.2"));
    answer(bench.call());
    assert_eq!(bench.answer(number).unwrap_err().reason(), "Starting");
    let number = bench.ask(with("10.0.0.1"));
    assert_eq!(bench.answer(number).unwrap_err().reason(), "Starting");
    bench.advance(SECOND);
    answer(bench.call());
    bench.settle();
    assert_eq!(bench.announced(), ["a"]);
    let number = bench.ask(with("10.0.0.1"));
    assert!(bench.answer(number).is_ok());
}

#[test]
fn the_cloud_may_go_away_meanwhile_and_a_node_too() {
    let mut bench = Bench::new();
    for node in ["a", "gone"] {
        bench.ask(claim(node));
    }
    bench.pass(SECOND / 10, &[], &not_found());
    bench.lookup.forget(&claim("gone").uid);
    bench.pass(10 * SECOND, &[], &throttled());
    let number = bench.ask(claim("a"));
    assert_eq!(bench.answer(number), Err(throttled()));
    bench.announced();
    bench.pass(SEEN, &[], &not_found());
    assert_eq!(bench.announced(), ["a"], "it is back");
    bench.pass(SEEN, &["a", "gone"], &not_found());
    assert_eq!(bench.announced(), ["a"], "it is listed");
}
