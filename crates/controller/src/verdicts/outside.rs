//! The sources outside the API server: the cloud's groups, the InstanceGroups of the state store, the addresses of the
//! API's name; and a check that the API server reads its storage.
//!
//! If the state store is not read, the InstanceGroups are those of the cloud's groups. The DNS name of the API, which
//! only the store has, is then not resolved.
//!
//! Without its storage the API server goes on serving watches from its memory, in which nothing changes any more. So
//! the caches look well for as long as it takes. A read of one object, which is not served from memory, shows it.
//!
//! Each is asked for in a loop of its own, so that one that is slow or away holds up no other.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::{Api, Client};
use parking_lot::Mutex;
use tidewaiter_api::{ClusterHealth, ClusterName};
use tidewaiter_identity::CloudGroups;
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Chain, SharedClock};
use tidewaiter_kops::{Definitions, GroupSummary};
use tidewaiter_validation::observe::resolve;
use tidewaiter_validation::{Dns, Instances, Part};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::LIMIT;

/// Between an answer and the next request. An answer of the cloud may take half a minute, and is kept for one: see
/// [`CLOUD_LIMIT`].
const INTERVAL: Duration = Duration::from_secs(25);
/// Between two requests, if there was no answer.
const AGAIN: Duration = Duration::from_secs(10);
const JITTER: f64 = 0.1;
/// The deadline of any answer.
const ANSWER: Duration = Duration::from_secs(27);
/// The maximum age of the cloud's answer.
const CLOUD_LIMIT: Duration = Duration::from_mins(1);

pub(super) struct Outside {
    cloud_groups: Arc<dyn CloudGroups>,
    /// None where the state store is not read.
    definitions: Option<Definitions>,
    changed: Arc<Notify>,
    clock: SharedClock,
    cloud: Source<Arc<Instances>>,
    groups: Source<Vec<GroupSummary>>,
    dns: Source<Dns>,
    storage: Source<()>,
    client: Client,
    cluster: ClusterName,
}

type Ask<T> = for<'a> fn(&'a Outside) -> BoxFuture<'a, Result<T, String>>;

struct Source<T> {
    answer: Mutex<CachedAnswer<T>>,
    /// True once it has been queried, with whatever answer.
    asked: watch::Sender<bool>,
}

impl Outside {
    pub(super) fn new(
        cloud_groups: Arc<dyn CloudGroups>,
        definitions: Option<Definitions>,
        changed: Arc<Notify>,
        clock: SharedClock,
        client: Client,
        cluster: ClusterName,
    ) -> Self {
        Self {
            cloud_groups,
            definitions,
            changed,
            clock,
            cloud: Source::new(CLOUD_LIMIT),
            groups: Source::new(LIMIT),
            dns: Source::new(LIMIT),
            storage: Source::new(LIMIT),
            client,
            cluster,
        }
    }

    pub(super) async fn keep_asking(self: Arc<Self>, shutdown: CancellationToken) -> Result<(), Infallible> {
        let all = async {
            tokio::join!(
                self.keep_telling_of_damage(),
                self.keep(&self.cloud, |outside| outside.ask_cloud().boxed()),
                self.keep(&self.groups, |outside| outside.ask_store().boxed()),
                self.keep(&self.dns, |outside| outside.ask_dns().boxed()),
                self.keep(&self.storage, |outside| outside.ask_storage().boxed()),
            )
        };
        shutdown.run_until_cancelled(all).await;
        Ok(())
    }

    /// Completes when each has been asked for once.
    pub(super) async fn asked(&self) {
        tokio::join!(
            self.cloud.asked(),
            self.groups.asked(),
            self.dns.asked(),
            self.storage.asked()
        );
    }

    pub(super) fn cloud(&self, now: Duration) -> Part<Arc<Instances>> {
        self.cloud.part(now)
    }

    pub(super) fn cloud_location(&self) -> Option<String> {
        self.cloud_groups.location()
    }

    pub(super) fn groups(&self, now: Duration) -> Part<Vec<GroupSummary>> {
        match (&self.definitions, self.cloud.part(now)) {
            // The current content of a damaged file is not known, however fresh the last valid version is.
            (Some(definitions), _) => match definitions.damage() {
                Some(error) => Part::Unknown(error.to_string()),
                None => self.groups.part(now),
            },
            (None, Part::Known(instances)) => instances.instance_groups(),
            (None, Part::Unknown(reason)) => Part::Unknown(reason),
        }
    }

    pub(super) fn dns(&self, now: Duration) -> Part<Dns> {
        self.dns.part(now)
    }

    #[cfg(test)]
    pub(super) fn has_read_storage(&self) {
        let now = (self.clock.monotonic(), self.clock.now());
        self.storage.answer.lock().take(Ok(()), now);
    }

