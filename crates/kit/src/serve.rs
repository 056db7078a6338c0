//! Serves HTTP on a port that untrusted clients can reach, without letting them use up the process.
//!
//! Invariants: a port holds a limited number of connections, so that file descriptors remain for watches and the Lease.
//! A new connection is always accepted: when the port is full, the oldest connection of the peer that has the most is
//! closed, so that no client delays another one. Between two accepts the connections run, so that a request that is
//! there already is read before a later connection can close its own. The first request, the head of each later one and
//! the life of a connection have time limits, and all time limits are measured on the clock of the kit. The heads that
//! are not complete have a limit each, and one over all connections. A client that does not read its response is
//! closed. A header of the PROXY protocol is read only from proxies that the options name; from then on the connection
//! counts for the client in it.
//!
//! No library does this: `axum::serve` and tower's limits bound connections or requests in total, and make new ones
//! wait; none of them distinguishes peers.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use futures::FutureExt as _;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service as _;
use tracing::{debug, warn};

use crate::clock::{SharedClock, timeout};

mod connections;
mod heads;
mod port;
mod proxy_protocol;
mod readers;
#[cfg(test)]
mod tests;
mod timer;
mod tls;

use connections::Connections;
pub use connections::network;
use heads::{Head, Heads};
pub use port::Port;
use readers::Paced;
use timer::ClockTimer;
pub use tls::{Certificate, TlsError, Validity};

/// The default limit on open connections.
pub const CONNECTIONS: usize = 128;
/// The default limit on the time until a request's head is complete.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest head of a request, in bytes; a larger one is refused with 431. The library's default is 400 KiB.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The default limit on what unfinished heads have beyond what each connection may have, in bytes.
const MAX_UNFINISHED_HEAD_BYTES: usize = 32 * 1024 * 1024;
/// The default limit on the life of a connection. A scraper reconnects.
const CONNECTION_LIFE: Duration = Duration::from_mins(5);
/// The time limit of the last response of a connection when the life of the connection has ended.
const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay after an accept error. Its causes, such as a lack of file descriptors, usually last.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{setting} is {address}: cannot listen there")]
pub struct BindError {
    /// The setting that names the address.
    setting: &'static str,
    address: SocketAddr,
    /// The error of the operating system: for example, the address is not one of this machine.
    source: io::Error,
}

/// Listens on `address`, which comes from `setting`. Connections wait until [`serve_with`] runs.
///
/// # Errors
/// When the operating system refuses the address.
pub async fn bind(setting: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| BindError {
        setting,
        address,
        source,
    })
}

/// The options of a server.
#[derive(Clone)]
pub struct Options {
    /// The limit on open connections. When it is reached, each new connection closes an old one.
    pub connections: usize,
    /// The limit on the unfinished heads of all connections together, in bytes, besides 4 KiB of each: the connection
    /// that exceeds it is closed.
    pub heads: usize,
    /// The time limit of a connection for its handshake, and then for the head of its first request.
    pub first: Duration,
    /// The time limit of a connection for the head of a request, and between two requests.
    pub head: Duration,
    /// The longest life of a connection; None is unlimited.
    pub life: Option<Duration>,
    /// The certificate; None is plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    /// The time limit of responses after shutdown has begun.
    pub drain: Duration,
    /// The networks of the proxies whose connections begin with a header of the PROXY protocol. The connections of
    /// others have none.
    pub proxies: Vec<IpNet>,
}

impl Default for Options {
    /// For a port that is scraped or probed: a response that shutdown interrupts is lost, and its client asks again.
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            heads: MAX_UNFINISHED_HEAD_BYTES,
            first: HEAD_TIMEOUT,
            head: HEAD_TIMEOUT,
            life: Some(CONNECTION_LIFE),
            tls: None,
            drain: Duration::ZERO,
            proxies: Vec::new(),
        }
    }
}

/// The address of the client: an extension of every request. With the PROXY protocol, it is the one that the proxy
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The address of the proxy that named the [`Peer`] by the PROXY protocol: an extension of the requests that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxiedBy(pub SocketAddr);

