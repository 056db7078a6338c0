//! The client of the API server: requests under way are limited, for each controller apart; every request has a
//! deadline; every write is counted, and passes a fence that checks that this replica leads at the moment when the
//! write's bytes go out.
//!
//! Nothing here retries: a write that was sent twice may have been sent by a leader the first time and by a stopped and
//! woken process the second; except a page of a list that is too long for the memory (`pages`). The `Retry-After` of a
//! response is in the error ([`retry_after()`]). A request fails after [`REQUEST_TIMEOUT`] or, if it writes,
//! [`WRITE_TIMEOUT`], the wait for its permit included. Watches and other streams have no end; only their response
//! headers have to arrive within that time.
//!
//! kube's own client stack (`ClientBuilder`) would bring base URL, credentials, headers, gzip, spans, time-outs of each
//! connection and a retry of the statuses 429, 503 and 504; ours uses its layers for URL, credentials and headers, and
//! has its own for the rest, because kube has no limit on requests under way, no deadline of a whole request and no
//! fence, and its retry repeats writes.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Body as HttpBody;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt as _;
use kube::config::{AuthInfo, ExecInteractiveMode};
use kube::{Client, Config};
use tokio::task::spawn_blocking;
use tower::util::MapRequestLayer;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

use crate::clock::timeout;
use crate::leader::Leadership;
use crate::{Chain, Kit};

mod budget;
mod fence;
mod gate;
mod impersonate;
mod optional;
mod pace;
mod pages;
mod path_segment;
mod proxy;
mod request;
mod retry_after;
#[cfg(any(test, feature = "test-util"))]
mod simulated;
mod token_file;
mod unreachable;

use budget::Budget;
pub use budget::NoPermit;
use fence::FencedBody;
pub use fence::{Fenced, is_fenced};
use gate::{Gates, Transport};
pub use impersonate::impersonate;
pub use optional::{is_not_found, optional};
pub use path_segment::path_segment;
use proxy::Proxy;
pub use proxy::route;
pub(crate) use retry_after::in_status as retry_after_status;
pub use retry_after::{retry_after, retry_after_header};
use token_file::TokenFile;

/// Requests under way at once of all clients of one [`Clients`], watches, other streams and Events excepted: those of a
/// role's controllers, its unfenced ones and its election have that many each. The API server allows 200 writes to all
/// its clients together (`--max-mutating-requests-inflight`); each costs a connection of its own (HTTP/1.1) for as long
/// as it lasts.
pub const IN_FLIGHT: usize = 40;

/// The most that one controller gets, so that at least 8 are left for the others. A cold start of 5,000 Nodes needs
/// these 32.
pub const MOST_IN_FLIGHT: usize = 32;

/// The permits of a controller that needs nothing special: at 10 ms for each write, 800 writes a second.
pub const DEFAULT_IN_FLIGHT: usize = 8;

/// The permits of a controller that writes thousands of objects in a first sync.
pub const MANY_IN_FLIGHT: usize = 16;

/// Events under way at once, beside [`IN_FLIGHT`]: no flood of Events delays a write that matters.
const EVENTS_IN_FLIGHT: usize = 2;

/// The deadline of a read, including the wait for a permit.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The deadline of a write, including the wait for a permit. After it the outcome is unknown. The API server works on a
/// write for 34 s at most, of which an admission webhook may take 30, and then names the webhook that did not respond.
/// Source: `requestTimeoutUpperBound` of its handlers, and `timeoutSeconds` of webhooks.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(40);

/// A request that has no permit after this time fails unsent: sent so late, it would have too little time for its
/// response, and a write whose outcome is unknown is worse than one that was not sent.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(15);

