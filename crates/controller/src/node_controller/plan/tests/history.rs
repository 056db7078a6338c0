//! Random histories of a small cluster, in which the plan is carried out as `apply` does it: conditional on what was observed,
//! from caches that lag behind, by a process that dies between any two writes.
//!
//! What must hold in each of them: a label of a group is given only to a Node that is the instance it claims to be; what
//! others set stays; and when the cloud answers again and the caches have caught up, every proven Node has exactly the
//! labels of its definition, and then nothing is written any more. A history that fails is printed as the steps that repeat
//! it: paste them into [`play`].

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ObjectMeta;
use proptest::prelude::*;
use tidewaiter_api::names::EXCLUSIVE_ROLE_LABELS;
use tidewaiter_api::{NodeName, NodeUid};
use tidewaiter_kops::{Definition, node_labels};

use super::*;

/// So many instances, and so many Nodes that can be; the one of a number is the other of that number.
const SIZE: usize = 3;
const GROUPS: [(&str, &str); 2] = [("nodes", "Node"), ("masters", "Master")];
/// What groups define, and what is the persons' own.
const KEYS: [&str; 3] = ["a", "b", "mine"];
const VALUES: [&str; 3] = ["1", "2", "3"];

/// One thing that happens. Numbers stand for themselves modulo whatever there is of the kind.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The Node registers, anew if it was there, and claims an instance.
    Register { node: usize, claims: usize },
    /// The Node is deleted.
    Delete { node: usize },
    /// The garbage collector takes the records whose Nodes are gone.
    Collect,
    /// The cloud says another group of an instance from now on.
    Move { instance: usize, group: usize },
    /// An instance stops, or runs again.
    Run { instance: usize, runs: bool },
    /// A group's file gains, changes or loses a label; never the persons' own.
    Define {
        group: usize,
        key: usize,
        value: Option<usize>,
    },
    /// A person, or a kubelet, sets a label.
    Set { node: usize, key: usize, value: usize },
    /// The caches catch up.
    Deliver { nodes: bool, records: bool },
    /// The controller looks at a Node, and dies before it has sent one more than so many writes.
    Pass {
        node: usize,
        cloud: Cloud,
        dies_after: Option<u8>,
    },
}

/// What the cloud answers.
#[derive(Clone, Copy, Debug)]
enum Cloud {
    /// The truth, as it is now.
    Truth,
    /// What was answered the last time for this very Node, from memory.
    Kept,
    Throttled,
    Unreachable,
    /// That there is no such instance.
    Denial,
}

#[derive(Clone, Copy)]
struct Instance {
    group: usize,
    runs: bool,
}

#[derive(Default)]
struct Objects {
    nodes: BTreeMap<usize, Node>,
    records: BTreeMap<usize, Record>,
}

struct World {
    instances: [Instance; SIZE],
    definitions: [BTreeMap<&'static str, &'static str>; GROUPS.len()],
    /// At the API server.
    there: Objects,
    /// In the controller's caches.
    seen: Objects,
    /// What the cloud last said of each Node (uid).
    kept: BTreeMap<String, Identity>,
    version: u64,
    writes: usize,
    /// By uid: the labels that others set and no record has held since.
    others: BTreeMap<String, BTreeMap<String, String>>,
}

/// A write that the API server refuses (409), or that was never sent.
struct Stopped;

fn name(node: usize) -> NodeName {
    format!("node-{node}").parse().unwrap()
}

fn provider_id(instance: usize) -> String {
    format!("aws:///us-east-1a/i-{instance:08}")
}

fn uid(node: &Node) -> NodeUid {
    node.metadata.uid.as_deref().unwrap().parse().unwrap()
}

