//! The world of a history, and what must hold in it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tidewaiter_api::NodeName;
use tidewaiter_api::names::{EXCLUSIVE_ROLE_LABELS, UNIDENTIFIED_TAINT};
use tidewaiter_api::node_identity::QUARANTINED;
use tidewaiter_kit::{Change, Clock as _, Key, ManualClock, Metrics, Queue, Writer};
use tidewaiter_kops::store::ReadFile;
use tidewaiter_kops::{Definitions, DefinitionsSettings, node_labels};

use super::api_server::{After, ApiServer, Written};
use super::state_store::Files;
use super::*;
use crate::node_controller::apply::{apply, awaits_cache};
use crate::node_controller::observe::{Claimed, define};
use crate::node_controller::quarantine::{Census, Classification};
use crate::node_controller::status::Status;
use crate::node_controller::{ForeignLabels, OnForgery};

const CLUSTER: &str = "c.example.com";
const CLUSTER_FILE: &str = "cluster-completed.spec";
/// Longer than any failure of the state store is remembered, and than a write that the caches do not show.
const POLL: Duration = Duration::from_mins(1);

type Labels = BTreeMap<String, String>;

#[derive(Clone, Copy)]
struct Instance {
    group: usize,
    runs: bool,
}

pub(super) struct World {
    instances: [Instance; SIZE],
    /// What each group's file says when it is whole.
    definitions: [BTreeMap<&'static str, &'static str>; GROUPS.len()],
    files: Arc<Files>,
    server: Arc<ApiServer>,
    /// The controller's caches.
    nodes: BTreeMap<usize, Arc<Node>>,
    records: BTreeMap<usize, Arc<Record>>,
    clock: ManualClock,
    policy: Policy,
    process: Process,
    /// By uid: the labels that others set and no record has held since.
    others: BTreeMap<String, Labels>,
    /// The uids of which a record ever said that they are proven.
    verified: BTreeSet<String>,
}

/// What dies with the process.
struct Process {
    writer: Writer,
    census: Census,
    status: Status,
    metrics: Metrics,
    definitions: Definitions,
    polling: Pin<Box<dyn Future<Output = ()>>>,
    /// What the cloud last said of each Node (uid).
    kept: BTreeMap<String, Identity>,
    asked: BTreeMap<usize, Asked>,
    /// By uid, whether it is forged, as the last answer said that was one.
    judged: BTreeMap<String, bool>,
    /// Whether all Nodes were, once.
    all_judged: bool,
}

/// A pass that has its answer.
struct Asked {
    claimed: Claimed,
    finding: Finding,
    owned: Arc<OwnedKeys>,
}

fn name(node: usize) -> NodeName {
    format!("node-{node}").parse().unwrap()
}

fn provider_id(instance: usize) -> String {
    format!("aws:///us-east-1a/i-{instance:08}")
}

fn uid(node: &Node) -> &str {
    node.metadata.uid.as_deref().unwrap()
}

fn claim(node: &Node) -> Claimed {
    Claimed::read(node, [].into_iter()).unwrap()
}

fn labels_of(node: &serde_json::Value) -> Labels {
    serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default()
}

/// Whether the Node has the startup taint, and the taints of others.
fn taints_of(node: &serde_json::Value) -> (bool, Vec<serde_json::Value>) {
    let all = node["spec"]["taints"].as_array().unwrap();
    let others = all.iter().filter(|taint| taint["key"] != UNIDENTIFIED_TAINT);
    let others: Vec<_> = others.cloned().collect();
    (others.len() < all.len(), others)
}

/// The keys that a record holds for the Node of this uid: ours to set and to remove.
fn recorded(record: Option<&serde_json::Value>, uid: &str) -> BTreeSet<String> {
    let record = record.map(|record| serde_json::from_value::<Record>(record.clone()).unwrap());
    let labels = record.as_ref().map_or(&[][..], |record| record.labels_of(uid));
    labels.iter().map(|label| label.key.to_string()).collect()
}

fn policy(removes: bool, quarantines: bool) -> Policy {
    Policy {
        foreign_labels: if removes {
            ForeignLabels::Remove
        } else {
            ForeignLabels::Report
        },
        on_forgery: if quarantines {
            OnForgery::Quarantine
        } else {
            OnForgery::Report
        },
        ..Policy::default()
    }
}

