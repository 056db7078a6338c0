//! Random histories of a small cluster. The controller's own parts run in it (what a Node claims, the definitions with their
//! last good versions, the census of forgeries, the plan, the writer) against an API server, a cloud and a state store that
//! can be late, wrong or broken, from caches that lag behind, in a process that dies between any two writes.
//!
//! What must hold at each write: a label comes only to a Node that is the instance it claims to be and was proven in this very
//! pass; only what the record holds, a role, or with `foreignLabels: remove` what groups define goes from it; a Node that is not
//! proven loses something only in quarantine, which is for a forged Node that was never verified, once all were judged, and not
//! while more than a tenth are forged. When the cloud answers again, the files are whole and the caches have caught up, every
//! proven Node has exactly the labels of its definition and no startup taint, what others set stays, and then nothing is written
//! any more. A history that fails is printed as the arguments of [`play`] that repeat it.

mod api_server;
mod state_store;
mod world;

use proptest::prelude::*;

use super::*;
use Cloud::*;
use Step::*;
use state_store::Broken::{self, *};
use world::World;

/// So many instances, and so many Nodes that can be; the one of a number is the other of that number.
const SIZE: usize = 3;
const GROUPS: [(&str, &str); 2] = [("nodes", "Node"), ("masters", "Master")];
/// What groups define, and at the end what they do not: the persons' own.
const KEYS: [&str; 3] = ["a", "b", "mine"];
/// What persons and kubelets set: those, the name of a group and the role of the control plane.
const SET: [&str; 5] = ["a", "b", "mine", "kops.k8s.io/instancegroup", CONTROL_PLANE];
const VALUES: [&str; 3] = ["1", "2", "3"];

/// One thing that happens. Numbers stand for themselves modulo whatever there is of the kind.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The Node registers, anew if it was there, and claims an instance; none, or junk, with a number that no instance has.
    Register { node: usize, claims: usize, tainted: bool },
    /// The Node is deleted.
    Delete { node: usize },
    /// The garbage collector takes the records whose Nodes are gone.
    Collect,
    /// The cloud says another group of an instance from now on.
    Move { instance: usize, group: usize },
    /// An instance stops, or runs again.
    Run { instance: usize, runs: bool },
    /// A group's file gains, changes or loses a label, never the persons' own; and is whole.
    Define {
        group: usize,
        key: usize,
        value: Option<usize>,
    },
    /// A file of the state store, a group's or the Cluster's, can no longer be used.
    Break { file: usize, broken: Broken },
    /// The controller looks at all files once more.
    Poll,
    /// A person, or a kubelet, sets a label.
    Set { node: usize, key: usize, value: usize },
    /// A person's own taint comes, or goes.
    Taint { node: usize, comes: bool },
    /// The caches catch up.
    Deliver { nodes: bool, records: bool },
    /// The cloud answers about a Node, and the pass that asked comes later.
    Ask { node: usize, cloud: Cloud },
    /// The controller looks at a Node, with the answer that has come if there is one. It dies after so many writes, and another
    /// one with the same caches follows.
    Pass {
        node: usize,
        cloud: Cloud,
        dies_after: Option<u8>,
    },
    /// It is started anew, with these settings.
    Restart { removes: bool, quarantines: bool },
}

/// What the cloud answers.
#[derive(Clone, Copy, Debug)]
enum Cloud {
    /// The truth, as it is now.
    Truth,
    /// What was answered the last time for this very Node, from memory.
    Kept,
    /// The truth, but for the group.
    Mistaken {
        group: usize,
    },
    /// That the instance is another cluster's: the Node would be forged.
    Elsewhere,
    /// That there is no such instance.
    Denial,
    Throttled,
    Unreachable,
}

const WHOLE: Step = passes(0);
const FRESH: Step = Deliver {
    nodes: true,
    records: true,
};

/// A whole pass over a Node with the truth.
const fn passes(node: usize) -> Step {
    Pass {
        node,
        cloud: Truth,
        dies_after: None,
    }
}

/// Plays a history to its end.
fn play(removes: bool, quarantines: bool, steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(removes, quarantines);
        for step in steps {
            world.step(*step).await;
        }
        world.settle().await;
    });
}

