//! The state store on an S3 that others have written, through the real client and a real socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use futures::future::{Either, select};
use object_store::ObjectStoreExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use tidewaiter_api::InstanceGroupName;
use tidewaiter_kit::{Metrics, SystemClock};
use tidewaiter_kops::store::{Read, ReadFile as _};
use tidewaiter_kops::{
    Changed, Definition, DefinitionError, Definitions, DefinitionsSettings, LabelText, StateStore, StoreError,
    StoreOptions,
};
use tidewaiter_testkit::eventually;
use tidewaiter_testkit::moto::{Moto, REGION};

const CLUSTER: &str = include_str!("../fixtures/cluster-completed.spec");
const NODES: &str = include_str!("../fixtures/instancegroup/nodes-a");
const FILE: &str = "instancegroup/nodes-a";
const LIMIT: Duration = Duration::from_secs(30);

/// A bucket name with dots, as kOps' users have them: it works only when it is named in the path.
const BUCKET: &str = "state.example.com";

struct World {
    moto: Moto,
    definitions: Definitions,
    metrics: Metrics,
    changed: Mutex<Vec<Changed>>,
}

/// What kOps would have written: an object of the cluster's, through a client of its own.
async fn put(moto: &Moto, file: &str, content: &str) {
    put_through(&client(moto), file, content).await;
}

async fn put_through(client: &AmazonS3, file: &str, content: &str) {
    let object = format!("cluster.example.com/{file}").into();
    client.put(&object, content.to_owned().into()).await.unwrap();
}

fn client(moto: &Moto) -> AmazonS3 {
    let client = AmazonS3Builder::new()
        .with_endpoint(moto.endpoint())
        .with_allow_http(true)
        .with_region(REGION)
        .with_bucket_name(BUCKET)
        .with_access_key_id("AKIDMOTO")
        .with_secret_access_key("moto-secret");
    client.build().unwrap()
}

fn open(moto: &Moto) -> StateStore {
    let credentials = Credentials::new("AKIDMOTO", "moto-secret", None, None, "test");
    let options = StoreOptions {
        endpoint: Some(moto.endpoint().parse().unwrap()),
        region: Some(REGION.to_owned()),
        aws_credentials: Some(SharedCredentialsProvider::new(credentials)),
        ..StoreOptions::default()
    };
    StateStore::open(&format!("s3://{BUCKET}/cluster.example.com").parse().unwrap(), options).unwrap()
}

impl World {
    async fn new() -> Self {
        let moto = Moto::start().await;
        moto.create_bucket(BUCKET).await;
        let metrics = Metrics::new(&SystemClock::shared()).unwrap();
        let settings = DefinitionsSettings {
            poll: Duration::from_millis(50),
            ..DefinitionsSettings::default()
        };
        let store = Arc::new(open(&moto));
        let name = "cluster.example.com".parse().unwrap();
        let definitions = Definitions::new(store, name, settings, SystemClock::shared(), &metrics).unwrap();
        Self {
            moto,
            definitions,
            metrics,
            changed: Mutex::default(),
        }
    }

    async fn put(&self, file: &str, content: &str) {
        put(&self.moto, file, content).await;
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
        let run = self
            .definitions
            .clone()
            .run(pending(), |changed| self.changed.lock().unwrap().push(changed));
        match select(pin!(test), pin!(run)).await {
            Either::Left(_) => {}
            Either::Right((outcome, _)) => panic!("the definitions ended: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_store_on_s3_reads_and_revalidates() {
    let moto = Moto::start().await;
    let store = open(&moto);
    let error = store.list("instancegroup").await.unwrap_err().to_string();
    assert!(error.contains("NoSuchBucket"), "{error}");
    let missing = |code: &str| format!("{FILE}: is missing from the state store ({code}");
    let error = store.read(FILE, None).await.unwrap_err().to_string();
    assert!(error.starts_with(&missing("NoSuchBucket")), "{error}");
    moto.create_bucket(BUCKET).await;
    let error = store.read(FILE, None).await.unwrap_err().to_string();
    assert!(error.starts_with(&missing("NoSuchKey")), "{error}");
    put(&moto, FILE, NODES).await;
    let Ok(Read::Found { bytes, etag }) = store.read(FILE, None).await else {
        panic!("no file")
    };
    assert_eq!(bytes, NODES.as_bytes());
    assert!(etag.is_some());
    assert_eq!(store.read(FILE, etag.as_ref()).await, Ok(Read::NotModified));
    assert_eq!(store.list("instancegroup").await.unwrap(), ["nodes-a"]);
    // More than S3 gives in one answer.
    let client = client(&moto);
    for number in 0..1_001 {
        put_through(&client, &format!("many/{number:04}"), "x").await;
    }
    let many = store.list("many").await.unwrap();
    assert_eq!((many.len(), many[1_000].as_str()), (1_001, "1000"));
    assert_eq!(store.list("man").await.unwrap(), [""; 0]);
    put(&moto, FILE, &"x".repeat(1024 * 1024 + 1)).await;
    assert_eq!(
        store.read(FILE, etag.as_ref()).await,
        Err(StoreError::TooLarge { file: FILE.to_owned() })
    );
}

#[tokio::test]
async fn definitions_on_s3_follow_what_is_good_and_outlive_the_rest() {
    let world = World::new().await;
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
            world
                .moto
                .delete_object(BUCKET, &format!("cluster.example.com/{FILE}"))
                .await;
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
