//! Awaiting what happens in another process: the one place that polls, so that no test sleeps.

use std::fmt::{Debug, Display};
use std::time::Duration;

use tokio::time::Instant;

/// The first delay between two attempts; each is twice the one before, up to [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(5);
const MAX_DELAY: Duration = Duration::from_millis(100);

/// An attempt that takes longer is abandoned and repeated: a request that hangs must not use up all of the time.
const ATTEMPT_TIMEOUT: Duration = Duration::from_mins(1);

/// Looks again and again until `look` answers `Ok`, and returns what it answered.
///
/// `what` completes the sentence "waited for …"; the `Err` of a look says what was seen instead. A look that does not
/// return counts as waiting too.
///
/// # Panics
/// After `deadline`: with what was awaited, for how long, and what was seen last.
pub async fn eventually<T, E: Display>(
    what: impl Display,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let start = now();
    let mut pause = FIRST_DELAY;
    let mut seen: Option<String> = None;
    let end = start + deadline;
    loop {
        let begun = now();
        match tokio::time::timeout_at(end.min(begun + ATTEMPT_TIMEOUT), look()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(instead)) => seen = Some(instead.to_string()),
            Err(_) if now() < end => {}
            Err(_) => {
                let before = seen.map_or_else(String::new, |seen| format!("; before that: {seen}"));
                let late = begun.elapsed();
                panic!("waited {deadline:?} for {what}: the last look did not return in {late:?}{before}");
            }
        }
        let left = end.saturating_duration_since(now());
        assert!(
            !left.is_zero(),
            "waited {deadline:?} for {what}; seen last: {}",
            seen.unwrap_or_default()
        );
        rest(pause.min(left)).await;
        pause = (pause * 2).min(MAX_DELAY);
    }
}

/// Looks again and again until it has seen the same for the whole of `time`, and returns that: for what ends by itself,
/// however long that takes on a slow machine.
///
/// `what` completes the sentence "waited for … to settle".
///
/// # Panics
/// After `deadline`: with what was seen last.
pub async fn settled<T: PartialEq + Debug>(
    what: impl Display,
    time: Duration,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> T,
) -> T {
    let start = now();
    let (mut seen, mut since) = (look().await, now());
    loop {
        // A look takes time: what it sees was so when it began.
        let begun = now();
        let found = look().await;
        if found != seen {
            (seen, since) = (found, now());
        } else if begun >= since + time {
            return seen;
        }
        assert!(
            now() < start + deadline,
            "waited {deadline:?} for {what} to settle for {time:?}; seen last: {seen:?}"
        );
        rest(MAX_DELAY).await;
    }
}

/// Looks again and again for the whole of `time` and expects `Ok` each time: for what must not happen.
///
/// # Panics
/// At the first `Err`: with what was to hold, how long it held, and what was seen.
pub async fn throughout<E: Display>(what: impl Display, time: Duration, mut look: impl AsyncFnMut() -> Result<(), E>) {
    let start = now();
    while now() < start + time {
        if let Err(seen) = look().await {
            panic!("{what} was to hold for {time:?}; after {:?}: {seen}", now() - start);
        }
        rest(MAX_DELAY).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a deadline for other processes runs in real time"
)]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the one poll interval of all tests")]
async fn rest(pause: Duration) {
    tokio::time::sleep(pause).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn returns_the_first_value() {
        let mut looks = 0;
        let value = eventually("three looks", Duration::from_secs(1), async || {
            looks += 1;
            if looks == 3 {
                Ok("three")
            } else {
                Err(format!("{looks} looks"))
            }
        })
        .await;
        assert_eq!(value, "three");
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 1s for the moon; seen last: only stars")]
    async fn says_what_it_awaited_and_what_it_saw() {
        eventually("the moon", Duration::from_secs(1), async || Err::<(), _>("only stars")).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 1s for an answer: the last look did not return in 995ms; before that: a start")]
    async fn a_look_that_hangs_is_late_too() {
        let mut looks = 0;
        eventually("an answer", Duration::from_secs(1), async || {
            looks += 1;
            if looks > 1 {
                std::future::pending::<()>().await;
            }
            Err::<(), _>("a start")
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_has_not_settled() {
        let mut looks = 0;
        let second = Duration::from_secs(1);
        let value = settled("a number", second, 10 * second, async || {
            looks += 1;
            // The last change comes within a second of the one before it.
            looks.min(30) / 10
        })
        .await;
        assert_eq!(value, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "waited 5s for a number to settle for 1s; seen last: ")]
    async fn what_never_settles_is_late() {
        let mut looks = 0;
        let second = Duration::from_secs(1);
        settled("a number", second, 5 * second, async || {
            looks += 1;
            looks
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "silence was to hold for 1s; after 300ms: a sound")]
    async fn what_must_not_happen_is_seen_when_it_happens() {
        let mut looks = 0;
        throughout("silence", Duration::from_secs(1), async || {
            looks += 1;
            if looks == 4 { Err("a sound") } else { Ok(()) }
        })
        .await;
    }
}
