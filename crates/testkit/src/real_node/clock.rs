//! The clock of a node, which is the machine's: Linux has time namespaces for the clocks that count from boot, and none
//! for the time of day, and a preloaded library (libfaketime) changes nothing in a static program such as kubelet.
//!
//! So the functions with which the kernel tells a process the time (the vDSO, a page of code in each process) are
//! overwritten in every process of the node, pods included, while the node stands still: kubelet's, containerd's and
//! pods' view is then off by whole seconds, and timers run on. It does not reach a process that starts another program
//! later, which gets a new page; nor one that asks the kernel without that page; nor what the kernel itself writes,
//! such as times of files.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

use super::RealNode;

/// The code of each function, before and after a number of seconds: it asks the kernel and adds these to the answer.
///
/// `clock_gettime(rdi, rsi)`: system call 228; for the clocks 0 (`CLOCK_REALTIME`) and 5 (the coarse one)
/// `*rsi += seconds`.
const CLOCK_GETTIME: [&[u8]; 2] = [
    b"\xb8\xe4\0\0\0\x0f\x05\x85\xc0\x75\x16\x85\xff\x74\x05\x83\xff\x05\x75\x0d\x48\xb9",
    b"\x48\x01\x0e\xc3",
];
/// `gettimeofday(rdi, rsi)`: system call 96; `*rdi += seconds` unless rdi is null.
const GETTIMEOFDAY: [&[u8]; 2] = [
    b"\xb8\x60\0\0\0\x0f\x05\x85\xc0\x75\x12\x48\x85\xff\x74\x0d\x48\xb9",
    b"\x48\x01\x0f\xc3",
];
/// `time(rdi)`: system call 201; `rax += seconds`; `*rdi = rax` unless rdi is null.
const TIME: [&[u8]; 2] = [
    b"\xb8\xc9\0\0\0\x0f\x05\x48\xb9",
    b"\x48\x01\xc8\x48\x85\xff\x74\x03\x48\x89\x07\xc3",
];

const FUNCTIONS: [(&str, [&[u8]; 2]); 3] = [
    ("__vdso_clock_gettime", CLOCK_GETTIME),
    ("__vdso_gettimeofday", GETTIMEOFDAY),
    ("__vdso_time", TIME),
];

impl RealNode {
    /// Has all processes that now run on the node see a time of day that is this many seconds ahead of the machine's
    /// (behind, when negative; 0 ends it). A process that is started later sees the machine's time until this is called
    /// again.
    ///
    /// # Panics
    /// On another processor than x86-64, for which there is no code here.
    pub async fn shift_clock(&self, seconds: i64) {
        assert_eq!(std::env::consts::ARCH, "x86_64", "shift_clock has code for x86_64 only");
        self.pause().await;
        for pid in self.slot.processes() {
            shift(pid, seconds);
        }
        self.resume();
    }
}

/// One that has no vDSO has ended, and is not yet waited for.
fn shift(pid: u32, seconds: i64) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Some(range) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        return;
    };
    let (start, end) = range
        .split(' ')
        .next()
        .and_then(|range| range.split_once('-'))
        .expect("a range");
    let number = |text| u64::from_str_radix(text, 16).expect("an address");
    let (start, end) = (number(start), number(end));
    // The kernel lets root write into pages that the process itself may not write to, as for a debugger.
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"));
    let memory: File = memory.expect("root may write to any process");
    let mut image = vec![0; usize::try_from(end - start).expect("two pages")];
    memory.read_exact_at(&mut image, start).expect("the vDSO can be read");
    let elf = ElfFile64::<object::Endianness>::parse(&*image).expect("the vDSO is an ELF image");
    for (name, [before, after]) in FUNCTIONS {
        let symbol = elf.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
        let symbol = symbol.unwrap_or_else(|| panic!("the vDSO of this kernel has no {name}"));
        let code = [before, &seconds.to_le_bytes(), after].concat();
        assert!(code.len() as u64 <= symbol.size(), "{name} is too short");
        memory
            .write_all_at(&code, start + symbol.address())
            .expect("the vDSO can be written");
    }
}
