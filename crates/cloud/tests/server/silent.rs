//! A database that goes silent: connections stay open, and nothing comes back on them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tidewaiter_kit::clock::{Clock as _, SystemClock};
use tidewaiter_testkit::{Postgres, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use url::Url;

use crate::fixture;
use crate::world::{World, beside};

/// How soon writes must come back.
const BACK: Duration = Duration::from_secs(10);

/// Forwards connections. Those that were opened before `silence` forward nothing afterwards, as behind a load balancer that
/// forgot them; later ones are forwarded.
struct Proxy {
    address: SocketAddr,
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
    async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silence, heard) = watch::channel(0);
        beside(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(server).await else {
                    continue;
                };
                let (from, to) = client.into_split();
                let (back, forth) = server.into_split();
                let opened = *heard.borrow();
                beside(forward(from, forth, heard.clone(), opened));
                beside(forward(back, to, heard.clone(), opened));
            }
        });
        Self { address, silence }
    }

    fn silence(&self) {
        self.silence.send_modify(|now| *now += 1);
    }
}

#[tokio::test]
async fn writes_come_back_soon_after_the_database_went_silent() {
    let postgres = Postgres::shared().await;
    let database = postgres.create_database().await;
    let mut url: Url = postgres.url(&database).parse().unwrap();
    let server = (url.host_str().unwrap().to_owned(), url.port().unwrap_or(5432));
    let server = tokio::net::lookup_host(server).await.unwrap().next().unwrap();
    let proxy = Proxy::before(server).await;
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(proxy.address.port())).unwrap();
    let world = World::begun(url, Arc::new(tempfile::tempdir().unwrap())).await;
    let owner = world.owner().await;
    let write = async |name: &str| world.post(&owner, "~/registries", fixture::registry(name)).await;
    write("first").await.is(201);
    // All connections of the pool are in use, and writes are on the way.
    for turn in 0..3 {
        let reads = join_all((0..16).map(|_| world.get(&owner, "/v3/account/tokens")));
        let names: Vec<String> = (0..16).map(|number| format!("{turn}-{number}")).collect();
        let writes = join_all(names.iter().map(|name| write(name)));
        let silence = async { proxy.silence() };
        let began = SystemClock.monotonic();
        let (_, acknowledged, ()) = futures::join!(reads, writes, silence);
        eventually("a write", BACK, async || {
            let answer = write(&format!("after {turn}")).await;
            if [201, 409].contains(&answer.status.as_u16()) {
                Ok(())
            } else {
                Err(answer.body)
            }
        })
        .await;
        let took = SystemClock.monotonic().saturating_sub(began);
        assert!(took < BACK, "{took:?}");
        // What was acknowledged is there.
        let listed = eventually("a list", BACK, async || {
            let answer = world.get(&owner, "~/registries").await;
            if answer.status == 200 {
                Ok(answer.body)
            } else {
                Err(answer.body)
            }
        })
        .await;
        for (name, answer) in names.iter().zip(acknowledged) {
            assert!(
                answer.status != 201 || listed.contains(&format!("\"{name}\"")),
                "{name}"
            );
        }
        eventually("readiness", BACK, async || {
            let answer = world.get("", "/readyz").await;
            if answer.status == 200 { Ok(()) } else { Err(answer.body) }
        })
        .await;
    }
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    world.get(&made.field("api_key"), "~/users").await.is(200);
}