impl World {
    /// Every Node is there, and is the instance that it claims to be; nobody has labelled it yet.
    fn new() -> Self {
        let mut world = Self {
            instances: [Instance { group: 0, runs: true }; SIZE],
            definitions: [[("a", "1")].into(), [("b", "1")].into()],
            there: Objects::default(),
            seen: Objects::default(),
            kept: BTreeMap::new(),
            version: 0,
            writes: 0,
            others: BTreeMap::new(),
        };
        (0..SIZE).for_each(|node| world.register(node, node));
        world.deliver(true, true);
        world
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Register { node, claims } => self.register(node % SIZE, claims % SIZE),
            Step::Delete { node } => drop(self.there.nodes.remove(&(node % SIZE))),
            Step::Collect => {
                let nodes = &self.there.nodes;
                let owned = |node: &usize, record: &Record| {
                    nodes.get(node).is_some_and(|node| uid(node) == record.spec.node_uid)
                };
                self.there.records.retain(|node, record| owned(node, record));
            }
            Step::Move { instance, group } => self.instances[instance % SIZE].group = group % GROUPS.len(),
            Step::Run { instance, runs } => self.instances[instance % SIZE].runs = runs,
            Step::Define { group, key, value } => {
                let labels = &mut self.definitions[group % GROUPS.len()];
                let key = KEYS[key % (KEYS.len() - 1)];
                match value {
                    Some(value) => drop(labels.insert(key, VALUES[value % VALUES.len()])),
                    None => drop(labels.remove(key)),
                }
            }
            Step::Set { node, key, value } => {
                self.set(node % SIZE, KEYS[key % KEYS.len()], VALUES[value % VALUES.len()]);
            }
            Step::Deliver { nodes, records } => self.deliver(nodes, records),
            Step::Pass {
                node,
                cloud,
                dies_after,
            } => self.pass(node % SIZE, cloud, dies_after),
        }
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn register(&mut self, node: usize, claims: usize) {
        let version = self.next_version();
        let object = json!({
            "metadata": {"name": name(node), "uid": format!("uid-{version}"), "resourceVersion": version},
            "spec": {"providerID": provider_id(claims)},
        });
        self.there.nodes.insert(node, serde_json::from_value(object).unwrap());
    }

    fn set(&mut self, number: usize, key: &str, value: &str) {
        let version = self.next_version();
        let Some(node) = self.there.nodes.get_mut(&number) else {
            return;
        };
        node.metadata.resource_version = Some(version);
        node.metadata
            .labels
            .get_or_insert_default()
            .insert(key.to_owned(), value.to_owned());
        let uid = uid(node).to_string();
        if !self.recorded(number, &uid).contains(key) {
            self.others
                .entry(uid)
                .or_default()
                .insert(key.to_owned(), value.to_owned());
        }
    }

    /// The keys that the record at the API server holds for the Node of this uid: ours to set and to remove.
    fn recorded(&self, number: usize, uid: &str) -> BTreeSet<String> {
        let record = self.there.records.get(&number);
        let labels = record.map_or(&[][..], |record| record.labels_of(uid));
        labels.iter().map(|label| label.key.to_string()).collect()
    }

