//! Signed scripts of upgrades: which text is signed, how it travels with the script, and when it counts. Pure.
//!
//! A signed script is one text: the script, then one block of comment lines for each signature. So whatever carries scripts carries signatures, too, and
//! a host that does not know them runs the same script. Invariants:
//! - A signature counts for one cluster, node, upgrade and version, for one script, and until it expires. With another key of the same host, it may be one
//!   of several: so a key is replaced without a moment in which a host trusts neither.
//! - The generation of a signature is the time at which it was made, in seconds since 1970. A host that has run a newer one refuses an older one, of whatever upgrade: so
//!   a script that was replaced, because it was wrong, cannot come back.
//! - The blocks are never run: what runs is [`VerifiedScript::body`].
//! - Refused, a script says which check refused it.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::NodeName;
use tidewaiter_signature::{SignatureError, SigningKey, TrustedKey, sha256, statement, verify};

use crate::agent::Repeatable;
use crate::version::Version;

/// The first line of each signed text: no signature for another purpose counts.
const PURPOSE: &str = "tidewaiter upgrade script 1";

/// Before each line of a block.
const COMMENT: &str = "# ";

/// The names of the parts, in the order of the text.
const PARTS: [&str; 8] = [
    "cluster",
    "node",
    "upgrade",
    "generation",
    "type",
    "version",
    "sha256",
    "expires",
];

/// A block: the purpose, the parts, and the four lines of the signature.
const BLOCK: usize = 1 + PARTS.len() + 4;

/// The only type of upgrades that is supported.
const TYPE: &str = "kubernetes";

/// How far the clock of whoever signs may be ahead.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// With this line in the comment at its beginning, a script declares that it may run again after it was begun.
pub const REPEATABLE: &str = "# tidewaiter: repeatable";

/// With this line there, it declares that it takes back what it did when it is run with `TIDEWAITER_WAY_BACK=1`.
pub const WAY_BACK: &str = "# tidewaiter: way back";

/// What is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The id of the cluster.
    pub cluster: String,
    /// The name of the Node.
    pub node: NodeName,
    /// The id of the upgrade.
    pub upgrade: String,
    /// When it was signed, in seconds since 1970.
    pub generation: i64,
    /// The version to upgrade to.
    pub version: Version,
    /// The digest of the script ([`digest`]).
    pub sha256: String,
    /// From when on it does not count.
    pub expires: Timestamp,
}

/// What a host expects, and what it trusts.
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

/// Why a script is not run.
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
        /// What it is signed for.
        signed: String,
        /// What is expected.
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
    /// It is too old.
    #[error("the signature expired at {0}: sign the script again")]
    Expired(Timestamp),
    /// A newer one was run.
    #[error(
        "the signature is of {signed}, and a script that was signed at {newest} was run on this host: it could be one that was replaced since. Sign it again"
    )]
    Older {
        /// When it was signed.
        signed: Timestamp,
        /// When the newest one was signed.
        newest: Timestamp,
    },
    /// The clock of whoever signs is wrong.
    #[error(
        "the signature is of {0}, which is in the future: correct the clock of the machine that signs, and sign again"
    )]
    Future(Timestamp),
}

impl Untrusted {
    /// Whether a person has to sign the script again, or to correct what is pinned. Which upgrade the cloud serves a
    /// script for follows from what its cluster reported last, so that for another upgrade may be followed by the right
    /// one.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Other { part: "upgrade", .. })
    }
}

/// A script that may run on this host. Only [`open`] and [`open_unsigned`] make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedScript<'a> {
    body: &'a str,
    statement: Option<Statement>,
}

impl<'a> VerifiedScript<'a> {
    /// What runs.
    #[must_use]
    pub fn body(&self) -> &'a str {
        self.body
    }

    /// When it was signed; None if the host permits scripts without a signature.
    #[must_use]
    pub fn generation(&self) -> Option<i64> {
        self.statement.as_ref().map(|statement| statement.generation)
    }

    /// Whether it may run again after it was begun.
    #[must_use]
    pub fn repeatable(&self) -> Repeatable {
        if self.declares(REPEATABLE) {
            Repeatable::Yes
        } else {
            Repeatable::No
        }
    }

    /// Whether it can take back what it did.
    #[must_use]
    pub fn has_way_back(&self) -> bool {
        self.declares(WAY_BACK)
    }

    /// In the comment at its beginning: what a script writes elsewhere declares nothing.
    fn declares(&self, what: &str) -> bool {
        let mut head = self
            .body
            .lines()
            .take_while(|line| line.starts_with('#') || line.is_empty());
        head.any(|line| line == what)
    }
}