    /// Returns the state of the API server's storage: only if it is known to work can the caches be trusted.
    pub(super) fn storage(&self, now: Duration) -> Part<()> {
        self.storage.part(now)
    }

    async fn keep<T: Clone + PartialEq>(&self, source: &Source<T>, ask: Ask<T>) -> Infallible {
        loop {
            let asked = (self.clock.monotonic(), self.clock.now());
            let answer = timeout(&*self.clock, ANSWER, ask(self)).await;
            let answer = answer.map_err(|elapsed| elapsed.to_string()).flatten();
            let interval = if answer.is_ok() { INTERVAL } else { AGAIN };
            let other = source.answer.lock().take(answer, asked);
            source.asked.send_replace(true);
            if other {
                self.changed.notify_one();
            }
            self.clock.sleep(jittered(interval, JITTER)).await;
        }
    }

    async fn keep_telling_of_damage(&self) {
        while let Some(definitions) = &self.definitions {
            definitions.damage_changed().await;
            self.changed.notify_one();
        }
    }

    async fn ask_cloud(&self) -> Result<Arc<Instances>, String> {
        let groups = self.cloud_groups.groups().await.map_err(|error| error.to_string())?;
        Ok(Arc::new(Instances::new(groups)))
    }

    /// From memory, but for the first time: the definitions are kept up to date by themselves.
    async fn ask_store(&self) -> Result<Vec<GroupSummary>, String> {
        let Some(definitions) = &self.definitions else {
            return Ok(Vec::new());
        };
        let groups = definitions.summaries().await;
        match definitions.stale() {
            Some(stale) if stale.age > LIMIT => {
                let since = stale.since.strftime("%FT%TZ");
                Err(format!("{} (known as of {since} only)", stale.error))
            }
            _ => groups.map_err(|error| error.to_string()),
        }
    }

    /// Reads an object, which need not exist or be readable: without its storage the API server could not say so,
    /// except that it denies a read before.
    async fn ask_storage(&self) -> Result<(), String> {
        let health: Api<ClusterHealth> = Api::all(self.client.clone());
        match health.get_metadata(self.cluster.as_str()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => Ok(()),
            Err(error) => Err(format!("the API server does not read its storage: {}", Chain(&error))),
        }
    }

    async fn ask_dns(&self) -> Result<Dns, String> {
        let Some(definitions) = &self.definitions else {
            return Ok(Dns::NotAsked);
        };
        let cluster = definitions.cluster_summary().await;
        let cluster = cluster.map_err(|error| format!("the name of the API is not known: {error}"))?;
        match resolve(cluster.api_name.as_deref(), &*self.clock).await {
            Part::Known(dns) => Ok(dns),
            Part::Unknown(reason) => Err(reason),
        }
    }
}

impl<T: Clone + PartialEq> Source<T> {
    fn new(limit: Duration) -> Self {
        Self {
            answer: Mutex::new(CachedAnswer::new(limit)),
            asked: watch::Sender::new(false),
        }
    }

    async fn asked(&self) {
        let mut asked = self.asked.subscribe();
        // The sender lives in self, so waiting cannot fail.
        let _ = asked.wait_for(|asked| *asked).await;
    }

    fn part(&self, now: Duration) -> Part<T> {
        self.answer.lock().part(now)
    }
}

/// The last answer of a source until it expires, and what has been wrong since.
#[derive(Debug)]
struct CachedAnswer<T> {
    /// Maximum age of an answer, measured from its request.
    limit: Duration,
    /// The time of the request (monotonic, and for people), and the answer.
    last_good: Option<(Duration, Timestamp, T)>,
    trouble: Option<String>,
}

