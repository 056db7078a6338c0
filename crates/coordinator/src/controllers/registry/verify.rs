//! Tries a credential against its registry: `GET /v2/`, with a token where the registry requires one.
//!
//! - Only over TLS, to the host that the credential is for, and to the realm that this host names if it is of its site.
//!   No redirect is followed. Names that lead to this machine or to a metadata service are not contacted.
//! - Time and bodies are bounded. What a registry says is never shown: it may repeat the credential.
//! - A registry that cannot be asked neither accepts nor refuses.
//!
//! Sources: the OCI distribution specification, "Determining Support"; the distribution project's "Token Authentication
//! Specification".

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use tidewaiter_api::values::SecretText;
use tidewaiter_kit::SharedClock;
use tidewaiter_kit::clock::timeout;
use url::Url;

use super::address::is_reachable;
use super::challenge::{Challenge, is_trusted};
use super::credential::Login;

const CONNECT: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_secs(10);
const ALL: Duration = Duration::from_secs(20);

/// The time for which a connection stays open after its last request. The last request of a check uses the connection
/// of the first one.
const IDLE: Duration = Duration::from_secs(5);

/// The largest response with a token, in bytes.
const BODY: usize = 64 * 1024;

/// The meaning of a 403 of a token endpoint.
const FORBIDDEN_REALM: &str = "its token endpoint answers 403 Forbidden: it blocks the account or the address of this cluster, or the account \
    lacks a permission";

/// The result of a login attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The registry accepts the credential.
    Accepted,
    /// The registry rejects the credential.
    Refused,
    /// The registry could not be reached.
    Unknown(&'static str),
}

/// A client that tries credentials.
pub(super) trait Verify: Send + Sync + 'static {
    /// Tries `login` once. Ends within [`ALL`].
    fn check(&self, login: &Login) -> impl Future<Output = Verdict> + Send;
}

/// Tries credentials against the registries themselves.
#[derive(Clone, Debug)]
pub(super) struct Verifier {
    http: Client,
    clock: SharedClock,
}

/// A token as realms give it.
#[derive(Deserialize)]
struct TokenResponse {
    token: Option<SecretText>,
    access_token: Option<SecretText>,
}

impl Verifier {
    /// Errors only if the TLS library cannot be started.
    pub(super) fn new(clock: SharedClock) -> Result<Self, reqwest::Error> {
        let http = builder().https_only(true).dns_resolver(Arc::new(Outside)).build()?;
        Ok(Self { http, clock })
    }

    async fn check_at(&self, api: &str, login: &Login) -> Verdict {
        let Ok(api) = Url::parse(api) else {
            return Verdict::Unknown("its address is no URL");
        };
        let checked = timeout(&*self.clock, ALL, self.exchange(&api, login)).await;
        match checked {
            Ok(Ok(verdict) | Err(verdict)) => verdict,
            Err(_) => Verdict::Unknown("it does not answer in time"),
        }
    }

    async fn exchange(&self, api: &Url, login: &Login) -> Result<Verdict, Verdict> {
        let ask = || self.http.get(api.clone());
        let first = send(ask()).await?;
        let basic =
            |request: RequestBuilder| request.basic_auth(login.username.expose(), Some(login.password.expose()));
        match first.status() {
            // It lets anybody in, and may all the same know this one not.
            StatusCode::OK => return Ok(verdict(send(basic(ask())).await?.status())),
            StatusCode::UNAUTHORIZED => {}
            other => return Err(unexpected(other)),
        }
        let headers = first.headers().get_all(reqwest::header::WWW_AUTHENTICATE);
        let challenge = Challenge::of(headers.iter().filter_map(|header| header.to_str().ok()));
        finish(first).await;
        let (realm, service) = match challenge {
            Some(Challenge::Basic) => return Ok(verdict(send(basic(ask())).await?.status())),
            Some(Challenge::Bearer { realm, service }) => (realm, service),
            None => return Err(Verdict::Unknown("it does not say how to log in")),
        };
        let realm = Url::parse(&realm).ok().filter(|realm| is_trusted(realm, api));
        let Some(realm) = realm else {
            return Err(Verdict::Unknown("it wants the password to be sent to another site"));
        };
        let service: Vec<_> = service.map(|service| ("service", service)).into_iter().collect();
        let response = send(basic(self.http.get(realm).query(&service))).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Ok(Verdict::Refused),
            // A wrong password is a 401. This says nothing about the password.
            StatusCode::FORBIDDEN => return Err(Verdict::Unknown(FORBIDDEN_REALM)),
            other => return Err(unexpected(other)),
        }
        let token = token(response).await?;
        let answer = send(ask().bearer_auth(token.expose())).await?;
        Ok(verdict(answer.status()))
    }
}

