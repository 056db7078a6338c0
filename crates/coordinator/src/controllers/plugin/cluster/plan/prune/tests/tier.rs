use super::super::*;

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
