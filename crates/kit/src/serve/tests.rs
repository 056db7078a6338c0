use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::fd::OwnedFd;

use axum::routing::get;
use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::*;
use crate::admin;
use crate::clock::ManualClock;
use crate::testing::{beside, kit};

const LIMIT: usize = 6;
const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
const KEPT_ALIVE: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
/// Nothing here takes that long: a test that would wait forever fails.
const HANG_TIMEOUT: Duration = Duration::from_secs(30);

struct Port {
    address: SocketAddr,
    clock: ManualClock,
    shutdown: CancellationToken,
}

async fn start(router: Router, clock: &ManualClock) -> Port {
    start_with(router, clock, Options::default()).await
}

async fn start_with(router: Router, clock: &ManualClock, options: Options) -> Port {
    let listener = bind("address", ([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let options = Options {
        connections: LIMIT,
        ..options
    };
    beside(serve_with(listener, router, options, clock.shared(), shutdown.clone()).map(drop));
    Port {
        address,
        clock: clock.clone(),
        shutdown,
    }
}

async fn hello() -> Port {
    let router = Router::new().route("/", get(async || "hello\n"));
    start(router, &ManualClock::default()).await
}

impl Port {
    /// Connects from 127.0.0.`peer` and sends `text`.
    async fn connect(&self, peer: u8, text: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, peer], 0).into()).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Connects from 127.0.0.`peer`, sends `text` and reads until the server closes the connection.
    async fn ask(&self, peer: u8, text: &str) -> String {
        let mut stream = self.connect(peer, text).await;
        let mut response = Vec::new();
        let read = tokio::time::timeout(HANG_TIMEOUT, stream.read_to_end(&mut response));
        read.await.expect("a response").unwrap();
        String::from_utf8(response).unwrap()
    }
}

/// Waits for a response to begin.
async fn answered(stream: &mut TcpStream) {
    let mut begin = [0; 8];
    let read = tokio::time::timeout(HANG_TIMEOUT, stream.read_exact(&mut begin));
    read.await.expect("a response").unwrap();
}

/// Waits until the server closes the connection.
async fn closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(HANG_TIMEOUT, stream.read_to_end(&mut rest));
    // A reset is an end, too.
    let _ = read.await.expect("the end of the connection");
}

#[tokio::test]
async fn it_serves_until_shutdown() {
    let port = hello().await;
    assert!(port.ask(1, REQUEST).await.ends_with("\r\n\r\nhello\n"));
    let mut open = port.connect(1, KEPT_ALIVE).await;
    answered(&mut open).await;
    port.shutdown.cancel();
    // An idle connection does not delay the end.
    closed(open).await;
    assert!(TcpStream::connect(port.address).await.is_err());
}

/// The strangers of a port: connections that say nothing, that stop in the middle of a head, and that are kept alive.
#[derive(Default)]
struct Strangers(VecDeque<TcpStream>);

impl Strangers {
    /// Opens more connections than the port holds, from one address. As many as before stay open on this side.
    async fn arrive(&mut self, port: &Port, peer: u8) {
        for number in 0..LIMIT + 4 {
            let text = ["", "GET / HT", KEPT_ALIVE][number % 3];
            let mut stream = port.connect(peer, text).await;
            if text == KEPT_ALIVE {
                answered(&mut stream).await;
            }
            self.0.push_back(stream);
        }
        let many = self.0.len().saturating_sub(3 * LIMIT);
        self.0.drain(..many);
    }
}

#[tokio::test]
async fn strangers_on_every_port_delay_no_probe_all_night() {
    let (kit, clock) = kit();
    let health = start(admin::health(kit.clone()), &clock).await;
    let admin = start(admin::router(kit), &clock).await;
    let other = start(Router::new(), &clock).await;
    let mut strangers = [(); 3].map(|()| Strangers::default());
    let probe = REQUEST.replace("/ ", "/healthz ");
    let scrape = REQUEST.replace("/ ", "/metrics ");
    // A probe each minute for eight hours. The clock stands still while it is under way, so it waits for no time limit.
    for _ in 0..8 * 60 {
        // Those on the health port have the kubelet's own address.
        for ((port, peer), strangers) in [(&health, 1), (&admin, 2), (&other, 2)].into_iter().zip(&mut strangers) {
            strangers.arrive(port, peer).await;
        }
        assert!(health.ask(1, &probe).await.ends_with("\r\n\r\nok\n"));
        assert!(admin.ask(3, &scrape).await.contains("tidewaiter_leader"));
        clock.advance(Duration::from_mins(1));
    }
}