/// The time limit of a credential plugin, so that a command has its result within 30 seconds; and if it can ask a
/// person on the terminal.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(15);
const LOGIN_TIMEOUT: Duration = Duration::from_mins(5);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const IDLE_CONNECTION: Duration = Duration::from_secs(30);
/// A peer that vanished without a word is noticed within a minute, watches included.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// A client that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig or the service account cannot be used.
    #[error("cannot use the credentials or certificates for the API server{files}")]
    Config {
        /// Their source, in parentheses; empty when the kubeconfig names neither a file nor data.
        files: String,
        /// The error in them.
        #[source]
        source: Box<kube::Error>,
    },
    /// The credential plugin does not end, or a file of the credentials cannot be read.
    #[error(
        "there are no credentials for the API server after {limit:?}{from}: see what it waits for, or correct the user in the kubeconfig"
    )]
    Slow {
        /// The thing that was waited for.
        from: String,
        /// For how long.
        limit: Duration,
    },
    /// The proxy cannot be used.
    #[error("the API server cannot be reached through the proxy {proxy}: {reason}")]
    Proxy {
        /// Its scheme, host and port; never its password.
        proxy: String,
        /// The reason, and the remedy.
        reason: &'static str,
    },
}

/// Makes the clients of a process. They share connections, credentials and the limit of the process. Clones make the
/// same.
#[derive(Clone)]
pub struct Clients {
    make: Arc<dyn Fn(Budget) -> Client + Send + Sync>,
}

impl Clients {
    /// Clients whose writes pass only while `leadership` says that this replica leads. Reads always pass, so that a
    /// standby's caches are warm.
    ///
    /// A refused write is an error for which [`is_fenced`] is true. Each write is counted in `tidewaiter_writes_total`.
    ///
    /// # Errors
    /// When the credentials, certificates or proxy of `config` cannot be used, or a credential plugin takes too long.
    pub async fn new(config: &Config, leadership: &Leadership, kit: &Kit) -> Result<Self, ClientError> {
        let limit = credentials_timeout(&config.auth_info);
        let (given, leadership, shared) = (config.clone(), leadership.clone(), kit.clone());
        // The library runs credential plugins, and reads files, in the thread that calls it. Signals are handled
        // meanwhile.
        let made = spawn_blocking(move || Self::connect(&given, &leadership, &shared));
        match timeout(&*kit.clock, limit, made).await {
            Ok(Ok(made)) => made,
            Ok(Err(panicked)) => resume_unwind(panicked.into_panic()),
            Err(_) => {
                let exec = config.auth_info.exec.as_ref();
                let plugin = exec.and_then(|exec| exec.command.as_deref());
                Err(ClientError::Slow {
                    from: plugin.map_or_else(
                        || credential_files(&config.auth_info),
                        |command| format!(" from the command {command:?}"),
                    ),
                    limit,
                })
            }
        }
    }

