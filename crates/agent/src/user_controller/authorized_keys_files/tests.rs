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
use tidewaiter_api::values::EndTime;
use tidewaiter_kit::Next;
use uuid::Uuid;

use super::*;
use crate::authorized_keys::{ForeignLines, LoginKey};
use crate::break_glass;
use crate::host::{AllCalls, Call, HostCalls};

mod full;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";
const FOREIGN: &str = "ssh-ed25519 AAAA intruder\n";
const OTHER: &str = "ssh-ed25519 BBBB colleague\n";
// Created for these tests; the private key was deleted.
const GLASS: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4hoRzVPA3U8qoef7QtvY6RmkwgDL47zndwzs8V+7J7";
const GLASS_PRINT: &str = "SHA256:ejSqEeYysqjpey3wN8VSaYQ7Znv7eJ/dD62E39TtUeY";
const NOW: Duration = Duration::from_hours(100);

struct World {
    folder: TempDir,
    /// A folder that the owner of the keys cannot write.
    beside: TempDir,
    settings: AgentSettings,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let beside = |name: &str| {
            let path = outside.path().join(name);
            fs::create_dir(&path).unwrap();
            path.display().to_string()
        };
        let settings = AgentSettings {
            folder: folder.path().display().to_string(),
            state_folder: beside("state"),
            pinned_folder: beside("pinned"),
            owner_uid: getuid().as_raw(),
            owner_gid: getgid().as_raw(),
            ..AgentSettings::default()
        };
        Self {
            folder,
            beside: outside,
            settings,
        }
    }

    /// An agent that has just started.
    fn files(&self) -> AuthorizedKeysFiles {
        let host = Host::new(self.folder.path(), self.settings.owner(), Arc::new(AllCalls));
        AuthorizedKeysFiles::new(host, self.settings.clone(), Watcher::new(), NOW)
    }

    /// An agent whose calls on the host fail from this one on, as if it had ended.
    fn files_until(&self, allowed: i64) -> AuthorizedKeysFiles {
        let calls: Arc<dyn HostCalls> = Arc::new(Until(allowed.into()));
        let host = Host::new(self.folder.path(), self.settings.owner(), Arc::clone(&calls));
        let mut files = AuthorizedKeysFiles::new(host, self.settings.clone(), Watcher::new(), NOW);
        files.record = files.record.with_calls(calls);
        files
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

    fn pin(&self, key: &str) {
        let folder = std::path::Path::new(&self.settings.pinned_folder);
        break_glass::pin(folder, self.folder.path(), key).unwrap();
    }

    /// The line of the pinned key.
    fn glass(&self) -> String {
        let script = self.folder.path().join("scripts").join(SCRIPT);
        format!("command=\"{} break-glass:{GLASS_PRINT}\" {GLASS}\n", script.display())
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
        end: None,
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
        time: at(0),
    }
}

/// The time this many hours after the start of the agent.
fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + hours * 3_600).unwrap()
}

fn pass_at(files: &AuthorizedKeysFiles, hours: i64) -> Outcome {
    let input = Input {
        time: at(hours),
        ..input(wanted(0..1))
    };
    files.pass(&input).unwrap().unwrap()
}

fn pass(files: &AuthorizedKeysFiles, wanted: Option<Arc<Wanted>>) -> Outcome {
    files.pass(&input(wanted)).unwrap().unwrap()
}

/// Users with a key each that ends at this hour.
fn ending(users: std::ops::Range<u128>, hours: i64) -> Arc<Wanted> {
    let mut wanted = Wanted::clone(&wanted(users).unwrap());
    for key in Arc::make_mut(&mut wanted.logins).values_mut().flatten() {
        key.end = EndTime::of_field(&at(hours).to_string());
    }
    wanted.into()
}

