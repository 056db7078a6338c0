//! Notifications of changes: the event stream of a cluster, and polling while there is none.
//!
//! A caller that lists what each [`Wake`] names sees every change, whatever happens to connections and servers: the
//! first connection and every gap wake for everything, a known cursor is resumed, and while the stream is unavailable
//! everything is polled at each sync interval. A connection on which nothing arrives is no stream. It never ends.
//!
//! The delay after a failed connection, also one that the server asks for, ends early when the cloud responds to
//! another request: the first time at once, and later after the doubled delay.

mod events;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use eventsource_stream::Event;
use futures::future::{BoxFuture, select};
use futures::stream;
use futures::{FutureExt as _, Stream, StreamExt as _};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use serde_json::Value;
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Backoff, Chain};
use tracing::{debug, info};

use super::Client;
use super::path::Cluster;
use super::recovery::Recoveries;
use super::request::Request;
use crate::models::Kind;
use events::{Broken, Events, events, max_silence};

/// The delays between connections, also after failed ones.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_mins(1));
/// The delay after a server without a stream, which may have one after its next upgrade.
const NO_STREAM: Duration = Duration::from_mins(10);
/// The timeout of the head of the response. Nothing has to be computed for it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time to the first poll after a stream fell silent, or was lost and not opened again at once: the cloud may be
/// away as a whole, and everybody should know it soon.
const SILENT_POLL: Duration = Duration::from_secs(3);
/// Spreads the polls of many clients.
const JITTER: f64 = 0.1;

/// The reason to list again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Anything may have changed: list every kind.
    Everything,
    /// These kinds have changed.
    Changed(BTreeSet<Kind>),
}

impl Client {
    /// Yields the changes of a cluster. The stream never ends. `connected` is called with true when the event stream is
    /// open, and with false when it is lost.
    pub fn watch<F>(&self, cluster: Cluster, connected: F) -> impl Stream<Item = Wake> + Send + use<F>
    where
        F: Fn(bool) + Send + 'static,
    {
        let now = self.clock.monotonic();
        let watch = Watch {
            client: self.clone(),
            request: Request::new(Method::GET, cluster.events()),
            cursor: None,
            failures: 0,
            poll_at: now,
            was_silent: false,
            state: State::Waiting {
                until: now,
                not_before: now,
            },
            recoveries: self.recoveries(),
            was_woken: false,
            due: VecDeque::new(),
            connected: Box::new(connected),
        };
        stream::unfold(watch, |mut watch| async move {
            let wake = watch.next().await;
            Some((wake, watch))
        })
    }
}

/// The result of opening a connection.
enum Opened {
    Events {
        events: Events,
        alive: Arc<AtomicBool>,
    },
    /// The connection failed.
    Refused {
        reason: String,
        /// The delay that the server asks for.
        wait: Duration,
        /// True if the server has no stream.
        absent: bool,
    },
}

impl Opened {
    fn failed(reason: String) -> Self {
        Self::Refused {
            reason,
            wait: Duration::ZERO,
            absent: false,
        }
    }
}

