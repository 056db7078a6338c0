//! The file `authorized_keys`: which of its lines are ours, and what it should contain. Pure.
//!
//! - Ours are the lines between our two markers, and every line that begins with our command, wherever it is: so lines of the Go agent,
//!   which wrote no markers, are taken over, and no line of a removed user is left.
//! - A line with `# break-glass` is never ours. Our own lines have no comment, so no user's key can be such a line.
//! - All other lines are kept byte for byte, in their order.
//! - A marker without its counterpart marks nothing.

use std::collections::BTreeMap;

use memchr::memmem;
use tidewaiter_api::values::SshKeyLine;
use uuid::Uuid;

/// Marks a line that nothing removes.
pub const BREAK_GLASS: &str = "# break-glass";

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
}

impl From<&SshKeyLine> for LoginKey {
    fn from(key: &SshKeyLine) -> Self {
        Self {
            data: key.without_comment().to_owned(),
            fingerprint: key.fingerprint().to_owned(),
        }
    }
}

/// The users that may log in, by id, with their keys.
pub type Logins = BTreeMap<Uuid, Vec<LoginKey>>;

/// What becomes of lines that are neither ours nor marked as break-glass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ForeignLines {
    /// They stay.
    #[default]
    Keep,
    /// They are removed, as the Go agent did.
    Remove,
}

/// The form of our lines.
#[derive(Clone, Debug)]
pub struct Format {
    /// Every line of ours begins with it: `command="/etc/containership/scripts/containership_login.sh `.
    command: String,
}

/// A file, taken apart. Each line has its newline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The lines that are not ours, before the first of ours.
    before: Vec<Vec<u8>>,
    /// The others that are not ours.
    after: Vec<Vec<u8>>,
    /// Our lines, without the markers.
    pub ours: Vec<Vec<u8>>,
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

    /// Takes a file apart.
    #[must_use]
    pub fn parse(&self, content: &[u8]) -> Parts {
        let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
        let mut parts = Parts::default();
        let mut has_ours = false;
        let mut is_within = false;
        for (index, line) in lines.iter().enumerate() {
            if let Some(marker) = Marker::of(line) {
                let mut later = lines.iter().skip(index + 1).filter_map(|line| Marker::of(line));
                is_within = marker == Marker::Begin && later.next() == Some(Marker::End);
                has_ours = true;
            } else if !is_break_glass(line) && (is_within || self.is_command(line)) {
                parts.ours.push(line.to_vec());
                has_ours = true;
            } else if has_ours {
                parts.after.push(line.to_vec());
            } else {
                parts.before.push(line.to_vec());
            }
        }
        parts
    }

    fn is_command(&self, line: &[u8]) -> bool {
        line.trim_ascii_start().starts_with(self.command.as_bytes())
    }

    /// The file with our lines for `logins` in place of those that it has.
    #[must_use]
    pub fn render(&self, parts: &Parts, logins: &Logins, foreign: ForeignLines) -> Vec<u8> {
        let keys = logins
            .iter()
            .flat_map(|(user, keys)| keys.iter().map(|key| (*user, key)));
        let kept = |line: &&Vec<u8>| foreign == ForeignLines::Keep || is_break_glass(line);
        let mut content = Vec::new();
        for line in parts.before.iter().filter(kept) {
            push_line(&mut content, line);
        }
        let mut keys = keys.peekable();
        if keys.peek().is_some() {
            push_line(&mut content, BEGIN_LINE.as_bytes());
            for (user, key) in keys {
                self.push(&mut content, user, key);
            }
            content.extend_from_slice(END_LINE.as_bytes());
        }
        for line in parts.after.iter().filter(kept) {
            push_line(&mut content, line);
        }
        content
    }

    /// Who could log in by our lines of a file. A line that is not exactly as we write it counts for nobody.
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

impl Parts {
    /// The lines that are not ours and not marked as break-glass.
    pub fn foreign(&self) -> impl Iterator<Item = &[u8]> {
        self.others()
            .filter(|line| !is_break_glass(line) && !line.trim_ascii().is_empty())
    }

    /// The lines that are marked as break-glass.
    pub fn break_glass(&self) -> impl Iterator<Item = &[u8]> {
        self.others().filter(|line| is_break_glass(line))
    }

    fn others(&self) -> impl Iterator<Item = &[u8]> {
        self.before.iter().chain(&self.after).map(Vec::as_slice)
    }

    /// Adds the break-glass lines of `earlier` that are missing: the change that damaged our lines removed them as well. Returns whether
    /// there were any.
    pub fn restore_break_glass(&mut self, earlier: &[Vec<u8>]) -> bool {
        let missing: Vec<_> = earlier
            .iter()
            .filter(|line| !self.break_glass().any(|found| found == line.as_slice()))
            .cloned()
            .collect();
        let is_damaged = !missing.is_empty();
        self.after.extend(missing);
        is_damaged
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

fn is_break_glass(line: &[u8]) -> bool {
    memmem::find(line, BREAK_GLASS.as_bytes()).is_some()
}

/// The fingerprint of the key in a line of somebody else, which may have options before it. None if there is no key that we can read.
#[must_use]
pub fn fingerprint(line: &[u8]) -> Option<String> {
    let text = str::from_utf8(line).ok()?;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    words.windows(2).find_map(|pair| {
        let key = SshKeyLine::parse(&pair.join(" ")).ok()?;
        Some(key.fingerprint().to_owned())
    })
}

#[cfg(test)]
mod tests;
