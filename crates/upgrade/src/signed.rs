//! Signed scripts of upgrades: the signed text, its place in the script, and its validity. Pure.
//!
//! A signed script is one text: the script, then one block of comment lines for each signature. So whatever carries
//! scripts carries signatures, too, and a host that does not know them runs the same script. Invariants:
//! - A signature counts for one cluster, node, upgrade and version, for one script, and until it expires. With another
//!   key of the same host, it may be one of several: so a key is replaced without a moment in which a host trusts
//!   neither.
//! - The generation of a signature is the time at which it was made, in seconds since 1970. A host that has run a newer
//!   one refuses an older one, of whatever upgrade: so a script that was replaced, because it was wrong, cannot come
//!   back.
//! - A signature may have a beginning. Then it counts for a window, and a script that begins in it is stopped at its
//!   end: so two nodes whose windows do not overlap never run their scripts at once, whatever the cluster says.
//! - The blocks are never run: what runs is [`VerifiedScript::body`].
//! - The error of a refused script names the check.

mod statement;

use jiff::Timestamp;
use tidewaiter_api::NodeName;
use tidewaiter_signature::{SignatureError, TrustedKey, sha256, verify};

use crate::agent::Repeatable;
use crate::version::Version;
pub use statement::Statement;
use statement::{Form, PURPOSES};

/// Before each line of a block.
const COMMENT: &str = "# ";

/// With this line in the comment at its beginning, a script declares that it may run again after it was begun.
pub const REPEATABLE: &str = "# tidewaiter: repeatable";

/// With this line there, it declares that it takes back what it did when it is run with `TIDEWAITER_WAY_BACK=1`.
pub const WAY_BACK: &str = "# tidewaiter: way back";

/// The values that a host expects, and the keys that it trusts.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The keys that are pinned on the host. A key that is not there any more is revoked.
    pub keys: &'a [TrustedKey],
    /// The id of the cluster, as it is pinned on the host.
    pub cluster: &'a str,
    /// The name of its Node.
    pub node: &'a NodeName,
    /// The id of the upgrade.
    pub upgrade: &'a str,
    /// The version to upgrade to.
    pub version: &'a Version,
    /// The newest generation that the host has run; 0 if none.
    pub newest: i64,
    /// The time of the host.
    pub now: Timestamp,
}

/// The reason why a script is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It has no block.
    #[error("the script is not signed: sign it with tidewaiter cloud sign-script")]
    Unsigned,
    /// A block is not whole, or is not in the form in which it was signed.
    #[error("the signature of the script is truncated or malformed: its {0} is missing or wrong")]
    Malformed(&'static str),
    /// The signature does not count.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// It is for something else.
    #[error("the script is signed for the {part} {signed}, and this is {wanted}")]
    Other {
        /// The part that differs.
        part: &'static str,
        /// The value that it is signed for.
        signed: String,
        /// The expected value.
        wanted: String,
    },
    /// The script was changed.
    #[error("the script is not the one that was signed: its SHA-256 is {found}, and {signed} was signed")]
    Digest {
        /// That of the script.
        found: String,
        /// That in the signature.
        signed: String,
    },
    /// It does not count yet.
    #[error("the signature counts from {0} on: the script runs then, if it is still the turn of the node")]
    Early(Timestamp),
    /// It is too old.
    #[error("the signature expired at {0}: sign the script again")]
    Expired(Timestamp),
    /// A newer one was run.
    #[error(
        "the signature is of {signed}, and a script that was signed at {newest} was run on this host: it could be one that was replaced since. Sign it again"
    )]
    Older {
        /// The time when it was signed.
        signed: Timestamp,
        /// The time when the newest one was signed.
        newest: Timestamp,
    },
    /// The clock of the signer is wrong.
    #[error(
        "the signature is of {0}, which is in the future: correct the clock of the machine that signs, and sign again"
    )]
    Future(Timestamp),
}

impl Untrusted {
    /// Returns true if a person has to sign the script again, or to correct what is pinned. Which upgrade the cloud
    /// serves a script for follows from what its cluster reported last, so that for another upgrade may be followed by
    /// the right one. One that is early is in time later.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Other { part: "upgrade", .. } | Self::Early(_))
    }
}

/// A script that may run on this host. Only [`open`] and [`open_unsigned`] make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedScript<'a> {
    body: &'a str,
    statement: Option<Statement>,
}

