//! Value types: every string is parsed into one of these where it enters the process.
//!
//! Each type refuses what its source refuses, with an error that names the value and the rule. No value contains a
//! control character, a path separator where it becomes part of a path, or more text than its source allows. A type
//! that is part of a `CustomResourceDefinition` carries the same rule as a JSON schema, so that the API server refuses
//! what the type refuses.

mod end_time;
mod label;
mod name;
mod provider_id;
mod role;
mod secret;
mod ssh_key_line;

pub use end_time::EndTime;
pub use label::{LabelKey, LabelSource, LabelValue};
pub use name::{ClusterName, InstanceGroupName, NodeName, NodeUid, ServiceAccountName};
pub use provider_id::ProviderId;
pub use role::Role;
pub use secret::SecretText;
pub(crate) use secret::opaque;
pub use ssh_key_line::{SshKeyLine, fingerprint};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A text that cannot be parsed as the requested type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {shown} is not valid: {rule}")]
pub struct InvalidValue {
    /// The expected kind of value, for example `label key`.
    pub kind: &'static str,
    /// The text in quotes, escaped and truncated, so that it is safe in a log line and in an Event.
    pub shown: String,
    /// The violated rule, in words.
    pub rule: &'static str,
}

impl InvalidValue {
    pub(crate) fn new(kind: &'static str, text: &str, rule: &'static str) -> Self {
        Self {
            kind,
            shown: quoted(text),
            rule,
        }
    }
}

/// `text` with every character escaped that must not reach a terminal: control characters, invisible characters and
/// those that change the text direction. Accents behind their letter, as macOS writes an umlaut, are not escaped. The
/// result is neither quoted nor truncated.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let is_special = |character: char| matches!(character, '"' | '\'' | '\\') || is_invisible_mark(character);
    for part in text.split_inclusive(is_special) {
        let body = part.trim_end_matches(is_special);
        shown.extend(body.escape_debug());
        for character in part[body.len()..].chars() {
            if is_invisible_mark(character) {
                shown.extend(character.escape_unicode());
            } else {
                shown.push(character);
            }
        }
    }
    shown
}

/// Replaces each character from U+007F on that [`printable`] escapes, in a format with other escapes: `escape` returns
/// the text in its place.
#[must_use]
pub fn escape_hidden(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        // An accent needs a letter before it.
        let is_shown = character < '\u{7f}' || printable(&format!("a{character}")).chars().count() == 2;
        if is_shown {
            shown.push(character);
        } else {
            shown += &escape(character);
        }
    }
    shown
}

/// The combining grapheme joiner and the variation selectors, which are combining marks as accents are.
fn is_invisible_mark(character: char) -> bool {
    matches!(character, '\u{34f}' | '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// `text` in quotes, with control characters escaped and truncated after 80 characters, so that untrusted text is safe
/// to print.
#[must_use]
pub fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().count() > SHOWN {
        format!("\"{shown}...\" ({} bytes)", text.len())
    } else {
        format!("\"{shown}\"")
    }
}

/// The text of an address for an error, as [`quoted`]; not shown if it contains an `@`, before which a password may
/// stand.
#[must_use]
pub fn quoted_address(text: &str) -> String {
    quoted(if text.contains('@') {
        "(not shown: holds '@')"
    } else {
        text
    })
}

/// The billing model of an instance, as far as labels depend on it.
///
/// Source: `InstanceLifecycle` of EC2's `DescribeInstances`; an instance without one is on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "The billing model of the instance.")]
#[serde(rename_all = "lowercase")]
pub enum Lifecycle {
    /// Runs until its owner stops it.
    #[default]
    #[serde(rename = "on-demand")]
    OnDemand,
    /// The cloud may reclaim it at any time.
    Spot,
    /// Runs in a reserved time window.
    Scheduled,
}

/// Implements what all string newtypes share: parsing with the type's `check`, access to the text, `Display`, serde.
macro_rules! string_value {
    ($type:ident, $kind:literal, $check:path) => {
        impl $type {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::values::InvalidValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match $check(text) {
                    Ok(()) => Ok(Self(text.into())),
                    Err(rule) => Err($crate::values::InvalidValue::new($kind, text, rule)),
                }
            }
        }

        impl TryFrom<&str> for $type {
            type Error = $crate::values::InvalidValue;

            fn try_from(text: &str) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl TryFrom<String> for $type {
            type Error = $crate::values::InvalidValue;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
pub(crate) use string_value;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        for (text, shown) in [
            ("say \"it\", don't: a\\b \u{e9}", "say \"it\", don't: a\\b \u{e9}"),
            ("Ju\u{308}rgen", "Ju\u{308}rgen"),
            ("\u{308}x", "\\u{308}x"),
            (
                "a\u{34f}b\u{fe0f}c\u{e0101}d\u{200d}",
                "a\\u{34f}b\\u{fe0f}c\\u{e0101}d\\u{200d}",
            ),
            ("\u{1b}[31m\nred", "\\u{1b}[31m\\nred"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{202e}gnp.exe", "\\u{202e}gnp.exe"),
            ("\u{200b}\u{7f}\0", "\\u{200b}\\u{7f}\\0"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn what_is_shown_of_a_value_is_escaped_and_cut() {
        assert_eq!(quoted("a\nb\u{1b}[31m"), r#""a\nb\u{1b}[31m""#);
        let shown = quoted(&"x".repeat(10_000));
        assert!(shown.len() < 110, "{shown}");
        assert!(shown.ends_with("(10000 bytes)"));
    }
}
