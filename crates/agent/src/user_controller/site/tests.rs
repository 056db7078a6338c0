//! The files on a real file system.
#![allow(clippy::disallowed_methods, reason = "what others write to the files")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use jiff::Timestamp;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::authorized_keys::{ForeignLines, LoginKey};
use crate::host::{AllCalls, Call, HostCalls};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";
const FOREIGN: &str = "ssh-ed25519 AAAA intruder\n";
const GLASS: &str = "ssh-ed25519 BBBB admin # break-glass\n";
const NOW: Duration = Duration::from_hours(100);

struct World {
    folder: TempDir,
    settings: AgentSettings,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = AgentSettings {
            folder: folder.path().display().to_string(),
            owner_uid: getuid().as_raw(),
            owner_gid: getgid().as_raw(),
            ..AgentSettings::default()
        };
        Self { folder, settings }
    }

    /// An agent that has just started.
    fn site(&self) -> Site {
        let host = Host::new(self.folder.path(), self.settings.owner(), Arc::new(AllCalls));
        Site::new(host, self.settings.clone(), Watcher::new().unwrap(), NOW)
    }

    fn ssh(&self) -> PathBuf {
        self.folder.path().join("home/.ssh")
    }

    fn file(&self) -> PathBuf {
        self.ssh().join(KEYS)
    }

    fn content(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn line(&self, user: u128) -> String {
        let script = self.folder.path().join("scripts").join(SCRIPT);
        format!(
            "command=\"{} {}\" {KEY}\n",
            script.display(),
            Uuid::from_u128(user).simple()
        )
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as an input has it")]
fn wanted(users: std::ops::Range<u128>) -> Option<Arc<Wanted>> {
    let key = LoginKey {
        data: KEY.to_owned(),
        fingerprint: String::new(),
    };
    let logins: Logins = users.map(|user| (Uuid::from_u128(user), vec![key.clone()])).collect();
    Some(Arc::new(Wanted {
        users: logins.len(),
        logins: logins.into(),
        refused: vec![],
    }))
}

fn input(wanted: Option<Arc<Wanted>>) -> Input {
    Input {
        wanted,
        mirror: MirrorState::default(),
        now: NOW,
    }
}

fn pass(site: &Site, wanted: Option<Arc<Wanted>>) -> Outcome {
    site.pass(&input(wanted)).unwrap().unwrap()
}

#[test]
fn every_tampering_is_undone_and_named() {
    type Tamper = fn(&World);
    let rows: [(Tamper, &str); 14] = [
        (
            |world| fs::remove_file(world.file()).unwrap(),
            "was removed or moved away",
        ),
        (
            |world| fs::rename(world.file(), world.ssh().join("away")).unwrap(),
            "was removed or moved away",
        ),
        (|world| fs::write(world.file(), "").unwrap(), "has other lines"),
        (
            |world| fs::write(world.file(), &world.content()[..40]).unwrap(),
            "has other lines",
        ),
        (
            |world| {
                let other = world.content().replace("command=", "");
                fs::write(world.ssh().join("next"), other).unwrap();
                fs::rename(world.ssh().join("next"), world.file()).unwrap();
            },
            "is another file",
        ),
        (
            |world| fs::set_permissions(world.file(), fs::Permissions::from_mode(0o666)).unwrap(),
            "has the mode 0666",
        ),
        (
            |world| {
                fs::remove_file(world.file()).unwrap();
                symlink("/dev/null", world.file()).unwrap();
            },
            "was replaced by a symbolic link",
        ),
        (
            |world| {
                fs::remove_file(world.file()).unwrap();
                fs::create_dir(world.file()).unwrap();
            },
            "was replaced by a folder",
        ),
        (
            |world| {
                fs::remove_file(world.file()).unwrap();
                mknodat(CWD, world.file(), FileType::Fifo, Mode::RUSR, 0).unwrap();
            },
            "was replaced by a named pipe",
        ),
        (
            |world| fs::hard_link(world.file(), world.folder.path().join("copy")).unwrap(),
            "has 2 names",
        ),
        (
            |world| fs::rename(world.ssh(), world.folder.path().join("away")).unwrap(),
            "home/.ssh was missing",
        ),
        (
            |world| fs::set_permissions(world.ssh(), fs::Permissions::from_mode(0o777)).unwrap(),
            "home/.ssh had the owner",
        ),
        (
            |world| fs::remove_dir_all(world.folder.path().join("home")).unwrap(),
            "home was missing",
        ),
        (
            |world| fs::write(world.folder.path().join("scripts").join(SCRIPT), "#!/bin/sh\nexec sh\n").unwrap(),
            "containership_login.sh was not as the agent wrote it",
        ),
    ];
    for ((tamper, words), is_prepared) in rows.into_iter().flat_map(|row| [(row, false), (row, true)]) {
        let world = World::new();
        let site = world.site();
        let first = pass(&site, wanted(0..3));
        if is_prepared {
            site.prepare();
        }
        assert!(first.tampering.is_empty(), "{:?}", first.tampering);
        let right = world.content();
        assert!(right.contains(&world.line(0)), "{right}");
        tamper(&world);
        let outcome = pass(&site, wanted(0..3));
        let named = outcome.tampering.iter().any(|what| what.contains(words));
        assert!(named, "{words}: {:?}", outcome.tampering);
        assert_eq!(world.content(), right, "{words}");
        let script = fs::read_to_string(world.folder.path().join("scripts").join(SCRIPT)).unwrap();
        assert_eq!(script, login_script::SCRIPT);
        let again = pass(&site, wanted(0..3));
        assert!(again.tampering.is_empty(), "{words}: {:?}", again.tampering);
    }
}

#[test]
fn a_thousand_users_have_a_line_each() {
    let world = World::new();
    let site = world.site();
    pass(&site, wanted(0..1_000));
    let right = world.content();
    assert_eq!(right.lines().filter(|line| line.starts_with("command=")).count(), 1_000);
    assert!(right.contains(&world.line(0)) && right.contains(&world.line(999)));
    fs::remove_file(world.file()).unwrap();
    pass(&site, wanted(0..1_000));
    assert_eq!(world.content(), right);
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let world = World::new();
    let site = world.site();
    pass(&site, wanted(0..3));
    let inode = |path: PathBuf| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(world.file());
    for _ in 0..5 {
        pass(&site, wanted(0..3));
    }
    pass(&world.site(), wanted(0..3));
    assert_eq!(inode(world.file()), before);
}

#[test]
fn without_a_list_of_users_who_could_log_in_still_can() {
    let world = World::new();
    // Nothing is created before anything is known.
    let outcome = pass(&world.site(), None);
    assert!(outcome.logins.is_none() && !world.folder.path().join("home").exists());
    pass(&world.site(), wanted(0..3));
    let right = world.content();
    // An agent that starts while the API server is away.
    let site = world.site();
    assert_eq!(pass(&site, None).logins.unwrap().len(), 3);
    fs::write(world.file(), FOREIGN).unwrap();
    let outcome = pass(&site, None);
    assert_eq!(outcome.tampering.len(), 1);
    assert_eq!(world.content(), format!("{FOREIGN}{right}"));
}

#[test]
fn a_file_of_the_go_agent_stays_until_the_users_are_known() {
    let world = World::new();
    fs::create_dir_all(world.ssh()).unwrap();
    let old = format!("{}{}{GLASS}", world.line(0), world.line(7));
    fs::write(world.file(), &old).unwrap();
    let site = world.site();
    assert!(pass(&site, None).logins.is_none());
    assert_eq!(world.content(), old);
    // All Users are gone, and nothing confirms it.
    assert!(pass(&site, wanted(0..0)).is_held);
    assert_eq!(world.content(), old);
    // Nor the removal of one: nobody knows what the agent before held.
    assert!(pass(&site, wanted(0..1)).is_held);
    assert_eq!(world.content(), old);
    let mirror = MirrorState {
        is_synced: true,
        objects: 1,
        revision: "one".to_owned(),
        ..MirrorState::default()
    };
    let confirmed = Input {
        mirror,
        ..input(wanted(0..1))
    };
    assert!(!site.pass(&confirmed).unwrap().unwrap().is_held);
    let content = world.content();
    assert!(
        content.contains(&world.line(0)) && !content.contains(&world.line(7)),
        "{content}"
    );
    assert!(content.ends_with(GLASS), "{content}");
}

#[test]
fn nothing_but_the_mirror_empties_the_file() {
    let world = World::new();
    let site = world.site();
    let mirror = |objects, revision: &str| MirrorState {
        is_synced: true,
        objects,
        revision: revision.to_owned(),
        ..MirrorState::default()
    };
    let pass = |wanted, mirror| {
        site.pass(&Input {
            mirror,
            ..input(wanted)
        })
        .unwrap()
        .unwrap()
    };
    pass(wanted(0..10), mirror(10, "one"));
    let all = world.content();
    for (left, state) in [
        (0, MirrorState::default()),
        (0, mirror(10, "two")),
        (0, mirror(0, "one")),
        (4, MirrorState::default()),
    ] {
        assert!(pass(wanted(0..left), state).is_held);
        assert_eq!(world.content(), all);
    }
    // Who is new can log in all the same.
    assert!(pass(wanted(10..11), MirrorState::default()).is_held);
    assert!(world.content().contains(&world.line(10)) && world.content().contains(&world.line(0)));
    assert!(!pass(wanted(0..0), mirror(0, "two")).is_held);
    assert_eq!(world.content(), "");
}

#[test]
fn keys_expire_and_come_back_and_break_glass_keys_stay() {
    let mut world = World::new();
    world.settings.keys_expire_after = Some(Duration::from_hours(24));
    let site = world.site();
    let at = |hours, success: i64| {
        let mirror = MirrorState {
            last_success: Some(Timestamp::from_second(success).unwrap()),
            ..MirrorState::default()
        };
        let now = NOW + Duration::from_hours(hours);
        site.pass(&Input {
            mirror,
            now,
            wanted: wanted(0..3),
        })
        .unwrap()
        .unwrap()
        .expiry
    };
    assert!(matches!(at(0, 1), Expiry::Confirmed(_)));
    let content = format!("{}{GLASS}", world.content());
    fs::write(world.file(), &content).unwrap();
    assert!(matches!(at(17, 1), Expiry::Confirmed(_)));
    assert!(matches!(at(19, 1), Expiry::Soon(_)));
    assert_eq!(world.content(), content);
    assert_eq!(at(24, 1), Expiry::Expired);
    assert_eq!(world.content(), GLASS);
    assert!(matches!(at(25, 2), Expiry::Confirmed(_)));
    assert!(world.content().contains(&world.line(0)));
}

#[test]
fn a_stop_keeps_or_clears_and_nothing_is_written_after_it() {
    for (on_stop, kept) in [(OnStop::Keep, true), (OnStop::Clear, false)] {
        let mut world = World::new();
        world.settings.on_stop = on_stop;
        let site = world.site();
        pass(&site, wanted(0..3));
        let content = format!("{}{GLASS}", world.content());
        fs::write(world.file(), &content).unwrap();
        site.stop().unwrap();
        assert_eq!(world.content(), if kept { content.as_str() } else { GLASS });
        fs::write(world.file(), FOREIGN).unwrap();
        assert!(site.pass(&input(wanted(0..3))).unwrap().is_none());
        assert_eq!(world.content(), FOREIGN);
    }
}

#[test]
fn two_agents_on_one_node_do_not_fight() {
    let world = World::new();
    let (old, new) = (world.site(), world.site());
    pass(&old, wanted(0..3));
    for _ in 0..3 {
        assert!(pass(&new, wanted(0..3)).tampering.is_empty());
        assert!(pass(&old, wanted(0..3)).tampering.is_empty());
    }
}

#[test]
fn a_fight_is_slowed() {
    let world = World::new();
    let site = world.site();
    pass(&site, wanted(0..1));
    let mut restores = 0;
    let wait = loop {
        fs::remove_file(world.file()).unwrap();
        let outcome = pass(&site, wanted(0..1));
        if let Some(wait) = outcome.wait {
            break wait;
        }
        restores += 1;
    };
    assert!((40..=60).contains(&restores), "{restores}");
    assert!(!world.file().exists());
    let later = Input {
        now: NOW + wait,
        ..input(wanted(0..1))
    };
    assert_eq!(site.pass(&later).unwrap().unwrap().tampering.len(), 1);
}

#[test]
fn foreign_lines_are_counted_and_removed_if_asked() {
    for (foreign_lines, left) in [(ForeignLines::Keep, 1), (ForeignLines::Remove, 0)] {
        let mut world = World::new();
        world.settings.foreign_lines = foreign_lines;
        let site = world.site();
        pass(&site, wanted(0..1));
        fs::write(world.file(), format!("{}{FOREIGN}{GLASS}", world.content())).unwrap();
        let outcome = pass(&site, wanted(0..1));
        assert_eq!((outcome.foreign_lines, outcome.break_glass_lines), (left, 1));
        assert_eq!(outcome.tampering.is_empty(), left == 1);
        assert_eq!(world.content().contains(FOREIGN), left == 1);
    }
}

/// There is no space for another file.
#[derive(Debug)]
struct Full;

impl HostCalls for Full {
    fn before(&self, call: Call) -> Result<(), Errno> {
        if call == Call::Create {
            Err(Errno::NOSPC)
        } else {
            Ok(())
        }
    }
}

#[test]
fn on_a_full_disk_nobody_else_may_write_the_file() {
    let world = World::new();
    pass(&world.site(), wanted(0..3));
    let content = world.content();
    fs::set_permissions(world.file(), fs::Permissions::from_mode(0o666)).unwrap();
    let host = Host::new(world.folder.path(), world.settings.owner(), Arc::new(Full));
    let site = Site::new(host, world.settings.clone(), Watcher::new().unwrap(), NOW);
    site.pass(&input(wanted(0..3))).unwrap_err();
    let mode = fs::metadata(world.file()).unwrap().permissions().mode();
    assert_eq!((mode & 0o7777, world.content()), (0o600, content));
}
