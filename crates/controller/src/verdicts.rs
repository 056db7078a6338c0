//! The verdict on the cluster, made anew when what it rests on has changed: for the MetricsServer and for
//! ClusterHealth.
//!
//! Made on every replica, leader or not, from caches and from answers that are kept: no reader of a verdict makes
//! anybody ask for anything. A part without news for too long is unknown, with the reason; an old verdict is never
//! mistaken for a new one, because each has its time, and one is made at least every half minute.

mod outside;

use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join3, select};
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use prometheus::HistogramVec;
use tidewaiter_api::ClusterName;
use tidewaiter_identity::CloudGroups;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Cache, Cacheable, Change, Clock, Kit, SharedClock, Tasks, Trigger};
use tidewaiter_kops::Definitions;
use tidewaiter_validation::objects::LABELS_READ;
use tidewaiter_validation::{
    ClaimTable, Identities, IdentityRecord, IdentityResult, Node as JudgedNode, Observation, Options, Part, Pod,
    Verdict, judge,
};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::objects::{Node, Record};
use outside::Outside;

/// The time after which data without news is unknown.
const LIMIT: Duration = Duration::from_mins(2);
/// The first verdict waits for all that it rests on, but no longer than this.
const FIRST: Duration = Duration::from_mins(1);
/// The longest interval between two verdicts.
const AT_LEAST: Duration = Duration::from_secs(30);
/// Proofs are counted when none has come for so long, or with the next verdict. In a cold start there is a proof for
/// each Node: a verdict for each, or even for each second, would take a time that grows with the square of the number
/// of Nodes.
const PROOF: Duration = Duration::from_secs(1);
/// Between two verdicts, as a multiple of what the last one took: a cluster that changes all the time costs a fifth of
/// a core, unless it is so large that this would be longer than [`SHORT_REST`].
const REST: u32 = 4;
/// The pause after a verdict: changes during one are in the next within a tenth of a second.
const SHORT_REST: Duration = Duration::from_millis(30);
/// The rest is never a smaller multiple: however large the cluster is, its verdicts cost at most a third of a core.
const LEAST_REST: u32 = 2;

/// A verdict and when it was made.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// The time of the verdict.
    pub at: Timestamp,
    /// The time of the verdict on the monotonic clock.
    pub monotonic: Duration,
}

/// The newest verdict; none before the first.
pub type Latest = watch::Receiver<Option<Arc<Judged>>>;

/// The sources of verdicts.
pub struct VerdictParts {
    /// The cluster.
    pub cluster: ClusterName,
    /// The role's cache of Nodes.
    pub nodes: Cache<Node>,
    /// The role's cache of records.
    pub records: Cache<Record>,
    /// The role's cache of Pods.
    pub pods: Cache<Pod>,
    /// InstanceGroups, and the name of the API. None if the state store is not read: then the InstanceGroups are those
    /// of the cloud's groups.
    pub definitions: Option<Definitions>,
    /// The cloud's groups.
    pub cloud: Arc<dyn CloudGroups>,
    /// The tolerances of the verdict.
    pub options: Options,
    /// Reads an object now and then, to see that the API server reads its storage.
    pub client: Client,
}

/// Starts to ask the cloud, the store and DNS, and to judge.
///
/// # Errors
/// If a metric's name is taken.
pub fn start(parts: VerdictParts, tasks: &mut Tasks, kit: &Kit) -> Result<Latest, MetricsError> {
    let changed = Arc::<Notify>::default();
    let VerdictParts {
        cluster,
        nodes,
        records,
        pods,
        definitions,
        cloud,
        options,
        client,
    } = parts;
    let claims = claims(&nodes, &records);
    let proven = Arc::<Notify>::default();
    nodes.notify(notifies(&changed).unless(same_to_the_verdict));
    pods.notify(notifies(&changed).unless(Pod::same));
    records.notify(notifies_of_identities(&changed, &proven));
    let outside = Arc::new(Outside::new(
        cloud,
        definitions,
        Arc::clone(&changed),
        Arc::clone(&kit.clock),
        client,
        cluster.clone(),
    ));
    let (sender, latest) = watch::channel(None);
    let judge = Judge {
        cluster,
        nodes,
        records,
        claims,
        pods,
        outside: Arc::clone(&outside),
        options,
        clock: Arc::clone(&kit.clock),
        changed,
        proven,
        durations: kit.metrics.histogram_vec(
            "tidewaiter_cluster_verdict_duration_seconds",
            "Duration of one validation of the cluster in seconds, from what is cached.",
            &[],
            &[0.005, 0.02, 0.1, 0.5, 2.0],
        )?,
        sender,
    };
    tasks.spawn("verdict/outside", outside.keep_asking(tasks.shutdown_token()));
    tasks.spawn("verdict", judge.run(tasks.shutdown_token()));
    Ok(latest)
}