fn cluster_file() -> String {
    let cluster = json!({
        "apiVersion": "kops.k8s.io/v1alpha2", "kind": "Cluster", "metadata": {"name": CLUSTER}, "spec": {},
    });
    cluster.to_string()
}

fn group_file(group: usize) -> String {
    format!("instancegroup/{}", GROUPS[group].0)
}

impl Process {
    fn new(server: &Arc<ApiServer>, files: &Arc<Files>, clock: &ManualClock) -> Self {
        let metrics = Metrics::new(&clock.shared()).unwrap();
        let store: Arc<dyn ReadFile> = Arc::clone(files) as _;
        let settings = DefinitionsSettings::default();
        let definitions =
            Definitions::new(store, CLUSTER.parse().unwrap(), settings, clock.shared(), &metrics).unwrap();
        let running = definitions.clone().run(pending(), |_| true, |_| {});
        Self {
            writer: Writer::new(server.client(), "node", clock.shared()),
            census: Census::new(Queue::new(), &metrics).unwrap(),
            status: Status::new(&metrics).unwrap(),
            definitions,
            polling: Box::pin(tokio::task::unconstrained(async {
                let Ok(()) = running.await;
            })),
            metrics,
            kept: BTreeMap::new(),
            asked: BTreeMap::new(),
            judged: BTreeMap::new(),
            all_judged: false,
        }
    }

    /// Nothing in the store takes time, so this goes on to the next sleep.
    fn poll(&mut self) {
        let asleep = self.polling.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(asleep.is_pending());
    }
}

impl World {
    /// Every Node is there, and is the instance that it claims to be; nobody has labelled it yet.
    pub(super) fn new(removes: bool, quarantines: bool) -> Self {
        let (server, files, clock) = (
            Arc::<ApiServer>::default(),
            Arc::<Files>::default(),
            ManualClock::default(),
        );
        let mut world = Self {
            instances: [Instance { group: 0, runs: true }; SIZE],
            definitions: [[("a", "1")].into(), [("b", "1")].into()],
            nodes: BTreeMap::new(),
            records: BTreeMap::new(),
            policy: policy(removes, quarantines),
            process: Process::new(&server, &files, &clock),
            others: BTreeMap::new(),
            verified: BTreeSet::new(),
            server,
            files,
            clock,
        };
        world.mend();
        world.process.poll();
        (0..SIZE).for_each(|node| world.register(node, node, false));
        world.deliver(true, true);
        world
    }

    pub(super) async fn step(&mut self, step: Step) {
        match step {
            Register { node, claims, tainted } => self.register(node % SIZE, claims % (SIZE + 2), tainted),
            Delete { node } => drop(self.server.lock().nodes.remove(name(node % SIZE).as_str())),
            Collect => self.collect(),
            Move { instance, group } => self.instances[instance % SIZE].group = group % GROUPS.len(),
            Run { instance, runs } => self.instances[instance % SIZE].runs = runs,
            Define { group, key, value } => self.define(group % GROUPS.len(), KEYS[key % (KEYS.len() - 1)], value),
            Break { file, broken } => {
                let file = file % (GROUPS.len() + 1);
                let file = if file < GROUPS.len() {
                    group_file(file)
                } else {
                    CLUSTER_FILE.to_owned()
                };
                self.files.lock().get_mut(&file).unwrap().broken = Some(broken);
            }
            Poll => self.poll(),
            Set { node, key, value } => self.set(node % SIZE, SET[key % SET.len()], VALUES[value % VALUES.len()]),
            Taint { node, comes } => self.taint(node % SIZE, comes),
            Deliver { nodes, records } => self.deliver(nodes, records),
            Ask { node, cloud } => {
                if let Some(asked) = self.ask(node % SIZE, cloud).await {
                    self.process.asked.insert(node % SIZE, asked);
                }
            }
            Pass {
                node,
                cloud,
                dies_after,
            } => self.pass(node % SIZE, cloud, dies_after).await,
            Restart { removes, quarantines } => {
                self.policy = policy(removes, quarantines);
                self.restart();
                self.deliver(true, true);
            }
        }
    }

    fn register(&mut self, node: usize, claims: usize, tainted: bool) {
        let mut server = self.server.lock();
        let version = server.next_version();
        let startup = json!({"key": UNIDENTIFIED_TAINT, "effect": "NoSchedule"});
        let taints: Vec<_> = tainted.then_some(startup).into_iter().collect();
        let mut object = json!({
            "metadata": {"name": name(node), "uid": format!("uid-{version}"), "resourceVersion": version},
            "spec": {"taints": taints},
        });
        if claims <= SIZE {
            let text = if claims < SIZE {
                provider_id(claims)
            } else {
                "no providerID".to_owned()
            };
            object["spec"]["providerID"] = text.into();
        }
        server.nodes.insert(name(node).to_string(), object);
    }

