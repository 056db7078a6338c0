//! Serves HTTP to whoever can connect, without giving them the process.
//!
//! Connections are bounded in number, a request's head in time, a connection in life: whoever opens many, or sends nothing, or
//! reads nothing, makes others wait for a place at most, and takes no file descriptor that a watch or a Lease needs.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service as _;
use tracing::{debug, warn};

use crate::clock::{SharedClock, timeout};

/// Connections at once.
pub const CONNECTIONS: usize = 128;
/// A connection without a request, or with half of one, is closed after this.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// No connection lives longer: a scraper simply connects again.
const CONNECTION_LIFE: Duration = Duration::from_mins(5);
/// The answer that is under way at the end of a connection's life has this long.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// What hinders accepting, file descriptors that are used up for one, does not pass at once.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{setting} is {address}: cannot listen there")]
pub struct BindError {
    /// The setting that names the address.
    setting: &'static str,
    address: SocketAddr,
    /// What the operating system says: it is taken, or is not this machine's.
    source: io::Error,
}

/// Listens on `address`, which `setting` names; nothing is answered before [`serve`].
///
/// # Errors
/// When it cannot listen there.
pub async fn bind(setting: &'static str, address: SocketAddr) -> Result<TcpListener, BindError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| BindError {
        setting,
        address,
        source,
    })
}

/// How connections are served.
#[derive(Clone)]
pub struct Options {
    /// So many at once; more wait.
    pub connections: usize,
    /// A connection without a request, or with half of one, or in the middle of its handshake, is closed after this.
    pub head: Duration,
    /// No connection lives longer; None lets one live as long as it is used.
    pub life: Option<Duration>,
    /// With which certificate; None is plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    /// How long answers that are under way may take after the order to stop.
    pub drain: Duration,
}

impl Default for Options {
    /// For a port that is scraped: what is under way at the end is lost, and asked again.
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            head: HEAD_TIMEOUT,
            life: Some(CONNECTION_LIFE),
            tls: None,
            drain: Duration::ZERO,
        }
    }
}

/// Who is at the other end of the connection: an extension of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Answers with `router` until `shutdown`, in plain HTTP/1.1.
///
/// # Errors
/// None: what a client does ends its own connection at most, and what hinders accepting is waited for.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    clock: SharedClock,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    serve_with(listener, router, Options::default(), clock, shutdown).await
}

/// Answers with `router` until `shutdown`, in HTTP/1.1.
///
/// # Errors
/// None, as of [`serve`].
pub async fn serve_with(
    listener: TcpListener,
    router: Router,
    options: Options,
    clock: SharedClock,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let server = Arc::new(Server {
        router,
        options,
        clock,
        shutdown,
    });
    let places = Arc::new(Semaphore::new(server.options.connections));
    // Dropped with this future, and with them their connections: kept-alive ones may not hold up the end.
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            biased;
            () = server.shutdown.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = accepted => match accepted {
                (Ok((stream, peer)), place) => {
                    let server = Arc::clone(&server);
                    // Made where it is awaited: a future that is moved into another one has its room twice.
                    connections.spawn(async move {
                        server.connection(stream, Peer(peer)).await;
                        drop(place);
                    });
                }
                (Err(error), _) => {
                    warn!(%error, "cannot accept a connection");
                    server.clock.sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // What is not done by then is dropped.
    let _ = timeout(&*server.clock, server.options.drain, all).await;
    Ok(())
}

/// What all connections share.
struct Server {
    router: Router,
    options: Options,
    clock: SharedClock,
    shutdown: CancellationToken,
}

impl Server {
    async fn connection(self: &Arc<Self>, stream: TcpStream, peer: Peer) {
        // A small answer is not held back to wait for more.
        let _ = stream.set_nodelay(true);
        match &self.options.tls {
            None => self.requests(stream, peer).await,
            // Boxed, so that a connection without TLS need not have the room.
            Some(tls) => Box::pin(self.over_tls(Arc::clone(tls), stream, peer)).await,
        }
    }

    async fn over_tls(self: &Arc<Self>, tls: Arc<ServerConfig>, stream: TcpStream, peer: Peer) {
        let handshake = TlsAcceptor::from(tls).accept(stream);
        match timeout(&*self.clock, self.options.head, handshake).await {
            Ok(Ok(stream)) => self.requests(stream, peer).await,
            Ok(Err(error)) => debug!(%error, "a handshake failed"),
            Err(elapsed) => debug!(%elapsed, "a handshake was not ended"),
        }
    }

    async fn requests(self: &Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, peer: Peer) {
        let server = Arc::clone(self);
        // Of each request, not a layer of the router: that would make all its routes anew for each connection.
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            server.router.clone().call(request)
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.options.head)
                .serve_connection(TokioIo::new(stream), service)
        );
        let life = async {
            match self.options.life {
                Some(life) => self.clock.sleep(life).await,
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
            () = life => LAST_ANSWER,
            () = self.shutdown.cancelled() => self.options.drain,
        };
        connection.as_mut().graceful_shutdown();
        // It is closed, whatever became of its last answer.
        let _ = timeout(&*self.clock, last, connection).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::clock::SystemClock;
    use crate::testing::beside;

    async fn server() -> (SocketAddr, CancellationToken) {
        let listener = bind("address", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let router = Router::new().route("/", get(async || "hello\n"));
        let options = Options {
            head: Duration::from_secs(1),
            ..Options::default()
        };
        beside(serve_with(listener, router, options, SystemClock::shared(), shutdown.clone()).map(drop));
        (address, shutdown)
    }

    /// Sends `text` and reads until the other side ends the connection.
    async fn ask(address: SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn answers_until_it_is_told_to_stop() {
        let (address, shutdown) = server().await;
        assert!(ask(address, REQUEST).await.ends_with("\r\n\r\nhello\n"));
        let mut open = TcpStream::connect(address).await.unwrap();
        open.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut first = [0; 8];
        open.read_exact(&mut first).await.unwrap();
        shutdown.cancel();
        // It was kept alive, and ends all the same.
        open.read_to_end(&mut Vec::new()).await.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn whoever_opens_all_connections_makes_others_wait_a_while_at_most() {
        let (address, _shutdown) = server().await;
        let mut silent = Vec::new();
        for number in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // Some send half a request, some had an answer and are kept alive, some send nothing.
            match number % 3 {
                0 => stream.write_all(b"GET / HT").await.unwrap(),
                1 => {
                    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
                    stream.read_exact(&mut [0; 8]).await.unwrap();
                }
                _ => {}
            }
            silent.push(stream);
        }
        assert!(ask(address, REQUEST).await.ends_with("hello\n"));
        for mut stream in silent {
            stream.read_to_end(&mut Vec::new()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_named_with_its_setting() {
        let first = bind("metricsAddress", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = first.local_addr().unwrap();
        let error = bind("metricsAddress", address).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("metricsAddress is {address}: cannot listen there")
        );
    }
}
