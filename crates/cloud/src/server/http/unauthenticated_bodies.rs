//! The bodies of requests without a known caller, while they arrive.
//!
//! Addresses are cheap, so these bodies share no budget for which one would wait until others arrive. Instead, each new
//! one takes the place of the oldest: an honest body arrives before thousands of others can begin.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::server::refusal::Refusal;

/// The maximum number of bodies that arrive concurrently. Each has at most 8 KiB.
const MOST: usize = 4096;

/// The bodies in progress of requests without a known caller, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct UnauthenticatedBodies(Mutex<VecDeque<oneshot::Sender<()>>>);

impl UnauthenticatedBodies {
    /// Returns the result of `read`, unless so many others begin meanwhile that one of them needs its place.
    pub(crate) async fn read<T>(&self, read: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        let (place, displaced) = oneshot::channel();
        {
            let mut places = self.0.lock();
            // A body that has arrived keeps its place, so that fewer than these may be in progress, but never more.
            if places.len() == MOST {
                places.pop_front();
            }
            places.push_back(place);
        }
        tokio::select! {
            biased;
            read = read => read,
            _ = displaced => Err(overtaken()),
        }
    }
}

fn overtaken() -> Refusal {
    let message = format!("the body arrived later than those of {MOST} other requests: try again in 1 second");
    Refusal::too_many(message, 1)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::poll;
    use http::StatusCode;

    use super::*;

    #[tokio::test]
    async fn a_body_waits_for_no_other_and_the_oldest_makes_room() {
        let bodies = UnauthenticatedBodies::default();
        let unfinished = || Box::pin(bodies.read(pending::<Result<(), _>>()));
        let mut all: Vec<_> = (0..=MOST).map(|_| unfinished()).collect();
        for body in &mut all {
            assert!(poll!(body).is_pending());
        }
        bodies.read(async { Ok(()) }).await.unwrap();
        let mut all = all.into_iter();
        for oldest in all.by_ref().take(2) {
            assert_eq!(oldest.await.unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        }
        for mut body in all {
            assert!(poll!(&mut body).is_pending());
        }
    }
}
