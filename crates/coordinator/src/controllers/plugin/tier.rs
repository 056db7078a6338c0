//! The order in which the objects of a group are written. Pure.
//!
//! Source: the order of kustomize (`kubectl apply -k`) and of Helm (`InstallOrder`, `UninstallOrder`). What an object
//! needs is written before it, and deleted after it. Objects of kinds that are not named here, custom resources among
//! them, come after the workloads that serve them, and go before them.

use std::collections::BTreeMap;

use super::object::ObjectId;
use super::plan::Action;

/// A place in the order of creation; deletion is in the opposite order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
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
    pub(super) fn of(id: &ObjectId) -> Self {
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
pub(super) fn tiers(group: Vec<Action<'_>>) -> impl Iterator<Item = Vec<Action<'_>>> {
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
    use super::*;

    fn id(kind: &str) -> ObjectId {
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        ObjectId {
            group: group.to_owned(),
            kind: kind.to_owned(),
            ..ObjectId::default()
        }
    }

    /// From the first that is created to the last; those in one line are written at the same time.
    const ORDER: [&[&str]; 11] = [
        &["Namespace"],
        &["CustomResourceDefinition.apiextensions.k8s.io"],
        &[
            "ResourceQuota",
            "LimitRange",
            "PriorityClass.scheduling.k8s.io",
            "NetworkPolicy.networking.k8s.io",
            "PodDisruptionBudget.policy",
        ],
        &[
            "ServiceAccount",
            "Role.rbac.authorization.k8s.io",
            "ClusterRole.rbac.authorization.k8s.io",
        ],
        &[
            "RoleBinding.rbac.authorization.k8s.io",
            "ClusterRoleBinding.rbac.authorization.k8s.io",
        ],
        &["ConfigMap", "Secret"],
        &[
            "StorageClass.storage.k8s.io",
            "CSIDriver.storage.k8s.io",
            "PersistentVolume",
            "PersistentVolumeClaim",
        ],
        &["Service", "Endpoints", "EndpointSlice.discovery.k8s.io"],
        &[
            "Pod",
            "Deployment.apps",
            "StatefulSet.apps",
            "DaemonSet.apps",
            "Job.batch",
            "CronJob.batch",
            "HorizontalPodAutoscaler.autoscaling",
        ],
        &[
            "Ingress.networking.k8s.io",
            "Certificate.cert-manager.io",
            // A kind of somebody else with a known name.
            "Deployment.example.com",
        ],
        &[
            "ValidatingWebhookConfiguration.admissionregistration.k8s.io",
            "MutatingWebhookConfiguration.admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy.admissionregistration.k8s.io",
            "APIService.apiregistration.k8s.io",
        ],
    ];

    #[test]
    fn what_an_object_needs_is_written_before_it_and_deleted_after_it() {
        let delete = |kind: &&str| Action::Delete {
            id: id(kind),
            uid: String::new(),
        };
        let group = ORDER.into_iter().flatten().map(delete).collect();
        let found: Vec<Vec<String>> = tiers(group)
            .map(|tier| tier.iter().map(|action| action.id().kind_name()).collect())
            .collect();
        let mut expected = ORDER.map(|tier| tier.iter().map(ToString::to_string).collect::<Vec<_>>());
        expected.reverse();
        assert_eq!(found, expected);
        let tiers = ORDER.map(|tier| Tier::of(&id(tier[0])));
        assert!(tiers.is_sorted(), "{tiers:?}");
    }
}
