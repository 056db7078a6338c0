use tidewaiter_kit::Key;
use tidewaiter_kit::cache::{TroubleCause, WatchTrouble};

use super::*;
use crate::mirror::board::Contents;
use crate::mirror::plan::{Additions, Hold, HoldReason};

const REVISION: &str = "0123456789ab";

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

/// A loop whose last response was applied.
fn applied(resource: &'static str) -> LoopState {
    LoopState {
        resource: resource.into(),
        last_success: Some(now()),
        contents: Some(Contents {
            revision: REVISION.to_owned(),
            objects: 7,
            refused: Vec::new(),
        }),
        is_applied: true,
        objects: 7,
        ..LoopState::default()
    }
}

fn with(resource: &'static str, change: impl FnOnce(&mut LoopState)) -> LoopState {
    let mut state = applied(resource);
    change(&mut state);
    state
}

fn holds(reason: HoldReason) -> impl FnOnce(&mut LoopState) {
    move |state| {
        let hold = Hold {
            deletions: ["a", "b"].map(Key::new).into(),
            additions: Additions::default(),
            counted: 0,
            reason,
            names: ["a", "b"].map(str::to_owned).into(),
        };
        state.held = Some((hold, now()));
    }
}

fn refuses(state: &mut LoopState) {
    let refused = Refused {
        name: None,
        reason: "[0].id: is missing".to_owned(),
    };
    state.contents.as_mut().unwrap().refused = vec![refused];
}

fn waits(state: &mut LoopState) {
    state.is_applied = false;
}

fn fails(state: &mut LoopState) {
    state.list_error = Some("refused".to_owned());
}

fn trouble(cause: TroubleCause) -> WatchTrouble {
    WatchTrouble {
        since: now(),
        since_monotonic: Duration::ZERO,
        error: "no such kind".to_owned(),
        cause,
    }
}

fn empty() -> CloudSync {
    CloudSync::new("cloud", tidewaiter_api::CloudSyncSpec {})
}

fn standing(loops: &[LoopState]) -> CloudSync {
    let mut object = empty();
    object.status = plan(&object, "", loops, None, now()).map(|plan| plan.status);
    object
}

fn told(plan: &Plan) -> String {
    let conditions = plan.status.conditions.iter();
    let conditions = conditions.map(|it| format!("{}={:?}/{}", it.type_, it.status, it.reason));
    conditions.collect::<Vec<_>>().join(" ")
}

/// Agents compare it with what is pinned on their hosts.
#[test]
fn the_cluster_is_said() {
    let planned = plan(&standing(&[applied("User")]), "c", &[applied("User")], None, now()).unwrap();
    assert_eq!(planned.status.cluster_id, "c");
}

#[test]
fn the_first_trouble_decides_the_reason() {
    let good = || applied("User");
    for (loops, expected) in [
        (vec![good()], "Synced=True/Applied Held=False/NothingHeld"),
        (
            vec![good(), with("Plugin", waits)],
            "Synced=Unknown/Waiting Held=False/NothingHeld",
        ),
        (
            vec![good(), with("Plugin", fails)],
            "Synced=False/ListFailed Held=False/NothingHeld",
        ),
        (
            vec![with("User", |state| state.write_error = Some("denied".to_owned()))],
            "Synced=False/WriteFailed Held=False/NothingHeld",
        ),
        (
            vec![with("User", |state| {
                state.cache_error = Some(trouble(TroubleCause::Denied));
            })],
            "Synced=False/ReadFailed Held=False/NothingHeld",
        ),
        (
            vec![with("User", |state| {
                state.cache_error = Some(trouble(TroubleCause::Other));
            })],
            "Synced=True/Applied Held=False/NothingHeld",
        ),
        (
            vec![with("User", |state| state.blocked = Some("a is kept".to_owned()))],
            "Synced=False/DeletionBlocked Held=False/NothingHeld",
        ),
        (
            vec![with("ClusterUpgrade", |state| {
                state.idle = Some("u is in progress".to_owned());
            })],
            "Synced=False/UpgradesDisabled Held=False/NothingHeld",
        ),
        (
            vec![with("User", |state| state.is_writing = true)],
            "Synced=False/Applying Held=False/NothingHeld",
        ),
        (
            vec![with("User", refuses), with("Plugin", holds(HoldReason::MostObjects))],
            "Synced=False/DeletionsHeld Held=True/DeletionsHeld",
        ),
        (
            vec![with("User", holds(HoldReason::Unreadable)), with("Plugin", fails)],
            "Synced=False/ListFailed Held=True/DeletionsHeld",
        ),
        (
            vec![with("User", refuses)],
            "Synced=False/ObjectsRefused Held=False/NothingHeld",
        ),
    ] {
        let plan = plan(&empty(), "", &loops, None, now()).unwrap();
        assert_eq!(told(&plan), expected);
    }
}

