//! The file `authorized_keys`: which of its lines are ours, and what it should contain. Pure.
//!
//! - Our block is first: sshd uses the first line with a key, so no line of others lets a user log in past our command.
//! - Ours are the lines between our two markers, and every line that begins with our command, wherever it is: so lines
//!   of the Go agent, which wrote no markers, are taken over, and no line of a removed user is left.
//! - The pinned break-glass keys are in our block, behind those of users.
//! - Outside the block, a line with a key of the block or of a known user never stays.
//! - All other lines are foreign. Those that stay are kept byte for byte, in their order.
//! - A marker without its counterpart marks nothing.
//! - Of a file that has more than `MAX_OTHERS` or `MAX_OURS`, no foreign line is read: all of them go. So anyone who
//!   writes the file does not decide how much memory and time it takes.

mod foreign;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use tidewaiter_api::values::{EndTime, SshKeyLine};
use uuid::Uuid;

pub use foreign::{ForeignKey, Kept, added_keys, line_digest, named};

/// The argument of our command in the line of a break-glass key begins with it; the fingerprint follows.
const BREAK_GLASS: &str = "break-glass:";

/// The foreign lines that are read.
const MAX_OTHERS: Size = Size {
    lines: 1_000,
    bytes: 1024 * 1024,
};

/// The lines of ours that are read: more than an agent writes, whose keys take 4 MiB at most.
const MAX_OURS: Size = Size {
    lines: 65_536,
    bytes: 6 * 1024 * 1024,
};

const BEGIN: &str = "# BEGIN tidewaiter";
const BEGIN_LINE: &str = "# BEGIN tidewaiter: changes to the lines up to END are undone (docs/agent.md)\n";
const END: &str = "# END tidewaiter";
const END_LINE: &str = "# END tidewaiter\n";

/// A key that lets a user log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginKey {
    /// The type and the data, as in the file.
    pub data: String,
    /// The SHA-256 fingerprint.
    pub fingerprint: String,
    /// The end of the key or of its user, whichever is first. The file does not have it.
    pub end: Option<EndTime>,
}

impl LoginKey {
    /// Returns true if the key does not count any more at `now`.
    #[must_use]
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.end.is_some_and(|end| end.has_passed(now))
    }
}

impl From<&SshKeyLine> for LoginKey {
    fn from(key: &SshKeyLine) -> Self {
        Self {
            data: key.without_comment().to_owned(),
            fingerprint: key.fingerprint().to_owned(),
            end: None,
        }
    }
}

/// The users that may log in, by id, with their keys.
pub type Logins = BTreeMap<Uuid, Vec<LoginKey>>;

/// The treatment of lines that are not ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ForeignLines {
    /// They are removed, after a grace for those that the first look finds.
    #[default]
    Remove,
    /// They stay, except keys of known users.
    Keep,
}

/// The desired content of the file. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// The users that may log in.
    pub logins: Arc<Logins>,
    /// The users that the agent knows, whose keys stay nowhere else in the file. Some of them may not log in now.
    pub known: Arc<Logins>,
    /// The pinned break-glass keys.
    pub pinned: Arc<Vec<LoginKey>>,
    /// The foreign lines that stay.
    pub kept: Arc<Kept>,
}

impl Desired {
    /// Returns true if both are the same in memory.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.logins, &other.logins)
            && Arc::ptr_eq(&self.known, &other.known)
            && Arc::ptr_eq(&self.pinned, &other.pinned)
            && Arc::ptr_eq(&self.kept, &other.kept)
    }
}

/// The form of our lines.
#[derive(Clone, Debug)]
pub struct Format {
    /// Every line of ours begins with it: `command="/etc/containership/scripts/containership_login.sh `.
    command: String,
}

/// The size of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Their number.
    pub lines: usize,
    /// Their bytes, with the newline that the last one may lack.
    pub bytes: usize,
}

impl Size {
    fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        self.bytes += line.len() + usize::from(!line.ends_with(b"\n"));
    }

    fn fits(self, most: Self) -> bool {
        self.lines <= most.lines && self.bytes <= most.bytes
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines with {} bytes", self.lines, self.bytes)
    }
}

/// A file, taken apart. Each line has its newline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Our lines, without the markers.
    pub ours: Vec<Vec<u8>>,
    /// The lines that are not ours.
    pub others: Vec<Vec<u8>>,
    /// The size of lines that are too many to be read: then `others` has none.
    pub excess: Option<Size>,
}

impl Format {
    /// `script` is the path of the login script on the host.
    #[must_use]
    pub fn new(script: &str) -> Self {
        Self {
            command: format!("command=\"{script} "),
        }
    }

    fn push(&self, content: &mut Vec<u8>, user: Uuid, key: &LoginKey) {
        let mut id = Uuid::encode_buffer();
        let id = user.simple().encode_lower(&mut id);
        for part in [&self.command, &*id, "\" ", &key.data, "\n"] {
            content.extend_from_slice(part.as_bytes());
        }
    }

