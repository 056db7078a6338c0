use std::cell::RefCell;
use std::future::{pending, ready as at_once};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use anyhow::anyhow;
use futures::FutureExt as _;
use tidewaiter_kit::ManualClock;
use tidewaiter_validation::verdict::Counts;
use tidewaiter_validation::{Failure, FailureKind, Outcome, PartName, Unknown};

use super::*;

const CLUSTER: &str = "test.example.com";
const SECOND: Duration = Duration::from_secs(1);

pub(in crate::validate) fn ready() -> Verdict {
    Verdict {
        cluster: CLUSTER.parse().unwrap(),
        failures: Vec::new(),
        unlisted: std::collections::BTreeMap::new(),
        tolerated: Vec::new(),
        unknown: Vec::new(),
        groups: Vec::new(),
        nodes: Vec::new(),
        counts: Counts::default(),
        trusts_claims: false,
    }
}

/// With Nodes that fail, by name and message.
pub(in crate::validate) fn failed(nodes: &[(&str, &str)]) -> Verdict {
    let failure = |(name, message): &(&str, &str)| Failure {
        kind: FailureKind::Node,
        name: (*name).to_owned(),
        message: (*message).to_owned(),
        instance_group: None,
    };
    Verdict {
        failures: nodes.iter().map(failure).collect(),
        ..ready()
    }
}

fn unknown() -> Verdict {
    Verdict {
        unknown: vec![Unknown {
            part: PartName::Cloud,
            reason: "is away".to_owned(),
        }],
        ..ready()
    }
}

fn of(outcome: char) -> Verdict {
    match outcome {
        'r' => ready(),
        'f' => failed(&[("n", "node n is not ready")]),
        _ => unknown(),
    }
}

/// The times of the looks (in seconds from the start) when each takes `took`, and what the last one was.
fn looks(wait: u32, interval: u32, count: u32, took: u64, outcomes: &str) -> (Vec<u64>, char) {
    let mut rounds = Rounds::new(wait * SECOND, interval * SECOND, count, 100 * SECOND);
    let mut now = 100;
    let mut times = Vec::new();
    for outcome in outcomes.chars() {
        times.push(now - 100);
        now += took;
        match rounds.next(of(outcome).outcome(), Duration::from_secs(now)) {
            Some(after) => now += after.as_secs(),
            None => return (times, outcome),
        }
    }
    panic!("it looks more than {} times: {times:?}", outcomes.len());
}

#[test]
fn one_looks_until_it_is_ready_so_many_times_in_a_row_or_time_is_over() {
    for (wait, interval, count, took, outcomes, expected, last) in [
        // Once, whatever it is.
        (0, 10, 1, 0, "r", &[0][..], 'r'),
        (0, 10, 1, 0, "f", &[0], 'f'),
        (0, 10, 1, 0, "u", &[0], 'u'),
        // It waits for what is not ready, and looks once more when time is over.
        (25, 10, 1, 0, "fufr", &[0, 10, 20, 25], 'r'),
        (25, 10, 1, 0, "fffu", &[0, 10, 20, 25], 'u'),
        (20, 10, 1, 0, "fff", &[0, 10, 20], 'f'),
        (25, 10, 1, 0, "r", &[0], 'r'),
        // A look takes its time too.
        (25, 10, 1, 8, "ff", &[0, 18], 'f'),
        (5, 10, 1, 8, "f", &[0], 'f'),
        (5, 10, 1, 3, "ff", &[0, 5], 'f'),
        // A row is finished whatever the time, and begins again after anything else.
        (0, 10, 3, 0, "rrr", &[0, 10, 20], 'r'),
        (0, 10, 3, 0, "rf", &[0, 10], 'f'),
        (60, 10, 3, 0, "rrfrrr", &[0, 10, 20, 30, 40, 50], 'r'),
        (60, 10, 2, 0, "rurr", &[0, 10, 20, 30], 'r'),
        (15, 10, 3, 0, "frrr", &[0, 10, 20, 30], 'r'),
        (15, 10, 3, 0, "frrf", &[0, 10, 20, 30], 'f'),
    ] {
        let case = format!("wait {wait} interval {interval} count {count} took {took} {outcomes}");
        assert_eq!(
            looks(wait, interval, count, took, outcomes),
            (expected.to_vec(), last),
            "{case}"
        );
    }
}

