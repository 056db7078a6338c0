//! A process's way to the server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use kube::Client;
use kube::client::Body;
use tokio::time::sleep_until;
use tower::{Service, ServiceExt as _, service_fn};

use super::process::Process;
use super::{ApiServer, BoxError, Shared, now};

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

impl ApiServer {
    /// The way of a process to this server, for the innermost place in a stack of layers. It is ready when there is a
    /// connection. It is given a request when all of its body went out.
    #[must_use]
    pub fn connect(&self, process: &Process) -> Connection {
        Connection {
            server: Arc::clone(&self.0),
            process: process.clone(),
            connecting: None,
            connected: false,
        }
    }

    /// A client of a process, without any layer.
    #[must_use]
    pub fn client(&self, process: &Process) -> Client {
        let connection = self.connect(process);
        let service = service_fn(move |request: Request<Body>| {
            let mut connection = connection.clone();
            async move {
                connection.ready().await?;
                let (parts, body) = request.into_parts();
                let bytes = body.collect().await?.to_bytes();
                connection.call(Request::from_parts(parts, bytes)).await
            }
        });
        Client::new(service, "default")
    }
}

/// The way of a process to a server: [`ApiServer::connect`]. Each clone makes a connection of its own.
pub struct Connection {
    server: Arc<Shared>,
    process: Process,
    connecting: Option<Connecting>,
    connected: bool,
}

type Connecting = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl Clone for Connection {
    fn clone(&self) -> Self {
        Self {
            server: Arc::clone(&self.server),
            process: self.process.clone(),
            connecting: None,
            connected: false,
        }
    }
}

impl Service<Request<Bytes>> for Connection {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if !self.connected {
            let (server, process) = (&self.server, &self.process);
            let connecting = self.connecting.get_or_insert_with(|| connect(server, process.clone()));
            std::task::ready!(connecting.poll_unpin(cx));
            (self.connecting, self.connected) = (None, true);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.connected = false;
        Arc::clone(&self.server).serve(self.process.clone(), request).boxed()
    }
}

fn connect(server: &Shared, process: Process) -> Connecting {
    let takes = {
        let mut state = server.lock();
        let state = &mut *state;
        state.faults.connecting(&mut state.random)
    };
    let connected = now() + takes;
    Box::pin(async move {
        if !takes.is_zero() {
            sleep_until(connected).await;
        }
        process.running().await;
    })
}
