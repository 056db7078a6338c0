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
    let mut done = perform_writes((0..500).map(request)).await;
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
    assert!(perform_writes(all()).now_or_never().is_none());
    assert_eq!(begun.swap(0, Ordering::Relaxed), FEW);
    assert!(perform_reads(all()).now_or_never().is_none());
    assert_eq!(begun.into_inner(), FEW_READS);
}
