//! The admission policies of the chart, by the values. What they refuse: tests/attacks/policies.rs.

use serde_json::json;

use crate::{named, objects, template_of, values_of};

#[test]
fn admission_policies_can_be_tried_first_and_switched_off() {
    let rendered = |set: &str, values: &str| objects(&template_of(&values_of(set), &["--set", values]).output());
    for (set, value, names) in [
        ("controller", "kubelets", &["tidewaiter-controller-kubelets"][..]),
        ("controller", "account", &["tidewaiter-controller-nodes"]),
        ("coordinator", "kubelets", &["tidewaiter-coordinator-kubelets"]),
        (
            "coordinator",
            "account",
            &[
                "tidewaiter-coordinator-nodes",
                "tidewaiter-coordinator-roles",
                "tidewaiter-coordinator-bindings",
                "tidewaiter-coordinator-secrets",
            ],
        ),
    ] {
        let with = |action: &str| rendered(set, &format!("{set}.admission.{value}={action}"));
        for (action, wanted) in [
            ("Deny", json!(["Deny"])),
            ("Warn", json!(["Warn", "Audit"])),
            ("Audit", json!(["Audit"])),
        ] {
            let objects = with(action);
            for name in names {
                let binding = named(&objects, "ValidatingAdmissionPolicyBinding", name);
                assert_eq!(binding["spec"]["validationActions"], wanted, "{name}");
                named(&objects, "ValidatingAdmissionPolicy", name);
            }
        }
        let off = with("Off");
        assert!(
            off.iter()
                .all(|object| names.iter().all(|name| object["metadata"]["name"] != *name)),
            "{value}"
        );
    }
}

/// The permissions of a kubelet depend on the names of Nodes and node pools of the cluster.
#[test]
fn admission_policies_follow_the_settings() {
    let policy = |set: &str, values: &str| {
        let objects = objects(&template_of(&values_of(set), &["--set", values]).output());
        named(
            &objects,
            "ValidatingAdmissionPolicy",
            &format!("tidewaiter-{set}-kubelets"),
        )
        .to_string()
    };
    let claim = "may not claim the instance";
    let by_cloud = "startsWith('gce://')";
    for (values, claims, depends) in [
        ("controller.admission.instanceNames=auto", true, true),
        ("controller.admission.instanceNames=always", true, false),
        ("controller.admission.instanceNames=never", false, false),
        ("controller.settings.nodeNames=warn", false, false),
    ] {
        let policy = policy("controller", values);
        assert_eq!(
            (policy.contains(claim), policy.contains(by_cloud)),
            (claims, depends),
            "{values}: {policy}"
        );
    }
    let protected = policy("controller", "controller.admission.protectedLabels={vault,acme.com/}");
    assert!(protected.contains(r#"\"vault\",\"acme.com/\"]"#), "{protected}");
    let registers = "'containership.io/node-pool-id' && request.operation == 'UPDATE'";
    assert!(policy("coordinator", "coordinator.settings.nodePools=label").contains(registers));
    assert!(!policy("coordinator", "coordinator.settings.nodePools=cloud").contains(registers));
}
