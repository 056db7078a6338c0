//! A server on a port of its own, which can go away and come back, and what it makes of each outcome.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;

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
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// The body of an answer.
pub type Body = BoxBody<Bytes, io::Error>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A response from outside of the protocol, as it is.
    Aside(Response<Body>),
    /// A status and a body.
    Reply(u16, String),
    /// The connection is closed without an answer.
    Drop,
    /// The answer begins with this and never ends: the connection is closed in the middle of the body.
    BreakOff(&'static str),
    /// No answer at all; the connection stays open.
    Hang,
}

impl Outcome {
    pub(super) async fn carry_out(self, content_type: &'static str) -> Result<Response<Body>, io::Error> {
        match self {
            Self::Aside(answer) => Ok(answer),
            Self::Reply(status, body) => {
                let status = StatusCode::from_u16(status).expect("a status");
                Ok(response(status, content_type, body))
            }
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
    serving: Mutex<Option<JoinHandle<()>>>,
}

impl Port {
    /// Serves on a free port.
    pub(crate) async fn open<H, F, B, E>(handle: H) -> Self
    where
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the address of a listener");
        let serve = Box::new(move |listener| serve(listener, handle.clone()).boxed());
        let port = Self {
            address,
            serve,
            serving: Mutex::default(),
        };
        port.serve_on(listener);
        port
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Refuses connections from now on and breaks those that stand.
    pub(super) async fn away(&self) {
        if let Some(serving) = self.serving(None) {
            serving.abort();
            // Ends with the listener and every connection dropped; that it was aborted is what was wanted.
            let _ = serving.await;
        }
    }

    /// Takes connections again, on the same port.
    pub(super) async fn back(&self) {
        self.away().await;
        let listener = TcpListener::bind(self.address).await.expect("the port that was ours");
        self.serve_on(listener);
    }

    fn serve_on(&self, listener: TcpListener) {
        self.serving(Some(tokio::spawn((self.serve)(listener))));
    }

    /// Puts what serves from now on in place of what is returned.
    fn serving(&self, next: Option<JoinHandle<()>>) -> Option<JoinHandle<()>> {
        std::mem::replace(&mut self.serving.lock(), next)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(serving) = self.serving(None) {
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
async fn serve<H, F, B, E>(listener: TcpListener, handle: H)
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        // Or the events of a watch would wait for the client's acknowledgement of those before.
        stream.set_nodelay(true).expect("a socket option");
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

/// The parameters in the URL.
pub(crate) fn query<B>(request: &Request<B>) -> HashMap<String, String> {
    url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
        .into_owned()
        .collect()
}

/// Returns true if it brings this token.
pub(crate) fn has_bearer<B>(request: &Request<B>, token: &str) -> bool {
    request
        .headers()
        .get(http::header::AUTHORIZATION)
        .is_some_and(|value| value.as_bytes() == format!("Bearer {token}").as_bytes())
}
