//! Plans the removal of what a release does not have. Pure.
//!
//! It goes in steps, each of which waits until the step before is done: first webhooks, `APIService`s, custom resources
//! and the like, because the workloads of the plugin serve them and remove their finalizers; then the rest; then
//! definitions and namespaces. An object that may not be read or deleted keeps no other but the namespace that it is in
//! and the definition of its kind.

use std::collections::BTreeSet;

use super::super::tier::Tier;
use super::{Action, End, Health, Live, ObjectId, Planner, Release, Seen, Waits};

/// A step of a removal, in the opposite order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Prerequisites,
    Workloads,
    Served,
}

impl Step {
    fn of(id: &ObjectId) -> Self {
        match Tier::of(id) {
            Tier::Namespace | Tier::Definition => Self::Prerequisites,
            Tier::Other | Tier::Admission => Self::Served,
            _ => Self::Workloads,
        }
    }
}

impl<'b> Planner<'_, 'b> {
    pub(super) fn prune(&mut self, release: &Release) -> Option<End> {
        let (left, denied) = self.surplus(release);
        let is_emptied = |id: &ObjectId| !denied.iter().any(|denied| is_within(denied, id));
        let left: Vec<_> = left.into_iter().filter(|(id, _)| is_emptied(id)).collect();
        let step = left.iter().map(|(id, _)| Step::of(id)).max();
        let now = || left.iter().filter(|(id, _)| Some(Step::of(id)) == step);
        let deletions: Vec<_> = now()
            .filter(|(_, live)| !live.deleting)
            .map(|(id, live)| Action::Delete {
                id: id.clone(),
                uid: live.uid.clone(),
            })
            .collect();
        if !deletions.is_empty() {
            self.plan.actions.push(deletions);
            return None;
        }
        if let Some(end) = self.problem() {
            return Some(end);
        }
        let (id, live) = now().next()?;
        let finalizers = match live.finalizers.join(", ") {
            none if none.is_empty() => String::new(),
            all => format!(": its finalizers {all} keep it, which their controllers remove"),
        };
        let why = match &live.health {
            Health::InProgress(why) | Health::Failed(why) => why,
            Health::Current => "is being deleted",
        };
        Some(End::Waits(Waits {
            reason: "Removal",
            message: format!("waits until {id} is gone, which {why}{finalizers}"),
        }))
    }

    /// What the release does not have: what is there of it, and what may not be read or deleted.
    fn surplus(&mut self, release: &Release) -> (Vec<(ObjectId, &'b Live)>, Vec<ObjectId>) {
        let observed = self.observed;
        let wanted: BTreeSet<ObjectId> = release.all().filter_map(|object| observed.place(object)).collect();
        let surplus = self.plan.record.ids().filter(|id| !wanted.contains(*id));
        let (mut left, mut denied) = (Vec::new(), Vec::new());
        for id in surplus.cloned().collect::<Vec<_>>() {
            match observed.seen.get(&id) {
                Some(Seen::Ours(live)) => left.push((id, live)),
                // It may exist, so it stays in the record.
                Some(Seen::Unreadable(problem)) => {
                    self.problems.push(problem.clone());
                    denied.push(id);
                }
                Some(Seen::Adoptable(..)) => {
                    self.plan.record.forget(&id);
                    self.plan.left.push(id);
                }
                Some(Seen::Foreign | Seen::OtherPlugin(_)) | None => self.plan.record.forget(&id),
            }
        }
        (left, denied)
    }
}

/// Whether the object would go with the namespace or the definition.
fn is_within(object: &ObjectId, prerequisite: &ObjectId) -> bool {
    match Tier::of(prerequisite) {
        Tier::Namespace => object.namespace == prerequisite.name,
        Tier::Definition => prerequisite
            .name
            .split_once('.')
            .is_some_and(|(_, group)| group == object.group),
        _ => false,
    }
}
