//! The text files that a person names to a command: documents, scripts, manifests, keys, passwords.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tidewaiter_kit::files;

/// Larger than anything that the cloud accepts.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The standard input as a file that an argument names, as for kubectl.
const STDIN: &str = "-";

/// The name, for messages, of a file that an argument names.
pub(crate) fn origin(path: &Path) -> String {
    if path == Path::new(STDIN) {
        "the standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// As [`read`], for a file that an argument names: `-` is the standard input.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_named(path: &Path) -> io::Result<String> {
    if path == Path::new(STDIN) {
        text(io::stdin().lock())
    } else {
        read(path)
    }
}

/// Reads a whole file, or a pipe to its end.
///
/// # Errors
/// If it cannot be read, is no text, or does not end after 32 MiB.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    text(File::open(path)?)
}

fn text(file: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES) {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 32 MiB"));
    }
    files::text(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let refused = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(refused.to_string(), "it is larger than 32 MiB");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let refused = read(Path::new("/bin/true")).unwrap_err();
        assert_eq!(refused.to_string(), "it is not a text in UTF-8: save it as UTF-8");
        assert!(
            read(Path::new("/proc/self/comm")).unwrap().ends_with('\n'),
            "a file without a length"
        );
    }
}
