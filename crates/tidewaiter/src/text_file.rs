//! The text files that a person names to a command: documents, scripts, manifests, keys, passwords.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use tidewaiter_kit::files;

/// Larger than anything that the cloud accepts.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// Reads a whole file, or a pipe to its end.
///
/// # Errors
/// If it cannot be read, is no text, or does not end after 32 MiB.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
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
