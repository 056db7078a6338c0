use futures::future::join_all;
use tidewaiter_kit::ManualClock;

use super::*;
use crate::server::store::{Opened, Store};

const WRITES: usize = 60;
const EACH: Duration = Duration::from_millis(3);

/// Writes that take [`EACH`] wait together. Returns how many were performed in the first commit.
async fn in_the_first_commit(overhead: Duration) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/cloud.db", folder.path().display());
    let clock = ManualClock::new("2026-11-24T03:00:00Z".parse().unwrap());
    let opened = Store::open(&url.parse().unwrap(), Arc::new(clock.clone())).await;
    let Opened { store, mut writer, .. } = opened.unwrap();
    writer.overhead = overhead;
    let writes = (0..WRITES).map(|_| {
        let clock = clock.clone();
        // All writes of a commit have the time of its begin.
        store.write(Author::default(), async move |transaction| {
            clock.advance(EACH);
            Ok(transaction.now())
        })
    });
    let shutdown = CancellationToken::new();
    let answered = async {
        let times = join_all(writes).await;
        shutdown.cancel();
        times
    };
    let (times, _) = tokio::join!(answered, writer.run(shutdown.clone()));
    let times: Vec<_> = times.into_iter().map(Result::unwrap).collect();
    times.iter().filter(|time| Some(*time) == times.iter().min()).count()
}

#[tokio::test]
async fn a_full_queue_is_committed_in_short_parts() {
    assert_eq!(in_the_first_commit(Duration::ZERO).await, 2);
}

#[tokio::test]
async fn where_a_commit_takes_long_it_takes_more_writes() {
    assert_eq!(in_the_first_commit(EACH * 30).await, 30);
}
