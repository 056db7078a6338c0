//! The end of bindings: from its second on, a binding gives nothing, also while the cloud is away.
//!
//! - The clock of this machine decides. It is read every second, because somebody may set it: no binding ends before
//!   its second, and none more than a second later.
//! - The custom resource stays, as the cloud lists it, for people to see. The end is no deletion: no brake holds it.
//! - A binding whose end is put off is bound again.
//! - While it is not known what the cloud lists, an end that only the copy had outlives the copy and its edits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource as _;
use parking_lot::Mutex;
use tidewaiter_api::containership::AuthorizationRoleBinding;
use tidewaiter_api::values::{EndTime, printable};
use tidewaiter_kit::{Key, Next, Notice, Queue, SharedClock, Tasks};

use super::{AuthorizationRoleBindingController, BindingError, CATCH_UP, FINALIZER, keep};
use crate::loops;

/// The longest time between two looks at the clock.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The ends of bindings. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    ahead: BTreeMap<Key, EndTime>,
    /// The bindings with an end, as they last took effect or were listed.
    last: BTreeMap<Key, Arc<AuthorizationRoleBinding>>,
    /// The bindings that have ended and gave nothing when the API server was last asked.
    over: BTreeSet<Key>,
}

impl Ends {
    /// Starts the task that queues each binding whose end has come.
    pub(super) fn start(queue: &Queue, clock: &SharedClock, tasks: &mut Tasks) -> Self {
        let ends = Self::default();
        let (waiting, queue, clock) = (ends.clone(), queue.clone(), Arc::clone(clock));
        let queueing = async move { waiting.queue_due(&queue, &clock).await };
        loops::run(tasks, "role-binding-ends", queueing);
        ends
    }

    async fn queue_due(&self, queue: &Queue, clock: &SharedClock) {
        loop {
            let wait = self.push_due(queue, clock.now());
            clock.sleep(wait).await;
        }
    }

    /// Queues what has ended at `now`. Returns the time to the next look.
    fn push_due(&self, queue: &Queue, now: Timestamp) -> Duration {
        let mut state = self.0.lock();
        let due = state.ahead.extract_if(.., |_, end| end.has_passed(now));
        due.for_each(|(key, _)| queue.push(key));
        let left = |end: &EndTime| Duration::try_from(end.get().duration_since(now)).unwrap_or_default();
        state.ahead.values().map(left).min().unwrap_or(MAX_SLEEP).min(MAX_SLEEP)
    }

    /// Notes the end of a binding, if it has one. Returns true if it has passed.
    fn note(&self, key: &Key, end: Option<EndTime>, now: Timestamp) -> bool {
        let mut state = self.0.lock();
        match end {
            Some(end) if end.has_passed(now) => {
                state.ahead.remove(key);
                true
            }
            _ => {
                state.over.remove(key);
                match end {
                    Some(end) => state.ahead.insert(key.clone(), end),
                    None => state.ahead.remove(key),
                };
                false
            }
        }
    }

    /// Returns the binding, which is remembered if it has an end; instead of an absent one whose effect `stays`, the
    /// remembered one.
    fn or_last(
        &self,
        key: &Key,
        binding: Option<Arc<AuthorizationRoleBinding>>,
        stays: bool,
    ) -> Option<Arc<AuthorizationRoleBinding>> {
        let mut state = self.0.lock();
        let last = state.last.remove(key).filter(|_| stays);
        let binding = binding.or(last)?;
        if !binding.spec.expires_at.is_empty() {
            state.last.insert(key.clone(), Arc::clone(&binding));
        }
        Some(binding)
    }

    fn is_over(&self, key: &Key) -> bool {
        self.0.lock().over.contains(key)
    }

    /// Notes that an ended binding gives nothing. Returns false if that was known.
    fn set_over(&self, key: &Key) -> bool {
        self.0.lock().over.insert(key.clone())
    }
}

impl AuthorizationRoleBindingController {
    /// The binding, as it takes effect or as the cloud lists it, or as it last did, if it has ended.
    pub(super) fn ended(&self, key: &Key) -> Option<Arc<AuthorizationRoleBinding>> {
        let bindings = &self.rbac.bindings;
        let binding = bindings.get_or_listed(key.name());
        let binding = self.ends.or_last(key, binding, bindings.retains(key.name()));
        let end = binding
            .as_ref()
            .and_then(|binding| EndTime::of_field(&binding.spec.expires_at));
        let has_ended = self.ends.note(key, end, self.rbac.clock.now());
        binding.filter(|_| has_ended)
    }

