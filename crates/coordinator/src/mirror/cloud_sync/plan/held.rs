//! The holds of the brake, in the words of the condition `Held`. Pure.

use jiff::Timestamp;
use tidewaiter_api::cloud_sync::{CLUSTER_ROLE, HELD};
use tidewaiter_api::{CloudSyncStatus, Condition, ConditionStatus, KindSync};

use super::{DELETIONS_HELD, ROLES_HELD, earlier, joined, revision, whole_seconds};
use crate::mirror::board::LoopState;
use crate::mirror::plan::HoldReason;

/// The reason why deletions of the kind are held.
pub(super) fn held_because(state: &LoopState) -> Option<String> {
    let (hold, _) = state.held.as_ref()?;
    Some(hold.reason.text().to_owned())
}

/// The condition `Held`, with the way to release it.
pub(super) fn held(loops: &[LoopState], apart: &[KindSync], status: &CloudSyncStatus, now: Timestamp) -> Condition {
    let before = &status.conditions;
    let held_apart = apart.iter().filter(|kind| kind.held.is_some());
    let reasons = held_apart
        .clone()
        .filter_map(|kind| Some(kind.held.as_ref()?.reason.clone()));
    let told: Vec<String> = loops.iter().filter_map(what_is_held).chain(reasons).collect();
    // Whether what an earlier process held is due is not known before its kind was listed again.
    let was_held = |state: &LoopState| earlier(state, status).is_some_and(|known| known.held.is_some());
    if told.is_empty()
        && loops.iter().any(was_held)
        && let Some(old) = before.iter().find(|old| old.type_ == HELD)
    {
        return old.clone();
    }
    if told.is_empty() {
        let message = "nothing is held";
        return Condition::new(HELD, ConditionStatus::False, "NothingHeld", message, before, now);
    }
    let holds_objects = loops.iter().any(|state| state.held.is_some());
    let holds_nodes = held_apart.clone().any(|kind| kind.kind != CLUSTER_ROLE);
    let reason = if holds_objects || holds_nodes {
        DELETIONS_HELD
    } else {
        ROLES_HELD
    };
    Condition::new(HELD, ConditionStatus::True, reason, &joined(&told), before, now)
}

/// The hold of a kind, and the remedy.
fn what_is_held(state: &LoopState) -> Option<String> {
    let (hold, since) = state.held.as_ref()?;
    let (deleted, added) = (hold.deletions.len(), hold.count() - hold.deletions.len());
    let (resource, since) = (&state.resource, whole_seconds(*since));
    let why = match hold.reason {
        HoldReason::Unreadable => {
            return Some(format!(
                "{deleted} {resource} would be deleted, held since {since}, but the list contains an object without a valid id. Correct it in the cloud"
            ));
        }
        HoldReason::Unrecorded => ", which the record of deletions in the cloud does not name",
        HoldReason::Unread => ", and the record of deletions in the cloud cannot be read",
        HoldReason::Emptied => " without a record of deletions in the cloud",
        HoldReason::MostObjects => "",
    };
    let and = match added {
        0 => String::new(),
        _ => format!(", and {added} added"),
    };
    let counted = match (hold.reason, hold.counted) {
        (HoldReason::MostObjects | HoldReason::Emptied, 1..) => format!(
            ", after {} that were deleted within the last ten sync intervals: more than half together",
            hold.counted
        ),
        _ => String::new(),
    };
    let (objects, revision) = (state.objects, revision(state));
    Some(format!(
        "{deleted} of {objects} {resource} would be deleted{and}{why}{counted}, held since {since}. If that is right: `tidewaiter release {resource}` (revision {revision})"
    ))
}
