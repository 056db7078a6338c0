//! Accepting, forwarding and answering.

use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::action::{Action, failure};
use super::request::{ApiRequest, Recorded};
use super::watches::Watches;

type Hook = Arc<dyn Fn(&ApiRequest) -> Action + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(super) struct Proxy {
    client: Client,
    hook: Mutex<Hook>,
    requests: Mutex<Vec<Recorded>>,
    pub(super) watches: Arc<Watches>,
}

/// Makes hyper close the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the test wants this connection closed")]
struct Closed;

/// Serves connections until `stop`; when this ends the port is free and all connections are closed.
pub(super) async fn listen(proxy: Arc<Proxy>, listener: TcpListener, stop: CancellationToken) {
    listener
        .set_nonblocking(true)
        .expect("a listener can be made asynchronous");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    let connections = TaskTracker::new();
    while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
        let (proxy, stop) = (Arc::clone(&proxy), stop.clone());
        connections.spawn(async move {
            stop.run_until_cancelled(serve(proxy, stream)).await;
        });
    }
    drop(listener);
    stop.cancel();
    connections.close();
    connections.wait().await;
}

async fn serve(proxy: Arc<Proxy>, stream: TcpStream) {
    stream.set_nodelay(true).expect("a socket option");
    let service = service_fn(|request| Arc::clone(&proxy).answer(request));
    // A connection that breaks, or that is closed on purpose, is the client's to notice.
    let _ = http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

impl Proxy {
    pub(super) fn new(client: Client) -> Self {
        let hook: Hook = Arc::new(|_: &ApiRequest| Action::Forward);
        Self {
            client,
            hook: Mutex::new(hook),
            requests: Mutex::default(),
            watches: Arc::default(),
        }
    }

    pub(super) fn set_hook(&self, hook: Hook) {
        *self.hook.lock() = hook;
    }

    pub(super) fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().clone()
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, BoxError> {
        let (parts, body) = request.into_parts();
        let request = ApiRequest::new(&parts, body.collect().await?.to_bytes());
        let number = {
            let mut requests = self.requests.lock();
            requests.push(Recorded::now(&request));
            requests.len() - 1
        };
        let hook = self.hook.lock().clone();
        let action = hook(&request);
        let answer = self.act(action, parts, &request).await?;
        self.requests.lock()[number].status = Some(answer.status().as_u16());
        Ok(answer)
    }

    async fn act(&self, action: Action, parts: Parts, request: &ApiRequest) -> Result<Answer, BoxError> {
        match action {
            Action::Forward => self.forward(parts, request).await,
            Action::Hold(gate) => {
                gate.pass().await;
                self.forward(parts, request).await
            }
            Action::Drop => Err(Closed.into()),
            Action::Reply { status, body } => reply(status, body),
            Action::ForwardThen(then) => {
                let answer = self.forward(parts, request).await?;
                then();
                Ok(answer)
            }
            Action::LoseAnswer => {
                self.forward(parts, request).await?;
                Err(Closed.into())
            }
        }
    }

    async fn forward(&self, mut parts: Parts, request: &ApiRequest) -> Result<Answer, BoxError> {
        if request.is_watch() && self.watches.take_expired(&request.path) {
            let gone = failure(410, "Expired", "too old resource version: the test wants it so");
            return reply(
                200,
                format!("{}\n", serde_json::json!({"type": "ERROR", "object": gone})),
            );
        }
        for hop in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, AUTHORIZATION] {
            parts.headers.remove(hop);
        }
        let (client, body) = (self.client.clone(), Body::from(request.body.clone()));
        // In a task of its own: a client that dies after it has sent its request does not take it back.
        let answer = spawn(async move { client.send(Request::from_parts(parts, body)).await }).await??;
        let (mut parts, body) = answer.into_parts();
        for hop in [CONNECTION, TRANSFER_ENCODING] {
            parts.headers.remove(hop);
        }
        let body = if request.is_watch() && parts.status.is_success() {
            let watch = self.watches.enter(&request.path);
            let end = watch.end.clone();
            let events = body.into_data_stream().map(move |data| {
                // Kept open by the stream that it belongs to.
                let _watch = &watch;
                data.map(Frame::data).map_err(BoxError::from)
            });
            StreamBody::new(events.take_until(end.cancelled_owned())).boxed_unsync()
        } else {
            body.map_err(BoxError::from).boxed_unsync()
        };
        Ok(Response::from_parts(parts, body))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("watches", &self.watches)
            .finish_non_exhaustive()
    }
}

fn reply(status: u16, body: String) -> Result<Answer, BoxError> {
    let json = HeaderValue::from_static("application/json");
    let body = Full::new(Bytes::from(body))
        .map_err(|never| match never {})
        .boxed_unsync();
    Ok(Response::builder()
        .status(status)
        .header(CONTENT_TYPE, json)
        .body(body)?)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the request outlives its connection; its answer is awaited while that lives"
)]
fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}
