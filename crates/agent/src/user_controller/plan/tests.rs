use std::os::fd::OwnedFd;

use tidewaiter_api::values::SshKeyLine;
use uuid::Uuid;

use super::*;
use crate::authorized_keys::LoginKey;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";
const ROOT: Owner = Owner { uid: 0, gid: 0 };
const FOREIGN: &str = "ssh-ed25519 AAAA intruder\n";
const GLASS: &str = "ssh-ed25519 BBBB admin # break-glass\n";

fn logins() -> Logins {
    let key = LoginKey::from(&SshKeyLine::parse(KEY).unwrap());
    Logins::from([(Uuid::from_u128(1), vec![key])])
}

fn format() -> Format {
    Format::new("/login")
}

/// The file that has these lines after ours.
fn file(after: &str) -> FoundFile {
    let mut content = format().render(&format().parse(b""), &logins(), ForeignLines::Keep);
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

fn left(break_glass: &[&str]) -> Left {
    Left {
        logins: logins().into(),
        break_glass: break_glass.iter().map(|line| line.as_bytes().to_vec()).collect(),
        inode: 7,
    }
}

/// The plan does not depend on where the users are in memory.
fn planned(found: &Found, left: Option<&Left>, foreign: ForeignLines) -> Plan {
    let format = format();
    let planned = |logins: &Arc<Logins>| {
        let target = Target {
            format: &format,
            logins,
            foreign,
            owner: ROOT,
        };
        plan(target, found, left)
    };
    let elsewhere = planned(&Arc::new(logins()));
    if let Some(left) = left {
        assert_eq!(planned(&left.logins), elsewhere);
    }
    elsewhere
}

#[test]
fn a_file_as_it_should_be_is_left_alone() {
    for after in ["", FOREIGN, GLASS] {
        let found = Found::File(Box::new(file(after)));
        let plan = planned(&found, Some(&left(&[])), ForeignLines::Keep);
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
        let plan = planned(&found, Some(&left(&[])), ForeignLines::Keep);
        assert_eq!(plan.tampering, words, "{found:?}");
        assert_eq!(String::from_utf8(plan.write.unwrap()).unwrap(), whole, "{found:?}");
        // Before the agent has written a file, it reports no change by others.
        let first = planned(&found, None, ForeignLines::Keep);
        assert!(first.tampering.is_empty() && first.write.is_some());
    }
}

#[test]
fn another_file_with_the_same_lines_is_accepted() {
    let mut file = file("");
    file.inode = 8;
    let plan = planned(&Found::File(Box::new(file)), Some(&left(&[])), ForeignLines::Keep);
    assert_eq!((plan.write, plan.tampering), (None, vec![]));
}

#[test]
fn a_foreign_line_is_kept_or_removed() {
    let found = || Found::File(Box::new(file(FOREIGN)));
    assert_eq!(planned(&found(), Some(&left(&[])), ForeignLines::Keep).write, None);
    let plan = planned(&found(), Some(&left(&[])), ForeignLines::Remove);
    assert_eq!(plan.write, Some(file("").content));
    assert_eq!(plan.tampering, ["has other lines than the agent wrote"]);
}

#[test]
fn break_glass_lines_survive_damage_but_not_their_owner() {
    let left = left(&[GLASS]);
    for found in [Found::Absent, Found::Other("a folder"), {
        let mut file = file("");
        file.content.clear();
        Found::File(Box::new(file))
    }] {
        for foreign in [ForeignLines::Keep, ForeignLines::Remove] {
            let plan = planned(&found, Some(&left), foreign);
            assert_eq!(plan.write, Some(file(GLASS).content), "{found:?}");
        }
    }
    // Somebody edited the file and took only this line away.
    let plan = planned(&Found::File(Box::new(file(""))), Some(&left), ForeignLines::Keep);
    assert_eq!((plan.write, plan.tampering), (None, vec![]));
}

#[test]
fn a_change_of_the_users_is_no_tampering() {
    let (format, none) = (format(), Arc::default());
    let target = Target {
        format: &format,
        logins: &none,
        foreign: ForeignLines::Keep,
        owner: ROOT,
    };
    let plan = plan(target, &Found::File(Box::new(file(GLASS))), Some(&left(&[GLASS])));
    assert_eq!(plan.write, Some(GLASS.as_bytes().to_vec()));
    assert!(plan.tampering.is_empty());
}
