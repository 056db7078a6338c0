use futures::future::join_all;
use tidewaiter_kit::{Clock as _, ManualClock};
use tokio::sync::oneshot;

use super::*;
use crate::models::Kind;
use crate::server::Error;
use crate::server::store::jobs::BUDGET;
use crate::server::store::{Opened, References, Row, Source as _, Store};

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

/// Runs writes that are all pending when the writer begins.
async fn at_once<T>(clock: &ManualClock, writes: impl AsyncFnOnce(&Store) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/cloud.db", folder.path().display());
    let Opened { store, writer, .. } = Store::open(&url.parse().unwrap(), Arc::new(clock.clone()))
        .await
        .unwrap();
    let shutdown = CancellationToken::new();
    let answered = async {
        let answer = writes(&store).await;
        shutdown.cancel();
        answer
    };
    tokio::join!(answered, writer.run(shutdown.clone())).0
}

#[tokio::test]
async fn a_write_does_not_wait_in_its_commit_for_a_long_one() {
    let clock = ManualClock::new("2026-11-24T03:00:00Z".parse().unwrap());
    let begin = clock.now();
    let times = at_once(&clock, async |store: &Store| {
        let write = |queue: &str, time: Duration| {
            let by = Author {
                queue: queue.to_owned(),
                ..Author::default()
            };
            let clock = clock.clone();
            // All writes of a commit have the time of its begin.
            store.write(by, async move |transaction| {
                clock.advance(time);
                Ok(transaction.now())
            })
        };
        let long = FILL * 3;
        join_all([write("long", long), write("long", long), write("short", EACH)]).await
    })
    .await;
    let times = times.into_iter().map(|time| time.unwrap().duration_since(begin));
    let times: Vec<_> = times.map(|time| time.as_millis()).collect();
    assert_eq!(times, [0, 15, 12]);
}

async fn ids(store: &Store) -> Vec<String> {
    let rows = (&mut &*store).children(Kind::Registry, "").await.unwrap();
    rows.into_iter().map(|row| row.id).collect()
}

async fn insert(transaction: &mut Transaction, id: &str) -> Result<(), Error> {
    transaction
        .insert(Row::new(Kind::Registry, id), &References::default())
        .await
        .map(drop)
}

#[tokio::test]
async fn a_write_whose_caller_left_before_it_began_is_dropped() {
    let clock = ManualClock::new("2026-11-24T03:00:00Z".parse().unwrap());
    let found = at_once(&clock, async |store: &Store| {
        let write = |id: &'static str| {
            store.write(Author::default(), async move |transaction| {
                insert(transaction, id).await
            })
        };
        // Another caller leaves while its write runs.
        let (left, leaves) = oneshot::channel();
        let running = store.write(Author::default(), async move |transaction| {
            insert(transaction, "running").await?;
            let _ = left.send(());
            insert(transaction, "running too").await
        });
        let (mut first, mut second) = (Box::pin(write("first")), Box::pin(write("second")));
        let mut running = Box::pin(running);
        assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut running).is_pending());
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        tokio::select! {
            biased;
            _ = leaves => {}
            _ = &mut running => {}
        }
        drop(running);
        second.await.unwrap();
        write("last").await.unwrap();
        ids(store).await
    })
    .await;
    assert_eq!(found, ["running", "running too", "second", "last"]);
}

#[tokio::test]
async fn a_write_that_takes_too_long_is_refused_and_no_other() {
    let clock = ManualClock::new("2026-11-24T03:00:00Z".parse().unwrap());
    let moved = clock.clone();
    let (found, refused) = at_once(&clock, async |store: &Store| {
        let later = moved.clone();
        let slow = store.write(Author::default(), async move |transaction| {
            insert(transaction, "slow").await?;
            later.advance(BUDGET);
            insert(transaction, "in time").await?;
            later.advance(EACH);
            insert(transaction, "too late").await
        });
        let other = store.write(Author::default(), async |transaction| {
            insert(transaction, "other").await
        });
        let (slow, other) = tokio::join!(slow, other);
        other.unwrap();
        // What the server does itself ends.
        let own = store.write(Author::system(), async move |transaction| {
            moved.advance(BUDGET + EACH);
            insert(transaction, "own").await
        });
        own.await.unwrap();
        (ids(store).await, slow)
    })
    .await;
    assert_eq!(found, ["other", "own"]);
    let Err(Error::Refused(refusal)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refusal.status, http::StatusCode::SERVICE_UNAVAILABLE);
    assert!(refusal.message.contains("takes longer than"), "{refusal:?}");
}
