//! The server's descriptions of itself: the issuer of its tokens, the keys that verify them, and its API.

use std::sync::LazyLock;

use axum::response::Response;
use bytes::Bytes;

use super::Error;
use super::call::{Call, text, unless_known};
use super::cloud::Cloud;
use super::digest::etag;
use super::endpoints::ENDPOINTS;
use super::openapi::{Served, document};
use super::signing::Discovery;

/// The description, as JSON and as HTML: constant while the program runs.
static DESCRIPTION: LazyLock<[Served; 2]> = LazyLock::new(|| {
    let document = document(&ENDPOINTS);
    [Served::json(&document), Served::page(&document)]
});

pub(super) async fn discovery(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let body = Bytes::from(text(&Discovery::new(cloud.tokens.load().issuer())));
    Ok(unless_known(call, &etag(&body), body))
}

pub(super) async fn jwks(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let body = Bytes::from(text(&cloud.tokens.load().ring().jwks()));
    Ok(unless_known(call, &etag(&body), body))
}

pub(super) async fn openapi(_: &Cloud, call: &Call) -> Result<Response, Error> {
    let [json, _] = &*DESCRIPTION;
    Ok(json.answer(&call.headers))
}

pub(super) async fn page(_: &Cloud, call: &Call) -> Result<Response, Error> {
    let [_, page] = &*DESCRIPTION;
    Ok(page.answer(&call.headers))
}
