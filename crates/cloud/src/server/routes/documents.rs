//! The server's descriptions of itself: the issuer of its tokens, the keys that verify them, and its API.

use super::prelude::*;
use crate::server::keys::signing::Discovery;

pub(super) async fn discovery(app: &AppState, call: &Call) -> Result<Response, Error> {
    Ok(respond(call, &Discovery::new(app.authenticator.tokens.load().issuer())))
}

pub(super) async fn jwks(app: &AppState, call: &Call) -> Result<Response, Error> {
    Ok(respond(call, &app.authenticator.tokens.load().ring().jwks()))
}

pub(super) async fn openapi(app: &AppState, call: &Call) -> Result<Response, Error> {
    app.limits.description(call.client)?;
    let [json, _] = &**app.description;
    Ok(json.answer(&call.headers))
}

pub(super) async fn page(app: &AppState, call: &Call) -> Result<Response, Error> {
    app.limits.description(call.client)?;
    let [_, page] = &**app.description;
    Ok(page.answer(&call.headers))
}
