//! Which programs a unit may start as root: those that nobody but root can exchange.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::InstallError;

/// Refuses a program that somebody else can change, remove or replace: it and every folder above it must belong to root, or to whoever runs this, and
/// nobody else may write them. Of a symbolic link, that holds for the link and for what it leads to.
///
/// # Errors
/// Which file or folder it is.
pub(super) fn check_program(program: &Path) -> Result<(), InstallError> {
    let target = fs::canonicalize(program).map_err(|source| unreadable(program, source))?;
    if !target.is_file() {
        return Err(InstallError::NoFile(program.to_owned()));
    }
    check_path(&target, program)?;
    if target == program {
        Ok(())
    } else {
        check_path(program, program)
    }
}

/// Checks the file and every folder above it.
fn check_path(path: &Path, program: &Path) -> Result<(), InstallError> {
    let own = rustix::process::geteuid().as_raw();
    for part in path.ancestors() {
        let found = fs::symlink_metadata(part).map_err(|source| unreadable(part, source))?;
        // The mode of a link does not count: whoever can write its folder can replace it.
        let is_writable = !found.is_symlink() && found.mode() & 0o022 != 0;
        if is_writable || (found.uid() != 0 && found.uid() != own) {
            return Err(InstallError::Replaceable {
                part: part.to_owned(),
                program: program.to_owned(),
                uid: found.uid(),
                mode: found.mode() & 0o7777,
            });
        }
    }
    Ok(())
}

fn unreadable(path: &Path, source: io::Error) -> InstallError {
    InstallError::Unreadable {
        path: PathBuf::from(path),
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
        let refused = |path: &Path| check_path(path, path).unwrap_err().to_string();
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
}
