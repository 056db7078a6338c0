//! The number of Nodes that are refused for forgery, and of all Nodes; and the brake of quarantine, which stops it when
//! too many Nodes look forged.
//!
//! Kept by the changes of the Node cache and by the result of each pass. A Node keeps its classification while the
//! cloud cannot be asked; a Node that is created again under its name is another Node, without one. Whenever the brake
//! moves, every forged Node is queued, so that what was decided before is decided anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntGauge;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Cache, Change, Key, Metrics, Queue, Trigger};

use super::finding::Finding;
use crate::objects::{Node, Record};

/// At most one in this many Nodes may be quarantined, and always at least one.
const NODES_FOR_ONE: usize = 10;

/// The permission to quarantine forged Nodes, by their number. Every Node that is refused for forgery counts, also one
/// that would be spared: a mistake shows in those first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brake {
    /// Some Node has not been classified since the start, so the number of forged Nodes is unknown.
    Unjudged,
    /// Forged Nodes may be quarantined.
    Free,
    /// There are too many: the cause is probably not forgery.
    Held,
}

impl Brake {
    /// Returns the largest number of forged Nodes for which the brake does not hold, of this many Nodes.
    #[must_use]
    pub(crate) fn limit(nodes: usize) -> usize {
        (nodes / NODES_FOR_ONE).max(1)
    }

    /// The brake once all `nodes` have been classified and `forged` of them are refused for forgery.
    #[must_use]
    pub(crate) fn of(nodes: usize, forged: usize) -> Self {
        if forged > Self::limit(nodes) {
            Self::Held
        } else {
            Self::Free
        }
    }
}

/// The census of all Nodes.
#[derive(Debug)]
pub(crate) struct Census {
    counts: Mutex<Counts>,
    queue: Queue,
    held: IntGauge,
    unjudged: IntGauge,
}

#[derive(Debug)]
struct Counts {
    nodes: BTreeMap<Box<str>, Entry>,
    forged: usize,
    unclassified: usize,
    /// True if every Node was classified once since the start.
    complete: bool,
    /// The brake for which the forged Nodes were queued last.
    announced: Brake,
}

#[derive(Debug)]
struct Entry {
    uid: Box<str>,
    classification: Option<Classification>,
}

/// The result of a pass for a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Classification {
    /// It is refused for forgery, or was and is still quarantined.
    Forged,
    /// Anything else that is certain.
    Other,
}

impl Classification {
    /// Of the Node of this uid, whose name `record` has; None when the cloud could not be asked.
    pub(crate) fn of(finding: &Finding, record: Option<&Record>, uid: &str) -> Option<Self> {
        let quarantined = || record.is_some_and(|record| record.quarantines(uid));
        match finding {
            Finding::Refused(refusal) if refusal.is_transient() => None,
            Finding::Refused(refusal) if refusal.is_forgery() || quarantined() => Some(Self::Forged),
            _ => Some(Self::Other),
        }
    }
}

impl Census {
    /// A census of the Nodes of `nodes`; forged Nodes are queued in `queue`.
    pub(crate) fn over(nodes: &Cache<Node>, queue: Queue, metrics: &Metrics) -> Result<Arc<Self>, MetricsError> {
        let census = Arc::new(Self::new(queue, metrics)?);
        let counting = Arc::clone(&census);
        nodes.derive(move |change| counting.changed(change));
        let announcing = Arc::clone(&census);
        nodes.notify(Trigger::calls(move |_: &Change<'_, Node>| {
            announcing.announce();
        }));
        Ok(census)
    }

    pub(crate) fn new(queue: Queue, metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            counts: Mutex::new(Counts {
                nodes: BTreeMap::new(),
                forged: 0,
                unclassified: 0,
                complete: false,
                announced: Brake::Unjudged,
            }),
            queue,
            held: metrics.gauge(
                "tidewaiter_quarantine_held",
                "Nodes that are refused for forgery while there are too many of them to quarantine any.",
            )?,
            unjudged: metrics.gauge(
                "tidewaiter_quarantine_unjudged",
                "Nodes that the leader has not classified since it started. Nothing is quarantined while there are any.",
            )?,
        })
    }

    /// A Node was created, changed or deleted.
    pub(crate) fn changed(&self, change: &Change<'_, Node>) {
        let name = change.object().metadata.name.as_deref().unwrap_or_default();
        let uid = change
            .after
            .map(|node| node.metadata.uid.as_deref().unwrap_or_default());
        self.counts.lock().enter(name, uid);
    }

    /// Records what a pass found out about a Node, and returns the brake after that.
    pub(crate) fn note(&self, name: &str, uid: &str, classification: Option<Classification>) -> Brake {
        {
            let mut counts = self.counts.lock();
            if let Some(classification) = classification {
                counts.classify(name, uid, classification);
            }
            counts.complete |= counts.unclassified == 0;
        }
        self.announce()
    }

    /// Shows the counts, and queues every forged Node if the brake has moved.
    pub(crate) fn announce(&self) -> Brake {
        let mut counts = self.counts.lock();
        let (before, after) = (counts.announced, counts.brake());
        counts.announced = after;
        self.unjudged
            .set(if counts.complete { 0 } else { gauge(counts.unclassified) });
        self.held
            .set(if after == Brake::Held { gauge(counts.forged) } else { 0 });
        if before != after {
            log(before, after, &counts);
            let is_forged = |entry: &Entry| entry.classification == Some(Classification::Forged);
            for (name, _) in counts.nodes.iter().filter(|(_, entry)| is_forged(entry)) {
                self.queue.push(Key::new(name));
            }
        }
        after
    }
}