/// The output, for those who still read it.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Comes when the clock shows this time of the wait; never without one.
struct At(ManualClock, Option<Duration>);

impl Interrupts for At {
    async fn next(&mut self) -> Interrupt {
        match self.1 {
            Some(time) => {
                let left = (ManualClock::ORIGIN + time).saturating_sub(self.0.monotonic());
                self.0.sleep(left).await;
                Interrupt::Interrupted
            }
            None => pending().await,
        }
    }
}

/// Runs the looks against a script; a look beyond its end never ends. The clock moves on whenever all wait.
fn run(wait: u32, count: u32, script: Vec<Result<Verdict>>, interrupt: Option<u64>) -> (Result<Ended>, String) {
    let clock = ManualClock::default();
    let written = Written::default();
    let mut progress = Progress::lines(&CLUSTER.parse().unwrap(), Box::new(written.clone()));
    let script = RefCell::new(script.into_iter());
    let look = || match script.borrow_mut().next() {
        Some(verdict) => at_once(verdict).left_future(),
        None => pending().right_future(),
    };
    let rounds = Rounds::new(wait * SECOND, 10 * SECOND, count, clock.monotonic());
    let interrupts = At(clock.clone(), interrupt.map(Duration::from_secs));
    let mut running = Box::pin(watch(rounds, &clock, look, &mut progress, interrupts));
    let ended = (0..1_000).find_map(|_| {
        let ended = running.as_mut().now_or_never();
        clock.advance(SECOND);
        ended
    });
    drop(running);
    (ended.expect("it ends"), written.text())
}

fn outcome(ended: &Result<Ended>) -> Option<Outcome> {
    let verdict = ended.as_ref().unwrap().verdict.as_ref();
    verdict.map(Verdict::outcome)
}

#[test]
fn each_look_but_the_last_is_a_line() {
    let nodes = [
        ("a", "node a is not ready"),
        ("b", "node b\u{7} is not ready"),
        ("c", "c"),
        ("d", "d"),
        ("e", "e"),
    ];
    let script = vec![Ok(failed(&nodes)), Ok(unknown()), Ok(ready()), Ok(ready())];
    let (ended, told) = run(60, 2, script, None);
    assert_eq!(outcome(&ended), Some(Outcome::Ready));
    let start = ManualClock::default().now();
    let at = |seconds: i64| format!("{:.0}", start + jiff::SignedDuration::from_secs(seconds));
    let expected = [
        format!(
            "{} test.example.com is not ready: node a is not ready; node b\\u{{7}} is not ready; c; and 2 more\n",
            at(0)
        ),
        format!(
            "{} cannot tell whether test.example.com is ready: cloud unknown: is away\n",
            at(10)
        ),
        format!("{} test.example.com is ready, 1 of 2 times in a row\n", at(20)),
    ];
    assert_eq!(told, expected.concat());
    assert_eq!(run(0, 1, vec![Ok(unknown())], None).1, "", "nobody waits");
}

#[test]
fn an_interrupt_ends_a_look_and_a_wait_with_the_last_verdict() {
    let interrupted = |script, after| {
        let (ended, _) = run(600, 1, script, Some(after));
        let found = outcome(&ended);
        (found, ended.unwrap().interrupt)
    };
    let interrupt = Some(Interrupt::Interrupted);
    assert_eq!(interrupted(vec![], 3), (None, interrupt));
    assert_eq!(
        interrupted(vec![Ok(unknown()), Ok(of('f'))], 15),
        (Some(Outcome::Failed), interrupt)
    );
    assert_eq!(
        interrupted(vec![Ok(of('f'))], 15),
        (Some(Outcome::Failed), interrupt),
        "in the second look"
    );
    assert_eq!(interrupted(vec![Ok(ready())], 15), (Some(Outcome::Ready), None));
}

#[test]
fn what_waiting_does_not_help_ends_it() {
    let (ended, _) = run(600, 1, vec![Ok(of('f')), Err(anyhow!("no such cluster"))], None);
    assert_eq!(ended.unwrap_err().to_string(), "no such cluster");
}
