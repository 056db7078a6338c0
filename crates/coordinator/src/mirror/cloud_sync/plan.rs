//! The desired part of `CloudSync` about the sync loops, if it differs from the written one. Pure.

mod held;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::cloud_sync::{HELD, SYNCED};
use tidewaiter_api::{CloudSync, CloudSyncStatus, Condition, ConditionStatus, HeldDeletions, KindSync, RefusedObject};
use tidewaiter_kit::{Notice, NoticeKind};

use crate::mirror::board::LoopState;
use crate::mirror::kind::Refused;
use held::{held, held_because};

/// Objects that are named; the rest is counted.
const NAMED: usize = 16;

/// The number of kinds whose trouble the condition's message contains; the others are counted.
const TOLD: usize = 5;

/// A response that takes longer than this is late.
const PATIENCE: Duration = Duration::from_secs(10);

/// An unchanged status is written again after this time, with the time at which the cloud last answered: agents remove
/// keys that were not confirmed for `keysExpireAfter`, which is 12 hours at least.
const CONFIRMED_EVERY: SignedDuration = SignedDuration::from_hours(1);

/// The reason of the conditions while deletions are held.
const DELETIONS_HELD: &str = "DeletionsHeld";

/// The reason while only `ClusterRoles` of another coordinator are held.
const ROLES_HELD: &str = "RolesHeld";

/// The longest text of an Event, whose note begins with the type of the condition.
const MAX_NOTE: usize = 1000;

/// The longest text of an annotation that an Event repeats.
const MAX_SHOWN: usize = 64;

/// The longest text of an object.
const MAX_REASON: usize = 1024;

/// Handles the annotation by which a person releases a revision. It is removed after its use, because the same list, an
/// empty one for example, has the same revision when it comes again.
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
    // The list with this revision is in force, so the release was used, whatever is held of other kinds.
    if loops.iter().any(|state| revision(state) == annotated) {
        return Some(release_ended());
    }
    let held = match held.len() {
        0 => "Nothing is held".to_owned(),
        _ => format!("Held revisions: {}", held.join(", ")),
    };
    let annotated = &annotated[..annotated.floor_char_boundary(MAX_SHOWN)];
    let note = format!("The revision that was released, {annotated}, is not held. {held}.");
    Some(Notice::warning("ReleaseUnknown", "Release", note))
}

/// The Event of a release that was used.
pub(super) fn release_ended() -> Notice {
    let note = "Nothing is held of the released revision any more.";
    Notice::normal("ReleaseEnded", "Release", note)
}

/// The write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) status: CloudSyncStatus,
    /// Events about conditions that change.
    pub(super) notices: Vec<Notice>,
    /// Something else is held than before: anyone who releases it names its revision, and waits for its end.
    pub(super) changes_hold: bool,
}

/// For how long nothing is written because a response is awaited or being applied: after a restart, most often,
/// everything is as it was. `None` if nothing is awaited, or if it is late.
pub(super) fn patience(standing: &CloudSync, loops: &[LoopState]) -> Option<Duration> {
    standing.condition(SYNCED)?;
    let waiting = loops.iter().filter(|state| state.is_waiting());
    let longest = waiting.map(|state| state.waited).max()?;
    PATIENCE.checked_sub(longest).filter(|left| !left.is_zero())
}

