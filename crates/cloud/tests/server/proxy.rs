//! A proxy before a PostgreSQL that goes silent. The tests of the binary use it too.
#![allow(clippy::disallowed_methods, reason = "it ends with the test's runtime")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use url::Url;

/// Forwards connections. Those that were opened before `silence` forward nothing afterwards, as behind a load balancer
/// that forgot them; later ones are forwarded.
pub struct Proxy {
    silence: watch::Sender<Silenced>,
}

/// The number of times that each was silenced.
#[derive(Clone, Copy, Default)]
struct Silenced {
    all: u64,
    /// The connections on which a client is notified.
    listening: u64,
}

/// Copies until the connection is silenced.
async fn forward(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    mut silence: watch::Receiver<Silenced>,
    opened: Silenced,
    listens: Arc<AtomicBool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    let is_silenced =
        |now: &Silenced| now.all > opened.all || (now.listening > opened.listening && listens.load(Ordering::SeqCst));
    loop {
        let read = tokio::select! {
            biased;
            silenced = async { silence.wait_for(is_silenced).await.is_ok() } => Err(silenced),
            read = from.read(&mut buffer) => Ok(read),
        };
        let read = match read {
            Err(true) => std::future::pending().await,
            Ok(Ok(read @ 1..)) => read,
            _ => return,
        };
        if buffer[..read].windows(7).any(|words| words == b"LISTEN ") {
            listens.store(true, Ordering::SeqCst);
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

impl Proxy {
    /// One before the server of `url`, which is changed to the address of the proxy.
    pub async fn before(url: &mut Url) -> Self {
        let server = (url.host_str().unwrap().to_owned(), url.port().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(address.port())).unwrap();
        let (silence, heard) = watch::channel(Silenced::default());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else {
                    continue;
                };
                let (from, to) = client.into_split();
                let (back, forth) = server.into_split();
                let opened = *heard.borrow();
                let listens = Arc::<AtomicBool>::default();
                tokio::spawn(forward(from, forth, heard.clone(), opened, Arc::clone(&listens)));
                tokio::spawn(forward(back, to, heard.clone(), opened, listens));
            }
        });
        Self { silence }
    }

    /// Nothing more comes through the connections that are open.
    pub fn silence(&self) {
        self.silence.send_modify(|now| now.all += 1);
    }

    /// The same for those on which a client is notified.
    #[allow(dead_code, reason = "the tests of the binary do not need it")]
    pub fn silence_listening(&self) {
        self.silence.send_modify(|now| now.listening += 1);
    }
}