#[tokio::test]
async fn a_peer_closes_no_connection_of_another_peer() {
    let port = hello().await;
    let mut quiet = port.connect(2, KEPT_ALIVE).await;
    answered(&mut quiet).await;
    let mut strangers = Strangers::default();
    for _ in 0..3 {
        strangers.arrive(&port, 3).await;
    }
    quiet.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut rest = String::new();
    quiet.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest.matches("hello").count(), 2, "{rest}");
}

/// After a stall, or in a flood, more connections wait to be accepted than the port holds.
#[tokio::test]
async fn every_request_that_waits_to_be_accepted_is_answered() {
    let listener = bind("address", ([127, 0, 0, 1], 0).into()).await.unwrap();
    let (clock, shutdown) = (ManualClock::default(), CancellationToken::new());
    let port = Port {
        address: listener.local_addr().unwrap(),
        clock: clock.clone(),
        shutdown: shutdown.clone(),
    };
    let mut waiting = Vec::new();
    for _ in 0..20 * LIMIT {
        waiting.push(port.connect(1, REQUEST).await);
    }
    let options = Options {
        connections: LIMIT,
        ..Options::default()
    };
    let router = Router::new().route("/", get(async || "hello\n"));
    beside(serve_with(listener, router, options, clock.shared(), shutdown).map(drop));
    for (number, mut stream) in waiting.into_iter().enumerate() {
        let mut response = String::new();
        let read = tokio::time::timeout(HANG_TIMEOUT, stream.read_to_string(&mut response));
        let read = read.await.expect("the end of the connection");
        assert!(
            read.is_ok() && response.ends_with("hello\n"),
            "{number}: {read:?} {response}"
        );
    }
}

#[tokio::test]
async fn a_connection_without_a_whole_request_is_closed() {
    let port = hello().await;
    let silent = port.connect(1, "").await;
    let half = port.connect(1, "GET / HT").await;
    let mut idle = port.connect(1, KEPT_ALIVE).await;
    answered(&mut idle).await;
    // Each has a time limit for the head and one for its life.
    port.clock.sleeping(6).await;
    port.clock.advance(HEAD_TIMEOUT);
    for stream in [silent, half, idle] {
        closed(stream).await;
    }
}

#[tokio::test]
async fn the_first_request_has_a_time_limit_of_its_own() {
    let listener = bind("address", ([127, 0, 0, 1], 0).into()).await.unwrap();
    let (clock, shutdown) = (ManualClock::default(), CancellationToken::new());
    let port = Port {
        address: listener.local_addr().unwrap(),
        clock: clock.clone(),
        shutdown: shutdown.clone(),
    };
    let options = Options {
        first: Duration::from_secs(10),
        head: Duration::from_hours(1),
        life: None,
        ..Options::default()
    };
    let router = Router::new().route("/", get(async || "hello\n"));
    beside(serve_with(listener, router, options, clock.shared(), shutdown).map(drop));
    let silent = port.connect(1, "").await;
    let half = port.connect(1, "GET / HT").await;
    let mut asked = port.connect(1, KEPT_ALIVE).await;
    answered(&mut asked).await;
    port.clock.sleeping(6).await;
    port.clock.advance(Duration::from_secs(10));
    closed(silent).await;
    closed(half).await;
    asked.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut rest = String::new();
    asked.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest.matches("hello").count(), 2, "{rest}");
}

