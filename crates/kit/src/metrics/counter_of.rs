//! A counter that something else counts.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, Opts, Result};

pub(super) struct CounterOf<F> {
    opts: Opts,
    /// At zero: the counter that is shown is made anew on each scrape.
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