    fn collect(&mut self) {
        let mut server = self.server.lock();
        let nodes = server.nodes.clone();
        let owned = |name: &String, record: &serde_json::Value| {
            nodes
                .get(name)
                .is_some_and(|node| node["metadata"]["uid"] == record["spec"]["nodeUID"])
        };
        server.records.retain(|name, record| owned(name, record));
    }

    fn define(&mut self, group: usize, key: &'static str, value: Option<usize>) {
        let labels = &mut self.definitions[group];
        match value {
            Some(value) => drop(labels.insert(key, VALUES[value % VALUES.len()])),
            None => drop(labels.remove(key)),
        }
        self.files.put(&group_file(group), self.definition_file(group));
    }

    fn definition_file(&self, group: usize) -> String {
        let file = json!({
            "apiVersion": "kops.k8s.io/v1alpha2", "kind": "InstanceGroup", "metadata": {"name": GROUPS[group].0},
            "spec": {"role": GROUPS[group].1, "nodeLabels": self.definitions[group]},
        });
        file.to_string()
    }

    /// All files are whole.
    fn mend(&mut self) {
        self.files.put(CLUSTER_FILE, cluster_file());
        for group in 0..GROUPS.len() {
            self.files.put(&group_file(group), self.definition_file(group));
        }
    }

    fn poll(&mut self) {
        self.clock.advance(POLL);
        self.process.poll();
    }

    fn set(&mut self, number: usize, key: &str, value: &str) {
        let mut server = self.server.lock();
        let (version, name) = (server.next_version(), name(number));
        let keys = |uid: &str| recorded(server.records.get(name.as_str()), uid);
        let Some(node) = server.nodes.get(name.as_str()) else {
            return;
        };
        let uid = node["metadata"]["uid"].as_str().unwrap().to_owned();
        if !keys(&uid).contains(key) {
            let others = self.others.entry(uid).or_default();
            others.insert(key.to_owned(), value.to_owned());
        }
        let node = server.nodes.get_mut(name.as_str()).unwrap();
        node["metadata"]["resourceVersion"] = version.into();
        node["metadata"]["labels"][key] = value.into();
    }

    fn taint(&self, number: usize, comes: bool) {
        let mut server = self.server.lock();
        let version = server.next_version();
        let Some(node) = server.nodes.get_mut(name(number).as_str()) else {
            return;
        };
        node["metadata"]["resourceVersion"] = version.into();
        let taints = node["spec"]["taints"].as_array_mut().unwrap();
        taints.retain(|taint| taint["key"] != "dedicated");
        if comes {
            taints.push(json!({"key": "dedicated", "effect": "NoExecute"}));
        }
    }

    fn deliver(&mut self, nodes: bool, records: bool) {
        let server = Arc::clone(&self.server);
        let there = server.lock();
        if nodes {
            let decode = |node: &serde_json::Value| Arc::new(serde_json::from_value::<Node>(node.clone()).unwrap());
            let new = |number: usize| there.nodes.get(name(number).as_str()).map(decode);
            for number in 0..SIZE {
                self.show(number, new(number));
            }
        }
        if records {
            let decode =
                |record: &serde_json::Value| Arc::new(serde_json::from_value::<Record>(record.clone()).unwrap());
            let new = |number: usize| Some((number, decode(there.records.get(name(number).as_str())?)));
            self.records = (0..SIZE).filter_map(new).collect();
        }
    }

    /// The cache shows this Node, or none, from now on, and tells of it.
    fn show(&mut self, number: usize, new: Option<Arc<Node>>) {
        let old = match &new {
            Some(node) => self.nodes.insert(number, Arc::clone(node)),
            None => self.nodes.remove(&number),
        };
        let Process { census, status, .. } = &self.process;
        if let Some(old) = old.filter(|old| new.as_ref().is_none_or(|new| uid(old) != uid(new))) {
            census.changed(&Change::deleted(&*old));
        }
        if let Some(node) = new {
            census.changed(&Change::applied(None, &*node));
        } else {
            status.forget(&Key::new(name(number).as_str()));
        }
        census.announce();
    }

