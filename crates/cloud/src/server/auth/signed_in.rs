//! The sign-in that a login comes of: its time, and whether a password alone was enough for it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::server::store::Row;

/// The field of the document of a login, which a token for a program lacks. No response contains it.
pub(crate) const LOGIN: &str = "login";

/// A sign-in. A login that it grants to a program comes of the same one.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SignedIn {
    /// The time, if another login granted this one; else that of the row counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    /// True if it was at a provider, or with a security key or a recovery code.
    pub(crate) has_second_factor: bool,
}

impl SignedIn {
    pub(crate) fn with_password() -> Self {
        Self::default()
    }

    pub(crate) fn with_more() -> Self {
        Self {
            at: None,
            has_second_factor: true,
        }
    }

    /// The sign-in that the token of `row` comes of; `None` for a token of a program.
    pub(crate) fn of(row: &Row) -> Option<Self> {
        let stored = row.spec.get(LOGIN)?;
        // Older versions wrote `true`.
        let stored = Self::deserialize(stored).unwrap_or_default();
        Some(Self {
            at: stored.at.or_else(|| row.created_at.parse().ok()),
            ..stored
        })
    }

    /// Returns true if it was not before `since`.
    pub(crate) fn is_since(&self, since: Timestamp) -> bool {
        self.at.is_some_and(|at| at >= since)
    }

    /// The value of the field [`LOGIN`].
    pub(crate) fn to_value(self) -> Value {
        json!(self)
    }
}
