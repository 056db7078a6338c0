//! The layer through which every request goes.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Collected, Full, LengthLimitError, Limited};
use kube::client::Body;
use prometheus::IntCounterVec;
use tokio::sync::Semaphore;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};
use tracing::debug;

use super::budget::{Budget, Permits};
use super::fence::{Fenced, FencedBody, caused_by_fence};
use super::pace::Pace;
use super::pages::Pages;
use super::request::{Kind, Resources, kind};
use super::retry_after::{has_retry_after, into_status};
use super::{IN_FLIGHT, PERMIT_TIMEOUT, REQUEST_TIMEOUT, WRITE_TIMEOUT};
use crate::Kit;
use crate::clock::{Elapsed, SharedClock, timeout};
use crate::leader::{Leadership, UnderWay};

/// The state that the gates of a process share.
#[derive(Clone)]
pub(super) struct Gates(Arc<Shared>);

struct Shared {
    leadership: Leadership,
    clock: SharedClock,
    writes: IntCounterVec,
    in_flight: Arc<Semaphore>,
    pace: Pace,
    pages: Pages,
    resources: Resources,
}

impl Gates {
    pub(super) fn new(leadership: &Leadership, kit: &Kit) -> Self {
        Self(Arc::new(Shared {
            leadership: leadership.clone(),
            clock: Arc::clone(&kit.clock),
            writes: kit.metrics.writes.clone(),
            in_flight: Arc::new(Semaphore::new(IN_FLIGHT)),
            pace: Pace::default(),
            pages: Pages::default(),
            resources: Resources::default(),
        }))
    }

    /// The gate of one client, before `inner`.
    pub(super) fn gate(&self, budget: Budget, inner: Transport) -> Gate {
        Gate {
            shared: Arc::clone(&self.0),
            permits: Arc::new(Permits::new(budget, &self.0.in_flight)),
            inner,
        }
    }
}

/// The service behind the gates: HTTP, or a simulation.
pub(super) type Transport = BoxCloneSyncService<Request<FencedBody>, Answer, BoxError>;

/// A response that was read completely, or a stream.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

#[derive(Clone)]
pub(super) struct Gate {
    shared: Arc<Shared>,
    permits: Arc<Permits>,
    inner: Transport,
}

impl Service<Request<Body>> for Gate {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner service is polled for readiness for each request, after its permit.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let agent = HeaderValue::from_static(concat!("tidewaiter/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(header::USER_AGENT).or_insert(agent);
        let gate = self.clone();
        match kind(request.method(), request.uri()) {
            Kind::Watch(name) => gate.watch(request, name).boxed(),
            Kind::Stream => async move { gate.stream(request).await }.boxed(),
            Kind::Read => gate.read(request).boxed(),
            Kind::Write { verb, resource } => gate.write(request, verb, resource).boxed(),
        }
    }
}

impl Gate {
    async fn watch(self, request: Request<Body>, name: String) -> Result<Answer, BoxError> {
        let (pace, clock) = (&self.shared.pace, &self.shared.clock);
        let wait = pace.before(&name, clock.monotonic());
        if !wait.is_zero() {
            debug!(watch = %name, wait_ms = wait.as_millis(), "delayed: the last watches ended as soon as they began");
            clock.sleep(wait).await;
        }
        let response = self.stream(request).await?;
        if response.status().is_success() {
            self.shared.pace.begun(name, self.shared.clock.monotonic());
        }
        Ok(response)
    }

    /// Sends a request whose response has no end: it needs no permit, and only its headers have a deadline.
    async fn stream(&self, request: Request<Body>) -> Result<Answer, BoxError> {
        let clock = &*self.shared.clock;
        let sent = self.inner.clone().oneshot(request.map(FencedBody::read));
        let response = timeout(clock, REQUEST_TIMEOUT, sent).await??;
        if has_retry_after(&response) {
            return timeout(clock, REQUEST_TIMEOUT, self.collect(response)).await?;
        }
        Ok(response)
    }

