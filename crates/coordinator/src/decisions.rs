//! Releases and approvals from the cloud, if the setting `acceptReleasesFromCloud` permits them. Without it, nothing is
//! requested: a cloud that somebody has taken over must not release its own deletions.
//!
//! - A decision names what was shown: the revision that is held, or the digest of a plugin's diff. Anything else is
//!   neither released nor approved.
//! - The cloud gives it up before it is obeyed, so that it is obeyed once. If the process ends in between, it is lost,
//!   and a person decides again.
//! - Each is tried on its own, [`MAX_TRIES`] times: one that the API server does not take delays no other, and its
//!   failure is in the report of the cluster.
//! - It has its effect by the annotation with which a person releases or approves in the cluster, and by nothing else.

mod failures;

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tidewaiter_api::CloudSync;
use tidewaiter_api::cloud_sync::{CLOUD_SYNC, RELEASE_ANNOTATION};
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::{APPROVE_ANNOTATION, CONTAINERSHIP_NAMESPACE};
use tidewaiter_cloud::client::{ClientError, Fetched, Method, Request};
use tidewaiter_cloud::models::{ApprovalSpec, ClusterDecision, Kind, ReleaseSpec};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Backoff, Cache, Chain, ControllerContext, SharedClock};
use tracing::{info, warn};

use crate::changes::{Asked, Changes};
use crate::cloud::Cloud;
use crate::explained::explained;
use crate::loops;
use crate::mirror::MirrorState;
use crate::retries::Retries;
pub(crate) use failures::Failures;
use failures::is_held;

/// The field manager of the annotations.
const MANAGER: &str = "tidewaiter/decisions";

/// The sync intervals after which the decisions are listed without an event.
const QUIET_INTERVALS: u32 = 5;

const JITTER: f64 = 0.1;

/// The first wait for the release before, whose annotation is still there. It doubles up to the sync interval.
const BUSY: Duration = Duration::from_secs(1);

/// The tries to write the annotation of a decision: for about a minute and a half with the default sync interval.
const MAX_TRIES: u32 = 10;

/// Starts the loop.
pub(crate) fn start(
    cloud: &Cloud,
    changes: &Changes,
    (mirror, failures): (MirrorState, Failures),
    plugins: Cache<Plugin>,
    role: &mut Role<'_>,
) {
    let client: Client = role.clients.for_controller("decisions", DEFAULT_IN_FLIGHT);
    let decisions = CloudDecisions {
        cloud: cloud.clone(),
        asked: changes.of(&[Kind::ClusterDecision]),
        mirror,
        plugins,
        objects: Api::all(client.clone()),
        copies: Api::namespaced(client, CONTAINERSHIP_NAMESPACE),
        clock: role.context.kit.clock.clone(),
        backoff: backoff(cloud.interval),
        taken: Vec::new(),
        failures,
        is_failing: false,
    };
    loops::run(role.tasks, "decisions", decisions.run(role.context.clone()));
}

/// The waits for the release before, and after a failure of the API server.
fn backoff(interval: Duration) -> Backoff {
    Backoff::new(BUSY, interval.max(BUSY))
}

/// A decision that the cloud gave up, and that has had no effect yet.
struct Taken {
    decision: ClusterDecision,
    /// The tries that failed.
    tries: u32,
    /// The time of the next try; monotonic.
    due: Duration,
}

struct CloudDecisions {
    cloud: Cloud,
    asked: Arc<Asked>,
    mirror: MirrorState,
    plugins: Cache<Plugin>,
    objects: Api<CloudSync>,
    copies: Api<Plugin>,
    clock: SharedClock,
    backoff: Backoff,
    taken: Vec<Taken>,
    failures: Failures,
    /// True if it was logged that decisions cannot be taken.
    is_failing: bool,
}

