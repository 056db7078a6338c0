//! What the server says of itself: the issuer of its tokens, and the keys that verify them.

use axum::response::Response;
use bytes::Bytes;

use super::call::{Call, text, unless_known};
use super::cloud::Cloud;
use super::signing::Discovery;
use super::view::etag;

pub(super) fn discovery(cloud: &Cloud, call: &Call) -> Response {
    let body = Bytes::from(text(&Discovery::new(cloud.tokens.load().issuer())));
    unless_known(call, &etag(&body), body)
}

pub(super) fn jwks(cloud: &Cloud, call: &Call) -> Response {
    let body = Bytes::from(text(&cloud.tokens.load().ring().jwks()));
    unless_known(call, &etag(&body), body)
}