/// The claims of the Nodes, updated with each change of a Node or a record.
fn claims(nodes: &Cache<Node>, records: &Cache<Record>) -> Arc<Mutex<ClaimTable>> {
    let claims = Arc::<Mutex<ClaimTable>>::default();
    let table = Arc::clone(&claims);
    nodes.derive(move |change| {
        let name = change.key().text();
        if change
            .before
            .zip(change.after)
            .is_none_or(|(before, after)| !same_to_the_verdict(before, after))
        {
            let node = change.after.map(|node| Arc::new(judged(node).sharing_name(name)));
            table.lock().set_node(name, node);
        }
    });
    let table = Arc::clone(&claims);
    records.derive(move |change| {
        table.lock().set_record(change.key().text(), change.after.map(identity));
    });
    claims
}

/// The Node as the verdict on the cluster reads it.
fn judged(node: &Node) -> JudgedNode {
    JudgedNode::new(
        &node.metadata,
        node.spec.provider_id.as_deref(),
        &node.status.conditions,
    )
}

/// Returns true if the two differ in nothing that the verdict on the cluster reads.
fn same_to_the_verdict(before: &Node, after: &Node) -> bool {
    let same_label = |key: &&str| before.labels().get(*key) == after.labels().get(*key);
    before.status.conditions == after.status.conditions
        && before.metadata.uid == after.metadata.uid
        && before.spec.provider_id == after.spec.provider_id
        && LABELS_READ.iter().all(same_label)
}

fn notifies<K: 'static>(changed: &Arc<Notify>) -> Trigger<K> {
    let changed = Arc::clone(changed);
    Trigger::calls(move |_: &Change<'_, K>| changed.notify_one())
}

/// Returns the fields of the record that the verdict on the cluster reads.
fn identity(record: &Record) -> IdentityRecord {
    let name = record.metadata.name.as_deref().unwrap_or_default();
    IdentityRecord::new(name, &record.spec, &record.status)
}

/// Notifies `proven` of claims that are proven now, which may wait for a moment, and `changed` of all others that
/// differ.
fn notifies_of_identities(changed: &Arc<Notify>, proven: &Arc<Notify>) -> Trigger<Record> {
    let (changed, proven) = (Arc::clone(changed), Arc::clone(proven));
    let result = |record: &Record| IdentityResult::of(&record.status);
    Trigger::calls(move |change: &Change<'_, Record>| {
        let (before, after) = (change.before.map(result), change.after.map(result));
        let same_claim = |before: &Record, after: &Record| before.spec == after.spec;
        if before == after
            && change
                .before
                .zip(change.after)
                .is_none_or(|(one, other)| same_claim(one, other))
        {
            return;
        }
        if after == Some(IdentityResult::Proven) {
            proven.notify_one();
        } else {
            changed.notify_one();
        }
    })
}

struct Judge {
    cluster: ClusterName,
    nodes: Cache<Node>,
    records: Cache<Record>,
    /// Judging all Nodes takes less time than unpacking them.
    claims: Arc<Mutex<ClaimTable>>,
    pods: Cache<Pod>,
    outside: Arc<Outside>,
    options: Options,
    clock: SharedClock,
    changed: Arc<Notify>,
    /// A claim is proven that was not.
    proven: Arc<Notify>,
    /// The duration of each, in seconds.
    durations: HistogramVec,
    sender: watch::Sender<Option<Arc<Judged>>>,
}

impl Judge {
    async fn run(self, shutdown: CancellationToken) -> Result<(), Infallible> {
        shutdown.run_until_cancelled(Arc::new(self).keep_judging()).await;
        Ok(())
    }

    async fn keep_judging(self: Arc<Self>) -> Infallible {
        let listed = join3(self.nodes.synced(), self.records.synced(), self.pods.synced());
        let all = Box::pin(join(listed, self.outside.asked()));
        select(all, self.clock.sleep(FIRST)).await;
        loop {
            let began = self.clock.monotonic();
            let judge = Arc::clone(&self);
            // On a thread apart: scrapes and watches would have to wait for the runtime's own.
            let judged = spawn_blocking(move || judge.judge()).await;
            if let Err(Ok(panic)) = judged.map_err(JoinError::try_into_panic) {
                resume_unwind(panic);
            }
            let took = self.clock.monotonic().saturating_sub(began);
            self.durations
                .with_label_values::<&str>(&[])
                .observe(took.as_secs_f64());
            self.clock.sleep(rest(took)).await;
            tokio::select! {
                () = self.changed.notified() => {}
                () = proofs(&self.proven, &*self.clock) => {}
                () = self.clock.sleep(AT_LEAST) => {}
            }
        }
    }

