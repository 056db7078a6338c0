use std::collections::BTreeSet;

use tidewaiter_kit::Key;

use super::*;
use crate::mirror::board::Contents;

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
        let keys: BTreeSet<Key> = ["a", "b"].into_iter().map(Key::new).collect();
        state.held = Some((Hold { keys, reason }, now()));
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

fn empty() -> CloudSync {
    CloudSync::new("cloud", tidewaiter_api::CloudSyncSpec {})
}

fn standing(loops: &[LoopState]) -> CloudSync {
    let mut object = empty();
    object.status = plan(&object, loops, now()).map(|plan| plan.status);
    object
}

fn told(plan: &Plan) -> String {
    let conditions = plan.status.conditions.iter();
    let conditions = conditions.map(|it| format!("{}={:?}/{}", it.type_, it.status, it.reason));
    conditions.collect::<Vec<_>>().join(" ")
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
        let plan = plan(&empty(), &loops, now()).unwrap();
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
        let planned = plan(&before, &[state.clone()], later);
        assert_eq!(planned.is_some(), is_written, "{state:?}");
    }
}

#[test]
fn a_condition_that_becomes_another_is_told_once() {
    let before = standing(&[applied("User")]);
    let failing = [with("User", fails)];
    let planned = plan(&before, &failing, now()).unwrap();
    let reasons: Vec<_> = planned.notices.iter().map(|notice| notice.reason.clone()).collect();
    assert_eq!(reasons, ["ListFailed"]);
    let mut after = before;
    after.status = Some(planned.status);
    assert_eq!(plan(&after, &failing, now()), None);
    let mut other = failing;
    other[0].list_error = Some("another error".to_owned());
    let planned = plan(&after, &other, now()).unwrap();
    assert_eq!(planned.notices, [], "it still fails");
}

#[test]
fn what_is_held_is_named_with_what_to_do() {
    let held = standing(&[with("User", holds(HoldReason::MostObjects))]);
    let message = &held.condition(HELD).unwrap().message;
    assert!(
        message.contains("2 of 7 User") && message.contains("cloudsync/cloud tidewaiter.dev/release=0123456789ab"),
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
}

#[test]
fn a_release_ends_with_its_use() {
    let holding = || with("User", holds(HoldReason::MostObjects));
    for (annotated, loops, expected) in [
        (None, vec![holding()], None),
        (Some(REVISION), vec![holding()], None),
        (Some(REVISION), vec![applied("User")], Some("ReleaseEnded")),
        (Some("other"), vec![holding()], Some("ReleaseUnknown")),
        (Some(REVISION), vec![applied("User"), with("Plugin", waits)], None),
    ] {
        let found = release(annotated, &loops).map(|notice| notice.reason);
        assert_eq!(found.as_deref(), expected, "{annotated:?}");
    }
}