    fn push_break_glass(&self, content: &mut Vec<u8>, key: &LoginKey) {
        for part in [&self.command, BREAK_GLASS, &key.fingerprint, "\" ", &key.data, "\n"] {
            content.extend_from_slice(part.as_bytes());
        }
    }

    /// Takes a file apart.
    #[must_use]
    pub fn parse(&self, content: &[u8]) -> Parts {
        let mut lines = content.split_inclusive(|byte| *byte == b'\n');
        let mut parts = Parts::default();
        let (mut ours, mut others) = (Size::default(), Size::default());
        let mut is_within = false;
        while let Some(line) = lines.next() {
            if let Some(marker) = Marker::of(line) {
                is_within = marker == Marker::Begin && lines.clone().find_map(Marker::of) == Some(Marker::End);
                continue;
            }
            let (read, size, most) = if is_within || self.is_command(line) {
                (&mut parts.ours, &mut ours, MAX_OURS)
            } else {
                (&mut parts.others, &mut others, MAX_OTHERS)
            };
            size.add(line);
            if size.fits(most) {
                read.push(line.to_vec());
            }
        }
        if !ours.fits(MAX_OURS) {
            parts = Parts {
                excess: Some(ours),
                ..Parts::default()
            };
        } else if !others.fits(MAX_OTHERS) {
            parts.others = Vec::new();
            parts.excess = Some(others);
        }
        parts
    }

    fn is_command(&self, line: &[u8]) -> bool {
        line.trim_ascii_start().starts_with(self.command.as_bytes())
    }

    /// The file with our block in place of the lines that are ours, and the foreign lines that stay.
    #[must_use]
    pub fn render(&self, parts: &Parts, desired: &Desired) -> Vec<u8> {
        let mut content = Vec::new();
        if !desired.logins.is_empty() || !desired.pinned.is_empty() {
            content.extend_from_slice(BEGIN_LINE.as_bytes());
            self.push_logins(&mut content, &desired.logins);
            for key in desired.pinned.iter() {
                self.push_break_glass(&mut content, key);
            }
            content.extend_from_slice(END_LINE.as_bytes());
        }
        for line in parts.kept(desired) {
            push_line(&mut content, line);
        }
        content
    }

    fn push_logins(&self, content: &mut Vec<u8>, logins: &Logins) {
        for (user, keys) in logins {
            for key in keys {
                self.push(content, *user, key);
            }
        }
    }

    /// The users that can log in by our lines of a file. A line that is not exactly as we write it counts for nobody.
    #[must_use]
    pub fn logins(&self, parts: &Parts) -> Logins {
        let mut logins = Logins::new();
        for line in &parts.ours {
            if let Some((user, key)) = self.read_line(line) {
                logins.entry(user).or_default().push(key);
            }
        }
        logins
    }

    /// Returns true if `content` has one block, and our lines, but those of break-glass keys, are exactly what an agent
    /// writes for `logins`.
    #[must_use]
    pub fn is_intact(&self, content: &[u8], parts: &Parts, logins: &Logins) -> bool {
        let block = [BEGIN_LINE.as_bytes(), &parts.ours.concat(), END_LINE.as_bytes()].concat();
        let break_glass = format!("{}{BREAK_GLASS}", self.command);
        let users = parts
            .ours
            .iter()
            .filter(|line| !line.starts_with(break_glass.as_bytes()));
        let mut expected = Vec::new();
        self.push_logins(&mut expected, logins);
        users.flatten().eq(&expected) && content.windows(block.len()).any(|part| part == block)
    }

    fn read_line(&self, line: &[u8]) -> Option<(Uuid, LoginKey)> {
        let text = str::from_utf8(line).ok()?;
        let (id, data) = text.strip_prefix(&self.command)?.split_once("\" ")?;
        let user = Uuid::try_parse(id).ok()?;
        let key = LoginKey::from(&SshKeyLine::parse(data.trim_end_matches('\n')).ok()?);
        let mut written = Vec::new();
        self.push(&mut written, user, &key);
        (written == line).then_some((user, key))
    }
}

/// The first or the last line of ours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marker {
    Begin,
    End,
}

impl Marker {
    fn of(line: &[u8]) -> Option<Self> {
        if line.starts_with(BEGIN.as_bytes()) {
            Some(Self::Begin)
        } else {
            line.starts_with(END.as_bytes()).then_some(Self::End)
        }
    }
}

/// The last line of a file may have no newline.
fn push_line(content: &mut Vec<u8>, line: &[u8]) {
    if content.last().is_some_and(|byte| *byte != b'\n') {
        content.push(b'\n');
    }
    content.extend_from_slice(line);
}

#[cfg(test)]
mod tests;
