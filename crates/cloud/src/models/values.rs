//! Value types of the API: every string is parsed into one of these on entry.
//!
//! Identifiers are ASCII only, so that no two look alike. Text for users ([`DisplayName`], [`Description`]) may use any
//! alphabet, but contains no control sequences for a terminal or a log.

mod address;
mod id;
mod percent;
mod rbac;
mod ssh_public_key;
mod text;
mod unix_date;
mod unix_millis;
mod unix_seconds;
mod version;

pub use address::{Address, HttpUrl};
pub use id::*;
pub use percent::Percent;
pub use rbac::{ApiGroup, NonResourceUrl, Resource, ResourceName, Verb};
pub use ssh_public_key::{Fingerprint, SshPublicKey};
pub use text::{
    ChangeNumber, CredentialName, Description, DetachedSignature, DisplayName, Email, Namespace, Phone,
    PluginReference, Slug, StatusType, StrategyName, Subject,
};
pub use tidewaiter_api::values::EndTime;
pub use unix_date::UnixDate;
pub use unix_millis::UnixMillis;
pub use unix_seconds::UnixSeconds;
pub use version::{KubernetesVersion, TargetVersion, Version, VersionText};

/// Implements the common parts of string newtypes. `check` decides whether a text is valid, and `rule` says when it is.
/// The `schema` attributes describe the same rule in the API's description.
macro_rules! text_value {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $check:path, $rule:expr) => {
        $crate::models::values::text_value! { $(#[$doc])* $type, $kind, $check, $rule, $crate::models::values::invalid }
    };
    ($(#[$doc:meta])* $type:ident, $kind:literal, $check:path, $rule:expr, $invalid:path) => {
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, utoipa::ToSchema)]
        #[serde(transparent)]
        $(#[$doc])*
        pub struct $type(String);

        impl $type {
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = tidewaiter_api::InvalidValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                if $check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err($invalid($kind, text, $rule))
                }
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        $crate::models::values::shown_and_read!($type, $kind);
    };
}
pub(super) use text_value;

/// A string newtype whose rule is a pattern, that of the API's description. All of its characters are ASCII; `most` is
/// their maximum number.
macro_rules! pattern_value {
    ($(#[$doc:meta])* $type:ident, $kind:literal, $pattern:tt, $(most $most:tt,)? example $example:tt, $rule:expr) => {
        $crate::models::values::text_value! {
            $(#[$doc])*
            #[schema(pattern = $pattern $(, max_length = $most)?, examples($example))]
            $type, $kind, $type::is_valid, $rule
        }

        impl $type {
            fn is_valid(text: &str) -> bool {
                static PATTERN: std::sync::LazyLock<Option<regex::Regex>> =
                    std::sync::LazyLock::new(|| regex::Regex::new($pattern).ok());
                let limits: &[usize] = &[$($most)?];
                let fits = limits.iter().all(|most| text.len() <= *most);
                fits && PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text))
            }
        }
    };
}
pub(super) use pattern_value;

/// `Display` and parsing, for types with `as_str` and `FromStr`.
macro_rules! shown_and_read {
    ($type:ident, $kind:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        $crate::models::values::read_as_text!($type, concat!("a text (", $kind, ")"));
    };
}
pub(super) use shown_and_read;

/// Asserts which texts are values of a type.
#[cfg(test)]
macro_rules! assert_values {
    ($type:ty: [$($good:expr),*] not [$($bad:expr),+]) => {
        $(assert!(str::parse::<$type>(&$good).is_ok(), "{:?}", $good);)*
        $(assert!(str::parse::<$type>(&$bad).is_err(), "{:?}", $bad);)+
    };
}
#[cfg(test)]
pub(super) use assert_values;

/// Asserts which JSON is read as a type, how it is written, and which JSON is refused.
#[cfg(test)]
macro_rules! assert_read {
    ($type:ty: [$($value:expr => $written:expr),+] not [$($bad:expr),+]) => {
        let read = |value: &serde_json::Value| {
            let at = $crate::models::fields::At::root(value, $crate::models::document::Unknown::Refuse);
            <$type as $crate::models::fields::Read>::read(&at)
        };
        $({
            let read = read(&serde_json::json!($value)).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), serde_json::json!($written));
        })+
        $(assert!(read(&serde_json::json!($bad)).is_err(), "{:?}", $bad);)+
    };
}
#[cfg(test)]
pub(super) use assert_read;

/// Parsing, for types with `FromStr`. An error says what is `wanted`.
macro_rules! read_as_text {
    ($type:ident, $wanted:expr) => {
        impl $crate::models::fields::Read for $type {
            fn read(at: &$crate::models::fields::At<'_>) -> Result<Self, $crate::models::InvalidField> {
                $crate::models::fields::read_text(at, $wanted)
            }
        }
    };
}
pub(super) use read_as_text;

read_as_text!(EndTime, "a time in UTC");

/// Serializing, for types with `Display`.
macro_rules! written_as_shown {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}
pub(super) use written_as_shown;

/// An enum that is a string on the wire.
macro_rules! words {
    ($(#[$doc:meta])* $type:ident, $kind:literal { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
        $(#[$doc])*
        pub enum $type {
            $($(#[$variant_doc])* #[doc = concat!("`", $word, "`")] #[schema(rename = $word)] $variant),+
        }

        impl $type {
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        $crate::models::values::written_as_shown!($type);

        impl $crate::models::fields::Read for $type {
            fn read(at: &$crate::models::fields::At<'_>) -> Result<Self, $crate::models::InvalidField> {
                match at.value.as_str() {
                    $(Some($word) => Ok(Self::$variant),)+
                    _ => Err(at.must_be(&format!("the {}: one of {}", $kind, [$($word),+].join(", ")))),
                }
            }
        }
    };
}
pub(super) use words;

pub(super) fn invalid(kind: &'static str, text: &str, rule: &'static str) -> tidewaiter_api::InvalidValue {
    tidewaiter_api::InvalidValue {
        kind,
        shown: tidewaiter_api::values::quoted(text),
        rule,
    }
}

/// As [`invalid`], for an address, which is not shown because it may contain a password.
pub(super) fn invalid_address(kind: &'static str, text: &str, rule: &'static str) -> tidewaiter_api::InvalidValue {
    tidewaiter_api::InvalidValue {
        kind,
        shown: tidewaiter_api::values::quoted_address(text),
        rule,
    }
}
