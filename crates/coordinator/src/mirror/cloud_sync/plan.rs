//! What `CloudSync` should say of the sync loops, if it does not say so already. Pure.

use jiff::Timestamp;
use tidewaiter_api::cloud_sync::{HELD, RELEASE_ANNOTATION, SYNCED};
use tidewaiter_api::{CloudSync, CloudSyncStatus, Condition, ConditionStatus, HeldDeletions, KindSync, RefusedObject};
use tidewaiter_kit::{Notice, NoticeKind};

use crate::mirror::board::LoopState;
use crate::mirror::listing::Refused;
use crate::mirror::plan::{Hold, HoldReason};

/// Objects that are named; the rest is counted.
const NAMED: usize = 16;

/// Kinds whose trouble is told in the condition's message; the rest is counted.
const TOLD: usize = 5;

/// The longest text of an object.
const MAX_REASON: usize = 1024;

/// What becomes of the annotation by which a person releases a revision. It is removed after its use, because the same list, an empty one
/// for example, has the same revision when it comes again.
pub(super) fn release(annotated: Option<&str>, loops: &[LoopState]) -> Option<Notice> {
    let annotated = annotated?;
    let holds = |state: &LoopState| state.held.is_some() && revision(state) == annotated;
    if loops.iter().any(holds) || !loops.iter().all(|state| state.is_applied) {
        return None;
    }
    let held = |state: &LoopState| {
        state
            .held
            .is_some()
            .then(|| format!("{} ({})", revision(state), state.resource))
    };
    let held: Vec<String> = loops.iter().filter_map(held).collect();
    if held.is_empty() {
        return Some(Notice::normal(
            "ReleaseEnded",
            "Release",
            "Nothing is held of the released revision any more.",
        ));
    }
    let note = format!(
        "The revision that was released, {annotated}, is not held. Held revisions: {}.",
        held.join(", ")
    );
    Some(Notice::warning("ReleaseUnknown", "Release", note))
}

/// What to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) status: CloudSyncStatus,
    /// What to tell of the conditions that become others.
    pub(super) notices: Vec<Notice>,
}

/// What is to be written over `standing`; nothing when it says the same but for the times, or while a response is being applied: after a
/// restart, most often, everything is as it was.
pub(super) fn plan(standing: &CloudSync, loops: &[LoopState], now: Timestamp) -> Option<Plan> {
    let before = standing.status.clone().unwrap_or_default();
    let is_waiting = |state: &LoopState| !state.is_applied && state.list_error.is_none();
    if !before.conditions.is_empty() && loops.iter().any(is_waiting) {
        return None;
    }
    let generation = standing.metadata.generation;
    let conditions = [
        synced(loops, &before.conditions, now),
        held(loops, &before.conditions, now),
    ];
    let conditions = conditions.map(|condition| condition.observing(generation));
    let status = CloudSyncStatus {
        kinds: loops.iter().map(kind).collect(),
        conditions: conditions.to_vec(),
    };
    if is_same(&before, &status) {
        return None;
    }
    let is_flip = |condition: &&Condition| {
        let old = before.conditions.iter().find(|old| old.type_ == condition.type_);
        // That nothing is held from the start is no news.
        old.map_or(condition.type_ == SYNCED, |old| old.status != condition.status)
    };
    let notices = status.conditions.iter().filter(is_flip).map(notice).collect();
    Some(Plan { status, notices })
}

/// Whether the two differ only in when the cloud last answered.
fn is_same(before: &CloudSyncStatus, after: &CloudSyncStatus) -> bool {
    let timeless = |status: &CloudSyncStatus| {
        let mut status = status.clone();
        for kind in &mut status.kinds {
            kind.last_success = kind.last_success.map(|_| Timestamp::UNIX_EPOCH);
        }
        status
    };
    timeless(before) == timeless(after)
}

fn notice(condition: &Condition) -> Notice {
    let good = (condition.type_ == SYNCED) == (condition.status == ConditionStatus::True);
    Notice {
        kind: if good { NoticeKind::Normal } else { NoticeKind::Warning },
        reason: condition.reason.clone().into(),
        action: "Sync".into(),
        note: format!("{}: {}", condition.type_, headline(&condition.reason)),
    }
}

/// The words of an Event: without counts and names, which are in the status.
fn headline(reason: &str) -> &'static str {
    match reason {
        "Applied" => "the cluster is as the cloud lists it.",
        "Waiting" => "the cloud has not listed every kind yet.",
        "ListFailed" => "a list of the cloud cannot be used; the last one stays.",
        "WriteFailed" => "some objects cannot be written to the cluster.",
        "ObjectsRefused" => "the cloud lists malformed objects, which are not mirrored.",
        "DeletionsHeld" => "deletions are held; see the status for how to release them.",
        _ => "nothing is held.",
    }
}

