use std::future::pending;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use tidewaiter_kit::ManualClock;
use tokio::sync::watch;

use super::polling::{AT_ONCE, AWAY};
use super::*;
use crate::document::LabelText;
use crate::store::{Etag, Read, StoreError};

const CLUSTER: &str = include_str!("../../fixtures/cluster-completed.spec");
const NODES: &str = include_str!("../../fixtures/instancegroup/nodes-a");
const GROUP_FILE: &str = "instancegroup/nodes-a";
const SECOND: Duration = Duration::from_secs(1);

/// A store whose files and failures are set by a test. The version of a file is its content.
#[derive(Debug)]
struct FakeStore {
    files: Mutex<BTreeMap<String, Result<String, Trouble>>>,
    reads: Mutex<Vec<(String, bool)>>,
    held: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Missing,
    Denied,
    Unavailable,
    TooLarge,
    NotModified,
}

impl FakeStore {
    fn new() -> Arc<Self> {
        let store = Self {
            files: Mutex::default(),
            reads: Mutex::default(),
            held: watch::Sender::new(false),
        };
        store.put(CLUSTER_FILE, CLUSTER);
        store.put(GROUP_FILE, NODES);
        Arc::new(store)
    }

    fn put(&self, file: &str, text: &str) {
        self.files.lock().unwrap().insert(file.to_owned(), Ok(text.to_owned()));
    }

    fn fail(&self, file: &str, trouble: Trouble) {
        self.files.lock().unwrap().insert(file.to_owned(), Err(trouble));
    }

    /// The reads since the last call: the file, and whether the read was conditional.
    fn reads(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }
}

#[async_trait]
impl ReadFile for FakeStore {
    async fn read(&self, file: &str, known: Option<&Etag>) -> Result<Read, StoreError> {
        self.reads.lock().unwrap().push((file.to_owned(), known.is_some()));
        self.held.subscribe().wait_for(|held| !held).await.unwrap();
        let answer = self
            .files
            .lock()
            .unwrap()
            .get(file)
            .cloned()
            .unwrap_or(Err(Trouble::Missing));
        let (file, detail) = (file.to_owned(), "as the test says".to_owned());
        match answer {
            Ok(text) if known.is_some_and(|known| known.0 == text) => Ok(Read::NotModified),
            Ok(text) => Ok(Read::Found {
                bytes: Bytes::from(text.clone()),
                etag: Some(Etag(text)),
            }),
            Err(Trouble::Missing) => Err(StoreError::Missing { file, detail }),
            Err(Trouble::Denied) => Err(StoreError::Denied { file, detail }),
            Err(Trouble::Unavailable) => Err(StoreError::Unavailable { file, detail }),
            Err(Trouble::TooLarge) => Err(StoreError::TooLarge { file }),
            Err(Trouble::NotModified) => Ok(Read::NotModified),
        }
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        self.reads.lock().unwrap().push((folder.to_owned(), false));
        self.held.subscribe().wait_for(|held| !held).await.unwrap();
        let files = self.files.lock().unwrap();
        if files.get(folder) == Some(&Err(Trouble::Unavailable)) {
            return Err(StoreError::Unavailable {
                file: folder.to_owned(),
                detail: "as the test says".to_owned(),
            });
        }
        let there = files.iter().filter(|(_, content)| **content != Err(Trouble::Missing));
        let names = there.filter_map(|(file, _)| file.strip_prefix(folder)?.strip_prefix('/'));
        Ok(names.map(str::to_owned).collect())
    }
}

struct World {
    store: Arc<FakeStore>,
    clock: ManualClock,
    metrics: Metrics,
    definitions: Definitions,
}

impl World {
    fn new() -> Self {
        let (store, clock) = (FakeStore::new(), ManualClock::default());
        let metrics = Metrics::new(&clock.shared()).unwrap();
        let definitions = Definitions::new(
            Arc::clone(&store) as _,
            "cluster.example.com".parse().unwrap(),
            DefinitionsSettings::default(),
            clock.shared(),
            &metrics,
        );
        Self {
            store,
            clock,
            metrics,
            definitions: definitions.unwrap(),
        }
    }

