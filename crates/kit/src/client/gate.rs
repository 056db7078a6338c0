//! The layer through which every request goes.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Body as HttpBody;
use kube::client::Body;
use prometheus::IntCounterVec;
use tokio::sync::Semaphore;
use tower::{BoxError, Layer, Service, ServiceExt as _};
use tracing::debug;

use super::fence::{Fenced, FencedBody, caused_by_fence};
use super::pace::Pace;
use super::request::{Kind, kind};
use super::{IN_FLIGHT, REQUEST_TIMEOUT};
use crate::Kit;
use crate::clock::{SharedClock, timeout};
use crate::leader::Leadership;

pub(super) struct GateLayer(Arc<Shared>);

struct Shared {
    leadership: Leadership,
    clock: SharedClock,
    writes: IntCounterVec,
    in_flight: Semaphore,
    pace: Pace,
}

impl GateLayer {
    pub(super) fn new(leadership: &Leadership, kit: &Kit) -> Self {
        Self(Arc::new(Shared {
            leadership: leadership.clone(),
            clock: Arc::clone(&kit.clock),
            writes: kit.metrics.writes.clone(),
            in_flight: Semaphore::new(IN_FLIGHT),
            pace: Pace::default(),
        }))
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate {
            shared: Arc::clone(&self.0),
            inner,
        }
    }
}

#[derive(Clone)]
pub(super) struct Gate<S> {
    shared: Arc<Shared>,
    inner: S,
}

/// An answer that is there as a whole, or the stream of a watch.
type Answer<B> = Response<Either<Full<Bytes>, B>>;

impl<S, B> Service<Request<Body>> for Gate<S>
where
    S: Service<Request<FencedBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer<B>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner service is made ready for each request apart, behind the limit.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let agent = HeaderValue::from_static(concat!("tidewaiter/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(header::USER_AGENT).or_insert(agent);
        let (shared, inner) = (Arc::clone(&self.shared), self.inner.clone());
        match kind(request.method(), request.uri()) {
            Kind::Watch(name) => watch(shared, inner, request, name).boxed(),
            Kind::Read => read(shared, inner, request).boxed(),
            Kind::Write { verb, resource } => write(shared, inner, request, verb, resource).boxed(),
        }
    }
}

async fn watch<S, B>(shared: Arc<Shared>, inner: S, request: Request<Body>, name: String) -> Result<Answer<B>, BoxError>
where
    S: Service<Request<FencedBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    let wait = shared.pace.before(&name, shared.clock.monotonic());
    if !wait.is_zero() {
        debug!(watch = %name, wait_ms = wait.as_millis(), "the last ones ended as soon as they began");
        shared.clock.sleep(wait).await;
    }
    let sent = inner.oneshot(request.map(FencedBody::read));
    let response = timeout(&*shared.clock, REQUEST_TIMEOUT, sent)
        .await?
        .map_err(Into::into)?;
    if response.status().is_success() {
        shared.pace.begun(name, shared.clock.monotonic());
    }
    Ok(response.map(Either::Right))
}

async fn read<S, B>(shared: Arc<Shared>, inner: S, request: Request<Body>) -> Result<Answer<B>, BoxError>
where
    S: Service<Request<FencedBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let _permit = shared.in_flight.acquire().await?;
    timeout(
        &*shared.clock,
        REQUEST_TIMEOUT,
        whole(inner, request.map(FencedBody::read)),
    )
    .await?
}

async fn write<S, B>(
    shared: Arc<Shared>,
    inner: S,
    request: Request<Body>,
    verb: &'static str,
    resource: String,
) -> Result<Answer<B>, BoxError>
where
    S: Service<Request<FencedBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let _permit = shared.in_flight.acquire().await?;
    let mut counted = Counted {
        writes: &shared.writes,
        verb,
        resource,
        outcome: "unknown",
    };
    let Some(_in_flight) = shared.leadership.begin_write() else {
        counted.outcome = "fenced";
        return Err(Fenced.into());
    };
    let request = request.map(|body| FencedBody::write(body, shared.leadership.clone()));
    let answer = timeout(&*shared.clock, REQUEST_TIMEOUT, whole(inner, request)).await?;
    counted.outcome = match &answer {
        Ok(answer) => outcome(answer.status()),
        Err(error) if caused_by_fence(&**error) => "fenced",
        Err(_) => "unknown",
    };
    answer
}

/// Sends the request and reads all of its answer.
async fn whole<S, B>(inner: S, request: Request<FencedBody>) -> Result<Answer<B>, BoxError>
where
    S: Service<Request<FencedBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = inner.oneshot(request).await.map_err(Into::into)?.into_parts();
    let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
    Ok(Response::from_parts(parts, Either::Left(Full::new(bytes))))
}

fn outcome(status: StatusCode) -> &'static str {
    match status {
        StatusCode::CONFLICT => "conflict",
        status if status.is_success() => "ok",
        status if status.is_server_error() => "error",
        _ => "rejected",
    }
}

/// Counts one write when it ends, in whatever way: also when whoever asked for it went away.
struct Counted<'a> {
    writes: &'a IntCounterVec,
    verb: &'static str,
    resource: String,
    outcome: &'static str,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.writes
            .with_label_values(&[self.verb, &self.resource, self.outcome])
            .inc();
    }
}