    fn judge(&self) {
        let (at, monotonic) = (self.clock.now(), self.clock.monotonic());
        let verdict = judge(&self.observe(monotonic), &self.options);
        let before = self.sender.borrow().as_ref().map(|before| before.verdict.outcome());
        if before != Some(verdict.outcome()) {
            info!(outcome = ?verdict.outcome(), failures = verdict.failure_count(), "the verdict on the cluster");
        }
        let judged = Judged { verdict, at, monotonic };
        self.sender.send_replace(Some(Arc::new(judged)));
    }

    fn observe(&self, now: Duration) -> Observation {
        let storage = self.outside.storage(now);
        let cloud = self.outside.cloud(now);
        let instances = match &cloud {
            Part::Known(instances) => Some(instances),
            Part::Unknown(_) => None,
        };
        Observation {
            cluster: self.cluster.clone(),
            groups: self.outside.groups(now),
            cloud_location: self.outside.cloud_location(),
            nodes: known(&self.nodes, &storage, now, || self.claims.lock().claims(instances)),
            identities: Identities::Installed(known(&self.records, &storage, now, || ())),
            cloud,
            pods: known(&self.pods, &storage, now, || self.pods.iter().collect()),
            dns: self.outside.dns(now),
        }
    }
}

/// Completes when claims were proven, and none has been for [`PROOF`].
async fn proofs(proven: &Notify, clock: &dyn Clock) {
    proven.notified().await;
    while timeout(clock, PROOF, proven.notified()).await.is_ok() {}
}

/// The pause after a verdict that took so long.
fn rest(took: Duration) -> Duration {
    (took * REST).min(SHORT_REST.max(took * LEAST_REST))
}

