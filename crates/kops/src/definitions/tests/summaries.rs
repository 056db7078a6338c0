//! The summaries of the Cluster and its groups as files appear, change and break, and their staleness.

use super::*;
use crate::definitions::polling::SECOND_READ;
use crate::instance_group::GROUPS_FOLDER;

const OTHER_FILE: &str = "instancegroup/other";
const OTHER: &str =
    "{apiVersion: kops.k8s.io/v1alpha2, kind: InstanceGroup, metadata: {name: other}, spec: {role: Bastion}}";

impl World {
    /// The groups by name, with their minimum sizes.
    async fn sizes(&self) -> Result<Vec<(String, Option<u32>)>, String> {
        let summaries = self.definitions.summaries().await.map_err(|error| error.to_string())?;
        Ok(summaries
            .into_iter()
            .map(|group| (group.name.to_string(), group.min_size))
            .collect())
    }

    fn stale(&self) -> Option<(String, u64)> {
        let stale = self.definitions.stale()?;
        let now = self.clock.shared().now();
        assert_eq!(now.duration_since(stale.since).unsigned_abs(), stale.age);
        Some((stale.error.to_string(), stale.age.as_secs()))
    }
}

#[tokio::test]
async fn labels_summaries_and_keys_come_from_one_read_of_each_file() {
    let world = World::new();
    world.store.put(OTHER_FILE, OTHER);
    let expected = [("nodes-a".to_owned(), Some(1)), ("other".to_owned(), None)];
    assert_eq!(world.sizes().await.unwrap(), expected);
    world.get().await.unwrap();
    world.definitions.cluster_summary().await.unwrap();
    world.definitions.owned_keys().await;
    assert_eq!(world.sizes().await.unwrap(), expected);
    let mut reads = world.store.reads();
    reads.sort();
    let once = [CLUSTER_FILE, GROUPS_FOLDER, GROUP_FILE, OTHER_FILE].map(|file| (file.to_owned(), false));
    assert_eq!(reads, once);
}

#[tokio::test]
async fn a_size_that_changes_is_seen_and_not_announced() {
    let world = World::new();
    world.sizes().await.unwrap();
    world.get().await.unwrap();
    world.store.put(GROUP_FILE, &nodes("minSize: 1", "minSize: 7"));
    world.definitions.refresh().await;
    assert_eq!(world.sizes().await.unwrap(), [("nodes-a".to_owned(), Some(7))]);
    assert_eq!(world.announced(), []);
    let cluster = CLUSTER.replace("zone: us-test-1a", "zone: us-test-1b");
    world.store.put(CLUSTER_FILE, &cluster);
    world.definitions.refresh().await;
    let summary = world.definitions.cluster_summary().await.unwrap();
    assert_eq!(summary.zones, ["us-test-1b".to_owned()].into());
    assert_eq!(world.announced(), []);
}

#[tokio::test]
async fn a_summary_that_is_wrong_is_named_and_costs_no_labels() {
    let world = World::new();
    world.store.put(GROUP_FILE, &nodes("minSize: 1", "minSize: few"));
    world.store.put(
        CLUSTER_FILE,
        &CLUSTER.replace("cloudProvider: aws", "cloudProvider: moon"),
    );
    let error = world.sizes().await.unwrap_err();
    assert!(
        error.starts_with("instancegroup/nodes-a: spec.minSize: is \"few\""),
        "{error}"
    );
    let error = world.definitions.cluster_summary().await.unwrap_err().to_string();
    assert!(
        error.starts_with("cluster-completed.spec: spec.cloudProvider: is \"moon\""),
        "{error}"
    );
    assert_eq!(world.team().await, "data");
    assert_eq!(world.stale(), None);
    world.store.put(GROUP_FILE, NODES);
    world.definitions.refresh().await;
    assert_eq!(world.sizes().await.unwrap(), [("nodes-a".to_owned(), Some(1))]);
}

#[tokio::test]
async fn groups_that_are_not_all_known_are_an_error_and_an_empty_folder_is_none() {
    let world = World::new();
    world.store.fail(GROUPS_FOLDER, Trouble::Unavailable);
    let error = world.sizes().await.unwrap_err();
    assert!(
        error.starts_with("instancegroup: the state store does not return"),
        "{error}"
    );
    world.store.fail(GROUPS_FOLDER, Trouble::Missing);
    world.store.fail(OTHER_FILE, Trouble::Denied);
    world.definitions.refresh().await;
    let error = world.sizes().await.unwrap_err();
    assert!(
        error.starts_with("instancegroup/other: the state store denies access"),
        "{error}"
    );
    for file in [GROUP_FILE, OTHER_FILE] {
        world.store.fail(file, Trouble::Missing);
    }
    world.definitions.refresh().await;
    assert_eq!(world.sizes().await.unwrap(), []);
    assert_eq!(World::new().stale(), None);
}

