//! The current problems of a cluster, each with its start, over all validations of one wait.

use std::collections::HashMap;
use std::time::Duration;

use tidewaiter_api::values::printable;
use tidewaiter_validation::Verdict;

/// The failures and unknown parts of the last verdict, in its order.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The subject: kind and name of a failure, or an unknown part.
    about: (String, String),
    /// In words, fit for a terminal.
    pub(super) text: String,
    /// Monotonic: when a verdict first had it, without a verdict in between that had not.
    pub(super) since: Duration,
}

impl Problems {
    /// Updates the problems from a verdict made at `now`.
    pub(super) fn update(&mut self, verdict: &Verdict, now: Duration) {
        let before: HashMap<_, _> = self.0.drain(..).map(|problem| (problem.about, problem.since)).collect();
        let failures = verdict.failures.iter();
        let failures = failures.map(|found| (found.kind.to_string(), found.name.clone(), printable(&found.message)));
        let unknown = verdict.unknown.iter().map(|unknown| {
            let part = unknown.part.to_string();
            let text = format!("{part} unknown: {}", printable(&unknown.reason));
            ("unknown".to_owned(), part, text)
        });
        let all = failures.chain(unknown).map(|(kind, name, text)| {
            let about = (kind, name);
            let since = before.get(&about).copied().unwrap_or(now);
            Problem { about, text, since }
        });
        self.0.extend(all);
    }

    /// The first ones, and how many more there are.
    pub(super) fn first(&self, count: usize) -> (&[Problem], usize) {
        let shown = count.min(self.0.len());
        (&self.0[..shown], self.0.len() - shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::watching::tests::{failed, ready};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_is_as_old_as_its_first_verdict_in_whatever_words() {
        let mut problems = Problems::default();
        let ages =
            |problems: &Problems| -> Vec<_> { problems.first(9).0.iter().map(|found| found.since.as_secs()).collect() };
        problems.update(&failed(&[("a", "is away"), ("b", "is away")]), SECOND);
        problems.update(&failed(&[("b", "is late\u{1b}[31m"), ("c", "is away")]), 2 * SECOND);
        assert_eq!(ages(&problems), [1, 2]);
        assert_eq!(problems.first(1).0[0].text, "is late\\u{1b}[31m");
        assert_eq!(problems.first(1).1, 1);
        problems.update(&ready(), 3 * SECOND);
        assert_eq!(problems.first(9), (&[][..], 0));
        problems.update(&failed(&[("b", "is away")]), 4 * SECOND);
        assert_eq!(ages(&problems), [4], "it was well in between");
    }
}