/// Returns true if one of the networks contains the address, also if it is an IPv4 address in IPv6 form.
#[must_use]
pub fn is_in(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// The extensions of the requests of a connection.
#[derive(Clone, Copy)]
struct Ends {
    peer: Peer,
    proxy: Option<ProxiedBy>,
}

/// Serves `router` in HTTP/1.1 until `shutdown`.
///
/// # Errors
/// None: a client's error ends at most its own connection, and accepting is retried after an error.
pub async fn serve_with(
    listener: TcpListener,
    router: Router,
    options: Options,
    clock: SharedClock,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let server = Arc::new(Server {
        timer: ClockTimer::new(Arc::clone(&clock)),
        heads: Heads::new(options.heads),
        router,
        options,
        clock,
        shutdown,
    });
    // Dropped with this future, and all connections with it: an idle one does not delay the end.
    let mut connections = Connections::<Option<(TcpStream, Ends)>>::new(server.options.connections);
    loop {
        tokio::select! {
            biased;
            () = server.shutdown.cancelled() => break,
            named = connections.closed(), if !connections.is_empty() => {
                if let Some((stream, ends)) = named.flatten() {
                    let server = Arc::clone(&server);
                    connections.open(ends.peer.0.ip(), async move {
                        server.serve(stream, ends).await;
                        None
                    });
                    yield_now().await;
                }
            }
            accepted = listener.accept(), if connections.has_room() => match accepted {
                Ok((stream, peer)) => {
                    let server = Arc::clone(&server);
                    // Created where it is awaited: a future that is moved into another one takes its space twice.
                    connections.open(peer.ip(), async move { server.connection(stream, peer).await });
                    // Else a burst that waits to be accepted closes its own first connections unread.
                    yield_now().await;
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::select! {
                        biased;
                        () = server.shutdown.cancelled() => break,
                        () = server.clock.sleep(ACCEPT_RETRY_DELAY) => {}
                    }
                }
            },
        }
    }
    drop(listener);
    let all = async {
        while !connections.is_empty() {
            connections.closed().await;
        }
    };
    // The connections that remain after the time limit are dropped.
    let _ = timeout(&*server.clock, server.options.drain, all).await;
    Ok(())
}

/// The state that all connections of a port share.
struct Server {
    router: Router,
    options: Options,
    clock: SharedClock,
    timer: ClockTimer,
    heads: Heads,
    shutdown: CancellationToken,
}

impl Server {
    /// Serves a connection from `peer`. Returns it unserved if a proxy named its client, for whom it then counts.
    async fn connection(&self, mut stream: TcpStream, peer: SocketAddr) -> Option<(TcpStream, Ends)> {
        // Send a small response at once.
        let _ = stream.set_nodelay(true);
        let ends = self.ends(&mut stream, peer).await?;
        if ends.proxy.is_some() {
            return Some((stream, ends));
        }
        self.serve(stream, ends).await;
        None
    }

    async fn serve(&self, stream: TcpStream, ends: Ends) {
        let head = Head::new(&self.heads);
        let stream = Paced::new(stream, &head, Arc::clone(&self.clock));
        match &self.options.tls {
            None => self.requests(stream, ends, &head).await,
            // Boxed, so that a connection without TLS does not take the space.
            Some(tls) => Box::pin(self.over_tls(Arc::clone(tls), stream, ends, &head)).await,
        }
    }

    /// The ends of a connection from `peer`. `None` if it must be closed, because a proxy sent no valid header.
    async fn ends(&self, stream: &mut TcpStream, peer: SocketAddr) -> Option<Ends> {
        let direct = Ends {
            peer: Peer(peer),
            proxy: None,
        };
        if !is_in(&self.options.proxies, peer.ip()) {
            return Some(direct);
        }
        // Boxed, so that a connection without the header does not take the space.
        let header = Box::pin(proxy_protocol::read(stream));
        match timeout(&*self.clock, self.options.first, header).await {
            Ok(Ok(None)) => Some(direct),
            Ok(Ok(Some(client))) => Some(Ends {
                peer: Peer(client),
                proxy: Some(ProxiedBy(peer)),
            }),
            Ok(Err(error)) => {
                debug!(%peer, %error, "a connection of a proxy failed");
                None
            }
            Err(elapsed) => {
                debug!(%peer, %elapsed, "a header of the PROXY protocol timed out");
                None
            }
        }
    }

    async fn over_tls(&self, tls: Arc<ServerConfig>, stream: Paced<'_, TcpStream>, ends: Ends, head: &Head<'_>) {
        let handshake = TlsAcceptor::from(tls).accept(stream);
        match timeout(&*self.clock, self.options.first, handshake).await {
            Ok(Ok(stream)) => {
                head.complete();
                self.requests(stream, ends, head).await;
            }
            Ok(Err(error)) => debug!(%error, "a TLS handshake failed"),
            Err(elapsed) => debug!(%elapsed, "a TLS handshake timed out"),
        }
    }

    async fn requests(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send, ends: Ends, head: &Head<'_>) {
        let asked = AtomicBool::new(false);
        // For each request, not a layer of the router: that would copy all routes for each connection.
        let service = service_fn(|mut request: Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            head.begin_request();
            request.extensions_mut().insert(ends.peer);
            if let Some(proxy) = ends.proxy {
                request.extensions_mut().insert(proxy);
            }
            self.router.clone().call(request).inspect(|_| head.end_request())
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(self.timer.clone())
                .header_read_timeout(self.options.head)
                .max_buf_size(MAX_HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service)
        );
        let Options { first, life, .. } = self.options;
        let first = life.map_or(first, |life| life.min(first));
        // One timer after the other, because each of thousands of connections has its own.
        let life = async {
            self.clock.sleep(first).await;
            match life {
                _ if !asked.load(Ordering::Relaxed) => {}
                Some(life) => self.clock.sleep(life.saturating_sub(first)).await,
                None => std::future::pending().await,
            }
        };
        let last = tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    debug!(%error, "a connection failed");
                }
                return;
            }
            // No response is on the way.
            () = life => if asked.load(Ordering::Relaxed) { LAST_RESPONSE_TIMEOUT } else { return },
            () = self.shutdown.cancelled() => self.options.drain,
        };
        connection.as_mut().graceful_shutdown();
        // The connection is closed whether or not its last response was complete.
        let _ = timeout(&*self.clock, last, connection).await;
    }
}
