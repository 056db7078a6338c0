//! No wrong list of the cloud deletes what the cloud has, of any kind; what the cloud did delete goes at once.

use std::time::Duration;

use serde_json::{Value, json};
use tidewaiter_coordinator::mirror::MassDeletion;
use tidewaiter_testkit::every;

use crate::away::{is_settled, synced, synced_with};
use crate::objects::{KINDS, id};
use crate::replica::simulated;
use crate::role::INTERVAL;
use crate::settled::{check, differences};
use crate::world::{World, sleep};

/// The fault of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Empty,
    /// Less than half of the objects.
    Half,
    /// One object less with each response.
    OneByOne,
    AnotherCluster,
    Truncated,
    /// 304 with another list.
    NotModified,
    /// Empty and right in turn.
    Flapping,
    Null,
    /// No content, or a page, in turn.
    NoList,
    /// As many objects with other ids.
    Replaced,
    /// More objects with other ids: of a cloud that was filled again.
    Reseeded,
    /// One object in place of all.
    Duplicates,
}

const WRONG: [Wrong; 12] = [
    Wrong::Empty,
    Wrong::Half,
    Wrong::OneByOne,
    Wrong::AnotherCluster,
    Wrong::Truncated,
    Wrong::NotModified,
    Wrong::Flapping,
    Wrong::Null,
    Wrong::NoList,
    Wrong::Replaced,
    Wrong::Reseeded,
    Wrong::Duplicates,
];

/// The ids of objects of another cluster, and of those that replace others.
const OTHERS: usize = 1_000;

impl Wrong {
    /// The status and the body of the `nth` response in place of a list.
    pub fn response(self, list: &[Value], nth: usize) -> (u16, String) {
        // The pool of the Nodes is no group: it is in each list of the pools that is not empty.
        let is_group = |object: &&Value| object["autoscaling"]["enabled"] != json!(false);
        let (objects, others): (Vec<&Value>, Vec<&Value>) = list.iter().partition(is_group);
        let count = objects.len();
        let text = |objects: Vec<Value>| {
            let all: Vec<Value> = others.iter().map(|it| (*it).clone()).chain(objects).collect();
            json!(all).to_string()
        };
        let first = |count: usize| objects.iter().take(count).map(|it| (*it).clone()).collect::<Vec<_>>();
        let renamed = |from: usize| {
            let objects = objects.iter().enumerate().map(|(number, object)| {
                let mut object = (*object).clone();
                object["id"] = json!(id(from + number));
                object
            });
            objects.collect::<Vec<_>>()
        };
        let body = match self {
            Self::Half => text(first(count.saturating_sub(1) / 2)),
            Self::OneByOne => text(first(count.saturating_sub(nth % (count + 1)))),
            Self::AnotherCluster => {
                let mut objects = renamed(OTHERS);
                for object in &mut objects {
                    for field in ["organization_id", "cluster_id"] {
                        if !object[field].is_null() {
                            object[field] = json!(id(OTHERS));
                        }
                    }
                }
                text(objects)
            }
            Self::Truncated => {
                let whole = text(first(count));
                whole[..whole.len() / 2].to_owned()
            }
            Self::NotModified => return (304, "[]".to_owned()),
            Self::Flapping if nth.is_multiple_of(2) => text(first(count)),
            Self::Empty | Self::Flapping => "[]".to_owned(),
            Self::Null => "null".to_owned(),
            Self::NoList if nth.is_multiple_of(2) => return (204, String::new()),
            Self::NoList => "<html>log in</html>".to_owned(),
            Self::Replaced => text(renamed(OTHERS)),
            Self::Reseeded => text([renamed(OTHERS), renamed(2 * OTHERS)].concat()),
            Self::Duplicates => text(first(1).into_iter().cycle().take(count).collect()),
        };
        (200, body)
    }
}

/// The names of the resources of each kind that the cloud has.
fn present(world: &World, size: usize) -> Vec<(&'static str, usize)> {
    let resources = KINDS.iter().flat_map(|kind| kind.resources());
    let counts = resources.map(|(resource, _)| {
        let there = world.resources(resource);
        let named = |number: &usize| {
            let name = crate::objects::Kind::name(resource, *number);
            there.iter().any(|object| object["metadata"]["name"] == name)
        };
        (*resource, (0..size).filter(named).count())
    });
    counts.collect()
}