#[tokio::test]
async fn a_group_that_was_only_listed_is_read() {
    let world = World::new();
    world.sizes().await.unwrap();
    world.store.put(OTHER_FILE, OTHER);
    world.definitions.list_groups().await;
    assert_eq!(world.sizes().await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_cannot_be_read_any_more_is_stale_from_the_first_failure_on_in_whatever_words() {
    for (file, trouble) in [
        (GROUPS_FOLDER, Trouble::Unavailable),
        (GROUP_FILE, Trouble::Unavailable),
        (CLUSTER_FILE, Trouble::Unavailable),
    ] {
        let world = World::new();
        world.sizes().await.unwrap();
        world.definitions.cluster_summary().await.unwrap();
        assert_eq!(world.stale(), None, "{file}");
        world.store.fail(file, trouble);
        world.definitions.refresh().await;
        let (error, age) = world.stale().expect("it is stale");
        assert!(error.starts_with(&format!("{file}: ")) && age == 0, "{error} {age}");
        world.clock.advance(60 * SECOND);
        if file != GROUPS_FOLDER {
            world.store.put(file, "spec: [");
        }
        world.definitions.refresh().await;
        world.clock.advance(60 * SECOND);
        let (later, age) = world.stale().expect("it is stale");
        assert_eq!((later != error, age), (file != GROUPS_FOLDER, 120), "{later}");
        assert!(world.sizes().await.is_ok(), "what was good last is in force");
        world.store.fail(GROUPS_FOLDER, Trouble::Missing);
        world.store.put(GROUP_FILE, NODES);
        world.store.put(CLUSTER_FILE, CLUSTER);
        world.definitions.refresh().await;
        assert_eq!(world.stale(), None, "{file}");
    }
}

#[tokio::test]
async fn a_group_that_was_never_good_or_is_gone_makes_nothing_stale() {
    let world = World::new();
    world.store.put(OTHER_FILE, "spec: [");
    assert!(world.sizes().await.is_err());
    world.definitions.refresh().await;
    assert_eq!(world.stale(), None);
    world.store.put(OTHER_FILE, OTHER);
    world.definitions.refresh().await;
    assert!(world.sizes().await.is_ok());
    world.definitions.group(&name("other"));
    world.store.fail(OTHER_FILE, Trouble::Missing);
    world.definitions.refresh().await;
    assert_eq!(world.stale(), None);
    assert_eq!(world.sizes().await.unwrap().len(), 1);
}

/// Some stores show a file while it is written, so one read alone proves no damage.
#[tokio::test]
async fn a_file_is_damaged_when_two_reads_in_a_row_find_it_invalid() {
    let few = nodes("minSize: 1", "minSize: few");
    for (file, whole, half) in [
        (GROUP_FILE, NODES, "spec: ["),
        (CLUSTER_FILE, CLUSTER, "spec: ["),
        (GROUP_FILE, NODES, few.as_str()),
    ] {
        let world = World::new();
        world.sizes().await.unwrap();
        world.get().await.unwrap();
        let damage = || world.definitions.damage().map(|error| error.file().to_owned());
        let changed = || world.definitions.damage_changed().now_or_never().is_some();
        world.store.put(file, half);
        let running = world.definitions.clone().run(pending(), |_| true, |_| ());
        let mut running = pin!(running);
        let mut pass = |time| {
            world.clock.advance(time);
            for _ in 0..10 {
                assert!(running.as_mut().now_or_never().is_none());
            }
        };
        pass(Duration::ZERO);
        pass(DefinitionsSettings::default().poll * 2);
        assert_eq!((damage(), changed()), (None, false), "{file}: it may be half written");
        pass(SECOND_READ * 2);
        assert_eq!((damage(), changed()), (Some(file.to_owned()), true), "{file}");
        world.store.fail(file, Trouble::Unavailable);
        world.definitions.refresh().await;
        assert_eq!(damage(), Some(file.to_owned()), "{file}: an outage repairs nothing");
        assert_eq!(world.team().await, "data", "{file}: the labels stay");
        world.store.put(file, whole);
        world.definitions.refresh().await;
        assert_eq!((damage(), changed()), (None, true), "{file}");
        // One that is whole at the second read was never damaged.
        for content in [half, whole] {
            world.store.put(file, content);
            world.definitions.refresh().await;
            assert_eq!((damage(), changed()), (None, false), "{file}");
        }
    }
}