#[test]
fn it_is_written_when_it_says_something_else_than_a_time() {
    let later = now() + std::time::Duration::from_mins(1);
    let before = standing(&[applied("User")]);
    for (change, is_written) in [
        (
            &(|state: &mut LoopState| state.last_success = Some(now())) as &dyn Fn(&mut LoopState),
            false,
        ),
        (
            &|state| state.last_success = Some(Timestamp::from_second(1_700_000_060).unwrap()),
            false,
        ),
        (&waits, false),
        (
            &|state| {
                waits(state);
                state.is_writing = true;
            },
            true,
        ),
        (&|state| state.objects = 8, true),
        (
            &|state| state.contents.as_mut().unwrap().revision = "ba9876543210".to_owned(),
            true,
        ),
        (&fails, true),
        (
            &|state| {
                fails(state);
                waits(state);
            },
            true,
        ),
        (&refuses, true),
    ] {
        let mut state = applied("User");
        change(&mut state);
        let planned = plan(&before, "", &[state.clone()], None, later);
        assert_eq!(planned.is_some(), is_written, "{state:?}");
    }
}

#[test]
fn a_condition_that_becomes_another_is_told_once() {
    let before = standing(&[applied("User")]);
    let failing = [with("User", fails)];
    let planned = plan(&before, "", &failing, None, now()).unwrap();
    let reasons: Vec<_> = planned.notices.iter().map(|notice| notice.reason.clone()).collect();
    assert_eq!(reasons, ["ListFailed"]);
    let mut after = before;
    after.status = Some(planned.status);
    assert_eq!(plan(&after, "", &failing, None, now()), None);
    let mut other = failing;
    other[0].list_error = Some("another error".to_owned());
    let planned = plan(&after, "", &other, None, now()).unwrap();
    assert_eq!(planned.notices, [], "it still fails");
}

#[test]
fn what_is_held_is_named_with_what_to_do() {
    let held = standing(&[with("User", holds(HoldReason::MostObjects))]);
    let message = &held.condition(HELD).unwrap().message;
    assert!(
        message.contains("2 of 7 User") && message.contains("(revision 0123456789ab)"),
        "{message}"
    );
    let status = held.status.unwrap();
    let held = status.kinds[0].held.as_ref().unwrap();
    assert_eq!(
        (held.objects, &*held.revision, held.names.join(" ")),
        (2, REVISION, "a b".to_owned())
    );
    let unreadable = standing(&[with("User", holds(HoldReason::Unreadable))]);
    let message = &unreadable.condition(HELD).unwrap().message;
    assert!(message.contains("Correct it in the cloud"), "{message}");
    let adds = standing(&[with("User", |state| {
        holds(HoldReason::MostObjects)(state);
        let additions = &mut state.held.as_mut().unwrap().0.additions;
        additions.new = ["c", "d"].map(Key::new).into();
        additions.changed = [Key::new("e")].into();
    })]);
    let message = &adds.condition(HELD).unwrap().message;
    assert!(
        message.contains("2 of 7 User would be deleted, and 3 added, held since"),
        "{message}"
    );
    let status = adds.status.unwrap();
    let held = status.kinds[0].held.as_ref().unwrap();
    assert_eq!((held.objects, held.additions), (2, 3));
}

#[test]
fn the_event_of_what_is_held_has_the_command_that_releases_it() {
    let holding = |kind| with(kind, holds(HoldReason::Unrecorded));
    let mut before = standing(&[applied("Plugin"), applied("User")]);
    for (loops, kind) in [
        ([applied("Plugin"), holding("User")], Some("User")),
        ([holding("Plugin"), holding("User")], Some("Plugin")),
        ([applied("Plugin"), holding("User")], None),
    ] {
        let planned = plan(&before, "", &loops, None, now()).unwrap();
        let notes: Vec<String> = planned.notices.iter().map(|notice| notice.note.clone()).collect();
        match kind {
            Some(kind) => {
                let words = [
                    format!("2 of 7 {kind} would be deleted, which the record of deletions in the cloud does not name"),
                    "held since 2023-11-14T22:13:20Z".to_owned(),
                    format!("`tidewaiter release {kind}` (revision {REVISION})"),
                ];
                let is_it = |note: &String| words.iter().all(|words| note.contains(words));
                assert!(notes.iter().any(is_it), "{words:?}: {notes:?}");
            }
            None => assert_eq!(notes, [""; 0]),
        }
        before.status = Some(planned.status);
    }
}

#[test]
fn what_else_is_held_is_written_at_once_and_says_what_was_deleted_before() {
    let held = |counted| {
        with("User", move |state| {
            holds(HoldReason::MostObjects)(state);
            state.held.as_mut().unwrap().0.counted = counted;
        })
    };
    let mut before = standing(&[held(0)]);
    let planned = plan(&before, "", &[held(4)], None, now()).unwrap();
    assert!(planned.changes_hold && planned.notices.is_empty(), "{planned:?}");
    let told = &planned.status.kinds[0].held.as_ref().unwrap().reason;
    assert!(told.ends_with("4 deleted before included"), "{told}");
    let message = &planned.status.conditions[1].message;
    assert!(message.contains("after 4 that were deleted"), "{message}");
    before.status = Some(planned.status);
    let mut other = held(4);
    other.contents.as_mut().unwrap().revision = "ba9876543210".to_owned();
    assert!(plan(&before, "", &[other], None, now()).unwrap().changes_hold);
    let mut counted = held(4);
    counted.objects += 1;
    let planned = plan(&before, "", &[counted], None, now()).unwrap();
    assert!(!planned.changes_hold, "only a count is another one");
    assert!(plan(&before, "", &[applied("User")], None, now()).unwrap().changes_hold);
}

