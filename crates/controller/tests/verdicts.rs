//! Verdicts that follow a real API server: what the watches lead to is what a fresh list says.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node as FullNode, Pod as FullPod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Error};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tidewaiter_api::NodeIdentity;
use tidewaiter_controller::controllers::Caches;
use tidewaiter_controller::verdicts::{self, Latest, VerdictParts};
use tidewaiter_identity::{CloudGroup, CloudGroups, GroupsUnavailable, Member, MemberStatus, Sizes};
use tidewaiter_kit::client::fenced;
use tidewaiter_kit::{Clock as _, Kit, Leadership, ManualClock, Metrics, SharedClock, SystemClock, Tasks};
use tidewaiter_kops::{Definitions, DefinitionsSettings, StateStore, StoreOptions};
use tidewaiter_testkit::builders::{cluster, instance_group};
use tidewaiter_testkit::{Action, ApiProxy, ApiRequest, ControlPlane, Identity, Scratch, eventually};
use tidewaiter_validation::{Options, Outcome, PartName, Sources, Unknown, Verdict, judge, observe};

const CLUSTER: &str = "random.example.com";
const SYSTEM: &str = "kube-system";
/// Less than the half minute after which a verdict is made without any change: who is not told of one fails.
const SOON: Duration = Duration::from_mins(3);

/// Instances, and so Nodes, by number; some more than the cloud has.
const NODES: usize = 6;
const PODS: usize = 8;
const APPS: [&str; 3] = ["kube-apiserver", "kube-scheduler", "coredns"];
const PRIORITIES: [&str; 3] = ["system-node-critical", "system-cluster-critical", ""];
const PHASES: [&str; 5] = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];
/// The status of `Verified`, and its reason. Most are proven.
const RECORDS: [(&str, &str); 5] = [
    ("True", "Proven"),
    ("True", "Proven"),
    ("True", "Proven"),
    ("False", "NameMismatch"),
    ("Unknown", "Throttled"),
];
const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

/// A change in the cluster.
#[derive(Clone, Debug)]
enum Event {
    /// The Node is there, and says this of itself.
    Node {
        node: usize,
        ready: usize,
        network: usize,
    },
    NodeGone(usize),
    /// Its record says this of it.
    Record {
        node: usize,
        said: usize,
    },
    RecordGone(usize),
    /// The pod is there; what cannot change is as it was when it was made.
    Pod {
        pod: usize,
        node: usize,
        app: usize,
        priority: usize,
        phase: usize,
        ready: bool,
    },
    PodGone(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..NODES, 0..STATUSES.len(), 0..STATUSES.len())
            .prop_map(|(node, ready, network)| Event::Node { node, ready, network }),
        1 => (0..NODES).prop_map(Event::NodeGone),
        4 => (0..NODES, 0..RECORDS.len()).prop_map(|(node, said)| Event::Record { node, said }),
        1 => (0..NODES).prop_map(Event::RecordGone),
        6 => (0..PODS, 0..NODES, 0..APPS.len(), 0..PRIORITIES.len(), 0..PHASES.len(), any::<bool>()).prop_map(
            |(pod, node, app, priority, phase, ready)| Event::Pod { pod, node, app, priority, phase, ready }
        ),
        2 => (0..PODS).prop_map(Event::PodGone),
    ]
}

fn instance(number: usize) -> String {
    format!("i-{number:017x}")
}

fn provider_id(number: usize) -> String {
    format!("aws:///us-test-1a/{}", instance(number))
}

/// Two groups: a control plane of two instances and workers of three; the last Node is nobody's.
struct Cloud;

#[async_trait]
impl CloudGroups for Cloud {
    async fn groups(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
        let member = |number| Member {
            id: instance(number),
            provider_id: provider_id(number).parse().unwrap(),
            node_name: None,
            status: MemberStatus::UpToDate,
            warm_pool: false,
        };
        let group = |name: &str, numbers: std::ops::Range<usize>| CloudGroup {
            name: format!("{name}.{CLUSTER}"),
            instance_group: name.parse().unwrap(),
            role: None,
            sizes: Sizes::OfCloud {
                target: u32::try_from(numbers.len()).unwrap(),
                min: 1,
                max: 9,
            },
            members: numbers.map(member).collect(),
        };
        Ok(vec![group("control-plane", 0..2), group("nodes", 2..NODES - 1)])
    }

