//! The parts that every role of Tidewaiter needs once: watches and caches, the shape of a controller, retry,
//! leadership, the fenced client, Events, supervised tasks, the admin server, metrics, settings, logs and traces, the
//! one clock and the one source of randomness.
//!
//! Only the kit reads the clock and the environment, draws at random, spawns tasks and stops the process. Nothing here
//! knows what a controller decides: the kit has no word about nodes, clouds or kOps.

pub mod admin;
pub mod allowance;
pub mod backoff;
pub mod cache;
pub mod chain;
pub mod checks;
pub mod children;
pub mod client;
pub mod clock;
pub mod controller;
pub mod duration;
pub mod events;
pub mod files;
pub mod finalizer;
mod in_flight;
pub mod index;
pub mod key;
pub mod leader;
pub mod metrics;
pub mod packed;
pub mod proxy;
pub mod queue;
pub mod random;
pub mod renewals;
pub mod retry;
pub mod role;
pub mod serve;
pub mod settings;
pub mod slim;
pub mod tasks;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod trigger;
pub mod write_limits;
pub mod writer;
pub mod yaml;

pub use backoff::{Backoff, Backoffs};
#[cfg(any(test, feature = "test-util"))]
pub use cache::Feed;
pub use cache::{Cache, Cacheable, Change, Guarded, Metadata, Trigger, Undecodable, UndecodableObjects, WatchTrouble};
pub use chain::Chain;
pub use checks::{Checks, Fitness};
pub use children::{ChildrenError, Desired, Difference, Everywhere, ForeignObjects, Ownership};
pub use client::is_fenced;
pub use clock::{Clock, SharedClock, SystemClock};
#[cfg(any(test, feature = "test-util"))]
pub use clock::{ManualClock, SimulatedClock};
pub use controller::{Controller, ControllerContext, Pass, Pause, PauseSwitch, Reconciler};
pub use events::{Events, Notice, NoticeKind};
pub use finalizer::Finalizer;
pub use index::Index;
pub use key::Key;
pub use leader::Leadership;
pub use metrics::{CloudCalls, Metrics};
pub use packed::{Packed, Packer};
pub use queue::Queue;
pub use renewals::Renewals;
pub use retry::{Category, Next, ReconcileError, Retry};
pub use tasks::{Spawner, Tasks};
pub use write_limits::WriteLimits;
pub use writer::{WriteError, Writer};

/// The parts that a process shares: one clock, one set of metrics, one list of readiness checks.
#[derive(Clone, Debug)]
pub struct Kit {
    /// The only source of time.
    pub clock: SharedClock,
    /// Everything that `/metrics` shows.
    pub metrics: Metrics,
    /// Everything that `/readyz` asks.
    pub checks: Checks,
    /// The objects that no cache can decode.
    pub undecodable: UndecodableObjects,
}

impl Kit {
    /// A kit on `clock`, with the metrics that every role has.
    ///
    /// # Errors
    /// Only if two of the common metrics had one name.
    pub fn new(clock: SharedClock) -> Result<Self, metrics::MetricsError> {
        let metrics = Metrics::new(&clock)?;
        Ok(Self {
            clock,
            metrics,
            checks: Checks::new(),
            undecodable: UndecodableObjects::default(),
        })
    }
}