impl Verify for Verifier {
    async fn check(&self, login: &Login) -> Verdict {
        if login.address.is_plain_http() {
            return Verdict::Unknown(
                "its address begins with http://, and a password is sent over TLS only: correct it in the cloud if the registry has TLS",
            );
        }
        self.check_at(&login.address.api(), login).await
    }
}

fn builder() -> reqwest::ClientBuilder {
    Client::builder()
        .user_agent("tidewaiter")
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
        .timeout(REQUEST)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(1)
}

async fn send(request: RequestBuilder) -> Result<Response, Verdict> {
    // The error names the URL and may repeat a header, so only its kind is used.
    let response = request.send().await.map_err(|error| {
        Verdict::Unknown(if error.is_timeout() {
            "it does not answer in time"
        } else if error.is_connect() {
            "it cannot be reached over TLS"
        } else {
            "the request failed"
        })
    })?;
    if response.status().is_success() && is_page(&response) {
        return Err(Verdict::Unknown("it answers with a page for people"));
    }
    Ok(response)
}

/// Returns true if the response is a page for people: a proxy, a portal or a maintenance page in place of the registry
/// lets everybody in.
fn is_page(response: &Response) -> bool {
    let content_type = response.headers().get(reqwest::header::CONTENT_TYPE);
    let text = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.trim_start().to_ascii_lowercase().starts_with("text/html")
}

/// Reads the rest of a response, so that its connection can be used again. One that is too long closes it.
async fn finish(mut response: Response) {
    let mut read = 0;
    while read <= BODY
        && let Ok(Some(chunk)) = response.chunk().await
    {
        read += chunk.len();
    }
}

async fn token(mut response: Response) -> Result<SecretText, Verdict> {
    const INVALID: Verdict = Verdict::Unknown("its response has no token");
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| INVALID)? {
        if body.len() + chunk.len() > BODY {
            return Err(INVALID);
        }
        body.extend_from_slice(&chunk);
    }
    let parsed: TokenResponse = serde_json::from_slice(&body).map_err(|_| INVALID)?;
    let token = parsed.token.or(parsed.access_token).ok_or(INVALID)?;
    let is_header = |byte: u8| byte.is_ascii_graphic();
    if token.expose().is_empty() || !token.expose().bytes().all(is_header) {
        return Err(INVALID);
    }
    Ok(token)
}

fn verdict(status: StatusCode) -> Verdict {
    match status {
        StatusCode::OK => Verdict::Accepted,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Verdict::Refused,
        other => unexpected(other),
    }
}

fn unexpected(status: StatusCode) -> Verdict {
    Verdict::Unknown(match status {
        StatusCode::TOO_MANY_REQUESTS => "it says that there were too many requests",
        status if status.is_redirection() => "it redirects, and a password is sent to nowhere else",
        status if status.is_server_error() => "it fails (5xx)",
        _ => "it does not answer as the distribution specification says",
    })
}

/// Resolves names as the system does, without the addresses of this machine and of its link.
struct Outside;

impl Resolve for Outside {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let reachable: Vec<SocketAddr> = found.filter(|address| is_reachable(address.ip())).collect();
            Ok(Box::new(reachable.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests;
