//! The places of programs that run as root, and of the files by which root decides: on a host, where nobody but root
//! can exchange them, and not in the folder that the agent's container can write.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{self, Path, PathBuf};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, open, statvfs, unlink};
use rustix::io::Errno;

/// The flags of the folders that the agent's pod can write.
pub(super) const FOLDER: &str = "folder";
pub(super) const STATE_FOLDER: &str = "agent-state-folder";

/// The reason why a place is refused.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// This is a container, or systemd does not run.
    #[error(
        "this is not the system of a host: {0}. Run the command on the node itself, as root, and not in a container"
    )]
    NoHost(&'static str),
    /// It cannot be looked at.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A program is something else.
    #[error("{} is no file", .0.display())]
    NoFile(PathBuf),
    /// Somebody else than root can replace a program that the units start as root.
    #[error(
        "{} has the owner {} and the mode {:o}, so others than root could replace {}, which the units start as root: put it into a folder of \
         root, for example with install -o root -g root -m 0755 {} /usr/local/bin/, and use that one",
        part.path.display(), part.uid, part.mode, program.display(), program.display()
    )]
    Replaceable {
        /// The program, or a folder above it.
        part: OpenPart,
        /// The program.
        program: PathBuf,
    },
    /// Somebody else than root can change what root decides by.
    #[error(
        "{} has the owner {} and the mode {:o}, so others than root could change what is in {}: look at what is there, and correct owner and \
         mode (chown root:root, chmod go-w)",
        part.path.display(), part.uid, part.mode, folder.display()
    )]
    Writable {
        /// The folder, or one above it.
        part: OpenPart,
        /// The folder.
        folder: PathBuf,
    },
    /// The agent's container can write it.
    #[error("{} is in {}, which the agent's pod can write: use another place, or another --{flag}", path.display(), folder.display())]
    Shared {
        /// The file or folder.
        path: PathBuf,
        /// The agent's folder.
        folder: PathBuf,
        /// The flag that names it.
        flag: &'static str,
    },
    /// One of the agent's folders is the other, or is in it.
    #[error(
        "--folder is {}, and --agent-state-folder is {}: each needs a folder of its own, and none may be in the other, as in the agent's \
         settings folder and stateFolder",
        folder.display(), state.display()
    )]
    Nested {
        /// The folder that the agent shares.
        folder: PathBuf,
        /// The folder of what it remembers.
        state: PathBuf,
    },
    /// Nothing can be created there.
    #[error("{} cannot be written", path.display())]
    ReadOnly {
        /// The folder, or the one that it would be created in.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Errno,
    },
    /// No script can run there.
    #[error(
        "scripts cannot run in {}, because its file system is mounted with noexec: name a folder of another one with --script-folder, or \
         mount it with exec",
        .0.display()
    )]
    NoExec(PathBuf),
}

/// A file or folder that others than root can change.
#[derive(Debug)]
pub struct OpenPart {
    path: PathBuf,
    uid: u32,
    /// Its permissions.
    mode: u32,
}

/// Refuses to go on where there are no units: in a container, whose folders are not those of the host.
///
/// # Errors
/// The sign of a container.
pub fn check_host() -> Result<(), PlaceError> {
    check_system(Path::new("/"))
}

/// Checks that systemd is the first process, as `sd_booted(3)` does. A container may have the host's `/run`, and then
/// its root folder is not that of the first process.
fn check_system(root: &Path) -> Result<(), PlaceError> {
    if !root.join("run/systemd/system").is_dir() {
        return Err(PlaceError::NoHost(
            "systemd does not run here (/run/systemd/system is missing)",
        ));
    }
    let id = |path: &Path| {
        let found = fs::metadata(path).map_err(|source| unreadable(path, source))?;
        Ok((found.dev(), found.ino()))
    };
    if id(root)? == id(&root.join("proc/1/root"))? {
        Ok(())
    } else {
        Err(PlaceError::NoHost("its root folder is not that of the first process"))
    }
}

/// Refuses a program that somebody else can change, remove or replace: it and every folder above it must belong to
/// root, or to the user who runs this, and nobody else may write them. Of a symbolic link, that holds for the link and
/// for what it leads to.
///
/// # Errors
/// The file or folder that can be changed, or is missing.
pub(super) fn check_program(program: &Path) -> Result<(), PlaceError> {
    let target = fs::canonicalize(program).map_err(|source| unreadable(program, source))?;
    if !target.is_file() {
        return Err(PlaceError::NoFile(program.to_owned()));
    }
    for path in [&*target, program] {
        if let Some(part) = open_part(path, 0)? {
            let program = program.to_owned();
            return Err(PlaceError::Replaceable { part, program });
        }
    }
    Ok(())
}

