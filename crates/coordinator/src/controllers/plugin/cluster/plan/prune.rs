//! Plans the removal of what a release does not have, and the order of writes. Pure.
//!
//! A removal goes in phases, each of which waits until what it deletes is gone: webhooks first, so that none of them
//! stands between the API server and the objects that follow when its workload is gone; then group by group, in the
//! opposite order, as the version that had the object last arranged them; then definitions and namespaces. Within a
//! group, what the workloads of the plugin serve or finalize goes before them. An object that may not be read or
//! deleted keeps no other but the namespace that it is in and the definition of its kind.
//!
//! Source of the order within a group: kustomize (`kubectl apply -k`) and Helm (`InstallOrder`, `UninstallOrder`). What
//! an object needs is written before it, and deleted after it. Objects of kinds that are not named here, custom
//! resources among them, come after the workloads that serve them, and go before them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, End, Planner, Waits};
use crate::controllers::plugin::cluster::health::Health;
use crate::controllers::plugin::cluster::observe::{Live, Seen};
use crate::controllers::plugin::desired::{ObjectId, Record, Release};
use crate::mirror::OF_KUBERNETES;

/// Finalizers that the control plane removes when nothing uses the object any more. What uses it may come later in the
/// order, so it is not waited for the object before that.
const PROTECTIONS: [&str; 5] = [
    "kubernetes.io/pvc-protection",
    "kubernetes.io/pv-protection",
    "kubernetes.io/vac-protection",
    "resource.kubernetes.io/delete-protection",
    "networking.k8s.io/service-cidr-finalizer",
];

/// The phase in which an object is deleted: the greatest phase is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Prerequisites,
    Group {
        /// The position of the group in whose phase it is deleted.
        with: i64,
        step: Step,
        /// Its own position.
        position: i64,
    },
    Webhooks,
}

/// A step of the removal of a group, in the opposite order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Workloads,
    /// `APIService`s: behind the objects that they serve, and before the workloads that answer for them.
    Apis,
    /// Objects that workloads serve or finalize.
    Served,
}

impl Step {
    fn of(id: &ObjectId) -> Self {
        match Tier::of(id) {
            Tier::Admission => Self::Apis,
            Tier::Other => Self::Served,
            _ => Self::Workloads,
        }
    }
}

/// The order of the objects of a removal. It lets custom resources go early that the manifests have before the
/// workloads that serve them. Groups are not awaited at an installation, so that is permitted, and to remove the
/// workloads first would leave the custom resources with finalizers that nobody removes.
struct Order<'a> {
    record: &'a Record,
    /// The first group with an instance of a kind that the plugin defines itself. From it on, no custom resource waits
    /// for its group.
    defined_from: Option<i64>,
    /// The last group with something that may serve them.
    workloads_to: i64,
    /// The groups with workloads, which may remove finalizers of what is in the same group.
    operated: BTreeSet<i64>,
}

impl<'a> Order<'a> {
    fn of(record: &'a Record, left: &[(ObjectId, &Live)]) -> Self {
        let defined: BTreeSet<&str> = record.ids().filter_map(serves).collect();
        let is_defined = |id: &ObjectId| Tier::of(id) == Tier::Other && defined.contains(id.group.as_str());
        let positions = |of: &dyn Fn(&ObjectId) -> bool| -> BTreeSet<i64> {
            let found = left.iter().map(|(id, _)| id).filter(|id| of(id));
            found.map(|id| record.position(id)).collect()
        };
        let serving = positions(&|id| !id.is_prerequisite() && Step::of(id) != Step::Served);
        Self {
            record,
            defined_from: positions(&is_defined).first().copied(),
            workloads_to: serving.last().copied().unwrap_or_default(),
            operated: positions(&|id| Tier::of(id) == Tier::Workload),
        }
    }

    fn phase(&self, id: &ObjectId, live: &Live) -> Phase {
        if id.is_prerequisite() {
            return Phase::Prerequisites;
        }
        if id.group == "admissionregistration.k8s.io" {
            return Phase::Webhooks;
        }
        let position = self.record.position(id);
        let is_served = is_finalized(live) && self.operated.contains(&position);
        let is_early = Tier::of(id) == Tier::Other && self.defined_from.is_some_and(|from| position >= from);
        Phase::Group {
            with: if is_early {
                position.max(self.workloads_to)
            } else {
                position
            },
            step: if is_served { Step::Served } else { Step::of(id) },
            position,
        }
    }
}

/// The group of whose kinds there are no objects without this definition or `APIService`.
fn serves(id: &ObjectId) -> Option<&str> {
    let is_api = id.group == "apiregistration.k8s.io";
    (is_api || Tier::of(id) == Tier::Definition)
        .then(|| id.name.split_once('.'))?
        .map(|(_, group)| group)
}

/// True if a controller, perhaps one of the plugin's, must act before the object is gone.
fn is_finalized(live: &Live) -> bool {
    let mut all = live.finalizers.iter().map(String::as_str);
    all.any(|finalizer| !PROTECTIONS.contains(&finalizer) && !OF_KUBERNETES.contains(&finalizer))
}

