//! What a process has used, as the kernel says (`proc_pid_status(5)`, `proc_pid_stat(5)`).

use anyhow::{Context as _, Result};
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
    pub fn of(pid: u32) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the process has ended")?;
        let mebibytes = |field: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u32>().ok());
            let kibibytes = kibibytes.with_context(|| format!("/proc/{pid}/status does not tell {field}"))?;
            anyhow::Ok(f64::from(kibibytes) / 1024.0)
        };
        Ok(Self {
            resident: mebibytes("VmRSS")?,
            anonymous: mebibytes("RssAnon")?,
            peak: mebibytes("VmHWM")?,
        })
    }
}

/// The most that a process has of memory over some time.
pub struct Peak {
    pid: u32,
    anonymous: f64,
}

impl Peak {
    /// From now on. The kernel's own mark of the most that was resident is set back to what is now (`proc_pid_clear_refs(5)`).
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel's")]
    pub fn begin(pid: u32) -> Result<Self> {
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").context("the process has ended")?;
        Ok(Self { pid, anonymous: 0.0 })
    }

    /// The kernel keeps no mark of the memory that belongs to the process alone: it has to be looked at.
    pub fn look(&mut self) -> Result<()> {
        self.anonymous = self.anonymous.max(Memory::of(self.pid)?.anonymous);
        Ok(())
    }

    /// Of the memory of the process alone the most that is possible: all that was ever resident more than now.
    pub fn end(self) -> Result<Memory> {
        let now = Memory::of(self.pid)?;
        let file = now.resident - now.anonymous;
        Ok(Memory {
            anonymous: self.anonymous.max(now.peak - file),
            ..now
        })
    }
}

/// Seconds on a core so far, in user and kernel mode.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process has ended")?;
    // The program's name, in parentheses, may hold anything.
    let (_, rest) = stat.rsplit_once(')').context("/proc/PID/stat has another form")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks: u32 = fields[11].parse::<u32>()? + fields[12].parse::<u32>()?;
    Ok(f64::from(ticks) / TICKS_PER_SECOND)
}

/// `USER_HZ`, the same on every architecture that Linux has today.
const TICKS_PER_SECOND: f64 = 100.0;