    /// Another process, with the same caches.
    fn restart(&mut self) {
        self.process = Process::new(&self.server, &self.files, &self.clock);
        self.process.poll();
        for node in self.nodes.values() {
            self.process.census.changed(&Change::applied(None, &**node));
        }
    }

    fn truth(&self, instance: usize) -> Result<Identity, Refusal> {
        let Instance { group, runs } = self.instances[instance];
        let id = format!("i-{instance:08}");
        if !runs {
            let state = "stopped".to_owned();
            return Err(Refusal::NotRunning { instance: id, state });
        }
        Ok(Identity {
            instance: id,
            group: GROUPS[group].0.parse().unwrap(),
            zone: "us-east-1a".to_owned(),
            lifecycle: Lifecycle::OnDemand,
            names: vec![name(instance).to_string()],
            addresses: Vec::new(),
            tag_labels: Vec::new(),
        })
    }

    fn answer(&self, uid: &str, instance: usize, cloud: Cloud) -> Result<Identity, Refusal> {
        let (api, id) = ("ec2:DescribeInstances", format!("i-{instance:08}"));
        match (cloud, self.process.kept.get(uid)) {
            (Kept, Some(kept)) => Ok(kept.clone()),
            (Truth | Kept, _) => self.truth(instance),
            (Mistaken { group }, _) => self.truth(instance).map(|truth| Identity {
                group: GROUPS[group % GROUPS.len()].0.parse().unwrap(),
                ..truth
            }),
            (Elsewhere, _) => Err(Refusal::ForeignProject {
                instance: id,
                theirs: Some("other.example.com".to_owned()),
                ours: CLUSTER.parse().unwrap(),
                mark: tidewaiter_identity::Mark::Tag,
            }),
            (Denial, _) => Err(Refusal::NotFound { instance: id }),
            (Throttled, _) => Err(Refusal::Throttled { api }),
            (Unreachable, _) => Err(Refusal::Unavailable {
                api,
                cause: UnavailableCause::Unreachable,
                detail: String::new(),
            }),
        }
    }

    async fn ask(&mut self, number: usize, cloud: Cloud) -> Option<Asked> {
        let node = self.nodes.get(&number)?;
        let claimed = claim(node);
        let (finding, owned) = match &claimed.claim {
            None => (Finding::Unclaimed, Arc::default()),
            Some(Err(error)) => (Finding::Malformed(error.clone()), Arc::default()),
            Some(Ok(claim)) => {
                let uid = claim.uid.as_str();
                let instance = (0..SIZE).find(|instance| provider_id(*instance) == claim.provider_id.as_str());
                let proven = match self.answer(uid, instance.unwrap(), cloud) {
                    Ok(identity) => {
                        self.process.kept.insert(uid.to_owned(), identity.clone());
                        prove(claim, Arc::new(identity), NodeNames::Enforce)
                    }
                    Err(refusal) => Err(refusal),
                };
                let record = self.records.get(&number);
                let recorded = record.map_or(&[][..], |record| record.labels_of(uid));
                let (response, owned) = define(proven, self.policy, &self.process.definitions, recorded).await;
                (response.finding(), owned)
            }
        };
        Some(Asked {
            claimed,
            finding,
            owned,
        })
    }

    async fn pass(&mut self, number: usize, cloud: Cloud, dies_after: Option<u8>) {
        let asked = match self.process.asked.remove(&number) {
            None => self.ask(number, cloud).await,
            asked => asked,
        };
        let (Some(asked), Some(node)) = (asked, self.nodes.get(&number).cloned()) else {
            return;
        };
        if claim(&node) != asked.claimed {
            return;
        }
        let seen = Observation {
            brake: self.brake(&asked),
            record: self.records.get(&number).cloned(),
            name: asked.claimed.name,
            uid: asked.claimed.uid,
            node,
            finding: asked.finding,
            fresh_for: None,
            owned: asked.owned,
            policy: self.policy,
        };
        if awaits_cache(&self.process.writer, &seen) {
            return;
        }
        let plan = plan(&seen, self.clock.now());
        self.server.lock().lives_for = dies_after;
        // What stops it is seen in what the passes after it find.
        let applied = apply(&self.process.writer, &seen, &plan).await;
        self.process.status.count(&seen, &plan, applied.is_ok());
        let written = {
            let mut server = self.server.lock();
            server.lives_for = None;
            std::mem::take(&mut server.accepted)
        };
        for written in &written {
            self.check_write(number, &seen, written);
        }
        if dies_after.is_some() {
            self.restart();
        }
    }

