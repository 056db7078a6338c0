//! The change stream: the kinds that changed for one cluster. It contains nothing else, so it contains no secrets, and
//! a late event is still correct.
//!
//! After a reconnect, a client sends its last event id in `Last-Event-ID` and misses nothing. A cursor of another
//! database, for example of a restored backup, or one that is too old, is answered with `reset`: the client lists
//! everything. The changes that are replayed are never deleted.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use http::HeaderName;
use http::header::AUTHORIZATION;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::Error;
use super::access::{PathIds, allow};
use super::call::Call;
use super::cloud::Cloud;
use super::digest::uuid;
use super::endpoints::Endpoint;
use super::identity;
use super::principal::Known;
use super::source::Spot;
use super::token::{AcceptedUses, Claims};
use crate::models::{HEARTBEAT_HEADER, Kind};

/// The interval of comments, by which both sides detect a dead connection, in seconds. A client is told of it in the
/// head.
const HEARTBEAT_SECONDS: u64 = 5;
/// The maximum time until a stream ends after a permission was revoked elsewhere, for example in the user's other
/// organization.
const RECOGNISE: Duration = Duration::from_mins(1);
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The stream ends: its subscriber lost the permission.
struct Ended;

/// One subscriber.
struct Listener {
    cloud: Cloud,
    organization: Uuid,
    cluster: Uuid,
    woken: watch::Receiver<i64>,
    cursor: i64,
    first: Option<&'static str>,
    endpoint: &'static Endpoint,
    /// The header `Authorization`. A map of headers would take 600 bytes.
    authorization: Zeroizing<Box<str>>,
    known: Arc<Known>,
    /// Counts for the limit of the subscriber.
    _permit: OwnedSemaphorePermit,
}

pub(super) async fn events(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    spot.check(&mut &cloud.store, Kind::Plugin, false).await?;
    let known = Arc::clone(call.known()?);
    let permit = cloud.limits.stream(&known.principal.actor())?;
    let (organization, cluster) = (uuid(&spot.organization), uuid(&spot.cluster));
    // Subscribe first, then read, so that no change in between is missed.
    let woken = cloud.store.feed().subscribe(organization, cluster);
    let latest = cloud.store.feed().latest();
    let (cursor, first) = match call.header(&LAST_EVENT_ID).map(|id| cursor(cloud, id)) {
        None => (latest, Some("hello")),
        Some(Some(cursor)) if cursor <= latest => (cursor, None),
        Some(_) => (latest, Some("reset")),
    };
    // Copied, because the header refers to the buffer of the request and would keep all of it in memory.
    let authorization = call.header(&AUTHORIZATION).unwrap_or_default().into();
    let listener = Listener {
        cloud: cloud.clone(),
        organization,
        cluster,
        woken,
        cursor,
        first,
        endpoint: call.endpoint,
        authorization: Zeroizing::new(authorization),
        known,
        _permit: permit,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    let heartbeat = KeepAlive::new().interval(Duration::from_secs(HEARTBEAT_SECONDS));
    let mut response = Sse::new(events).keep_alive(heartbeat).into_response();
    // A buffering proxy would delay the events indefinitely.
    super::call::set(
        response.headers_mut(),
        HeaderName::from_static("x-accel-buffering"),
        "no",
    );
    let heartbeat = HEARTBEAT_SECONDS.to_string();
    super::call::set(
        response.headers_mut(),
        HeaderName::from_static(HEARTBEAT_HEADER),
        &heartbeat,
    );
    Ok(response)
}

/// The number in a cursor of this database.
fn cursor(cloud: &Cloud, text: &str) -> Option<i64> {
    let (epoch, number) = text.rsplit_once('-')?;
    let number = number.parse().ok().filter(|number| *number >= 0)?;
    (epoch == cloud.store.epoch()).then_some(number)
}

impl Listener {
    fn event(&self, name: &str) -> Event {
        let id = format!("{}-{}", self.cloud.store.epoch(), self.cursor);
        Event::default().event(name).id(id)
    }

    /// The next event; `None` ends the stream: the server stops, or the subscriber lost the permission.
    async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.take() {
            return Some(self.event(first).data("{}"));
        }
        loop {
            self.woken.mark_unchanged();
            // Boxed, because thousands of subscribers wait most of the time, and reading needs much memory.
            if let Some(event) = Box::pin(self.look()).await.ok()? {
                return Some(event);
            }
            let shutdown = self.cloud.shutdown.clone();
            let again = self.cloud.clock.sleep(self.look_again());
            tokio::select! {
                changed = self.woken.changed() => changed.ok()?,
                () = again => {}
                () = shutdown.cancelled() => return None,
            }
        }
    }

    /// The changes since the cursor, which it advances.
    async fn look(&mut self) -> Result<Option<Event>, Ended> {
        if !self.may_still().await {
            return Err(Ended);
        }
        let feed = self.cloud.store.feed();
        let latest = feed.latest();
        let Some(changed) = feed.since(self.cursor, self.organization, self.cluster) else {
            self.cursor = latest;
            return Ok(Some(self.event("reset").data("{}")));
        };
        let last = changed.iter().map(|(_, sequence)| *sequence).max();
        self.cursor = last.unwrap_or_default().max(latest);
        let mut kinds: Vec<_> = changed
            .iter()
            .filter_map(|(kind, _)| kind.facts().event)
            .map(Kind::word)
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        let change = json!({ "kinds": kinds }).to_string();
        Ok((!kinds.is_empty()).then(|| self.event("change").data(change)))
    }

    /// The time until the permission is checked again without a change that concerns this cluster.
    fn look_again(&self) -> Duration {
        let left = |claims: &Claims| claims.expires_at.duration_since(self.cloud.clock.now()).unsigned_abs();
        let left = self.known.claims.as_ref().map_or(RECOGNISE, left);
        left.min(RECOGNISE)
    }

    /// Checks the permission again when the token has expired, or a change may affect identities.
    async fn may_still(&mut self) -> bool {
        if self.known.still_is(&self.cloud, self.cloud.clock.now()) {
            return true;
        }
        let Ok(Some(known)) = identity::of(&self.cloud, &self.authorization, AcceptedUses::Api).await else {
            return false;
        };
        self.known = known;
        let place = PathIds {
            organization: Some(self.organization),
            cluster: Some(self.cluster),
            user: None,
        };
        let may = allow(self.endpoint.may, Some(&self.known.principal), place).is_ok();
        let there = self.cloud.store.get(Kind::Cluster, &self.cluster.to_string()).await;
        may && there.is_ok_and(|row| row.is_some())
    }
}
