//! The audit log tells who did what.

use serde_json::json;
use tidewaiter_testkit::{ControlPlane, Identity, Kubelet, builders};

#[tokio::test]
async fn each_write_is_counted_with_its_answer_and_reads_are_not() {
    let control_plane = ControlPlane::shared().await;
    let kubelet = Kubelet::register(control_plane, &builders::node("audited").build()).await;
    let identity = Identity::kubelet("audited");
    assert_eq!(control_plane.audit().await.by(&identity).writes().count(), 1);

    let mark = control_plane.audit_mark().await;
    for _ in 0..5 {
        kubelet.heartbeat().await;
    }
    kubelet.nodes().get("audited").await.unwrap();
    kubelet
        .patch(json!({"metadata": {"labels": {"node-role.kubernetes.io/node": ""}}}))
        .await
        .unwrap_err();

    let audit = control_plane.audit().await.since(mark).by(&identity);
    assert_eq!(audit.clone().verb("get").of("nodes").count(), 1);
    let writes = audit.clone().writes().of("nodes");
    assert_eq!(writes.count(), 6, "{writes:#?}");
    let codes: Vec<_> = writes
        .iter()
        .map(|entry| (entry.object_ref.subresource.as_str(), entry.response_status.code))
        .collect();
    assert_eq!(
        codes,
        [
            ("status", 200),
            ("status", 200),
            ("status", 200),
            ("status", 200),
            ("status", 200),
            ("", 403)
        ]
    );
    let entry = writes.iter().next().unwrap();
    assert_eq!(
        (entry.verb.as_str(), entry.object_ref.name.as_str()),
        ("patch", "audited")
    );
    assert!(entry.user.groups.iter().any(|group| group == "system:nodes"));
    assert_eq!(
        control_plane
            .audit()
            .await
            .since(mark)
            .by(&Identity::kubelet("nobody"))
            .count(),
        0
    );
}