    fn location(&self) -> Option<String> {
        None
    }
}

#[expect(clippy::disallowed_methods, reason = "files that nobody reads yet")]
fn fill_store(folder: &Path) -> String {
    let url = format!("file://{}", folder.display());
    std::fs::create_dir_all(folder.join("instancegroup")).unwrap();
    let unpublished = cluster(CLUSTER, &url).set(&["spec", "topology", "dns", "type"], "None");
    std::fs::write(folder.join("cluster-completed.spec"), unpublished.to_yaml()).unwrap();
    for (name, role) in [("control-plane", "Master"), ("nodes", "Node")] {
        let group = instance_group(name, CLUSTER, role);
        std::fs::write(folder.join("instancegroup").join(name), group.to_yaml()).unwrap();
    }
    url
}

struct World {
    client: Client,
    sources: Sources,
    latest: Latest,
    metrics: Metrics,
}

fn kit(clock: SharedClock) -> Kit {
    Kit::new(clock).unwrap()
}

/// With the definitions of our kinds.
async fn control_plane() -> &'static ControlPlane {
    let control_plane = ControlPlane::shared().await;
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    control_plane.apply_manifests(crds).await;
    control_plane
}

/// Builds the caches and the verdicts; `tasks` keep them current, once they run.
fn world(client: Client, store: &str, clock: SharedClock, tasks: &mut Tasks) -> World {
    let kit = kit(Arc::clone(&clock));
    let store = StateStore::open(&store.parse().unwrap(), StoreOptions::default()).unwrap();
    let polled = DefinitionsSettings::default();
    let name: tidewaiter_api::ClusterName = CLUSTER.parse().unwrap();
    let definitions =
        Definitions::new(Arc::new(store), name.clone(), polled, Arc::clone(&clock), &kit.metrics).unwrap();
    let Caches { nodes, records, pods } = Caches::start(&client, tasks, &kit);
    let parts = VerdictParts {
        cluster: name.clone(),
        nodes,
        records,
        pods,
        definitions: Some(definitions.clone()),
        cloud: Arc::new(Cloud),
        options: Options::default(),
        client: client.clone(),
    };
    let latest = verdicts::start(parts, tasks, &kit).unwrap();
    let sources = Sources {
        server: String::new(),
        cluster: name,
        definitions,
        cloud: Arc::new(Cloud),
        client: client.clone(),
        clock,
    };
    World {
        client,
        sources,
        latest,
        metrics: kit.metrics,
    }
}

