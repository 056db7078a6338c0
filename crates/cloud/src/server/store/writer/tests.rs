use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use tidewaiter_kit::ManualClock;

use super::*;
use crate::server::store::{Opened, Store};

const WRITES: usize = 60;
const EACH: Duration = Duration::from_millis(3);

/// Writes that take [`EACH`] wait together. Returns how many were performed when the first one was answered.
async fn performed_before_the_first_answer(overhead: Duration) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/cloud.db", folder.path().display());
    let clock = ManualClock::new("2026-11-24T03:00:00Z".parse().unwrap());
    let opened = Store::open(&url.parse().unwrap(), Arc::new(clock.clone())).await;
    let Opened { store, mut writer, .. } = opened.unwrap();
    writer.overhead = overhead;
    let performed = Arc::new(AtomicUsize::new(0));
    let writes = (0..WRITES).map(|_| async {
        let (clock, counted) = (clock.clone(), Arc::clone(&performed));
        let write = store.write(Author::default(), async move |_| {
            clock.advance(EACH);
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        write.await.unwrap();
        performed.load(Ordering::SeqCst)
    });
    let shutdown = CancellationToken::new();
    let answered = async {
        let seen = join_all(writes).await;
        shutdown.cancel();
        seen
    };
    let (seen, _) = tokio::join!(answered, writer.run(shutdown.clone()));
    assert_eq!(performed.load(Ordering::SeqCst), WRITES);
    seen.into_iter().min().unwrap()
}

#[tokio::test]
async fn a_full_queue_is_committed_in_short_parts() {
    let performed = performed_before_the_first_answer(Duration::ZERO).await;
    assert!(performed <= 6, "{performed}");
}

#[tokio::test]
async fn where_a_commit_takes_long_it_takes_more_writes() {
    let performed = performed_before_the_first_answer(EACH * 30).await;
    assert!((30..=36).contains(&performed), "{performed}");
}
