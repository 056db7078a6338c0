//! The requests about the Lease, each with a deadline.
//!
//! No write is sent after its deadline, and only a response that is a complete Lease of ours is a success.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde::Deserialize;
use tracing::debug;

use super::LeaseSettings;
use super::access::{Access, Verb};
use super::versions::Versions;
use crate::chain::Chain;
use crate::clock::{Elapsed, SharedClock, timeout};
use crate::leader::Window;
use crate::leader::record::{claimed, claimed_unfit, created, holder};

/// A request about the Lease that did not succeed, as far as we know.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("refused or interrupted")]
    Refused(#[source] kube::Error),
    #[error(transparent)]
    NoAnswer(#[from] Elapsed),
    #[error("the response is not a Lease of ours")]
    NotOurs,
}

impl Failure {
    /// True if the API server answered with this status.
    pub(super) fn is(&self, code: u16) -> bool {
        matches!(self, Self::Refused(kube::Error::Api(status)) if status.code == code)
    }
}

pub(super) type Events = BoxStream<'static, Result<WatchEvent<Seen>, kube::Error>>;

#[derive(Debug)]
pub(super) struct Requests {
    api: Api<Seen>,
    settings: LeaseSettings,
    clock: SharedClock,
    /// Fences the writes about the Lease, as leadership fences all others: a renewal that was held up by SIGSTOP is not
    /// sent afterwards.
    window: Window,
    access: Access,
    pub(super) versions: Versions,
}

impl Requests {
    /// `client` is fenced by `window`.
    pub(super) fn new(
        client: Client,
        window: Window,
        settings: &LeaseSettings,
        clock: &SharedClock,
        access: Access,
    ) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        Self {
            api,
            settings: settings.clone(),
            clock: Arc::clone(clock),
            window,
            access,
            versions: Versions::default(),
        }
    }

    /// The Lease as it is now, if there is one.
    pub(super) async fn get(&self) -> Result<Option<Lease>, Failure> {
        let get = self.api.get_opt(&self.settings.name);
        let found = timeout(&*self.clock, self.attempt(), get).await;
        let found = found.inspect_err(|elapsed| self.access.unanswered(Verb::Read, elapsed.to_string()))?;
        self.access.answered(Verb::Read, found.as_ref().err());
        let found = found.map_err(Failure::Refused)?.map(Lease::from);
        Ok(found.inspect(|lease| self.versions.see(lease)))
    }

    /// Changes of the Lease from the given state on. It connects when it is first asked.
    pub(super) fn watch(&self, lease: &Lease) -> Option<Events> {
        let version = lease.metadata.resource_version.clone()?;
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.settings.name));
        let api = self.api.clone();
        Some(
            stream::once(async move { api.watch(&params, &version).await })
                .try_flatten()
                .boxed(),
        )
    }

    /// Claims or creates the Lease: returns it with the time at which the request began.
    pub(super) async fn claim(&self, lease: Option<&Lease>) -> Result<(Lease, Duration), Failure> {
        let until = self.now() + self.attempt();
        let (lease, began) = match lease {
            Some(lease) => self.put(lease, false, until).await?,
            None => self.create(until).await?,
        };
        // A response that took longer than the deadline comes too late.
        let alive = self.now() < began + self.settings.timing.renew_deadline;
        alive.then_some((lease, began)).ok_or(Failure::NotOurs)
    }

    /// Claims or renews, and asks for a successor if this replica is `unfit`: returns the Lease as it now is and the
    /// time at which the request began.
    pub(super) async fn put(&self, lease: &Lease, unfit: bool, until: Duration) -> Result<(Lease, Duration), Failure> {
        let LeaseSettings { identity, timing, .. } = &self.settings;
        let began = self.now();
        let claimed = if unfit { claimed_unfit } else { claimed };
        let answer = self
            .replace(&claimed(lease, identity, self.clock.now(), *timing), until)
            .await?;
        Ok((self.ours(answer)?, began))
    }

    pub(super) async fn create(&self, until: Duration) -> Result<(Lease, Duration), Failure> {
        let LeaseSettings {
            namespace,
            name,
            identity,
            timing,
        } = &self.settings;
        let began = self.now();
        let lease = created(namespace, name, identity, self.clock.now(), *timing);
        let request = self.requests().create(&PostParams::default(), body(&lease)?);
        let answer = self.write(until, request).await?;
        Ok((self.ours(answer)?, began))
    }

    /// Replaces the version that `lease` names, not after `until`.
    pub(super) async fn replace(&self, lease: &Lease, until: Duration) -> Result<Lease, Failure> {
        let request = self
            .requests()
            .replace(&self.settings.name, &PostParams::default(), body(lease)?);
        self.write(until, request).await
    }

    fn requests(&self) -> Request {
        Request::new(Lease::url_path(&(), Some(&self.settings.namespace)))
    }

    /// Sends a write about the Lease, not after `until`.
    async fn write(
        &self,
        until: Duration,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Lease, Failure> {
        let request = request.map_err(|error| Failure::Refused(kube::Error::BuildRequest(error)))?;
        let limit = until.saturating_sub(self.now()).min(self.attempt());
        self.window.open_until(self.now() + limit);
        let client = self.api.clone().into_client();
        let sent = timeout(&*self.clock, limit, client.request::<Seen>(request)).await;
        let sent = sent.inspect_err(|elapsed| self.access.unanswered(Verb::Write, elapsed.to_string()))?;
        self.access.answered(Verb::Write, sent.as_ref().err());
        let lease = sent.map(Lease::from).map_err(Failure::Refused)?;
        self.versions.see(&lease);
        Ok(lease)
    }

    /// A 200 from something between us and the API server is not a success.
    fn ours(&self, answer: Lease) -> Result<Lease, Failure> {
        let whole = holder(&answer) == Some(&self.settings.identity) && answer.metadata.resource_version.is_some();
        whole.then_some(answer).ok_or(Failure::NotOurs)
    }

    /// The time limit of one request: two fit into the renew deadline.
    fn attempt(&self) -> Duration {
        self.settings.timing.renew_deadline / 2
    }

    fn now(&self) -> Duration {
        self.clock.monotonic()
    }
}

