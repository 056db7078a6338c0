//! The process itself, under the names that every Prometheus client library uses.
//!
//! Read from the kernel on each scrape. A value that cannot be read is left out, never guessed.
//!
//! The prometheus crate's own collector (its feature `process`) is not used: it counts CPU time in whole seconds, which
//! is too coarse for an idle role, and brings the crate procfs with a second version of rustix.

use std::fs;
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Opts};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::clock::SharedClock;

#[derive(Clone)]
pub(super) struct ProcessCollector {
    start: Gauge,
    resident: Gauge,
    open_files: Gauge,
    most_files: Gauge,
    /// Never increased: the counter that is shown is made anew on each scrape.
    cpu: Counter,
}

const CPU: (&str, &str) = ("process_cpu_seconds_total", "User and system CPU time in seconds.");

impl ProcessCollector {
    pub(super) fn new(clock: &SharedClock) -> prometheus::Result<Self> {
        let collector = Self {
            start: Gauge::new(
                "process_start_time_seconds",
                "Unix time of the start of the process, in seconds.",
            )?,
            resident: Gauge::new("process_resident_memory_bytes", "Resident memory in bytes.")?,
            open_files: Gauge::new("process_open_fds", "Open file descriptors.")?,
            most_files: Gauge::new("process_max_fds", "Maximum number of open file descriptors.")?,
            cpu: cpu_seconds(Duration::ZERO)?,
        };
        // The process sets up its metrics within milliseconds of its start.
        collector.start.set(clock.now().as_duration().as_secs_f64());
        Ok(collector)
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        [&self.start, &self.resident, &self.open_files, &self.most_files]
            .into_iter()
            .flat_map(Collector::desc)
            .chain(self.cpu.desc())
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
            self.open_files.set(count(entries.count()));
            families.extend(self.open_files.collect());
        }
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            self.most_files.set(count(limit));
            families.extend(self.most_files.collect());
        }
        let time = clock_gettime(ClockId::ProcessCPUTime);
        if let (Ok(seconds), Ok(nanos)) = (time.tv_sec.try_into(), time.tv_nsec.try_into())
            && let Ok(cpu) = cpu_seconds(Duration::new(seconds, nanos))
        {
            families.extend(cpu.collect());
        }
        families
    }
}

/// A counter that has counted this much CPU time.
fn cpu_seconds(time: Duration) -> prometheus::Result<Counter> {
    let counter = Counter::with_opts(Opts::new(CPU.0, CPU.1))?;
    counter.inc_by(time.as_secs_f64());
    Ok(counter)
}

/// A number of files, far below 2^32.
fn count<N: TryInto<u32>>(files: N) -> f64 {
    f64::from(files.try_into().unwrap_or(u32::MAX))
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