impl World {
    async fn happens(&self, event: &Event) {
        let nodes: Api<FullNode> = Api::all(self.client.clone());
        let pods: Api<FullPod> = Api::namespaced(self.client.clone(), SYSTEM);
        match *event {
            Event::Node { node, ready, network } => {
                let control_plane = if node < 2 {
                    json!({"node-role.kubernetes.io/control-plane": ""})
                } else {
                    json!({})
                };
                let name = format!("n{node}");
                let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": control_plane},
                    "spec": {"providerID": provider_id(node)}});
                create(&nodes, object).await;
                let conditions = json!([{"type": "Ready", "status": STATUSES[ready]},
                    {"type": "NetworkUnavailable", "status": STATUSES[network]}]);
                status(&nodes, &name, json!({"conditions": conditions})).await;
            }
            Event::NodeGone(node) => gone(&nodes, &format!("n{node}")).await,
            Event::Record { node, said } => self.record(node, RECORDS[said]).await,
            Event::RecordGone(node) => {
                let records: Api<NodeIdentity> = Api::all(self.client.clone());
                gone(&records, &format!("n{node}")).await;
            }
            Event::Pod {
                pod,
                node,
                app,
                priority,
                phase,
                ready,
            } => {
                let name = format!("p{pod}");
                let object = json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "namespace": SYSTEM, "labels": {"k8s-app": APPS[app]}},
                    "spec": {"priorityClassName": PRIORITIES[priority], "nodeName": format!("n{node}"),
                        "containers": [{"name": "main", "image": "registry.example/main:1"}]}});
                create(&pods, object).await;
                let container =
                    json!({"name": "main", "ready": ready, "restartCount": 0, "image": "x", "imageID": "x"});
                status(
                    &pods,
                    &name,
                    json!({"phase": PHASES[phase], "containerStatuses": [container]}),
                )
                .await;
            }
            Event::PodGone(pod) => gone(&pods, &format!("p{pod}")).await,
        }
    }

    /// Writes the record of a Node, if it is there.
    async fn record(&self, node: usize, (status, reason): (&str, &str)) {
        let nodes: Api<FullNode> = Api::all(self.client.clone());
        let records: Api<NodeIdentity> = Api::all(self.client.clone());
        let name = format!("n{node}");
        let Some(found) = nodes.get_opt(&name).await.unwrap() else {
            return;
        };
        let mut said = json!({"conditions": [{"type": "Verified", "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        if status == "True" {
            said["instance"] = json!(instance(node));
            said["instanceGroup"] = json!("nodes");
        }
        let record = json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "NodeIdentity", "metadata": {"name": name},
            "spec": {"nodeUID": found.metadata.uid, "providerID": provider_id(node)}, "status": said});
        let params = PatchParams::apply("test").force();
        records.patch(&name, &params, &Patch::Apply(record)).await.unwrap();
    }

    /// Returns the verdict on a complete list of now.
    async fn fresh(&self) -> Verdict {
        judge(&observe(&self.sources).await, &Options::default())
    }
}

fn code(error: Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

/// Unless it is there.
async fn create<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    if let Err(error) = api.create(&PostParams::default(), &object).await {
        assert_eq!(code(error), 409);
    }
}

async fn status<K>(api: &Api<K>, name: &str, status: Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// At once, and unless it is not there.
async fn gone<K>(api: &Api<K>, name: &str)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    if let Err(error) = api.delete(name, &DeleteParams::default().grace_period(0)).await {
        assert_eq!(code(error), 404);
    }
}

#[tokio::test]
async fn whatever_happens_the_watches_lead_to_what_a_fresh_list_says() {
    let control_plane = control_plane().await;
    let client = control_plane.client(&Identity::Admin);
    let scratch = Scratch::new("verdicts");
    let url = fill_store(&scratch.path().join("state"));
    // What kube-controller-manager makes, which does not run here.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), SYSTEM);
    create(
        &accounts,
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
    )
    .await;
    let mut tasks = Tasks::new(SystemClock::shared());
    let world = world(client, &url, SystemClock::shared(), &mut tasks);
    let cases = async {
        let mut runner = TestRunner::new(Config::default());
        let mut outcomes = Vec::new();
        for _ in 0..10 {
            let events = prop::collection::vec(event(), 1..60)
                .new_tree(&mut runner)
                .unwrap()
                .current();
            for event in &events {
                world.happens(event).await;
            }
            let fresh = world.fresh().await;
            let parts = fresh.unknown.iter().map(|unknown| unknown.part);
            assert!(
                parts.clone().all(|part| part == PartName::NodeIdentities),
                "{:?}",
                fresh.unknown
            );
            assert!(!fresh.trusts_claims);
            eventually(format!("the verdict after {events:?}"), SOON, async || {
                let latest = world.latest.borrow().as_ref().map(|judged| judged.verdict.clone());
                if latest.as_ref() == Some(&fresh) {
                    Ok(())
                } else {
                    Err(format!("{latest:?}\nand fresh {fresh:?}"))
                }
            })
            .await;
            outcomes.push(fresh.failures);
        }
        // By what they say, not by how many failures there are: random events often lead to the same number.
        let varied = outcomes.iter().any(|failures| *failures != outcomes[0]);
        assert!(varied, "the cases are all alike: {outcomes:?}");
        assert_eq!(world.fresh().await.outcome(), Outcome::Failed);
        let metrics = world.metrics.encode().unwrap();
        assert!(
            metrics.contains("\ntidewaiter_cluster_verdict_duration_seconds_count "),
            "{metrics}"
        );
    };
    tokio::select! {
        ended = tasks.run_until(std::future::pending()) => panic!("{ended:?}"),
        () = cases => {}
    }
}

