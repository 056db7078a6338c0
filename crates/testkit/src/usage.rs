//! The resource usage of a process, according to the kernel (`proc_pid_status(5)`, `proc_pid_stat(5)`).

use serde::Serialize;

/// Memory, in MiB.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Resident now, the pages of the program's file included.
    pub resident: f64,
    /// Of that, what belongs to the process alone: what Kubernetes reports as `container_memory_rss`.
    pub anonymous: f64,
    /// The most that was ever resident.
    pub peak: f64,
}

impl Memory {
    /// Of the process `pid`, which has to run.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
        let mebibytes = |field: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            let kibibytes: Option<u32> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
            f64::from(kibibytes.unwrap_or_else(|| panic!("/proc/{pid}/status does not tell {field}"))) / 1024.0
        };
        Self {
            resident: mebibytes("VmRSS"),
            anonymous: mebibytes("RssAnon"),
            peak: mebibytes("VmHWM"),
        }
    }
}

/// The most that a process has of memory over some time.
#[derive(Debug)]
pub struct Peak {
    pid: u32,
    anonymous: f64,
}

impl Peak {
    /// From now on. The kernel's own mark of the most that was resident is set back to what is now
    /// (`proc_pid_clear_refs(5)`).
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel's")]
    pub fn begin(pid: u32) -> Self {
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the process runs");
        Self { pid, anonymous: 0.0 }
    }

    /// The kernel keeps no mark of the memory that belongs to the process alone: it has to be looked at.
    pub fn look(&mut self) {
        self.anonymous = self.anonymous.max(Memory::of(self.pid).anonymous);
    }

    /// Of the memory of the process alone the most that is possible: all that was ever resident more than now.
    #[must_use]
    pub fn end(self) -> Memory {
        let now = Memory::of(self.pid);
        let file = now.resident - now.anonymous;
        Memory {
            anonymous: self.anonymous.max(now.peak - file),
            ..now
        }
    }
}

/// Seconds on a core so far, in user and kernel mode, of the process `pid`, which has to run.
#[must_use]
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The program's name, in parentheses, may hold anything.
    let (_, rest) = stat.rsplit_once(')').expect("a name in parentheses");
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|ticks| f64::from(ticks.parse::<u32>().expect("a number of ticks")));
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

/// `USER_HZ`, the same on every architecture that Linux has today.
const TICKS_PER_SECOND: f64 = 100.0;