/// With every setting.
fn play_all(steps: &[Step]) {
    for (removes, quarantines) in [(false, false), (false, true), (true, false), (true, true)] {
        play(removes, quarantines, steps);
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let (node, instance, group) = (0..SIZE, 0..SIZE, 0..GROUPS.len());
    let cloud = prop_oneof![
        8 => Just(Truth),
        2 => Just(Kept),
        1 => (0..GROUPS.len()).prop_map(|group| Mistaken { group }),
        1 => Just(Elsewhere),
        1 => Just(Denial),
        1 => Just(Throttled),
        1 => Just(Unreachable),
    ];
    let broken = prop_oneof![Just(Garbage), Just(Missing), Just(Away)];
    let dies_after = prop_oneof![3 => Just(None), 1 => (0..3_u8).prop_map(Some)];
    prop_oneof![
        3 => (node.clone(), 0..SIZE + 2, any::<bool>(), any::<bool>()).prop_map(|(node, other, honest, tainted)| Register {
            node,
            claims: if honest { node } else { other },
            tainted,
        }),
        1 => node.clone().prop_map(|node| Delete { node }),
        1 => Just(Collect),
        1 => (instance.clone(), group.clone()).prop_map(|(instance, group)| Move { instance, group }),
        1 => (instance, any::<bool>()).prop_map(|(instance, runs)| Run { instance, runs }),
        3 => (group, 0..KEYS.len(), proptest::option::of(0..VALUES.len()))
            .prop_map(|(group, key, value)| Define { group, key, value }),
        1 => (0..=GROUPS.len(), broken).prop_map(|(file, broken)| Break { file, broken }),
        2 => Just(Poll),
        3 => (node.clone(), 0..SET.len(), 0..VALUES.len()).prop_map(|(node, key, value)| Set { node, key, value }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, comes)| Taint { node, comes }),
        6 => (any::<bool>(), any::<bool>()).prop_map(|(nodes, records)| Deliver { nodes, records }),
        1 => (node.clone(), cloud.clone()).prop_map(|(node, cloud)| Ask { node, cloud }),
        12 => (node, cloud, dies_after).prop_map(|(node, cloud, dies_after)| Pass { node, cloud, dies_after }),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(removes, quarantines)| Restart { removes, quarantines }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_ends_as_the_definitions_say(
        removes in any::<bool>(),
        quarantines in any::<bool>(),
        steps in proptest::collection::vec(any_step(), 1..40),
    ) {
        play(removes, quarantines, &steps);
    }
}

#[test]
fn a_key_that_a_dead_process_set_leaves_with_its_definition() {
    let gone = Define {
        group: 0,
        key: 0,
        value: None,
    };
    for dies_after in 0..3 {
        let dies = Pass {
            node: 0,
            cloud: Truth,
            dies_after: Some(dies_after),
        };
        play_all(&[dies, gone]);
        play_all(&[WHOLE, FRESH, gone, Poll, dies]);
    }
}

#[test]
fn a_key_that_the_cache_does_not_show_yet_leaves_with_its_definition() {
    let defines = |value| Define {
        group: 0,
        key: 1,
        value,
    };
    let deliver = |nodes| Deliver { nodes, records: true };
    let labelled = [WHOLE, deliver(true), defines(Some(0)), Poll, WHOLE];
    let forgotten = [deliver(false), defines(None), Poll, WHOLE];
    play_all(&[&labelled[..], &forgotten[..]].concat());
}

#[test]
fn a_key_that_we_gave_up_is_anybodys() {
    let gone = Define {
        group: 0,
        key: 0,
        value: None,
    };
    let theirs = Set {
        node: 0,
        key: 0,
        value: 2,
    };
    // The process knows what it has written itself; the one that follows it does not.
    let last = Pass {
        node: 0,
        cloud: Truth,
        dies_after: Some(9),
    };
    let deliver = |records| Deliver { nodes: true, records };
    for gives_up in [WHOLE, last] {
        play_all(&[WHOLE, FRESH, gone, Poll, gives_up, theirs, deliver(false), WHOLE]);
    }
}

#[test]
fn a_record_that_the_cache_does_not_show_yet_is_not_overwritten() {
    let defines = |key, value| Define { group: 0, key, value };
    let last = Pass {
        node: 0,
        cloud: Truth,
        dies_after: Some(9),
    };
    let labelled = [WHOLE, FRESH, defines(1, Some(0)), Poll, last];
    let only_the_node = Deliver {
        nodes: true,
        records: false,
    };
    // Whoever writes the record from what the cache shows forgets the key that is to go.
    let changed = [only_the_node, defines(1, None), defines(0, Some(1)), WHOLE];
    play_all(&[&labelled[..], &changed[..]].concat());
}
