//! The files of the host, on a real file system: what attackers plant, calls that fail, and the end of the process
//! between two calls.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "what others write to the files")]

mod attacks;
mod faults;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use tempfile::TempDir;
use tidewaiter_agent::host::{AllCalls, Call, Found, Host, HostCalls, HostError, Owner};

const NAME: &str = "authorized_keys";
const PATH: [&str; 2] = ["home", ".ssh"];
const OLD: &[u8] = b"old\n";
const NEW: &[u8] = b"new\n";

/// A folder for the agent, and one beside it that the agent must never touch.
struct World {
    folder: TempDir,
}

fn owner() -> Owner {
    Owner {
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
    }
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        Self { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    fn ssh(&self) -> PathBuf {
        self.root().join("home/.ssh")
    }

    fn file(&self) -> PathBuf {
        self.ssh().join(NAME)
    }

    fn host(&self) -> Host {
        self.host_with(Arc::new(AllCalls))
    }

    fn host_with(&self, calls: Arc<dyn HostCalls>) -> Host {
        Host::new(&self.root(), owner(), calls)
    }

    /// The names in the folder of the file.
    fn names(&self) -> Vec<String> {
        names(&self.ssh())
    }

    /// A regular file with this content, our owner and our mode, and nothing beside it.
    fn has(&self, content: &[u8]) {
        assert_eq!(fs::read(self.file()).unwrap(), content);
        let meta = fs::symlink_metadata(self.file()).unwrap();
        assert!(meta.is_file());
        assert_eq!(
            (meta.mode() & 0o7777, meta.uid(), meta.nlink()),
            (0o600, owner().uid, 1)
        );
        for folder in [self.root(), self.root().join("home"), self.ssh()] {
            let meta = fs::symlink_metadata(&folder).unwrap();
            assert!(meta.is_dir() && meta.mode() & 0o7777 == 0o755, "{}", folder.display());
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Writes a file as the agent does.
fn write(host: &Host, content: &[u8]) -> Result<(), HostError> {
    let opened = host.ensure(&PATH)?;
    let folder = opened.last().unwrap();
    let found = host.find(folder, NAME)?;
    host.replace(folder, NAME, content, 0o600, &found).map(drop)
}

/// The same with a file that was written ahead.
fn write_prepared(host: &Host, content: &[u8]) -> Result<(), HostError> {
    let opened = host.ensure(&PATH)?;
    let folder = opened.last().unwrap();
    let prepared = host.prepare(folder, content, 0o600)?;
    let found = host.find(folder, NAME)?;
    host.replace_with(folder, NAME, content, &prepared, &found).map(drop)
}

type Write = fn(&Host, &[u8]) -> Result<(), HostError>;

const WRITES: [Write; 2] = [write, write_prepared];

fn sweep(host: &Host) {
    if let Some(opened) = host.look(&PATH).unwrap() {
        host.sweep(opened.last().unwrap(), NAME).unwrap();
    }
}

#[test]
fn a_file_is_written_and_replaced() {
    for write in WRITES {
        let world = World::new();
        write(&world.host(), OLD).unwrap();
        world.has(OLD);
        write(&world.host(), NEW).unwrap();
        world.has(NEW);
        assert_eq!(world.names(), [NAME]);
    }
}

#[test]
fn a_file_that_is_prepared_for_other_content_is_not_used() {
    let world = World::new();
    let host = world.host();
    let opened = host.ensure(&PATH).unwrap();
    let folder = opened.last().unwrap();
    let prepared = host.prepare(folder, OLD, 0o600).unwrap();
    assert_eq!(world.names(), [""; 0], "it has no name");
    host.replace_with(folder, NAME, NEW, &prepared, &Found::Absent).unwrap();
    world.has(NEW);
}

#[test]
fn what_was_written_after_the_look_is_returned() {
    let world = World::new();
    write(&world.host(), OLD).unwrap();
    let host = world.host();
    let opened = host.ensure(&PATH).unwrap();
    let folder = opened.last().unwrap();
    let found = host.find(folder, NAME).unwrap();
    fs::write(world.file(), b"old\nlate\n").unwrap();
    let replaced = host.replace(folder, NAME, NEW, 0o600, &found).unwrap();
    assert_eq!(format!("{replaced:?}"), format!("File({:?})", b"old\nlate\n".to_vec()));
}

/// Each new folder gets the mode that a umask leaves.
#[derive(Debug)]
struct Umask(PathBuf);

impl HostCalls for Umask {
    fn before(&self, call: Call) -> Result<(), Errno> {
        if call == Call::Sync && self.0.is_dir() {
            fs::set_permissions(&self.0, fs::Permissions::from_mode(0o700)).unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_folder_that_the_agent_makes_is_not_one_that_somebody_changed() {
    let world = World::new();
    let home = world.root().join("home");
    let host = world.host_with(Arc::new(Umask(home.clone())));
    assert_eq!(host.ensure(&PATH[..1]).unwrap().repairs, ["home was missing"]);
    assert_eq!(fs::metadata(&home).unwrap().mode() & 0o7777, 0o755);
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    let repairs = host.ensure(&PATH[..1]).unwrap().repairs;
    assert!(
        repairs.len() == 1 && repairs[0].ends_with("the mode 0700"),
        "{repairs:?}"
    );
}

#[test]
fn a_root_that_is_missing_is_named() {
    let world = World::new();
    fs::remove_dir(world.root()).unwrap();
    let error = world.host().ensure(&PATH).unwrap_err();
    assert!(error.to_string().contains("root cannot be opened"), "{error}");
}

#[test]
fn a_huge_file_is_read_up_to_the_limit() {
    let world = World::new();
    write(&world.host(), OLD).unwrap();
    let line = [&[b'x'; 1000][..], b"\n"].concat();
    fs::write(world.file(), line.repeat(10_000)).unwrap();
    let host = world.host();
    let opened = host.look(&PATH).unwrap().unwrap();
    let Found::File(file) = host.find(opened.last().unwrap(), NAME).unwrap() else {
        panic!("a file")
    };
    assert_eq!(file.content.len(), 8 * 1024 * 1024);
}

/// sshd opens the file at any moment.
#[test]
fn no_reader_sees_half_a_file() {
    const READS: usize = 1_000_000;
    let world = World::new();
    let contents = [b'a', b'b'].map(|byte| [&vec![byte; 20_000][..], b"\n"].concat());
    write(&world.host(), &contents[0]).unwrap();
    let path = world.file();
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| {
            for number in 0..READS {
                // One in a hundred is read as a whole; its ends show the others.
                let file = fs::File::open(&path).unwrap();
                if number % 100 == 0 {
                    let content = fs::read(&path).unwrap();
                    assert!(contents.contains(&content), "{} bytes", content.len());
                }
                let length = file.metadata().unwrap().len();
                assert_eq!(length, 20_001, "read {number}");
                let mut end = [0; 2];
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut end, length - 2).unwrap();
                assert!(end == *b"a\n" || end == *b"b\n", "{end:?}");
            }
        });
        let mut writes = 0;
        while !reads.is_finished() {
            writes += 1;
            write(&world.host(), &contents[writes % 2]).unwrap();
        }
        reads.join().unwrap();
        assert!(writes > 100, "{writes} writes");
    });
}
