//! Successful responses.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, LOCATION};
use http::{HeaderName, StatusCode};
use serde::{Deserialize, Serialize};

use super::call::Call;
use crate::models::CHANGE_HEADER;
use crate::server::digest::etag;
use crate::server::store::Row;

/// A successful response, which can be stored for a repeated request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    /// The value for `If-Match`; `None` if no GET returns this body.
    pub(crate) etag: Option<String>,
    pub(crate) body: String,
    /// The kind and the id of the API key or token that the body contains: it is not shown again after it was deleted.
    #[serde(default)]
    pub(crate) secret_of: Option<(String, String)>,
    /// Of a plugin, the body without manifests, which have megabytes: only this is stored, and a repeated request reads
    /// them again.
    #[serde(skip)]
    pub(crate) bare: Option<String>,
    /// The number of its change, or a later one in the same commit; `None` if it changed nothing.
    #[serde(skip)]
    pub(crate) change: Option<i64>,
}

impl Reply {
    /// 201 with the created object, as a GET returns it, and its location.
    pub(crate) fn made(location: String, body: &impl Serialize) -> Self {
        Self {
            status: StatusCode::CREATED.as_u16(),
            location: Some(location),
            ..Self::ok(body)
        }
    }

    /// Replaces the body by one that is shown only once.
    pub(crate) fn showing_once(self, body: &impl Serialize) -> Self {
        Self {
            body: text(body),
            ..self
        }
    }

    /// Names the object whose secret the body contains.
    pub(crate) fn with_secret_of(self, row: &Row) -> Self {
        Self {
            secret_of: Some((row.kind.word().to_owned(), row.id.clone())),
            ..self
        }
    }

    /// Removes the ETag, for objects without a GET.
    pub(crate) fn without_etag(self) -> Self {
        Self { etag: None, ..self }
    }

    /// 200 with `body`.
    pub(crate) fn ok(body: &impl Serialize) -> Self {
        let body = text(body);
        Self {
            status: StatusCode::OK.as_u16(),
            etag: Some(etag(body.as_bytes())),
            body,
            ..Self::default()
        }
    }

    /// 204.
    pub(crate) fn nothing() -> Self {
        Self {
            status: StatusCode::NO_CONTENT.as_u16(),
            ..Self::default()
        }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        let mut response = if self.body.is_empty() {
            status.into_response()
        } else {
            json(status, self.body.into())
        };
        if let Some(change) = self.change {
            set_change(response.headers_mut(), change);
        }
        if let Some(etag) = self.etag {
            set(response.headers_mut(), ETAG, &etag);
        }
        if let Some(location) = self.location {
            set(response.headers_mut(), LOCATION, &location);
        }
        response
    }
}

/// 200 with `value` as JSON, or 304 if the caller has this version.
pub(crate) fn respond(call: &Call, value: &impl Serialize) -> Response {
    respond_with(call, text(value))
}

/// 200 with this JSON, or 304 if the caller has this version.
pub(crate) fn respond_with(call: &Call, text: String) -> Response {
    let body = Bytes::from(text);
    unless_known(call, &etag(&body), body)
}

/// 200 with `body`, or 304 if the caller has this version.
pub(crate) fn unless_known(call: &Call, tag: &str, body: Bytes) -> Response {
    let mut response = if call.has(tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        json(StatusCode::OK, body)
    };
    set(response.headers_mut(), ETAG, tag);
    response
}

pub(crate) fn json(status: StatusCode, body: Bytes) -> Response {
    let mut response = (status, body).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Names the change that a response is of, or up to which it is current.
pub(crate) fn set_change(headers: &mut HeaderMap, change: i64) {
    let name = HeaderName::from_static(CHANGE_HEADER);
    headers.entry(name).or_insert_with(|| HeaderValue::from(change));
}

/// Serializes maps, lists and strings, which cannot fail.
pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
