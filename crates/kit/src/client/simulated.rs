//! Clients without a network, for simulations.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Body as HttpBody;
use kube::Client;
use tower::{BoxError, Service, ServiceExt as _, service_fn};

use super::fence::FencedBody;
use super::gate::Gates;
use super::{Clients, transport};
use crate::Kit;
use crate::leader::Leadership;

impl Clients {
    /// Clients over another transport than HTTP. `simulated` is polled for readiness first, as a connection is made,
    /// and gets a request when all of its body was given out, after the last check of the fence.
    pub fn over<S, B>(simulated: S, leadership: &Leadership, kit: &Kit) -> Self
    where
        S: Service<Request<Bytes>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let gates = Gates::new(leadership, kit);
        let inner = transport(service_fn(move |request: Request<FencedBody>| {
            whole(simulated.clone(), request)
        }));
        let make = move |budget| Client::new(gates.gate(budget, inner.clone()), "default");
        Self { make: Arc::new(make) }
    }
}

/// Sends a request with all of its body.
async fn whole<S: Service<Request<Bytes>, Error: Into<BoxError>>>(
    mut transport: S,
    request: Request<FencedBody>,
) -> Result<S::Response, BoxError> {
    let transport = transport.ready().await.map_err(Into::into)?;
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let response = transport.call(Request::from_parts(parts, bytes)).await;
    response.map_err(Into::into)
}
