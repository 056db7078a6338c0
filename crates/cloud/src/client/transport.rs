//! One attempt of a request: sends it, reads the complete response, and interprets it.
//!
//! A body is read completely or is an error; the limit is 64 MiB. No redirect is followed.
//!
//! A connection on which nothing arrives may be dead without either side knowing. So a read without a response for a
//! while is sent once more, on a new connection, and the first response counts. Only one read at a time is sent once
//! more, so that a slow cloud does not get twice the load.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, select_ok};
use futures::{FutureExt as _, StreamExt as _};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use reqwest::{Certificate, Proxy, Response, redirect, retry};
use tidewaiter_kit::SharedClock;
use tidewaiter_kit::chain::is_other_protocol;
use tidewaiter_kit::client::retry_after_header;
use tidewaiter_kit::clock::{Elapsed, timeout};
use tokio::sync::Semaphore;
use url::Url;

use super::budget::ByteBudget;
use super::error::ClientError;
use super::recovery::Availability;
use super::request::{Answer, Body, ETag, Request};
use super::settings::{ClientSettings, SettingsError};
use super::token::{AccessToken, TokenSource};
use crate::models::{CHANGE_HEADER, Failure, Unknown, parse};

const MAX_BYTES: usize = 64 * 1024 * 1024;
/// The maximum delay that a server can request.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The idle time after which TCP probes the peer, and the interval of the probes.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The number of probes without an answer that end a connection.
const KEEPALIVE_PROBES: u32 = 2;
/// The time for which sent data may be unacknowledged.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of an error body; the API's errors are one line.
const MAX_FAILURE: usize = 64 * 1024;

/// Sends one request.
type Exchange = Arc<dyn Fn(reqwest::Request) -> BoxFuture<'static, reqwest::Result<Response>> + Send + Sync>;

/// The connections and the credentials.
#[derive(Clone)]
pub(super) struct Transport {
    http: reqwest::Client,
    exchange: Exchange,
    /// Sends a request on a new connection each time.
    exchange_anew: Exchange,
    /// See [`ClientSettings::hedge_after`].
    hedge_after: Duration,
    /// The permit to send one read once more.
    hedge: Arc<Semaphore>,
    urls: Arc<[Url; 3]>,
    token: Option<TokenSource>,
    /// The timeout of an attempt.
    pub(super) timeout: Duration,
    /// The state of the cloud: it responds to reads or not.
    pub(super) availability: Arc<Availability>,
    clock: SharedClock,
}

impl Transport {
    pub(super) fn new(settings: &ClientSettings, clock: SharedClock) -> Result<Self, SettingsError> {
        let plain = settings.bases().into_iter().find(|base| base.is_plain());
        let mut bases = settings.bases().into_iter();
        let shown = bases.find(|base| base.is_plain() && !base.is_loopback());
        if let Some(base) = shown.filter(|_| !settings.allow_plain_http) {
            return Err(SettingsError::Plain(base.clone()));
        }
        let builder = || builder(settings, plain.is_some());
        let http = builder()?.build().map_err(SettingsError::Build)?;
        let unpooled = builder()?.pool_max_idle_per_host(0).build();
        let token = settings.token.as_ref();
        Ok(Self {
            exchange: exchange(http.clone()),
            exchange_anew: exchange(unpooled.map_err(SettingsError::Build)?),
            http,
            hedge_after: settings.hedge_after,
            hedge: Arc::new(Semaphore::new(1)),
            urls: Arc::new(settings.urls()),
            token: token.map(|token| TokenSource::new(token, settings.token_file.clone())),
            timeout: settings.timeout,
            availability: Arc::default(),
            clock,
        })
    }

