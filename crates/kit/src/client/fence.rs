//! The fence: a request body that yields no data unless this replica leads.
//!
//! hyper polls the body when it has a connection and writes to it. Between the call of a client and that moment lie the
//! wait for a connection and the TCP and TLS handshakes: a process that was stopped in between must not write
//! afterwards. One system call remains.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;

use crate::chain::causes;
use crate::leader::Leadership;

/// The error of a write that was refused because this replica does not lead. It was not sent.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not written: this replica is not the leader")]
pub struct Fenced;

/// True if a request failed because this replica does not lead: nothing was written.
#[must_use]
pub fn is_fenced(error: &kube::Error) -> bool {
    caused_by_fence(error)
}

pub(super) fn caused_by_fence(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(<dyn Error>::is::<Fenced>)
}

/// A request's body; that of a write with its fence.
pub(super) struct FencedBody {
    body: Body,
    fence: Option<Leadership>,
}

impl FencedBody {
    pub(super) fn read(body: Body) -> Self {
        Self { body, fence: None }
    }

    pub(super) fn write(body: Body, leadership: Leadership) -> Self {
        Self {
            body,
            fence: Some(leadership),
        }
    }
}

impl HttpBody for FencedBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Some(leadership) = &self.fence
            && !leadership.is_leader()
        {
            return Poll::Ready(Some(Err(Fenced.into())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
