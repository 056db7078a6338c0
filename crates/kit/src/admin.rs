//! The endpoints of a role about itself, in plain HTTP: `/healthz`, `/readyz` and `/metrics`.
//!
//! Responses come from memory, on every replica, leader or not, and contain no secret. A failed check says what is
//! missing. Probes have a port of their own, which only clients on the same host reach: a stranger on the port for
//! metrics cannot cause a restart. A port for everyone has [`public`], without what is missing.
//!
//! Requests for `/metrics` that arrive together share one encoding. Encoding is the only expensive response: a client
//! that sends thousands of requests would otherwise delay the scrapes of all others by seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use tokio::task::yield_now;
use tracing::error;

use crate::Kit;
use crate::metrics::MetricsError;

/// The health port: `/healthz` with its alias `/livez`, and `/readyz`.
pub fn health(kit: Kit) -> Router {
    Router::new()
        .route("/healthz", get(livez))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(kit)
}

/// A port that anyone may reach: `/healthz`, and `/readyz` without the report, for load balancers.
pub fn public(kit: Kit) -> Router {
    Router::new()
        .route("/healthz", get(livez))
        .route("/readyz", get(is_ready))
        .with_state(kit)
}

/// The admin port: `/metrics`, and what the health port serves.
pub fn router(kit: Kit) -> Router {
    let scrapes = Arc::new(Scrapes {
        kit: kit.clone(),
        requests: AtomicU64::new(0),
        latest: Mutex::default(),
    });
    let metrics = Router::new().route("/metrics", get(metrics)).with_state(scrapes);
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

async fn is_ready(kit: State<Kit>) -> StatusCode {
    readyz(kit).await.0
}

/// The metrics as text, encoded once for all requests that wait for it.
struct Scrapes {
    kit: Kit,
    /// The number of requests that have arrived.
    requests: AtomicU64,
    latest: Mutex<Latest>,
}

/// The last encoding.
#[derive(Default)]
struct Latest {
    /// The number of requests that had arrived when it began: it is current for each of them.
    requests: u64,
    text: Bytes,
}

impl Scrapes {
    async fn text(&self) -> Result<Bytes, MetricsError> {
        let earlier = self.requests.fetch_add(1, Ordering::SeqCst);
        // The requests of the other connections arrive before one of them encodes, and none of a connection's own comes
        // between.
        yield_now().await;
        let mut latest = self.latest.lock();
        if latest.requests <= earlier {
            let requests = self.requests.load(Ordering::SeqCst);
            let text = self.kit.metrics.encode()?.into();
            *latest = Latest { requests, text };
        }
        Ok(latest.text.clone())
    }
}

async fn metrics(
    State(scrapes): State<Arc<Scrapes>>,
) -> Result<([(http::HeaderName, &'static str); 1], Bytes), StatusCode> {
    let text = scrapes.text().await.map_err(|error| {
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
    async fn requests_that_arrive_together_share_one_encoding_and_a_later_one_is_current() {
        let (kit, _) = kit();
        let encodings = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&encodings);
        let count = move || counted.fetch_add(1, Ordering::SeqCst) + 1;
        kit.metrics.counter_of("encodings_total", "Encodings.", count).unwrap();
        let port = router(kit);
        for round in 1..=2 {
            let together = (0..100).map(|_| get(port.clone(), "/metrics"));
            for (status, text) in futures::future::join_all(together).await {
                assert_eq!(status, StatusCode::OK);
                assert!(text.contains(&format!("\nencodings_total {round}\n")), "{text}");
            }
        }
        assert_eq!(encodings.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn the_public_port_says_only_whether_it_is_ready() {
        let (kit, _) = kit();
        assert_eq!(
            get(public(kit.clone()), "/readyz").await,
            (StatusCode::OK, String::new())
        );
        kit.checks
            .register("database", || Err("postgres.internal refuses it".to_owned()));
        let failed = get(public(kit.clone()), "/readyz").await;
        assert_eq!(failed, (StatusCode::SERVICE_UNAVAILABLE, String::new()));
        assert_eq!(get(public(kit.clone()), "/healthz").await.0, StatusCode::OK);
        assert_eq!(get(public(kit), "/metrics").await.0, StatusCode::NOT_FOUND);
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
