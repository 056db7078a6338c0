//! The rules for every state store, no matter who serves it.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Either, select};
use tidewaiter_api::InstanceGroupName;
use tidewaiter_kit::{Metrics, SystemClock};
use tidewaiter_kops::store::{OpenError, Read, ReadFile as _};
use tidewaiter_kops::{
    Changed, Definition, DefinitionError, Definitions, DefinitionsSettings, LabelText, StateStore, StoreError,
    StoreOptions,
};
use tidewaiter_testkit::eventually;

const CLUSTER: &str = include_str!("../../fixtures/cluster-completed.spec");
pub const NODES: &str = include_str!("../../fixtures/instancegroup/nodes-a");
pub const FILE: &str = "instancegroup/nodes-a";
const LIMIT: Duration = Duration::from_mins(3);

/// A bucket name with dots, as kOps' users have them: on S3 it works only when it is named in the path.
pub const BUCKET: &str = "state.example.com";

/// A server that others have written, with at most one bucket. What it holds is written as kOps would, past the client
/// under test.
pub trait Server: Sync {
    const SCHEME: &str;

    async fn start() -> Self;
    /// Returns the options to reach it.
    fn options(&self) -> StoreOptions;
    async fn create_bucket(&self);
    async fn put(&self, object: &str, content: &str);
    async fn delete(&self, object: &str);
}

/// The object of one of the cluster's files.
pub fn object(file: &str) -> String {
    format!("cluster.example.com/{file}")
}

pub fn open<S: Server>(_: &S, options: StoreOptions) -> Result<StateStore, OpenError> {
    let url = format!("{}://{BUCKET}/cluster.example.com", S::SCHEME);
    StateStore::open(&url.parse().unwrap(), options)
}

struct World<S> {
    server: S,
    definitions: Definitions,
    metrics: Metrics,
    changed: Mutex<Vec<Changed>>,
}

impl<S: Server> World<S> {
    async fn new() -> Self {
        let server = S::start().await;
        server.create_bucket().await;
        let metrics = Metrics::new(&SystemClock::shared()).unwrap();
        let settings = DefinitionsSettings {
            poll: Duration::from_millis(50),
            ..DefinitionsSettings::default()
        };
        let store = Arc::new(open(&server, server.options()).unwrap());
        let name = "cluster.example.com".parse().unwrap();
        let definitions = Definitions::new(store, name, settings, SystemClock::shared(), &metrics).unwrap();
        Self {
            server,
            definitions,
            metrics,
            changed: Mutex::default(),
        }
    }

    async fn put(&self, file: &str, content: &str) {
        self.server.put(&object(file), content).await;
    }

    async fn get(&self) -> Result<Arc<Definition>, DefinitionError> {
        let name: InstanceGroupName = "nodes-a".parse().unwrap();
        self.definitions.get(&name).await
    }

    /// Waits until the group gives its nodes this team.
    async fn team(&self, team: &str) {
        let wanted = LabelText::Text(team.to_owned());
        eventually("the definition to change", LIMIT, async || {
            let found = self.get().await.map_err(|error| error.to_string())?;
            let found = &found.group.node_labels.entries["example.com/team"];
            if *found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// Waits until there is one problem and it says this.
    async fn problem(&self, said: &str) {
        eventually("the problem to be known", LIMIT, async || {
            match &self.definitions.problems()[..] {
                [problem] if problem.error.to_string().contains(said) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// Runs `test` while the definitions are kept up to date.
    async fn during(&self, test: impl Future<Output = ()>) {
        let run = self.definitions.clone().run(
            pending(),
            |_| true,
            |changed| self.changed.lock().unwrap().push(changed),
        );
        match select(pin!(test), pin!(run)).await {
            Either::Left(_) => {}
            Either::Right((outcome, _)) => panic!("the definitions ended: {outcome:?}"),
        }
    }
}

pub async fn a_store_reads_and_revalidates<S: Server>() {
    let server = S::start().await;
    let store = open(&server, server.options()).unwrap();
    let error = store.list("instancegroup").await.unwrap_err().to_string();
    assert!(error.contains("NoSuchBucket"), "{error}");
    let missing = |code: &str| format!("{FILE}: is missing from the state store ({code}");
    let error = store.read(FILE, None).await.unwrap_err().to_string();
    assert!(error.starts_with(&missing("NoSuchBucket")), "{error}");
    server.create_bucket().await;
    let error = store.read(FILE, None).await.unwrap_err().to_string();
    assert!(error.starts_with(&missing("NoSuchKey")), "{error}");
    server.put(&object(FILE), NODES).await;
    let Ok(Read::Found { bytes, etag }) = store.read(FILE, None).await else {
        panic!("no file")
    };
    assert_eq!(bytes, NODES.as_bytes());
    assert_eq!(store.read(FILE, etag.as_ref()).await, Ok(Read::NotModified));
    let other = NODES.replace("team: data", "team: web");
    server.put(&object(FILE), &other).await;
    let changed = store.read(FILE, etag.as_ref()).await;
    assert!(
        matches!(&changed, Ok(Read::Found { bytes, .. }) if *bytes == other.as_bytes()),
        "{changed:?}"
    );
    assert_eq!(store.list("instancegroup").await.unwrap(), ["nodes-a"]);
    // More than S3 gives in one answer.
    for number in 0..1_001 {
        server.put(&object(&format!("many/{number:04}")), "x").await;
    }
    let many = store.list("many").await.unwrap();
    assert_eq!((many.len(), many[1_000].as_str()), (1_001, "1000"));
    assert_eq!(store.list("man").await.unwrap(), [""; 0]);
    server.put(&object(FILE), &"x".repeat(1024 * 1024 + 1)).await;
    assert_eq!(
        store.read(FILE, etag.as_ref()).await,
        Err(StoreError::TooLarge { file: FILE.to_owned() })
    );
}

pub async fn definitions_follow_what_is_good_and_outlive_the_rest<S: Server>() {
    let world = World::<S>::new().await;
    world.put("cluster-completed.spec", CLUSTER).await;
    world.put(FILE, NODES).await;
    world
        .during(async {
            world.team("data").await;
            world.put(FILE, &NODES.replace("team: data", "team: web")).await;
            world.team("web").await;
            let good = world.get().await;

            for (content, said) in [
                ("<html><body>Sign in</body></html>", "is HTML or XML"),
                ("", "is empty"),
                ("spec: [", "is not valid YAML"),
                (&NODES.replace("role: Node", "role: Worker"), "spec.role: is \"Worker\""),
                (&NODES.replace("  role: Node\n", ""), "spec.role: is missing"),
            ] {
                world.put(FILE, content).await;
                world.problem(said).await;
                assert_eq!(world.get().await, good, "{said}");
            }
            world.server.delete(&object(FILE)).await;
            world.problem("is missing from the state store").await;
            assert_eq!(world.get().await, good);

            world.put(FILE, NODES).await;
            world.team("data").await;
            assert_eq!(world.definitions.problems(), []);
        })
        .await;
    let group = Changed::Group("nodes-a".parse().unwrap());
    assert_eq!(
        *world.changed.lock().unwrap(),
        [group.clone(), group],
        "to web, and back"
    );
    let text = world.metrics.encode().unwrap();
    assert!(
        text.contains("tidewaiter_state_store_reads_total{outcome=\"not_modified\"}"),
        "{text}"
    );
}