#[test]
fn a_release_ends_with_its_use() {
    let holding = || with("User", holds(HoldReason::MostObjects));
    let other = || {
        let mut state = with("Plugin", holds(HoldReason::MostObjects));
        state.contents.as_mut().unwrap().revision = "ba9876543210".to_owned();
        state
    };
    for (annotated, loops, expected) in [
        (None, vec![holding()], None),
        (Some(REVISION), vec![holding()], None),
        (Some(REVISION), vec![applied("User")], Some("ReleaseEnded")),
        (Some(REVISION), vec![applied("User"), other()], Some("ReleaseEnded")),
        (Some("other"), vec![holding()], Some("ReleaseUnknown")),
        (Some("garbage"), vec![applied("User")], Some("ReleaseUnknown")),
        (Some(REVISION), vec![applied("User"), with("Plugin", waits)], None),
    ] {
        let found = release(annotated, &loops).map(|notice| notice.reason);
        assert_eq!(found.as_deref(), expected, "{annotated:?}");
    }
}

#[test]
fn a_response_that_is_late_is_told_and_until_then_nothing_is_written() {
    let waits_for = |seconds: u64| {
        with("Plugin", |state| {
            waits(state);
            state.waited = Duration::from_secs(seconds);
        })
    };
    let before = standing(&[applied("Plugin"), applied("User")]);
    for (loops, left) in [
        (vec![applied("User")], None),
        (vec![waits_for(0), applied("User")], Some(10)),
        (vec![waits_for(8), with("User", waits)], Some(2)),
        (vec![waits_for(10), with("User", waits)], None),
        (vec![with("User", fails)], None),
    ] {
        assert_eq!(patience(&before, &loops).map(|left| left.as_secs()), left, "{loops:?}");
        assert_eq!(patience(&empty(), &loops), None, "the first write waits for nothing");
    }
    let late = plan(&before, "", &[waits_for(10), with("User", waits)], None, now()).unwrap();
    assert_eq!(told(&late), "Synced=False/Waiting Held=False/NothingHeld");
    let message = &late.status.conditions[0].message;
    assert_eq!(message, "Plugin: listed, but not applied to the cluster yet");
    let missing = with("Plugin", |state| {
        waits(state);
        state.waited = Duration::from_mins(1);
        state.cache_error = Some(trouble(TroubleCause::Undefined));
    });
    let message = plan(&before, "", &[missing], None, now()).unwrap().status.conditions[0]
        .message
        .clone();
    assert_eq!(message, "Plugin: listed, but the cluster cannot be read: no such kind");
}

/// Agents remove keys that the mirror does not confirm for half a day.
#[test]
fn an_unchanged_status_is_written_again_after_an_hour() {
    let before = standing(&[applied("User")]);
    let written = before.status.as_ref().unwrap().kinds[0].last_success.unwrap();
    let after = |seconds| {
        let now = written + std::time::Duration::from_secs(seconds);
        let mut state = applied("User");
        state.last_success = Some(now);
        plan(&before, "", &[state], None, now)
    };
    assert_eq!(after(3_599), None);
    let again = after(3_600).unwrap();
    assert!(again.status.kinds[0].last_success > Some(written) && again.notices.is_empty());
}

#[test]
fn what_all_kinds_have_in_common_is_said_once() {
    let loops = ["Plugin", "Registry", "User"].map(|resource| with(resource, fails));
    let planned = plan(&empty(), "", &loops, None, now()).unwrap();
    assert_eq!(planned.status.conditions[0].message, "Plugin, Registry, User: refused");
}

#[test]
fn what_an_earlier_process_listed_and_held_stays_until_the_kind_is_listed() {
    let before = standing(&[applied("Plugin"), with("User", holds(HoldReason::MostObjects))]);
    let unlisted = |resource: &'static str| LoopState {
        resource: resource.into(),
        list_error: Some("refused".to_owned()),
        ..LoopState::default()
    };
    let planned = plan(&before, "", &[unlisted("Plugin"), unlisted("User")], None, now()).unwrap();
    assert_eq!(told(&planned), "Synced=False/ListFailed Held=True/DeletionsHeld");
    assert_eq!(planned.status.kinds, before.status.as_ref().unwrap().kinds);
    let planned = plan(&before, "", &[unlisted("Plugin"), applied("User")], None, now()).unwrap();
    assert_eq!(told(&planned), "Synced=False/ListFailed Held=False/NothingHeld");
    assert_eq!(planned.status.kinds[1].held, None);
}
