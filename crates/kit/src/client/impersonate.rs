//! A client that acts as a service account.

use http::{HeaderName, HeaderValue};
use kube::Client;
use tower::{BoxError, service_fn};

/// The API server adds the groups of the service account, and `system:authenticated`.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// A client whose requests are those of this service account. They go through `client`, so they have its limits, its
/// deadlines and its fence. The caller needs the verb `impersonate` on the service account.
#[must_use]
pub fn impersonate(client: &Client, namespace: &str, service_account: &str) -> Client {
    let user = format!("system:serviceaccount:{namespace}:{service_account}");
    let (inner, default_namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = service_fn(move |mut request: http::Request<kube::client::Body>| {
        let (inner, user) = (inner.clone(), HeaderValue::try_from(&user));
        async move {
            // Never sent without the header.
            request.headers_mut().insert(IMPERSONATE_USER, user?);
            inner.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, default_namespace)
}
