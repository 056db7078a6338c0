//! Draining a node: which of its pods must leave, which cannot, and what the eviction API will say of them.
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

/// A pod that has not left its node, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// `NAMESPACE/NAME`.
    pub pod: String,
    /// The reason.
    pub why: Why,
}

/// The reason why a pod has not left its node, or will not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
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

/// The pods of a node that have not left it, and why: what the eviction API says if they are evicted now, in this
/// order.
#[must_use]
pub fn forecast(pods: &[Pod], budgets: &[Budget]) -> Vec<Left> {
    let mut budgets = budgets.to_vec();
    let left = pods.iter().filter_map(|pod| {
        let why = match pod.treatment() {
            Treatment::Stays => return None,
            Treatment::Unmovable => Why::NoController,
            Treatment::Evicted => evicted(pod, &mut budgets),
        };
        Some(Left { pod: pod.title(), why })
    });
    left.collect()
}

/// The answer of the eviction API for a pod. A pod that waits for its node or is being deleted may always be evicted.
fn evicted(pod: &Pod, budgets: &mut [Budget]) -> Why {
    if pod.terminating || pod.phase == "Pending" {
        return Why::Leaving;
    }
    let mut selecting: Vec<&mut Budget> = budgets.iter_mut().filter(|budget| budget.selects(pod)).collect();
    match selecting.as_mut_slice() {
        [] => Why::Leaving,
        [budget] => {
            if budget.takes(pod) {
                Why::Leaving
            } else {
                Why::Budget(budget.title())
            }
        }
        several => Why::SeveralBudgets(several.iter().map(|budget| budget.title()).collect()),
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pod = &self.pod;
        match &self.why {
            Why::Leaving => write!(f, "{pod} has not ended yet"),
            Why::NoController => write!(
                f,
                "{pod} has no controller that would create it again: delete it, or move it by hand"
            ),
            Why::Budget(budget) => write!(f, "{pod}: the PodDisruptionBudget {budget} permits no disruption now"),
            Why::SeveralBudgets(budgets) => {
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
