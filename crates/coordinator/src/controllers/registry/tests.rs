//! The registry controller and the Containership controller in simulated time, against a simulated API server and
//! scripted registries: what takes hours, and what needs thousands of namespaces.

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use tidewaiter_api::containership::Registry;
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::events::Reporter;
use tidewaiter_kit::{ControllerContext, Events, Kit, Leadership, Pause, SimulatedClock, Tasks};
use tidewaiter_testkit::sim::{ApiServer, Kind, Process, Verb, Write};
use tokio::task::JoinHandle;

use super::start::start_with;
use super::*;
use crate::controllers::{Shared, containership};
use crate::mirror::CloudList;

const SECOND: Duration = Duration::from_secs(1);

/// The scripted answers of registries, by host. A host that is not scripted accepts.
#[derive(Clone)]
struct Scripted {
    answers: Arc<Mutex<BTreeMap<String, Verdict>>>,
    asked: Arc<Mutex<Vec<String>>>,
    clock: SharedClock,
}

impl Verify for Scripted {
    async fn check(&self, login: &Login) -> Verdict {
        let host = login.address.place();
        self.asked.lock().push(host.clone());
        let answer = self.answers.lock().get(&host).copied();
        let answer = answer.unwrap_or(Verdict::Accepted);
        // One that cannot be asked takes as long as the real verifier waits.
        let takes = if matches!(answer, Verdict::Unknown(_)) {
            20 * SECOND
        } else {
            SECOND / 10
        };
        self.clock.sleep(takes).await;
        answer
    }
}

struct World {
    server: ApiServer,
    registries: Scripted,
    clock: SharedClock,
    /// The number of coordinators that were started, which is in their names.
    starts: u32,
    /// The cloud's lists; None without a mirror.
    lists: Option<RegistryLists>,
}

struct Coordinator {
    name: String,
    kit: Kit,
    _running: JoinHandle<()>,
}

impl World {
    fn new() -> Self {
        let kinds = [
            Kind::of::<Namespace>(),
            Kind::of::<Secret>(),
            Kind::of::<ServiceAccount>(),
            Kind::of::<Registry>(),
            Kind::of::<Event>(),
        ];
        let clock = SimulatedClock::shared();
        let world = Self {
            server: ApiServer::new(kinds, 7),
            registries: Scripted {
                answers: Arc::default(),
                asked: Arc::default(),
                clock: Arc::clone(&clock),
            },
            clock,
            starts: 0,
            lists: None,
        };
        world.namespace("default");
        world.namespace(CONTAINERSHIP_NAMESPACE);
        world
    }