impl<T: Clone + PartialEq> CachedAnswer<T> {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            last_good: None,
            trouble: None,
        }
    }

    /// Stores the answer to the request of this time. Returns true if it differs from the last one.
    fn take(&mut self, answer: Result<T, String>, asked: (Duration, Timestamp)) -> bool {
        match answer {
            Ok(answer) => {
                // The same answer stays the same value: what was computed from it is still right.
                let same = self
                    .last_good
                    .take()
                    .map(|(_, _, good)| good)
                    .filter(|good| *good == answer);
                let other = self.trouble.take().is_some() || same.is_none();
                self.last_good = Some((asked.0, asked.1, same.unwrap_or(answer)));
                other
            }
            Err(trouble) => {
                let other = self.trouble.as_ref() != Some(&trouble);
                self.trouble = Some(trouble);
                other
            }
        }
    }

    /// Returns the state at `now`, which is monotonic.
    fn part(&self, now: Duration) -> Part<T> {
        let trouble = self.trouble.as_deref().unwrap_or("no answer yet");
        match &self.last_good {
            Some((asked, _, good)) if now.saturating_sub(*asked) <= self.limit => Part::Known(good.clone()),
            Some((_, asked, _)) => Part::Unknown(format!("{trouble} (last known at {})", asked.strftime("%FT%TZ"))),
            None => Part::Unknown(trouble.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Nowhere;
    use super::*;
    use async_trait::async_trait;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use tidewaiter_kit::{Kit, ManualClock};
    use tidewaiter_kops::store::{Etag, Read, ReadFile};
    use tidewaiter_kops::{DefinitionsSettings, StoreError};
    use tidewaiter_testkit::builders::{cluster, instance_group};

    const CLUSTER: &str = "cluster.example.com";
    const GROUP: &str = "instancegroup/nodes";

    #[derive(Debug)]
    struct Files(Mutex<BTreeMap<&'static str, String>>);

    #[async_trait]
    impl ReadFile for Files {
        async fn read(&self, file: &str, _: Option<&Etag>) -> Result<Read, StoreError> {
            let bytes = self.0.lock()[file].clone().into_bytes().into();
            Ok(Read::Found { bytes, etag: None })
        }

        async fn list(&self, _: &str) -> Result<Vec<String>, StoreError> {
            Ok(vec!["nodes".to_owned()])
        }
    }

    #[tokio::test]
    async fn the_groups_are_unknown_as_soon_as_a_file_is_damaged() {
        let kit = Kit::new(ManualClock::default().shared()).unwrap();
        let group = instance_group("nodes", CLUSTER, "Node").to_yaml();
        let spec = cluster(CLUSTER, "memfs://state").to_yaml();
        let files = [("cluster-completed.spec", spec), (GROUP, group.clone())];
        let files = Arc::new(Files(Mutex::new(files.into())));
        let put = |text: &str| files.0.lock().insert(GROUP, text.to_owned());
        let cluster: ClusterName = CLUSTER.parse().unwrap();
        let definitions = Definitions::new(
            Arc::<Files>::clone(&files),
            cluster.clone(),
            DefinitionsSettings::default(),
            Arc::clone(&kit.clock),
            &kit.metrics,
        );
        let definitions = definitions.unwrap();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let changed = Arc::<Notify>::default();
        let outside = Outside::new(
            Arc::new(Nowhere),
            Some(definitions.clone()),
            Arc::clone(&changed),
            Arc::clone(&kit.clock),
            Client::try_from(nowhere).unwrap(),
            cluster,
        );
        let mut telling = Box::pin(outside.keep_telling_of_damage());
        let now = Duration::ZERO;
        let asked = (now, kit.clock.now());
        let store = outside.ask_store().await;
        outside.groups.answer.lock().take(store, asked);
        assert!(matches!(outside.groups(now), Part::Known(groups) if groups.len() == 1));
        for (text, known) in [("spec: [", true), ("spec: [", false), (group.as_str(), true)] {
            put(text);
            definitions.refresh().await;
            match outside.groups(now) {
                Part::Known(groups) => assert!(known && groups.len() == 1, "{text}"),
                Part::Unknown(why) => assert!(!known && why.starts_with(GROUP), "{text}: {why}"),
            }
        }
        assert!(telling.as_mut().now_or_never().is_none());
        assert!(changed.notified().now_or_never().is_some(), "a verdict is due");
    }

    fn at(seconds: u64) -> (Duration, Timestamp) {
        let time = Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap();
        (Duration::from_secs(seconds), time)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_same_answer_stays_the_same_value() {
        let mut kept = CachedAnswer::new(seconds(60));
        let first = Arc::new(7);
        kept.take(Ok(Arc::clone(&first)), at(0));
        assert!(!kept.take(Ok(Arc::new(7)), at(50)));
        let Part::Known(known) = kept.part(seconds(110)) else {
            panic!("{:?}", kept.part(seconds(110)));
        };
        assert!(Arc::ptr_eq(&known, &first));
    }

    #[test]
    fn an_answer_is_told_until_its_limit_whatever_fails_meanwhile() {
        let mut kept = CachedAnswer::new(seconds(60));
        assert_eq!(kept.part(seconds(0)), Part::Unknown("no answer yet".to_owned()));
        assert!(kept.take(Err("denied".to_owned()), at(0)));
        assert!(!kept.take(Err("denied".to_owned()), at(1)));
        assert_eq!(kept.part(seconds(1)), Part::Unknown("denied".to_owned()));
        assert!(kept.take(Ok(7), at(10)));
        assert!(!kept.take(Ok(7), at(20)));
        assert!(kept.take(Err("late".to_owned()), at(50)));
        assert_eq!(kept.part(seconds(80)), Part::Known(7));
        assert_eq!(
            kept.part(seconds(81)),
            Part::Unknown("late (last known at 1970-01-01T00:00:20Z)".to_owned())
        );
        assert!(kept.take(Ok(7), at(90)), "it is known again");
        assert!(kept.take(Ok(8), at(91)));
        assert_eq!(kept.part(seconds(151)), Part::Known(8));
    }
}
