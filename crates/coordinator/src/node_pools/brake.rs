//! The brake for the lists of Nodes of the cloud: a single wrong response must not take the labels of its node pool
//! from most Nodes. Pure.
//!
//! A response is held if it contradicts the labels of more than half of the Nodes that have one, and of at least two.
//! The same response, at least one sync interval later, confirms it. A response without any node of a pool is held if
//! it contradicts a single label, and only the cloud's record of deletions, or a person, confirms it: a cluster whose
//! cloud knows no nodes has no use for the labels. The Nodes are counted by their labels and not by the last response,
//! so that the first response after a restart is judged like any other.

use std::time::Duration;

use super::{Members, NodePools};

/// The verdict about a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It counts from now on.
    Accepted,
    /// It does not count yet.
    Held,
}

/// The response that is held, if one is.
#[derive(Debug, Default)]
pub(super) struct Brake {
    held: Option<(Members, Duration)>,
}

impl Brake {
    /// Judges a response at the monotonic time `now`. `is_mass` says whether it contradicts most labels, and
    /// `may_empty` whether everything that it lacks was deleted.
    pub(super) fn judge(
        &mut self,
        listed: &Members,
        is_mass: bool,
        may_empty: bool,
        now: Duration,
        interval: Duration,
    ) -> Verdict {
        if !is_mass {
            self.held = None;
            return Verdict::Accepted;
        }
        match &self.held {
            Some((held, since)) if held == listed => {
                if (listed.is_empty() && !may_empty) || now.saturating_sub(*since) < interval {
                    return Verdict::Held;
                }
                self.held = None;
                Verdict::Accepted
            }
            _ => {
                self.held = Some((listed.clone(), now));
                Verdict::Held
            }
        }
    }
}

/// Returns true if the response contradicts most of the labels. `labels` are the names of the Nodes with the pools that
/// their labels name.
pub(super) fn contradicts_most<'a>(
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    setting: NodePools,
    listed: &Members,
) -> bool {
    let (mut all, mut contradicted) = (0_usize, 0_usize);
    for (node, claim) in labels {
        let decided = setting.decide(Some(listed), node, Some(claim));
        all += 1;
        contradicted += usize::from(decided.contradicts(Some(claim)));
    }
    let least = if listed.is_empty() { 1 } else { 2 };
    contradicted >= least && contradicted * 2 > all
}

#[cfg(test)]
mod tests {
    use super::super::tests::members;
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    #[test]
    fn most_means_more_than_half_and_at_least_two() {
        use NodePools::{Cloud, CloudThenLabel};
        let labels = [("a", "p"), ("b", "p"), ("c", "p"), ("d", "p")];
        let is_mass = |count: usize, setting, listed: &[(&str, &str)]| {
            contradicts_most(labels.into_iter().take(count), setting, &members(listed))
        };
        for (count, setting, listed, expected) in [
            (0, Cloud, &[][..], false),
            (1, Cloud, &[], true),
            (1, Cloud, &[("x", "p")], false),
            (2, Cloud, &[("x", "p")], true),
            (4, Cloud, &[], true),
            // Without names the label decides, so nothing is contradicted.
            (4, CloudThenLabel, &[], false),
            (
                4,
                CloudThenLabel,
                &[("a", "p"), ("b", "p"), ("c", "p"), ("d", "p")],
                false,
            ),
            (4, CloudThenLabel, &[("a", "p"), ("b", "p")], false),
            (4, CloudThenLabel, &[("a", "p")], true),
            (
                4,
                CloudThenLabel,
                &[("a", "p"), ("b", "q"), ("c", "q"), ("d", "p")],
                false,
            ),
            (
                4,
                CloudThenLabel,
                &[("a", "p"), ("b", "q"), ("c", "q"), ("d", "q")],
                true,
            ),
        ] {
            assert_eq!(
                is_mass(count, setting, listed),
                expected,
                "{count} {setting:?} {listed:?}"
            );
        }
    }

    #[test]
    fn a_held_response_is_confirmed_by_the_same_one_an_interval_later() {
        let (first, other) = (members(&[("y", "p")]), members(&[("x", "p")]));
        let mut brake = Brake::default();
        let mut judge = |listed: &Members, is_mass, second| {
            brake.judge(listed, is_mass, false, Duration::from_secs(second), INTERVAL)
        };
        assert_eq!(judge(&first, true, 0), Verdict::Held);
        assert_eq!(judge(&first, true, 29), Verdict::Held);
        assert_eq!(judge(&other, true, 40), Verdict::Held, "another one confirms nothing");
        assert_eq!(judge(&first, true, 50), Verdict::Held);
        assert_eq!(judge(&first, true, 80), Verdict::Accepted);
        assert_eq!(judge(&first, true, 81), Verdict::Held, "it confirms once");
        assert_eq!(judge(&other, false, 82), Verdict::Accepted);
        assert_eq!(judge(&first, true, 120), Verdict::Held, "it was forgotten");
        let empty = members(&[]);
        for second in [200, 230, 999] {
            assert_eq!(
                judge(&empty, true, second),
                Verdict::Held,
                "nothing confirms an empty list"
            );
        }
        assert_eq!(judge(&first, false, 1_000), Verdict::Accepted);
        let recorded =
            |brake: &mut Brake, second| brake.judge(&empty, true, true, Duration::from_secs(second), INTERVAL);
        assert_eq!(recorded(&mut brake, 2_000), Verdict::Held);
        assert_eq!(recorded(&mut brake, 2_030), Verdict::Accepted, "its nodes were deleted");
    }
}
