//! Lines that are not ours: which of them stay, and whose keys they have.
//!
//! A line is read as sshd reads it, so that no spelling hides a key: options may have quoted spaces, a line ends at a
//! NUL, white space within the base64 text of a key does not count (`sshkey_read`, `__b64_pton` of OpenSSH), and
//! neither do zeros before the numbers of an RSA key (`sshbuf_get_bignum2`).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ssh_encoding::{Decode as _, Encode as _};
use ssh_key::Mpint;

use tidewaiter_api::values::{fingerprint, printable};
use tidewaiter_signature::sha256;

use super::{Desired, LoginKey, MAX_OTHERS, Parts, Size};

/// The characters of a comment that are reported.
const MAX_COMMENT_CHARS: usize = 64;

/// The mark of operators before break-glass keys were pinned.
const MARK: &str = "# break-glass";

/// The foreign lines that stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All.
    All,
    /// Lines with these digests ([`line_digest`]).
    Of(BTreeSet<String>),
}

impl Default for Kept {
    fn default() -> Self {
        Self::Of(BTreeSet::new())
    }
}

impl Kept {
    /// Returns true if no foreign line stays.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Of(lines) if lines.is_empty())
    }

    fn has(&self, line: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Of(lines) => !lines.is_empty() && lines.contains(&line_digest(line)),
        }
    }
}

/// The digest of a line without white space at its end.
#[must_use]
pub fn line_digest(line: &[u8]) -> String {
    sha256(line.trim_ascii_end())
}

/// A key in a foreign line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    /// The type, the key in base64, and the comment.
    pub text: String,
    /// The SHA-256 fingerprint, as `ssh-keygen -l` shows it.
    pub fingerprint: String,
    /// The comment, printable and cut.
    pub comment: String,
    /// True if the comment marks it as a break-glass key.
    pub is_marked: bool,
}

impl ForeignKey {
    /// The key of a line. None if there is none that can be read.
    #[must_use]
    pub fn of(line: &[u8]) -> Option<Self> {
        let line = String::from_utf8_lossy(until_nul(line));
        let line = line.trim();
        Self::read(line).or_else(|| Self::read(after_options(line)))
    }

    /// Reads `TYPE BASE64 COMMENT`.
    fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once([' ', '\t'])?;
        let rest = rest.trim_start_matches([' ', '\t']);
        let (data, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        let data: String = data.chars().filter(|c| !u8::try_from(*c).is_ok_and(is_space)).collect();
        let data = String::from_utf8_lossy(&canonical(data.as_bytes())).into_owned();
        let (key, comment) = (format!("{kind} {data}"), comment.trim());
        Some(Self {
            fingerprint: fingerprint(&key)?,
            text: format!("{key} {comment}"),
            comment: printable(comment).chars().take(MAX_COMMENT_CHARS).collect(),
            is_marked: comment.contains(MARK),
        })
    }
}

/// The maximum number of keys in a message.
const MAX_KEYS: usize = 4;

/// The keys in `lines` that are not in `written`.
pub fn added_keys<'a>(lines: impl Iterator<Item = &'a [u8]>, written: &'a [u8]) -> impl Iterator<Item = ForeignKey> {
    let known = written.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let known: HashSet<&[u8]> = known.collect();
    let added = lines.filter(move |line| !known.contains(line.trim_ascii_end()));
    added.filter_map(ForeignKey::of)
}

/// The end of a message: fingerprints and comments of the first of these keys, without duplicates. Empty without keys.
#[must_use]
pub fn named(keys: impl Iterator<Item = ForeignKey>) -> String {
    let mut seen = HashSet::new();
    let keys = keys.filter(|key| seen.insert(key.fingerprint.clone()));
    let mut names = keys.map(|key| format!("{} {}", key.fingerprint, key.comment).trim_end().to_owned());
    let first: Vec<String> = names.by_ref().take(MAX_KEYS).collect();
    match (first.is_empty(), names.count()) {
        (true, _) => String::new(),
        (false, 0) => format!(", with the keys {}", first.join(", ")),
        (false, more) => format!(", with the keys {}, and {more} more", first.join(", ")),
    }
}

