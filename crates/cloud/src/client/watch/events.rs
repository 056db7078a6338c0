//! The events of one connection. It ends when nothing arrives for two heartbeats, or after [`MAX_BYTES`].

use std::time::Duration;

use bytes::Bytes;
use eventsource_stream::{Event, Eventsource as _};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http::HeaderMap;
use tidewaiter_kit::SharedClock;
use tidewaiter_kit::clock::timeout;

use crate::models::HEARTBEAT_HEADER;

/// The maximum silence of a server that does not name the interval of its heartbeats: servers before that sent one
/// every 15 s.
const MAX_SILENCE: Duration = Duration::from_secs(45);
/// The time by which a heartbeat may be late.
const LATE: Duration = Duration::from_secs(2);
/// A connection is renewed after this many bytes, so that no event can fill the memory.
const MAX_BYTES: usize = 16 * 1024 * 1024;

pub(super) type Events = BoxStream<'static, Result<Event, Broken>>;

/// The reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("nothing was received for {0:?}")]
    Silent(Duration),
    #[error("received {MAX_BYTES} bytes")]
    Long,
    #[error("the connection was interrupted")]
    Network(#[source] reqwest::Error),
    #[error("the response is not an event stream")]
    Form,
    #[error("the server closed it")]
    Ended,
}

/// The silence after which a connection with this head is dead: two missing heartbeats.
pub(super) fn max_silence(headers: &HeaderMap) -> Duration {
    let seconds = headers
        .get(HEARTBEAT_HEADER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map_or(MAX_SILENCE, |seconds: u64| {
        let two = Duration::from_secs(seconds).saturating_mul(2);
        two.saturating_add(LATE).min(MAX_SILENCE)
    })
}

/// The events of a connection, which ends after `silence`, or after [`MAX_BYTES`].
pub(super) fn events(
    bytes: BoxStream<'static, reqwest::Result<Bytes>>,
    silence: Duration,
    clock: SharedClock,
) -> Events {
    let lively = stream::unfold(Some((bytes, 0)), move |state| {
        let clock = clock.clone();
        async move {
            let (mut bytes, total) = state?;
            let part = match timeout(&*clock, silence, bytes.next()).await {
                Err(_) => Err(Broken::Silent(silence)),
                Ok(None) => return None,
                Ok(Some(Err(error))) => Err(Broken::Network(error.without_url())),
                Ok(Some(Ok(_))) if total > MAX_BYTES => Err(Broken::Long),
                Ok(Some(Ok(part))) => Ok(part),
            };
            let next = part.as_ref().ok().map(|part| total + part.len());
            Some((part, next.map(|total| (bytes, total))))
        }
    });
    let read = lively.boxed().eventsource();
    read.map(|event| {
        event.map_err(|error| match error {
            eventsource_stream::EventStreamError::Transport(broken) => broken,
            _ => Broken::Form,
        })
    })
    .boxed()
}
