//! The selection of seeds, and the report of their failures.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::{Outcome, simulate};

/// The seeds of `make test`.
const SEEDS: Range<u64> = 0..1000;
/// The run stops after this many failed seeds.
const ENOUGH: usize = 5;

/// The seeds to run, and whether to print their events.
pub struct Chosen {
    seeds: Range<u64>,
    traces: bool,
}

/// The seeds in the environment, or the default ones.
#[expect(clippy::disallowed_methods, reason = "how a person repeats a seed")]
pub fn chosen() -> Chosen {
    let number = |text: &str| {
        text.trim()
            .parse::<u64>()
            .unwrap_or_else(|_| panic!("{text:?} is not a number"))
    };
    if let Ok(seed) = std::env::var("TIDEWAITER_SIM_SEED") {
        let seed = number(&seed);
        return Chosen {
            seeds: seed..seed + 1,
            traces: true,
        };
    }
    let seeds = match std::env::var("TIDEWAITER_SIM_SEEDS") {
        Ok(range) => {
            let (from, to) = range
                .split_once("..")
                .unwrap_or_else(|| panic!("TIDEWAITER_SIM_SEEDS is not from..to"));
            number(from)..number(to)
        }
        Err(_) => SEEDS,
    };
    Chosen { seeds, traces: false }
}

/// Runs one seed on this thread.
pub fn play(seed: u64, traces: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(simulate(seed, traces))
}

/// Runs the seeds on as many threads as there are cores.
///
/// # Panics
/// If a seed fails; names it, and how to repeat it.
pub fn run(chosen: &Chosen) {
    let next = AtomicU64::new(chosen.seeds.start);
    let failures = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= chosen.seeds.end || failures.lock().unwrap().len() >= ENOUGH {
                        return;
                    }
                    let violations = match catch_unwind(AssertUnwindSafe(|| play(seed, chosen.traces))) {
                        Ok(outcome) => outcome.violations,
                        Err(_) => vec!["it panicked, as said above".to_owned()],
                    };
                    if !violations.is_empty() {
                        failures.lock().unwrap().push((seed, violations));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort_unstable();
    let told = failures.iter().map(|(seed, violations)| {
        let first: Vec<&str> = violations.iter().take(3).map(String::as_str).collect();
        format!("seed {seed}: {}\n  repeat it: TIDEWAITER_SIM_SEED={seed} cargo test --workspace --test simulation whatever -- --nocapture\n", first.join("\n  "))
    });
    let told: String = told.collect();
    assert!(failures.is_empty(), "\n{told}");
}
