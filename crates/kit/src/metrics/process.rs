//! The process itself, under the names that every Prometheus client library uses.
//!
//! Read from /proc when asked. Where that cannot be read, the value is left out, never guessed.

use std::fs;

use prometheus::Gauge;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::{MetricsError, plain_gauge};
use crate::clock::SharedClock;

#[derive(Clone)]
pub(super) struct ProcessCollector {
    start: Gauge,
    resident: Gauge,
    open_files: Gauge,
}

impl ProcessCollector {
    pub(super) fn new(clock: &SharedClock) -> Result<Self, MetricsError> {
        let collector = Self {
            start: plain_gauge(
                "process_start_time_seconds",
                "Unix time at which the process started, in seconds.",
            )?,
            resident: plain_gauge("process_resident_memory_bytes", "Resident memory in bytes.")?,
            open_files: plain_gauge("process_open_fds", "Open file descriptors.")?,
        };
        // The process sets up its metrics within milliseconds of its start.
        collector.start.set(clock.now().as_duration().as_secs_f64());
        Ok(collector)
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        [&self.start, &self.resident, &self.open_files]
            .into_iter()
            .flat_map(Collector::desc)
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.start.collect();
        if let Some(bytes) = fs::read_to_string("/proc/self/status")
            .ok()
            .as_deref()
            .and_then(resident_bytes)
        {
            self.resident.set(bytes);
            families.extend(self.resident.collect());
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            self.open_files
                .set(f64::from(u32::try_from(entries.count()).unwrap_or(u32::MAX)));
            families.extend(self.open_files.collect());
        }
        families
    }
}

/// `VmRSS` of `/proc/self/status`, which the kernel gives in units of 1,024 bytes.
fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u32 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(f64::from(kibibytes) * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_resident_memory() {
        assert_eq!(
            resident_bytes("Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t1\n"),
            Some(2_097_152.0)
        );
        assert_eq!(resident_bytes("Name:\tx\n"), None);
        assert_eq!(resident_bytes("VmRSS:\tmany kB\n"), None);
    }
}
