use std::os::fd::OwnedFd;
use std::sync::Arc;

use tidewaiter_api::values::SshKeyLine;
use uuid::Uuid;

use super::*;
use crate::authorized_keys::{Kept, LoginKey, Logins};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";
const ROOT: Owner = Owner { uid: 0, gid: 0 };
const FOREIGN: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4hoRzVPA3U8qoef7QtvY6RmkwgDL47zndwzs8V+7J7 intruder\n";
const PRINT: &str = "SHA256:ejSqEeYysqjpey3wN8VSaYQ7Znv7eJ/dD62E39TtUeY";

fn logins() -> Logins {
    let key = LoginKey::from(&SshKeyLine::parse(KEY).unwrap());
    Logins::from([(Uuid::from_u128(1), vec![key])])
}

fn format() -> Format {
    Format::new("/login")
}

fn desired(kept: Kept) -> Desired {
    Desired {
        logins: logins().into(),
        kept: kept.into(),
        ..Desired::default()
    }
}

/// The file that has these lines after ours.
fn file(after: &str) -> FoundFile {
    let mut content = format().render(&format().parse(b""), &desired(Kept::All));
    content.extend_from_slice(after.as_bytes());
    FoundFile {
        is_cut: false,
        content,
        owner: ROOT,
        mode: MODE,
        links: 1,
        inode: 7,
        is_locked: false,
        fd: OwnedFd::from(std::fs::File::open("/dev/null").unwrap()),
    }
}

fn last_written(kept: Kept) -> LastWritten {
    LastWritten {
        desired: desired(kept),
        inode: 7,
    }
}

/// The plan does not depend on where the users are in memory.
fn planned(found: &Found, last_written: Option<&LastWritten>, kept: Kept) -> Plan {
    let format = format();
    let planned = |desired: &Desired| {
        let target = Target {
            format: &format,
            desired,
            owner: ROOT,
        };
        plan(target, found, last_written, &[])
    };
    let is_same = last_written.filter(|file| *file.desired.kept == kept);
    let elsewhere = planned(&desired(kept));
    if let Some(last_written) = is_same {
        assert_eq!(planned(&last_written.desired), elsewhere);
    }
    elsewhere
}

#[test]
fn a_file_as_it_should_be_is_left_alone() {
    for after in ["", FOREIGN] {
        let found = Found::File(Box::new(file(after)));
        let plan = planned(&found, Some(&last_written(Kept::All)), Kept::All);
        assert_eq!((plan.write, plan.tampering), (None, vec![]), "{after}");
    }
}

#[test]
fn each_change_is_named_and_undone() {
    let whole = String::from_utf8(file("").content).unwrap();
    let with = |change: &dyn Fn(&mut FoundFile)| {
        let mut file = file("");
        change(&mut file);
        Found::File(Box::new(file))
    };
    let other = "has other lines than the agent wrote";
    for (found, words) in [
        (Found::Absent, &["was removed or moved away"][..]),
        (Found::Other("a named pipe"), &["was replaced by a named pipe"]),
        (with(&|file| file.content.clear()), &[other]),
        (with(&|file| file.content.truncate(30)), &[other]),
        (with(&|file| file.mode = 0o666), &["has the mode 0666"]),
        (with(&|file| file.owner.uid = 1000), &["has the owner 1000:0"]),
        (with(&|file| file.links = 2), &["has 2 names (hard links)"]),
        (
            with(&|file| file.is_cut = true),
            &["has more than 8 MiB, of which the rest is removed"],
        ),
        (with(&|file| file.is_locked = true), &["is immutable or append-only"]),
        (
            with(&|file| {
                file.inode = 8;
                file.owner.uid = 1000;
                file.content.clear();
            }),
            &[other, "has the owner 1000:0", "is another file, of the user 1000"],
        ),
    ] {
        let plan = planned(&found, Some(&last_written(Kept::All)), Kept::All);
        assert_eq!(plan.tampering, words, "{found:?}");
        assert_eq!(String::from_utf8(plan.write.unwrap()).unwrap(), whole, "{found:?}");
        // Before the agent has written a file, it reports no change by others.
        let first = planned(&found, None, Kept::All);
        assert!(first.tampering.is_empty() && first.write.is_some());
    }
}

#[test]
fn another_file_with_the_same_lines_is_accepted() {
    let mut file = file("");
    file.inode = 8;
    let plan = planned(&Found::File(Box::new(file)), Some(&last_written(Kept::All)), Kept::All);
    assert_eq!((plan.write, plan.tampering), (None, vec![]));
}

#[test]
fn a_foreign_line_is_kept_or_removed_and_its_key_named() {
    let found = || Found::File(Box::new(file(FOREIGN)));
    assert_eq!(planned(&found(), Some(&last_written(Kept::All)), Kept::All).write, None);
    let plan = planned(&found(), Some(&last_written(Kept::default())), Kept::default());
    assert_eq!(plan.write, Some(file("").content));
    let named = format!("has other lines than the agent wrote, with the keys {PRINT} intruder");
    assert_eq!(plan.tampering, [named]);
}

/// A writer of a line within our block is named, too, and once.
#[test]
fn a_key_within_the_block_is_named() {
    let mut within = file("");
    let lines = format!("{FOREIGN}{}", "command=\"x y\" ".to_owned() + FOREIGN);
    let at = within.content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    within.content.splice(at..at, lines.repeat(3).bytes());
    let plan = planned(
        &Found::File(Box::new(within)),
        Some(&last_written(Kept::All)),
        Kept::All,
    );
    assert_eq!(plan.write, Some(file("").content));
    let named = format!("has other lines than the agent wrote, with the keys {PRINT} intruder");
    assert_eq!(plan.tampering, [named]);
}

#[test]
fn a_users_own_key_outside_the_block_is_tampering() {
    let found = Found::File(Box::new(file(&format!("{KEY} mine # break-glass\n"))));
    let plan = planned(&found, Some(&last_written(Kept::All)), Kept::All);
    assert_eq!(plan.write, Some(file("").content));
    assert!(
        plan.tampering[0].contains("with the keys SHA256:"),
        "{:?}",
        plan.tampering
    );
}

#[test]
fn a_change_of_what_is_desired_is_no_tampering() {
    let found = || Found::File(Box::new(file(FOREIGN)));
    // The grace is over.
    let plan = planned(&found(), Some(&last_written(Kept::All)), Kept::default());
    assert_eq!((plan.write, plan.tampering), (Some(file("").content), vec![]));
    // The users are gone.
    let (format, none) = (
        format(),
        Desired {
            kept: Kept::All.into(),
            ..Desired::default()
        },
    );
    let target = Target {
        format: &format,
        desired: &none,
        owner: ROOT,
    };
    let plan = super::plan(target, &found(), Some(&last_written(Kept::All)), &[]);
    assert_eq!(
        (plan.write, plan.tampering),
        (Some(FOREIGN.as_bytes().to_vec()), vec![])
    );
    // A foreign line has the key of a new user.
    let new = Uuid::from_u128(2);
    let mut more = desired(Kept::All);
    let key = SshKeyLine::parse(FOREIGN.trim()).unwrap();
    Arc::make_mut(&mut more.logins).insert(new, vec![LoginKey::from(&key)]);
    let target = Target {
        format: &format,
        desired: &more,
        owner: ROOT,
    };
    let plan = super::plan(target, &found(), Some(&last_written(Kept::All)), &[]);
    assert!(
        plan.write.is_some() && plan.tampering.is_empty(),
        "{:?}",
        plan.tampering
    );
}
