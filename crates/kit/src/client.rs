//! The way to the API server: every write passes a fence that is asked whether this replica leads at the moment when the
//! write's bytes go out, and is counted.
//!
//! Nothing here retries: a write that was sent twice may have been sent by a leader the first time and by a stopped and
//! woken process the second. Every request has an end: it is answered within 30 s or fails, watches (which are followed by
//! whoever asked) excepted.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt as _;
use kube::{Client, Config};
use tower::{BoxError, Layer as _, ServiceBuilder};

use crate::Kit;
use crate::leader::Leadership;

mod fence;
mod gate;
mod pace;
mod request;

pub use fence::{Fenced, is_fenced};
use gate::GateLayer;

/// Requests under way at once, watches excepted. The API server allows 200 writes to all its clients together
/// (`--max-mutating-requests-inflight`); each costs a connection of its own (HTTP/1.1) for as long as it lasts.
pub const IN_FLIGHT: usize = 32;

/// Within this time a request is answered, or has failed with its outcome unknown.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE_CONNECTION: Duration = Duration::from_secs(30);
/// A peer that vanished without a word is noticed within a minute, watches included.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// A client that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig or the service account cannot be used.
    #[error("cannot use the credentials or certificates for the API server")]
    Config(#[source] Box<kube::Error>),
    /// The kubeconfig names a proxy.
    #[error("the API server cannot be reached through a proxy: proxy-url {0} is set")]
    Proxy(String),
}

/// A client whose writes pass only while `leadership` says that this replica leads. Reads always pass, so that a standby's
/// caches are warm.
///
/// A refused write is an error for which [`is_fenced`] is true. Each write is counted in `tidewaiter_writes_total`.
///
/// # Errors
/// When the credentials, certificates or proxy of `config` cannot be used.
pub fn fenced(config: &Config, leadership: &Leadership, kit: &Kit) -> Result<Client, ClientError> {
    if let Some(proxy) = &config.proxy_url {
        return Err(ClientError::Proxy(proxy.to_string()));
    }
    // What kube's own builder does; the error only says that a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let failed = |error| ClientError::Config(Box::new(error));
    let connector = config.rustls_https_connector_with_connector(tcp()).map_err(failed)?;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_CONNECTION)
        .pool_max_idle_per_host(IN_FLIGHT)
        .build(connector);
    // The gate is the innermost layer: credentials are fetched before it, and nothing but hyper comes after it.
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(failed)?)
        .layer(config.extra_headers_layer().map_err(failed)?)
        .map_err(BoxError::from)
        .service(GateLayer::new(leadership, kit).layer(http));
    Ok(Client::new(service, config.default_namespace.clone()))
}

fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE / 2));
    connector.set_keepalive_retries(Some(3));
    connector
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) mod by_hand {
    //! A client whose API server is a function of the test.

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use http_body_util::combinators::UnsyncBoxBody;
    use kube::Client;
    use tower::{BoxError, Layer as _, service_fn};

    use super::fence::FencedBody;
    use super::gate::GateLayer;
    use crate::Kit;
    use crate::leader::Leadership;

    pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

    /// `answer` sees a request when all of its body went out.
    pub(crate) fn client<F, Fut>(answer: F, leadership: &Leadership, kit: &Kit) -> Client
    where
        F: Fn(Request<Bytes>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<Answer, BoxError>> + Send + 'static,
    {
        let service = service_fn(move |request: Request<FencedBody>| {
            let answer = answer.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect().await?.to_bytes();
                answer(Request::from_parts(parts, bytes)).await
            }
        });
        Client::new(GateLayer::new(leadership, kit).layer(service), "default")
    }
}
