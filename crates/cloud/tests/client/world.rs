//! A server that answers bytes, and a client of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewaiter_cloud::client::{BaseUrl, Client, ClientSettings, Cluster, Fetched, Listing};
use tidewaiter_cloud::models::ClusterLabel;
use tidewaiter_kit::SharedClock;
use tidewaiter_testkit::eventually;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

/// The token, which no answer, error or `Debug` may contain.
pub const TOKEN: &str = "twk_0123456789abcdef_hunter2hunter2";
/// The timeout of an attempt.
pub const LIMIT: Duration = Duration::from_secs(7);
pub const LONG: Duration = Duration::from_mins(1);

pub const LABEL: &str = r#"{"id":"9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e","created_at":"1551441600000","updated_at":"1551441600000","key":"cluster.containership.io/a","value":"b"}"#;

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Seen {
    pub head: String,
    pub body: String,
}

impl Seen {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// The server's reaction to a request.
pub enum Reply {
    /// Writes these bytes and closes.
    Bytes(Vec<u8>),
    /// Writes what comes, and closes when nothing can come any more.
    Live(mpsc::UnboundedReceiver<String>),
    /// Says nothing, for ever.
    Silence,
}

/// Runs `future` beside the test; ends with the test's runtime.
#[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
pub fn beside(future: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(future);
}

pub struct Server {
    pub port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

type Script = Arc<dyn Fn(usize, &Seen) -> Reply + Send + Sync>;

impl Server {
    /// Answers each request by its number, from 0.
    pub async fn start(script: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(None, script).await
    }

    pub async fn start_with(
        tls: Option<TlsAcceptor>,
        script: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, script): (Arc<Mutex<Vec<Seen>>>, Script) = (Arc::default(), Arc::new(script));
        let all = Arc::clone(&seen);
        beside(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, script, tls) = (Arc::clone(&all), Arc::clone(&script), tls.clone());
                beside(async move {
                    match tls {
                        None => answer(stream, &seen, &script).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                answer(stream, &seen, &script).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, seen }
    }

    /// Starts a server that answers every request with `reply`.
    pub async fn always(reply: impl Into<Vec<u8>>) -> Self {
        let bytes = reply.into();
        Self::start(move |_, _| Reply::Bytes(bytes.clone())).await
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The requests, once there are `count`.
    pub async fn requests(&self, count: usize) -> Vec<Seen> {
        eventually(format_args!("{count} requests"), LONG, async || {
            let seen = self.seen();
            if seen.len() >= count {
                Ok(seen)
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await
    }

    pub fn settings(&self) -> ClientSettings {
        settings(&self.url())
    }

    pub fn client(&self, clock: SharedClock) -> Client {
        Client::new(&self.settings(), clock).unwrap()
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: &Mutex<Vec<Seen>>, script: &Script) {
    let mut read = Vec::new();
    let (head, length) = loop {
        if stream.read_buf(&mut read).await.unwrap_or_default() == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let seen = Seen {
                head: head.to_owned(),
                body: String::new(),
            };
            let length: usize = seen
                .header("content-length")
                .map_or(0, |length| length.parse().unwrap());
            break (seen.head, length);
        }
    };
    let start = head.len() + 4;
    while read.len() < start + length {
        stream.read_buf(&mut read).await.unwrap();
    }
    let request = Seen {
        head,
        body: String::from_utf8_lossy(&read[start..]).into_owned(),
    };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(request.clone());
        seen.len() - 1
    };
    match script(number, &request) {
        Reply::Bytes(bytes) => drop(stream.write_all(&bytes).await),
        Reply::Live(mut parts) => {
            while let Some(part) = parts.recv().await {
                if stream.write_all(part.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        }
        Reply::Silence => std::future::pending().await,
    }
    let _ = stream.shutdown().await;
}

pub fn settings(base: &str) -> ClientSettings {
    let mut settings = ClientSettings::new(base.parse::<BaseUrl>().unwrap());
    settings.token = Some(TOKEN.parse().unwrap());
    settings.timeout = LIMIT;
    // On a hurried clock, no read is hedged.
    settings.hedge_after = LIMIT;
    settings
}

/// An answer with a body of the right length.
pub fn whole(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub fn ok(body: &str) -> String {
    whole("200 OK", "content-type: application/json\r\netag: \"7\"\r\n", body)
}

pub fn failure(status: &str, headers: &str) -> String {
    let code = &status[..3];
    whole(
        status,
        &format!("content-type: application/json\r\n{headers}"),
        &format!(r#"{{"code":{code},"message":"because"}}"#),
    )
}

pub fn cluster() -> Cluster {
    Cluster {
        organization: "11111111-1111-4111-8111-111111111111".parse().unwrap(),
        id: "22222222-2222-4222-8222-222222222222".parse().unwrap(),
    }
}

/// The labels of the cluster: how many there are, or how that failed, said in full.
pub async fn labels(client: &Client) -> Result<usize, (tidewaiter_cloud::client::ClientError, String)> {
    let listing: Result<Listing<ClusterLabel>, _> = client.list(cluster().labels(), None).await;
    match listing {
        Ok(Fetched::Complete { value, .. }) => Ok(value.len()),
        Ok(Fetched::Unchanged) => panic!("nothing was known before"),
        Err(error) => {
            let said = format!("{} {error:?}", tidewaiter_kit::Chain(&error));
            assert!(!said.contains("hunter2"), "{said}");
            Err((error, said))
        }
    }
}
