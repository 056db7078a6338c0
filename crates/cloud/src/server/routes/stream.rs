//! The change streams: the kinds that changed for one cluster, or in an organization. They contain nothing else, so
//! they contain no secrets, and a late event is still correct.
//!
//! After a reconnect, a client sends its last event id in `Last-Event-ID` and misses nothing. A cursor of another
//! database, for example of a restored backup, or one that is too old, is answered with `reset`: the client lists
//! everything. The changes that are replayed are never deleted.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures::stream;
use http::HeaderName;
use http::header::AUTHORIZATION;
use tokio::sync::{OwnedSemaphorePermit, watch};
use zeroize::Zeroizing;

use super::prelude::*;
use crate::models::HEARTBEAT_HEADER;
use crate::models::values::EndTime;
use crate::server::access::permission::allow;
use crate::server::http::call::PathIds;
use crate::server::http::endpoint::Endpoint;
use crate::server::http::headers::LAST_EVENT_ID;
use crate::server::http::response::set;
use crate::server::keys::token::AcceptedUses;
use crate::server::principal::Authenticated;

/// The interval of comments, by which both sides detect a dead connection, in seconds. A client is told of it in the
/// head.
const HEARTBEAT_SECONDS: u64 = 5;
/// The maximum time until a stream ends after a permission was revoked elsewhere, for example in the user's other
/// organization.
const RECOGNISE: Duration = Duration::from_mins(1);

/// The minimum time between two events of the stream of an organization, whose clusters may all report at once.
const ORGANIZATION_INTERVAL: Duration = Duration::from_secs(1);

/// The stream ends: its subscriber lost the permission.
struct Ended;

/// One subscriber.
struct Listener {
    app: AppState,
    organization: Uuid,
    /// Nil for all clusters of the organization.
    cluster: Uuid,
    woken: watch::Receiver<i64>,
    cursor: i64,
    first: Option<&'static str>,
    endpoint: &'static Endpoint,
    /// The header `Authorization`. A map of headers would take 600 bytes.
    authorization: Zeroizing<Box<str>>,
    caller: Arc<Authenticated>,
    /// Counts for the limit of the subscriber.
    _permit: OwnedSemaphorePermit,
}

pub(super) async fn events(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    resource.check_parents(&mut &app.store, Kind::Plugin, false).await?;
    let caller = Arc::clone(call.caller()?);
    let permit = app.limits.stream(&caller.principal.actor())?;
    let (organization, cluster) = (uuid(&resource.organization), uuid(&resource.cluster));
    // Subscribe first, then read, so that no change in between is missed.
    let woken = app.store.feed().subscribe(organization, cluster);
    let latest = app.store.feed().latest();
    let (cursor, first) = match call.header(&LAST_EVENT_ID).map(|id| cursor(app, id)) {
        None => (latest, Some("hello")),
        Some(Some(cursor)) if cursor <= latest => (cursor, None),
        Some(_) => (latest, Some("reset")),
    };
    // Copied, because the header refers to the buffer of the request and would keep all of it in memory.
    let authorization = call.header(&AUTHORIZATION).unwrap_or_default().into();
    let listener = Listener {
        app: app.clone(),
        organization,
        cluster,
        woken,
        cursor,
        first,
        endpoint: call.endpoint,
        authorization: Zeroizing::new(authorization),
        caller,
        _permit: permit,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    let heartbeat = KeepAlive::new().interval(Duration::from_secs(HEARTBEAT_SECONDS));
    let mut response = Sse::new(events).keep_alive(heartbeat).into_response();
    // A buffering proxy would delay the events indefinitely.
    for (name, value) in [
        ("x-accel-buffering", "no"),
        (HEARTBEAT_HEADER, &*HEARTBEAT_SECONDS.to_string()),
    ] {
        set(response.headers_mut(), HeaderName::from_static(name), value);
    }
    Ok(response)
}

/// The number in a cursor of this database.
fn cursor(app: &AppState, text: &str) -> Option<i64> {
    let (epoch, number) = text.rsplit_once('-')?;
    let number = number.parse().ok().filter(|number| *number >= 0)?;
    (epoch == app.store.epoch()).then_some(number)
}

impl Listener {
    fn event(&self, name: &str) -> Event {
        let id = format!("{}-{}", self.app.store.epoch(), self.cursor);
        Event::default().event(name).id(id)
    }

    /// The next event; `None` ends the stream: the server stops, or the subscriber lost the permission.
    async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.take() {
            return Some(self.event(first).data("{}"));
        }
        if self.cluster.is_nil() {
            self.rest().await?;
        }
        loop {
            self.woken.mark_unchanged();
            // Boxed, because thousands of subscribers wait most of the time, and reading needs much memory.
            if let Some(event) = Box::pin(self.look()).await.ok()? {
                return Some(event);
            }
            let shutdown = self.app.shutdown.clone();
            let again = self.app.clock.sleep(self.look_again());
            tokio::select! {
                changed = self.woken.changed() => changed.ok()?,
                () = again => {}
                () = shutdown.cancelled() => return None,
            }
        }
    }

    /// Waits between two events; `None` if the server stops.
    async fn rest(&self) -> Option<()> {
        let shutdown = self.app.shutdown.clone();
        tokio::select! {
            () = self.app.clock.sleep(ORGANIZATION_INTERVAL) => Some(()),
            () = shutdown.cancelled() => None,
        }
    }

    /// The changes since the cursor, which it advances.
    async fn look(&mut self) -> Result<Option<Event>, Ended> {
        if !self.may_still().await {
            return Err(Ended);
        }
        let feed = self.app.store.feed();
        let latest = feed.latest();
        let Some(changed) = feed.since(self.cursor, self.organization, self.cluster) else {
            self.cursor = latest;
            return Ok(Some(self.event("reset").data("{}")));
        };
        let last = changed.iter().map(|(_, sequence)| *sequence).max();
        self.cursor = last.unwrap_or_default().max(latest);
        let kinds = changed.iter().filter_map(|(kind, _)| kind.facts().event);
        let mut kinds: Vec<_> = kinds.map(Kind::word).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let change = json!({ "kinds": kinds }).to_string();
        Ok((!kinds.is_empty()).then(|| self.event("change").data(change)))
    }

    /// The time until the permission is checked again without a change that concerns the subscriber.
    fn look_again(&self) -> Duration {
        let now = self.app.clock.now();
        let expiry = self.caller.claims.as_ref().map(|claims| claims.expires_at);
        let ends = [expiry, self.caller.until.map(EndTime::get)];
        let left = ends
            .into_iter()
            .flatten()
            .map(|end| end.duration_since(now).unsigned_abs());
        left.min().map_or(RECOGNISE, |left| left.min(RECOGNISE))
    }

    /// Checks the permission again when the token has expired, or a change may affect identities.
    async fn may_still(&mut self) -> bool {
        if self.caller.is_still_valid(&self.app.authenticator) {
            return true;
        }
        let authenticator = &self.app.authenticator;
        let caller = authenticator.authenticate(&self.authorization, AcceptedUses::Api);
        let Ok(Some(caller)) = caller.await else {
            return false;
        };
        self.caller = caller;
        let place = PathIds {
            organization: Some(self.organization),
            cluster: (!self.cluster.is_nil()).then_some(self.cluster),
            ..PathIds::default()
        };
        let may = allow(self.endpoint, Some(&self.caller.principal), place).is_ok();
        if self.cluster.is_nil() {
            return may;
        }
        let there = self.app.store.get(Kind::Cluster, &self.cluster.to_string()).await;
        may && there.is_ok_and(|row| row.is_some())
    }
}
