//! The small files that an operator names: settings, kubeconfigs, the configuration of kOps.
//!
//! Only regular files are opened: a pipe that nobody writes to would block its reader for ever, and no signal would be
//! handled meanwhile. At most one byte more than the limit is read.

use std::fs::{self, File, FileType};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use serde_json::{Map, Value};

use crate::yaml;

/// The maximum size of a file: twenty times the largest one that kOps writes.
pub const MAX_BYTES: usize = 1024 * 1024;

/// Reads a whole file.
///
/// # Errors
/// If it is missing, unreadable, not a regular file, or larger than [`MAX_BYTES`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?.file_type();
    if !found.is_file() {
        let message = format!("must be a file, but is {}", name_of(found));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        let message = format!("is larger than {} KiB", MAX_BYTES / 1024);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// The text of a file, without the byte order mark that PowerShell writes first: it would become a part of a password.
///
/// # Errors
/// If it is not UTF-8.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
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

/// Parses a file that must be one YAML mapping; an empty one is an empty mapping. Whatever else was named in its place
/// may be secret, and is not shown.
///
/// # Errors
/// The error in one line.
pub fn mapping(text: &str) -> Result<Map<String, Value>, String> {
    match yaml::document(text).map_err(|error| error.to_string())? {
        Value::Object(mapping) => Ok(mapping),
        Value::Null => Ok(Map::new()),
        Value::String(text) => Err(format!("it is a text of {} characters", text.chars().count())),
        Value::Array(_) => Err("it is a list".to_owned()),
        Value::Bool(_) | Value::Number(_) => Err("it is a single value".to_owned()),
    }
}

/// The kind of thing in place of a file, in words.
#[must_use]
pub fn name_of(found: FileType) -> &'static str {
    if found.is_dir() {
        "a folder"
    } else if found.is_fifo() {
        "a named pipe"
    } else if found.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::{MAX_BYTES, Path, mapping, read, text};

    #[test]
    fn what_is_no_mapping_is_not_quoted() {
        let secret = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\n";
        let error = mapping(secret).unwrap_err();
        assert_eq!(error, "it is a text of 60 characters");
        for broken in [
            "[default]\naws_secret_access_key = wJalrXUtnFEMI\n",
            "{\"password\": \"wJalrXUtnFEMI\"",
            "password: wJalrXUtnFEMI: x\n",
            "password: *wJalrXUtnFEMI\n",
            "password: @wJalrXUtnFEMI\n",
            "%wJalrXUtnFEMI\n",
            "- wJalrXUtnFEMI\n",
        ] {
            let error = mapping(broken).unwrap_err();
            assert!(!error.contains("wJalr"), "{broken:?}: {error}");
        }
    }

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
    fn only_a_regular_file_of_at_most_the_limit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
        for (path, words) in [
            (pipe.as_path(), "must be a file, but is a named pipe"),
            (folder.path(), "must be a file, but is a folder"),
            (Path::new("/dev/zero"), "must be a file, but is a device"),
        ] {
            assert_eq!(read(path).unwrap_err().to_string(), words);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        for (size, fits) in [(0, true), (MAX_BYTES, true), (MAX_BYTES + 1, false)] {
            file.as_file().set_len(size as u64).unwrap();
            let read = read(file.path()).map_err(|error| error.to_string());
            let expected = if fits {
                Ok(vec![0; size])
            } else {
                Err("is larger than 1024 KiB".to_owned())
            };
            assert!(read == expected, "{size}");
        }
    }
}
