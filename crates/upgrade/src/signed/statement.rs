//! The signed statement, as a text: one value in each line, in one of two forms.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::NodeName;
use tidewaiter_signature::{SignatureError, SigningKey, sha256, statement};

use super::{COMMENT, Expected, Untrusted, other};
use crate::agent::CLOCK_ERROR;
use crate::version::Version;

/// The first line of each signed text, by form: no signature for another purpose counts.
pub(super) const PURPOSES: [&str; 2] = ["tidewaiter upgrade script 1", "tidewaiter upgrade script 2"];

/// The names of the parts before the times, in the order of the text.
const COMMON: [&str; 7] = ["cluster", "node", "upgrade", "generation", "type", "version", "sha256"];

const NOT_BEFORE: &str = "notbefore";
const EXPIRES: &str = "expires";

/// The only type of upgrades that is supported.
const TYPE: &str = "kubernetes";

/// The maximum time by which the signer's clock may be ahead.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// The form of a text. A host that does not know the second one takes the script for one without a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// With a time at which it expires.
    Expiry,
    /// With a beginning, too.
    Window,
}

impl Form {
    /// The form of a text with this first line; the first form if the line is malformed.
    pub(super) fn of(first: &str) -> Self {
        if first == Self::Window.purpose() {
            Self::Window
        } else {
            Self::Expiry
        }
    }

    fn purpose(self) -> &'static str {
        PURPOSES[self as usize]
    }

    /// The names of the parts, in the order of the text.
    pub(super) fn parts(self) -> impl Iterator<Item = &'static str> {
        let begin = (self == Self::Window).then_some(NOT_BEFORE);
        COMMON.into_iter().chain(begin).chain([EXPIRES])
    }

    /// The lines of a block: the purpose, the parts, and the four lines of the signature.
    pub(super) fn lines(self) -> usize {
        1 + self.parts().count() + 4
    }
}

/// The signed statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The id of the cluster.
    pub cluster: String,
    /// The name of the Node.
    pub node: NodeName,
    /// The id of the upgrade.
    pub upgrade: String,
    /// The time when it was signed, in seconds since 1970.
    pub generation: i64,
    /// The version to upgrade to.
    pub version: Version,
    /// The digest of the script ([`digest`](super::digest)).
    pub sha256: String,
    /// From when on it counts; None if from the beginning. With it, the script must have ended before it expires.
    pub not_before: Option<Timestamp>,
    /// From when on it does not count.
    pub expires: Timestamp,
}

impl Statement {
    /// The text that is signed.
    ///
    /// # Errors
    /// When a part is empty, or is not printable ASCII without spaces.
    pub fn text(&self) -> Result<String, SignatureError> {
        let (generation, version) = (self.generation.to_string(), self.version.to_string());
        let (not_before, expires) = (self.not_before.map(|time| time.to_string()), self.expires.to_string());
        let mut values = vec![
            self.cluster.as_str(),
            self.node.as_str(),
            &self.upgrade,
            &generation,
            TYPE,
            &version,
            &self.sha256,
        ];
        values.extend(not_before.as_deref());
        values.push(&expires);
        let form = if not_before.is_some() {
            Form::Window
        } else {
            Form::Expiry
        };
        let parts: Vec<(&'static str, &str)> = form.parts().zip(values).collect();
        statement(form.purpose(), &parts)
    }

    /// The time when a script must have ended that began in the window of the signature: earlier by the error of
    /// clocks, because that of the next node may be ahead.
    pub(super) fn end(&self) -> Timestamp {
        match self.not_before {
            Some(begin) => self.expires.checked_sub(CLOCK_ERROR).unwrap_or(begin),
            None => self.expires,
        }
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
    pub(super) fn parse(text: &str) -> Result<Self, Untrusted> {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let form = Form::of(first);
        if first != form.purpose() {
            return Err(Untrusted::Malformed("first line"));
        }
        let mut part = |name: &'static str| {
            let rest = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            rest.ok_or(Untrusted::Malformed(name))
        };
        let [cluster, node, upgrade, generation, type_, version, sha256] = COMMON.map(&mut part);
        let (cluster, node, upgrade, generation) = (cluster?, node?, upgrade?, generation?);
        let (type_, version, sha256) = (type_?, version?, sha256?);
        let not_before = (form == Form::Window).then(|| part(NOT_BEFORE)).transpose()?;
        let expires = part(EXPIRES)?;
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
            not_before: not_before
                .map(|time| time.parse().map_err(|_| Untrusted::Malformed(NOT_BEFORE)))
                .transpose()?,
            expires: expires.parse().map_err(|_| Untrusted::Malformed(EXPIRES))?,
        };
        if parsed.text()? == text {
            Ok(parsed)
        } else {
            Err(Untrusted::Malformed("text"))
        }
    }

    /// Checks that this statement, whose signature counts, is for the script and for the host's expectation.
    pub(super) fn check(&self, body: &str, expected: &Expected<'_>) -> Result<(), Untrusted> {
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
        if expected.now >= self.end() {
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
        if let Some(begin) = self.not_before.filter(|begin| expected.now < *begin) {
            return Err(Untrusted::Early(begin));
        }
        Ok(())
    }
}