/// Refuses a folder in which somebody else can change what is there, or in which nothing can be created. It need not
/// exist. Above it, folders may be sticky, like `/tmp`: there nobody can replace a folder of root.
///
/// # Errors
/// The folder that can be changed, or cannot be created.
pub(super) fn check_folder(folder: &Path) -> Result<(), PlaceError> {
    let Resolved { existing, .. } = resolve(folder)?;
    if let Some(part) = open_part(&existing, STICKY)? {
        let folder = folder.to_owned();
        return Err(PlaceError::Writable { part, folder });
    }
    check_writable(folder)
}

const STICKY: u32 = 0o1000;

/// Refuses a folder in which nothing can be created, or which cannot be created itself.
///
/// # Errors
/// The folder that cannot be written.
pub(super) fn check_writable(folder: &Path) -> Result<(), PlaceError> {
    let Resolved { existing, .. } = resolve(folder)?;
    // Root may write everywhere, and still creates no file in /proc. Of a file without a name, nothing is left when the
    // process is killed; not every file system has them.
    let nameless = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let created = open(&existing, nameless, Mode::RUSR).map(drop).or_else(|_| {
        let probe = existing.join(format!(".tidewaiter-{}", std::process::id()));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        open(&probe, flags, Mode::RUSR).and_then(|_| unlink(&probe))
    });
    created.map_err(|source| PlaceError::ReadOnly { path: existing, source })
}

/// Refuses what is below the folder that the agent's container can write, and a link there.
///
/// # Errors
/// The path that the agent can write.
pub(super) fn check_apart(path: &Path, folder: &Path, flag: &'static str) -> Result<(), PlaceError> {
    let shared = resolve(folder)?.whole;
    // The parent of a bare name is empty.
    let path = &path::absolute(path).map_err(|source| unreadable(path, source))?;
    let mut places = vec![resolve(path)?.whole];
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        places.push(resolve(parent)?.whole.join(name));
    }
    if places.iter().any(|place| place.starts_with(&shared)) {
        let (path, folder) = (path.to_owned(), folder.to_owned());
        return Err(PlaceError::Shared { path, folder, flag });
    }
    Ok(())
}

/// Refuses folders of the agent one of which is the other, or is in it.
///
/// # Errors
/// Both.
pub(super) fn check_agent(folder: &Path, state: &Path) -> Result<(), PlaceError> {
    let apart = check_apart(folder, state, STATE_FOLDER).and_then(|()| check_apart(state, folder, FOLDER));
    apart.map_err(|error| match error {
        PlaceError::Shared { .. } => PlaceError::Nested {
            folder: folder.to_owned(),
            state: state.to_owned(),
        },
        other => other,
    })
}

/// Refuses a folder, which need not exist, in whose file system no program runs.
///
/// # Errors
/// That it is so.
pub(super) fn check_executable(folder: &Path) -> Result<(), PlaceError> {
    let Resolved { existing, .. } = resolve(folder)?;
    let found = statvfs(&existing).map_err(|source| unreadable(&existing, source.into()))?;
    if found.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(PlaceError::NoExec(folder.to_owned()));
    }
    Ok(())
}

/// A path without symbolic links.
struct Resolved {
    /// The part of it that exists.
    existing: PathBuf,
    whole: PathBuf,
}

