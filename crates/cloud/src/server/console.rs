//! The console: pages for people, rendered here. A page reads and changes nothing by itself: it sends the requests that
//! any client would send to the API of this server, in the same process and with the token of the signed-in person. So
//! permissions, limits, preconditions and the audit log are those of the API.
//!
//! Rules of all pages: no inline script or style, nothing from another host, no credential in the text; a form works
//! without JavaScript and carries the token of its session (`session`); a page that may be shown to nobody else is not
//! stored by a cache.

mod api;
mod assets;
mod fields;
mod home;
mod page;
mod providers;
mod session;
mod sign_in;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

use super::state::AppState;

/// The state of all pages.
#[derive(Clone)]
pub(super) struct Console {
    pub(super) app: AppState,
    /// The API of this server.
    api: Router,
}

const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Nothing but what this server sends, and in nobody's frame. A page that needs more sends its own policy.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action \
     'self'; frame-ancestors 'none'; base-uri 'none'",
);

/// Serves the pages, with `api` as the API that they use.
pub(super) fn router(app: AppState, api: Router) -> Router {
    Router::new()
        .route("/", get(home::show))
        .route("/sign-in", get(sign_in::show).post(sign_in::with_password))
        .route("/sign-in/with/{provider}", get(providers::sign_in))
        .route("/sign-in/callback", get(providers::callback))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/account/identities", get(providers::show).post(providers::link))
        .route("/account/identities/unlink", post(providers::unlink))
        .route("/assets/{name}", get(assets::get))
        .layer(axum::middleware::map_response(protect))
        .with_state(Console { app, api })
}

/// Adds the headers by which a browser keeps others out of a page.
async fn protect(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(POLICY);
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER, HeaderValue::from_static("same-origin"));
    response
}

/// 303 to `path`, which is one of this server.
fn see_other(path: &str) -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SEE_OTHER;
    super::http::response::set(response.headers_mut(), http::header::LOCATION, path);
    response
}