impl Statement {
    /// The text that is signed.
    ///
    /// # Errors
    /// When a part is empty, or is not printable ASCII without spaces.
    pub fn text(&self) -> Result<String, SignatureError> {
        let values = [
            self.cluster.as_str(),
            self.node.as_str(),
            &self.upgrade,
            &self.generation.to_string(),
            TYPE,
            &self.version.to_string(),
            &self.sha256,
            &self.expires.to_string(),
        ];
        let parts: Vec<(&'static str, &str)> = PARTS.into_iter().zip(values).collect();
        statement(PURPOSE, &parts)
    }

    /// The block that is appended to the script.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn block(&self, key: &SigningKey) -> Result<String, SignatureError> {
        let text = self.text()?;
        let name = format!("upgrade-{}-{}", self.upgrade, self.node);
        let signature = key.sign(&text, &name, self.generation)?;
        let mut block = String::new();
        for line in text.lines().chain(signature.lines()) {
            // A String takes everything.
            let _ = writeln!(block, "{COMMENT}{line}");
        }
        Ok(block)
    }

    /// Reads the text of a statement; it must be exactly what [`text`](Self::text) writes.
    fn parse(text: &str) -> Result<Self, Untrusted> {
        let mut lines = text.lines();
        if lines.next() != Some(PURPOSE) {
            return Err(Untrusted::Malformed("first line"));
        }
        let mut values = [""; PARTS.len()];
        for (name, value) in PARTS.into_iter().zip(&mut values) {
            let rest = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            *value = rest.ok_or(Untrusted::Malformed(name))?;
        }
        let [cluster, node, upgrade, generation, type_, version, sha256, expires] = values;
        if type_ != TYPE {
            return Err(other("type", type_, TYPE));
        }
        let parsed = Self {
            cluster: cluster.to_owned(),
            node: node.parse().map_err(|_| Untrusted::Malformed("node"))?,
            upgrade: upgrade.to_owned(),
            generation: generation.parse().map_err(|_| Untrusted::Malformed("generation"))?,
            version: version.parse().map_err(|_| Untrusted::Malformed("version"))?,
            sha256: sha256.to_owned(),
            expires: expires.parse().map_err(|_| Untrusted::Malformed("expires"))?,
        };
        if parsed.text()? == text {
            Ok(parsed)
        } else {
            Err(Untrusted::Malformed("text"))
        }
    }

    /// Whether this statement, whose signature counts, is for the script and for what the host expects.
    fn check(&self, body: &str, expected: &Expected<'_>) -> Result<(), Untrusted> {
        for (part, signed, wanted) in [
            ("cluster", self.cluster.as_str(), expected.cluster),
            ("node", self.node.as_str(), expected.node.as_str()),
            ("upgrade", &self.upgrade, expected.upgrade),
            ("version", &self.version.to_string(), &expected.version.to_string()),
        ] {
            if signed != wanted {
                return Err(other(part, signed, wanted));
            }
        }
        let found = sha256(body.as_bytes());
        if found != self.sha256 {
            let signed = self.sha256.clone();
            return Err(Untrusted::Digest { found, signed });
        }
        if expected.now >= self.expires {
            return Err(Untrusted::Expired(self.expires));
        }
        let of = |seconds| Timestamp::from_second(seconds).map_err(|_| Untrusted::Malformed("generation"));
        let signed = of(self.generation)?;
        if signed > expected.now + AHEAD {
            return Err(Untrusted::Future(signed));
        }
        if self.generation < expected.newest {
            let newest = of(expected.newest)?;
            return Err(Untrusted::Older { signed, newest });
        }
        Ok(())
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
        if purpose == Some(PURPOSE) {
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

/// Whether the text has a block.
#[must_use]
pub fn is_signed(text: &str) -> bool {
    !split(text).1.is_empty()
}

/// The digest of the script without its blocks.
#[must_use]
pub fn digest(text: &str) -> String {
    sha256(body(text).as_bytes())
}

/// What the blocks of a text say, whoever signed them: for errors that can be corrected before a node refuses the
/// script.
///
/// # Errors
/// When a block is malformed.
pub fn statements(text: &str) -> Result<Vec<Statement>, Untrusted> {
    let blocks = blocks_of(split(text).1);
    let read = |block: &Vec<&str>| {
        if block.len() < BLOCK {
            return Err(Untrusted::Malformed("end"));
        }
        let (text, _) = block.split_at(1 + PARTS.len());
        Statement::parse(&format!("{}\n", text.join("\n")))
    };
    blocks.iter().map(read).collect()
}

/// Returns the script if one of its signatures counts on this host.
///
/// # Errors
/// Which check refused the last signature for this node that a trusted key made; if there is none, another one.
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
            // What another key signed says the least.
            Err(Untrusted::Signature(SignatureError::UnknownKey(key))) if refused == Untrusted::Unsigned => {
                refused = SignatureError::UnknownKey(key).into();
            }
            Err(Untrusted::Signature(SignatureError::UnknownKey(_))) => {}
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
    lines.chunks(BLOCK).map(<[&str]>::to_vec).collect()
}

/// The signature is checked before anything that it signs is believed.
fn judge(block: &[&str], body: &str, expected: &Expected<'_>) -> Result<Statement, Untrusted> {
    if block.len() < BLOCK {
        return Err(Untrusted::Malformed("end"));
    }
    let (text, signature) = block.split_at(1 + PARTS.len());
    let text = format!("{}\n", text.join("\n"));
    verify(expected.keys, &text, &signature.join("\n"))?;
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
