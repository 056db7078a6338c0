//! The state of each registry, as metrics: their number by state, and the first expiry of a token.

use std::slice;

use jiff::Timestamp;
use prometheus::IntGauge;
use tidewaiter_kit::metrics::{MetricsError, StateGauge};
use tidewaiter_kit::{Key, Metrics};

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
    /// The state of each, and the expiry of its token.
    registries: StateGauge<(&'static str, Option<Timestamp>)>,
    expiry: IntGauge,
}

impl Board {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let registries = [
            "tidewaiter_registries",
            "Registries by state: ready; missing (no credentials); invalid (unusable credentials or address); refused (the registry refuses the credential); unchecked (the registry cannot be asked); no_token (ECR gives no token); not_written. 0 on a replica that does not lead.",
            "state",
        ];
        let states = State::ALL.map(State::word);
        Ok(Self {
            registries: StateGauge::new(metrics, registries, states, |(word, _)| slice::from_ref(word))?,
            expiry: metrics.gauge(
                "tidewaiter_registry_token_expiry_timestamp_seconds",
                "Unix time at which the first token of a registry expires, in seconds; 0 without a token.",
            )?,
        })
    }

    /// The registry is in this state; its token expires then.
    pub(super) fn set(&self, id: &str, state: State, expires: Option<Timestamp>) {
        self.show(id, Some((state.word(), expires)));
    }

    /// The registry is gone.
    pub(super) fn remove(&self, id: &str) {
        self.show(id, None);
    }

    fn show(&self, id: &str, registry: Option<(&'static str, Option<Timestamp>)>) {
        self.registries.set(&Key::new(id), registry);
        self.registries.read(|all| {
            let first = all.values().filter_map(|(_, expires)| *expires).min();
            self.expiry.set(first.map_or(0, Timestamp::as_second));
        });
    }
}
