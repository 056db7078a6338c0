//! What the fake clouds have in common: a server of their own, its faults, and a token bucket.
#![expect(clippy::disallowed_methods, reason = "a server of its own, in real time")]

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

pub(crate) type Body = BoxBody<Bytes, io::Error>;

/// A token bucket as clouds throttle with: each call takes a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// The most tokens that it holds.
    pub capacity: f64,
    /// The tokens that come back each second.
    pub refill: f64,
}

impl TokenBucket {
    /// What EC2 grants an account for calls that describe, without filters and pages.
    pub const DESCRIBE: Self = Self {
        capacity: 100.0,
        refill: 20.0,
    };

    /// What Compute Engine grants a project for calls of one kind: 1,500 a minute.
    pub const COMPUTE: Self = Self {
        capacity: 1_500.0,
        refill: 25.0,
    };

    /// What Hetzner Cloud grants a project: 3,600 an hour.
    pub const HETZNER: Self = Self {
        capacity: 3_600.0,
        refill: 1.0,
    };
}

#[derive(Debug)]
pub(crate) struct Bucket {
    shape: TokenBucket,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn full(shape: TokenBucket) -> Self {
        Self {
            shape,
            tokens: shape.capacity,
            filled: Instant::now(),
        }
    }

    pub(crate) fn take(&mut self) -> bool {
        let now = Instant::now();
        let refilled = now.duration_since(self.filled).as_secs_f64() * self.shape.refill;
        self.filled = now;
        self.tokens = (self.tokens + refilled).min(self.shape.capacity);
        let granted = self.tokens >= 1.0;
        if granted {
            self.tokens -= 1.0;
        }
        granted
    }
}

/// What a call gets.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A status and a body.
    Reply(StatusCode, String),
    /// The connection is closed without an answer.
    Drop,
    /// The answer begins with this and never ends: the connection is closed in the middle of the body.
    BreakOff(&'static str),
    /// No answer at all; the connection stays open.
    Hang,
}

impl Outcome {
    /// Carries it out, after `latency`.
    pub(crate) async fn carry_out(
        self,
        latency: Duration,
        content_type: &'static str,
    ) -> Result<Response<Body>, io::Error> {
        if latency > Duration::ZERO {
            tokio::time::sleep(latency).await;
        }
        match self {
            Self::Reply(status, body) => Ok(response(status, content_type, body)),
            Self::BreakOff(first) => Ok(with_body(StatusCode::OK, content_type, broken_off(first))),
            Self::Drop => Err(io::Error::other("dropped, as the script says")),
            Self::Hang => std::future::pending().await,
        }
    }
}

/// A port of 127.0.0.1 on which a fake serves, and which it can leave and take again. It is free when this is dropped.
pub(crate) struct Port {
    address: SocketAddr,
    serve: Box<dyn Fn(TcpListener) -> BoxFuture<'static, ()> + Send + Sync>,
    serving: Option<JoinHandle<()>>,
}

impl Port {
    /// Serves on a free port.
    pub(crate) async fn open<H, F>(handle: H) -> Self
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response<Body>, io::Error>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the address of a listener");
        let serve = Box::new(move |listener| serve(listener, handle.clone()).boxed());
        let mut port = Self {
            address,
            serve,
            serving: None,
        };
        port.serve_on(listener);
        port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Refuses connections from now on and breaks those that stand.
    pub(crate) async fn away(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            // Ends with the listener and every connection dropped; that it was aborted is what was wanted.
            let _ = serving.await;
        }
    }

    /// Takes connections again, on the same port.
    pub(crate) async fn back(&mut self) {
        self.away().await;
        let listener = TcpListener::bind(self.address).await.expect("the port that was ours");
        self.serve_on(listener);
    }

    fn serve_on(&mut self, listener: TcpListener) {
        self.serving = Some(tokio::spawn((self.serve)(listener)));
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Serves until it is dropped, and its connections with it.
async fn serve<H, F>(listener: TcpListener, handle: H)
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<Body>, io::Error>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        let handle = handle.clone();
        connections.spawn(async move {
            // A connection that ends badly is the client's to notice, or was meant to.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(handle))
                .await;
        });
    }
}

pub(crate) fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    with_body(status, content_type, Full::new(body.into()).map_err(never).boxed())
}

fn with_body(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A body that fails after its first part.
fn broken_off(first: &'static str) -> Body {
    let first = async move { Ok(Frame::data(Bytes::from_static(first.as_bytes()))) };
    let failure = async {
        // So that what was written is sent before.
        tokio::task::yield_now().await;
        Err(io::Error::other("broken off, as the script says"))
    };
    BodyExt::boxed(StreamBody::new(stream::once(first).chain(stream::once(failure))))
}

fn never(never: Infallible) -> io::Error {
    match never {}
}

/// An address of 127.0.0.1 where nobody listens: a connection to it is refused.
pub async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    format!("http://{}", listener.local_addr().expect("the address of a listener"))
}
