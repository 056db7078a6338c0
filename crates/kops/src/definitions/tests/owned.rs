//! The owners of label keys as files appear, change, break and disappear.

use std::collections::BTreeSet;

use super::*;
use crate::instance_group::GROUPS_FOLDER;

const OTHER_FILE: &str = "instancegroup/other";

/// The file of a worker group that defines one key.
fn other(key: &str) -> String {
    format!(
        "apiVersion: kops.k8s.io/v1alpha2\nkind: InstanceGroup\nmetadata: {{name: other}}\n\
         spec: {{role: Node, nodeLabels: {{{key}: x, kubernetes.io/os: x}}}}\n"
    )
}

fn groups_of(owned: &OwnedKeys, key: &str) -> Vec<String> {
    owned.groups_of(key).map(ToString::to_string).collect()
}

impl World {
    /// With two groups, after the first poll.
    async fn owned() -> Self {
        let world = Self::new();
        world.store.put(OTHER_FILE, &other("a"));
        assert!(world.definitions.owned_keys().await.is_complete());
        world.store.reads();
        world
    }

    async fn incomplete(&self) -> bool {
        let incomplete = !self.definitions.owned_keys().await.is_complete();
        let gauge = format!("tidewaiter_owned_keys_incomplete {}", i32::from(incomplete));
        assert!(self.metric(&gauge), "{gauge}");
        incomplete
    }
}

#[tokio::test]
async fn each_key_has_its_groups() {
    let world = World::owned().await;
    let owned = world.definitions.owned_keys().await;
    assert_eq!(groups_of(&owned, "a"), ["other"]);
    assert_eq!(groups_of(&owned, "example.com/team"), ["nodes-a"]);
    assert_eq!(groups_of(&owned, "kops.k8s.io/instancegroup"), ["nodes-a", "other"]);
    assert_eq!(groups_of(&owned, "node-role.kubernetes.io/node"), ["nodes-a", "other"]);
    assert_eq!(
        groups_of(&owned, "example.com/fleet"),
        [""; 0],
        "the Cluster's kubelets give it"
    );
    for key in ["kubernetes.io/os", "nobody's"] {
        assert_eq!(groups_of(&owned, key), [""; 0], "{key}");
        assert!(!owned.needs_proof(key), "{key}");
    }
    for key in [
        "a",
        "example.com/team",
        "example.com/fleet",
        "kops.k8s.io/instancegroup",
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/spot-worker",
    ] {
        assert!(owned.needs_proof(key), "{key}");
    }
    assert!(!owned.needs_proof("node.kubernetes.io/exclude-from-external-load-balancers"));
}

#[tokio::test]
async fn thousands_of_callers_cause_one_list_and_nothing_is_announced() {
    let world = World::new();
    world.store.held.send_replace(true);
    let callers = join_all((0..1_000).map(|_| world.definitions.owned_keys()));
    let release = async {
        world.store.held.send_replace(false);
    };
    let (found, ()) = join(callers, release).await;
    assert!(found.iter().all(|owned| owned.is_complete()));
    let mut reads = world.store.reads();
    reads.sort();
    let once = [CLUSTER_FILE, GROUPS_FOLDER, GROUP_FILE].map(|file| (file.to_owned(), false));
    assert_eq!(reads, once);
    assert_eq!(world.announced(), []);
}

#[tokio::test]
async fn a_poll_costs_one_list_and_a_conditional_read_of_each_group() {
    let world = World::owned().await;
    world.clock.advance(24 * 3600 * SECOND);
    world.definitions.refresh().await;
    let mut reads = world.store.reads();
    reads.sort();
    let expected = [
        (CLUSTER_FILE, true),
        (GROUPS_FOLDER, false),
        (GROUP_FILE, true),
        (OTHER_FILE, true),
    ];
    assert_eq!(reads, expected.map(|(file, known)| (file.to_owned(), known)));
    assert_eq!(world.announced(), []);
}

#[tokio::test]
async fn a_group_that_comes_changes_its_keys_or_goes_is_announced() {
    let world = World::owned().await;
    let group = || Changed::Group(name("other"));
    for (content, announced, groups) in [
        (Some(other("a").replace(": x", ": y")), vec![group()], ["other", ""]),
        (Some(other("b")), vec![group(), Changed::OwnedKeys], ["", "other"]),
        (None, vec![Changed::OwnedKeys], ["", ""]),
        (Some(other("a")), vec![Changed::OwnedKeys], ["other", ""]),
    ] {
        match &content {
            Some(content) => world.store.put(OTHER_FILE, content),
            None => world.store.fail(OTHER_FILE, Trouble::Missing),
        }
        world.definitions.refresh().await;
        assert_eq!(world.announced(), announced, "{content:?}");
        let owned = world.definitions.owned_keys().await;
        let found = ["a", "b"].map(|key| groups_of(&owned, key).concat());
        assert_eq!(found, groups, "{content:?}");
        assert!(!world.incomplete().await);
        world.definitions.refresh().await;
        assert_eq!(world.announced(), []);
    }
}