/// The status to write over `standing`; nothing when it says the same but for the times. `cluster` is its id in the
/// cloud, and `apart` are the `ClusterRoles` and the Nodes that are held.
pub(super) fn plan(
    standing: &CloudSync,
    cluster: &str,
    loops: &[LoopState],
    apart: impl IntoIterator<Item = KindSync>,
    now: Timestamp,
) -> Option<Plan> {
    let apart: Vec<KindSync> = apart.into_iter().collect();
    let before = standing.status.clone().unwrap_or_default();
    let generation = standing.metadata.generation;
    let conditions = [
        synced(loops, &before.conditions, now),
        held(loops, &apart, &before, now),
    ];
    let conditions = conditions.map(|condition| condition.observing(generation));
    let status = CloudSyncStatus {
        cluster_id: cluster.to_owned(),
        kinds: loops.iter().map(|state| kind(state, &before)).chain(apart).collect(),
        conditions: conditions.to_vec(),
    };
    if is_same(&before, &status) && !is_stale(&before, &status) {
        return None;
    }
    let is_news = |condition: &&Condition| {
        let old = before.conditions.iter().find(|old| old.type_ == condition.type_);
        // That nothing is held from the start is no news.
        let is_flip = old.map_or(condition.type_ == SYNCED, |old| old.status != condition.status);
        is_flip || (condition.type_ == HELD && holds_another_kind(&before, &status))
    };
    let notices = status.conditions.iter().filter(is_news).map(notice).collect();
    let changes_hold = held_of(&before).ne(held_of(&status));
    Some(Plan {
        status,
        notices,
        changes_hold,
    })
}

fn held_of(status: &CloudSyncStatus) -> impl Iterator<Item = (&str, &HeldDeletions)> {
    let kinds = status.kinds.iter();
    kinds.filter_map(|kind| Some((kind.kind.as_str(), kind.held.as_ref()?)))
}

/// Returns true if something is held in `after` of a kind of which nothing is held in `before`.
fn holds_another_kind(before: &CloudSyncStatus, after: &CloudSyncStatus) -> bool {
    let held = |status: &CloudSyncStatus| -> BTreeSet<String> {
        let kinds = status.kinds.iter().filter(|kind| kind.held.is_some());
        kinds.map(|kind| kind.kind.clone()).collect()
    };
    !held(after).is_subset(&held(before))
}

/// Returns true if the two differ only in when the cloud last answered.
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

/// Returns true if the time at which the cloud last answered is so old in the status that agents could take the users
/// for not confirmed.
fn is_stale(before: &CloudSyncStatus, after: &CloudSyncStatus) -> bool {
    before.kinds.iter().zip(&after.kinds).any(|(before, after)| {
        let times = before.last_success.zip(after.last_success);
        times.is_some_and(|(written, now)| now.duration_since(written) >= CONFIRMED_EVERY)
    })
}

fn notice(condition: &Condition) -> Notice {
    let good = (condition.type_ == SYNCED) == (condition.status == ConditionStatus::True);
    Notice {
        kind: if good { NoticeKind::Normal } else { NoticeKind::Warning },
        reason: condition.reason.clone().into(),
        action: "Sync".into(),
        note: format!("{}: {}", condition.type_, headline(condition)),
    }
}

/// The words of an Event: without counts and names, which are in the status, but for what is held, which a person must
/// decide.
fn headline(condition: &Condition) -> &str {
    match &*condition.reason {
        _ if condition.type_ == HELD && condition.status == ConditionStatus::True => {
            let message = &condition.message;
            &message[..message.floor_char_boundary(MAX_NOTE)]
        }
        "Applied" => "the cluster is as the cloud lists it.",
        "Waiting" => "the cloud has not listed every kind yet.",
        "ListFailed" => "a list of the cloud cannot be used; the last one stays.",
        "WriteFailed" => "some objects cannot be written to the cluster.",
        "ReadFailed" => "the API server does not show the objects of a kind.",
        "DeletionBlocked" => "finalizers keep deleted objects.",
        "UpgradesDisabled" => "an upgrade is in progress, and upgrades are disabled.",
        "Applying" => "the last list of the cloud is being written to the cluster.",
        "ObjectsRefused" => "the cloud lists malformed objects, which are not mirrored.",
        DELETIONS_HELD => "deletions are held; see the status for how to release them.",
        ROLES_HELD => {
            "ClusterRoles of another coordinator are held; see the status for how to keep or release their rules."
        }
        _ => "nothing is held.",
    }
}

