//! The endpoints of the coordinator: `GET /metadata` and `DELETE /terminate`, and the `relay` of files for upgrades, if
//! upgrades are enabled. Every replica serves them.
//!
//! A caller sends a token of the cloud. The cloud is asked whose it is; while it is away, a token for this cluster is
//! verified with the keys that the cloud publishes. Only members of the cluster's organization learn anything, and only
//! its admins terminate. No token is logged or shown, and the body of a request is never read.

mod caller;
mod relay;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::RwLock;
use serde_json::json;
use tidewaiter_api::values::quoted;
use tidewaiter_cloud::client::{AccessToken, Caller, ClientError, PublishedKeys};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::serve::{Certificate, Options, serve_with};
use tidewaiter_kit::{Backoff, Chain, ControllerContext, SharedClock};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{debug, error, info, warn};

use crate::cloud::Cloud;
use crate::controllers::Upgrades;
use crate::loops;
use crate::terminate::Termination;
use caller::{Denied, may_read, may_terminate};
pub use relay::AUDIENCE;
use relay::Relay;

/// Requests to the cloud at once, for all callers with a token that one of the published keys signed, and as many for
/// all others: so that a flood of forged tokens does not keep out those with a real one.
const QUESTIONS: usize = 8;
/// The time that the cloud may take to identify the owner of a token.
const ANSWER: Duration = Duration::from_secs(5);
/// The interval at which the published keys are read: the cloud publishes a key an hour before it signs with it.
const KEYS: Duration = Duration::from_mins(30);
const KEYS_BACKOFF: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(5));
const JITTER: f64 = 0.2;
/// The interval at which the certificate is read again.
const RELOAD: Duration = Duration::from_mins(1);

/// The port that the endpoints are served on.
#[derive(Debug)]
pub struct Port {
    /// Listens on it.
    pub listener: TcpListener,
    /// The certificate; `None` is plain HTTP.
    pub certificate: Option<Arc<Certificate>>,
}

/// The state that the handlers share.
struct Endpoints {
    cloud: Cloud,
    termination: Termination,
    keys: RwLock<Option<PublishedKeys>>,
    questions_of_signed: Semaphore,
    questions_of_others: Semaphore,
    clock: SharedClock,
}

/// Serves the endpoints.
///
/// # Errors
/// If the TLS library does not support the certificate's protocol.
pub(crate) fn start(
    port: Port,
    cloud: &Cloud,
    termination: Termination,
    upgrades: Upgrades,
    role: &mut Role<'_>,
) -> Result<(), rustls::Error> {
    let ControllerContext { kit, shutdown, .. } = &role.context;
    let clock = Arc::clone(&kit.clock);
    let endpoints = Arc::new(Endpoints {
        cloud: cloud.clone(),
        termination,
        keys: RwLock::default(),
        questions_of_signed: Semaphore::new(QUESTIONS),
        questions_of_others: Semaphore::new(QUESTIONS),
        clock: Arc::clone(&clock),
    });
    let local = port
        .listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    if port.certificate.is_none() && !local {
        warn!(
            "the endpoints are served without TLS, so callers send their tokens in plain text: set endpoints.tlsCertificate and endpoints.tlsKey"
        );
    }
    let tls = port.certificate.clone().map(Certificate::config).transpose()?;
    let options = Options {
        tls,
        ..Options::default()
    };
    let mut router = router(&endpoints);
    if upgrades == Upgrades::Enabled {
        // Every replica asks whose a token is.
        let client = role.unfenced.for_controller("relay", DEFAULT_IN_FLIGHT);
        let relay = Relay::new(client, cloud.clone(), Arc::clone(&clock));
        router = router.route("/upgrade/kubernetes", get(relay::script).with_state(relay));
    }
    let served = serve_with(port.listener, router, options, Arc::clone(&clock), shutdown.clone());
    role.tasks.spawn("endpoints/http", served);
    loops::run(role.tasks, "endpoints/keys", follow_keys(endpoints));
    if let Some(certificate) = port.certificate {
        loops::run(role.tasks, "endpoints/certificate", reload(certificate, clock));
    }
    Ok(())
}

fn router(endpoints: &Arc<Endpoints>) -> Router {
    Router::new()
        .route("/metadata", get(metadata))
        .route("/terminate", delete(terminate))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "there is no such path"))
        .method_not_allowed_fallback(async || {
            Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the method is not allowed for this path",
            )
        })
        .with_state(Arc::clone(endpoints))
}

/// Returns the identity of this cluster.
async fn metadata(State(endpoints): State<Arc<Endpoints>>, headers: HeaderMap) -> Result<Response, Refusal> {
    let cluster = endpoints.cloud.cluster;
    let (caller, _) = endpoints.caller(&headers).await?;
    may_read(&caller, cluster)?;
    let body = json!({
        "containership": {
            "cluster_id": cluster.id.to_string(),
            "organization_id": cluster.organization.to_string(),
            "build_info": { "version": env!("CARGO_PKG_VERSION") },
        },
        "timestamp": endpoints.clock.now().strftime("%FT%TZ").to_string(),
    });
    Ok(Json(body).into_response())
}

/// Requests that everything is removed, or says how far that is.
async fn terminate(State(endpoints): State<Arc<Endpoints>>, headers: HeaderMap) -> Result<Response, Refusal> {
    let (caller, source) = endpoints.caller(&headers).await?;
    may_terminate(&caller, endpoints.cloud.cluster).map_err(|denied| match (denied, source) {
        (Denied::Role, Source::Keys) => unknown_role(),
        (denied, _) => denied.into(),
    })?;
    let progress = match endpoints.termination.progress() {
        Some(progress) => progress,
        None => endpoints.requested(&caller).await?,
    };
    let status = if progress.is_complete() {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    Ok((status, Json(progress)).into_response())
}

/// The authority that identified the owner of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Cloud,
    Keys,
}

