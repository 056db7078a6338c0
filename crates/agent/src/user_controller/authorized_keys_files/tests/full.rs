//! There is no room on the disk.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidewaiter_kit::Chain;

use super::*;

/// There is no room for another file, and perhaps none for another byte.
#[derive(Debug)]
struct Full {
    is_whole: bool,
    writes: AtomicUsize,
}

impl HostCalls for Full {
    fn before(&self, call: Call) -> Result<(), Errno> {
        self.writes
            .fetch_add(usize::from(call == Call::Write), Ordering::Relaxed);
        if call == Call::Create || self.is_whole && call == Call::Write {
            Err(Errno::NOSPC)
        } else {
            Ok(())
        }
    }
}

fn full(world: &World, is_whole: bool) -> AuthorizedKeysFiles {
    full_and_calls(world, is_whole).0
}

fn full_and_calls(world: &World, is_whole: bool) -> (AuthorizedKeysFiles, Arc<Full>) {
    let writes = AtomicUsize::new(0);
    let calls = Arc::new(Full { is_whole, writes });
    let host = Host::new(world.folder.path(), world.settings.owner(), calls.clone());
    let files = AuthorizedKeysFiles::new(host, world.settings.clone(), Watcher::new(), NOW);
    (files, calls)
}

fn unplaced(outcome: &Outcome) -> String {
    Chain(outcome.unplaced.as_ref().unwrap()).to_string()
}

#[test]
fn on_a_full_disk_nobody_else_may_write_the_file() {
    let world = World::new();
    pass(&world.files(), wanted(0..3));
    let content = world.content();
    fs::set_permissions(world.file(), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(pass(&full(&world, true), wanted(0..3)).unplaced.is_some());
    let mode = fs::metadata(world.file()).unwrap().permissions().mode();
    assert_eq!((mode & 0o7777, world.content()), (0o600, content));
}

#[test]
fn on_a_full_disk_a_file_with_another_name_is_not_touched() {
    let world = World::new();
    pass(&world.files(), wanted(0..3));
    let other = world.beside.path().join("other");
    fs::write(&other, "of somebody else").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_file(world.file()).unwrap();
    fs::hard_link(&other, world.file()).unwrap();
    full(&world, false).pass(&input(wanted(0..3))).unwrap_err();
    assert_eq!(fs::metadata(&other).unwrap().permissions().mode() & 0o7777, 0o644);
    assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
}

#[test]
fn on_a_full_disk_every_change_is_undone_in_place_and_the_file_is_replaced_later() {
    let world = World::new();
    pass(&world.files(), wanted(0..3));
    let right = world.content();
    let inode = || fs::metadata(world.file()).unwrap().ino();
    let before = inode();
    let mut files = full(&world, false);
    assert!(pass(&files, wanted(0..3)).unplaced.is_none());
    for change in [
        format!("{right}{FOREIGN}"),
        format!("{FOREIGN}{right}"),
        right.replace("command=", "#ommand="),
        right[..40].to_owned(),
        String::new(),
    ] {
        fs::write(world.file(), &change).unwrap();
        let outcome = pass(&files, wanted(0..3));
        assert_eq!((world.content(), inode()), (right.clone(), before), "{change}");
        assert_eq!(outcome.tampering.len(), 1, "{change}: {:?}", outcome.tampering);
        let said = unplaced(&outcome);
        let words = "authorized_keys cannot be replaced, and was overwritten in place; it is replaced when there is room: No space";
        assert!(said.starts_with(words), "{said}");
        let again = pass(&files, wanted(0..3));
        assert!(again.tampering.is_empty() && unplaced(&again) == said, "{again:?}");
    }
    files.host = world.files().host;
    let outcome = pass(&files, wanted(0..3));
    assert!(
        outcome.unplaced.is_none() && outcome.tampering.is_empty(),
        "{outcome:?}"
    );
    let after = inode();
    assert_ne!(after, before);
    assert_eq!(world.content(), right);
    pass(&files, wanted(0..3));
    assert_eq!(inode(), after);
}

#[test]
fn what_has_no_room_leaves_whole_lines_of_ours_and_no_other_line() {
    let world = World::new();
    pass(&world.files(), wanted(0..3));
    let right = world.content();
    let (files, calls) = full_and_calls(&world, true);
    let line = right.find(&world.line(1)).unwrap();
    for (change, kept) in [
        (format!("{}{FOREIGN}", &right[..line + 20]), &right[..line]),
        (format!("{}\n{FOREIGN}{right}", &right[..line + 20]), &right[..line]),
        (format!("{right}{FOREIGN}"), &right),
        (FOREIGN.to_owned(), ""),
    ] {
        fs::write(world.file(), &change).unwrap();
        let outcome = pass(&files, wanted(0..3));
        assert_eq!(world.content(), kept, "{change}");
        let missing = right.len() - kept.len();
        let words = format!(" without its last {missing} bytes");
        assert_eq!(unplaced(&outcome).contains(&words), missing > 0, "{outcome:?}");
        // A write would be an event, and start the next pass.
        let changed = || {
            let found = fs::metadata(world.file()).unwrap();
            let writes = calls.writes.load(Ordering::Relaxed);
            (found.ctime(), found.ctime_nsec(), writes)
        };
        let before = changed();
        let again = pass(&files, wanted(0..3));
        assert!(again.tampering.is_empty() && again.unplaced.is_some(), "{again:?}");
        assert_eq!((world.content().as_str(), changed()), (kept, before), "{change}");
    }
}

#[test]
fn on_a_full_disk_the_login_script_keeps_no_key() {
    let world = World::new();
    pass(&world.files(), wanted(0..3));
    let right = world.content();
    let mut files = full(&world, false);
    pass(&files, wanted(0..3));
    let script = world.folder.path().join("scripts").join(SCRIPT);
    let changed = format!("#!/bin/sh\nexec sh\n#{}", login_script::SCRIPT);
    fs::write(&script, changed).unwrap();
    fs::write(world.file(), FOREIGN).unwrap();
    let outcome = pass(&files, wanted(0..3));
    assert_eq!((outcome.tampering.len(), world.content()), (2, right), "{outcome:?}");
    assert_eq!(fs::read_to_string(&script).unwrap(), login_script::SCRIPT);
    files.host = world.files().host;
    let inode = fs::metadata(&script).unwrap().ino();
    assert!(pass(&files, wanted(0..3)).unplaced.is_none());
    assert_ne!(fs::metadata(&script).unwrap().ino(), inode);
}