impl Parts {
    /// Our lines and the others.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.ours.iter().chain(&self.others).map(Vec::as_slice)
    }

    /// The foreign lines that stay.
    pub(super) fn kept<'a>(&'a self, desired: &'a Desired) -> impl Iterator<Item = &'a Vec<u8>> {
        let known = self.known(desired);
        let others = self.others.iter();
        others.filter(move |line| !has_key(line, &known) && desired.kept.has(line))
    }

    /// The digests of the lines that would stay if every foreign line did.
    #[must_use]
    pub fn digests(&self, desired: &Desired) -> BTreeSet<String> {
        let known = self.known(desired);
        let foreign = self.others.iter().filter(|line| !has_key(line, &known));
        foreign.map(|line| line_digest(line)).collect()
    }

    /// The excess, in words.
    #[must_use]
    pub fn excess(&self) -> Option<String> {
        let size = self.excess?;
        Some(format!(
            "has {size} that are not the agent's, more than {MAX_OTHERS}: all of them are removed"
        ))
    }

    /// Adds the lines of others of a later version that are missing, as far as they may stay. The last line was perhaps
    /// read before it was written to its end.
    pub fn merge(&mut self, later: &Self) {
        if let Some(last) = self.others.last()
            && !last.ends_with(b"\n")
            && later.others.iter().any(|line| line.starts_with(last))
        {
            self.others.pop();
        }
        let mut size = Size::default();
        self.others.iter().for_each(|line| size.add(line));
        for line in &later.others {
            let mut known = self.others.iter();
            if !known.any(|known| known.trim_ascii_end() == line.trim_ascii_end()) {
                size.add(line);
                if !size.fits(MAX_OTHERS) {
                    break;
                }
                self.others.push(line.clone());
            }
        }
    }

    /// The lines of others that may let somebody log in.
    pub fn foreign(&self) -> impl Iterator<Item = &[u8]> {
        let others = self.others.iter().map(|line| line.trim_ascii());
        others.filter(|line| !line.is_empty() && !line.starts_with(b"#"))
    }

    /// The base64 texts of the keys of known users, of pinned keys, and of those in our lines, which may be of a user
    /// who is removed now. Most files have no line of others: then nothing is collected.
    fn known<'a>(&'a self, desired: &'a Desired) -> HashSet<Cow<'a, [u8]>> {
        if self.others.is_empty() {
            return HashSet::new();
        }
        let users = [&desired.logins, &desired.known];
        let keys = users.into_iter().flat_map(|users| users.values().flatten());
        let keys = keys.chain(desired.pinned.iter()).map(base64);
        let ours = self
            .ours
            .iter()
            .filter_map(|line| line.trim_ascii_end().rsplit(|byte| *byte == b' ').next());
        keys.map(Cow::Borrowed).chain(ours.map(canonical)).collect()
    }
}

fn base64(key: &LoginKey) -> &[u8] {
    key.data.split(' ').nth(1).unwrap_or_default().as_bytes()
}

fn has_key(line: &[u8], known: &HashSet<Cow<'_, [u8]>>) -> bool {
    let words = until_nul(line).split(|byte| matches!(byte, b' ' | b'\t'));
    !known.is_empty()
        && words.filter(|word| !word.is_empty()).any(|word| {
            let text: Vec<u8> = word.iter().filter(|byte| !is_space(**byte)).copied().collect();
            known.contains(canonical(&text).as_ref())
        })
}

/// The base64 text of an RSA key begins with it.
const RSA: &[u8] = b"AAAAB3NzaC1yc2E";

/// The base64 text of a key as ssh-keygen writes it. Of the types that sshd knows, only the numbers of an RSA key have
/// other spellings: sshd accepts zeros before them, which give the key another text and another fingerprint.
fn canonical(text: &[u8]) -> Cow<'_, [u8]> {
    let rsa = || {
        let blob = STANDARD.decode(text.starts_with(RSA).then_some(text)?).ok()?;
        let mut rest = &blob[..];
        let kind = String::decode(&mut rest).ok()?;
        let mut number = || Mpint::from_positive_bytes(&Vec::decode(&mut rest).ok()?).ok();
        let (exponent, modulus) = (number()?, number()?);
        let mut key = Vec::with_capacity(blob.len());
        kind.encode(&mut key).ok()?;
        exponent.encode(&mut key).ok()?;
        modulus.encode(&mut key).ok()?;
        rest.is_empty().then(|| STANDARD.encode(key))
    };
    rsa().map_or(Cow::Borrowed(text), |text| Cow::Owned(text.into_bytes()))
}

/// Returns true for the characters of C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn until_nul(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The rest of a line behind its options: the first space that is not in quotes ends them. A quote behind a backslash
/// is none.
fn after_options(line: &str) -> &str {
    let (mut is_quoted, mut before) = (false, ' ');
    let end = line.find(|c: char| {
        if c == '"' && before != '\\' {
            is_quoted = !is_quoted;
        }
        before = c;
        !is_quoted && matches!(c, ' ' | '\t')
    });
    end.map_or("", |end| line[end..].trim_start_matches([' ', '\t']))
}

#[cfg(test)]
mod tests;
