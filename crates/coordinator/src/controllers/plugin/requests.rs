//! Requests of one plugin at the same time: few at first, and one more with each that ends. Reads begin with more,
//! because admission webhooks do not keep them waiting.
//!
//! A plugin whose requests hang, at a webhook for example, takes few permits from the other plugins. One whose requests
//! are answered has so many under way that the API server is not waiting for it.

use futures::stream::{FuturesUnordered, StreamExt as _};

/// Writes at once before any has ended.
const FEW: usize = 4;
/// The limit of concurrent reads: a quarter of the permits of the controller.
const FEW_READS: usize = 8;
/// The most at once: three quarters of the permits of the controller.
const MOST: usize = 24;

/// Performs writes; the results come in any order.
pub(super) async fn write<F: Future>(requests: impl Iterator<Item = F>) -> Vec<F::Output> {
    perform(requests, FEW).await
}

/// Performs reads; the results come in any order.
pub(super) async fn read<F: Future>(requests: impl Iterator<Item = F>) -> Vec<F::Output> {
    perform(requests, FEW_READS).await
}

/// Each request is made when its turn comes.
async fn perform<F: Future>(mut waiting: impl Iterator<Item = F>, few: usize) -> Vec<F::Output> {
    let (mut under_way, mut results) = (FuturesUnordered::new(), Vec::new());
    let mut most = few;
    loop {
        under_way.extend(waiting.by_ref().take(most - under_way.len()));
        let Some(result) = under_way.next().await else {
            return results;
        };
        results.push(result);
        most = MOST.min(most + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::{FutureExt as _, pending};
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn there_are_more_at_once_as_they_end() {
        let (under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let request = async |number: usize| {
            most.fetch_max(under_way.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            yield_now().await;
            under_way.fetch_sub(1, Ordering::Relaxed);
            number
        };
        let mut done = write((0..500).map(request)).await;
        done.sort_unstable();
        assert_eq!((done, most.into_inner()), ((0..500).collect(), MOST));
    }

    #[tokio::test]
    async fn few_are_under_way_while_none_ends() {
        let begun = AtomicUsize::new(0);
        let hang = async || {
            begun.fetch_add(1, Ordering::Relaxed);
            pending::<()>().await;
        };
        let all = || (0..500).map(|_| hang());
        assert!(write(all()).now_or_never().is_none());
        assert_eq!(begun.swap(0, Ordering::Relaxed), FEW);
        assert!(read(all()).now_or_never().is_none());
        assert_eq!(begun.into_inner(), FEW_READS);
    }
}