#[tokio::test]
async fn a_deleted_group_is_a_problem_only_while_it_has_a_node() {
    let world = World::owned().await;
    world.definitions.get(&name("other")).await.unwrap();
    let problems = async |has_node: bool| {
        world
            .definitions
            .poll(&|group: &InstanceGroupName| group.as_str() == "other" && has_node)
            .await;
        let problems = world.definitions.problems();
        assert!(world.metric(&format!("tidewaiter_state_store_problems {}", problems.len())));
        problems
            .into_iter()
            .map(|problem| problem.error.file().to_owned())
            .collect::<Vec<_>>()
    };
    world.store.fail(OTHER_FILE, Trouble::Missing);
    assert_eq!(problems(false).await, [OTHER_FILE], "it was requested a moment ago");
    world.clock.advance(61 * SECOND);
    assert_eq!(
        problems(true).await,
        [OTHER_FILE],
        "it has a Node, whose labels are still known"
    );
    assert!(world.definitions.get(&name("other")).await.is_ok());
    world.clock.advance(61 * SECOND);
    world.store.fail(GROUPS_FOLDER, Trouble::Unavailable);
    assert_eq!(problems(false).await, [OTHER_FILE], "the groups cannot be listed");
    world.store.files.lock().unwrap().remove(GROUPS_FOLDER);
    world.store.fail(GROUP_FILE, Trouble::Missing);
    assert_eq!(problems(false).await, [OTHER_FILE], "an empty folder is no cluster's");
    world.store.put(GROUP_FILE, NODES);
    assert_eq!(problems(false).await, [""; 0]);
    assert!(world.definitions.get(&name("other")).await.is_err(), "it is forgotten");
}

/// Somebody has emptied the bucket, or a lifecycle rule has. It answers well.
#[tokio::test]
async fn an_emptied_store_takes_no_label_away_and_is_a_problem() {
    let world = World::owned().await;
    let good = world.get().await.unwrap();
    // Both groups have Nodes.
    world.definitions.get(&name("other")).await.unwrap();
    world.store.files.lock().unwrap().clear();
    for _ in 0..10 {
        world.clock.advance(61 * SECOND);
        world.definitions.poll(&|_| true).await;
        assert_eq!(world.get().await.as_ref(), Ok(&good));
        assert!(world.incomplete().await);
        let owned = world.definitions.owned_keys().await;
        assert_eq!(groups_of(&owned, "a"), ["other"]);
        let problems = world.definitions.problems();
        let files: BTreeSet<&str> = problems.iter().map(|problem| problem.error.file()).collect();
        assert_eq!(files, BTreeSet::from([CLUSTER_FILE, GROUP_FILE, OTHER_FILE]));
    }
    // Which a verdict takes for unknown.
    assert_eq!(world.definitions.summaries().await.unwrap(), []);
}

#[tokio::test]
async fn a_group_that_was_never_good_makes_it_incomplete_and_one_that_broke_does_not() {
    let world = World::owned().await;
    world.store.put(OTHER_FILE, "spec: [");
    world.definitions.refresh().await;
    assert!(!world.incomplete().await, "the last good one stays");
    assert_eq!(world.announced(), []);
    world.store.put("instancegroup/third", "spec: [");
    world.definitions.refresh().await;
    assert!(world.incomplete().await);
    assert_eq!(world.announced(), [Changed::OwnedKeys]);
    assert_eq!(groups_of(&*world.definitions.owned_keys().await, "a"), ["other"]);
    world.store.fail("instancegroup/third", Trouble::Missing);
    world.definitions.refresh().await;
    assert!(!world.incomplete().await);
}

#[tokio::test]
async fn a_store_that_is_away_is_not_asked_about_every_group_at_the_first_look() {
    let world = World::new();
    for number in 0..100 {
        world
            .store
            .fail(&format!("instancegroup/g-{number}"), Trouble::Unavailable);
    }
    assert!(world.incomplete().await);
    assert!(world.store.reads().len() < 20);
}

#[tokio::test]
async fn what_cannot_be_listed_is_incomplete_until_it_was_once() {
    let world = World::new();
    world.store.fail(GROUPS_FOLDER, Trouble::Unavailable);
    world.get().await.unwrap();
    assert!(world.incomplete().await);
    let owned = world.definitions.owned_keys().await;
    assert_eq!(
        groups_of(&owned, "example.com/team"),
        ["nodes-a"],
        "groups in use are known"
    );
    world.store.fail(GROUPS_FOLDER, Trouble::Missing);
    world.definitions.refresh().await;
    assert!(!world.incomplete().await);
    assert_eq!(world.announced(), [Changed::OwnedKeys]);
    world.store.fail(GROUPS_FOLDER, Trouble::Unavailable);
    world.definitions.refresh().await;
    assert!(!world.incomplete().await, "the last good list stays");
    assert_eq!(world.announced(), []);

    let empty = World::new();
    empty.store.fail(GROUP_FILE, Trouble::Missing);
    assert!(empty.incomplete().await, "no cluster is without a group");
}
