//! The permits to make a page, which may read lists of megabytes. They are none of the API: a page holds them while it
//! waits for permits of the API, and never the other way around.

use tidewaiter_kit::Clock;
use tokio::sync::OwnedSemaphorePermit;

use crate::server::http::permits::{CALLER_WAIT, Keyed};
use crate::server::refusal::Refusal;

/// The maximum number of pages that are made concurrently.
const PAGES: usize = 16;
/// The maximum number of pages that are made concurrently for one person.
const PAGES_BY_PERSON: usize = 2;

/// The permits to make pages.
pub(super) struct Pages {
    by_person: Keyed<String>,
    all: Keyed<()>,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            by_person: Keyed::new(PAGES_BY_PERSON, CALLER_WAIT),
            all: Keyed::new(PAGES, CALLER_WAIT),
        }
    }
}

impl Pages {
    /// Waits until the person has few enough other pages in progress.
    pub(super) async fn of_person(&self, clock: &dyn Clock, person: &str) -> Result<OwnedSemaphorePermit, Refusal> {
        self.by_person.wait(clock, &person.to_owned()).await
    }

    /// Waits until few enough other pages are in progress.
    pub(super) async fn of_all(&self, clock: &dyn Clock) -> Result<OwnedSemaphorePermit, Refusal> {
        self.all.wait(clock, &()).await
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use tidewaiter_kit::SystemClock;

    use super::*;

    #[tokio::test]
    async fn two_pages_of_a_person_and_sixteen_of_all_are_made_at_once() {
        let pages = Pages::default();
        let mut made = Vec::new();
        for person in 0..PAGES {
            made.push(pages.of_person(&SystemClock, &person.to_string()).await.unwrap());
            made.push(pages.of_all(&SystemClock).await.unwrap());
        }
        let mut next = Box::pin(pages.of_all(&SystemClock));
        assert!(poll!(&mut next).is_pending());
        made.push(pages.of_person(&SystemClock, "0").await.unwrap());
        let mut third = Box::pin(pages.of_person(&SystemClock, "0"));
        assert!(poll!(&mut third).is_pending());
        drop(made);
        drop(next.await.unwrap());
        drop(third.await.unwrap());
    }
}