    /// With both files read.
    async fn warm() -> Self {
        let world = Self::new();
        world.get().await.unwrap();
        world.store.reads();
        world
    }

    async fn get(&self) -> Result<Arc<Definition>, DefinitionError> {
        self.definitions.get(&name("nodes-a")).await
    }

    async fn team(&self) -> String {
        match &self.get().await.unwrap().group.node_labels.entries["example.com/team"] {
            LabelText::Text(team) => team.clone(),
            LabelText::NotText(other) => panic!("{other}"),
        }
    }

    fn announced(&self) -> Vec<Changed> {
        self.definitions
            .0
            .shared
            .announcements
            .next()
            .now_or_never()
            .unwrap_or_default()
            .into_iter()
            .collect()
    }

    fn problem(&self) -> String {
        match &self.definitions.problems()[..] {
            [problem] => problem.error.to_string(),
            other => panic!("one problem, not {other:?}"),
        }
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.encode().unwrap().lines().any(|found| found == line)
    }
}

/// Fails instead of waiting forever.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(30 * SECOND, future).await.expect("it comes")
}

fn name(text: &str) -> InstanceGroupName {
    text.parse().unwrap()
}

fn nodes(from: &str, to: &str) -> String {
    assert!(NODES.contains(from), "{from}");
    NODES.replace(from, to)
}

#[tokio::test]
async fn thousands_of_callers_cause_one_read_of_each_file() {
    let world = World::new();
    world.store.held.send_replace(true);
    let callers = join_all((0..5_000).map(|_| world.get()));
    let release = async {
        world.store.held.send_replace(false);
    };
    let (found, ()) = join(callers, release).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(
        world.store.reads(),
        [(CLUSTER_FILE.to_owned(), false), (GROUP_FILE.to_owned(), false)]
    );
    world.get().await.unwrap();
    assert_eq!(world.store.reads(), [], "from memory");
    assert_eq!(world.announced(), [], "nobody was told anything else before");
}

#[tokio::test]
async fn thousands_of_callers_of_a_store_that_is_away_cause_one_read_until_the_backoff_is_over() {
    let world = World::new();
    world.store.fail(GROUP_FILE, Trouble::Unavailable);
    for found in join_all((0..1_000).map(|_| world.get())).await {
        assert!(found.unwrap_err().is_transient());
    }
    assert_eq!(world.store.reads().len(), 2);
    for wait in [SECOND, 2 * SECOND, 4 * SECOND] {
        world.clock.advance(wait * 49 / 100);
        world.get().await.unwrap_err();
        assert_eq!(world.store.reads(), [], "not before half of {wait:?}");
        world.clock.advance(wait * 51 / 100);
        join_all((0..10).map(|_| world.get())).await;
        assert_eq!(world.store.reads(), [(GROUP_FILE.to_owned(), false)], "after {wait:?}");
    }
    world.store.put(GROUP_FILE, NODES);
    world.clock.advance(60 * SECOND);
    world.get().await.unwrap();
}

#[tokio::test]
async fn a_caller_that_goes_away_during_the_read_harms_nobody() {
    let world = World::new();
    world.store.held.send_replace(true);
    let mut first = world.get().boxed();
    assert!((&mut first).now_or_never().is_none());
    let second = world.get();
    drop(first);
    world.store.held.send_replace(false);
    second.await.unwrap();
}

#[tokio::test]
async fn an_unchanged_file_costs_one_conditional_read_a_poll() {
    let world = World::warm().await;
    for _ in 0..3 {
        world.definitions.refresh().await;
        let mut reads = world.store.reads();
        reads.sort();
        assert_eq!(reads, [(CLUSTER_FILE.to_owned(), true), (GROUP_FILE.to_owned(), true)]);
    }
    assert_eq!(world.announced(), []);
    assert!(world.metric("tidewaiter_state_store_reads_total{outcome=\"not_modified\"} 6"));
    assert!(world.metric("tidewaiter_state_store_reads_total{outcome=\"found\"} 2"));
}