#[test]
fn a_key_is_written_until_its_end_and_no_brake_holds_the_end_of_all() {
    let mut world = World::new();
    world.settings.foreign_lines = ForeignLines::Keep;
    let files = world.files();
    let pass_with = |wanted: &Arc<Wanted>, time| {
        let input = Input {
            time,
            ..input(Some(Arc::clone(wanted)))
        };
        files.pass(&input).unwrap().unwrap()
    };
    let all = ending(0..10, 1);
    let before = at(1).saturating_sub(jiff::SignedDuration::from_nanos(1)).unwrap();
    assert_eq!(pass_with(&all, before).logins, Some(Arc::clone(&all.logins)));
    let is_written = || (0..10).any(|user| world.content().contains(&world.line(user)));
    assert!(is_written() && !files.is_end_due(before) && files.is_end_due(at(1)));
    // The cloud is away: nothing confirms the end of all.
    let ended = pass_with(&all, at(1));
    assert!(
        !ended.is_held && ended.logins == Some(Arc::default()) && ended.tampering.is_empty(),
        "{ended:?}"
    );
    assert!(!is_written() && !files.is_end_due(at(2)));
    // The key of one that has ended stays nowhere else in the file.
    fs::write(world.file(), format!("{KEY}\n")).unwrap();
    pass_with(&all, at(1));
    assert!(!world.content().contains(KEY), "{}", world.content());
    // Somebody has prolonged it.
    pass_with(&ending(0..10, 2), at(1));
    assert!(is_written());
    // A removal of most is held all the same, and ends while it is.
    assert!(pass_with(&ending(0..1, 2), at(1)).is_held && is_written());
    assert!(pass_with(&ending(0..1, 2), at(2)).is_held && !is_written());
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
        let files = world.files();
        let first = pass(&files, wanted(0..3));
        if is_prepared {
            files.prepare();
        }
        assert!(first.tampering.is_empty(), "{:?}", first.tampering);
        let right = world.content();
        assert!(right.contains(&world.line(0)), "{right}");
        tamper(&world);
        let outcome = pass(&files, wanted(0..3));
        let named = outcome.tampering.iter().any(|what| what.contains(words));
        assert!(named, "{words}: {:?}", outcome.tampering);
        assert_eq!(world.content(), right, "{words}");
        let script = fs::read_to_string(world.folder.path().join("scripts").join(SCRIPT)).unwrap();
        assert_eq!(script, login_script::SCRIPT);
        let again = pass(&files, wanted(0..3));
        assert!(again.tampering.is_empty(), "{words}: {:?}", again.tampering);
    }
}

#[test]
fn a_thousand_users_have_a_line_each() {
    let world = World::new();
    let files = world.files();
    pass(&files, wanted(0..1_000));
    let right = world.content();
    assert_eq!(right.lines().filter(|line| line.starts_with("command=")).count(), 1_000);
    assert!(right.contains(&world.line(0)) && right.contains(&world.line(999)));
    fs::remove_file(world.file()).unwrap();
    pass(&files, wanted(0..1_000));
    assert_eq!(world.content(), right);
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let world = World::new();
    let files = world.files();
    pass(&files, wanted(0..3));
    let inode = |path: PathBuf| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(world.file());
    for _ in 0..5 {
        pass(&files, wanted(0..3));
    }
    pass(&world.files(), wanted(0..3));
    assert_eq!(inode(world.file()), before);
}

#[test]
fn without_a_list_of_users_who_could_log_in_still_can() {
    let world = World::new();
    // Nothing is created before anything is known.
    let outcome = pass(&world.files(), None);
    assert!(outcome.logins.is_none() && !world.folder.path().join("home").exists());
    pass(&world.files(), wanted(0..3));
    let right = world.content();
    // An agent that starts while the API server is away.
    let files = world.files();
    assert_eq!(pass(&files, None).logins.unwrap().len(), 3);
    fs::write(world.file(), FOREIGN).unwrap();
    let outcome = pass(&files, None);
    assert_eq!(outcome.tampering.len(), 1);
    assert_eq!(world.content(), right);
}

#[test]
fn a_file_of_the_go_agent_stays_until_the_users_are_known() {
    let world = World::new();
    fs::create_dir_all(world.ssh()).unwrap();
    let old = format!("{}{}{FOREIGN}", world.line(0), world.line(7));
    fs::write(world.file(), &old).unwrap();
    let files = world.files();
    assert!(pass(&files, None).logins.is_none());
    assert_eq!(world.content(), old);
    // All Users are gone, and nothing confirms it.
    assert!(pass(&files, wanted(0..0)).is_held);
    assert_eq!(world.content(), old);
    // Nor the removal of one: nobody knows what the agent before held.
    assert!(pass(&files, wanted(0..1)).is_held);
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
    assert!(!files.pass(&confirmed).unwrap().unwrap().is_held);
    let content = world.content();
    assert!(
        content.contains(&world.line(0)) && !content.contains(&world.line(7)),
        "{content}"
    );
    assert!(content.ends_with(FOREIGN), "{content}");
}

