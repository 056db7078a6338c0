//! A forward proxy as companies run it: it leads `CONNECT` to one server, whatever the requested host, refuses
//! everything else, and records both.
//!
//! It lives in the runtime that it is made in, and ends when it is dropped.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::Scratch;

/// One head of a request, as it came: its first line, then its headers.
type Seen = Arc<Mutex<Vec<String>>>;

/// A running proxy.
#[derive(Debug)]
pub struct ConnectProxy {
    address: SocketAddr,
    seen: Seen,
    certificate: Option<(Scratch, PathBuf)>,
    _listening: JoinSet<()>,
}

impl ConnectProxy {
    /// One that leads to `target`.
    pub async fn start(target: SocketAddr) -> Self {
        Self::serve(target, None, None).await
    }

    /// The same behind TLS, with a certificate that only who trusts [`certificate`](Self::certificate) accepts.
    pub async fn start_with_tls(target: SocketAddr) -> Self {
        let scratch = Scratch::new("connect-proxy");
        let path = scratch.path().join("proxy.crt");
        let tls = self_signed("127.0.0.1", &path);
        Self::serve(target, Some(tls), Some((scratch, path))).await
    }

    async fn serve(target: SocketAddr, tls: Option<TlsAcceptor>, certificate: Option<(Scratch, PathBuf)>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let seen = Seen::default();
        let mut listening = JoinSet::new();
        listening.spawn(accept(listener, target, tls, Arc::clone(&seen)));
        Self {
            address,
            seen,
            certificate,
            _listening: listening,
        }
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file with its certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        let (_, path) = self.certificate.as_ref().expect("a proxy that was started with TLS");
        path.clone()
    }

    /// The heads of the requests so far: the first line, then the headers.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().clone()
    }
}

/// TLS with a new certificate for this name, which is written to `path`.
#[expect(clippy::disallowed_methods, reason = "nobody reads it yet")]
pub(crate) fn self_signed(name: &str, path: &Path) -> TlsAcceptor {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    let cert = params.self_signed(&key).expect("a certificate");
    std::fs::write(path, cert.pem()).expect("a file");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("a certificate and its key");
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(listener: TcpListener, target: SocketAddr, tls: Option<TlsAcceptor>, seen: Seen) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket option");
        let (tls, seen) = (tls.clone(), Arc::clone(&seen));
        connections.spawn(async move {
            match tls {
                None => answer(stream, target, &seen).await,
                Some(tls) => {
                    // A client that does not trust the certificate goes away.
                    if let Ok(stream) = tls.accept(stream).await {
                        answer(stream, target, &seen).await;
                    }
                }
            }
        });
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, target: SocketAddr, seen: &Seen) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head).trim_end().to_owned();
    let is_connect = head.starts_with("CONNECT ");
    seen.lock().push(head);
    // A connection that breaks is the client's to notice.
    if is_connect {
        let mut server = TcpStream::connect(target).await.expect("the server is there");
        server.set_nodelay(true).expect("a socket option");
        let _ = stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
    } else {
        let _ = stream
            .write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await;
    }
}
