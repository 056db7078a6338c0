//! Calls that fail, and the end of the process between two calls.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use tidewaiter_agent::host::{Call, HostCalls};

use super::{NAME, NEW, OLD, WRITES, World, Write, sweep, write, write_prepared};

/// Fails from the n-th call on (the process has ended), or only the n-th call.
#[derive(Debug)]
struct Faulty {
    left: AtomicUsize,
    is_end: bool,
    error: Errno,
}

impl Faulty {
    fn at(number: usize, is_end: bool, error: Errno) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(number),
            is_end,
            error,
        })
    }

    fn has_failed(&self) -> bool {
        self.left.load(Ordering::Relaxed) == usize::MAX
    }
}

impl HostCalls for Faulty {
    fn before(&self, _: Call) -> Result<(), Errno> {
        match self.left.load(Ordering::Relaxed) {
            usize::MAX if self.is_end => Err(self.error),
            usize::MAX => Ok(()),
            0 => {
                self.left.store(usize::MAX, Ordering::Relaxed);
                Err(self.error)
            }
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

/// The state before the write: its name, how it is made, and the content of the file.
type Start = (&'static str, fn(&World), Option<&'static [u8]>);

fn starts() -> [Start; 4] {
    [
        ("nothing", |_| {}, None),
        ("the old file", |world| write(&world.host(), OLD).unwrap(), Some(OLD)),
        (
            "a link in place of the file",
            |world| {
                write(&world.host(), OLD).unwrap();
                fs::remove_file(world.file()).unwrap();
                symlink("nothing", world.file()).unwrap();
            },
            None,
        ),
        (
            "a link in place of .ssh",
            |world| {
                fs::create_dir(world.root().join("home")).unwrap();
                symlink(world.outside(), world.ssh()).unwrap();
            },
            None,
        ),
    ]
}

fn starts_and_writes() -> impl Iterator<Item = (Start, Write)> {
    starts()
        .into_iter()
        .flat_map(|start| WRITES.map(|write| (start, write)))
}

/// Writes down the calls.
#[derive(Debug, Default)]
struct Written(Mutex<Vec<Call>>);

impl HostCalls for Written {
    fn before(&self, call: Call) -> Result<(), Errno> {
        self.0.lock().unwrap().push(call);
        Ok(())
    }
}

#[test]
fn a_file_that_is_prepared_takes_the_place_without_waiting_for_the_disk() {
    let waits = |write: Write| {
        let world = World::new();
        super::write(&world.host(), OLD).unwrap();
        let calls = Arc::new(Written::default());
        write(&world.host_with(calls.clone()), NEW).unwrap();
        let calls = calls.0.lock().unwrap();
        let rename = calls.iter().position(|call| *call == Call::Rename).unwrap();
        let look = calls[..rename].iter().rposition(|call| *call == Call::Read).unwrap();
        calls[look..rename]
            .iter()
            .any(|call| [Call::Sync, Call::Write].contains(call))
    };
    assert!(waits(write));
    assert!(!waits(write_prepared));
}

#[test]
fn a_process_that_ends_at_any_call_leaves_the_old_file_or_the_new_one() {
    for ((what, start, old), write) in starts_and_writes() {
        let mut number = 0;
        loop {
            let world = World::new();
            start(&world);
            let faults = Faulty::at(number, true, Errno::IO);
            let result = write(&world.host_with(faults.clone()), NEW);
            let found = fs::read(world.file()).ok();
            assert!(
                found.as_deref() == Some(NEW) || found.as_deref() == old,
                "{what}, call {number}: {found:?}"
            );
            // The next start removes what is left, and writes.
            if world.ssh().is_symlink() {
                write(&world.host(), OLD).unwrap();
            }
            sweep(&world.host());
            write(&world.host(), NEW).unwrap();
            world.has(NEW);
            assert_eq!(world.names(), [NAME], "{what}, call {number}");
            if !faults.has_failed() {
                result.unwrap();
                break;
            }
            number += 1;
        }
        assert!(number > 10, "{what}: {number} calls");
    }
}

#[test]
fn a_call_that_fails_leaves_the_old_file_or_the_new_one_and_the_next_try_succeeds() {
    for error in [Errno::NOSPC, Errno::ROFS, Errno::IO, Errno::DQUOT, Errno::NFILE] {
        for ((what, start, old), write) in starts_and_writes() {
            let mut number = 0;
            loop {
                let world = World::new();
                start(&world);
                let faults = Faulty::at(number, false, error);
                let result = write(&world.host_with(faults.clone()), NEW);
                let found = fs::read(world.file()).ok();
                assert!(
                    found.as_deref() == Some(NEW) || found.as_deref() == old,
                    "{what}, call {number}: {found:?}"
                );
                if let Err(error) = &result {
                    let path = error.to_string();
                    assert!(path.contains("cannot be"), "{what}, call {number}: {path}");
                }
                write(&world.host(), NEW).unwrap();
                sweep(&world.host());
                world.has(NEW);
                assert_eq!(world.names(), [NAME], "{what}, call {number}");
                if !faults.has_failed() {
                    result.unwrap();
                    break;
                }
                number += 1;
            }
            assert!(number > 10, "{what}: {number} calls");
        }
    }
}
