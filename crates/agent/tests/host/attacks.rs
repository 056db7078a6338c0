//! Objects that somebody who can write in the folder plants.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use super::{NAME, NEW, OLD, World, names, write};

/// Plants something in a world, and names it.
type Plant = (&'static str, fn(&World));

fn victim(world: &World) -> std::path::PathBuf {
    let victim = world.outside().join("victim");
    fs::write(&victim, b"untouched").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).unwrap();
    victim
}

fn pipe(path: &std::path::Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
}

const PLANTS: [Plant; 15] = [
    ("a link in place of home", |world| {
        symlink(world.outside(), world.root().join("home")).unwrap();
    }),
    ("a link to the folder's own parent", |world| {
        symlink("..", world.root().join("home")).unwrap();
    }),
    ("a link in place of .ssh", |world| {
        fs::create_dir(world.root().join("home")).unwrap();
        symlink(world.outside(), world.ssh()).unwrap();
    }),
    ("a link that names nothing", |world| {
        symlink("nothing", world.root().join("home")).unwrap();
    }),
    ("a loop of links", |world| {
        symlink("home", world.root().join("home")).unwrap();
    }),
    ("a file in place of home", |world| {
        fs::write(world.root().join("home"), b"x").unwrap();
    }),
    ("a pipe in place of .ssh", |world| {
        fs::create_dir(world.root().join("home")).unwrap();
        pipe(&world.ssh());
    }),
    ("a link in place of the file", |world| {
        write(&world.host(), OLD).unwrap();
        fs::remove_file(world.file()).unwrap();
        symlink(victim(world), world.file()).unwrap();
    }),
    ("a hard link in place of the file", |world| {
        write(&world.host(), OLD).unwrap();
        fs::remove_file(world.file()).unwrap();
        fs::hard_link(victim(world), world.file()).unwrap();
    }),
    ("another name of the file", |world| {
        write(&world.host(), OLD).unwrap();
        fs::hard_link(world.file(), world.root().join("copy")).unwrap();
    }),
    ("a pipe in place of the file", |world| {
        write(&world.host(), OLD).unwrap();
        fs::remove_file(world.file()).unwrap();
        pipe(&world.file());
    }),
    ("a socket in place of the file", |world| {
        write(&world.host(), OLD).unwrap();
        fs::remove_file(world.file()).unwrap();
        // A path of a socket is short.
        let short = std::env::temp_dir().join(format!("tw-{}", std::process::id()));
        drop(UnixListener::bind(&short).unwrap());
        if fs::rename(&short, world.file()).is_err() {
            fs::remove_file(&short).unwrap();
            pipe(&world.file());
        }
    }),
    ("an empty folder in place of the file", |world| {
        write(&world.host(), OLD).unwrap();
        fs::remove_file(world.file()).unwrap();
        fs::create_dir(world.file()).unwrap();
    }),
    ("everything open to everybody", |world| {
        write(&world.host(), OLD).unwrap();
        for path in [world.file(), world.ssh(), world.root().join("home"), world.root()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o7777)).unwrap();
        }
    }),
    ("nothing may be read", |world| {
        write(&world.host(), OLD).unwrap();
        for path in [world.file(), world.ssh(), world.root().join("home")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }),
];

#[test]
fn what_is_planted_is_taken_away_and_nothing_outside_is_touched() {
    for (what, plant) in PLANTS {
        let world = World::new();
        let victim = victim(&world);
        plant(&world);
        write(&world.host(), NEW).unwrap_or_else(|error| panic!("{what}: {error}"));
        world.has(NEW);
        assert_eq!(world.names(), [NAME], "{what}");
        assert_eq!(names(&world.outside()), ["victim"], "{what}");
        assert_eq!(fs::read(&victim).unwrap(), b"untouched", "{what}");
        let mode = fs::metadata(&victim).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640, "{what}");
    }
}

/// A folder with content may be somebody's data.
#[test]
fn a_folder_with_content_is_moved_aside() {
    let world = World::new();
    write(&world.host(), OLD).unwrap();
    fs::remove_file(world.file()).unwrap();
    fs::create_dir(world.file()).unwrap();
    fs::write(world.file().join("data"), b"data").unwrap();
    write(&world.host(), NEW).unwrap();
    world.has(NEW);
    let [aside, _] = &world.names()[..] else {
        panic!("{:?}", world.names())
    };
    assert!(aside.starts_with(".tidewaiter-displaced-"), "{aside}");
    assert_eq!(fs::read(world.ssh().join(aside).join("data")).unwrap(), b"data");
}

/// Somebody exchanges a folder for a link to another one as fast as possible: whatever the agent opens is its own
/// folder.
#[test]
fn a_racing_renamer_leads_nowhere() {
    let world = World::new();
    write(&world.host(), OLD).unwrap();
    fs::create_dir(world.outside().join(".ssh")).unwrap();
    let link = world.root().join("link");
    let home = world.root().join("home");
    symlink(world.outside(), &link).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = renameat_with(CWD, &link, CWD, &home, RenameFlags::EXCHANGE);
                if !link.exists() {
                    let _ = symlink(world.outside(), &link);
                }
            }
        });
        for _ in 0..3_000 {
            // It may give up while it is raced; it must not write outside.
            let _ = write(&world.host(), NEW);
            assert_eq!(names(&world.outside()), [".ssh"]);
            assert!(names(&world.outside().join(".ssh")).is_empty());
        }
        stop.store(true, Ordering::Relaxed);
    });
    let _ = fs::remove_file(&link);
    write(&world.host(), NEW).unwrap();
    world.has(NEW);
    assert!(names(&world.outside().join(".ssh")).is_empty());
}