/// The cloud lists everything wrongly for longer than an interval, and then rightly again, without announcing it.
async fn wrong(answer: Wrong, size: usize, rule: MassDeletion) {
    let objects: Vec<(usize, usize)> = (0..size).map(|number| (number, 1)).collect();
    let world = synced_with(rule, &objects, 1).await;
    world.cloud.lock().wrong = Some(answer);
    for kind in KINDS {
        world.cloud.change(kind.changed(), |_| true);
    }
    sleep(INTERVAL * 3).await;
    let context = format!("{answer:?} of {size}, {rule:?}");
    for (resource, count) in present(&world, size) {
        assert_eq!(count, size, "{context}: {resource}");
    }
    world.cloud.lock().wrong = None;
    let took = world
        .until("as before", INTERVAL * 3, |world| differences(world).is_empty())
        .await;
    assert!(took <= INTERVAL * 3 / 2, "{context}: as before after {took:?}");
    world.until("settled", INTERVAL * 2, is_settled).await;
    check(&world);
    assert_eq!(world.invariants.violations(), [""; 0], "{context}");
}

/// Of each wrong list with each of these rules, those that [`every`] leaves, from this one on.
fn wrong_lists(size: usize, rules: &[MassDeletion], first: usize, nth: usize) {
    let all = rules.iter().flat_map(|rule| WRONG.map(|answer| (answer, *rule)));
    for (answer, rule) in all.skip(first % every(nth)).step_by(every(nth)) {
        simulated(11, wrong(answer, size, rule));
    }
}

const BOTH: [MassDeletion; 2] = [MassDeletion::Confirm, MassDeletion::Release];

#[test]
fn no_wrong_list_deletes_one_of_three() {
    wrong_lists(3, &BOTH, 0, 5);
}

#[test]
fn no_wrong_list_deletes_one_of_five() {
    wrong_lists(5, &BOTH, 1, 5);
}

#[test]
fn no_wrong_list_deletes_one_of_nine() {
    wrong_lists(9, &BOTH, 2, 5);
}

#[test]
fn no_wrong_list_deletes_one_of_a_hundred() {
    wrong_lists(100, &[MassDeletion::Release], 1, 6);
}

/// Another replica knows nothing of what the one before held.
#[test]
fn a_restart_while_deletions_are_held_deletes_nothing() {
    for answer in [Wrong::Empty, Wrong::OneByOne, Wrong::Replaced, Wrong::Reseeded] {
        simulated(12, async {
            let objects: Vec<(usize, usize)> = (0..9).map(|number| (number, 1)).collect();
            let world = synced(&objects, 2).await;
            world.cloud.lock().wrong = Some(answer);
            for _ in 0..3 {
                sleep(INTERVAL).await;
                world.leader().unwrap().process.kill();
                sleep(INTERVAL).await;
            }
            assert!(present(&world, 9).iter().all(|(_, count)| *count == 9), "{answer:?}");
            world.cloud.lock().wrong = None;
            world.until("settled", INTERVAL * 4, is_settled).await;
            check(&world);
            assert_eq!(world.invariants.violations(), [""; 0], "{answer:?}");
        });
    }
}

#[test]
fn the_last_objects_go_within_a_second_if_the_cloud_recorded_it() {
    for rule in BOTH {
        simulated(13, async {
            let world = synced_with(rule, &[(0, 1)], 1).await;
            // The record is older than the process.
            world.set_all(&[(1, 1)]);
            world
                .until("replaced", INTERVAL, |world| differences(world).is_empty())
                .await;
            sleep(INTERVAL * 2).await;
            world.set_all(&[]);
            let took = world
                .until("gone", INTERVAL, |world| differences(world).is_empty())
                .await;
            assert!(took <= Duration::from_secs(1), "{rule:?}: gone after {took:?}");
            world.until("settled", INTERVAL, is_settled).await;
            check(&world);
            assert_eq!(world.invariants.violations(), [""; 0], "{rule:?}");
        });
    }
}

#[test]
fn without_a_record_a_person_releases_the_last_objects() {
    for rule in BOTH {
        simulated(14, async {
            let world = synced_with(rule, &[(0, 1)], 1).await;
            world.cloud.lock().has_record = false;
            world.set_all(&[]);
            sleep(INTERVAL * 10).await;
            assert!(present(&world, 1).iter().all(|(_, count)| *count == 1), "{rule:?}");
            let syncs = world.resources("cloudsyncs");
            let conditions = syncs[0]["status"]["conditions"].as_array().unwrap().clone();
            let held = conditions.iter().find(|condition| condition["type"] == "Held").unwrap();
            let message = held["message"].as_str().unwrap();
            for words in [
                "held since",
                "without a record of deletions in the cloud",
                "`tidewaiter release Plugin`",
            ] {
                assert!(message.contains(words), "{words}: {message}");
            }
            // One kind after the other: each is shown as released at once.
            world.settles(INTERVAL * 2).await;
            check(&world);
            assert_eq!(world.invariants.violations(), [""; 0], "{rule:?}");
        });
    }
}