/// The condition `Synced`: the last response of the cloud was applied, for every kind. The first trouble in this order
/// decides the reason.
pub(in crate::mirror) fn synced(loops: &[LoopState], before: &[Condition], now: Timestamp) -> Condition {
    let is_first = before.iter().all(|old| old.type_ != SYNCED);
    let failed = |trouble: &dyn Fn(&LoopState) -> Option<String>| by_reason(loops, trouble);
    let troubles = [
        ("ListFailed", failed(&|state| state.list_error.clone())),
        ("WriteFailed", failed(&|state| state.write_error.clone())),
        ("ReadFailed", failed(&|state| state.read_error().map(str::to_owned))),
        ("DeletionBlocked", failed(&|state| state.blocked.clone())),
        ("UpgradesDisabled", failed(&|state| state.idle.clone())),
        (
            "Applying",
            failed(&|state| state.is_writing.then(|| "is being written to the cluster".to_owned())),
        ),
        (DELETIONS_HELD, failed(&held_because)),
        (
            "ObjectsRefused",
            failed(&|state| {
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
            failed(&|state| {
                let is_late = state.is_waiting() && (is_first || state.waited >= PATIENCE);
                is_late.then(|| awaited(state))
            }),
        ),
    ];
    let (status, reason, message) = match troubles.into_iter().find(|(_, told)| !told.is_empty()) {
        None => (
            ConditionStatus::True,
            "Applied",
            "the cluster is as the cloud lists it".to_owned(),
        ),
        Some(("Waiting", told)) if is_first => (ConditionStatus::Unknown, "Waiting", joined(&told)),
        Some((reason, told)) => (ConditionStatus::False, reason, joined(&told)),
    };
    Condition::new(SYNCED, status, reason, &message, before, now)
}

/// The reasons for the trouble, each with its kinds: most often, all kinds have the same.
fn by_reason(loops: &[LoopState], trouble: &dyn Fn(&LoopState) -> Option<String>) -> Vec<String> {
    let mut kinds = Vec::<(String, Vec<&str>)>::new();
    for state in loops {
        let Some(why) = trouble(state) else { continue };
        match kinds.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(&state.resource),
            None => kinds.push((why, vec![&state.resource])),
        }
    }
    let told = kinds.iter().map(|(why, names)| format!("{}: {why}", names.join(", ")));
    told.collect()
}

/// The state that a loop waits for.
fn awaited(state: &LoopState) -> String {
    match (&state.contents, &state.cache_error) {
        (None, _) => "the cloud has not listed it yet".to_owned(),
        (Some(_), None) => "listed, but not applied to the cluster yet".to_owned(),
        (Some(_), Some(trouble)) => format!("listed, but the cluster cannot be read: {}", trouble.error),
    }
}

fn joined(told: &[String]) -> String {
    let more = told.len().saturating_sub(TOLD);
    let mut parts: Vec<String> = told.iter().take(TOLD).cloned().collect();
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    parts.join("; ")
}

/// The part about a kind that an earlier process wrote, until this one has listed it.
fn earlier<'a>(state: &LoopState, before: &'a CloudSyncStatus) -> Option<&'a KindSync> {
    let mut kinds = before.kinds.iter().filter(|_| state.contents.is_none());
    kinds.find(|known| known.kind == state.resource)
}

/// The part about the kind of a loop; that of `before` until the loop has listed it.
pub(in crate::mirror) fn kind(state: &LoopState, before: &CloudSyncStatus) -> KindSync {
    if let Some(known) = earlier(state, before) {
        return known.clone();
    }
    let refused: &[Refused] = state.contents.as_ref().map_or(&[], |contents| &contents.refused);
    KindSync {
        kind: state.resource.to_string(),
        last_success: state.last_success.map(whole_seconds),
        revision: revision(state),
        objects: count(state.objects),
        held: state.held.as_ref().map(|(hold, since)| HeldDeletions {
            revision: revision(state),
            since: whole_seconds(*since),
            objects: count(hold.deletions.len()),
            additions: count(hold.count() - hold.deletions.len()),
            names: hold.names.clone(),
            reason: hold.told(),
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
