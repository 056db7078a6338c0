//! How many Nodes are refused for forgery, of how many: what the brake of quarantine rests on.
//!
//! A census of all Nodes, kept by the Node cache's changes and by the verdict of each pass. A Node keeps its verdict while the
//! cloud cannot be asked; one that is made again under its name is another Node, without a verdict. Whenever the brake moves,
//! every forged Node is queued, so that what was decided before is decided anew.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Change, Key, Metrics, Queue};

use super::node::Node;
use super::plan::{Brake, Finding};
use super::record::Record;

/// The census.
#[derive(Debug)]
pub(super) struct Forgeries {
    census: Mutex<Census>,
    queue: Queue,
    held: IntGauge,
    unjudged: IntGauge,
}

#[derive(Debug, Default)]
struct Census {
    nodes: HashMap<Box<str>, Entry>,
    forged: usize,
    unjudged: usize,
    /// Whether every Node was judged once since the start.
    judged: bool,
}

#[derive(Debug)]
struct Entry {
    uid: Box<str>,
    verdict: Option<Verdict>,
}

/// What a pass found out about a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is refused for forgery, or is in quarantine since it was.
    Forged,
    /// Anything else that the cloud, or the Node itself, says for certain.
    Other,
}

impl Verdict {
    /// Of the Node of this uid, whose name `record` has; none when the cloud could not be asked.
    pub(super) fn of(finding: &Finding, record: Option<&Record>, uid: &str) -> Option<Self> {
        let quarantined = || record.is_some_and(|record| record.quarantines(uid));
        match finding {
            Finding::Refused(refusal) if refusal.is_transient() => None,
            Finding::Refused(refusal) if refusal.is_forgery() || quarantined() => Some(Self::Forged),
            _ => Some(Self::Other),
        }
    }
}

impl Forgeries {
    /// Forged Nodes are queued in `queue`.
    pub(super) fn new(queue: Queue, metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            census: Mutex::default(),
            queue,
            held: metrics.gauge(
                "tidewaiter_quarantine_held",
                "Nodes that are refused for forgery while there are too many of them to put any into quarantine.",
            )?,
            unjudged: metrics.gauge(
                "tidewaiter_quarantine_unjudged",
                "Nodes that quarantine waits for: they were not judged since the start, on the leader, and nothing is done before they are.",
            )?,
        })
    }

    /// A Node has come, changed or gone. To be heard before the Node is queued, so that its pass finds it here.
    pub(super) fn changed(&self, change: &Change<Node>) {
        let metadata = &change.object().metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let uid = match change {
            Change::Applied(_) => Some(metadata.uid.as_deref().unwrap_or_default()),
            Change::Deleted(_) => None,
        };
        self.update(|census| census.enter(name, uid));
    }

    /// Notes what a pass found out about a Node, and says how the brake stands then. `cached` Nodes are in the cache, which
    /// tells here of each of its first list only after it shows all of them.
    pub(super) fn note(&self, name: &str, uid: &str, verdict: Option<Verdict>, cached: usize) -> Brake {
        self.update(|census| {
            if let Some(verdict) = verdict {
                census.judge(name, uid, verdict);
            }
            census.judged |= census.unjudged == 0 && census.nodes.len() >= cached;
        })
    }

    fn update(&self, change: impl FnOnce(&mut Census)) -> Brake {
        let mut census = self.lock();
        let before = census.brake();
        change(&mut census);
        let after = census.brake();
        self.unjudged
            .set(if census.judged { 0 } else { gauge(census.unjudged) });
        self.held.set(if matches!(after, Brake::Held { .. }) {
            gauge(census.forged)
        } else {
            0
        });
        if before != after {
            tell(before, after);
            let forged = census
                .nodes
                .iter()
                .filter(|(_, entry)| entry.verdict == Some(Verdict::Forged));
            for (name, _) in forged {
                self.queue.push(Key::new(name));
            }
        }
        after
    }

    fn lock(&self) -> MutexGuard<'_, Census> {
        self.census.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Census {
    fn brake(&self) -> Brake {
        if self.judged {
            Brake::of(self.nodes.len(), self.forged)
        } else {
            Brake::Unjudged
        }
    }

    /// The Node of this name has this uid now, or is gone.
    fn enter(&mut self, name: &str, uid: Option<&str>) {
        if self.nodes.get(name).map(|entry| entry.uid.as_ref()) == uid {
            return;
        }
        if let Some(gone) = self.nodes.remove(name) {
            self.count(gone.verdict, false);
        }
        if let Some(uid) = uid {
            let (uid, verdict) = (uid.into(), None);
            self.nodes.insert(name.into(), Entry { uid, verdict });
            self.count(None, true);
        }
    }

    /// A verdict on a Node that is gone, or another by now, is none.
    fn judge(&mut self, name: &str, uid: &str, verdict: Verdict) {
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| entry.uid.as_ref() == uid) else {
            return;
        };
        let before = entry.verdict.replace(verdict);
        self.count(before, false);
        self.count(Some(verdict), true);
    }

    fn count(&mut self, verdict: Option<Verdict>, more: bool) {
        let count = match verdict {
            None => &mut self.unjudged,
            Some(Verdict::Forged) => &mut self.forged,
            Some(Verdict::Other) => return,
        };
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
    }
}