/// The reason why decisions were not taken.
#[derive(Debug, thiserror::Error)]
enum DecisionError {
    #[error("the cloud does not give its releases and approvals")]
    Cloud(#[source] ClientError),
    #[error("the API server does not show CloudSync")]
    Cluster(#[from] kube::Error),
}

impl CloudDecisions {
    async fn run(mut self, context: ControllerContext) {
        context.leadership.acquired().await;
        let interval = self.cloud.interval;
        let mut retries = Retries::new(&self.cloud.client, interval, self.clock.clone());
        let mut blocked = 0_u32;
        loop {
            context.pause.until(false).await;
            retries.begin();
            let wait = match self.take_all().await {
                Ok(true) => {
                    blocked = 0;
                    jittered(interval * QUIET_INTERVALS, JITTER)
                }
                Ok(false) => {
                    blocked = blocked.saturating_add(1);
                    self.backoff.delay(blocked)
                }
                Err(error) => {
                    self.report(&error);
                    let asked = match &error {
                        DecisionError::Cloud(error) => error.retry_after().unwrap_or_default(),
                        DecisionError::Cluster(_) => Duration::ZERO,
                    };
                    retries.failed(asked).await;
                    continue;
                }
            };
            self.is_failing = false;
            retries.succeeded();
            tokio::select! {
                _ = self.asked.asked() => {}
                () = self.clock.sleep(wait.min(self.next_try())) => {}
            }
        }
    }

    fn report(&mut self, error: &DecisionError) {
        if std::mem::replace(&mut self.is_failing, true) {
            return;
        }
        let error = match error {
            DecisionError::Cloud(error) => explained(error, &self.cloud.client),
            DecisionError::Cluster(error) => Chain(error).to_string(),
        };
        warn!(error, "releases and approvals of the cloud cannot be taken");
    }

    /// Takes and obeys the decisions of the cloud. Returns false if a release has to wait for the one before it.
    async fn take_all(&mut self) -> Result<bool, DecisionError> {
        let mut is_free = self.obey_taken().await;
        let path = self.cloud.cluster.decisions();
        let listed = self.cloud.client.list::<ClusterDecision>(path, None).await;
        let Fetched::Complete { value, .. } = listed.map_err(DecisionError::Cloud)? else {
            return Ok(is_free);
        };
        let mut failure = None;
        for decision in value {
            match self.take_and_obey(decision).await {
                Ok(was_free) => is_free &= was_free,
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(is_free), Err)
    }

    /// Obeys a decision, which the cloud gives up first. Returns false if a release has to wait for the one before it.
    async fn take_and_obey(&mut self, decision: ClusterDecision) -> Result<bool, DecisionError> {
        if decision.release.is_some() && self.is_releasing().await? {
            return Ok(false);
        }
        if self.take(&decision).await? {
            let due = self.clock.monotonic();
            self.taken.push(Taken {
                decision,
                tries: 0,
                due,
            });
        }
        Ok(self.obey_taken().await)
    }

    /// Obeys the decisions that are due. Returns false if a release has to wait for the one before it.
    async fn obey_taken(&mut self) -> bool {
        let (now, mut is_free) = (self.clock.monotonic(), true);
        for taken in std::mem::take(&mut self.taken) {
            if taken.due > now {
                self.taken.push(taken);
                continue;
            }
            match self.obey(&taken.decision).await {
                Ok(true) => {}
                Ok(false) => {
                    is_free = false;
                    self.taken.push(taken);
                }
                Err(error) => self.retry(taken, &error),
            }
        }
        is_free
    }

    /// Obeys a decision. Returns false if it has to wait for the release before it.
    async fn obey(&self, decision: &ClusterDecision) -> Result<bool, kube::Error> {
        if let Some(release) = &decision.release {
            if self.is_releasing().await? {
                return Ok(false);
            }
            self.release(release).await?;
        }
        if let Some(approval) = &decision.approval {
            self.approve(approval).await?;
        }
        Ok(true)
    }

    /// Has a decision tried again later, unless this was the last try.
    fn retry(&mut self, mut taken: Taken, error: &kube::Error) {
        taken.tries = taken.tries.saturating_add(1);
        let (id, tries, error) = (taken.decision.id, taken.tries, Chain(error).to_string());
        if tries < MAX_TRIES {
            warn!(decision = %id, tries, error, "the API server does not take a release or an approval of the cloud");
            taken.due = self.clock.monotonic().saturating_add(self.backoff.delay(tries));
            self.taken.push(taken);
            return;
        }
        warn!(decision = %id, error, "a release or an approval of the cloud failed, and is not tried again");
        let reason = format!("the cloud's decision failed: {error}: correct that, and decide again");
        self.failures.add(taken.decision, reason);
    }

    /// The time until the next try of a decision that has failed.
    fn next_try(&self) -> Duration {
        let now = self.clock.monotonic();
        let waits = self.taken.iter().filter_map(|taken| taken.due.checked_sub(now));
        waits.filter(|wait| !wait.is_zero()).min().unwrap_or(Duration::MAX)
    }

    /// Returns true if a release was not used yet: another one would replace it.
    async fn is_releasing(&self) -> Result<bool, kube::Error> {
        let object = self.objects.get_opt(CLOUD_SYNC).await?;
        Ok(object.is_some_and(|object| object.annotations().contains_key(RELEASE_ANNOTATION)))
    }

    /// Makes the cloud give up the decision. Returns false if it has none any more.
    async fn take(&self, decision: &ClusterDecision) -> Result<bool, DecisionError> {
        let path = self.cloud.cluster.decisions().below(decision.id);
        let mut request = Request::new(Method::DELETE, path);
        request.once = true;
        match self.cloud.client.request(&request).await {
            Ok(_) => Ok(true),
            Err(ClientError::NotOurs { .. }) => Ok(false),
            Err(error) => Err(DecisionError::Cloud(error)),
        }
    }

    async fn release(&self, release: &ReleaseSpec) -> Result<(), kube::Error> {
        let (kind, revision) = (release.kind.as_str(), release.revision.as_str());
        let report = self.mirror.report(self.clock.now());
        if !report.kinds.iter().any(|found| is_held(found, release)) {
            warn!(
                kind,
                revision, "the cloud releases what is not held; nothing is released"
            );
            return Ok(());
        }
        info!(kind, revision, "the cloud releases what is held");
        let patch = json!({"metadata": {"annotations": {RELEASE_ANNOTATION: revision}}});
        let params = PatchParams::apply(MANAGER);
        self.objects.patch(CLOUD_SYNC, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn approve(&self, approval: &ApprovalSpec) -> Result<(), kube::Error> {
        let (id, digest) = (approval.plugin.to_string(), approval.digest.as_str());
        let awaits = |plugin: &Arc<Plugin>| {
            let pending = plugin.status.as_ref().and_then(|status| status.pending.as_ref());
            plugin.spec.id == id && pending.is_some_and(|pending| pending.digest == digest)
        };
        let found: Option<Arc<Plugin>> = self.plugins.iter().find(awaits);
        let Some(plugin) = found else {
            warn!(
                plugin = id,
                digest, "the cloud approves what awaits no approval; nothing is approved"
            );
            return Ok(());
        };
        info!(plugin = id, digest, "the cloud approves a version");
        let patch = json!({"metadata": {"annotations": {APPROVE_ANNOTATION: digest}}});
        let params = PatchParams::apply(MANAGER);
        self.copies
            .patch(&plugin.name_any(), &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::Value;
    use tidewaiter_cloud::client::{ClientSettings, Cluster};
    use tidewaiter_kit::{Feed, Kit, SimulatedClock};

    use super::*;

    const RELEASE: &str = "cccccccc-0000-4000-8000-000000000001";
    const APPROVAL: &str = "cccccccc-0000-4000-8000-000000000002";
    /// Longer than any wait for the next try.
    const PAUSE: Duration = Duration::from_mins(1);

    /// A cloud that lists decisions, and an API server with a `CloudSync`.
    #[derive(Default)]
    struct Servers {
        listed: Mutex<Vec<Value>>,
        /// True if the API server takes no patch.
        is_broken: AtomicBool,
        /// True if `CloudSync` has an annotation.
        is_releasing: AtomicBool,
        writes: Mutex<Vec<String>>,
    }

    impl Servers {
        fn cloud(&self, request: &reqwest::Request) -> (u16, String) {
            if request.method() == "GET" {
                return (200, json!(*self.listed.lock()).to_string());
            }
            let id = request.url().path().rsplit('/').next().unwrap_or_default();
            self.writes.lock().push(format!("{} {id}", request.method()));
            (204, String::new())
        }

        fn api(&self, method: &http::Method) -> (u16, String) {
            if method != "GET" {
                self.writes.lock().push(method.to_string());
                if self.is_broken.load(Ordering::SeqCst) {
                    let failure = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "code": 500, "reason": "InternalError", "message": "not now"});
                    return (500, failure.to_string());
                }
            }
            let mut object = json!({"metadata": {"name": CLOUD_SYNC}, "spec": {}});
            if self.is_releasing.load(Ordering::SeqCst) {
                object["metadata"]["annotations"] = json!({RELEASE_ANNOTATION: "0123456789ab"});
            }
            (200, object.to_string())
        }

        fn decisions(self: &Arc<Self>) -> CloudDecisions {
            let clock = SimulatedClock::shared();
            let kit = Kit::new(clock.clone()).unwrap();
            let servers = Arc::clone(self);
            let api = tower::service_fn(move |request: http::Request<Body>| {
                let (status, body) = servers.api(request.method());
                let response = http::Response::builder()
                    .status(status)
                    .body(Body::from(body.into_bytes()));
                async move { Ok::<_, kube::Error>(response.unwrap()) }
            });
            let servers = Arc::clone(self);
            let settings = ClientSettings::new("https://cloud.example.com".parse().unwrap());
            let client = tidewaiter_cloud::client::Client::new(&settings, clock.clone()).unwrap();
            let client = client.over(move |request| {
                let (status, body) = servers.cloud(&request);
                let response = http::Response::builder().status(status).body(body).unwrap();
                async move { Ok(response.into()) }
            });
            let cluster = Cluster {
                organization: RELEASE.parse().unwrap(),
                id: RELEASE.parse().unwrap(),
            };
            let kube = Client::new(api, "default");
            CloudDecisions {
                cloud: Cloud {
                    client,
                    cluster,
                    interval: Duration::from_secs(30),
                },
                asked: Arc::default(),
                mirror: MirrorState::with_held_role(&kit),
                plugins: Feed::new(&kit).1,
                objects: Api::all(kube.clone()),
                copies: Api::namespaced(kube, CONTAINERSHIP_NAMESPACE),
                clock,
                backoff: backoff(Duration::from_secs(30)),
                taken: Vec::new(),
                failures: Failures::default(),
                is_failing: false,
            }
        }
    }

    /// The release of what the mirror holds, as the cloud lists it.
    fn release(decisions: &CloudDecisions) -> Value {
        let report = decisions.mirror.report(decisions.clock.now());
        let held = report.kinds[0].held.as_ref().unwrap();
        json!({"id": RELEASE, "release": {"kind": report.kinds[0].kind, "revision": held.revision}, "approval": null})
    }

    fn approval() -> Value {
        json!({"id": APPROVAL, "release": null, "approval": {"plugin": APPROVAL, "digest": "abc"}})
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_that_the_api_server_does_not_take_is_obeyed_later() {
        let servers = Arc::new(Servers::default());
        let mut decisions = servers.decisions();
        *servers.listed.lock() = vec![release(&decisions)];
        servers.is_broken.store(true, Ordering::SeqCst);
        assert!(decisions.take_all().await.unwrap());
        assert!(decisions.next_try() <= BUSY, "it is tried again soon");
        // The cloud has given it up.
        servers.listed.lock().clear();
        servers.is_broken.store(false, Ordering::SeqCst);
        for _ in 0..2 {
            decisions.clock.sleep(PAUSE).await;
            assert!(decisions.take_all().await.unwrap());
        }
        let expected = [format!("DELETE {RELEASE}"), "PATCH".to_owned(), "PATCH".to_owned()];
        assert_eq!(*servers.writes.lock(), expected, "obeyed once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_that_always_fails_delays_no_other_and_is_reported() {
        let servers = Arc::new(Servers::default());
        let mut decisions = servers.decisions();
        *servers.listed.lock() = vec![release(&decisions), approval()];
        servers.is_broken.store(true, Ordering::SeqCst);
        assert!(decisions.take_all().await.unwrap());
        let deleted = format!("DELETE {APPROVAL}");
        assert!(servers.writes.lock().contains(&deleted), "in the same pass");
        servers.listed.lock().clear();
        let shown = |decisions: &CloudDecisions| {
            let mut report = decisions.mirror.report(decisions.clock.now());
            decisions.failures.show(&mut report);
            report
        };
        assert!(!shown(&decisions).kinds[0].error.as_str().contains("not now"));
        for _ in 0..2 * MAX_TRIES {
            decisions.clock.sleep(PAUSE).await;
            assert!(decisions.take_all().await.unwrap());
        }
        let tries = servers.writes.lock().iter().filter(|write| *write == "PATCH").count();
        assert_eq!(tries, usize::try_from(MAX_TRIES).unwrap());
        let mut report = shown(&decisions);
        assert!(report.kinds[0].error.as_str().contains("not now"), "{report:?}");
        // It is about this revision alone.
        report.kinds[0].held = None;
        decisions.failures.show(&mut report);
        assert!(!shown(&decisions).kinds[0].error.as_str().contains("not now"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_that_waits_delays_no_approval() {
        let servers = Arc::new(Servers::default());
        let mut decisions = servers.decisions();
        *servers.listed.lock() = vec![release(&decisions), approval()];
        servers.is_releasing.store(true, Ordering::SeqCst);
        assert!(!decisions.take_all().await.unwrap());
        assert_eq!(*servers.writes.lock(), [format!("DELETE {APPROVAL}")]);
    }
}