impl<'a> VerifiedScript<'a> {
    /// The text that runs.
    #[must_use]
    pub fn body(&self) -> &'a str {
        self.body
    }

    /// The time when it was signed; None if the host permits scripts without a signature.
    #[must_use]
    pub fn generation(&self) -> Option<i64> {
        self.statement.as_ref().map(|statement| statement.generation)
    }

    /// The time when a script that should have ended at `until` must have ended: at the end of the window of its
    /// signature, if that is earlier.
    #[must_use]
    pub fn limit(&self, until: Timestamp) -> Timestamp {
        let window = self
            .statement
            .as_ref()
            .filter(|statement| statement.not_before.is_some());
        window.map_or(until, |statement| until.min(statement.end()))
    }

    /// The declaration that it may run again after it was begun.
    #[must_use]
    pub fn repeatable(&self) -> Repeatable {
        if self.declares(REPEATABLE) {
            Repeatable::Yes
        } else {
            Repeatable::No
        }
    }

    /// Returns true if it can take back what it did.
    #[must_use]
    pub fn has_way_back(&self) -> bool {
        self.declares(WAY_BACK)
    }

    /// Reads the comment at its beginning alone: the same line elsewhere declares nothing.
    fn declares(&self, what: &str) -> bool {
        let mut head = self
            .body
            .lines()
            .take_while(|line| line.starts_with('#') || line.is_empty());
        head.any(|line| line == what)
    }
}

fn other(part: &'static str, signed: &str, wanted: &str) -> Untrusted {
    Untrusted::Other {
        part,
        signed: signed.to_owned(),
        wanted: wanted.to_owned(),
    }
}

/// The script without its blocks, and the blocks.
fn split(text: &str) -> (&str, &str) {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let purpose = line.trim_end_matches('\n').strip_prefix(COMMENT);
        if purpose.is_some_and(|purpose| PURPOSES.contains(&purpose)) {
            break;
        }
        at += line.len();
    }
    text.split_at(at)
}

/// The script without its blocks.
#[must_use]
pub fn body(text: &str) -> &str {
    split(text).0
}

/// Returns true if the text has a block.
#[must_use]
pub fn is_signed(text: &str) -> bool {
    !split(text).1.is_empty()
}

/// The digest of the script without its blocks.
#[must_use]
pub fn digest(text: &str) -> String {
    sha256(body(text).as_bytes())
}

/// The statements in the blocks of a text, by whatever key they are signed: for errors that can be corrected before a
/// node refuses the script.
///
/// # Errors
/// When a block is malformed.
pub fn statements(text: &str) -> Result<Vec<Statement>, Untrusted> {
    let blocks = blocks_of(split(text).1);
    let read = |block: &Vec<&str>| {
        let (text, _) = halves(block)?;
        Statement::parse(&text)
    };
    blocks.iter().map(read).collect()
}

/// Returns the script if one of its signatures counts on this host.
///
/// # Errors
/// The check that refused the last signature for this node that a trusted key made; without such a signature, the check
/// that refused another one.
pub fn open<'a>(text: &'a str, expected: &Expected<'_>) -> Result<VerifiedScript<'a>, Untrusted> {
    let (body, blocks) = split(text);
    let this = format!("node {}", expected.node);
    let (ours, others): (Vec<_>, Vec<_>) = blocks_of(blocks).into_iter().partition(|block| block.contains(&&*this));
    let mut refused = Untrusted::Unsigned;
    for block in if ours.is_empty() { others } else { ours } {
        match judge(&block, body, expected) {
            Ok(statement) => {
                let statement = Some(statement);
                return Ok(VerifiedScript { body, statement });
            }
            // A signature of another key is the least specific error.
            Err(Untrusted::Signature(SignatureError::UnknownKey(key))) if refused == Untrusted::Unsigned => {
                refused = SignatureError::UnknownKey(key).into();
            }
            Err(Untrusted::Signature(SignatureError::UnknownKey(_))) => {}
            // It is in time later, whatever the others are.
            Err(_) if matches!(refused, Untrusted::Early(_)) => {}
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// The lines of each block, without the mark of a comment. A line without it is empty here, so no signature counts.
fn blocks_of(blocks: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = blocks
        .lines()
        .map(|line| line.strip_prefix(COMMENT).unwrap_or_default())
        .collect();
    let mut rest = lines.as_slice();
    let mut blocks = Vec::new();
    while let Some(first) = rest.first() {
        let (block, others) = rest.split_at(Form::of(first).lines().min(rest.len()));
        blocks.push(block.to_vec());
        rest = others;
    }
    blocks
}

/// The text of a statement, and its signature.
fn halves(block: &[&str]) -> Result<(String, String), Untrusted> {
    let form = Form::of(block.first().unwrap_or(&""));
    if block.len() < form.lines() {
        return Err(Untrusted::Malformed("end"));
    }
    let (text, signature) = block.split_at(1 + form.parts().count());
    Ok((format!("{}\n", text.join("\n")), signature.join("\n")))
}

/// The signature is checked before anything that it signs is believed.
fn judge(block: &[&str], body: &str, expected: &Expected<'_>) -> Result<Statement, Untrusted> {
    let (text, signature) = halves(block)?;
    verify(expected.keys, &text, &signature)?;
    let statement = Statement::parse(&text)?;
    statement.check(body, expected)?;
    Ok(statement)
}

/// The script of a host that permits scripts without a signature. Its blocks, if it has some, do not count.
#[must_use]
pub fn open_unsigned(text: &str) -> VerifiedScript<'_> {
    VerifiedScript {
        body: body(text),
        statement: None,
    }
}

#[cfg(test)]
mod tests;