/// Whether the last response of the cloud was applied, for every kind. The first trouble in this order decides the reason.
fn synced(loops: &[LoopState], before: &[Condition], now: Timestamp) -> Condition {
    let failed = |trouble: fn(&LoopState) -> Option<String>| -> Vec<String> {
        let told = |state: &LoopState| trouble(state).map(|why| format!("{}: {why}", state.resource));
        loops.iter().filter_map(told).collect()
    };
    let troubles = [
        ("ListFailed", failed(|state| state.list_error.clone())),
        ("WriteFailed", failed(|state| state.write_error.clone())),
        (
            "DeletionsHeld",
            failed(|state| state.held.as_ref().map(|(hold, _)| reason_of(hold).to_owned())),
        ),
        (
            "ObjectsRefused",
            failed(|state| {
                state
                    .contents
                    .as_ref()?
                    .refused
                    .first()
                    .map(|refused| refused.reason.clone())
            }),
        ),
        (
            "Waiting",
            failed(|state| (!state.is_applied).then(|| "not listed and applied yet".to_owned())),
        ),
    ];
    let (status, reason, message) = match troubles.into_iter().find(|(_, told)| !told.is_empty()) {
        None => (
            ConditionStatus::True,
            "Applied",
            "the cluster is as the cloud lists it".to_owned(),
        ),
        Some(("Waiting", told)) if before.iter().all(|old| old.type_ != SYNCED) => {
            (ConditionStatus::Unknown, "Waiting", joined(&told))
        }
        Some((reason, told)) => (ConditionStatus::False, reason, joined(&told)),
    };
    Condition::new(SYNCED, status, reason, &message, before, now)
}

fn held(loops: &[LoopState], before: &[Condition], now: Timestamp) -> Condition {
    let told = |state: &LoopState| {
        let (hold, _) = state.held.as_ref()?;
        let revision = revision(state);
        Some(match hold.reason {
            HoldReason::MostObjects => format!(
                "{} of {} {} would be deleted. If that is right, release them: kubectl annotate --overwrite cloudsync/cloud {RELEASE_ANNOTATION}={revision}",
                hold.keys.len(),
                state.objects,
                state.resource,
            ),
            HoldReason::Unreadable => format!(
                "{} {} would be deleted, but the list contains an object without a valid id. Correct it in the cloud",
                hold.keys.len(),
                state.resource,
            ),
        })
    };
    let told: Vec<String> = loops.iter().filter_map(told).collect();
    if told.is_empty() {
        let message = "no deletions are held";
        return Condition::new(HELD, ConditionStatus::False, "NothingHeld", message, before, now);
    }
    Condition::new(
        HELD,
        ConditionStatus::True,
        "DeletionsHeld",
        &joined(&told),
        before,
        now,
    )
}

fn joined(told: &[String]) -> String {
    let more = told.len().saturating_sub(TOLD);
    let mut parts: Vec<String> = told.iter().take(TOLD).cloned().collect();
    if more > 0 {
        parts.push(format!("and {more} more kinds"));
    }
    parts.join("; ")
}

fn kind(state: &LoopState) -> KindSync {
    let refused: &[Refused] = state.contents.as_ref().map_or(&[], |contents| &contents.refused);
    KindSync {
        kind: state.resource.to_string(),
        last_success: state.last_success.map(whole_seconds),
        revision: revision(state),
        objects: count(state.objects),
        held: state.held.as_ref().map(|(hold, since)| HeldDeletions {
            revision: revision(state),
            since: whole_seconds(*since),
            objects: count(hold.keys.len()),
            names: hold.keys.iter().take(NAMED).map(|key| key.name().to_owned()).collect(),
            reason: reason_of(hold).to_owned(),
        }),
        refused_objects: count(refused.len()),
        refused: refused.iter().take(NAMED).map(refused_object).collect(),
    }
}

fn refused_object(refused: &Refused) -> RefusedObject {
    let reason = &refused.reason;
    RefusedObject {
        id: refused.name.clone().unwrap_or_else(|| "not readable".to_owned()),
        reason: reason[..reason.floor_char_boundary(MAX_REASON)].to_owned(),
    }
}

fn reason_of(hold: &Hold) -> &'static str {
    match hold.reason {
        HoldReason::MostObjects => "more than half of the objects would be deleted",
        HoldReason::Unreadable => {
            "the list contains an object without a valid id, which may be any of the missing ones"
        }
    }
}

fn revision(state: &LoopState) -> String {
    state
        .contents
        .as_ref()
        .map(|contents| contents.revision.clone())
        .unwrap_or_default()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