#[tokio::test]
async fn nothing_is_polled_that_nobody_wanted() {
    let world = World::new();
    world.definitions.refresh().await;
    assert_eq!(world.store.reads(), []);
    assert_eq!(world.definitions.check(), Ok(()));
}

#[tokio::test]
async fn a_change_is_in_force_and_announced_once() {
    let world = World::warm().await;
    world.store.put(GROUP_FILE, &nodes("team: data", "team: web"));
    world.definitions.refresh().await;
    assert_eq!(world.team().await, "web");
    assert_eq!(world.announced(), [Changed::Group(name("nodes-a"))]);
    world
        .store
        .put(CLUSTER_FILE, &CLUSTER.replace("tier: workers", "tier: others"));
    world.definitions.refresh().await;
    assert_eq!(world.announced(), [Changed::Cluster], "which concerns every group");
    world.definitions.refresh().await;
    assert_eq!(world.announced(), []);
}

#[tokio::test]
async fn a_change_of_what_we_do_not_read_is_not_announced() {
    let world = World::warm().await;
    world.store.put(GROUP_FILE, &nodes("maxSize: 10", "maxSize: 11"));
    world.store.put(
        CLUSTER_FILE,
        &CLUSTER.replace("kubernetesVersion: 1.36.3", "kubernetesVersion: 1.36.4"),
    );
    world.definitions.refresh().await;
    assert_eq!(world.announced(), []);
    world.store.reads();
    world.definitions.refresh().await;
    assert!(
        world.metric("tidewaiter_state_store_reads_total{outcome=\"not_modified\"} 2"),
        "the new version is known"
    );
}

#[tokio::test]
async fn a_label_that_is_refused_now_is_a_change() {
    let world = World::warm().await;
    world.store.put(GROUP_FILE, &nodes("team: data", "team: true"));
    world.definitions.refresh().await;
    assert_eq!(world.announced(), [Changed::Group(name("nodes-a"))]);
    assert_eq!(
        world.definitions.problems(),
        [],
        "only one label is wrong, not the file"
    );
}

/// The possible states of a file, and the message for each.
fn troubles() -> Vec<(Result<String, Trouble>, &'static str)> {
    vec![
        (
            Err(Trouble::Missing),
            "instancegroup/nodes-a: is missing from the state store (as the test says)",
        ),
        (
            Err(Trouble::Denied),
            "instancegroup/nodes-a: the state store denies access (as the test says)",
        ),
        (
            Err(Trouble::Unavailable),
            "instancegroup/nodes-a: the state store does not return the file (as the test says)",
        ),
        (Err(Trouble::TooLarge), "instancegroup/nodes-a: is larger than 1 MiB"),
        (
            Ok("<html><body>Sign in</body></html>".to_owned()),
            "instancegroup/nodes-a: is HTML or XML, not YAML",
        ),
        (Ok(String::new()), "instancegroup/nodes-a: is empty"),
        (Ok("spec: [".to_owned()), "instancegroup/nodes-a: is not valid YAML: "),
        (
            Ok(nodes("  role: Node\n", "")),
            "instancegroup/nodes-a: spec.role: is missing: must be one of ControlPlane, ",
        ),
        (
            Ok(nodes("role: Node", "role: Worker")),
            "instancegroup/nodes-a: spec.role: is \"Worker\", must be one of ControlPlane, ",
        ),
        (
            Ok(nodes("  name: nodes-a", "  name: nodes-b")),
            "instancegroup/nodes-a: metadata.name: is \"nodes-b\", but the file belongs to group nodes-a",
        ),
    ]
}