enum State {
    /// No request is sent until `until`, or until a recovery of the cloud from `not_before` on.
    Waiting {
        until: Duration,
        not_before: Duration,
    },
    Connecting(BoxFuture<'static, Opened>),
    /// Connected; `told` is true after a wake-up for everything before the connection, and `alive` after the first
    /// bytes.
    Reading {
        events: Events,
        told: bool,
        alive: Arc<AtomicBool>,
        since: Duration,
    },
}

struct Watch {
    client: Client,
    request: Request,
    cursor: Option<HeaderValue>,
    failures: u32,
    /// The time of the next poll while there is no stream.
    poll_at: Duration,
    /// True if the stream was lost because it fell silent.
    was_silent: bool,
    state: State,
    recoveries: Recoveries,
    /// True if a recovery ended a delay since the last event. If the connection failed all the same, it fails for a
    /// reason of its own.
    was_woken: bool,
    due: VecDeque<Wake>,
    connected: Box<dyn Fn(bool) + Send>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl Watch {
    async fn next(&mut self) -> Wake {
        loop {
            if let Some(wake) = self.due.pop_front() {
                return wake;
            }
            let polls = !self.is_alive() && self.failures > 0;
            let poll_in = self.poll_at.saturating_sub(self.client.clock.monotonic());
            if polls && poll_in.is_zero() {
                self.poll_at = self.client.clock.monotonic() + jittered(self.client.sync_interval, JITTER);
                return Wake::Everything;
            }
            let clock = self.client.clock.clone();
            let step = self.step();
            if polls {
                // The state keeps a pending connection attempt, so a poll in between does not cancel it.
                let _ = select(Box::pin(step), clock.sleep(poll_in)).await;
            } else {
                step.await;
            }
        }
    }

    /// Returns true if the server sends something, heartbeats included.
    fn is_alive(&self) -> bool {
        matches!(&self.state, State::Reading { alive, .. } if alive.load(Ordering::Relaxed))
    }

    /// Waits for the next event of the state machine. Cancel safe.
    async fn step(&mut self) {
        match &mut self.state {
            State::Waiting { until, not_before } => {
                let now = self.client.clock.monotonic();
                let delay = self.client.clock.sleep(until.saturating_sub(now));
                let least = self.client.clock.sleep(not_before.saturating_sub(now));
                let recoveries = &mut self.recoveries;
                let recovered = async move {
                    least.await;
                    recoveries.next().await;
                };
                tokio::select! {
                    biased;
                    () = delay => {}
                    () = recovered => self.was_woken = true,
                }
                self.recoveries.forget();
                self.state = State::Connecting(self.connect());
            }
            State::Connecting(connection) => match connection.await {
                Opened::Events { events, alive } => {
                    self.state = State::Reading {
                        events,
                        told: self.cursor.is_some(),
                        alive,
                        since: self.client.clock.monotonic(),
                    };
                }
                Opened::Refused { reason, wait, absent } => {
                    self.client.transport.availability.failed();
                    if self.cursor.is_some() && self.failures == 1 && !self.was_silent {
                        let soon = self.client.clock.monotonic() + jittered(SILENT_POLL, JITTER);
                        self.poll_at = self.poll_at.min(soon);
                    }
                    self.wait_again(&reason, wait, absent);
                }
            },
            State::Reading { events, .. } => match events.next().await {
                Some(Ok(event)) => self.take(&event),
                Some(Err(broken)) => self.lost(&broken),
                None => self.lost(&Broken::Ended),
            },
        }
    }

    fn take(&mut self, event: &Event) {
        (self.failures, self.was_woken) = (0, false);
        (self.connected)(true);
        self.client.transport.availability.succeeded();
        // That is no news for the stream itself.
        self.recoveries.forget();
        let State::Reading { told, .. } = &mut self.state else {
            return;
        };
        let first = !std::mem::replace(told, true);
        if let Some(cursor) = HeaderValue::from_str(&event.id)
            .ok()
            .filter(|cursor| !cursor.is_empty())
        {
            self.cursor = Some(cursor);
        }
        match (event.event.as_str(), changed(&event.data)) {
            ("change", Some(kinds)) if !first => {
                self.due.extend((!kinds.is_empty()).then_some(Wake::Changed(kinds)));
            }
            ("hello" | "reset" | "change", _) => self.due.push_back(Wake::Everything),
            _ if first => self.due.push_back(Wake::Everything),
            _ => {}
        }
    }

    fn lost(&mut self, broken: &Broken) {
        (self.connected)(false);
        let now = self.client.clock.monotonic();
        if self.is_alive() {
            let regular = jittered(self.client.sync_interval, JITTER);
            self.was_silent = matches!(broken, Broken::Silent(_));
            self.poll_at = now
                + if self.was_silent {
                    regular.min(SILENT_POLL)
                } else {
                    regular
                };
        }
        if let State::Reading { since, .. } = self.state
            && now.saturating_sub(since) >= BACKOFF.cap
        {
            self.failures = 0;
        }
        self.wait_again(&Chain(broken).to_string(), Duration::ZERO, false);
    }

    fn wait_again(&mut self, reason: &str, wait: Duration, absent: bool) {
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            info!(request = %self.request, reason, "the change stream is unavailable; polling instead");
        } else {
            debug!(request = %self.request, reason, failures = self.failures, "the change stream is still unavailable");
        }
        let (now, delay) = (self.client.clock.monotonic(), BACKOFF.delay(self.failures));
        let until = now + if absent { NO_STREAM } else { wait.max(delay) };
        let not_before = match (absent, self.was_woken) {
            (true, _) => until,
            (false, true) => now + delay,
            (false, false) => now,
        };
        self.state = State::Waiting { until, not_before };
    }

    fn connect(&self) -> BoxFuture<'static, Opened> {
        let (client, request, cursor) = (self.client.clone(), self.request.clone(), self.cursor.clone());
        async move {
            let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/event-stream"))]);
            if let Some(cursor) = cursor {
                headers.insert("last-event-id", cursor);
            }
            let limit = client.transport.timeout.min(HEAD_TIMEOUT);
            let opened = timeout(&*client.clock, limit, open(&client, &request, headers)).await;
            opened.unwrap_or_else(|elapsed| Opened::failed(elapsed.to_string()))
        }
        .boxed()
    }
}

async fn open(client: &Client, request: &Request, headers: HeaderMap) -> Opened {
    let response = match client.transport.send(request, None, headers).await {
        Ok(response) => response,
        Err(error) => return Opened::failed(Chain(&error).to_string()),
    };
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if response.status() == StatusCode::OK && kind.starts_with("text/event-stream") {
        let silence = max_silence(response.headers());
        let alive = Arc::new(AtomicBool::new(false));
        let (bytes, arrived) = (response.bytes_stream(), Arc::clone(&alive));
        let bytes = bytes.inspect(move |part| arrived.store(part.is_ok(), Ordering::Relaxed));
        let events = events(bytes.boxed(), silence, client.clock.clone());
        return Opened::Events { events, alive };
    }
    let absent = matches!(response.status().as_u16(), 404 | 405 | 501);
    let (reason, asked) = if response.status() == StatusCode::OK {
        (
            format!(
                "the response is not an event stream but {}",
                tidewaiter_api::values::quoted(kind)
            ),
            None,
        )
    } else {
        let error = client.transport.failure(request, response).await;
        (Chain(&error).to_string(), error.retry())
    };
    Opened::Refused {
        reason,
        wait: asked.unwrap_or_default(),
        absent,
    }
}

/// The kinds of an event that this client knows; `None` if it names none.
fn changed(data: &str) -> Option<BTreeSet<Kind>> {
    let data: Value = serde_json::from_str(data).ok()?;
    let kinds = data.get("kinds")?.as_array()?.iter();
    let words: Option<Vec<&str>> = kinds.map(Value::as_str).collect();
    Some(words?.into_iter().filter_map(Kind::of_event).collect())
}