/// `all` of what a cache holds, if it is followed and the API server reads its `storage`.
fn known<K: Cacheable, T>(cache: &Cache<K>, storage: &Part<()>, now: Duration, all: impl FnOnce() -> T) -> Part<T> {
    let (kind, trouble) = (K::plural(&()), cache.trouble());
    match trouble {
        _ if !cache.is_synced() => {
            let why = trouble
                .map(|trouble| format!(": {}", trouble.error))
                .unwrap_or_default();
            Part::Unknown(format!("the {kind} have never been listed{why}"))
        }
        Some(trouble) if now.saturating_sub(trouble.since_monotonic) > LIMIT => {
            let (since, error) = (trouble.since.strftime("%FT%TZ"), trouble.error);
            Part::Unknown(format!("the {kind} are known as of {since} only: {error}"))
        }
        _ => match storage {
            Part::Known(()) => Part::Known(all()),
            Part::Unknown(reason) => Part::Unknown(reason.clone()),
        },
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use futures::FutureExt as _;
    use serde_json::{Value, json};
    use tidewaiter_identity::{CloudGroup, GroupsUnavailable};
    use tidewaiter_kit::{Feed, ManualClock};

    use super::*;

    #[test]
    fn a_verdict_follows_what_the_records_say() {
        let kit = Kit::new(ManualClock::default().shared()).unwrap();
        let (mut records, cache) = Feed::<Record>::new(&kit);
        let [changed, proven] = [Arc::<Notify>::default(), Arc::default()];
        cache.notify(notifies_of_identities(&changed, &proven));
        let record = |uid: &str, reason: &str, message: &str| -> Record {
            serde_json::from_value(json!({"metadata": {"name": "n", "uid": "r"}, "spec": {"nodeUID": uid}, "status": {"conditions": [{
                "type": "Verified", "status": if reason == "Proven" { "True" } else { "False" }, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}))
            .unwrap()
        };
        let notified = || [&changed, &proven].map(|notify| notify.notified().now_or_never().is_some());
        let (nothing, at_once, soon) = ([false, false], [true, false], [false, true]);
        records.list([record("u", "Proven", "")]);
        assert_eq!(notified(), soon, "a proof");
        records.put(record("u", "Proven", "in other words"));
        assert_eq!(notified(), nothing, "the same proof");
        records.put(record("v", "Proven", ""));
        assert_eq!(notified(), soon, "a proof for another Node");
        for reason in ["NotFound", "NameMismatch"] {
            records.put(record("v", reason, ""));
            assert_eq!(notified(), at_once, "{reason}");
        }
        records.put(record("v", "NameMismatch", "in other words"));
        assert_eq!(notified(), nothing, "the same forgery");
        records.put(record("v", "Proven", ""));
        assert_eq!(notified(), soon, "a proof after all");
        records.delete(record("v", "Proven", ""));
        assert_eq!(notified(), at_once, "it is gone");
    }

    pub(super) struct Nowhere;

    #[async_trait]
    impl CloudGroups for Nowhere {
        async fn groups(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
            Err(GroupsUnavailable("none".to_owned()))
        }

        fn location(&self) -> Option<String> {
            None
        }
    }

    /// A cluster of one instance whose Node is ready, and proven if its record is listed.
    #[tokio::test]
    async fn no_node_counts_before_the_records_are_listed() {
        let kit = Kit::new(ManualClock::default().shared()).unwrap();
        let (mut node_feed, nodes) = Feed::<Node>::new(&kit);
        let (mut record_feed, records) = Feed::<Record>::new(&kit);
        let (mut pod_feed, pods) = Feed::<Pod>::new(&kit);
        let changed = Arc::<Notify>::default();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let (client, cluster): (_, ClusterName) = (
            Client::try_from(nowhere).unwrap(),
            "cluster.example.com".parse().unwrap(),
        );
        let clock = Arc::clone(&kit.clock);
        let outside = Outside::new(
            Arc::new(Nowhere),
            None,
            Arc::clone(&changed),
            clock,
            client,
            cluster.clone(),
        );
        outside.has_read_storage();
        let judge = Judge {
            cluster,
            claims: claims(&nodes, &records),
            nodes,
            records,
            pods,
            outside: Arc::new(outside),
            options: Options::default(),
            clock: Arc::clone(&kit.clock),
            changed,
            proven: Arc::default(),
            durations: kit.metrics.histogram_vec("d", "d", &[], &[1.0]).unwrap(),
            sender: watch::Sender::new(None),
        };
        node_feed.list([node(
            &json!({"metadata": {"name": "n", "uid": "u"}, "spec": {"providerID": "aws:///a/i-1"}}),
        )]);
        pod_feed.list([]);
        let identities = |judge: &Judge| judge.observe(Duration::ZERO).identities;
        let Identities::Installed(Part::Unknown(why)) = identities(&judge) else {
            panic!("{:?}", identities(&judge));
        };
        assert_eq!(why, "the nodeidentities have never been listed");
        let record =
            json!({"metadata": {"name": "n", "uid": "r"}, "spec": {"nodeUID": "u", "providerID": "aws:///a/i-1"}});
        let record: Record = serde_json::from_value(record).unwrap();
        record_feed.list([record.clone()]);
        assert_eq!(identities(&judge), Identities::Installed(Part::Known(())));
    }

    fn node(value: &Value) -> Node {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn proofs_that_follow_each_other_are_counted_together() {
        let (clock, proven) = (ManualClock::default(), Notify::new());
        let mut counted = Box::pin(proofs(&proven, &clock));
        let mut after = |milliseconds| {
            clock.advance(Duration::from_millis(milliseconds));
            counted.as_mut().now_or_never().is_some()
        };
        assert!(!after(5_000), "nothing is proven");
        for _ in 0..5 {
            proven.notify_one();
            assert!(!after(0) && !after(900), "another proof follows");
        }
        assert!(after(100));
    }

    #[test]
    fn verdicts_leave_most_of_a_core_to_others_however_long_one_takes() {
        for (took, expected) in [(0, 0), (1, 4), (7, 28), (10, 30), (15, 30), (100, 200), (1_000, 2_000)] {
            let [took, expected] = [took, expected].map(Duration::from_millis);
            assert_eq!(rest(took), expected, "{took:?}");
        }
    }

    #[test]
    fn a_heartbeat_is_the_same_node() {
        let mut after = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "spec": {"providerID": "aws:///a/i-1"},
            "status": {"conditions": [{"type": "Ready", "status": "False", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}});
        let before = node(&after);
        let same = |after: &Value| same_to_the_verdict(&before, &node(after));
        after["metadata"]["resourceVersion"] = json!("2");
        after["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
        after["spec"]["taints"] = json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]);
        after["metadata"]["labels"] = json!({"example.com/team": "no rule reads it"});
        assert!(same(&after));
        after["metadata"]["labels"] = json!({"node-role.kubernetes.io/control-plane": ""});
        assert!(!same(&after));
        after["metadata"]["labels"] = json!({});
        after["status"]["conditions"][0]["status"] = json!("True");
        assert!(!same(&after));
    }
}

#[cfg(test)]
pub(crate) mod by_hand {
    //! A verdict without anything in it, for the tests of what shows one.

    use std::collections::BTreeMap;

    use tidewaiter_validation::verdict::{Counts, Verdict};

    pub(crate) fn verdict(cluster: &str, counts: Counts) -> Verdict {
        Verdict {
            cluster: cluster.parse().unwrap(),
            failures: vec![],
            unlisted: BTreeMap::new(),
            tolerated: vec![],
            unknown: vec![],
            groups: vec![],
            nodes: vec![],
            counts,
            trusts_claims: false,
        }
    }
}