#[tokio::test]
async fn whatever_becomes_of_a_file_the_last_good_one_stays_in_force() {
    for (trouble, said) in troubles() {
        let world = World::warm().await;
        let good = world.get().await.unwrap();
        world
            .store
            .files
            .lock()
            .unwrap()
            .insert(GROUP_FILE.to_owned(), trouble.clone());
        for _ in 0..2 {
            world.definitions.refresh().await;
            assert_eq!(world.get().await.as_ref(), Ok(&good), "{said}");
            assert!(world.problem().starts_with(said), "{}", world.problem());
        }
        assert!(world.definitions.problems()[0].last_good_in_force);
        assert!(world.metric("tidewaiter_state_store_problems 1"));
        world.store.put(GROUP_FILE, NODES);
        world.definitions.refresh().await;
        assert_eq!(world.definitions.problems(), [], "{said}");
        assert!(world.metric("tidewaiter_state_store_problems 0"));
        assert_eq!(world.announced(), [], "{said}: nothing changed for anybody");
        world.store.put(GROUP_FILE, &nodes("team: data", "team: web"));
        world.definitions.refresh().await;
        assert_eq!(world.team().await, "web", "{said}: and changes are seen again");
    }
}

#[tokio::test]
async fn a_definition_that_was_never_good_says_why_and_is_announced_when_it_is() {
    for (trouble, said) in troubles() {
        let world = World::new();
        let transient = trouble == Err(Trouble::Unavailable);
        world.store.files.lock().unwrap().insert(GROUP_FILE.to_owned(), trouble);
        let error = world.get().await.unwrap_err();
        assert!(error.to_string().starts_with(said), "{error}");
        assert_eq!((error.file(), error.is_transient()), (GROUP_FILE, transient));
        assert!(!world.definitions.problems()[0].last_good_in_force);
        assert!(world.metric("tidewaiter_state_store_problems 1"));
        world.store.put(GROUP_FILE, NODES);
        world.definitions.refresh().await;
        assert_eq!(world.announced(), [Changed::Group(name("nodes-a"))], "{said}");
        world.get().await.unwrap();
    }
}

#[tokio::test]
async fn a_cluster_that_was_never_good_fails_every_group_and_readiness() {
    let world = World::new();
    world.store.put(
        CLUSTER_FILE,
        &CLUSTER.replace("  name: cluster.example.com", "  name: other.example.com"),
    );
    let error = world.get().await.unwrap_err();
    let said = "cluster-completed.spec: metadata.name: is \"other.example.com\", but clusterName of the configuration is cluster.example.com";
    assert_eq!(
        (error.to_string().as_str(), error.reason()),
        (said, "DefinitionInvalid")
    );
    assert_eq!(world.definitions.check(), Err(said.to_owned()));
    world.store.put(CLUSTER_FILE, CLUSTER);
    world.clock.advance(60 * SECOND);
    world.get().await.unwrap();
    assert_eq!(
        world.announced(),
        [Changed::Cluster],
        "a caller's own read is announced to the others"
    );
    assert_eq!(world.definitions.check(), Ok(()));
    world.store.fail(CLUSTER_FILE, Trouble::Unavailable);
    world.definitions.refresh().await;
    assert_eq!(world.definitions.check(), Ok(()), "the last good one does");
}

#[tokio::test]
async fn a_required_cluster_is_not_ready_until_it_has_been_read_which_a_run_begins_with() {
    for (trouble, said) in [
        (None, Ok(())),
        (
            Some(Trouble::Missing),
            Err("cluster-completed.spec: is missing from the state store (as the test says)".to_owned()),
        ),
    ] {
        let world = World::new();
        if let Some(trouble) = trouble {
            world.store.fail(CLUSTER_FILE, trouble);
        }
        world.definitions.require_cluster();
        let unread = "cluster-completed.spec: not read yet";
        assert_eq!(world.definitions.check(), Err(unread.to_owned()));
        let mut run = Box::pin(world.definitions.clone().run(pending(), |_| true, |_| ()));
        assert!(run.as_mut().now_or_never().is_none());
        assert_eq!(world.definitions.check(), said);
        assert_eq!(world.store.reads(), [(CLUSTER_FILE.to_owned(), false)]);
        let problems = i32::from(trouble.is_some());
        assert!(world.metric(&format!("tidewaiter_state_store_problems {problems}")));
    }
}