impl Counts {
    fn brake(&self) -> Brake {
        if self.complete {
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
            self.count(gone.classification, false);
        }
        if let Some(uid) = uid {
            let (uid, classification) = (uid.into(), None);
            self.nodes.insert(name.into(), Entry { uid, classification });
            self.count(None, true);
        }
    }

    /// Ignored for a Node that is gone, or another by now.
    fn classify(&mut self, name: &str, uid: &str, classification: Classification) {
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| entry.uid.as_ref() == uid) else {
            return;
        };
        let before = entry.classification.replace(classification);
        self.count(before, false);
        self.count(Some(classification), true);
    }

    fn count(&mut self, classification: Option<Classification>, more: bool) {
        let count = match classification {
            None => &mut self.unclassified,
            Some(Classification::Forged) => &mut self.forged,
            Some(Classification::Other) => return,
        };
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
    }
}

/// Logs one line when the brake starts to hold, and one when it stops.
fn log(before: Brake, after: Brake, counts: &Counts) {
    match (before, after) {
        (_, Brake::Held) => tracing::warn!(
            forged = counts.forged,
            limit = Brake::limit(counts.nodes.len()),
            "too many Nodes are refused for forgery: none of them is quarantined"
        ),
        (Brake::Held, Brake::Free) => tracing::info!("quarantine is possible again"),
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

    use super::Classification::{Forged, Other};
    use super::*;

    const FREE: Brake = Brake::Free;
    const UNJUDGED: Brake = Brake::Unjudged;
    const HELD: Brake = Brake::Held;

    fn census() -> Census {
        let metrics = Metrics::new(&ManualClock::default().shared()).unwrap();
        Census::new(Queue::new(), &metrics).unwrap()
    }

    fn node(name: &str, uid: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": uid}})).unwrap()
    }

    fn come(census: &Census, names: &[&str]) {
        for name in names {
            census.changed(&Change::applied(&Key::new(name), None, &node(name, name)));
            census.announce();
        }
    }

    fn go(census: &Census, name: &str) {
        census.changed(&Change::deleted(&Key::new(name), &node(name, name)));
        census.announce();
    }

    /// Returns the number of keys queued since the last call.
    fn queued(census: &mut Census) -> usize {
        std::mem::take(&mut census.queue).len()
    }

    /// `a` is the first, and none of them was judged.
    fn ten() -> Census {
        let census = census();
        come(&census, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        census
    }

    fn judge_all_but_the_first_two(census: &Census) {
        for name in ["c", "d", "e", "f", "g", "h", "i", "j"] {
            assert_eq!(census.note(name, name, Some(Other)), UNJUDGED, "{name}");
        }
    }

    #[test]
    fn nothing_is_known_before_every_node_was_judged_once() {
        let mut all = ten();
        judge_all_but_the_first_two(&all);
        assert_eq!(all.note("a", "a", Some(Forged)), UNJUDGED);
        assert_eq!(all.note("b", "b", None), UNJUDGED, "an outage judges nobody");
        assert_eq!(all.unjudged.get(), 1);
        assert_eq!(queued(&mut all), 0);
        assert_eq!(all.note("b", "b", Some(Other)), FREE);
        assert_eq!(queued(&mut all), 1, "the forged one waits for this");
        come(&all, &["k"]);
        assert_eq!(
            all.note("a", "a", Some(Forged)),
            FREE,
            "a Node that comes later holds nobody back"
        );
    }

    #[test]
    fn the_brake_holds_and_lets_go_with_the_count() {
        let mut all = ten();
        judge_all_but_the_first_two(&all);
        all.note("a", "a", Some(Forged));
        assert_eq!(all.note("b", "b", Some(Forged)), HELD);
        assert_eq!((queued(&mut all), all.held.get()), (2, 2));
        assert_eq!(all.note("a", "a", Some(Forged)), HELD);
        assert_eq!(all.note("a", "a", None), HELD, "an outage acquits nobody");
        assert_eq!(queued(&mut all), 0, "nothing has moved");
        assert_eq!(all.note("a", "a", Some(Other)), FREE);
        assert_eq!(
            (queued(&mut all), all.held.get()),
            (1, 0),
            "the other one is looked at again"
        );
        all.note("a", "a", Some(Forged));
        assert_eq!(queued(&mut all), 2);
        go(&all, "a");
        assert_eq!(
            (queued(&mut all), all.held.get()),
            (1, 0),
            "one that goes is not counted any more"
        );
        let more: Vec<String> = (0..11).map(|number| format!("more-{number}")).collect();
        come(&all, &more.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(all.note("c", "c", Some(Forged)), FREE, "two of twenty");
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
                Classification::of(&finding, record, uid),
                verdict,
                "{finding:?} {record:?} {uid}"
            );
        }
    }

    #[test]
    fn a_verdict_is_of_one_uid() {
        let two = census();
        come(&two, &["a", "b"]);
        two.note("a", "a", Some(Forged));
        assert_eq!(two.note("b", "b", Some(Forged)), HELD);
        two.changed(&Change::applied(
            &Key::new("a"),
            Some(&node("a", "a")),
            &node("a", "another"),
        ));
        assert_eq!(two.note("a", "a", Some(Forged)), FREE, "that one is gone");
        assert_eq!(two.note("a", "another", Some(Forged)), HELD);
        go(&two, "a");
        two.note("a", "another", Some(Forged));
        assert_eq!(two.counts.lock().nodes.len(), 1, "nothing is kept of what is gone");
    }
}
