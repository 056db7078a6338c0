//! The scope of a token: the part of its owner's permissions that the token has.

use std::fmt;
use std::str::FromStr;

use tidewaiter_api::InvalidValue;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::fields::model;
use super::values::{ClusterId, invalid, read_as_text, words, written_as_shown};
use super::{Fields, InvalidField, Kind};

/// The maximum number of clusters of a scope: the size of tokens is not limited otherwise.
const MAX_CLUSTERS: usize = 100;

/// A kind in a scope, with its name in the audit log and on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScopeKind(pub Kind);

impl fmt::Display for ScopeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.word())
    }
}

impl FromStr for ScopeKind {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let kind = Kind::of(text).filter(|kind| kind.code().is_some());
        kind.map(Self)
            .ok_or_else(|| invalid("kind", text, "must be a kind of the API, for example node-pools"))
    }
}

written_as_shown!(ScopeKind);
read_as_text!(ScopeKind, "the name of a kind");

impl PartialSchema for ScopeKind {
    fn schema() -> RefOr<Schema> {
        let words = Kind::resources().map(Kind::word);
        let text = ObjectBuilder::new().schema_type(Type::String);
        text.enum_values(Some(words)).into()
    }
}

impl ToSchema for ScopeKind {}

words! {
    /// What a token may do with the objects of its scope.
    ScopeVerb, "verb of a scope" {
        /// Read them.
        Read = "read",
        /// Create, change and delete them.
        Write = "write",
    }
}

model! {
    /// The part of its owner's permissions that a token has. An absent field limits nothing, but at least one is there.
    #[derive(Eq)]
    TokenScope, "the scope of a token", check =>
    /// Only these kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    nullable kinds: Option<Vec<ScopeKind>> as Option<BTreeSet<ScopeKind>>,
    /// Only what is in these clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    nullable clusters: Option<Vec<ClusterId>> as Option<BTreeSet<ClusterId>>,
    /// Only these verbs.
    #[serde(skip_serializing_if = "Option::is_none")]
    nullable verbs: Option<Vec<ScopeVerb>> as Option<BTreeSet<ScopeVerb>>,
}

impl TokenScope {
    /// Returns true if the scope names `kind`.
    #[must_use]
    pub fn names(&self, kind: Kind) -> bool {
        self.kinds
            .as_ref()
            .is_some_and(|kinds| kinds.contains(&ScopeKind(kind)))
    }

    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        let (kinds, clusters, verbs) = (self.kinds.as_deref(), self.clusters.as_deref(), self.verbs.as_deref());
        let numbers = [
            ("kinds", kinds.map(<[_]>::len)),
            ("clusters", clusters.map(<[_]>::len)),
            ("verbs", verbs.map(<[_]>::len)),
        ];
        if numbers.iter().all(|(_, number)| number.is_none()) {
            let reason = "is missing, as are clusters and verbs: name some, or omit the scope";
            return Err(fields.invalid("kinds", reason));
        }
        if let Some((field, _)) = numbers.iter().find(|(_, number)| *number == Some(0)) {
            return Err(fields.invalid(field, "is empty, and the token could do nothing: omit it, or name some"));
        }
        if clusters.is_some_and(|clusters| clusters.len() > MAX_CLUSTERS) {
            return Err(fields.invalid("clusters", format!("may have at most {MAX_CLUSTERS} items")));
        }
        fields.unique("kinds", kinds.unwrap_or_default())?;
        fields.unique("clusters", clusters.unwrap_or_default())?;
        fields.unique("verbs", verbs.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::models::values::assert_read;

    const ID: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";

    #[test]
    fn a_scope_limits_something_and_leaves_something() {
        let whole = json!({"kinds": ["registries", "ssh-keys"], "clusters": [ID], "verbs": ["read", "write"]});
        assert_read! { TokenScope:
            [whole => whole]
            not [
                json!({}), json!({"kinds": null}), json!({"kinds": []}), json!({"kinds": ["tokens"]}),
                json!({"kinds": ["Registry"]}), json!({"kinds": ["teams", "teams"]}), json!({"clusters": ["all"]}),
                json!({"clusters": []}), json!({"verbs": ["delete"]}), json!({"verbs": []}),
                json!({"verbs": ["read"], "until": "2099"}), json!({"verbs": "read"}), "read"
            ]
        }
    }
}