#[tokio::test]
async fn a_change_is_announced_though_the_caller_that_read_it_goes_away() {
    let world = World::new();
    world.store.fail(GROUP_FILE, Trouble::Missing);
    world.store.fail(CLUSTER_FILE, Trouble::Missing);
    world.get().await.unwrap_err();
    world.store.put(GROUP_FILE, NODES);
    world.clock.advance(60 * SECOND);
    // The caller is dropped after the group is read.
    let tracked = world.definitions.group(&name("nodes-a"));
    drop(tracked.get().now_or_never());
    assert_eq!(world.announced(), [Changed::Group(name("nodes-a"))]);
}

#[tokio::test]
async fn a_broken_version_is_read_once_and_what_is_wrong_with_it_outlives_an_outage() {
    let world = World::warm().await;
    world.store.put(GROUP_FILE, "spec: [");
    world.definitions.refresh().await;
    world.store.reads();
    world.definitions.refresh().await;
    assert!(world.store.reads().iter().all(|(_, conditional)| *conditional));
    assert!(
        world.metric("tidewaiter_state_store_reads_total{outcome=\"found\"} 3"),
        "two first ones and the broken one"
    );
    world.store.fail(GROUP_FILE, Trouble::Unavailable);
    world.definitions.refresh().await;
    assert!(world.problem().contains("does not return"), "{}", world.problem());
    world.store.put(GROUP_FILE, "spec: [");
    world.definitions.refresh().await;
    assert!(world.problem().contains("is not valid YAML"), "{}", world.problem());
    assert_eq!(world.team().await, "data");
}

#[tokio::test]
async fn a_problem_says_since_when() {
    let world = World::warm().await;
    let start = world.clock.shared().now();
    world.store.fail(GROUP_FILE, Trouble::Missing);
    world.definitions.refresh().await;
    for _ in 0..3 {
        world.clock.advance(30 * SECOND);
        world.definitions.refresh().await;
        assert_eq!(world.definitions.problems()[0].since, start);
    }
    world.store.fail(GROUP_FILE, Trouble::Denied);
    world.definitions.refresh().await;
    assert_eq!(world.definitions.problems()[0].since, world.clock.shared().now());
}

#[tokio::test]
async fn a_store_that_is_away_is_not_asked_about_every_file() {
    let world = World::new();
    for n in 0..100 {
        world.store.fail(&format!("instancegroup/g-{n}"), Trouble::Missing);
        world.definitions.get(&name(&format!("g-{n}"))).await.unwrap_err();
    }
    for n in 0..100 {
        world.store.fail(&format!("instancegroup/g-{n}"), Trouble::Unavailable);
    }
    world.store.fail(CLUSTER_FILE, Trouble::Unavailable);
    world.store.reads();
    let mut asked = BTreeMap::new();
    for _ in 0..100 {
        world.definitions.refresh().await;
        let reads = world.store.reads();
        assert!(reads.len() < AWAY + AT_ONCE, "{}", reads.len());
        for (file, _) in reads {
            *asked.entry(file).or_insert(0) += 1;
        }
    }
    assert!(asked.len() > 50, "not always the same files: {}", asked.len());
}

#[tokio::test]
async fn a_group_that_nobody_asks_for_is_no_longer_read() {
    let world = World::warm().await;
    world.clock.advance(world.definitions.0.settings.unused_after);
    world.definitions.refresh().await;
    assert_eq!(world.store.reads().len(), 2, "not yet");
    world.clock.advance(SECOND);
    world.definitions.refresh().await;
    assert_eq!(world.store.reads(), [(CLUSTER_FILE.to_owned(), true)]);
    world.get().await.unwrap();
    assert_eq!(world.store.reads(), [(GROUP_FILE.to_owned(), false)]);
}

