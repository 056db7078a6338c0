//! Draining a node: the pods that must leave it, those that cannot, and a forecast of the eviction API's response to
//! each.
//!
//! Source: kubectl drain for what is left alone; the eviction subresource of the API server
//! (`pkg/registry/core/pod/storage/eviction.go`) for the forecast, which decides as it does.

use std::collections::BTreeMap;
use std::fmt;

/// A pod on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The phase, such as `Running`.
    pub phase: String,
    /// True if it is Ready.
    pub ready: bool,
    /// True if it is being deleted.
    pub terminating: bool,
    /// The kind of its controller, such as `ReplicaSet`; None for a pod that nobody creates again.
    pub controller: Option<String>,
    /// True if the kubelet runs it from a file.
    pub is_static: bool,
}

/// A `PodDisruptionBudget`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The pods that it selects, by namespace and name.
    pub selects: Selects,
    /// `spec.unhealthyPodEvictionPolicy` is `AlwaysAllow`.
    pub always_unhealthy: bool,
    /// `status.disruptionsAllowed`.
    pub disruptions_allowed: i32,
    /// `status.currentHealthy`.
    pub current_healthy: i32,
    /// `status.desiredHealthy`.
    pub desired_healthy: i32,
    /// True if the status is that of the newest spec.
    pub is_observed: bool,
}

/// The label selector of a budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selects {
    /// Labels that must have these values.
    pub labels: BTreeMap<String, String>,
    /// Further requirements.
    pub expressions: Vec<Requirement>,
    /// True if there is no selector at all: then no pod is selected, and with an empty one each is.
    pub nothing: bool,
}

/// A requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The key of the label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values of `In` and `NotIn`.
    pub values: Vec<String>,
}

/// The treatment of a pod by a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It stays: a DaemonSet's, a static one, or one that has ended.
    Stays,
    /// It is evicted.
    Evicted,
    /// Not evicted: nobody would create it again.
    Unmovable,
}

/// A pod that has not left its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemainingPod {
    /// `NAMESPACE/NAME`.
    pub pod: String,
    /// The reason.
    pub blocker: DrainBlocker,
}

/// The reason why a pod has not left its node, or will not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainBlocker {
    /// Evicted, or already being deleted.
    Leaving,
    /// It has no controller that would create it again.
    NoController,
    /// This budget permits no disruption now.
    Budget(String),
    /// Several budgets select it, which the eviction API refuses.
    SeveralBudgets(Vec<String>),
}

impl Pod {
    /// The treatment of the pod by a drain.
    #[must_use]
    pub fn treatment(&self) -> Treatment {
        let has_ended = matches!(self.phase.as_str(), "Succeeded" | "Failed");
        match self.controller.as_deref() {
            _ if self.is_static || has_ended => Treatment::Stays,
            Some("DaemonSet") => Treatment::Stays,
            Some(_) => Treatment::Evicted,
            None => Treatment::Unmovable,
        }
    }

    /// `NAMESPACE/NAME`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Budget {
    fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn selects(&self, pod: &Pod) -> bool {
        let matches = |requirement: &Requirement| {
            let found = pod.labels.get(&requirement.key);
            let is_listed = found.is_some_and(|found| requirement.values.contains(found));
            match requirement.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        };
        let Selects {
            labels,
            expressions,
            nothing,
        } = &self.selects;
        self.namespace == pod.namespace
            && !nothing
            && labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
            && expressions.iter().all(matches)
    }

    /// Returns true if the eviction of this pod passes, which takes one of the disruptions that are allowed, unless the
    /// pod is not Ready.
    fn takes(&mut self, pod: &Pod) -> bool {
        let enough = self.current_healthy >= self.desired_healthy && self.desired_healthy > 0;
        if !pod.ready && (self.always_unhealthy || enough) {
            return true;
        }
        let passes = self.is_observed && self.disruptions_allowed > 0;
        if passes {
            self.disruptions_allowed -= 1;
        }
        passes
    }
}

/// The pods of a node that have not left it, each with the response of the eviction API if they are evicted now, in
/// this order.
#[must_use]
pub fn forecast(pods: &[Pod], budgets: &[Budget]) -> Vec<RemainingPod> {
    let mut budgets = budgets.to_vec();
    let left = pods.iter().filter_map(|pod| {
        let blocker = match pod.treatment() {
            Treatment::Stays => return None,
            Treatment::Unmovable => DrainBlocker::NoController,
            Treatment::Evicted => evict(pod, &mut budgets),
        };
        Some(RemainingPod {
            pod: pod.title(),
            blocker,
        })
    });
    left.collect()
}

/// The blocker that the eviction API would report. A pod that waits for its node or is being deleted may always be
/// evicted.
fn evict(pod: &Pod, budgets: &mut [Budget]) -> DrainBlocker {
    if pod.terminating || pod.phase == "Pending" {
        return DrainBlocker::Leaving;
    }
    let mut selecting: Vec<&mut Budget> = budgets.iter_mut().filter(|budget| budget.selects(pod)).collect();
    match selecting.as_mut_slice() {
        [] => DrainBlocker::Leaving,
        [budget] => {
            if budget.takes(pod) {
                DrainBlocker::Leaving
            } else {
                DrainBlocker::Budget(budget.title())
            }
        }
        several => DrainBlocker::SeveralBudgets(several.iter().map(|budget| budget.title()).collect()),
    }
}

impl fmt::Display for RemainingPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pod = &self.pod;
        match &self.blocker {
            DrainBlocker::Leaving => write!(f, "{pod} has not ended yet"),
            DrainBlocker::NoController => write!(
                f,
                "{pod} has no controller that would create it again: delete it, or move it by hand"
            ),
            DrainBlocker::Budget(budget) => {
                write!(f, "{pod}: the PodDisruptionBudget {budget} permits no disruption now")
            }
            DrainBlocker::SeveralBudgets(budgets) => {
                let budgets = budgets.join(", ");
                write!(
                    f,
                    "{pod}: several PodDisruptionBudgets select it, which no eviction passes: {budgets}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