    fn brake(&mut self, asked: &Asked) -> Brake {
        let (name, node_uid) = (asked.claimed.name.as_str(), asked.claimed.uid.as_str());
        let record = self
            .records
            .values()
            .find(|record| record.spec.node_uid.as_str() == node_uid);
        let verdict = Classification::of(&asked.finding, record.map(AsRef::as_ref), node_uid);
        if let Some(verdict) = verdict {
            let forged = verdict == Classification::Forged;
            self.process.judged.insert(node_uid.to_owned(), forged);
        }
        let judged = |node: &Arc<Node>| self.process.judged.contains_key(uid(node));
        self.process.all_judged |= self.nodes.values().all(judged);
        match self.policy.on_forgery {
            OnForgery::Report => Brake::Unjudged,
            OnForgery::Quarantine => self.process.census.note(name, node_uid, verdict),
        }
    }

    /// Whether a Node may be put into quarantine now, if it is forged.
    fn may_quarantine(&self, node_uid: &str) -> bool {
        let judged = self.nodes.values().map(|node| self.process.judged.get(uid(node)));
        let forged = judged.filter(|forged| *forged == Some(&true)).count();
        let few = forged <= (self.nodes.len() / 10).max(1);
        self.policy.on_forgery == OnForgery::Quarantine
            && self.process.all_judged
            && few
            && !self.verified.contains(node_uid)
    }

    fn check_write(&mut self, number: usize, seen: &Observation, written: &Written) {
        assert_eq!(written.name, name(number).as_str());
        match &written.after {
            After::Record(record) => self.check_record(record),
            After::Node(after) => {
                let before = written.node.as_ref().unwrap();
                assert_eq!(before["metadata"]["uid"], seen.uid.as_str(), "another Node is written");
                self.check_patch(number, seen, written, before, after);
            }
        }
    }

    fn check_record(&mut self, record: &serde_json::Value) {
        let record: Record = serde_json::from_value(record.clone()).unwrap();
        let uid = record.spec.node_uid.to_string();
        let is_true = |condition: &Condition| condition.type_ == VERIFIED && condition.status == ConditionStatus::True;
        if record.status.conditions.iter().any(is_true) {
            self.verified.insert(uid.clone());
        }
        let others = self.others.entry(uid).or_default();
        for label in &record.status.labels {
            others.remove(label.key.as_str());
        }
    }

