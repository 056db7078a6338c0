//! Closes a connection whose client does not read its responses: else each such connection keeps a response in memory.
//!
//! Only the time counts in which bytes wait because the client, and the buffers of the kernel before it, take no more.
//! An idle stream, or one whose few bytes fit into the buffers, has no limit.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::heads::Head;
use crate::clock::SharedClock;

/// The total time in which a client may let bytes of one response wait until it has taken [`MIN_READ_BYTES`] of
/// them.
pub(super) const STALLED_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes that a client must take meanwhile: 16 KiB per second. The kernel reports progress only in steps of a
/// third of its buffer, so this and [`STALLED_READ_TIMEOUT`] are not small.
const MIN_READ_BYTES: usize = 480 * 1024;

/// The stream of a connection. Its writes fail when the client is too slow, and its reads when the unfinished heads are
/// too large.
pub(super) struct Paced<'a, S> {
    stream: S,
    head: &'a Head<'a>,
    clock: SharedClock,
    /// The time in which bytes waited, until a write that waits now.
    waited: Duration,
    /// The bytes that were taken meanwhile.
    taken: usize,
    /// Since when a write waits, and the end of the client's time.
    waits: Option<(Duration, BoxFuture<'static, ()>)>,
}

impl<'a, S> Paced<'a, S> {
    pub(super) fn new(stream: S, head: &'a Head<'a>, clock: SharedClock) -> Self {
        Self {
            stream,
            head,
            clock,
            waited: Duration::ZERO,
            taken: 0,
            waits: None,
        }
    }

    /// Measures the wait for a write, whose result is `written`.
    fn measure(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            if let Some((since, _)) = self.waits.take() {
                self.waited += self.clock.monotonic().saturating_sub(since);
            }
            if self.waited > Duration::ZERO {
                self.taken += bytes;
            }
            if self.taken >= MIN_READ_BYTES {
                (self.waited, self.taken) = (Duration::ZERO, 0);
            }
        }
        if written.is_ready() {
            return written;
        }
        let (clock, left) = (&self.clock, STALLED_READ_TIMEOUT.saturating_sub(self.waited));
        let (_, end) = self.waits.get_or_insert_with(|| (clock.monotonic(), clock.sleep(left)));
        match end.poll_unpin(context) {
            Poll::Ready(()) => {
                let error = "the client does not read its response at 16 KiB per second";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<'_, S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, read: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = read.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, read))?;
        Poll::Ready(if this.head.add(read.filled().len() - before) {
            Ok(())
        } else {
            Err(io::Error::other(
                "the unfinished heads of all connections are too large",
            ))
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<'_, S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.measure(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.measure(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A response is written completely before it is flushed.
        (this.waited, this.taken) = (Duration::ZERO, 0);
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::super::heads::Heads;
    use super::*;
    use crate::clock::ManualClock;

    /// A client whose buffers have `buffer` bytes, and the stream to it.
    fn client<'a>(buffer: usize, head: &'a Head<'a>) -> (ManualClock, Paced<'a, DuplexStream>, DuplexStream) {
        let clock = ManualClock::default();
        let (server, client) = duplex(buffer);
        (clock.clone(), Paced::new(server, head, clock.shared()), client)
    }

    #[tokio::test]
    async fn bytes_wait_only_so_long() {
        let heads = Heads::new(0);
        let head = Head::new(&heads);
        let (clock, mut server, mut client) = client(1024, &head);
        let mut written = Box::pin(server.write_all(&[0; 8 * 1024]));
        assert!(written.as_mut().now_or_never().is_none());
        // A byte now and then is too little.
        for _ in 0..3 {
            clock.advance(STALLED_READ_TIMEOUT / 4);
            client.read_exact(&mut [0; 1]).await.unwrap();
            assert!(written.as_mut().now_or_never().is_none());
        }
        clock.advance(STALLED_READ_TIMEOUT / 4);
        let ended = written.now_or_never().expect("its time is over");
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_takes_enough_takes_as_long_as_it_takes() {
        let heads = Heads::new(0);
        let head = Head::new(&heads);
        let (clock, mut server, mut client) = client(MIN_READ_BYTES, &head);
        let bytes = vec![0; 10 * MIN_READ_BYTES];
        let mut written = Box::pin(server.write_all(&bytes));
        for _ in 0..9 {
            assert!(written.as_mut().now_or_never().is_none());
            clock.advance(STALLED_READ_TIMEOUT.saturating_sub(Duration::from_millis(1)));
            client.read_exact(&mut vec![0; MIN_READ_BYTES]).await.unwrap();
        }
        written.now_or_never().expect("all is written").unwrap();
    }

    #[tokio::test]
    async fn the_time_between_writes_does_not_count() {
        let heads = Heads::new(0);
        let head = Head::new(&heads);
        let (clock, mut server, mut client) = client(1024, &head);
        // A stream with an event that does not fit at once, each hour.
        for _ in 0..100 {
            // The runtime makes a task wait that is ready too often.
            tokio::task::yield_now().await;
            let mut written = Box::pin(async {
                server.write_all(&[0; 1025]).await?;
                server.flush().await
            });
            assert!(written.as_mut().now_or_never().is_none());
            clock.advance(Duration::from_secs(1));
            client.read_exact(&mut [0; 1024]).await.unwrap();
            written.now_or_never().expect("it is written").unwrap();
            client.read_exact(&mut [0; 1]).await.unwrap();
            clock.advance(Duration::from_hours(1));
        }
    }
}