fn resolve(path: &Path) -> Result<Resolved, PlaceError> {
    for part in path.ancestors() {
        match fs::canonicalize(part) {
            Ok(existing) => {
                let rest = path.strip_prefix(part).unwrap_or(path);
                let whole = existing.join(rest);
                return Ok(Resolved { existing, whole });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(unreadable(part, source)),
        }
    }
    Err(unreadable(path, io::ErrorKind::NotFound.into()))
}

/// The first part of the path that others can change: the file or folder itself, or a folder above it. Folders above it
/// with a bit of `permitted` do not count.
fn open_part(path: &Path, permitted: u32) -> Result<Option<OpenPart>, PlaceError> {
    let own = rustix::process::geteuid().as_raw();
    for part in path.ancestors() {
        let found = fs::symlink_metadata(part).map_err(|source| unreadable(part, source))?;
        // The mode of a link does not count: anyone who can write its folder can replace it.
        let is_permitted = part != path && found.mode() & permitted != 0;
        let is_writable = !found.is_symlink() && found.mode() & 0o022 != 0 && !is_permitted;
        if is_writable || (found.uid() != 0 && found.uid() != own) {
            return Ok(Some(OpenPart {
                path: part.to_owned(),
                uid: found.uid(),
                mode: found.mode() & 0o7777,
            }));
        }
    }
    Ok(None)
}

fn unreadable(path: &Path, source: io::Error) -> PlaceError {
    PlaceError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the test")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn program(at: &Path) -> PathBuf {
        fs::create_dir_all(at).unwrap();
        let path = at.join("tidewaiter");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_program_that_somebody_else_can_exchange_is_refused() {
        // `/tmp`, which anybody can write.
        let scratch = tempfile::tempdir().unwrap();
        let open = scratch.path().join("open");
        let in_open = program(&open);
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(&open, 0o1777);
        let refused = |path: &Path| check_program(path).unwrap_err().to_string();
        let said = refused(&in_open);
        assert!(said.contains(&format!("{} has the owner", open.display())), "{said}");
        assert!(said.contains("install -o root -g root -m 0755"), "{said}");
        mode(&in_open, 0o775);
        let said = refused(&in_open);
        assert!(said.contains(&format!("{} has the owner", in_open.display())), "{said}");
    }

    #[test]
    fn a_link_counts_with_what_it_leads_to() {
        assert!(check_program(Path::new("/usr/bin/env")).is_ok());
        let missing = check_program(Path::new("/usr/bin/no-such-program")).unwrap_err();
        assert!(missing.to_string().contains("cannot be read"), "{missing}");
        assert!(
            check_program(Path::new("/usr/bin"))
                .unwrap_err()
                .to_string()
                .contains("is no file")
        );
        let (scratch, open) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::set_permissions(open.path(), Permissions::from_mode(0o777)).unwrap();
        let link = scratch.path().join("link");
        symlink(program(open.path()), &link).unwrap();
        let said = check_program(&link).unwrap_err().to_string();
        assert!(
            said.contains(&format!("{} has the owner", open.path().display())),
            "{said}"
        );
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused_and_one_below_a_sticky_folder_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let (open, mode) = (scratch.path().join("open"), |mode| Permissions::from_mode(mode));
        fs::create_dir(&open).unwrap();
        let inner = open.join("pinned");
        check_folder(&inner).unwrap();
        for refused in [0o777, 0o1777] {
            fs::set_permissions(&open, mode(refused)).unwrap();
            // It would be created there.
            let said = check_folder(&inner).unwrap_err().to_string();
            assert!(said.contains(&format!("{} has the owner", open.display())), "{said}");
        }
        fs::create_dir(&inner).unwrap();
        check_folder(&inner).unwrap();
        fs::set_permissions(&open, mode(0o777)).unwrap();
        assert!(check_folder(&inner).is_err());
        fs::set_permissions(&open, mode(0o755)).unwrap();
        let file = open.join("file");
        fs::write(&file, "").unwrap();
        assert!(
            check_folder(&file)
                .unwrap_err()
                .to_string()
                .contains("cannot be written")
        );
        assert!(check_folder(&file.join("units")).is_err());
    }

    #[test]
    fn what_the_agent_can_write_is_refused_also_behind_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let shared = scratch.path().join("containership");
        fs::create_dir_all(shared.join("trust")).unwrap();
        symlink(&shared, scratch.path().join("into")).unwrap();
        symlink("/usr/bin/env", shared.join("out")).unwrap();
        for refused in [
            "containership",
            "containership/trust",
            "into/new/folder",
            "containership/out",
        ] {
            let said = check_apart(&scratch.path().join(refused), &shared, FOLDER)
                .unwrap_err()
                .to_string();
            assert!(said.contains("which the agent's pod can write"), "{said}");
        }
        for accepted in ["containership-pinned", "new/pinned", "containership/../pinned"] {
            check_apart(&scratch.path().join(accepted), &shared, FOLDER).unwrap();
        }
    }

    #[test]
    fn a_container_is_no_host() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        fs::create_dir_all(root.join("proc/1")).unwrap();
        let said = check_system(root).unwrap_err().to_string();
        assert!(said.contains("systemd does not run here"), "{said}");
        fs::create_dir_all(root.join("run/systemd/system")).unwrap();
        // With the process namespace of the host.
        symlink("/", root.join("proc/1/root")).unwrap();
        let said = check_system(root).unwrap_err().to_string();
        assert!(said.contains("not that of the first process"), "{said}");
        fs::remove_file(root.join("proc/1/root")).unwrap();
        symlink(root, root.join("proc/1/root")).unwrap();
        check_system(root).unwrap();
    }
}
