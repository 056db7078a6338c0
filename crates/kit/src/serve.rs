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
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
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
    accept(listener, router, HEAD_TIMEOUT, clock, shutdown).await;
    Ok(())
}

async fn accept(
    listener: TcpListener,
    router: Router,
    head: Duration,
    clock: SharedClock,
    shutdown: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    // Dropped with this future, and with them their connections: kept-alive ones may not hold up the end.
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            Some(_) = connections.join_next() => {}
            accepted = accepted => match accepted {
                (Ok((stream, _)), place) => {
                    let connection = connection(stream, router.clone(), head, Arc::clone(&clock));
                    connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                (Err(error), _) => {
                    warn!(%error, "cannot accept a connection");
                    clock.sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
}

async fn connection(stream: TcpStream, router: Router, head: Duration, clock: SharedClock) {
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let ended = match timeout(&*clock, CONNECTION_LIFE, connection.as_mut()).await {
        Ok(ended) => ended,
        Err(_) => {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(&*clock, LAST_ANSWER, connection).await;
            return;
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection failed");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::clock::SystemClock;
    use crate::testing::beside;

    async fn server() -> (SocketAddr, CancellationToken) {
        let listener = bind("address", ([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let router = Router::new().route("/", get(async || "hello\n"));
        let head = Duration::from_secs(1);
        beside(accept(listener, router, head, SystemClock::shared(), shutdown.clone()));
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