    fn connect(config: &Config, leadership: &Leadership, kit: &Kit) -> Result<Self, ClientError> {
        // As kube's own builder does. The only error is that a provider is installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let Some(proxy) = Proxy::of(config)? else {
            return Self::connected(tcp(), config, leadership, kit);
        };
        match proxy.kind {
            proxy::Kind::Http => Self::connected(proxy.tunnel(tcp()), config, leadership, kit),
            proxy::Kind::Https => {
                let tls = Config::new(proxy.uri.clone());
                let tls = tls.rustls_https_connector_with_connector(tcp());
                let tls = tls.map_err(|error| failed(config, error))?;
                Self::connected(proxy.tunnel(tls), config, leadership, kit)
            }
            proxy::Kind::Socks => Self::connected(proxy.socks(tcp()), config, leadership, kit),
        }
    }

    /// Clients over the connections that `connector` makes.
    fn connected<C>(connector: C, config: &Config, leadership: &Leadership, kit: &Kit) -> Result<Self, ClientError>
    where
        C: Service<Uri, Error: Into<BoxError>, Future: Send + 'static> + Clone + Send + Sync + 'static,
        C::Response: Connection + Read + Write + Send + Unpin + 'static,
    {
        let failed = |error| failed(config, error);
        let connector = config
            .rustls_https_connector_with_connector(connector)
            .map_err(failed)?;
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(IN_FLIGHT + EVENTS_IN_FLIGHT)
            .build::<_, FencedBody>(connector);
        let server = config.cluster_url.clone();
        let http = ServiceBuilder::new().map_err(move |error| unreachable::named(error, &server));
        let http = transport(http.service(client));
        let base_uri = config.base_uri_layer();
        let mut user = config.clone();
        let token = TokenFile::take(&mut user, &kit.clock).map_err(failed)?;
        let token = token.map(|token| {
            MapRequestLayer::new(move |mut request: Request<kube::client::Body>| {
                request.headers_mut().insert(AUTHORIZATION, token.header());
                request
            })
        });
        let credentials = user.auth_layer().map_err(failed)?;
        let headers = config.extra_headers_layer().map_err(failed)?;
        let gates = Gates::new(leadership, kit);
        let namespace = config.default_namespace.clone();
        // The gate is the innermost layer: credentials are fetched before it, and nothing but hyper comes after it.
        let make = move |budget| {
            let service = ServiceBuilder::new()
                .layer(&base_uri)
                .option_layer(credentials.as_ref())
                .option_layer(token.as_ref())
                .layer(&headers)
                .map_err(BoxError::from)
                .service(gates.gate(budget, http.clone()));
            Client::new(service, namespace.clone())
        };
        Ok(Self { make: Arc::new(make) })
    }

    /// A client of `controller` that has at most `permits` requests under way, [`MOST_IN_FLIGHT`] at most; the rest
    /// wait for a permit. [`DEFAULT_IN_FLIGHT`] is right unless a measurement says otherwise.
    #[must_use]
    pub fn for_controller(&self, controller: &'static str, permits: usize) -> Client {
        (self.make)(Budget::within_process(controller, permits.min(MOST_IN_FLIGHT)))
    }

    /// The client for [`Events`](crate::Events).
    #[must_use]
    pub fn for_events(&self) -> Client {
        (self.make)(Budget::beside("events", EVENTS_IN_FLIGHT))
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// The client of a process that has only one, with the permits of [`MOST_IN_FLIGHT`].
///
/// # Errors
/// When the credentials, certificates or proxy of `config` cannot be used.
pub async fn fenced(config: &Config, leadership: &Leadership, kit: &Kit) -> Result<Client, ClientError> {
    let clients = Clients::new(config, leadership, kit).await?;
    Ok(clients.for_controller("process", MOST_IN_FLIGHT))
}

/// A person may have to log in first.
fn credentials_timeout(user: &AuthInfo) -> Duration {
    let exec = user.exec.as_ref();
    let may_ask = exec.is_some_and(|exec| exec.interactive_mode != Some(ExecInteractiveMode::Never));
    if may_ask && io::stdin().is_terminal() {
        LOGIN_TIMEOUT
    } else {
        CREDENTIALS_TIMEOUT
    }
}

fn failed(config: &Config, error: kube::Error) -> ClientError {
    let mut files = credential_files(&config.auth_info);
    if Chain(&error).to_string().contains("UnsupportedCertVersion") {
        files += ": the certificate must have version 3 of X.509 (openssl x509 makes one with -extfile)";
    }
    ClientError::Config {
        files,
        source: Box::new(error),
    }
}

/// The files and data of a user of a kubeconfig, by the names that the kubeconfig has for them. Never shows their
/// content.
fn credential_files(user: &AuthInfo) -> String {
    let file = |key: &str, path: Option<&String>| path.map(|path| format!("{key} {path}"));
    let data = |key: &str, is_set: bool| is_set.then(|| key.to_owned());
    let parts = [
        file("client-certificate", user.client_certificate.as_ref()),
        data("client-certificate-data", user.client_certificate_data.is_some()),
        file("client-key", user.client_key.as_ref()),
        data("client-key-data", user.client_key_data.is_some()),
        file("tokenFile", user.token_file.as_ref()),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    }
}

/// `service` as what is behind the gates.
fn transport<S, B>(service: S) -> Transport
where
    S: Service<Request<FencedBody>, Response = Response<B>, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let service = service.map_err(Into::<BoxError>::into);
    let boxed = |body: B| body.map_err(Into::<BoxError>::into).boxed_unsync();
    Transport::new(service.map_response(move |response: Response<B>| response.map(boxed)))
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
pub(crate) mod by_hand;
#[cfg(test)]
mod tests;
