//! Break-glass keys: those that root has pinned on the host, in a folder that the agent's container can only read.
//!
//! - The whole key is pinned, so the agent can always write its line, whatever others do to `authorized_keys`.
//! - Nothing in the cluster, and nobody who can write `authorized_keys`, adds a key or takes one away.
//! - Options of a line, such as `from=`, are not pinned. The agent writes the line with its own command, so each use is
//!   recorded.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use jiff::Timestamp;
use tidewaiter_api::values::{SshKeyLine, printable};

use crate::authorized_keys::{ForeignKey, Format, LoginKey};
use crate::host::{Found, Host, HostError, Opened};

/// The folder on the host.
pub const DEFAULT_FOLDER: &str = "/etc/tidewaiter/pinned";

/// The file in it: a line `TYPE BASE64 COMMENT` for each key.
pub const FILE: &str = "break-glass";

const FILE_MODE: u32 = 0o644;

const HEADER: &str =
    "# The break-glass keys of this node, which the agent writes to authorized_keys: tidewaiter host break-glass\n";

/// The reason why a key is not pinned, or not removed.
#[derive(Debug, thiserror::Error)]
pub enum BreakGlassError {
    /// A file of the host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The folder.
    #[error("{path} cannot be created")]
    Folder {
        /// The folder.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It is no key.
    #[error("KEY {0}")]
    Key(&'static str),
    /// No line of `authorized_keys` has a key with this fingerprint.
    #[error("no line of {path} has a key with the fingerprint {fingerprint}: give the public key itself")]
    NotFound {
        /// The fingerprint.
        fingerprint: String,
        /// The path of `authorized_keys`.
        path: String,
    },
    /// It is not pinned.
    #[error("{0} is not pinned: tidewaiter host break-glass list shows what is")]
    NotPinned(String),
}

/// The keys in the file, and for each line that does not count its number and the rule that it violates.
#[must_use]
pub fn parse(content: &[u8]) -> (Vec<LoginKey>, Vec<(usize, &'static str)>) {
    let (mut keys, mut wrong) = (Vec::<LoginKey>::new(), Vec::new());
    for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match read(line) {
            Ok(key) if keys.iter().any(|known| known.fingerprint == key.fingerprint()) => {}
            Ok(key) => keys.push(LoginKey::from(&key)),
            Err(rule) => wrong.push((index + 1, rule)),
        }
    }
    (keys, wrong)
}

/// The key of a line. Its comment may be in any encoding, as for OpenSSH.
fn read(line: &[u8]) -> Result<SshKeyLine, &'static str> {
    SshKeyLine::parse(&String::from_utf8_lossy(line))
}

/// The last use of a break-glass key, as the login script wrote it, if it names a key of `pinned`.
#[must_use]
pub fn last_use(content: &[u8], pinned: &[LoginKey]) -> Option<(Timestamp, String)> {
    let (time, fingerprint) = str::from_utf8(content).ok()?.trim().split_once(' ')?;
    let is_pinned = pinned.iter().any(|key| key.fingerprint == fingerprint);
    Some((time.parse().ok()?, fingerprint.to_owned())).filter(|_| is_pinned)
}

/// Pins a key: `key` is a public key, or the fingerprint of one that `authorized_keys` in the agent's `folder` has.
/// Returns what was done, in words.
///
/// # Errors
/// When it is no key, or the file cannot be written.
pub fn pin(pinned: &Path, folder: &Path, key: &str) -> Result<String, BreakGlassError> {
    let key = if key.starts_with("SHA256:") {
        find(folder, key)?
    } else {
        SshKeyLine::parse(key).map_err(BreakGlassError::Key)?
    };
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(pinned);
    made.map_err(|source| BreakGlassError::Folder {
        path: pinned.display().to_string(),
        source,
    })?;
    let (_, mut content) = without(pinned, key.fingerprint())?;
    if content.is_empty() {
        content.extend_from_slice(HEADER.as_bytes());
    }
    if !content.ends_with(b"\n") {
        content.push(b'\n');
    }
    content.extend_from_slice(format!("{}\n", key.as_str()).as_bytes());
    write(pinned, &content)?;
    Ok(format!(
        "pinned {}: whoever has this key can log in on this node, whatever the cluster says; options of its line, such \
         as from=, do not count{}{}",
        key.fingerprint(),
        also_of(folder, key.fingerprint()),
        wrong_lines(&content)
    ))
}

/// The pinned keys, in words, one line for each key, and for each line that does not count.
///
/// # Errors
/// The file cannot be read.
pub fn list(pinned: &Path) -> Result<String, BreakGlassError> {
    let content = Host::of_root(pinned).read_trusted(FILE)?.unwrap_or_default();
    let lines = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let keys = lines.filter_map(|line| read(line).ok());
    let mut shown: Vec<_> = keys
        .map(|key| format!("{} {}", key.fingerprint(), key.as_str()))
        .collect();
    if shown.is_empty() {
        shown.push("no key is pinned".to_owned());
    }
    Ok(format!("{}{}", shown.join("\n"), wrong_lines(&content)))
}

/// Removes a key. Returns a message for a person.
///
/// # Errors
/// When it is not pinned, or the file cannot be written.
pub fn unpin(pinned: &Path, fingerprint: &str) -> Result<String, BreakGlassError> {
    let (is_pinned, content) = without(pinned, fingerprint)?;
    if !is_pinned {
        return Err(BreakGlassError::NotPinned(printable(fingerprint)));
    }
    write(pinned, &content)?;
    Ok(format!(
        "removed {fingerprint}: the agent removes its line{}",
        wrong_lines(&content)
    ))
}

/// The file without this key, and whether it had it. All else stays: comments and lines that do not count are
/// somebody's, who corrects them.
fn without(pinned: &Path, fingerprint: &str) -> Result<(bool, Vec<u8>), HostError> {
    let content = Host::of_root(pinned).read_trusted(FILE)?.unwrap_or_default();
    let is_key = |line: &&[u8]| matches!(read(line), Ok(key) if key.fingerprint() == fingerprint);
    let (gone, left): (Vec<_>, Vec<_>) = content.split_inclusive(|byte| *byte == b'\n').partition(is_key);
    Ok((!gone.is_empty(), left.concat()))
}

/// The lines that do not count, in words.
fn wrong_lines(content: &[u8]) -> String {
    let wrong = parse(content).1.into_iter();
    let lines = wrong.map(|(line, rule)| format!("\nline {line} of the file does not count: the key {rule}"));
    lines.collect()
}

fn write(pinned: &Path, content: &[u8]) -> Result<(), HostError> {
    Host::of_root(pinned).write_trusted(FILE, content, FILE_MODE)
}

/// A warning if a user has the key, too.
fn also_of(folder: &Path, fingerprint: &str) -> String {
    let format = Format::new(&format!("{}/scripts/containership_login.sh", folder.display()));
    let content = keys_file(folder).ok().flatten().unwrap_or_default();
    let logins = format.logins(&format.parse(&content)).into_iter();
    let users = logins.filter(|(_, keys)| keys.iter().any(|key| key.fingerprint == fingerprint));
    let said = users.map(|(user, _)| {
        format!(
            "\nit is a key of the user {user}, too, who can log in with it also when the User is deleted: if that is not \
             meant, run tidewaiter host break-glass remove {fingerprint}"
        )
    });
    said.collect()
}

/// The content of `authorized_keys`; None if there is none.
fn keys_file(folder: &Path) -> Result<Option<Vec<u8>>, HostError> {
    let host = Host::of_root(folder);
    let opened = host.look(&["home", ".ssh"])?;
    let Some(ssh) = opened.as_ref().and_then(Opened::last) else {
        return Ok(None);
    };
    match host.find(ssh, "authorized_keys")? {
        Found::File(file) => Ok(Some(file.content)),
        Found::Absent | Found::Other(_) => Ok(None),
    }
}

fn find(folder: &Path, fingerprint: &str) -> Result<SshKeyLine, BreakGlassError> {
    let not_found = || BreakGlassError::NotFound {
        fingerprint: printable(fingerprint),
        path: format!("{}/home/.ssh/authorized_keys", folder.display()),
    };
    let content = keys_file(folder)?.ok_or_else(not_found)?;
    let lines = content.split(|byte| *byte == b'\n');
    let key = lines
        .filter_map(ForeignKey::of)
        .find(|key| key.fingerprint == fingerprint);
    SshKeyLine::parse(&key.ok_or_else(not_found)?.text).map_err(BreakGlassError::Key)
}

#[cfg(test)]
mod tests;