fn body(lease: &Lease) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(lease).map_err(|error| Failure::Refused(kube::Error::SerdeError(error)))
}

/// A Lease that another client may have written: a candidate can take it over, whatever its content.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Lease)]
pub(super) struct Seen {
    #[serde(deserialize_with = "crate::slim::for_writer")]
    metadata: ObjectMeta,
    spec: Option<SeenSpec>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    lease_transitions: Option<i32>,
    /// The API server accepts times that [`Timestamp`] does not: they count as absent.
    acquire_time: Option<String>,
    renew_time: Option<String>,
    preferred_holder: Option<String>,
    strategy: Option<String>,
}

impl From<Seen> for Lease {
    fn from(seen: Seen) -> Self {
        let time = |text: Option<String>| text?.parse::<Timestamp>().ok().map(MicroTime);
        let spec = seen.spec.map(|spec| LeaseSpec {
            holder_identity: spec.holder_identity,
            lease_duration_seconds: spec.lease_duration_seconds,
            lease_transitions: spec.lease_transitions,
            acquire_time: time(spec.acquire_time),
            renew_time: time(spec.renew_time),
            preferred_holder: spec.preferred_holder,
            strategy: spec.strategy,
        });
        Self {
            metadata: ObjectMeta {
                managed_fields: None,
                ..seen.metadata
            },
            spec,
        }
    }
}

/// The next state of the Lease that the watch delivers; `None` when it has ended. Waits forever without a watch.
pub(super) async fn next(watch: &mut Option<Events>) -> Option<Option<Lease>> {
    let Some(events) = watch else {
        return std::future::pending().await;
    };
    loop {
        match events.next().await? {
            Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => return Some(Some(lease.into())),
            Ok(WatchEvent::Deleted(_)) => return Some(None),
            Ok(WatchEvent::Bookmark(_)) => {}
            Ok(WatchEvent::Error(status)) => {
                debug!(status = status.message, "the watch of the Lease ended");
                return None;
            }
            Err(error) => {
                debug!(error = %Chain(&error), "the watch of the Lease ended");
                return None;
            }
        }
    }
}