    async fn read(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let pages = &self.shared.pages;
        let send = async {
            let Some(mut page) = pages.page(request.uri()) else {
                return self.whole(request.map(FencedBody::read)).await;
            };
            // A list has no body.
            let (head, _) = request.into_parts();
            loop {
                let mut request = Request::from_parts(head.clone(), FencedBody::read(Body::empty()));
                *request.uri_mut() = page.uri(&head.uri);
                let (head, body) = self.inner.clone().oneshot(request).await?.into_parts();
                match limited(body, page.most()).await {
                    Ok(read) => {
                        let bytes = read.to_bytes();
                        // An error is no measure of the objects.
                        if head.status.is_success() {
                            pages.read(page, bytes.len());
                        }
                        return Ok(self.answer(Response::from_parts(head, bytes)));
                    }
                    Err(error) if error.is::<LengthLimitError>() => page = pages.smaller(page),
                    Err(error) => return Err(error),
                }
            }
        };
        self.permitted(REQUEST_TIMEOUT, send).await
    }

    async fn write(self, request: Request<Body>, verb: &'static str, resource: String) -> Result<Answer, BoxError> {
        let Shared {
            leadership,
            writes,
            resources,
            ..
        } = &*self.shared;
        let send = async {
            let mut counted = Counted {
                writes,
                verb,
                resource: resources.label(resource),
                outcome: "unknown",
            };
            let in_flight = leadership
                .begin_write()
                .map(|under_way| self.track_until_answered(under_way));
            let Some(under_way) = in_flight else {
                counted.outcome = "fenced";
                return Err(Fenced.into());
            };
            let request = request.map(|body| FencedBody::write(body, leadership.clone()));
            let answer = self.whole(request).await;
            counted.outcome = match &answer {
                Ok(answer) => outcome(answer.status()),
                Err(error) if caused_by_fence(&**error) => "fenced",
                Err(_) => "unknown",
            };
            if let Some(under_way) = under_way
                && counted.outcome != "unknown"
            {
                under_way.answered();
            }
            answer
        };
        self.permitted(WRITE_TIMEOUT, send).await
    }

    /// The write, if the Lease must not be released before its answer.
    fn track_until_answered(&self, under_way: UnderWay) -> Option<UnderWay> {
        if self.permits.delay_release() {
            return Some(under_way);
        }
        under_way.answered();
        None
    }

    /// Waits for a permit, then for `send`, both together for `limit` at most.
    async fn permitted<T>(
        &self,
        limit: Duration,
        send: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<T, BoxError> {
        let clock = &*self.shared.clock;
        let asked = clock.monotonic();
        let permit = timeout(clock, PERMIT_TIMEOUT, self.permits.acquire()).await;
        let _permit = permit.map_err(|Elapsed(limit)| self.permits.missed(limit))??;
        let left = limit.saturating_sub(clock.monotonic().saturating_sub(asked));
        timeout(clock, left, send).await?
    }

    /// Sends the request and reads its whole response.
    async fn whole(&self, request: Request<FencedBody>) -> Result<Answer, BoxError> {
        self.collect(self.inner.clone().oneshot(request).await?).await
    }

    async fn collect(&self, response: Answer) -> Result<Answer, BoxError> {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        Ok(self.answer(Response::from_parts(parts, bytes)))
    }

    fn answer(&self, response: Response<Bytes>) -> Answer {
        let response = into_status(response, self.shared.clock.now());
        response.map(|bytes| Full::new(bytes).map_err(Into::into).boxed_unsync())
    }
}

/// Reads at most `most` bytes. Boxed, because within `async` the compiler does not find that `Limited` is `Send`.
fn limited(
    body: UnsyncBoxBody<Bytes, BoxError>,
    most: usize,
) -> BoxFuture<'static, Result<Collected<Bytes>, BoxError>> {
    Limited::new(body, most).collect().boxed()
}

fn outcome(status: StatusCode) -> &'static str {
    match status {
        StatusCode::CONFLICT => "conflict",
        status if status.is_success() => "ok",
        status if status.is_server_error() => "error",
        _ => "rejected",
    }
}

/// Counts one write when it ends, also when its caller was dropped.
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
