//! The description as a response: created once, with the same bytes for all callers.

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use utoipa::openapi::OpenApi;

use super::page::{STYLE, page};

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

    fn new(body: Vec<u8>, media_type: &'static str, policy: &str) -> Self {
        let etag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest(&SHA256, &body)));
        // Base64 and our own words are always valid in a header.
        let value =
            |text: &str| HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"));
        Self {
            body: body.into(),
            etag: value(&etag),
            media_type: HeaderValue::from_static(media_type),
            policy: value(policy),
        }
    }

    /// The response: 304 without a body if the caller has the current version.
    #[must_use]
    pub fn answer(&self, request: &HeaderMap) -> Response {
        let known = request
            .get_all(IF_NONE_MATCH)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let known = known.flat_map(|value| value.split(',')).map(str::trim);
        let weak = |tag: &str| tag == "*" || tag.trim_start_matches("W/").as_bytes() == self.etag.as_bytes();
        let unchanged = { known }.any(weak);
        let mut response = Response::new(if unchanged {
            Body::empty()
        } else {
            self.body.clone().into()
        });
        if unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(ETAG, self.etag.clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        if !unchanged {
            headers.insert(CONTENT_TYPE, self.media_type.clone());
        }
        response
    }
}
