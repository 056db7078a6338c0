//! What a role serves about itself, in plain HTTP: `/healthz`, `/readyz` and `/metrics`.
//!
//! Responses come from memory, on every replica, leader or not, and contain no secret. A failed check says what is missing.
//! Probes have a port of their own, which only clients on the same host reach: a stranger on the port for metrics cannot
//! cause a restart.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::StatusCode;
use tracing::error;

use crate::Kit;

/// The health port: `/healthz` with its alias `/livez`, and `/readyz`.
pub fn health(kit: Kit) -> Router {
    Router::new()
        .route("/healthz", get(livez))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(kit)
}

/// The admin port: `/metrics`, and what the health port serves.
pub fn router(kit: Kit) -> Router {
    let metrics = Router::new().route("/metrics", get(metrics)).with_state(kit.clone());
    metrics.merge(health(kit))
}

/// A process that answers is alive.
async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(kit): State<Kit>) -> (StatusCode, String) {
    let (ready, report) = kit.checks.report();
    (
        if ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        },
        report,
    )
}

async fn metrics(State(kit): State<Kit>) -> Result<([(http::HeaderName, &'static str); 1], String), StatusCode> {
    let text = kit.metrics.encode().map_err(|error| {
        error!(error = %crate::Chain(&error), "cannot encode the metrics");
        StatusCode::INTERNAL_SERVER_ERROR
    })?;
    Ok(([(http::header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::testing::kit;

    async fn get(router: Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing_on_both_ports() {
        let (kit, _) = kit();
        let ports = || [health(kit.clone()), router(kit.clone())];
        for port in ports() {
            let ready = (StatusCode::OK, "readyz check passed\n".to_owned());
            assert_eq!(get(port, "/readyz").await, ready);
        }
        kit.checks.register("cache/node", || Ok(()));
        kit.checks.register("state-store", || Err("access denied".to_owned()));
        for port in ports() {
            let (status, report) = get(port.clone(), "/readyz").await;
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(
                report,
                "[+]cache/node ok\n[-]state-store failed: access denied\nreadyz check failed\n"
            );
            for path in ["/healthz", "/livez"] {
                let alive = (StatusCode::OK, "ok\n".to_owned());
                assert_eq!(
                    get(port.clone(), path).await,
                    alive,
                    "a process that is not ready is alive"
                );
            }
        }
    }

    #[tokio::test]
    async fn metrics_are_text_and_not_on_the_health_port() {
        let (kit, _) = kit();
        let (status, text) = get(router(kit.clone()), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("\ntidewaiter_leader 0\n"), "{text}");
        assert_eq!(get(health(kit), "/metrics").await.0, StatusCode::NOT_FOUND);
    }
}