/// One line when it begins to hold, and one when it lets go.
fn tell(before: Brake, after: Brake) {
    let was_held = matches!(before, Brake::Held { .. });
    match after {
        Brake::Held { forged, limit } if !was_held => tracing::warn!(
            forged,
            limit,
            "more Nodes are refused for forgery than are put into quarantine at once: nothing is done to any of them"
        ),
        Brake::Free if was_held => tracing::info!("quarantine is possible again"),
        _ => {}
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewaiter_identity::Refusal;
    use tidewaiter_kit::ManualClock;

    use super::Verdict::{Forged, Other};
    use super::*;

    const FREE: Brake = Brake::Free;
    const UNJUDGED: Brake = Brake::Unjudged;
    const HELD: Brake = Brake::Held { forged: 2, limit: 1 };

    fn forgeries() -> Forgeries {
        let metrics = Metrics::new(&ManualClock::default().shared()).unwrap();
        Forgeries::new(Queue::new(), &metrics).unwrap()
    }

    fn node(name: &str, uid: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": uid}})).unwrap()
    }

    fn come(forgeries: &Forgeries, names: &[&str]) {
        for name in names {
            forgeries.changed(&Change::Applied(node(name, name)));
        }
    }

    fn go(forgeries: &Forgeries, name: &str) {
        forgeries.changed(&Change::Deleted(node(name, name)));
    }

    /// How many were queued since the last call.
    fn queued(forgeries: &mut Forgeries) -> usize {
        std::mem::take(&mut forgeries.queue).len()
    }

    /// `a` is the first, and none of them was judged.
    fn ten() -> Forgeries {
        let forgeries = forgeries();
        come(&forgeries, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        forgeries
    }

    fn judge_all_but_the_first_two(forgeries: &Forgeries) {
        for name in ["c", "d", "e", "f", "g", "h", "i", "j"] {
            assert_eq!(forgeries.note(name, name, Some(Other), 10), UNJUDGED, "{name}");
        }
    }

    #[test]
    fn nothing_is_known_before_every_node_was_judged_once() {
        let mut all = ten();
        judge_all_but_the_first_two(&all);
        assert_eq!(all.note("a", "a", Some(Forged), 10), UNJUDGED);
        assert_eq!(all.note("b", "b", None, 10), UNJUDGED, "an outage judges nobody");
        assert_eq!(all.unjudged.get(), 1);
        assert_eq!(queued(&mut all), 0);
        assert_eq!(all.note("b", "b", Some(Other), 10), FREE);
        assert_eq!(queued(&mut all), 1, "the forged one waits for this");
        come(&all, &["k"]);
        assert_eq!(
            all.note("a", "a", Some(Forged), 11),
            FREE,
            "a Node that comes later holds nobody back"
        );
    }

    #[test]
    fn nodes_that_the_cache_has_not_told_of_yet_are_not_judged() {
        let some = forgeries();
        come(&some, &["a"]);
        assert_eq!(some.note("a", "a", Some(Forged), 2), UNJUDGED);
        assert_eq!(some.note("b", "b", Some(Other), 2), UNJUDGED, "nobody knows it yet");
        come(&some, &["b"]);
        assert_eq!(some.note("a", "a", Some(Forged), 2), UNJUDGED);
        assert_eq!(some.note("b", "b", Some(Other), 2), FREE);
    }

    #[test]
    fn the_brake_holds_and_lets_go_with_the_count() {
        let mut all = ten();
        judge_all_but_the_first_two(&all);
        all.note("a", "a", Some(Forged), 10);
        assert_eq!(all.note("b", "b", Some(Forged), 10), HELD);
        assert_eq!((queued(&mut all), all.held.get()), (2, 2));
        assert_eq!(all.note("a", "a", Some(Forged), 10), HELD);
        assert_eq!(all.note("a", "a", None, 10), HELD, "an outage acquits nobody");
        assert_eq!(queued(&mut all), 0, "nothing has moved");
        assert_eq!(all.note("a", "a", Some(Other), 10), FREE);
        assert_eq!(
            (queued(&mut all), all.held.get()),
            (1, 0),
            "the other one is looked at again"
        );
        all.note("a", "a", Some(Forged), 10);
        assert_eq!(queued(&mut all), 2);
        go(&all, "a");
        assert_eq!(
            (queued(&mut all), all.held.get()),
            (1, 0),
            "one that goes is not counted any more"
        );
        let more: Vec<String> = (0..11).map(|number| format!("more-{number}")).collect();
        come(&all, &more.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(all.note("c", "c", Some(Forged), 20), FREE, "two of twenty");
    }

    #[test]
    fn one_in_quarantine_counts_until_it_is_proven() {
        let gone = || {
            Finding::Refused(Refusal::NotFound {
                instance: "i-1".to_owned(),
            })
        };
        let throttled = Finding::Refused(Refusal::Throttled {
            api: "ec2:DescribeInstances",
        });
        let record = |status: &str| -> Record {
            let condition = json!({"type": "Quarantined", "status": status, "reason": "", "message": "",
                "lastTransitionTime": "2026-01-12T09:21:08Z"});
            let record = json!({"metadata": {}, "spec": {"nodeUID": "u", "providerID": "aws:///a/i-1"}, "status": {"conditions": [condition]}});
            serde_json::from_value(record).unwrap()
        };
        let (inside, outside) = (record("True"), record("False"));
        for (finding, record, uid, verdict) in [
            (gone(), None, "u", Some(Other)),
            (gone(), Some(&outside), "u", Some(Other)),
            (gone(), Some(&inside), "u", Some(Forged)),
            (gone(), Some(&inside), "made-again", Some(Other)),
            (throttled, Some(&inside), "u", None),
            (Finding::Unclaimed, Some(&inside), "u", Some(Other)),
        ] {
            assert_eq!(
                Verdict::of(&finding, record, uid),
                verdict,
                "{finding:?} {record:?} {uid}"
            );
        }
    }

    #[test]
    fn a_verdict_is_of_one_uid() {
        let two = forgeries();
        come(&two, &["a", "b"]);
        two.note("a", "a", Some(Forged), 2);
        assert_eq!(two.note("b", "b", Some(Forged), 2), HELD);
        two.changed(&Change::Applied(node("a", "another")));
        assert_eq!(two.note("a", "a", Some(Forged), 2), FREE, "that one is gone");
        assert_eq!(two.note("a", "another", Some(Forged), 2), HELD);
        go(&two, "a");
        two.note("a", "another", Some(Forged), 1);
        assert_eq!(two.lock().nodes.len(), 1, "what is gone is not kept");
    }
}
