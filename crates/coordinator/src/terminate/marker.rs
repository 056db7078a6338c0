//! The marker: a ConfigMap that says that everything is to be removed, who requested it, and how far it is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, TERMINATE_MARKER};

use super::marker_meta;

const STATE: &str = "state";
const MESSAGE: &str = "message";
const REQUESTED_BY: &str = "requestedBy";
const REQUESTED_AT: &str = "requestedAt";
/// Before the name of a row: how many of its objects were removed.
const REMOVED: &str = "removed.";

/// The message of a marker that no progress can be recorded in.
const IMMUTABLE: &str = "everything is removed, but the marker is immutable, so the progress cannot be shown: delete the ConfigMap and request it again";

/// The state of a termination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// The leader has not begun.
    Requested,
    /// The leader removes objects.
    Removing,
    /// Everything is removed.
    Removed,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Requested => "Requested",
            Self::Removing => "Removing",
            Self::Removed => "Removed",
        }
    }
}

/// A slim ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
pub struct Marker {
    /// The metadata that a writer needs.
    #[serde(deserialize_with = "tidewaiter_kit::slim::for_writer")]
    pub(super) metadata: ObjectMeta,
    /// The request and its progress.
    #[serde(default)]
    pub(super) data: BTreeMap<String, String>,
    /// True if no progress can be recorded. Ours never is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) immutable: Option<bool>,
}

impl Marker {
    /// Returns true if what it says is somebody else's, because no progress can be recorded in it.
    pub(super) fn is_immutable(&self) -> bool {
        self.immutable.unwrap_or_default()
    }
}

/// The marker of a new request.
pub(super) fn requested(by: &str, now: Timestamp) -> Marker {
    let data = [
        (REQUESTED_BY, by.to_owned()),
        (REQUESTED_AT, now.strftime("%FT%TZ").to_string()),
        (STATE, State::Requested.word().to_owned()),
    ];
    Marker {
        metadata: marker_meta(),
        data: data.map(|(key, value)| (key.to_owned(), value)).into(),
        immutable: None,
    }
}

/// The marker that the leader writes.
pub(super) fn progressed(state: State, message: &str, removed: &BTreeMap<&'static str, u64>) -> Marker {
    let counts = removed
        .iter()
        .map(|(row, count)| (format!("{REMOVED}{row}"), count.to_string()));
    let said = [(STATE, state.word()), (MESSAGE, message)];
    let said = said.into_iter().filter(|(_, value)| !value.is_empty());
    let said = said.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Marker {
        metadata: marker_meta(),
        data: said.chain(counts).collect(),
        immutable: None,
    }
}

/// The number of objects of the row that were removed already, by the marker.
pub(super) fn removed(marker: &Marker, row: &str) -> u64 {
    let count = marker
        .data
        .get(&format!("{REMOVED}{row}"))
        .filter(|_| !marker.is_immutable());
    count.and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// The progress of a termination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// `Requested`, `Removing` or `Removed`.
    pub state: String,
    /// The condition that it waits for, or the failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The first requester.
    pub requested_by: String,
    /// The time of the request (RFC 3339).
    pub requested_at: String,
    /// The number of removed objects, by kind.
    pub removed: BTreeMap<String, u64>,
}

impl Progress {
    pub(super) fn of(marker: &Marker) -> Self {
        if marker.is_immutable() {
            return Self {
                state: State::Removing.word().to_owned(),
                message: IMMUTABLE.to_owned(),
                ..Self::default()
            };
        }
        let text = |key: &str| marker.data.get(key).cloned().unwrap_or_default();
        let rows = marker.data.keys().filter_map(|key| key.strip_prefix(REMOVED));
        Self {
            state: text(STATE),
            message: text(MESSAGE),
            requested_by: text(REQUESTED_BY),
            requested_at: text(REQUESTED_AT),
            removed: rows.map(|row| (row.to_owned(), removed(marker, row))).collect(),
        }
    }

    /// Returns true if nothing is left.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == State::Removed.word()
    }

    /// The remedy for an installation that should work, and the termination's meaning for it.
    #[must_use]
    pub fn remedy(&self) -> String {
        let what = if self.is_complete() { "was" } else { "is being" };
        let by = if self.requested_by.is_empty() {
            "somebody"
        } else {
            &self.requested_by
        };
        format!(
            "everything that the coordinator manages {what} removed, as {by} requested at {}, and nothing is synced until the request is \
             withdrawn: kubectl -n {CONTAINERSHIP_NAMESPACE} delete configmap {TERMINATE_MARKER}",
            self.requested_at
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_is_what_the_marker_says() {
        let mut marker = requested("containership.io/user_id#1", Timestamp::UNIX_EPOCH);
        let progress = Progress::of(&marker);
        assert_eq!((progress.state.as_str(), progress.is_complete()), ("Requested", false));
        assert_eq!(progress.requested_at, "1970-01-01T00:00:00Z");
        let counts = [("secrets", 7)].into();
        marker.data.extend(progressed(State::Removed, "", &counts).data);
        let progress = Progress::of(&marker);
        assert!(progress.is_complete() && progress.message.is_empty());
        assert_eq!(progress.removed, [("secrets".to_owned(), 7)].into());
        assert_eq!((removed(&marker, "secrets"), removed(&marker, "users")), (7, 0));
        // What an immutable one says is not ours.
        marker.immutable = Some(true);
        let progress = Progress::of(&marker);
        assert_eq!((progress.state.as_str(), progress.is_complete()), ("Removing", false));
        assert!(progress.message.contains("immutable") && progress.removed.is_empty());
        assert_eq!(removed(&marker, "secrets"), 0);
    }
}