#[tokio::test]
async fn no_connection_lives_longer_than_its_limit() {
    let listener = bind("address", ([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (clock, shutdown) = (ManualClock::default(), CancellationToken::new());
    let options = Options {
        first: Duration::from_hours(1),
        head: Duration::from_hours(1),
        ..Options::default()
    };
    beside(serve_with(listener, Router::new(), options, clock.shared(), shutdown).map(drop));
    let stream = TcpStream::connect(address).await.unwrap();
    clock.sleeping(2).await;
    clock.advance(CONNECTION_LIFE);
    closed(stream).await;
}

#[tokio::test]
async fn shutdown_ends_the_delay_after_an_accept_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    // A socket that listens no more: each accept fails.
    let socket = std::net::TcpStream::from(OwnedFd::from(listener.try_clone().unwrap()));
    socket.shutdown(Shutdown::Both).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let (clock, shutdown) = (ManualClock::default(), CancellationToken::new());
    let served = beside(serve_with(
        listener,
        Router::new(),
        Options::default(),
        clock.shared(),
        shutdown.clone(),
    ));
    clock.sleeping(1).await;
    shutdown.cancel();
    // The clock never moves.
    let ended = tokio::time::timeout(HANG_TIMEOUT, served).await;
    ended.expect("the end of the server").unwrap().unwrap();
}

#[tokio::test]
async fn an_address_in_use_is_reported_with_its_setting() {
    let first = bind("metricsAddress", ([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = first.local_addr().unwrap();
    let error = bind("metricsAddress", address).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("metricsAddress is {address}: cannot listen there")
    );
}

/// The beginning of a head, of `bytes`.
fn unfinished(bytes: usize) -> String {
    let begin = "GET / HTTP/1.1\r\nhost: x\r\na: ";
    begin.to_owned() + &"b".repeat(bytes - begin.len())
}

#[tokio::test]
async fn a_head_of_more_than_16_kib_is_refused() {
    let port = hello().await;
    let (fits, exceeds) = (unfinished(15 * 1024), unfinished(MAX_HEAD_BYTES));
    let end = "\r\nconnection: close\r\n\r\n";
    assert!(port.ask(1, &format!("{fits}{end}")).await.ends_with("\r\n\r\nhello\n"));
    assert!(port.ask(1, &exceeds).await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn unfinished_heads_are_limited_over_all_connections() {
    let echo = async |body: String| body.len().to_string();
    let router = Router::new().route("/", get(async || "hello\n").post(echo));
    let options = Options {
        heads: 6 * 1024,
        ..Options::default()
    };
    let port = start_with(router, &ManualClock::default(), options).await;
    let end = "\r\nconnection: close\r\n\r\n";
    let fits = unfinished(9 * 1024) + end;
    for _ in 0..3 {
        assert!(port.ask(1, &fits).await.ends_with("\r\n\r\nhello\n"));
    }
    closed(port.connect(1, &unfinished(14 * 1024)).await).await;
    // The bytes of the closed connection are free again.
    assert!(port.ask(1, &fits).await.ends_with("\r\n\r\nhello\n"));
    // A body is no head.
    let body = "b".repeat(64 * 1024);
    let upload = format!("POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 65536\r\n\r\n{body}");
    assert!(port.ask(1, &upload).await.ends_with("\r\n\r\n65536"));
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_closed() {
    let body = vec![0_u8; 64 * 1024 * 1024];
    let router = Router::new().route("/", get(async move || body.clone()));
    let clock = ManualClock::default();
    let options = Options {
        life: None,
        ..Options::default()
    };
    let port = start_with(router, &clock, options).await;
    let mut stream = port.connect(1, KEPT_ALIVE).await;
    answered(&mut stream).await;
    // The time for the first request, and the write that waits.
    clock.sleeping(2).await;
    clock.advance(readers::STALLED_READ_TIMEOUT);
    let mut rest = Vec::new();
    let read = tokio::time::timeout(HANG_TIMEOUT, stream.read_to_end(&mut rest));
    // A reset is an end, too.
    let _ = read.await.expect("the end of the connection");
    assert!(rest.len() < 63 * 1024 * 1024, "{}", rest.len());
}

/// Serves the address of the client, and that of the proxy which named it; 127.0.0.2 is a proxy.
async fn behind_a_proxy(tls: Option<Arc<ServerConfig>>) -> Port {
    let ends = async |request: Request<axum::body::Body>| {
        let Peer(peer) = *request.extensions().get::<Peer>().unwrap();
        let proxy = request.extensions().get::<ProxiedBy>();
        format!("{} {:?}", peer.ip(), proxy.map(|ProxiedBy(proxy)| proxy.ip()))
    };
    let options = Options {
        proxies: vec!["127.0.0.2/32".parse().unwrap()],
        tls,
        ..Options::default()
    };
    start_with(Router::new().route("/", get(ends)), &ManualClock::default(), options).await
}

#[tokio::test]
async fn only_a_proxy_names_its_client() {
    let port = behind_a_proxy(None).await;
    let header = "PROXY TCP4 192.0.2.1 10.0.0.1 4711 3990\r\n";
    let named = port.ask(2, &format!("{header}{REQUEST}")).await;
    assert!(named.ends_with("\r\n\r\n192.0.2.1 Some(127.0.0.2)"), "{named}");
    let own = port.ask(2, &format!("PROXY UNKNOWN\r\n{REQUEST}")).await;
    assert!(own.ends_with("\r\n\r\n127.0.0.2 None"), "{own}");
    let direct = port.ask(3, REQUEST).await;
    assert!(direct.ends_with("\r\n\r\n127.0.0.3 None"), "{direct}");
    let forged = port.ask(3, &format!("{header}{REQUEST}")).await;
    assert!(forged.starts_with("HTTP/1.1 400 "), "{forged}");
    closed(port.connect(2, REQUEST).await).await;
}

#[tokio::test]
async fn a_client_behind_a_proxy_closes_no_connection_of_another_client() {
    let port = behind_a_proxy(None).await;
    let from = |client: u8| format!("PROXY TCP4 192.0.2.{client} 10.0.0.1 4711 3990\r\n{KEPT_ALIVE}");
    let mut quiet = port.connect(2, &from(1)).await;
    answered(&mut quiet).await;
    let mut flood = Vec::new();
    for _ in 0..2 * LIMIT {
        let mut stream = port.connect(2, &from(3)).await;
        answered(&mut stream).await;
        flood.push(stream);
    }
    quiet.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut rest = String::new();
    quiet.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest.matches("192.0.2.1 Some(127.0.0.2)").count(), 2, "{rest}");
    // The flooder has lost its own.
    closed(flood.swap_remove(0)).await;
}

#[tokio::test]
async fn a_proxy_that_sends_no_header_in_time_is_closed() {
    let port = behind_a_proxy(None).await;
    let (silent, half) = (port.connect(2, "").await, port.connect(2, "PROXY TCP4 192.0.2.1").await);
    port.clock.sleeping(2).await;
    port.clock.advance(HEAD_TIMEOUT);
    closed(silent).await;
    closed(half).await;
}

#[tokio::test]
async fn the_handshake_follows_the_header_of_a_proxy() {
    let tls = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tls.pem");
    let mut file = std::fs::File::create(&path).unwrap();
    for pem in [tls.cert.pem(), tls.signing_key.serialize_pem()] {
        std::io::Write::write_all(&mut file, pem.as_bytes()).unwrap();
    }
    let config = Certificate::load(&path, &path).unwrap().config().unwrap();
    let port = behind_a_proxy(Some(config)).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(tls.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = tokio_rustls::TlsConnector::from(Arc::new(client));
    let stream = port.connect(2, "PROXY TCP4 192.0.2.1 10.0.0.1 4711 3990\r\n").await;
    let mut stream = client.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    // An end without a farewell is an end, too.
    let _ = stream.read_to_end(&mut response).await;
    let response = String::from_utf8(response).unwrap();
    assert!(response.ends_with("\r\n\r\n192.0.2.1 Some(127.0.0.2)"), "{response}");
}