    fn deliver(&mut self, nodes: bool, records: bool) {
        if nodes {
            self.seen.nodes.clone_from(&self.there.nodes);
        }
        if records {
            self.seen.records.clone_from(&self.there.records);
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

    fn find(&mut self, node: &Node, number: usize, cloud: Cloud) -> Finding {
        let api = "ec2:DescribeInstances";
        let claimed = node.spec.provider_id.as_deref().unwrap();
        let instance = (0..SIZE).find(|instance| provider_id(*instance) == claimed).unwrap();
        let kept = self.kept.get(uid(node).as_str()).cloned();
        let answer = match (cloud, kept) {
            (Cloud::Kept, Some(kept)) => Ok(kept),
            (Cloud::Truth | Cloud::Kept, _) => self.truth(instance),
            (Cloud::Throttled, _) => Err(Refusal::Throttled { api }),
            (Cloud::Unreachable, _) => Err(Refusal::Unavailable {
                api,
                trouble: Trouble::Unreachable,
                detail: String::new(),
            }),
            (Cloud::Denial, _) => Err(Refusal::NotFound {
                instance: format!("i-{instance:08}"),
            }),
        };
        let claim = Claim {
            node: name(number),
            uid: uid(node),
            provider_id: claimed.parse().unwrap(),
            addresses: Vec::new(),
            rivals: Vec::new(),
        };
        match answer.and_then(|identity| {
            self.kept.insert(uid(node).to_string(), identity.clone());
            prove(&claim, Arc::new(identity), NodeNames::Enforce)
        }) {
            Ok(proven) => {
                let labels = node_labels(
                    &self.definition(proven.identity().group.as_str()),
                    proven.identity().lifecycle,
                );
                Finding::Defined(proven, labels)
            }
            Err(refusal) => Finding::Refused(refusal),
        }
    }

    fn definition(&self, group: &str) -> Definition {
        let number = GROUPS.iter().position(|(name, _)| *name == group).unwrap();
        let file = json!({
            "apiVersion": "kops.k8s.io/v1alpha2", "kind": "InstanceGroup", "metadata": {"name": group},
            "spec": {"role": GROUPS[number].1, "nodeLabels": self.definitions[number]},
        });
        let cluster = json!({
            "apiVersion": "kops.k8s.io/v1alpha2", "kind": "Cluster", "metadata": {"name": "c"}, "spec": {},
        });
        Definition {
            cluster: Arc::new(Cluster::parse("f", cluster.to_string().as_bytes(), &"c".parse().unwrap()).unwrap()),
            group: Arc::new(InstanceGroup::parse("f", file.to_string().as_bytes(), &group.parse().unwrap()).unwrap()),
        }
    }

    fn pass(&mut self, number: usize, cloud: Cloud, dies_after: Option<u8>) {
        let Some(node) = self.seen.nodes.get(&number).cloned() else {
            return;
        };
        let seen = Observation {
            name: name(number),
            uid: uid(&node),
            record: self.seen.records.get(&number).cloned().map(Arc::new),
            finding: self.find(&node, number, cloud),
            node: Arc::new(node),
            owned: Arc::default(),
            brake: Brake::Unjudged,
            policy: Policy::default(),
        };
        let plan = plan(&seen, Timestamp::UNIX_EPOCH);
        // What stops it is seen in what the passes after it find.
        let _ = self.apply(number, &seen, &plan, dies_after.unwrap_or(u8::MAX));
    }

    fn apply(&mut self, number: usize, seen: &Observation, plan: &Plan, mut lives_for: u8) -> Result<(), Stopped> {
        let mut alive = || {
            lives_for = lives_for.checked_sub(1).ok_or(Stopped)?;
            Ok(())
        };
        let mut version = seen
            .record
            .as_ref()
            .and_then(|record| record.metadata.resource_version.clone());
        if let Some(content) = &plan.record {
            alive()?;
            version = Some(self.write_record(number, content, version.as_deref())?);
        } else if plan.patch.is_some() {
            self.confirm_record(number, version.as_deref())?;
        }
        if let Some(patch) = &plan.patch {
            alive()?;
            self.patch(number, seen, patch)?;
        }
        if let Some(content) = &plan.narrowed {
            alive()?;
            self.write_record(number, content, version.as_deref())?;
        }
        Ok(())
    }

    fn confirm_record(&self, number: usize, version: Option<&str>) -> Result<(), Stopped> {
        let there = self.there.records.get(&number);
        let there = there.and_then(|record| record.metadata.resource_version.as_deref());
        if there == version { Ok(()) } else { Err(Stopped) }
    }

    /// Creates it, or replaces that version.
    fn write_record(
        &mut self,
        number: usize,
        content: &RecordContent,
        version: Option<&str>,
    ) -> Result<String, Stopped> {
        self.confirm_record(number, version)?;
        let version = self.next_version();
        let metadata = ObjectMeta {
            resource_version: Some(version.clone()),
            ..ObjectMeta::default()
        };
        let RecordContent { spec, status } = content.clone();
        let uid = spec.node_uid.to_string();
        for label in &status.labels {
            self.others.entry(uid.clone()).or_default().remove(label.key.as_str());
        }
        self.there.records.insert(number, Record { metadata, spec, status });
        self.writes += 1;
        Ok(version)
    }

    fn patch(&mut self, number: usize, seen: &Observation, patch: &NodePatch) -> Result<(), Stopped> {
        let version = self.next_version();
        let recorded = self.recorded(number, seen.uid.as_str());
        let there = self.there.nodes.get_mut(&number).ok_or(Stopped)?;
        if there.metadata.uid != seen.node.metadata.uid
            || there.metadata.resource_version != seen.node.metadata.resource_version
        {
            return Err(Stopped);
        }
        let claim = there.spec.provider_id.as_deref();
        assert_eq!(
            claim,
            Some(provider_id(number).as_str()),
            "a Node that is not its instance is written"
        );
        let labels = there.metadata.labels.get_or_insert_default();
        for key in &patch.remove {
            let role = EXCLUSIVE_ROLE_LABELS.contains(&key.as_str());
            assert!(role || recorded.contains(key.as_str()), "{key} is not ours to remove");
            labels.remove(key);
        }
        for (key, value) in &patch.set {
            assert!(
                recorded.contains(key.as_str()),
                "{key} is set before the record holds it"
            );
            labels.insert(key.to_string(), value.to_string());
        }
        there.metadata.resource_version = Some(version);
        self.writes += 1;
        Ok(())
    }

    /// The cloud answers, the caches are fresh, and nobody changes anything: it must come to rest, with everything as it should be.
    fn settle(&mut self) {
        self.step(Step::Collect);
        for _ in 0..2 {
            for node in 0..SIZE {
                self.deliver(true, true);
                self.pass(node, Cloud::Truth, None);
            }
        }
        self.deliver(true, true);
        let before = self.writes;
        (0..SIZE).for_each(|node| self.pass(node, Cloud::Truth, None));
        assert_eq!(self.writes, before, "it does not come to rest");
        for (number, node) in &self.there.nodes {
            self.check(*number, node);
        }
    }

    fn check(&self, number: usize, node: &Node) {
        let uid = uid(node);
        let mut expected = self.others.get(uid.as_str()).cloned().unwrap_or_default();
        let own = node.spec.provider_id.as_deref() == Some(provider_id(number).as_str());
        let identity = self.truth(number).ok().filter(|_| own);
        let Some(identity) = identity else {
            if !own {
                assert_eq!(
                    node.labels(),
                    &expected,
                    "what was given to a Node that is not its instance"
                );
            }
            return;
        };
        let labels = node_labels(&self.definition(identity.group.as_str()), identity.lifecycle);
        let wanted = labels
            .wanted
            .iter()
            .map(|label| (label.key.to_string(), label.value.to_string()));
        let keys: Vec<String> = wanted.clone().map(|(key, _)| key).collect();
        expected.extend(wanted);
        assert_eq!(node.labels(), &expected, "{} of {}", name(number), identity.group);
        let recorded = &self.there.records[&number].status.labels;
        let recorded: Vec<String> = recorded.iter().map(|label| label.key.to_string()).collect();
        assert_eq!(recorded, keys, "what the record remembers");
    }
}

/// Plays a history to its end.
fn play(steps: &[Step]) {
    let mut world = World::new();
    for step in steps {
        world.step(*step);
    }
    world.settle();
}

fn any_step() -> impl Strategy<Value = Step> {
    let (node, instance, group) = (0..SIZE, 0..SIZE, 0..GROUPS.len());
    let cloud = prop_oneof![
        6 => Just(Cloud::Truth),
        2 => Just(Cloud::Kept),
        1 => Just(Cloud::Throttled),
        1 => Just(Cloud::Unreachable),
        1 => Just(Cloud::Denial),
    ];
    let dies_after = prop_oneof![3 => Just(None), 2 => (0..3_u8).prop_map(Some)];
    prop_oneof![
        3 => (node.clone(), instance.clone(), any::<bool>()).prop_map(|(node, other, honest)| Step::Register {
            node,
            claims: if honest { node } else { other },
        }),
        1 => node.clone().prop_map(|node| Step::Delete { node }),
        1 => Just(Step::Collect),
        1 => (instance.clone(), group.clone()).prop_map(|(instance, group)| Step::Move { instance, group }),
        1 => (instance, any::<bool>()).prop_map(|(instance, runs)| Step::Run { instance, runs }),
        3 => (group, 0..KEYS.len(), proptest::option::of(0..VALUES.len()))
            .prop_map(|(group, key, value)| Step::Define { group, key, value }),
        2 => (node.clone(), 0..KEYS.len(), 0..VALUES.len()).prop_map(|(node, key, value)| Step::Set { node, key, value }),
        5 => (any::<bool>(), any::<bool>()).prop_map(|(nodes, records)| Step::Deliver { nodes, records }),
        8 => (node, cloud, dies_after).prop_map(|(node, cloud, dies_after)| Step::Pass { node, cloud, dies_after }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_ends_as_the_definitions_say(steps in proptest::collection::vec(any_step(), 1..40)) {
        play(&steps);
    }
}

#[test]
fn a_key_that_a_dead_process_set_leaves_with_its_definition() {
    let whole = Step::Pass {
        node: 0,
        cloud: Cloud::Truth,
        dies_after: None,
    };
    let gone = Step::Define {
        group: 0,
        key: 0,
        value: None,
    };
    for dies_after in 0..3 {
        let dies = Step::Pass {
            node: 0,
            cloud: Cloud::Truth,
            dies_after: Some(dies_after),
        };
        play(&[dies, gone]);
        play(&[
            whole,
            Step::Deliver {
                nodes: true,
                records: true,
            },
            gone,
            dies,
        ]);
    }
}

#[test]
fn a_key_that_the_cache_does_not_show_yet_leaves_with_its_definition() {
    let pass = Step::Pass {
        node: 0,
        cloud: Cloud::Truth,
        dies_after: None,
    };
    let defines = |value| Step::Define {
        group: 0,
        key: 1,
        value,
    };
    let deliver = |nodes| Step::Deliver { nodes, records: true };
    let labelled = [pass, deliver(true), defines(Some(0)), pass];
    let forgotten = [deliver(false), defines(None), pass];
    play(&[&labelled[..], &forgotten[..]].concat());
}

#[test]
fn a_key_that_we_gave_up_is_anybodys() {
    let pass = Step::Pass {
        node: 0,
        cloud: Cloud::Truth,
        dies_after: None,
    };
    let gone = Step::Define {
        group: 0,
        key: 0,
        value: None,
    };
    let theirs = Step::Set {
        node: 0,
        key: 0,
        value: 2,
    };
    let deliver = |records| Step::Deliver { nodes: true, records };
    play(&[pass, deliver(true), gone, pass, theirs, deliver(false), pass]);
}