    fn namespace(&self, name: &str) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        assert!(self.server.create("a person", &namespace));
    }

    /// Writes the objects of the mirror for a registry at `ID.example.com`.
    fn registry(&self, id: &str) {
        self.credentials(id);
        self.without_credentials(id);
    }

    fn credentials(&self, id: &str) {
        assert!(self.server.create("mirror", &credentials(id, "hunter2")));
    }

    fn without_credentials(&self, id: &str) {
        let registry = json!({
            "apiVersion": "containership.io/v3", "kind": "Registry",
            "metadata": {"name": id, "namespace": CONTAINERSHIP_NAMESPACE}, "spec": {"id": id},
        });
        assert!(self.server.create("mirror", &registry));
    }

    fn answers(&self, id: &str, verdict: Verdict) {
        let host = format!("{id}.example.com");
        self.registries.answers.lock().insert(host, verdict);
    }

    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    fn coordinator(&mut self) -> Coordinator {
        self.starts += 1;
        let name = format!("coordinator-{}", self.starts);
        let process = Process::new(&name);
        let kit = Kit::new(Arc::clone(&self.clock)).unwrap();
        let leadership = Leadership::always(Arc::clone(&self.clock));
        let clients = Clients::over(self.server.connect(&process), &leadership, &kit);
        let mut tasks = Tasks::new(Arc::clone(&self.clock));
        let reporter = Reporter {
            controller: "tidewaiter-coordinator".to_owned(),
            instance: name.clone(),
        };
        let context = ControllerContext {
            kit: kit.clone(),
            leadership,
            events: Events::start(clients.for_events(), Arc::clone(&self.clock), reporter, &mut tasks),
            pause: Pause::never(),
            shutdown: tasks.shutdown_token(),
        };
        let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
        let namespaces = Cache::metadata(reader.clone())
            .page_size(500)
            .packed()
            .start(&mut tasks, &kit);
        let shared = Shared {
            clients: &clients,
            reader,
            namespaces,
            registry_lists: self.lists.clone(),
            context: &context,
        };
        let settings = RegistrySettings::default();
        let registries = start_with(self.registries.clone(), &settings, &shared, &mut tasks).unwrap();
        containership::start(&settings, &shared, registries, &mut tasks);
        let running = tokio::spawn(async move {
            tasks.run_until(std::future::pending()).await.unwrap();
        });
        Coordinator {
            name,
            kit,
            _running: running,
        }
    }

    async fn passes(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    /// The names of the pull secrets in a namespace.
    fn pull_secrets(&self, namespace: &str) -> BTreeSet<String> {
        self.server.read(|objects| {
            let copies = objects.all("secrets").filter(|secret| {
                let metadata = &secret["metadata"];
                metadata["namespace"] == namespace && metadata["labels"]["controller"] == metadata["name"]
            });
            copies.map(|secret| text(&secret["metadata"]["name"])).collect()
        })
    }

    /// The notes of the Events of this reason about the object of this name.
    fn events(&self, about: &str, reason: &str) -> Vec<String> {
        self.server.read(|objects| {
            let events = objects
                .all("events")
                .filter(|event| event["regarding"]["name"] == about && event["reason"] == reason);
            events.map(|event| text(&event["note"])).collect()
        })
    }

    /// The writes of a coordinator since then, except Events.
    fn writes(&self, coordinator: &Coordinator, since: Duration) -> Vec<Write> {
        let mut writes = self.server.writes();
        writes.retain(|write| write.by == coordinator.name && write.at >= since && write.resource != "events");
        writes
    }

    /// The namespaces whose account does not have exactly these pull secrets, or which do not have them themselves.
    fn incomplete(&self, ids: &[&str]) -> usize {
        let wanted: BTreeSet<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        self.server.read(|objects| {
            let mut copies = BTreeMap::<String, BTreeSet<String>>::new();
            for secret in objects.all("secrets") {
                let metadata = &secret["metadata"];
                if metadata["labels"]["controller"] == metadata["name"] {
                    let in_it = copies.entry(text(&metadata["namespace"])).or_default();
                    in_it.insert(text(&metadata["name"]));
                }
            }
            let namespaces = objects
                .all("namespaces")
                .map(|namespace| text(&namespace["metadata"]["name"]));
            let lacks = |namespace: &String| {
                let account = objects.get("serviceaccounts", namespace, "containership");
                let entries = account.and_then(|account| account["imagePullSecrets"].as_array());
                let entries: BTreeSet<String> = entries.into_iter().flatten().map(|it| text(&it["name"])).collect();
                entries != wanted || copies.get(namespace) != Some(&wanted)
            };
            namespaces.filter(lacks).count()
        })
    }
}

/// The Secret of the mirror with the credentials of the registry at `ID.example.com`.
fn credentials(id: &str, password: &str) -> Value {
    let credentials = json!({"username": "u", "password": format!("{password}-{id}")}).to_string();
    let host = format!("{id}.example.com");
    let text = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": format!("registry-{id}"), "namespace": CONTAINERSHIP_NAMESPACE,
            "labels": {"tidewaiter.dev/registry": id, "containership.io/managed": "true"}},
        "data": {"provider": text("private"), "serveraddress": text(&host), "credentials.json": text(&credentials)},
    })
}

impl Coordinator {
    fn shows(&self, line: &str) -> bool {
        let metrics = self.kit.metrics.encode().unwrap();
        metrics.lines().any(|shown| shown == line)
    }

