//! The last answer of a source outside the cluster, until it expires.

use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_validation::Part;

/// The last answer, and what has been wrong since.
#[derive(Debug)]
pub(super) struct Kept<T> {
    /// Maximum age of an answer, measured from its request.
    limit: Duration,
    /// The time of the request (monotonic, and for people), and the answer.
    good: Option<(Duration, Timestamp, T)>,
    trouble: Option<String>,
}

impl<T: Clone + PartialEq> Kept<T> {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            good: None,
            trouble: None,
        }
    }

    /// Stores the answer to the request of this time. Returns true if it differs from the last one.
    pub(super) fn take(&mut self, answer: Result<T, String>, asked: (Duration, Timestamp)) -> bool {
        match answer {
            Ok(answer) => {
                // The same answer stays the same value: what was computed from it is still right.
                let same = self.good.take().map(|(_, _, good)| good).filter(|good| *good == answer);
                let other = self.trouble.take().is_some() || same.is_none();
                self.good = Some((asked.0, asked.1, same.unwrap_or(answer)));
                other
            }
            Err(trouble) => {
                let other = self.trouble.as_ref() != Some(&trouble);
                self.trouble = Some(trouble);
                other
            }
        }
    }

    /// Returns the state at `now`, which is monotonic.
    pub(super) fn part(&self, now: Duration) -> Part<T> {
        let trouble = self.trouble.as_deref().unwrap_or("no answer yet");
        match &self.good {
            Some((asked, _, good)) if now.saturating_sub(*asked) <= self.limit => Part::Known(good.clone()),
            Some((_, asked, _)) => Part::Unknown(format!("{trouble} (last known at {})", asked.strftime("%FT%TZ"))),
            None => Part::Unknown(trouble.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn at(seconds: u64) -> (Duration, Timestamp) {
        let time = Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap();
        (Duration::from_secs(seconds), time)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_same_answer_stays_the_same_value() {
        let mut kept = Kept::new(seconds(60));
        let first = Arc::new(7);
        kept.take(Ok(Arc::clone(&first)), at(0));
        assert!(!kept.take(Ok(Arc::new(7)), at(50)));
        let Part::Known(known) = kept.part(seconds(110)) else {
            panic!("{:?}", kept.part(seconds(110)));
        };
        assert!(Arc::ptr_eq(&known, &first));
    }

    #[test]
    fn an_answer_is_told_until_its_limit_whatever_fails_meanwhile() {
        let mut kept = Kept::new(seconds(60));
        assert_eq!(kept.part(seconds(0)), Part::Unknown("no answer yet".to_owned()));
        assert!(kept.take(Err("denied".to_owned()), at(0)));
        assert!(!kept.take(Err("denied".to_owned()), at(1)));
        assert_eq!(kept.part(seconds(1)), Part::Unknown("denied".to_owned()));
        assert!(kept.take(Ok(7), at(10)));
        assert!(!kept.take(Ok(7), at(20)));
        assert!(kept.take(Err("late".to_owned()), at(50)));
        assert_eq!(kept.part(seconds(80)), Part::Known(7));
        assert_eq!(
            kept.part(seconds(81)),
            Part::Unknown("late (last known at 1970-01-01T00:00:20Z)".to_owned())
        );
        assert!(kept.take(Ok(7), at(90)), "it is known again");
        assert!(kept.take(Ok(8), at(91)));
        assert_eq!(kept.part(seconds(151)), Part::Known(8));
    }
}
