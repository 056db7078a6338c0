//! The text files that a person names to a command: documents, scripts, manifests, keys, passwords.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

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
    text(bytes)
}

/// The text, without the byte order mark that PowerShell writes first: it would become a part of a password.
fn text(bytes: Vec<u8>) -> io::Result<String> {
    let mut text = String::from_utf8(bytes).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not a text in UTF-8: save it as UTF-8",
        )
    })?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        for (found, wanted) in [
            ("\u{feff}secret\r\n", "secret\r\n"),
            ("\u{feff}", ""),
            ("a\u{feff}", "a\u{feff}"),
            ("", ""),
        ] {
            assert_eq!(text(found.as_bytes().to_vec()).unwrap(), wanted);
        }
    }

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