    /// The passes over namespaces so far.
    fn passes(&self) -> u64 {
        let metrics = self.kit.metrics.encode().unwrap();
        let counts = metrics.lines().filter_map(|line| {
            let series = line.strip_prefix("tidewaiter_reconciles_total{")?;
            let of_namespaces = ["pullsecret", "containership"].map(|name| format!("controller=\"{name}\""));
            let (labels, count) = series.split_once("} ")?;
            let is_one = of_namespaces.iter().any(|controller| labels.contains(controller));
            is_one.then(|| count.parse::<u64>().unwrap())
        });
        counts.sum()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// On the real API server, `many_namespaces…` has fewer, and shows that a restart writes nothing.
const NAMESPACES: usize = 10_000;

#[tokio::test(start_paused = true)]
async fn ten_thousand_namespaces_cost_one_creation_for_each_child() {
    let mut world = World::new();
    world.registry("a");
    world.registry("b");
    for nth in 0..NAMESPACES {
        world.namespace(&format!("team-{nth}"));
    }
    let coordinator = world.coordinator();
    let mut waited = 0;
    while world.incomplete(&["a", "b"]) > 0 {
        waited += 1;
        assert!(
            waited < 100,
            "{} namespaces lack something",
            world.incomplete(&["a", "b"])
        );
        world.passes(5 * SECOND).await;
    }
    let writes = world.writes(&coordinator, Duration::ZERO);
    let created = writes
        .iter()
        .filter(|write| write.verb == Verb::Create && write.is_accepted());
    assert_eq!(created.count(), 3 * (NAMESPACES + 2));
    // Accounts that were made before the registries had answered got their entries later.
    let others = writes.len() - 3 * (NAMESPACES + 2);
    assert!(others < 1_000, "{others} other writes");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_refuses_is_retried_at_a_moderate_rate() {
    const HOURS: u64 = 2;
    let mut world = World::new();
    world.registry("a");
    for (namespace, code, message) in [
        (
            "quota",
            403,
            "secrets \"a\" is forbidden: exceeded quota: none, requested: secrets=1",
        ),
        ("policy", 422, "ValidatingAdmissionPolicy 'p' denied request"),
        (
            "webhook",
            500,
            "Internal error occurred: failed calling webhook \"w.example.com\": deadline exceeded",
        ),
    ] {
        world.namespace(namespace);
        world.server.refuse("secrets", namespace, code, message);
    }
    let coordinator = world.coordinator();
    world.passes(5 * SECOND).await;
    for number in 0..20 {
        let name = format!("team-{number}");
        world.namespace(&name);
        world.passes(SECOND).await;
        assert_eq!(world.pull_secrets(&name).len(), 1, "{name}");
    }
    world.passes(Duration::from_hours(HOURS)).await;
    let attempts = world.writes(&coordinator, Duration::ZERO);
    for (namespace, reason, moderate) in [
        // A backoff of up to two minutes.
        ("quota", "WriteDenied", 60 * HOURS / 2..=60 * HOURS + 10),
        ("webhook", "WebhookFailed", 60 * HOURS / 2..=60 * HOURS + 10),
        // Every five minutes: only a change helps.
        ("policy", "WriteRejected", 60 * HOURS / 7..=60 * HOURS / 3),
    ] {
        let tried = attempts
            .iter()
            .filter(|write| write.namespace == namespace && write.resource == "secrets");
        let tried = tried.count() as u64;
        assert!(
            moderate.contains(&tried),
            "{tried} attempts in {namespace} within {HOURS} hours"
        );
        let events = world.events(namespace, reason);
        assert!((1..=4).contains(&events.len()), "{namespace}: {events:?}");
        assert!(events[0].contains("Secret"), "{events:?}");
        let account = world.server.read(|objects| {
            let account = objects.get("serviceaccounts", namespace, "containership").unwrap();
            account["imagePullSecrets"].clone()
        });
        assert_eq!(account, json!([{"name": "a"}]), "the rest is done in {namespace}");
    }
}

/// Each deletion starts a pass, which fails: that must neither drive the writes nor delay the retry.
#[tokio::test(start_paused = true)]
async fn a_quota_that_ends_is_noticed_soon_although_many_pull_secrets_were_deleted_under_it() {
    let mut world = World::new();
    let ids = ["r0", "r1", "r2", "r3", "r4", "r5", "r6"];
    for id in ids {
        world.registry(id);
    }
    world.namespace("quota");
    let coordinator = world.coordinator();
    world.passes(10 * SECOND).await;
    assert_eq!(world.pull_secrets("quota").len(), 7);
    let full = "secrets \"r\" is forbidden: exceeded quota: none, requested: secrets=1";
    world.server.refuse("secrets", "quota", 403, full);
    let before = world.server.elapsed();
    for id in ids {
        assert!(world.server.delete("a person", "secrets", "quota", id));
        world.passes(SECOND / 5).await;
    }
    world.passes(5 * SECOND).await;
    assert_eq!(world.pull_secrets("quota").len(), 0);
    let refused = world.writes(&coordinator, before).len();
    // Seven deletions, at most two passes a second meanwhile, and then a backoff of 1, 2, 4 seconds.
    assert!(refused <= 7 * 7, "{refused} refused writes");
    world.server.permit("secrets", "quota");
    world.passes(10 * SECOND).await;
    assert_eq!(
        world.pull_secrets("quota").len(),
        7,
        "the backoff is not longer than what it waited for so far"
    );
}

#[tokio::test(start_paused = true)]
async fn of_fifty_registries_one_that_hangs_and_one_that_is_broken_delay_no_other() {
    let mut world = World::new();
    let ids: Vec<String> = (0..50).map(|number| format!("r{number:02}")).collect();
    for id in &ids {
        world.registry(id);
    }
    // More than the controller has permits.
    for id in &ids[..20] {
        world.answers(id, Verdict::Unknown("it does not answer in time"));
    }
    world.answers("r20", Verdict::Refused);
    let coordinator = world.coordinator();
    world.passes(2 * SECOND).await;
    let there = world.pull_secrets("default");
    assert_eq!(there, ids[21..].iter().cloned().collect());
    assert!(!world.events("r20", "CredentialRefused").is_empty());

    // The nodes may reach what the coordinator does not: without an earlier one, the credential is used untried.
    world.passes(30 * SECOND).await;
    let there = world.pull_secrets("default");
    assert_eq!(there.len(), 49);
    assert!(!there.contains("r20"));
    for line in ["ready\"} 29", "unchecked\"} 20", "refused\"} 1"] {
        assert!(
            coordinator.shows(&format!("tidewaiter_registries{{state=\"{line}")),
            "{line}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_is_revoked_is_reported_within_the_hour_and_stays() {
    let mut world = World::new();
    world.registry("r");
    let coordinator = world.coordinator();
    world.passes(5 * SECOND).await;
    assert_eq!(world.pull_secrets("default").len(), 1);
    let settled = world.server.elapsed();
    let asked = || world.registries.asked.lock().len();
    assert_eq!(asked(), 1);

    world.answers("r", Verdict::Refused);
    world.passes(Duration::from_mins(50)).await;
    assert_eq!(asked(), 1, "it is tried again each hour");
    world.passes(Duration::from_mins(20)).await;
    let events = world.events("r", "CredentialRefused");
    assert!(
        events[0].starts_with("Registry r: r.example.com refuses")
            && events[0].contains("so nodes cannot pull with it."),
        "{events:?}"
    );
    assert!(coordinator.shows("tidewaiter_registries{state=\"refused\"} 1"));
    // Every few minutes from now on; nothing is taken away, and new namespaces get what there is.
    world.passes(Duration::from_hours(1)).await;
    assert!((8..=30).contains(&asked()), "{}", asked());
    assert_eq!(world.writes(&coordinator, settled).len(), 0);
    world.namespace("late");
    world.passes(SECOND).await;
    assert_eq!(world.pull_secrets("late").len(), 1);

    world.answers("r", Verdict::Accepted);
    world.passes(Duration::from_mins(7)).await;
    assert!(coordinator.shows("tidewaiter_registries{state=\"ready\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_credential_is_tried_again_at_once_when_it_changes_and_every_few_minutes() {
    let mut world = World::new();
    world.registry("r");
    world.answers("r", Verdict::Refused);
    let coordinator = world.coordinator();
    world.passes(10 * SECOND).await;
    assert!(coordinator.shows("tidewaiter_registries{state=\"refused\"} 1"));
    let asked = || world.registries.asked.lock().len();
    assert_eq!(asked(), 1);
    world.passes(Duration::from_mins(3)).await;
    assert_eq!(asked(), 1, "many attempts with a wrong password lock an account");
    world.passes(Duration::from_mins(4)).await;
    assert_eq!(asked(), 2);

    // Corrected in the cloud: the mirror writes another password.
    world.answers("r", Verdict::Accepted);
    let corrected = json!({"username": "u", "password": "hunter2-corrected"}).to_string();
    world
        .server
        .edit("mirror", "secrets", CONTAINERSHIP_NAMESPACE, "registry-r", |secret| {
            secret["data"]["credentials.json"] = json!(ByteString(corrected.into_bytes()));
        });
    world.passes(2 * SECOND).await;
    assert_eq!(asked(), 3);
    assert!(coordinator.shows("tidewaiter_registries{state=\"ready\"} 1"));
    assert_eq!(world.pull_secrets("default").len(), 1);
}

/// The mirror writes both, in any order.
#[tokio::test(start_paused = true)]
async fn a_registry_whose_credentials_come_a_moment_later_is_no_news() {
    let mut world = World::new();
    let coordinator = world.coordinator();
    for id in ["quick", "late"] {
        world.without_credentials(id);
    }
    world.passes(4 * SECOND).await;
    world.credentials("quick");
    world.passes(2 * SECOND).await;
    assert_eq!(world.pull_secrets("default"), ["quick".to_owned()].into());
    world.passes(20 * SECOND).await;
    assert_eq!(world.events("quick", "CredentialMissing"), [""; 0]);
    assert_eq!(world.events("late", "CredentialMissing").len(), 1);
    assert!(coordinator.shows("tidewaiter_registries{state=\"missing\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn credentials_that_somebody_edits_are_in_no_pull_secret() {
    const ID: &str = "cccccccc-0000-4000-8000-000000000001";
    const FORGED: &str = "cccccccc-0000-4000-8000-000000000002";
    let mut world = World::new();
    let lists = RegistryLists {
        registries: CloudList::new("sync-registries"),
        credentials: CloudList::new("sync-registry-credentials"),
    };
    world.lists = Some(lists.clone());
    world.registry(ID);
    world.registry(FORGED);
    let started = world.coordinator();
    let password = |namespace: &str| {
        let copy = world
            .server
            .read(|objects| objects.get("secrets", namespace, ID).cloned());
        let data: Option<ByteString> =
            copy.and_then(|copy| serde_json::from_value(copy["data"][".dockerconfigjson"].clone()).ok());
        let config: Option<Value> = data.and_then(|data| serde_json::from_slice(&data.0).ok());
        config.map(|config| text(&config["auths"][format!("{ID}.example.com")]["password"]))
    };
    let listed = |password: &str| {
        let registry = json!({"metadata": {"name": ID}, "spec": {"id": ID}});
        let registry: Registry = serde_json::from_value(registry).unwrap();
        lists
            .registries
            .set([(ID.to_owned(), Some(Arc::new(registry)))].into(), [].into(), true);
        let secret: Secret = serde_json::from_value(credentials(ID, password)).unwrap();
        let name = format!("registry-{ID}");
        lists
            .credentials
            .set([(name, Some(Arc::new(secret)))].into(), [].into(), true);
    };
    let name = format!("registry-{ID}");
    let edits = |password: &str| {
        let forged = credentials(ID, password)["data"].clone();
        world
            .server
            .edit("somebody", "secrets", CONTAINERSHIP_NAMESPACE, &name, |secret| {
                secret["data"] = forged;
            });
    };
    let is = |password: &str| Some(format!("{password}-{ID}"));
    let _coordinator = started;
    // The cloud was not asked yet, and then it does not answer: nobody knows who wrote the Secret.
    world.passes(20 * SECOND).await;
    assert_eq!(password("default"), None);
    lists.registries.recall(None);
    lists.credentials.recall(None);
    world.passes(20 * SECOND).await;
    assert_eq!(password("default"), None);
    listed("hunter2");
    world.passes(5 * SECOND).await;
    assert_eq!(password("default"), is("hunter2"));
    for _ in 0..50 {
        edits("evil");
        world.passes(SECOND / 100).await;
        assert_eq!(password("default"), is("hunter2"));
    }
    // The cloud has another one while the edited one is there.
    listed("hunter3");
    world.passes(5 * SECOND).await;
    assert_eq!(password("default"), is("hunter3"));
    assert_eq!(
        world.pull_secrets("default").len(),
        1,
        "none of a registry that the cloud does not list"
    );
}

/// A pass over each namespace is expensive: with ten thousand of them, each event below would start twenty thousand
/// passes.
#[tokio::test(start_paused = true)]
async fn only_a_change_of_a_pull_secret_queues_the_namespaces() {
    let mut world = World::new();
    let lists = RegistryLists {
        registries: CloudList::new("sync-registries"),
        credentials: CloudList::new("sync-registry-credentials"),
    };
    world.lists = Some(lists.clone());
    let list = |ids: &[&str], with_credentials: &[&str]| {
        let registry = |id: &&str| {
            let description = format!("images of {id}");
            let registry = json!({"metadata": {"name": id}, "spec": {"id": id, "description": description}});
            (
                (*id).to_owned(),
                Some(Arc::new(serde_json::from_value(registry).unwrap())),
            )
        };
        let secret = |id: &&str| {
            let secret = serde_json::from_value(credentials(id, "hunter2")).unwrap();
            (format!("registry-{id}"), Some(Arc::new(secret)))
        };
        lists
            .registries
            .set(ids.iter().map(registry).collect(), BTreeSet::new(), true);
        lists
            .credentials
            .set(with_credentials.iter().map(secret).collect(), BTreeSet::new(), true);
    };
    list(&["a"], &["a"]);
    world.registry("a");
    for nth in 0..20 {
        world.namespace(&format!("team-{nth}"));
    }
    let coordinator = world.coordinator();
    world.passes(10 * SECOND).await;
    assert_eq!(world.incomplete(&["a"]), 0);

    let before = coordinator.passes();
    let spec = |note: &str| {
        let note = note.to_owned();
        move |registry: &mut Value| registry["spec"]["description"] = json!(note)
    };
    let edit = |id: &str, note: &str| {
        let edited = world
            .server
            .edit("a person", "registries", CONTAINERSHIP_NAMESPACE, id, spec(note));
        assert!(edited);
    };
    for round in ["first", "second"] {
        // One that the cloud does not list, with credentials.
        world.registry("forged");
        world.passes(SECOND).await;
        edit("forged", round);
        world.passes(SECOND).await;
        for (resource, name) in [("registries", "forged"), ("secrets", "registry-forged")] {
            assert!(world.server.delete("a person", resource, CONTAINERSHIP_NAMESPACE, name));
        }
        // One that is listed, whose credentials stay.
        edit("a", round);
        world.passes(SECOND).await;
    }
    // One that is new in the cloud, and has no credential so far.
    list(&["a", "new"], &["a"]);
    world.without_credentials("new");
    world.passes(10 * SECOND).await;
    assert_eq!(coordinator.passes(), before, "nothing concerns a namespace");

    list(&["a", "new"], &["a", "new"]);
    world.credentials("new");
    world.passes(5 * SECOND).await;
    assert_eq!(world.incomplete(&["a", "new"]), 0);
    // An Event says what people call the registry.
    world.answers("named", Verdict::Refused);
    list(&["a", "new", "named"], &["a", "new", "named"]);
    world.registry("named");
    world.passes(5 * SECOND).await;
    let events = world.events("named", "CredentialRefused");
    assert!(
        events[0].starts_with("Registry \"images of named\" (named): named.example.com refuses"),
        "{events:?}"
    );
    list(&["a", "new"], &["a", "new"]);
    world.passes(5 * SECOND).await;
    let before = coordinator.passes();
    list(&["a"], &["a"]);
    world.passes(5 * SECOND).await;
    assert_eq!(world.incomplete(&["a"]), 0, "what was made of a registry goes with it");
    // Both controllers look at each namespace once, and at those whose objects changed once more.
    let most = 4 * (20 + 2);
    assert!(
        coordinator.passes() - before <= most,
        "{} passes",
        coordinator.passes() - before
    );
}

/// The cache of the copies does not show a Secret without their labels, nor its deletion.
#[tokio::test(start_paused = true)]
async fn a_pull_secret_takes_its_name_as_soon_as_a_foreign_one_is_deleted() {
    let mut world = World::new();
    world.registry("a");
    let foreign = |world: &World, namespace: &str| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "a", "namespace": namespace}, "data": {}});
        assert!(world.server.create("a person", &secret));
    };
    let namespaces = ["taken", "taken-too", "free"];
    for namespace in namespaces {
        world.namespace(namespace);
    }
    foreign(&world, "taken");
    foreign(&world, "taken-too");
    let coordinator = world.coordinator();
    world.passes(10 * SECOND).await;
    let filled = || namespaces.map(|namespace| world.pull_secrets(namespace).len());
    assert_eq!(filled(), [0, 0, 1]);
    assert_eq!(world.events("taken", "ForeignObject").len(), 1);

    let before = world.server.elapsed();
    world.passes(Duration::from_mins(2)).await;
    assert!(
        world.writes(&coordinator, before).is_empty(),
        "it waits, and does not try again and again"
    );
    for round in 0..3 {
        assert!(world.server.delete("a person", "secrets", "taken", "a"));
        world.passes(SECOND).await;
        assert_eq!(filled(), [1, 0, 1], "round {round}");
        assert!(world.server.delete("a person", "secrets", "taken", "a"));
        foreign(&world, "taken");
        world.passes(30 * SECOND).await;
        assert_eq!(filled(), [0, 0, 1], "round {round}");
    }
    assert!(world.server.delete("a person", "secrets", "taken-too", "a"));
    world.passes(SECOND).await;
    assert_eq!(filled(), [0, 1, 1]);
}
