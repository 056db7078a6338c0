//! Adds a body to the responses with which the HTTP library refuses what is not HTTP.
//!
//! hyper refuses a malformed or too long head itself, before a service sees the request, without a body, and has no hook for it. So its response is replaced
//! while it is written: only a write that is exactly such a response, a head without a body. If a later version of hyper writes it differently, the response has no
//! body again, and nothing else changes. A service that serves with this must not respond with one of these statuses and an empty body.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Makes the body, in JSON, of the response to what is not HTTP.
pub type Explain = fn(StatusCode) -> String;

/// The stream of a connection.
pub(super) struct Explained<S> {
    stream: S,
    explain: Option<Explain>,
    /// What is still to be written of a replaced response.
    rest: Vec<u8>,
}

impl<S> Explained<S> {
    /// Without `explain`, nothing is replaced.
    pub(super) fn new(stream: S, explain: Option<Explain>) -> Self {
        let rest = Vec::new();
        Self { stream, explain, rest }
    }

    /// The response in place of `written`, if that is one of the library's own.
    fn replaced(&self, written: &[u8]) -> Option<Vec<u8>> {
        with_body(written, self.explain?)
    }
}

impl<S: AsyncWrite + Unpin> Explained<S> {
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.rest.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.rest.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

fn with_body(written: &[u8], explain: Explain) -> Option<Vec<u8>> {
    let head = str::from_utf8(written.strip_suffix(b"\r\n\r\n")?).ok()?;
    let mut lines = head.split("\r\n");
    let first = lines.next()?;
    let status: StatusCode = first.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let is_own = [
        StatusCode::BAD_REQUEST,
        StatusCode::URI_TOO_LONG,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    ];
    let headers: Vec<&str> = lines.collect();
    let is_empty = headers
        .iter()
        .any(|header| header.eq_ignore_ascii_case("content-length: 0"));
    if !is_own.contains(&status) || !is_empty {
        return None;
    }
    let replaced = |header: &&str| {
        let name = header.split(':').next().unwrap_or_default();
        !["content-length", "connection"]
            .iter()
            .any(|other| name.eq_ignore_ascii_case(other))
    };
    let mut response = first.to_owned();
    for header in headers.into_iter().filter(replaced) {
        response += "\r\n";
        response += header;
    }
    let body = explain(status);
    response += "\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: ";
    response += &body.len().to_string();
    response += "\r\n\r\n";
    response += &body;
    Some(response.into_bytes())
}

impl<S: AsyncRead + Unpin> AsyncRead for Explained<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, read: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Explained<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_rest(context))?;
        if let Some(response) = this.replaced(bytes) {
            this.rest = response;
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut full = slices.iter().filter(|slice| !slice.is_empty());
        if let (Some(only), None) = (full.next(), full.next()) {
            return self.poll_write(context, only);
        }
        let this = self.get_mut();
        ready!(this.poll_rest(context))?;
        Pin::new(&mut this.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_rest(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_rest(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn body(status: StatusCode) -> String {
        format!("{{\"code\":{}}}", status.as_u16())
    }

    #[test]
    fn only_a_response_of_the_library_is_replaced() {
        let own = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: now\r\n\r\n";
        let replaced = with_body(own.as_bytes(), body).unwrap();
        let wanted = "HTTP/1.1 431 Request Header Fields Too Large\r\ndate: now\r\ncontent-type: application/json\r\n\
                      connection: close\r\ncontent-length: 12\r\n\r\n{\"code\":431}";
        assert_eq!(String::from_utf8(replaced).unwrap(), wanted);
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 12\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK",
            "data: HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            "\r\n\r\n",
            "",
        ] {
            assert_eq!(with_body(other.as_bytes(), body), None, "{other}");
        }
    }

    /// However little the other side takes at once, everything arrives in order.
    #[tokio::test]
    async fn a_replaced_response_is_written_as_a_whole() {
        let (ours, mut theirs) = tokio::io::duplex(7);
        let mut stream = Explained::new(ours, Some(body as Explain));
        let writing = async {
            stream.write_all(b"data").await.unwrap();
            let own = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            assert_eq!(
                stream
                    .write_vectored(&[IoSlice::new(b""), IoSlice::new(own)])
                    .await
                    .unwrap(),
                own.len()
            );
            stream.shutdown().await.unwrap();
        };
        let mut read = String::new();
        let (_, ()) = tokio::join!(theirs.read_to_string(&mut read), writing);
        assert!(read.starts_with("dataHTTP/1.1 400 Bad Request\r\n"), "{read}");
        assert!(read.ends_with("\r\n\r\n{\"code\":400}"), "{read}");
    }
}
