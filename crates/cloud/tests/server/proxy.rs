//! A proxy before a PostgreSQL that goes silent. The tests of the binary use it too.
#![allow(clippy::disallowed_methods, reason = "it ends with the test's runtime")]

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use url::Url;

/// Forwards connections. Those that were opened before `silence` forward nothing afterwards, as behind a load balancer that
/// forgot them; later ones are forwarded.
pub struct Proxy {
    silence: watch::Sender<u64>,
}

/// Copies until the connection is silenced.
async fn forward(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    mut silence: watch::Receiver<u64>,
    opened: u64,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            biased;
            silenced = async { silence.wait_for(|now| *now > opened).await.is_ok() } => Err(silenced),
            read = from.read(&mut buffer) => Ok(read),
        };
        let read = match read {
            Err(true) => std::future::pending().await,
            Ok(Ok(read @ 1..)) => read,
            _ => return,
        };
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
        let (silence, heard) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else {
                    continue;
                };
                let (from, to) = client.into_split();
                let (back, forth) = server.into_split();
                let opened = *heard.borrow();
                tokio::spawn(forward(from, forth, heard.clone(), opened));
                tokio::spawn(forward(back, to, heard.clone(), opened));
            }
        });
        Self { silence }
    }

    /// Nothing more comes through the connections that are open.
    pub fn silence(&self) {
        self.silence.send_modify(|now| *now += 1);
    }
}