    /// Returns the transport with `exchange` in place of a network.
    pub(super) fn over<F, Fut>(self, exchange: F) -> Self
    where
        F: Fn(reqwest::Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = reqwest::Result<Response>> + Send + 'static,
    {
        let exchange: Exchange = Arc::new(move |request| exchange(request).boxed());
        Self {
            exchange: Arc::clone(&exchange),
            exchange_anew: exchange,
            ..self
        }
    }

    pub(super) fn with_token(&self, token: &AccessToken) -> Self {
        Self {
            token: Some(TokenSource::new(token, None)),
            ..self.clone()
        }
    }

    pub(super) fn base_url(&self) -> &str {
        self.urls[0].as_str().trim_end_matches('/')
    }

    /// Makes one attempt, within the timeout. A body with a budget has a timeout of its own, which begins when there is
    /// room for it.
    pub(super) async fn attempt(&self, request: &Request, key: Option<&str>) -> Result<Answer, ClientError> {
        let late = |_| unavailable(request, Elapsed(self.timeout).to_string(), None, None);
        let head = async {
            if request.method == Method::GET && !request.once {
                self.read_hedged(request).await
            } else {
                self.send(request, key, HeaderMap::new()).await
            }
        };
        let Some(budget) = &request.budget else {
            let whole = async { self.answer(request, head.await?).await };
            return timeout(&*self.clock, self.timeout, whole).await.map_err(late)?;
        };
        let response = timeout(&*self.clock, self.timeout, head).await.map_err(late)??;
        let part = Some(budget.take(response.content_length()).await);
        let answer = timeout(&*self.clock, self.timeout, self.answer(request, response)).await;
        let answer = answer.map_err(late)??;
        Ok(Answer { part, ..answer })
    }

    /// Sends a read, and sends it once more if the head of the response does not arrive in time, as soon as no other
    /// read is under way for the second time. An error counts only if both have one.
    async fn read_hedged(&self, request: &Request) -> Result<Response, ClientError> {
        let mut first = self.send(request, None, HeaderMap::new()).boxed();
        let late = async {
            self.clock.sleep(self.hedge_after).await;
            self.hedge.acquire().await
        };
        let _permit = tokio::select! {
            biased;
            response = &mut first => return response,
            permit = late => permit,
        };
        let second = self.send_over(&self.exchange_anew, request, None, HeaderMap::new());
        select_ok([first, second.boxed()]).await.map(|(response, _)| response)
    }

    /// Sends the request and waits for the head of the response, whatever its status.
    pub(super) async fn send(
        &self,
        request: &Request,
        key: Option<&str>,
        headers: HeaderMap,
    ) -> Result<Response, ClientError> {
        self.send_over(&self.exchange, request, key, headers).await
    }

    async fn send_over(
        &self,
        exchange: &Exchange,
        request: &Request,
        key: Option<&str>,
        mut headers: HeaderMap,
    ) -> Result<Response, ClientError> {
        if let Some(token) = &self.token {
            headers.insert(header::AUTHORIZATION, token.header());
        }
        if let Some(ETag(known)) = &request.known {
            headers.insert(header::IF_NONE_MATCH, known.clone());
        }
        if let Some(ETag(expected)) = &request.if_match {
            headers.insert(header::IF_MATCH, expected.clone());
        }
        if let Some(key) = key.and_then(|key| HeaderValue::from_str(key).ok()) {
            headers.insert("idempotency-key", key);
        }
        let url = request.path.url(&self.urls);
        let origin = url.origin().ascii_serialization();
        let mut sent = self.http.request(request.method.clone(), url).headers(headers);
        sent = match &request.body {
            None => sent,
            Some(Body::Json(value)) => sent.json(value),
            Some(Body::Script(script)) => {
                let sent = sent.header(header::CONTENT_TYPE, "text/x-shellscript");
                sent.body(script.as_str().to_owned())
            }
        };
        let failed = |error: reqwest::Error| {
            let reason = match (is_other_protocol(&error), error.is_connect()) {
                (true, true) => format!(
                    "{origin} answers without TLS: correct the port, or, for a cloud on this machine alone, use http://"
                ),
                (true, false) if origin.starts_with("http://") => {
                    format!("{origin} does not answer in plain HTTP: correct the port, or use https://")
                }
                (_, true) => format!("cannot connect to {origin}"),
                (_, false) => "the connection was interrupted".to_owned(),
            };
            unavailable(request, reason, None, Some(error.without_url()))
        };
        let sent = sent.build().map_err(failed)?;
        exchange(sent).await.map_err(failed)
    }

    async fn answer(&self, request: &Request, response: Response) -> Result<Answer, ClientError> {
        let status = response.status();
        let etag = response.headers().get(header::ETAG).cloned().map(ETag);
        let server = response.headers().get(header::SERVER);
        let server = server.and_then(|server| server.to_str().ok()).map(str::to_owned);
        let change = response.headers().get(CHANGE_HEADER);
        let change = change.and_then(|change| change.to_str().ok()?.parse().ok());
        match status {
            StatusCode::OK => {}
            StatusCode::CREATED | StatusCode::ACCEPTED | StatusCode::NO_CONTENT if request.method != Method::GET => {}
            StatusCode::NOT_MODIFIED if request.known.is_some() => {}
            _ => return Err(self.failure(request, response).await),
        }
        let most = request.budget.as_ref().map_or(MAX_BYTES, ByteBudget::largest);
        let body = read(request, response, most).await?;
        Ok(Answer {
            status,
            etag,
            server,
            change,
            body,
            part: None,
        })
    }

    /// The meaning of a response without success.
    pub(super) async fn failure(&self, request: &Request, response: Response) -> ClientError {
        let status = response.status();
        let retry_after = retry_after_header(response.headers(), self.clock.now());
        let retry_after = retry_after.map(|asked| asked.min(MAX_RETRY_AFTER));
        let body = read(request, response, MAX_FAILURE).await.unwrap_or_default();
        let own = parse::<Failure>(&body, Unknown::Ignore).ok();
        let own = own.filter(|failure| failure.code == u32::from(status.as_u16()));
        let said = own
            .as_ref()
            .map_or_else(|| status.to_string(), |failure| failure.message.clone());
        match (status.as_u16(), own) {
            (401 | 403, _) => ClientError::Refused {
                request: request.to_string(),
                status: status.as_u16(),
                message: said,
            },
            (404, Some(failure)) => ClientError::NotOurs {
                request: request.to_string(),
                message: failure.message,
            },
            (404, None) => ClientError::invalid(request, "a 404 that does not come from the API; correct the URL"),
            (408 | 425 | 429 | 500 | 502..=599, _) => {
                let reason = format!("the server responded with {}: {said}", status.as_u16());
                unavailable(request, reason, retry_after, None)
            }
            (300..=399, _) => {
                let reason =
                    format!("the server responded with {status}, a redirect, which is not followed; correct the URL");
                ClientError::invalid(request, reason)
            }
            (400..=499 | 501, own) => ClientError::Rejected {
                request: request.to_string(),
                failure: own.unwrap_or(Failure {
                    code: status.as_u16().into(),
                    message: said,
                    field: None,
                }),
            },
            _ => ClientError::invalid(request, format!("unexpected status {status}")),
        }
    }
}

/// Returns the settings of all connections. `plain` is true for a base URL of plain HTTP.
fn builder(settings: &ClientSettings, plain: bool) -> Result<reqwest::ClientBuilder, SettingsError> {
    let mut builder = reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(KEEPALIVE)
        .tcp_keepalive_interval(KEEPALIVE)
        .tcp_keepalive_retries(KEEPALIVE_PROBES)
        .user_agent(&settings.user_agent);
    #[cfg(target_os = "linux")]
    {
        builder = builder.tcp_user_timeout(USER_TIMEOUT);
    }
    if let Some(pem) = &settings.ca {
        let certificates =
            Certificate::from_pem_bundle(pem).map_err(|error| SettingsError::Certificates(Some(error)))?;
        if certificates.is_empty() {
            return Err(SettingsError::Certificates(None));
        }
        builder = builder.tls_certs_only(certificates);
    }
    // A proxy would see the token of a plain HTTP request, even of one to this host.
    Ok(match (&settings.proxy, plain) {
        (_, true) => builder.no_proxy(),
        (Some(proxy), false) => builder.proxy(Proxy::all(proxy.clone()).map_err(SettingsError::Build)?),
        (None, false) => builder,
    })
}

fn exchange(http: reqwest::Client) -> Exchange {
    Arc::new(move |request| http.execute(request).boxed())
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<&str> = self.urls.iter().map(Url::as_str).collect();
        f.debug_struct("Transport").field("urls", &urls).finish_non_exhaustive()
    }
}

/// Reads the body to its end. A truncated one is an error, no matter how much of it arrived.
async fn read(request: &Request, response: Response, most: usize) -> Result<Bytes, ClientError> {
    // At once, if it says so: a buffer that grows is up to twice as large as its content.
    let length = response
        .content_length()
        .and_then(|length| usize::try_from(length).ok());
    let mut whole = BytesMut::with_capacity(length.filter(|length| *length <= most).unwrap_or_default());
    let mut parts = response.bytes_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| ClientError::Invalid {
            request: request.to_string(),
            reason: "the body is truncated".to_owned(),
            source: Some(error.without_url()),
        })?;
        if whole.len() + part.len() > most {
            let reason = format!("the body is larger than {} KiB", most / 1024);
            return Err(ClientError::invalid(request, reason));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

fn unavailable(
    request: &Request,
    reason: String,
    retry_after: Option<Duration>,
    source: Option<reqwest::Error>,
) -> ClientError {
    ClientError::Unavailable {
        request: request.to_string(),
        reason,
        retry_after,
        source,
    }
}