#[test]
fn nothing_but_the_mirror_empties_the_file() {
    let world = World::new();
    let files = world.files();
    let mirror = |objects, revision: &str| MirrorState {
        is_synced: true,
        objects,
        revision: revision.to_owned(),
        ..MirrorState::default()
    };
    let pass = |wanted, mirror| {
        files
            .pass(&Input {
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
    // A new user can log in all the same.
    assert!(pass(wanted(10..11), MirrorState::default()).is_held);
    assert!(world.content().contains(&world.line(10)) && world.content().contains(&world.line(0)));
    assert!(!pass(wanted(0..0), mirror(0, "two")).is_held);
    assert_eq!(world.content(), "");
}

#[test]
fn keys_expire_and_come_back_and_break_glass_keys_stay() {
    let mut world = World::new();
    world.settings.keys_expire_after = Some(Duration::from_hours(24));
    let files = world.files();
    let glass = block(&world.glass());
    let at = |hours, success: i64| {
        let mirror = MirrorState {
            last_success: Some(Timestamp::from_second(success).unwrap()),
            ..MirrorState::default()
        };
        let now = NOW + Duration::from_hours(hours);
        files
            .pass(&Input {
                mirror,
                now,
                ..input(wanted(0..3))
            })
            .unwrap()
            .unwrap()
            .expiry
    };
    world.pin(GLASS);
    assert!(matches!(at(0, 1), Expiry::Confirmed(_)));
    let content = world.content();
    assert!(content.contains(&world.glass()), "{content}");
    assert!(matches!(at(17, 1), Expiry::Confirmed(_)));
    assert!(matches!(at(19, 1), Expiry::Soon(_)));
    assert_eq!(world.content(), content);
    assert_eq!(at(24, 1), Expiry::Expired);
    assert_eq!(world.content(), glass);
    assert!(matches!(at(25, 2), Expiry::Confirmed(_)));
    assert!(world.content().contains(&world.line(0)));
}

#[test]
fn a_stop_keeps_or_clears_and_nothing_is_written_after_it() {
    for (on_stop, kept) in [(OnStop::Keep, true), (OnStop::Clear, false)] {
        let mut world = World::new();
        world.settings.on_stop = on_stop;
        let files = world.files();
        world.pin(GLASS);
        pass(&files, wanted(0..3));
        let content = world.content();
        files.stop(at(0)).unwrap();
        let cleared = block(&world.glass());
        assert_eq!(world.content(), if kept { content } else { cleared });
        fs::write(world.file(), FOREIGN).unwrap();
        assert!(files.pass(&input(wanted(0..3))).unwrap().is_none());
        assert_eq!(world.content(), FOREIGN);
    }
}

#[test]
fn two_agents_on_one_node_do_not_fight() {
    let world = World::new();
    let (old, new) = (world.files(), world.files());
    pass(&old, wanted(0..3));
    for _ in 0..3 {
        assert!(pass(&new, wanted(0..3)).tampering.is_empty());
        assert!(pass(&old, wanted(0..3)).tampering.is_empty());
    }
}

#[test]
fn a_fight_is_slowed() {
    let world = World::new();
    let files = world.files();
    pass(&files, wanted(0..1));
    let mut restores = 0;
    let wait = loop {
        fs::remove_file(world.file()).unwrap();
        let outcome = pass(&files, wanted(0..1));
        if let Some(wait) = outcome.wait {
            break wait;
        }
        restores += 1;
    };
    assert_eq!((restores, wait), (50, Duration::from_millis(200)));
    assert!(!world.file().exists());
    let later = Input {
        now: NOW + wait,
        ..input(wanted(0..1))
    };
    assert_eq!(files.pass(&later).unwrap().unwrap().tampering.len(), 1);
}

fn flood() -> String {
    "a\n".repeat(2_000_000)
}

fn append(world: &World, lines: &str) {
    let mut file = fs::File::options().append(true).open(world.file()).unwrap();
    std::io::Write::write_all(&mut file, lines.as_bytes()).unwrap();
}

#[test]
fn a_flood_takes_all_foreign_lines_with_it_and_is_named_with_its_size() {
    for (foreign_lines, is_first) in [
        (ForeignLines::Keep, true),
        (ForeignLines::Keep, false),
        (ForeignLines::Remove, true),
        (ForeignLines::Remove, false),
    ] {
        let mut world = World::new();
        world.settings.foreign_lines = foreign_lines;
        before_the_agent(&world);
        let files = world.files();
        if !is_first {
            assert_eq!(pass_at(&files, 0).foreign_lines, 1);
        }
        append(&world, &flood());
        let outcome = pass_at(&files, 0);
        let right = block(&world.line(0));
        assert_eq!(world.content(), right);
        let named = format!("{} lines with ", 2_000_001 + usize::from(is_first));
        assert!(outcome.tampering[0].contains(&named), "{:?}", outcome.tampering);
        assert_eq!((outcome.tampering.len(), outcome.foreign_lines), (1, 0));
        assert!(pass_at(&files, 0).tampering.is_empty());
    }
}

/// Floods the file behind the agent's look.
#[derive(Debug)]
struct Floods(PathBuf, std::sync::atomic::AtomicBool);

impl HostCalls for Floods {
    fn before(&self, call: Call) -> Result<(), Errno> {
        if call == Call::Rename && self.1.swap(false, std::sync::atomic::Ordering::SeqCst) {
            fs::write(&self.0, flood()).unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_flood_that_comes_between_the_look_and_the_write_is_named_and_goes() {
    let mut world = World::new();
    world.settings.foreign_lines = ForeignLines::Keep;
    pass(&world.files(), wanted(0..1));
    let calls = Arc::new(Floods(world.file(), false.into()));
    let host = Host::new(world.folder.path(), world.settings.owner(), Arc::clone(&calls) as _);
    let files = AuthorizedKeysFiles::new(host, world.settings.clone(), Watcher::new(), NOW);
    pass(&files, wanted(0..1));
    append(&world, &format!("{KEY} mine\n"));
    calls.1.store(true, std::sync::atomic::Ordering::SeqCst);
    let outcome = pass(&files, wanted(0..1));
    assert_eq!(world.content(), block(&world.line(0)));
    let named = outcome.tampering.iter().any(|what| what.contains("2000000 lines"));
    assert!(named, "{:?}", outcome.tampering);
}

#[test]
fn a_flood_of_a_file_that_was_replaced_is_not_read_again() {
    let mut world = World::new();
    world.settings.foreign_lines = ForeignLines::Keep;
    before_the_agent(&world);
    let files = world.files();
    pass_at(&files, 0);
    let mut editor = fs::File::options()
        .write(true)
        .truncate(true)
        .open(world.file())
        .unwrap();
    pass_at(&files, 0);
    assert_eq!(files.state.lock().displaced.files().count(), 2);
    std::io::Write::write_all(&mut editor, flood().as_bytes()).unwrap();
    pass_at(&files, 0);
    assert_eq!(world.content(), block(&world.line(0)));
    assert_eq!(files.state.lock().displaced.files().count(), 1);
}

#[test]
fn a_flood_of_the_pinned_keys_is_not_read() {
    let world = World::new();
    fs::write(world.beside.path().join("pinned/break-glass"), flood()).unwrap();
    let error = world.files().pass(&input(wanted(0..1))).unwrap_err();
    assert!(error.to_string().contains("has 4000000 bytes"), "{error}");
}

fn block(lines: &str) -> String {
    format!("# BEGIN tidewaiter: changes to the lines up to END are undone (docs/agent.md)\n{lines}# END tidewaiter\n")
}

/// The file of a host on which nobody ran an agent yet: a colleague's line and one with the user's own key, before the
/// user's line.
fn before_the_agent(world: &World) {
    fs::create_dir_all(world.ssh()).unwrap();
    fs::write(world.file(), format!("{OTHER}{KEY} mine\n{}", world.line(0))).unwrap();
}

#[test]
fn foreign_lines_stay_if_asked_and_a_users_own_key_never() {
    let mut world = World::new();
    world.settings.foreign_lines = ForeignLines::Keep;
    before_the_agent(&world);
    let files = world.files();
    let outcome = pass_at(&files, 0);
    assert_eq!((outcome.foreign_lines, outcome.foreign_until), (1, None));
    let right = format!("{}{OTHER}", block(&world.line(0)));
    assert_eq!(world.content(), right);
    fs::write(world.file(), format!("{KEY} mine # break-glass\n{right}{FOREIGN}")).unwrap();
    assert_eq!(pass_at(&files, 9_999).tampering.len(), 1);
    assert_eq!(world.content(), format!("{right}{FOREIGN}"));
}

#[test]
fn a_first_start_only_reports_and_then_foreign_lines_go() {
    let world = World::new();
    before_the_agent(&world);
    let right = block(&world.line(0));
    let files = world.files();
    let outcome = pass_at(&files, 0);
    assert_eq!((outcome.foreign_lines, outcome.foreign_until), (1, Some(at(168))));
    assert_eq!(world.content(), format!("{right}{OTHER}"));
    // A line that comes later gets no grace, and neither does the line of somebody else with a restriction less.
    for later in [FOREIGN, "restrict ssh-ed25519 BBBB colleague\n"] {
        fs::write(world.file(), format!("{right}{later}{OTHER}")).unwrap();
        assert_eq!(pass_at(&files, 1).tampering.len(), 1);
        assert_eq!(world.content(), format!("{right}{OTHER}"));
    }
    let outcome = pass_at(&files, 168);
    assert!(outcome.tampering.is_empty(), "{:?}", outcome.tampering);
    assert_eq!((outcome.foreign_lines, outcome.foreign_until), (0, None));
    assert_eq!(world.content(), right);
    // A file is right from the first look on: there is nothing to spare.
    let clean = World::new();
    let files = clean.files();
    pass_at(&files, 0);
    fs::write(clean.file(), format!("{}{FOREIGN}", clean.content())).unwrap();
    assert_eq!(pass_at(&files, 1).foreign_lines, 0);
}

#[test]
fn foreign_lines_go_at_the_end_of_the_grace_and_not_with_a_later_look() {
    let world = World::new();
    before_the_agent(&world);
    let mut outcome = pass_at(&world.files(), 0);
    let seconds = Duration::from_secs;
    for is_held in [false, true] {
        outcome.is_held = is_held;
        for (before, expected) in [(seconds(5), seconds(5)), (seconds(3_600), seconds(60))] {
            let next = super::super::next(&outcome, true, at(168) - before);
            let held = is_held.then_some(Next::Pending(expected));
            assert_eq!(next, held.unwrap_or(Next::After(expected)));
        }
        let late = super::super::next(&outcome, true, at(169));
        assert!(matches!(
            late,
            Next::After(Duration::ZERO) | Next::Pending(Duration::ZERO)
        ));
    }
}

#[test]
fn nobody_begins_the_grace_anew() {
    type Attack = fn(&World);
    let attacks: [Attack; 4] = [
        |_| (),
        |world| fs::remove_dir_all(world.folder.path().join("home")).unwrap(),
        |world| fs::write(world.file(), FOREIGN).unwrap(),
        |world| {
            // All that the owner of the folder can do.
            for entry in fs::read_dir(world.folder.path()).unwrap() {
                fs::remove_dir_all(entry.unwrap().path()).unwrap();
            }
        },
    ];
    for (number, attack) in attacks.into_iter().enumerate() {
        let world = World::new();
        before_the_agent(&world);
        for hours in [0, 100, 167] {
            let outcome = pass_at(&world.files(), hours);
            assert_eq!(
                outcome.foreign_until,
                (number == 0 || hours == 0).then(|| at(168)),
                "{hours}"
            );
            attack(&world);
        }
        fs::create_dir_all(world.ssh()).unwrap();
        fs::write(world.file(), format!("{OTHER}{FOREIGN}")).unwrap();
        pass_at(&world.files(), 168);
        assert_eq!(world.content(), block(&world.line(0)), "attack {number}");
        // Nor does a clock that is put back.
        fs::write(world.file(), format!("{OTHER}{FOREIGN}")).unwrap();
        pass_at(&world.files(), 1);
        assert_eq!(world.content(), block(&world.line(0)), "attack {number}");
    }
}

/// Ends the agent at each call on the host's files of its first pass: what it has recorded by then decides.
#[test]
fn a_crash_at_any_call_begins_the_grace_once() {
    for allowed in 0.. {
        let world = World::new();
        before_the_agent(&world);
        let files = world.files_until(allowed);
        let input = Input {
            time: at(0),
            ..input(wanted(0..1))
        };
        let is_done = files.pass(&input).is_ok();
        let outcome = pass_at(&world.files(), 100);
        let content = world.content();
        assert_eq!(
            content,
            format!("{}{OTHER}", block(&world.line(0))),
            "after {allowed} calls"
        );
        let until = outcome.foreign_until.unwrap();
        assert!(until == at(168) || until == at(268), "after {allowed} calls: {until}");
        pass_at(&world.files(), 268);
        assert_eq!(world.content(), block(&world.line(0)), "after {allowed} calls");
        if is_done {
            assert_eq!(until, at(168));
            break;
        }
    }
}

#[test]
fn a_record_of_the_grace_that_no_agent_wrote_is_its_end() {
    type Damage = fn(&std::path::Path);
    let damages: [(Damage, &str); 7] = [
        (|record| fs::write(record, "{}").unwrap(), "is damaged"),
        (|record| fs::write(record, flood()).unwrap(), "has 4000000 bytes"),
        (
            |record| fs::set_permissions(record, fs::Permissions::from_mode(0o666)).unwrap(),
            "belongs to another user",
        ),
        (
            |record| {
                fs::remove_file(record).unwrap();
                symlink("/dev/null", record).unwrap();
            },
            "is a symbolic link",
        ),
        (
            |record| {
                fs::remove_file(record).unwrap();
                fs::create_dir(record).unwrap();
            },
            "is a folder",
        ),
        (
            |record| fs::hard_link(record, record.with_extension("copy")).unwrap(),
            "has a second name",
        ),
        (|record| forge(record, at(2)), "begins in the future"),
    ];
    for (damage, words) in damages {
        let world = World::new();
        before_the_agent(&world);
        pass_at(&world.files(), 0);
        let record = world.beside.path().join("state/foreign-lines.json");
        damage(&record);
        let outcome = pass_at(&world.files(), 1);
        assert_eq!(world.content(), block(&world.line(0)), "{words}");
        let named = &outcome.tampering[0];
        assert!(
            named.starts_with("foreign-lines.json ") && named.contains(words),
            "{named}"
        );
        assert_eq!(outcome.foreign_until, None);
        // Nor does another one help.
        append(&world, OTHER);
        assert_eq!(pass_at(&world.files(), 2).foreign_until, None, "{words}");
        assert_eq!(world.content(), block(&world.line(0)), "{words}");
    }
}

/// A record of a grace for the line of the colleague.
fn forge(record: &std::path::Path, since: Timestamp) {
    let line = crate::authorized_keys::line_digest(OTHER.as_bytes());
    fs::write(record, format!("{{\"since\":\"{since}\",\"lines\":[\"{line}\"]}}")).unwrap();
}

#[test]
fn a_forged_record_extends_no_grace_beyond_its_length_and_without_a_grace_none_is_read() {
    let mut world = World::new();
    before_the_agent(&world);
    let record = world.beside.path().join("state/foreign-lines.json");
    forge(&record, at(0));
    // Whatever is in it while the agent runs.
    let files = world.files();
    assert_eq!(pass_at(&files, 10).foreign_until, Some(at(168)));
    forge(&record, at(100));
    assert_eq!(pass_at(&files, 167).foreign_until, Some(at(168)));
    assert_eq!(pass_at(&files, 168).foreign_until, None);
    assert_eq!(world.content(), block(&world.line(0)));
    world.settings.foreign_lines_grace = Duration::ZERO;
    for since in [at(0), at(9_999)] {
        forge(&record, since);
        append(&world, OTHER);
        let outcome = pass_at(&world.files(), 1);
        assert_eq!((outcome.foreign_until, outcome.tampering.len()), (None, 0));
        assert_eq!(world.content(), block(&world.line(0)));
    }
}

#[test]
fn pinned_keys_come_back_and_their_use_is_told() {
    let world = World::new();
    let files = world.files();
    pass(&files, wanted(0..1));
    fs::write(
        world.file(),
        format!("{}{GLASS} admin # break-glass\n", world.content()),
    )
    .unwrap();
    // By its fingerprint, as the report tells an operator to do.
    world.pin(GLASS_PRINT);
    let outcome = pass(&files, wanted(0..1));
    let right = block(&format!("{}{}", world.line(0), world.glass()));
    assert_eq!(world.content(), right);
    assert_eq!(
        (outcome.foreign_lines, outcome.break_glass.as_slice()),
        (0, &[GLASS_PRINT.to_owned()][..])
    );
    for damage in ["", FOREIGN, &right.replace(&world.glass(), "")] {
        fs::write(world.file(), damage).unwrap();
        let after_a_restart = world.files();
        pass(&after_a_restart, wanted(0..1));
        assert_eq!(world.content(), right);
    }
    let used = world.folder.path().join("scripts/break-glass-use");
    for (text, expected) in [
        (format!("2026-11-27T18:00:00Z {GLASS_PRINT}\n"), Some(GLASS_PRINT)),
        ("2026-11-27T18:00:00Z SHA256:other\n".to_owned(), None),
        (format!("yesterday {GLASS_PRINT}"), None),
        (String::new(), None),
    ] {
        fs::write(&used, &text).unwrap();
        let found = pass(&files, wanted(0..1)).break_glass_use;
        assert_eq!(found.as_ref().map(|(_, key)| key.as_str()), expected, "{text}");
    }
    let folder = std::path::Path::new(&world.settings.pinned_folder);
    break_glass::unpin(folder, GLASS_PRINT).unwrap();
    pass(&files, wanted(0..1));
    assert_eq!(world.content(), block(&world.line(0)));
}

/// By another agent, too: that of a Node that was deleted and has registered again.
#[test]
fn the_user_of_a_pinned_key_is_remembered_on_the_host_as_long_as_the_key_is_pinned() {
    let world = World::new();
    world.pin(GLASS);
    let key = LoginKey {
        data: GLASS.to_owned(),
        fingerprint: GLASS_PRINT.to_owned(),
        end: None,
    };
    let owner = Some(Arc::new(Wanted {
        users: 1,
        logins: Arc::new([(Uuid::from_u128(1), vec![key])].into()),
        refused: vec![],
    }));
    let users = |files: &AuthorizedKeysFiles, wanted| {
        let users = pass(files, wanted).break_glass_users.into_iter();
        users.map(|user| (user.fingerprint, user.user)).collect::<Vec<_>>()
    };
    let known = [(GLASS_PRINT.to_owned(), Uuid::from_u128(1).to_string())];
    assert_eq!(users(&world.files(), owner.clone()), known);
    // The User is deleted meanwhile, and nothing is held.
    fs::remove_file(world.file()).unwrap();
    let files = world.files();
    assert_eq!(users(&files, wanted(2..3)), known);
    let folder = std::path::Path::new(&world.settings.pinned_folder);
    break_glass::unpin(folder, GLASS_PRINT).unwrap();
    assert!(users(&files, wanted(2..3)).is_empty());
    world.pin(GLASS);
    assert!(users(&world.files(), wanted(2..3)).is_empty());
    // A record that does not count costs nothing else.
    let record = world.beside.path().join("state/break-glass-users.json");
    fs::write(&record, "[").unwrap();
    fs::remove_file(world.file()).unwrap();
    assert_eq!(users(&world.files(), owner), known);
    assert!(fs::read_to_string(record).unwrap().contains(GLASS_PRINT));
}

#[test]
fn a_bad_line_among_the_pinned_keys_is_reported_and_a_file_that_others_can_write_stops_the_pass() {
    let world = World::new();
    world.pin(GLASS);
    let file = world.beside.path().join("pinned/break-glass");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{good}from=\"10.0.0.1\" {KEY}\n")).unwrap();
    let files = world.files();
    let outcome = pass(&files, wanted(0..1));
    assert_eq!((outcome.break_glass.len(), outcome.refused.len()), (1, 1));
    assert_eq!(outcome.refused[0].key, "line 3");
    let content = world.content();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o646)).unwrap();
    fs::write(&file, format!("{good}{KEY}\n")).unwrap();
    let error = files.pass(&input(wanted(0..2))).unwrap_err();
    assert!(error.to_string().contains("pinned/break-glass belongs to"), "{error}");
    assert_eq!(world.content(), content);
}

/// Each call fails after this number of calls.
#[derive(Debug)]
struct Until(std::sync::atomic::AtomicI64);

impl HostCalls for Until {
    fn before(&self, _: Call) -> Result<(), Errno> {
        if self.0.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) > 0 {
            Ok(())
        } else {
            Err(Errno::IO)
        }
    }
}

/// `cat new >authorized_keys`: the agent sees the empty file first, and the lines are written to a file that it has
/// replaced already.
#[test]
fn what_an_editor_writes_to_a_file_that_was_replaced_is_merged() {
    let new = format!("{FOREIGN}{OTHER}# the end");
    for chunk in [1, 7, 30, 1_000] {
        let mut world = World::new();
        world.settings.foreign_lines = ForeignLines::Keep;
        before_the_agent(&world);
        let files = world.files();
        pass_at(&files, 0);
        let right = block(&world.line(0));
        let mut editor = fs::File::options()
            .write(true)
            .truncate(true)
            .open(world.file())
            .unwrap();
        pass_at(&files, 0);
        assert_eq!(world.content(), right, "the users can log in meanwhile");
        for part in new.as_bytes().chunks(chunk) {
            std::io::Write::write_all(&mut editor, part).unwrap();
            pass_at(&files, 0);
            pass_at(&files, 0);
        }
        assert_eq!(world.content(), format!("{right}{FOREIGN}{OTHER}"), "{chunk}");
        // A line without an end is one when nothing follows for a while.
        let later = |seconds| {
            let now = NOW + Duration::from_secs(seconds);
            files
                .pass(&Input {
                    now,
                    ..input(wanted(0..1))
                })
                .unwrap();
            world.content()
        };
        assert_eq!(later(10), format!("{right}{new}"), "{chunk}");
        // A line that comes still later is lost with the file, and a removed line stays away.
        std::io::Write::write_all(&mut editor, format!("\n{KEY} late\n").as_bytes()).unwrap();
        fs::write(world.file(), format!("{right}{OTHER}")).unwrap();
        assert_eq!(later(11), format!("{right}{OTHER}"), "{chunk}");
    }
}

#[test]
fn what_is_written_to_a_replaced_file_lets_nobody_in_who_may_not() {
    let world = World::new();
    before_the_agent(&world);
    let files = world.files();
    pass_at(&files, 0);
    let right = format!("{}{OTHER}", block(&world.line(0)));
    let mut editor = fs::File::options()
        .write(true)
        .truncate(true)
        .open(world.file())
        .unwrap();
    pass_at(&files, 0);
    std::io::Write::write_all(&mut editor, format!("{KEY} mine\n{FOREIGN}{OTHER}").as_bytes()).unwrap();
    let outcome = pass_at(&files, 0);
    assert_eq!((world.content(), outcome.foreign_lines), (right, 1));
    assert_eq!(outcome.tampering.len(), 1, "{:?}", outcome.tampering);
    assert!(outcome.tampering[0].ends_with(" mine"), "{:?}", outcome.tampering);
}

/// The agent names the key and its comment, and once, for each way of writing a key.
#[test]
fn a_key_is_named_whichever_way_it_is_written() {
    for (way, foreign_lines) in [
        ("rename", ForeignLines::Remove),
        ("append", ForeignLines::Remove),
        ("late", ForeignLines::Remove),
        ("parts", ForeignLines::Remove),
        ("parts", ForeignLines::Keep),
        ("race", ForeignLines::Remove),
    ] {
        let mut world = World::new();
        world.settings.foreign_lines = foreign_lines;
        world.settings.foreign_lines_grace = Duration::ZERO;
        let mut files = world.files();
        pass_at(&files, 0);
        let right = world.content();
        // With `keep`, the key of a user is what may not stay.
        let (key, end) = match foreign_lines {
            ForeignLines::Remove => (GLASS, "SHA256:ejSqEeYysqjpey3wN8VSaYQ7Znv7eJ/dD62E39TtUeY on top"),
            ForeignLines::Keep => (KEY, " on top"),
        };
        let line = format!("{key} on top\n");
        let truncated = || {
            let mut options = fs::File::options();
            options.write(true).truncate(true).open(world.file()).unwrap()
        };
        let mut said = Vec::new();
        match way {
            "rename" => {
                let beside = world.ssh().join("beside");
                fs::write(&beside, format!("{line}{right}")).unwrap();
                fs::rename(&beside, world.file()).unwrap();
            }
            "append" => append(&world, &line),
            "race" => {
                let calls = Arc::new(Editor {
                    file: Mutex::new(Some(truncated())),
                    text: format!("{line}{right}"),
                });
                files.host = files.host.with_calls(calls);
            }
            _ => {
                let mut editor = truncated();
                said.extend(pass_at(&files, 0).tampering);
                assert_eq!(world.content(), right);
                for part in line.as_bytes().chunks(if way == "late" { 1_000 } else { 9 }) {
                    std::io::Write::write_all(&mut editor, part).unwrap();
                    said.extend(pass_at(&files, 0).tampering);
                }
            }
        }
        said.extend(pass_at(&files, 0).tampering);
        let named: Vec<_> = said.iter().filter(|what| what.ends_with(end)).collect();
        assert_eq!(named.len(), 1, "{way}: {said:?}");
        assert!(named[0].contains("with the keys SHA256:"), "{way}: {said:?}");
        assert_eq!(world.content(), right, "{way}");
        assert!(pass_at(&files, 0).tampering.is_empty(), "{way}");
    }
}

/// Writes to the file that it has emptied when the next one takes its place.
#[derive(Debug)]
struct Editor {
    file: Mutex<Option<fs::File>>,
    text: String,
}

impl HostCalls for Editor {
    fn before(&self, call: Call) -> Result<(), Errno> {
        if call == Call::Rename
            && let Some(mut file) = self.file.lock().take()
        {
            std::io::Write::write_all(&mut file, self.text.as_bytes()).unwrap();
        }
        Ok(())
    }
}
