//! A client with little overhead: one persistent connection, one request at a time, its bytes prepared before.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection.
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub etag: Option<String>,
    pub cookie: Option<String>,
    pub body: String,
}

/// A request as it goes over the wire.
pub fn request(method: &str, path: &str, token: &str, more: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let content = if body.is_empty() {
        String::new()
    } else {
        format!("content-type: application/json\r\ncontent-length: {length}\r\n")
    };
    format!("{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: JWT {token}\r\n{more}{content}\r\n{body}")
        .into_bytes()
}

impl Wire {
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    pub async fn ask(&mut self, request: &[u8]) -> Result<Reply> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let end = loop {
            self.more().await?;
            if let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        let field = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.clone().find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length: usize = field("content-length").map_or(Ok(0), str::parse)?;
        let [etag, cookie] = ["etag", "set-cookie"].map(|name| field(name).map(str::to_owned));
        while self.buffer.len() < end + length {
            self.more().await?;
        }
        Ok(Reply {
            status: status.context("an answer has a status")?,
            etag,
            cookie,
            body: String::from_utf8_lossy(&self.buffer[end..]).into_owned(),
        })
    }

    /// Reads the next part; an end is an error.
    async fn more(&mut self) -> Result<()> {
        let read = self.stream.read_buf(&mut self.buffer).await?;
        anyhow::ensure!(read > 0, "the connection ended");
        Ok(())
    }

    /// Sends a request whose answer does not end, and waits for the first event.
    pub async fn listen(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        self.event("event: hello").await
    }

    /// Waits for an event.
    pub async fn event(&mut self, wanted: &str) -> Result<()> {
        while !contains(&self.buffer, wanted) {
            self.more().await?;
        }
        self.buffer.clear();
        self.buffer.shrink_to(0);
        Ok(())
    }

    /// Returns the next changes of a stream, one or several.
    pub async fn changes(&mut self) -> Result<String> {
        while !contains(&self.buffer, "event: change") || !contains(&self.buffer, "\n\n") {
            self.more().await?;
        }
        let text = String::from_utf8_lossy(&self.buffer).into_owned();
        self.buffer.clear();
        Ok(text)
    }
}

fn contains(buffer: &[u8], wanted: &str) -> bool {
    buffer.windows(wanted.len()).any(|bytes| bytes == wanted.as_bytes())
}
