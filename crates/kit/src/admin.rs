//! The admin server: `/healthz`, `/readyz` and `/metrics`, in plain HTTP.
//!
//! It answers from memory, on every replica, leader or not, and shows nothing secret. A check says in words what is missing.

use std::fmt::{self, Debug};
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use http::StatusCode;
use tracing::error;

use crate::Kit;

type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The readiness checks of the process, in the order in which they were registered. Clones share them.
#[derive(Clone, Default)]
pub struct Checks {
    checks: Arc<RwLock<Vec<(String, Check)>>>,
}

impl Checks {
    /// No check: ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check. It is asked on every request, so it reads a flag and does no work; its error says in words what is
    /// missing.
    pub fn register(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.checks
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push((name.into(), Box::new(check)));
    }

    /// Whether every check passes, and a line for each, in the form of kube-apiserver's own `/readyz?verbose`.
    #[must_use]
    pub fn report(&self) -> (bool, String) {
        let checks = self.checks.read().unwrap_or_else(PoisonError::into_inner);
        let mut ready = true;
        let mut report = String::new();
        for (name, check) in checks.iter() {
            match check() {
                Ok(()) => report.extend(["[+]", name, " ok\n"]),
                Err(reason) => {
                    ready = false;
                    report.extend(["[-]", name, " failed: ", &reason, "\n"]);
                }
            }
        }
        report.push_str(if ready {
            "readyz check passed\n"
        } else {
            "readyz check failed\n"
        });
        (ready, report)
    }
}

impl Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.checks.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(checks.iter().map(|(name, _)| name)).finish()
    }
}

/// What the admin server answers with; [`serve`](crate::serve::serve) serves it.
pub fn router(kit: Kit) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(kit)
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
        error!(error = %crate::Chain(&error), "the metrics cannot be shown");
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

    async fn ask(kit: &Kit, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router(kit.clone()).oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing() {
        let (kit, _) = kit();
        assert_eq!(
            ask(&kit, "/readyz").await,
            (StatusCode::OK, "readyz check passed\n".to_owned())
        );
        kit.checks.register("cache/node", || Ok(()));
        kit.checks.register("state-store", || Err("access denied".to_owned()));
        let (status, report) = ask(&kit, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            report,
            "[+]cache/node ok\n[-]state-store failed: access denied\nreadyz check failed\n"
        );
        assert_eq!(
            ask(&kit, "/healthz").await.0,
            StatusCode::OK,
            "a process that is not ready is alive"
        );
    }

    #[tokio::test]
    async fn metrics_are_text() {
        let (kit, _) = kit();
        let (status, text) = ask(&kit, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("\ntidewaiter_leader 0\n"), "{text}");
    }
}
