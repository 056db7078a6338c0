//! The requests to a provider. Each has a deadline and a maximum size, follows no redirect, and is sent only over TLS
//! or to this machine: the addresses are those that the provider's own document names.

use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse};
use reqwest::{Certificate, redirect, retry};
use tidewaiter_kit::clock::{Elapsed, timeout};
use tidewaiter_kit::{SharedClock, files};

use super::settings::is_protected;

/// The time for a response.
const DEADLINE: Duration = Duration::from_secs(10);
/// The maximum size of a response, in bytes: a document, keys, or tokens.
const MAX_RESPONSE: usize = 1024 * 1024;

/// A request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error(transparent)]
    Late(#[from] Elapsed),
    #[error("the response has more than {MAX_RESPONSE} bytes")]
    Large,
    #[error("the document of the provider names {0}, which must be an https URL")]
    Plain(String),
    #[error("cannot send the request")]
    Send(#[source] reqwest::Error),
}

/// The certificates of `caFile` are unusable.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot be read")]
    Read(#[source] std::io::Error),
    #[error("must be PEM, one or more CERTIFICATE blocks")]
    Certificates(#[source] Option<reqwest::Error>),
    #[error("cannot be used")]
    Build(#[source] reqwest::Error),
}

/// The client of one provider.
pub(super) struct Http {
    client: reqwest::Client,
    clock: SharedClock,
}

impl Http {
    /// A client that trusts the certificates in `ca_file`, or those of the system.
    pub(super) fn new(ca_file: Option<&Path>, clock: SharedClock) -> Result<Self, ClientError> {
        let mut builder = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .connect_timeout(DEADLINE);
        if let Some(path) = ca_file {
            let pem = files::read(path).map_err(ClientError::Read)?;
            let certificates = Certificate::from_pem_bundle(&pem);
            let certificates = certificates.map_err(|error| ClientError::Certificates(Some(error)))?;
            if certificates.is_empty() {
                return Err(ClientError::Certificates(None));
            }
            builder = builder.tls_certs_only(certificates);
        }
        let client = builder.build().map_err(ClientError::Build)?;
        Ok(Self { client, clock })
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let request = reqwest::Request::try_from(request).map_err(HttpError::Send)?;
        if !is_protected(request.url()) {
            return Err(HttpError::Plain(request.url().to_string()));
        }
        timeout(&*self.clock, DEADLINE, self.exchange(request)).await?
    }

    async fn exchange(&self, request: reqwest::Request) -> Result<HttpResponse, HttpError> {
        let failed = |error: reqwest::Error| HttpError::Send(error.without_url());
        let response = self.client.execute(request).await.map_err(failed)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        let mut parts = response.bytes_stream();
        while let Some(part) = parts.next().await {
            let part = part.map_err(failed)?;
            if body.len() + part.len() > MAX_RESPONSE {
                return Err(HttpError::Large);
            }
            body.extend_from_slice(&part);
        }
        let mut response = HttpResponse::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = HttpError;
    type Future = BoxFuture<'c, Result<HttpResponse, HttpError>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        self.send(request).boxed()
    }
}
