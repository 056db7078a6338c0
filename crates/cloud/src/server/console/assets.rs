//! The style and the script of the pages.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::Response;
use http::{HeaderMap, StatusCode};

use crate::server::openapi::Served;

static STYLE: LazyLock<Served> =
    LazyLock::new(|| Served::asset(include_str!("console.css"), "text/css; charset=utf-8"));
static SCRIPT: LazyLock<Served> =
    LazyLock::new(|| Served::asset(include_str!("console.js"), "text/javascript; charset=utf-8"));

pub(super) async fn get(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match &*name {
        "console.css" => STYLE.answer(&headers),
        "console.js" => SCRIPT.answer(&headers),
        _ => {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}
