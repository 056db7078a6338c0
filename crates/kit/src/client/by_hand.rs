//! A client whose API server is a function of the test.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use kube::Client;
use tower::{BoxError, service_fn};

use super::{Clients, MOST_IN_FLIGHT};
use crate::Kit;
use crate::leader::Leadership;

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A response with this body.
pub(crate) fn json(body: &serde_json::Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string()));
    Response::new(body.map_err(Into::into).boxed_unsync())
}

/// `answer` sees a request when all of its body went out.
pub(crate) fn clients<F, Fut>(answer: F, leadership: &Leadership, kit: &Kit) -> Clients
where
    F: Fn(Request<Bytes>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, BoxError>> + Send + 'static,
{
    Clients::over(service_fn(answer), leadership, kit)
}

/// The client of a process that has only one.
pub(crate) fn client<F, Fut>(answer: F, leadership: &Leadership, kit: &Kit) -> Client
where
    F: Fn(Request<Bytes>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, BoxError>> + Send + 'static,
{
    clients(answer, leadership, kit).for_controller("test", MOST_IN_FLIGHT)
}