/// True if the object is only kept by something that uses it.
fn is_in_use(live: &Live) -> bool {
    let is_protection = |finalizer: &String| PROTECTIONS.contains(&finalizer.as_str());
    live.deleting && !live.finalizers.is_empty() && live.finalizers.iter().all(is_protection)
}

impl<'b> Planner<'_, 'b> {
    pub(crate) fn prune(&mut self, release: &Release) -> Option<End> {
        let (left, denied) = self.surplus(release);
        let is_emptied = |id: &ObjectId| !denied.iter().any(|denied| is_within(denied, id));
        let left: Vec<_> = left.into_iter().filter(|(id, _)| is_emptied(id)).collect();
        let order = Order::of(&self.plan.record, &left);
        let phases: Vec<_> = left
            .iter()
            .map(|(id, live)| (order.phase(id, live), id, *live))
            .collect();
        let awaited = phases.iter().filter(|(.., live)| !is_in_use(live));
        let phase = awaited.map(|(phase, ..)| *phase).max();
        let now = || {
            phases
                .iter()
                .filter(|(its, ..)| phase.is_none_or(|phase| *its == phase))
        };
        let deletions: Vec<_> = now()
            .filter(|(.., live)| !live.deleting)
            .map(|(_, id, live)| Action::Delete {
                id: (*id).clone(),
                uid: live.uid.clone(),
            })
            .collect();
        if !deletions.is_empty() {
            self.plan.actions.push(deletions);
            return None;
        }
        let waits = now().next().map(|(_, id, live)| {
            let others = now().count() - 1;
            let later = phases.iter().filter(|(.., live)| !live.deleting).count();
            removal_waits(id, live, others, later)
        });
        self.problem().or_else(|| waits.map(End::Waits))
    }

    /// The objects that the release lacks: those that exist, and those that may not be read or deleted.
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

/// The condition of a removal that waits for `id`, for `others` more objects of its phase, and then deletes `later`
/// objects.
fn removal_waits(id: &ObjectId, live: &Live, others: usize, later: usize) -> Waits {
    let finalizers = match live.finalizers.join(", ") {
        none if none.is_empty() => String::new(),
        all => format!(": its finalizers {all} keep it, which their controllers remove"),
    };
    let why = match &live.health {
        Health::InProgress(why) | Health::Failed(why) => why,
        Health::Current => "is being deleted",
    };
    let counted = |words: &str, count: usize| match count {
        0 => String::new(),
        count => format!("; {words}: {count}"),
    };
    let (others, later) = (counted("also awaited", others), counted("deleted after that", later));
    Waits::new(
        "Removal",
        format!("waits until {id} is gone, which {why}{finalizers}{others}{later}"),
    )
}

/// Returns true if the object would go with the namespace or the definition.
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

/// A place in the order of creation; deletion is in the opposite order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Namespace,
    Definition,
    /// Limits and ranks of the pods that follow.
    Policy,
    /// Service accounts and roles.
    Account,
    /// Bindings: the API server compares a role with the rights of the subject that binds it, so the role must exist.
    Binding,
    Configuration,
    Storage,
    Service,
    Workload,
    /// Every other kind: custom resources, Ingresses.
    Other,
    /// Layers between the API server and its clients: webhooks and `APIService`s, which the workloads serve.
    Admission,
}

impl Tier {
    pub(crate) fn of(id: &ObjectId) -> Self {
        match (id.group.as_str(), id.kind.as_str()) {
            ("", "Namespace") => Self::Namespace,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definition,
            ("", "LimitRange" | "ResourceQuota")
            | ("networking.k8s.io", "NetworkPolicy")
            | ("policy", "PodDisruptionBudget")
            | ("scheduling.k8s.io", "PriorityClass") => Self::Policy,
            ("", "ServiceAccount") | ("rbac.authorization.k8s.io", "ClusterRole" | "Role") => Self::Account,
            ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => Self::Binding,
            ("", "ConfigMap" | "Secret") => Self::Configuration,
            ("", "PersistentVolume" | "PersistentVolumeClaim") | ("storage.k8s.io", _) => Self::Storage,
            ("", "Endpoints" | "Service") | ("discovery.k8s.io", "EndpointSlice") => Self::Service,
            ("", "Pod" | "ReplicationController") | ("apps" | "autoscaling" | "batch", _) => Self::Workload,
            ("admissionregistration.k8s.io", _) | ("apiregistration.k8s.io", "APIService") => Self::Admission,
            _ => Self::Other,
        }
    }
}

/// The actions of a group, one tier after the other.
pub(crate) fn tiers(group: Vec<Action<'_>>) -> impl Iterator<Item = Vec<Action<'_>>> {
    let (mut written, mut deleted) = (BTreeMap::<Tier, Vec<_>>::new(), BTreeMap::<Tier, Vec<_>>::new());
    for action in group {
        let tiers = match &action {
            Action::Apply { .. } | Action::Run { .. } => &mut written,
            Action::Delete { .. } => &mut deleted,
        };
        tiers.entry(Tier::of(action.id())).or_default().push(action);
    }
    written.into_values().chain(deleted.into_values().rev())
}

#[cfg(test)]
mod tests {
    mod prune;
    mod tier;
}
