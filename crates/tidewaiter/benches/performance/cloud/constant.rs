//! As many requests as the two cores take for lists that did not change, next to axum alone, which answers the same
//! without a thought. Both are processes of their own, and the same client asks both.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::routing::get;
use futures::future::try_join_all;
use http::StatusCode;
use http::header::ETAG;
use serde::Serialize;
use tidewaiter_testkit::{Process, Program, eventually, free_port};

use super::server::Cloud;
use super::wire::{Wire, request};
use crate::report::count;

const CLIENTS: usize = 2;
const CONNECTIONS: usize = 32;
const TIME: Duration = Duration::from_secs(5);
const TURNS: usize = 3;
const TAG: &str = "\"JzN2YzEyMzQ1Njc4OTAxMg\"";

/// Requests a second, turn by turn.
#[derive(Debug, Default, Serialize)]
pub struct Unchanged {
    pub server: Vec<f64>,
    pub constant: Vec<f64>,
}

/// Runs this program as the server that `--constant` starts.
pub async fn serve(port: u16) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let router = Router::new().fallback(get(async || (StatusCode::NOT_MODIFIED, [(ETAG, TAG)])));
    Ok(axum::serve(listener, router).await?)
}

pub async fn measure(cloud: &Cloud) -> Result<Unchanged> {
    let port = free_port();
    let program = Program::new(std::env::current_exe()?).name("constant");
    let _constant = Process::start(&cloud.scratch, program.arg("--constant").arg(port.to_string()));
    let constant: SocketAddr = ([127, 0, 0, 1], port).into();
    eventually("axum to answer", TIME, async || Wire::open(constant).await.map(drop)).await;
    let mut requests = Vec::new();
    for cluster in cloud.clusters.iter().take(CLIENTS * CONNECTIONS) {
        let mut wire = Wire::open(cloud.address).await?;
        let path = format!("{}/labels", cluster.path);
        let known = wire.ask(&request("GET", &path, &cluster.api_key, "", "")).await?;
        let known = format!("if-none-match: {}\r\n", known.etag.context("a list has an ETag")?);
        requests.push(request("GET", &path, &cluster.api_key, &known, ""));
    }
    let mut found = Unchanged::default();
    for _ in 0..TURNS {
        found.constant.push(rate(constant, &requests).await?);
        found.server.push(rate(cloud.address, &requests).await?);
    }
    Ok(found)
}

async fn rate(address: SocketAddr, requests: &[Vec<u8>]) -> Result<f64> {
    let clients = requests.chunks(CONNECTIONS).map(|requests| {
        let requests = requests.to_vec();
        async move { tokio::task::spawn_blocking(move || pump(address, &requests)).await? }
    });
    Ok(try_join_all(clients).await?.into_iter().sum())
}

/// Asks on all connections, then reads all answers, and again: two system calls for a request, and none to wait for
/// many.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
fn pump(address: SocketAddr, requests: &[Vec<u8>]) -> Result<f64> {
    let open = |request| {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok((stream, request))
    };
    let mut streams = requests
        .iter()
        .map(open)
        .collect::<Result<Vec<(TcpStream, &Vec<u8>)>>>()?;
    let (begin, mut done, mut buffer) = (Instant::now(), 0, [0; 2048]);
    while begin.elapsed() < TIME {
        for (stream, request) in &mut streams {
            stream.write_all(request)?;
        }
        for (stream, _) in &mut streams {
            let mut read = 0;
            while !buffer[..read].ends_with(b"\r\n\r\n") {
                let more = stream.read(&mut buffer[read..])?;
                ensure!(more > 0, "the connection ended");
                read += more;
            }
            ensure!(
                buffer.starts_with(b"HTTP/1.1 304"),
                "{}",
                String::from_utf8_lossy(&buffer[..read])
            );
            done += 1;
        }
    }
    Ok(count(done) / begin.elapsed().as_secs_f64())
}