impl Endpoints {
    /// The owner of the token in the request.
    async fn caller(&self, headers: &HeaderMap) -> Result<(Caller, Source), Refusal> {
        let text = token(headers).ok_or_else(unknown)?;
        let token: AccessToken = text.parse().map_err(|_| unknown())?;
        let questions = if self.is_signed(text) {
            &self.questions_of_signed
        } else {
            &self.questions_of_others
        };
        let Ok(_permit) = questions.try_acquire() else {
            return Err(Refusal::later("too many requests at once: try again", 1));
        };
        let answer = timeout(&*self.clock, ANSWER, self.cloud.client.authenticate(&token)).await;
        let reason = match answer {
            Ok(Ok(caller)) => return Ok((caller, Source::Cloud)),
            Ok(Err(ClientError::Refused { .. })) => return Err(unknown()),
            Ok(Err(error)) => Chain(&error).to_string(),
            Err(elapsed) => elapsed.to_string(),
        };
        debug!(
            reason,
            "the cloud does not say whose a token is; verifying it with the published keys"
        );
        let keys = self.keys.read();
        let verified = keys
            .as_ref()
            .and_then(|keys| keys.verify(text, self.cloud.cluster, self.clock.now()));
        Ok((verified.ok_or_else(away)?, Source::Keys))
    }

    fn is_signed(&self, token: &str) -> bool {
        let keys = self.keys.read();
        keys.as_ref().is_some_and(|keys| keys.signed(token, self.clock.now()))
    }

    async fn requested(&self, caller: &Caller) -> Result<crate::terminate::Progress, Refusal> {
        let progress = self.termination.request(&caller.subject).await.map_err(|error| {
            error!(error = %Chain(&error), "cannot record the request to terminate");
            Refusal::later("the request cannot be recorded in the cluster: try again", 5)
        })?;
        info!(by = %quoted(&caller.subject), "requested to terminate: everything that the coordinator manages is removed");
        Ok(progress)
    }
}

/// The text after `JWT` or `Bearer`, if it can be a token of the cloud.
fn token(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (only, None) = (all.next()?, all.next()) else {
        return None;
    };
    let (scheme, token) = only.to_str().ok()?.split_once(' ')?;
    let known = scheme.eq_ignore_ascii_case("jwt") || scheme.eq_ignore_ascii_case("bearer");
    let signed = token.split('.').count() == 3;
    Some(token.trim()).filter(|token| known && (signed || token.starts_with("twk_")))
}

/// Reads the published keys again and again. The last ones stay valid while the cloud is away.
async fn follow_keys(endpoints: Arc<Endpoints>) {
    let mut failures = 0;
    loop {
        let wait = match endpoints.cloud.client.published_keys().await {
            Ok(keys) => {
                failures = 0;
                *endpoints.keys.write() = Some(keys);
                jittered(KEYS, JITTER)
            }
            Err(error) => {
                failures += 1;
                debug!(error = %Chain(&error), failures, "cannot read the published keys of the cloud");
                KEYS_BACKOFF.delay(failures)
            }
        };
        endpoints.clock.sleep(wait).await;
    }
}

/// Reads the certificate again and again, so that a renewed one needs no restart.
async fn reload(certificate: Arc<Certificate>, clock: SharedClock) {
    loop {
        clock.sleep(RELOAD).await;
        if let Err(error) = certificate.reload() {
            error!(error = %Chain(&error), "cannot reload the certificate of the endpoints; the last one stays in use");
        }
    }
}

/// A response without success, in the form of the cloud API.
struct Refusal {
    status: StatusCode,
    message: &'static str,
    /// After how many seconds to try again.
    retry_after: Option<u16>,
}

impl Refusal {
    const fn new(status: StatusCode, message: &'static str) -> Self {
        Self {
            status,
            message,
            retry_after: None,
        }
    }

    const fn later(message: &'static str, seconds: u16) -> Self {
        Self {
            retry_after: Some(seconds),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }
}

/// The token is missing or not valid.
fn unknown() -> Refusal {
    Refusal::new(
        StatusCode::UNAUTHORIZED,
        "no valid token: send Authorization: JWT TOKEN with a token of the cloud",
    )
}

/// The response if the owner of a token, or the owner's permissions, cannot be determined now.
fn away() -> Refusal {
    Refusal::later(
        "the cloud cannot be asked now whose the token is: try again, or send a token for this cluster (tidewaiter credential)",
        10,
    )
}

/// The token itself does not say that its owner may terminate, and the cloud may.
fn unknown_role() -> Refusal {
    Refusal::later(
        "the token does not say that its owner is an admin of the organization, and the cloud cannot be asked now: try again",
        10,
    )
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        Self::new(StatusCode::FORBIDDEN, denied.message())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.status.as_u16(), "message": self.message });
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        token(&headers).map(str::to_owned)
    }

    #[test]
    fn only_what_can_be_a_token_reaches_the_cloud() {
        for header in ["JWT a.b.c", "jwt a.b.c", "Bearer a.b.c", "bearer  a.b.c "] {
            assert_eq!(of(&[header]).as_deref(), Some("a.b.c"), "{header}");
        }
        assert_eq!(of(&["JWT twk_1"]).as_deref(), Some("twk_1"));
        for headers in [
            &[][..],
            &["a.b.c"],
            &["Basic a.b.c"],
            &["JWT "],
            &["JWT garbage"],
            &["JWT a.b.c.d"],
            &["JWT a.b.c", "JWT a.b.c"],
        ] {
            assert_eq!(of(headers), None, "{headers:?}");
        }
    }
}