#[tokio::test]
async fn a_store_that_says_not_modified_of_what_it_never_gave_is_away() {
    let world = World::new();
    world.store.fail(GROUP_FILE, Trouble::NotModified);
    assert!(world.get().await.unwrap_err().is_transient());
    assert_eq!(world.store.reads().len(), 2);
    world.get().await.unwrap_err();
    assert_eq!(world.store.reads(), []);
}

#[tokio::test]
async fn runs_until_it_is_stopped_polling_and_announcing() {
    let world = World::warm().await;
    let told = Mutex::new(Vec::new());
    let stop = watch::Sender::new(false);
    let mut stopped = stop.subscribe();
    let until = async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let run = world.definitions.clone().run(
        until,
        |_| true,
        |changed| {
            told.lock().unwrap().push(changed);
            stop.send_replace(true);
        },
    );
    let operator = async {
        world.clock.sleeping(1).await;
        world.store.put(GROUP_FILE, &nodes("team: data", "team: web"));
        world.clock.advance(26 * SECOND);
        assert_eq!(world.store.reads(), [], "not before a tenth early");
        world.clock.advance(7 * SECOND);
    };
    let (outcome, ()) = soon(join(run, operator)).await;
    assert_eq!(outcome, Ok(()));
    assert_eq!(*told.lock().unwrap(), [Changed::Group(name("nodes-a"))]);
}

#[tokio::test]
async fn a_change_that_a_caller_finds_is_announced_without_a_poll() {
    let world = World::new();
    world.store.fail(GROUP_FILE, Trouble::Missing);
    world.get().await.unwrap_err();
    world.store.put(GROUP_FILE, NODES);
    world.clock.advance(60 * SECOND);
    let told = watch::Sender::new(false);
    let mut heard = told.subscribe();
    let run = world.definitions.clone().run(
        pending(),
        |_| true,
        |_| {
            told.send_replace(true);
        },
    );
    let caller = async {
        world.get().await.unwrap();
        heard.wait_for(|told| *told).await.unwrap();
    };
    soon(select(pin!(run), pin!(caller))).await;
    assert_eq!(
        world
            .store
            .reads()
            .iter()
            .filter(|(file, _)| file == GROUP_FILE)
            .count(),
        2
    );
}

/// A definition that nodes wait for is retried within seconds, not at the next poll, however long the store is away.
#[tokio::test]
async fn a_store_that_is_back_is_noticed_within_seconds() {
    let world = World::new();
    for file in [CLUSTER_FILE, GROUP_FILE] {
        world.store.fail(file, Trouble::Unavailable);
    }
    world.get().await.unwrap_err();
    let told = Mutex::new(Vec::new());
    let run = world
        .definitions
        .clone()
        .run(pending(), |_| true, |changed| told.lock().unwrap().push(changed));
    // Nothing here yields to the runtime, which would refill the budget of the task.
    let mut run = pin!(tokio::task::unconstrained(run));
    let mut pass = |time: Duration| {
        for _ in 0..time.as_millis() / 100 {
            for _ in 0..20 {
                assert!(run.as_mut().now_or_never().is_none());
            }
            world.clock.advance(SECOND / 10);
        }
    };
    world.store.reads();
    pass(240 * SECOND);
    let reads = world.store.reads().len();
    // Two files, every four seconds, and at the polls of half a minute.
    assert!((100..=180).contains(&reads), "{reads} reads");
    world.store.put(CLUSTER_FILE, CLUSTER);
    world.store.put(GROUP_FILE, NODES);
    pass(5 * SECOND);
    let expected = [Changed::Cluster, Changed::Group(name("nodes-a"))];
    assert_eq!(*told.lock().unwrap(), expected);
    world.store.reads();
    pass(26 * SECOND);
    let reads = world.store.reads();
    let tried: Vec<_> = reads.iter().filter(|(_, known)| !known).collect();
    assert!(tried.is_empty() && reads.len() <= 2, "{reads:?}");
}

mod owned;
mod summaries;
