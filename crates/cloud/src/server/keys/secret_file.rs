//! Files that contain keys.
//!
//! Invariants: a file is read only if nobody except its owner can read or write it, and only if that owner is the user
//! of this process or root; it is written completely or not at all, and is synced to disk before its name exists. No
//! error contains the contents of a file.

use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// Larger than any key file.
const MAX_BYTES: u64 = 64 * 1024;

const ROOT: u32 = 0;

#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is accessible to other users (mode {mode:04o}): run chmod 600 {}", path.display(), path.display())]
    Mode { path: PathBuf, mode: u32 },
    #[error("{} belongs to the user {owner}: it must belong to the user that runs this process, or to root", path.display())]
    Owner { path: PathBuf, owner: u32 },
    #[error("{} is not a key file: it must be text of at most {MAX_BYTES} bytes", path.display())]
    NoText { path: PathBuf },
    #[error("{} already exists and is never overwritten: the data that its keys protect would be lost", path.display())]
    Exists { path: PathBuf },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl SecretFileError {
    /// Returns true if the file does not exist: every other file may only be unreadable for a while.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// The text of the file.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<String>, SecretFileError> {
    let unreadable = |source| SecretFileError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    // Checks the open file: its name may refer to another file by now.
    check(path, &file.metadata().map_err(unreadable)?)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = std::str::from_utf8(&bytes)
        .ok()
        .filter(|_| bytes.len() as u64 <= MAX_BYTES);
    let text = text.ok_or_else(|| SecretFileError::NoText { path: path.to_owned() })?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn check(path: &Path, metadata: &Metadata) -> Result<(), SecretFileError> {
    verdict(
        path,
        rustix::process::geteuid().as_raw(),
        metadata.uid(),
        metadata.mode() & 0o7777,
    )
}

/// The rule of PostgreSQL for its key: our group may read a file of root, because Kubernetes mounts a Secret this way
/// for a process that is not root (`fsGroup`).
fn verdict(path: &Path, us: u32, owner: u32, mode: u32) -> Result<(), SecretFileError> {
    let path = path.to_owned();
    let forbidden = match owner {
        _ if owner == us => 0o077,
        ROOT => 0o037,
        _ => return Err(SecretFileError::Owner { path, owner }),
    };
    if mode & forbidden != 0 {
        return Err(SecretFileError::Mode { path, mode });
    }
    Ok(())
}

/// Creates the file with mode 0600; refuses to overwrite an existing file.
pub(crate) fn create(path: &Path, content: &str) -> Result<(), SecretFileError> {
    let staged = stage(path, content)?;
    match staged.persist_noclobber(path) {
        Ok(_) => sync_folder_of(path),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            Err(SecretFileError::Exists { path: path.to_owned() })
        }
        Err(error) => Err(unwritable(path)(error.error)),
    }
}

/// Replaces the file, with mode 0600.
///
/// # Errors
/// [`SecretFileError::Write`].
pub fn replace(path: &Path, content: &str) -> Result<(), SecretFileError> {
    let staged = stage(path, content)?;
    staged.persist(path).map_err(|error| unwritable(path)(error.error))?;
    sync_folder_of(path)
}

/// Removes the file, unless another process has removed it.
pub(crate) fn remove(path: &Path) -> Result<(), SecretFileError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unwritable(path)(error)),
        _ => sync_folder_of(path),
    }
}

/// Creates the directory with mode 0700, unless it exists.
///
/// # Errors
/// [`SecretFileError::Write`].
pub fn create_folder(path: &Path) -> Result<(), SecretFileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(unwritable(path))
}

/// A file with a random name next to `path`, with mode 0600 from its creation (`O_EXCL`), synced to disk.
fn stage(path: &Path, content: &str) -> Result<NamedTempFile, SecretFileError> {
    let stage = || {
        let mut staged = NamedTempFile::new_in(folder_of(path))?;
        staged.write_all(content.as_bytes())?;
        staged.as_file().sync_all()?;
        Ok(staged)
    };
    stage().map_err(unwritable(path))
}

/// Syncs the directory of the file to disk, and with it the name of the file.
///
/// # Errors
/// [`SecretFileError::Write`].
pub fn sync_folder_of(path: &Path) -> Result<(), SecretFileError> {
    let sync = || File::open(folder_of(path))?.sync_all();
    sync().map_err(unwritable(path))
}

fn folder_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> SecretFileError {
    let path = path.to_owned();
    |source| SecretFileError::Write { path, source }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_what_nobody_else_could_read_or_change_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        create(&path, "a secret").unwrap();
        assert_eq!(*read(&path).unwrap(), "a secret");
        for mode in [0o640, 0o620, 0o604, 0o602, 0o666] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let refusal = read(&path).unwrap_err().to_string();
            assert!(refusal.contains(&format!("chmod 600 {}", path.display())), "{refusal}");
            assert!(refusal.contains(&format!("{mode:04o}")), "{refusal}");
        }
    }

    #[test]
    fn the_owner_decides_what_a_mode_may_be() {
        let (us, other) = (1000, 1001);
        let (ours, open, theirs) = (None, Some("chmod 600"), Some("belongs to the user"));
        let table = [
            (us, us, 0o600, ours),
            (us, us, 0o400, ours),
            (us, us, 0o440, open),
            (us, ROOT, 0o440, ours),
            (us, ROOT, 0o460, open),
            (us, ROOT, 0o444, open),
            (us, other, 0o600, theirs),
            (us, other, 0o400, theirs),
            (ROOT, ROOT, 0o440, open),
            (ROOT, us, 0o600, theirs),
        ];
        for (us, owner, mode, expected) in table {
            let refusal = verdict(Path::new("key"), us, owner, mode)
                .err()
                .map(|error| error.to_string());
            let is_as_expected = match (&refusal, expected) {
                (Some(refusal), Some(words)) => refusal.contains(words),
                (refusal, words) => refusal.is_none() && words.is_none(),
            };
            assert!(is_as_expected, "{us} {owner} {mode:o}: {refusal:?}");
        }
    }

    #[test]
    fn a_file_is_new_whole_and_ours_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        create(&path, "first").unwrap();
        let refusal = create(&path, "second").unwrap_err();
        assert!(matches!(refusal, SecretFileError::Exists { .. }), "{refusal:?}");
        assert_eq!(*read(&path).unwrap(), "first");
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        replace(&path, "third").unwrap();
        assert_eq!(*read(&path).unwrap(), "third");
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1, "nothing is left of what was staged");
    }

    #[test]
    fn what_is_no_text_or_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let limit = usize::try_from(MAX_BYTES).unwrap();
        create(&path, &"k".repeat(limit)).unwrap();
        assert_eq!(read(&path).unwrap().len(), limit);
        replace(&path, &"k".repeat(limit + 1)).unwrap();
        assert!(matches!(read(&path), Err(SecretFileError::NoText { .. })));
        let mut file = File::options().write(true).truncate(true).open(&path).unwrap();
        file.write_all(&[0xff, 0xfe]).unwrap();
        assert!(matches!(read(&path), Err(SecretFileError::NoText { .. })));
        assert!(matches!(
            read(&folder.path().join("none")),
            Err(SecretFileError::Read { .. })
        ));
    }

    #[test]
    fn a_file_that_is_gone_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        create(&path, "text").unwrap();
        for _ in 0..2 {
            remove(&path).unwrap();
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_folder_is_ours_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        create_folder(&path).unwrap();
        create_folder(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    }
}
