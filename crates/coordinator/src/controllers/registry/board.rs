//! The state of each registry, as metrics: their number by state, and the first expiry of a token.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{IntGauge, IntGaugeVec};
use tidewaiter_kit::Metrics;
use tidewaiter_kit::metrics::MetricsError;

/// The state of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    Missing,
    Invalid,
    Refused,
    Unchecked,
    NoToken,
    NotWritten,
}

impl State {
    const ALL: [Self; 7] = [
        Self::Ready,
        Self::Missing,
        Self::Invalid,
        Self::Refused,
        Self::Unchecked,
        Self::NoToken,
        Self::NotWritten,
    ];

    /// Its name in metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Missing => "missing",
            Self::Invalid => "invalid",
            Self::Refused => "refused",
            Self::Unchecked => "unchecked",
            Self::NoToken => "no_token",
            Self::NotWritten => "not_written",
        }
    }
}

/// The states of all registries.
#[derive(Debug)]
pub(super) struct Board {
    all: Mutex<BTreeMap<String, (State, Option<Timestamp>)>>,
    registries: IntGaugeVec,
    expiry: IntGauge,
}

impl Board {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let board = Self {
            all: Mutex::default(),
            registries: metrics.gauge_vec(
                "tidewaiter_registries",
                "Registries by state: ready; missing (no credentials); invalid (unusable credentials or address); refused (the registry refuses the credential); unchecked (the registry cannot be asked); no_token (ECR gives no token); not_written. 0 on a replica that does not lead.",
                &["state"],
            )?,
            expiry: metrics.gauge(
                "tidewaiter_registry_token_expiry_timestamp_seconds",
                "Unix time at which the first token of a registry expires, in seconds; 0 without a token.",
            )?,
        };
        board.show(&BTreeMap::new());
        Ok(board)
    }

    /// The registry is in this state; its token expires then.
    pub(super) fn set(&self, id: &str, state: State, expires: Option<Timestamp>) {
        let mut all = self.all.lock();
        all.insert(id.to_owned(), (state, expires));
        self.show(&all);
    }

    /// The registry is gone.
    pub(super) fn remove(&self, id: &str) {
        let mut all = self.all.lock();
        all.remove(id);
        self.show(&all);
    }

    fn show(&self, all: &BTreeMap<String, (State, Option<Timestamp>)>) {
        for state in State::ALL {
            let count = all.values().filter(|(its, _)| *its == state).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.registries.with_label_values(&[state.word()]).set(count);
        }
        let first = all.values().filter_map(|(_, expires)| *expires).min();
        self.expiry.set(first.map_or(0, Timestamp::as_second));
    }
}
