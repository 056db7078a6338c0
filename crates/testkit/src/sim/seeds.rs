//! The seeds that a simulation plays, and the report of their failures.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The run stops after this many failed seeds.
const MAX_FAILED_SEEDS: usize = 5;

/// The seeds to play, and whether to print their events.
#[derive(Clone, Debug)]
pub struct Seeds {
    seeds: Range<u64>,
    traces: bool,
}

impl Seeds {
    /// The seeds in the environment (`TIDEWAITER_SIM_SEED`, with traces, or `TIDEWAITER_SIM_SEEDS`, from..to), or
    /// these.
    ///
    /// # Panics
    /// When a variable is no number or no range.
    #[expect(clippy::disallowed_methods, reason = "how a person repeats a seed")]
    #[must_use]
    pub fn chosen(default: Range<u64>) -> Self {
        let number = |text: &str| {
            text.trim()
                .parse::<u64>()
                .unwrap_or_else(|_| panic!("{text:?} is not a number"))
        };
        if let Ok(seed) = std::env::var("TIDEWAITER_SIM_SEED") {
            let seed = number(&seed);
            return Self {
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
            Err(_) => default,
        };
        Self { seeds, traces: false }
    }

    /// Plays the seeds on as many threads as there are cores. `play` gets a seed and whether to print its events, and
    /// says what was violated. `arguments` are those of `cargo test` that select this simulation.
    ///
    /// # Panics
    /// If a seed fails; names it, and how to repeat it.
    pub fn run(&self, arguments: &str, play: impl Fn(u64, bool) -> Vec<String> + Sync) {
        let next = AtomicU64::new(self.seeds.start);
        let failures = Mutex::new(Vec::new());
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.seeds.end || failures.lock().unwrap().len() >= MAX_FAILED_SEEDS {
                            return;
                        }
                        let violations = catch_unwind(AssertUnwindSafe(|| play(seed, self.traces)))
                            .unwrap_or_else(|_| vec!["it panicked, as said above".to_owned()]);
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
            let first = first.join("\n  ");
            format!("seed {seed}: {first}\n  repeat it: TIDEWAITER_SIM_SEED={seed} cargo test --workspace {arguments} -- --nocapture\n")
        });
        let told: String = told.collect();
        assert!(failures.is_empty(), "\n{told}");
    }
}
