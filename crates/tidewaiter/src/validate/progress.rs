//! Progress on standard error during a wait: on a terminal one view that is redrawn in place, otherwise one line per
//! validation.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use console::Term;
use jiff::SignedDuration;
use tidewaiter_api::ClusterName;
use tidewaiter_kit::Clock;
use tidewaiter_validation::{Outcome, Verdict};

use super::problems::Problems;
use super::rounds::Rounds;
use crate::live::View;

/// The maximum number of problems that a terminal shows.
const MAX_SHOWN: usize = 12;
/// The maximum number of problems in a line.
const MAX_NAMED: usize = 3;

/// The output, and the current problems.
pub(super) struct Progress {
    to: To,
    cluster: ClusterName,
    /// The outcome of the last look; none before the first.
    last: Option<Outcome>,
    problems: Problems,
}

enum To {
    Terminal(View),
    Lines(Box<dyn Write>),
}

impl Progress {
    /// A view if standard error is a terminal that supports it, otherwise lines. `term` is the value of `TERM`.
    pub(super) fn on_stderr(cluster: &ClusterName, term: Option<&str>) -> Self {
        match View::on(Term::buffered_stderr(), term) {
            Some(view) => Self::new(cluster, To::Terminal(view)),
            None => Self::lines(cluster, Box::new(io::stderr())),
        }
    }

    pub(super) fn lines(cluster: &ClusterName, out: Box<dyn Write>) -> Self {
        Self::new(cluster, To::Lines(out))
    }

    fn new(cluster: &ClusterName, to: To) -> Self {
        Self {
            to,
            cluster: cluster.clone(),
            last: None,
            problems: Problems::default(),
        }
    }

    /// Returns true if the view changes with time alone.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.to, To::Terminal(_))
    }

    /// Shows a verdict that is not the last one.
    pub(super) fn update(&mut self, verdict: &Verdict, rounds: &Rounds, clock: &dyn Clock) {
        self.last = Some(verdict.outcome());
        self.problems.update(verdict, clock.monotonic());
        let line = self.line(rounds);
        if let To::Lines(out) = &mut self.to {
            // When standard error is closed, the message cannot be delivered.
            let _ = writeln!(out, "{:.0} {line}", clock.now());
        }
    }

    /// Draws the view as of now.
    pub(super) fn draw(&mut self, rounds: &Rounds, clock: &dyn Clock) {
        let lines = self.view(rounds, clock.monotonic());
        if let To::Terminal(view) = &mut self.to {
            view.draw(lines);
        }
    }

    /// Removes the view.
    pub(super) fn clear(&mut self) {
        if let To::Terminal(view) = &mut self.to {
            view.clear();
        }
    }

    fn line(&self, rounds: &Rounds) -> String {
        let (named, more) = self.problems.first(MAX_NAMED);
        let named: Vec<_> = named.iter().map(|problem| problem.text.as_str()).collect();
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        let colon = if named.is_empty() { "" } else { ": " };
        format!("{}{colon}{}{more}", self.outcome(rounds), named.join("; "))
    }

    fn view(&self, rounds: &Rounds, now: Duration) -> Vec<String> {
        let elapsed = Seconds(rounds.elapsed(now));
        let of = rounds
            .wait()
            .map(|wait| format!(" of {}", Seconds(wait)))
            .unwrap_or_default();
        let (shown, more) = self.problems.first(MAX_SHOWN);
        let problems = shown.iter().map(|problem| {
            let age = Seconds(now.saturating_sub(problem.since)).to_string();
            format!("{age:>8}  {}", problem.text)
        });
        let more = (more > 0).then(|| format!("{:8}  and {more} more", ""));
        let head = format!("{elapsed}{of}  {}", self.outcome(rounds));
        std::iter::once(head).chain(problems).chain(more).collect()
    }

    fn outcome(&self, rounds: &Rounds) -> String {
        let cluster = &self.cluster;
        match self.last {
            None => format!("looking at {cluster}"),
            Some(Outcome::Ready) => {
                let (ready, count) = rounds.row();
                format!("{cluster} is ready, {ready} of {count} times in a row")
            }
            Some(Outcome::Failed) => format!("{cluster} is not ready"),
            Some(Outcome::Unknown) => format!("cannot tell whether {cluster} is ready"),
        }
    }
}

/// Whole seconds, as `1m 30s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX);
        write!(f, "{:#}", SignedDuration::from_secs(seconds))
    }
}
