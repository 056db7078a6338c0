//! The behaviour while the cloud is unavailable, and when it is back.

use tidewaiter_kit::Clock as _;

use super::*;

/// The time within which the return of the cloud is noticed.
const NOTICED: Duration = Duration::from_millis(4_500);

impl Bench {
    /// Asks for these Nodes, which the cloud does not answer.
    fn park(&mut self, nodes: impl IntoIterator<Item = String>, refusal: &Refusal) {
        let numbers: Vec<_> = nodes.into_iter().map(|node| self.ask(claim(&node))).collect();
        self.refuse(refusal);
        while numbers.iter().any(|number| !self.answers.contains_key(number)) {
            self.away(SECOND / 10, refusal);
        }
    }

    /// Refuses every call that is in flight. How many there were.
    fn refuse(&mut self, refusal: &Refusal) -> usize {
        let mut calls = 0;
        self.settle();
        while let Ok(asked) = self.asked.try_recv() {
            calls += 1;
            asked.refuse_all(refusal);
            self.settle();
        }
        calls
    }

    /// Lets the time pass in small steps, in which every call is refused. How many there were.
    fn away(&mut self, time: Duration, refusal: &Refusal) -> usize {
        let end = self.clock.monotonic() + time;
        let mut calls = 0;
        while self.clock.monotonic() < end {
            self.advance((SECOND / 2).min(time));
            calls += self.refuse(refusal);
        }
        calls
    }

    /// Lets the time pass in small steps until the next call.
    fn next_try(&mut self) -> Asked {
        let end = self.clock.monotonic() + NOTICED;
        while self.clock.monotonic() < end {
            self.advance(SECOND / 10);
            if let Ok(asked) = self.asked.try_recv() {
                return asked;
            }
        }
        panic!("no try within {NOTICED:?}");
    }

    fn back(&mut self) -> usize {
        self.settle();
        self.back.lock().len()
    }
}

fn nodes(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("n{n}"))
}

#[test]
fn all_nodes_wait_together_and_are_announced_when_the_cloud_is_back() {
    for refusal in [throttled(), unavailable()] {
        for away in [10, 240, 3600] {
            let mut bench = Bench::new();
            bench.park(nodes(20), &refusal);
            let calls = bench.away(SECOND * away, &refusal);
            let most = usize::try_from(away * 4 / 15 + 5).unwrap();
            assert!(calls <= most, "{calls} calls in {away} s, {most} are enough");
            assert_eq!(bench.back(), 0);

            bench.next_try().answer_all();
            assert_eq!(bench.back(), 20);
            let numbers: Vec<_> = nodes(20).map(|node| bench.ask(claim(&node))).collect();
            for number in numbers {
                bench.answer(number).unwrap();
            }
            bench.no_call();
        }
    }
}

#[test]
fn a_parked_claim_is_answered_without_a_call() {
    let mut bench = Bench::new();
    bench.park(nodes(1), &throttled());
    for _ in 0..100 {
        let number = bench.ask(claim("n0"));
        assert_eq!(bench.answer(number), Err(throttled()));
    }
    bench.no_call();
    bench.next_try().refuse_all(&unavailable());
    bench.settle();
    let number = bench.ask(claim("n0"));
    assert_eq!(bench.answer(number), Err(unavailable()), "the newest refusal");
}

#[test]
fn a_cloud_that_hangs_is_tried_beside_the_calls_that_hang() {
    let mut bench = Bench::new();
    bench.park(nodes(3), &unavailable());
    let _hanging = [bench.next_try(), bench.next_try(), bench.next_try()];
    bench.next_try().answer_all();
    assert_eq!(bench.back(), 3);
}

#[test]
fn after_the_release_nothing_delays_the_next_call() {
    let mut bench = Bench::new();
    bench.park(nodes(2), &throttled());
    // Throttling of fresh queries has a pace of its own, of up to half a minute.
    for n in 0..8 {
        bench.away(SECOND * 30, &throttled());
        bench.park([format!("fresh{n}")], &throttled());
    }
    let waits = bench.ask(claim("waits"));
    let tried = bench.next_try();
    assert!(!names(&tried).contains(&"waits"));
    tried.answer_all();
    bench.call().answer_all();
    assert!(bench.answer(waits).is_ok());
}

#[test]
fn a_refusal_of_the_node_itself_shows_that_the_cloud_is_back() {
    let mut bench = Bench::new();
    bench.park(nodes(2), &unavailable());
    bench.next_try().refuse_all(&not_running());
    assert_eq!(bench.back(), 2);
    assert_eq!(bench.away(SECOND * 20, &not_running()), 0);
    let number = bench.ask(claim("n0"));
    bench.call().refuse_all(&not_running());
    assert_eq!(bench.answer(number), Err(not_running()), "it is not cached");
}

#[test]
fn the_answers_to_others_release_nothing() {
    let mut bench = Bench::new();
    bench.park(nodes(2), &unavailable());
    let other = bench.ask(claim("of-another-zone"));
    while !bench.answers.contains_key(&other) {
        bench.advance(SECOND / 10);
        while let Ok(asked) = bench.asked.try_recv() {
            match names(&asked)[..] {
                ["of-another-zone"] => asked.answer_all(),
                _ => asked.refuse_all(&unavailable()),
            }
        }
        bench.settle();
    }
    bench.answer(other).unwrap();
    assert_eq!(bench.back(), 0);
    let tried = bench.next_try();
    assert_eq!(names(&tried), ["n0", "n1"]);
}

#[test]
fn each_parked_claim_has_its_turn() {
    let mut bench = Bench::new();
    bench.park(nodes(1500), &throttled());
    bench.away(SECOND, &throttled());
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        let tried = bench.next_try();
        assert_eq!(tried.claims.len(), 1000);
        seen.extend(tried.claims.iter().map(|claim| claim.node.to_string()));
        tried.refuse_all(&throttled());
    }
    assert_eq!(seen.len(), 1500);
}

#[test]
fn a_node_that_is_gone_or_claims_something_else_is_not_tried() {
    let mut bench = Bench::new();
    bench.park(nodes(2), &throttled());
    bench.lookup.forget(&claim("n0").uid);
    let moved = Claim {
        provider_id: "test://moved".parse().unwrap(),
        ..claim("n1")
    };
    bench.away(SECOND * 2, &throttled());
    bench.ask(moved.clone());
    bench.away(SECOND, &throttled());
    let tried = bench.next_try();
    assert_eq!(tried.claims, [moved]);
}

#[test]
fn a_node_that_goes_during_its_call_is_not_parked() {
    let mut bench = Bench::new();
    bench.ask(claim("gone"));
    let call = bench.call();
    bench.lookup.forget(&claim("gone").uid);
    call.refuse_all(&throttled());
    assert_eq!(bench.away(SECOND * 20, &throttled()), 0);
}