    /// Removes what was made of a binding that has ended. `found` is its custom resource, which stays.
    pub(super) async fn end(
        &self,
        key: &Key,
        ended: &AuthorizationRoleBinding,
        found: Option<&AuthorizationRoleBinding>,
    ) -> Result<Next, BindingError> {
        self.waiting.set(key, None);
        if let Some(found) = found {
            keep::<AuthorizationRoleBinding>(FINALIZER, &self.writer, &found.metadata).await?;
        }
        // Past the caches once: a binding without our label gives what it gave.
        let mut had_effect = false;
        if !self.ends.is_over(key) {
            if self.take_back(key.name(), &ended.spec).await? {
                return Ok(Next::Pending(CATCH_UP));
            }
            had_effect = self.existing(key.name(), None).is_some_and(|all| !all.is_empty());
        }
        let next = self.ensure(key.name(), None).await?;
        if next == Next::UntilChanged && self.ends.set_over(key) && had_effect {
            let note = format!(
                "The binding ended at {}: it gives nothing any more. Set a later expires_at in the cloud, or delete it there.",
                printable(&ended.spec.expires_at)
            );
            if let Some(found) = found {
                let notice = Notice::normal("BindingEnded", "Unbind", note);
                self.events.publish(&found.object_ref(&()), notice);
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::{Clock as _, ManualClock};

    use super::*;

    fn ends_in(clock: &ManualClock, seconds: i64) -> Option<EndTime> {
        let end = clock.now() + jiff::SignedDuration::from_secs(seconds);
        EndTime::of_field(&Timestamp::from_second(end.as_second()).unwrap().to_string())
    }

    #[test]
    fn an_end_is_due_with_its_second_also_when_somebody_sets_the_clock() {
        let (clock, queue, ends) = (ManualClock::default(), Queue::new(), Ends::default());
        let key = Key::new("binding");
        assert!(!ends.note(&key, ends_in(&clock, 90), clock.now()));
        assert_eq!(ends.push_due(&queue, clock.now()), MAX_SLEEP);
        clock.advance(Duration::from_millis(89_500));
        assert_eq!(ends.push_due(&queue, clock.now()), Duration::from_millis(500));
        assert!(queue.is_empty());
        clock.advance(Duration::from_millis(500));
        ends.push_due(&queue, clock.now());
        assert_eq!(queue.try_next(), Some(key.clone()));
        // The clock was wrong: the end lies ahead again, and is awaited again.
        let end = ends_in(&clock, 0);
        assert!(ends.note(&key, end, clock.now()));
        clock.jump(-60);
        assert!(!ends.note(&key, end, clock.now()));
        ends.push_due(&queue, clock.now());
        assert!(queue.is_empty());
        clock.jump(60);
        ends.push_due(&queue, clock.now());
        assert_eq!(queue.try_next(), Some(key));
    }

    #[test]
    fn an_end_that_is_put_off_or_taken_away_is_not_due() {
        let (clock, queue, ends) = (ManualClock::default(), Queue::new(), Ends::default());
        let (one, other) = (Key::new("one"), Key::new("other"));
        for key in [&one, &other] {
            assert!(!ends.note(key, ends_in(&clock, 10), clock.now()));
        }
        assert!(!ends.note(&one, None, clock.now()));
        assert!(!ends.note(&other, ends_in(&clock, 20), clock.now()));
        clock.advance(Duration::from_secs(15));
        ends.push_due(&queue, clock.now());
        assert!(queue.is_empty());
    }

    #[tokio::test]
    async fn the_task_queues_a_binding_when_its_end_has_come() {
        let (clock, queue, ends) = (ManualClock::default(), Queue::new(), Ends::default());
        let key = Key::new("binding");
        ends.note(&key, ends_in(&clock, 1), clock.now());
        let shared = clock.shared();
        tokio::select! {
            () = ends.queue_due(&queue, &shared) => {}
            () = async {
                clock.sleeping(1).await;
                assert!(queue.is_empty());
                clock.advance(Duration::from_secs(1));
                queue.filled().await;
            } => {}
        }
        assert_eq!(queue.try_next(), Some(key));
    }

    #[test]
    fn an_ended_binding_is_looked_up_once_and_again_after_it_was_bound() {
        let (clock, ends) = (ManualClock::default(), Ends::default());
        let key = Key::new("binding");
        assert!(ends.note(&key, ends_in(&clock, -1), clock.now()));
        assert!(!ends.is_over(&key) && ends.set_over(&key) && !ends.set_over(&key));
        assert!(!ends.note(&key, ends_in(&clock, 10), clock.now()));
        assert!(!ends.is_over(&key));
    }
}
