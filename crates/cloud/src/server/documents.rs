//! The server's descriptions of itself: the issuer of its tokens, the keys that verify them, and its API.

use std::sync::LazyLock;

use axum::response::Response;

use super::Error;
use super::call::{Call, respond};
use super::cloud::Cloud;
use super::endpoints::ENDPOINTS;
use super::openapi::{Served, document};
use super::signing::Discovery;

/// The description, as JSON and as HTML: constant while the program runs.
static DESCRIPTION: LazyLock<[Served; 2]> = LazyLock::new(|| {
    let document = document(&ENDPOINTS);
    [Served::json(&document), Served::page(&document)]
});

pub(super) async fn discovery(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    Ok(respond(call, &Discovery::new(cloud.tokens.load().issuer())))
}

pub(super) async fn jwks(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    Ok(respond(call, &cloud.tokens.load().ring().jwks()))
}

pub(super) async fn openapi(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    cloud.limits.description(call.client)?;
    let [json, _] = &*DESCRIPTION;
    Ok(json.answer(&call.headers))
}

pub(super) async fn page(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    cloud.limits.description(call.client)?;
    let [_, page] = &*DESCRIPTION;
    Ok(page.answer(&call.headers))
}
