//! The body of a request, against a size, a deadline and a minimum rate.
//!
//! tower-http does not fit: its timeouts limit a request or the time between two frames, and one byte every few seconds
//! keeps both.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use tidewaiter_kit::Clock;
use tidewaiter_kit::clock::timeout;

use super::call::Call;
use super::endpoint::Input;
use crate::server::refusal::Refusal;

/// The time for a body, and one second more for each [`RATE`] bytes that were received.
const GRACE: Duration = Duration::from_secs(5);
const RATE: usize = 16 * 1024;

/// The largest number of bytes that the body may have, if its content type and size are accepted by the endpoint.
pub(crate) fn announced(call: &Call, body: &Body) -> Result<usize, Refusal> {
    let most = call.endpoint.max_body;
    check_type(call)?;
    let length = body.size_hint().upper().map(usize::try_from);
    match length {
        None => Ok(most),
        Some(Ok(length)) if length <= most => Ok(length),
        Some(_) => Err(too_large(most)),
    }
}

fn too_large(most: usize) -> Refusal {
    let message = format!("the body is unreadable or larger than {} KiB", most / 1024);
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// The body, if it is no larger than what the endpoint accepts.
pub(crate) async fn read(clock: &dyn Clock, call: &Call, body: Body) -> Result<Bytes, Refusal> {
    read_up_to(clock, call.endpoint.max_body, body).await
}

/// The body, if it has at most `most` bytes.
pub(crate) async fn read_up_to(clock: &dyn Clock, most: usize, mut body: Body) -> Result<Bytes, Refusal> {
    let refused = || too_large(most);
    let began = clock.monotonic();
    let mut whole = BytesMut::new();
    loop {
        let earned = Duration::from_secs((whole.len() / RATE).try_into().unwrap_or(u64::MAX));
        let spent = clock.monotonic().saturating_sub(began);
        let left = (GRACE + earned).saturating_sub(spent);
        let frame = timeout(clock, left, body.frame()).await.map_err(|_| too_slow())?;
        let Some(frame) = frame else { return Ok(whole.freeze()) };
        let Ok(data) = frame.map_err(|_| refused())?.into_data() else {
            continue;
        };
        if data.len() > most - whole.len() {
            return Err(refused());
        }
        whole.extend_from_slice(&data);
    }
}

fn too_slow() -> Refusal {
    let message = format!(
        "the body arrived too slowly: send it within {} seconds and at {} KiB per second",
        GRACE.as_secs(),
        RATE / 1024
    );
    Refusal::new(StatusCode::REQUEST_TIMEOUT, message)
}

fn check_type(call: &Call) -> Result<(), Refusal> {
    let json = matches!(call.endpoint.takes, Input::Json(_) | Input::Patch(_));
    if let (true, Some(media_type)) = (json, call.header(&CONTENT_TYPE)) {
        let essence = media_type.split(';').next().unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        if !["application/json", "application/merge-patch+json"].contains(&&*essence) {
            let message = format!(
                "content-type: is {:.64}, must be application/json",
                essence.escape_default().to_string()
            );
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
    }
    Ok(())
}
