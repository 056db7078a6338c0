//! The description as a response: created once, with the same bytes for all callers.

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use utoipa::openapi::OpenApi;

use super::page::{STYLE, page};
use crate::server::digest::etag;
use crate::server::http::conditions::matches;

const TYPE_OPTIONS: HeaderName = HeaderName::from_static("x-content-type-options");

/// A static document.
#[derive(Clone, Debug)]
pub struct Served {
    body: Bytes,
    etag: HeaderValue,
    media_type: HeaderValue,
    policy: HeaderValue,
}

impl Served {
    #[must_use]
    pub fn json(document: &OpenApi) -> Self {
        // Maps, lists and strings can always be serialized.
        let body = serde_json::to_vec(document).unwrap_or_default();
        Self::new(body, "application/json", "default-src 'none'; frame-ancestors 'none'")
    }

    /// `/docs`. The browser may load and run nothing; the style is permitted by its hash.
    #[must_use]
    pub fn page(document: &OpenApi) -> Self {
        let style = STANDARD.encode(digest(&SHA256, STYLE.as_bytes()));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let body = page(&serde_json::to_value(document).unwrap_or_default());
        Self::new(body.into_bytes(), "text/html; charset=utf-8", &policy)
    }

    /// A file of the pages.
    pub(crate) fn asset(body: &'static str, media_type: &'static str) -> Self {
        Self::new(body.into(), media_type, "default-src 'none'; frame-ancestors 'none'")
    }

    fn new(body: Vec<u8>, media_type: &'static str, policy: &str) -> Self {
        // Base64 and our own words are always valid in a header.
        let value =
            |text: &str| HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"));
        Self {
            etag: value(&etag(&body)),
            body: body.into(),
            media_type: HeaderValue::from_static(media_type),
            policy: value(policy),
        }
    }

    /// The response: 304 without a body if the caller has the current version.
    #[must_use]
    pub fn answer(&self, request: &HeaderMap) -> Response {
        let is_known = |list: &HeaderValue| {
            let (list, own) = (list.to_str().ok(), self.etag.to_str().ok());
            list.zip(own).is_some_and(|(list, own)| matches(list, own, true))
        };
        let mut response = if request.get_all(IF_NONE_MATCH).iter().any(is_known) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(CONTENT_TYPE, self.media_type.clone())], self.body.clone()).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, self.etag.clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        response
    }
}