    fn check_patch(
        &mut self,
        number: usize,
        seen: &Observation,
        written: &Written,
        before: &serde_json::Value,
        after: &serde_json::Value,
    ) {
        let uid = seen.uid.as_str();
        let recorded = recorded(written.record.as_ref(), uid);
        let own = before["spec"]["providerID"] == provider_id(number);
        let proven = own && matches!(seen.finding, Finding::Defined(..));
        let forged = matches!(&seen.finding, Finding::Refused(refusal) if refusal.is_forgery());
        let quarantined = forged && self.may_quarantine(uid);
        let (old, new) = (labels_of(before), labels_of(after));
        for (key, value) in &new {
            let set = old.get(key) != Some(value);
            assert!(!set || proven, "{key} is given to a Node that is not proven");
            assert!(
                !set || recorded.contains(key),
                "{key} is set before the record holds it"
            );
        }
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            let removes = self.policy.foreign_labels == ForeignLabels::Remove;
            let role = EXCLUSIVE_ROLE_LABELS.contains(&key.as_str());
            let definable = key != KEYS[KEYS.len() - 1];
            let ours = proven && (role || recorded.contains(key) || (removes && definable));
            assert!(ours || (quarantined && definable), "{key} is not ours to remove");
            self.others.entry(uid.to_owned()).or_default().remove(key);
        }
        let ((was, others_before), (is, others_after)) = (taints_of(before), taints_of(after));
        let tainted = (was, is);
        assert!(
            tainted != (false, true) || quarantined,
            "a taint comes outside of quarantine"
        );
        assert!(
            tainted != (true, false) || proven,
            "the startup taint goes without a proof"
        );
        assert_eq!(others_before, others_after, "the taints of others");
    }

    /// The cloud answers, the files are whole, the caches are fresh, and nobody changes anything: it must come to rest, with
    /// everything as it should be.
    pub(super) async fn settle(&mut self) {
        self.collect();
        self.mend();
        self.poll();
        self.process.asked.clear();
        // The first round tells how many are forged, the second acts on it.
        for _ in 0..3 {
            self.round().await;
        }
        let before = self.server.lock().came;
        self.round().await;
        assert_eq!(self.server.lock().came, before, "it does not come to rest");
        let nodes = std::mem::take(&mut self.server.lock().nodes);
        let is_forged = |number: usize, node: &serde_json::Value| {
            let claims = |instance: &usize| node["spec"]["providerID"] == provider_id(*instance);
            let claimed = (0..SIZE).find(claims);
            claimed.is_some_and(|claimed| claimed != number && self.instances[claimed].runs)
        };
        let of = |number: usize| nodes.get(name(number).as_str()).map(|node| (number, node));
        let there: Vec<_> = (0..SIZE).filter_map(of).collect();
        let forged = there.iter().filter(|(number, node)| is_forged(*number, node)).count();
        for (number, node) in &there {
            let cleaned = is_forged(*number, node) && self.policy.on_forgery == OnForgery::Quarantine && forged == 1;
            self.check(*number, node, cleaned).await;
        }
        self.check_metrics(there.len(), forged);
    }

    async fn round(&mut self) {
        for node in 0..SIZE {
            self.deliver(true, true);
            self.pass(node, Truth, None).await;
        }
        self.deliver(true, true);
    }

    /// A Node at rest. One that is `cleaned` is the only forged one, and there is a quarantine.
    async fn check(&self, number: usize, node: &serde_json::Value, cleaned: bool) {
        let uid = node["metadata"]["uid"].as_str().unwrap();
        let labels = labels_of(node);
        let mut expected = self.others.get(uid).cloned().unwrap_or_default();
        let own = node["spec"]["providerID"] == provider_id(number);
        let Some(identity) = self.truth(number).ok().filter(|_| own) else {
            if !own {
                assert_eq!(labels, expected, "what was given to a Node that is not its instance");
            }
            if cleaned {
                let owned = self.process.definitions.owned_keys().await;
                let left = labels.keys().find(|key| owned.needs_proof(key));
                assert_eq!(left, None, "a forged Node keeps what only a proven one may have");
                assert!(taints_of(node).0, "a forged Node is not tainted");
            }
            return;
        };
        let definition = self.process.definitions.get(&identity.group).await.unwrap();
        let group = self.instances[number].group;
        assert_eq!(
            definition.group.node_labels.entries.len(),
            self.definitions[group].len(),
            "an older definition is in force"
        );
        let wanted = node_labels(&definition, identity.lifecycle, &[]).wanted;
        let wanted: Labels = wanted
            .iter()
            .map(|label| (label.key.to_string(), label.value.to_string()))
            .collect();
        let foreign =
            |key: &&String| self.definitions[1 - group].contains_key(key.as_str()) && !wanted.contains_key(*key);
        if self.policy.foreign_labels == ForeignLabels::Remove {
            assert_eq!(labels.keys().find(foreign), None, "a label of the other group stays");
        }
        expected.extend(wanted.clone());
        assert_eq!(labels, expected, "{} of {}", name(number), identity.group);
        assert!(!taints_of(node).0, "a proven Node keeps the startup taint");
        let record = &self.records[&number];
        let recorded: Vec<&str> = record.status.labels.iter().map(|label| label.key.as_str()).collect();
        let keys: Vec<&str> = wanted.keys().map(String::as_str).collect();
        assert_eq!(recorded, keys, "what the record remembers");
        let quarantined = |found: &Condition| found.type_ == QUARANTINED && found.status == ConditionStatus::True;
        assert!(
            !record.status.conditions.iter().any(quarantined),
            "a proven Node is in quarantine"
        );
    }

    /// What the metrics say of so many Nodes.
    fn check_metrics(&self, nodes: usize, forged: usize) {
        let metrics = self.process.metrics.encode().unwrap();
        let of = |name: &str| -> usize {
            let lines = metrics.lines().filter(|line| line.starts_with(name));
            let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap());
            values.sum()
        };
        assert_eq!(of("tidewaiter_nodes{"), nodes, "{metrics}");
        assert_eq!(of("tidewaiter_nodes{state=\"forged\"}"), forged, "{metrics}");
        assert_eq!(of("tidewaiter_forged_nodes{"), forged, "{metrics}");
    }
}