/// Lets time pass, half a second at each look, until the newest verdict pleases; says how much it took.
async fn passes_until(
    clock: &ManualClock,
    latest: &Latest,
    what: &str,
    pleases: impl Fn(&Verdict) -> bool,
) -> Duration {
    let begun = clock.monotonic();
    eventually(what, Duration::from_mins(2), async || {
        clock.advance(Duration::from_millis(500));
        let verdict = latest.borrow().as_ref().map(|judged| judged.verdict.clone());
        match verdict {
            Some(verdict) if pleases(&verdict) => Ok(()),
            other => Err(format!("{:?}", other.map(|verdict| verdict.unknown))),
        }
    })
    .await;
    clock.monotonic().saturating_sub(begun)
}

#[tokio::test]
async fn what_the_api_server_said_is_known_for_two_minutes_and_no_longer() {
    let control_plane = control_plane().await;
    let proxy = ApiProxy::start(control_plane, &Identity::Admin);
    let options = KubeConfigOptions::default();
    let kubeconfig = Kubeconfig::read_from(proxy.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let clock = ManualClock::default();
    let kit = kit(clock.shared());
    let client = fenced(&config, &Leadership::never(clock.shared()), &kit).await.unwrap();
    let scratch = Scratch::new("verdicts-away");
    let url = fill_store(&scratch.path().join("state"));
    let mut tasks = Tasks::new(SystemClock::shared());
    let world = world(client, &url, clock.shared(), &mut tasks);
    let case = async {
        // The Nodes of the other test are not all proven.
        let all = |verdict: &Verdict| {
            let mut unknown = verdict.unknown.iter();
            unknown.all(|unknown| unknown.part == PartName::NodeIdentities && unknown.reason.contains("is not proven"))
        };
        passes_until(&clock, &world.latest, "all to be known", all).await;
        proxy.down().await;
        let parts = [PartName::Nodes, PartName::NodeIdentities, PartName::Pods];
        let away = |verdict: &Verdict| {
            let stale = |unknown: &Unknown| unknown.reason.contains(" are known as of ");
            parts
                .iter()
                .all(|part| verdict.unknown.iter().any(|it| it.part == *part && stale(it)))
        };
        let took = passes_until(&clock, &world.latest, "Nodes, records and Pods to be unknown", away).await;
        assert!(
            took > Duration::from_mins(2) && took < Duration::from_mins(10),
            "{took:?}"
        );
        let judged = world.latest.borrow().clone().unwrap();
        let counts = judged.verdict.counts;
        assert_eq!((counts.nodes_ready, counts.pods_pending), (None, None));
        let said = &judged.verdict.unknown[0].reason;
        assert!(said.starts_with("the nodes are known as of "), "{said}");
        proxy.up().await;
        passes_until(&clock, &world.latest, "all to be known again", all).await;

        // The storage is away, and the watches go on.
        let reads = |request: &ApiRequest| request.path.contains("/clusterhealths/");
        let no_storage = || Action::refuse(500, "InternalError", "etcdserver: request timed out");
        proxy.on(reads, no_storage);
        let blind = |verdict: &Verdict| {
            let told = |unknown: &Unknown| unknown.reason.contains("does not read its storage");
            parts
                .iter()
                .all(|part| verdict.unknown.iter().any(|it| it.part == *part && told(it)))
        };
        let took = passes_until(&clock, &world.latest, "all to be unknown without storage", blind).await;
        assert!(
            took > Duration::from_secs(90) && took < Duration::from_mins(10),
            "{took:?}"
        );
        proxy.clear_hook();
        passes_until(&clock, &world.latest, "all to be known with storage", all).await;
    };
    tokio::select! {
        ended = tasks.run_until(std::future::pending()) => panic!("{ended:?}"),
        () = case => {}
    }
}
