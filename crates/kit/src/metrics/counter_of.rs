//! A counter whose value a callback returns at each scrape.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, Opts, Result};

pub(super) struct CounterOf<F> {
    opts: Opts,
    /// A counter at zero, for the description; each scrape creates a new one with the value.
    zero: IntCounter,
    count: F,
}

impl<F: Fn() -> u64> CounterOf<F> {
    pub(super) fn new(opts: Opts, count: F) -> Result<Self> {
        let zero = IntCounter::with_opts(opts.clone())?;
        Ok(Self { opts, zero, count })
    }
}

impl<F: Fn() -> u64 + Send + Sync> Collector for CounterOf<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.zero.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Ok(counter) = IntCounter::with_opts(self.opts.clone()) else {
            return self.zero.collect();
        };
        counter.inc_by((self.count)());
        counter.collect()
    }
}
