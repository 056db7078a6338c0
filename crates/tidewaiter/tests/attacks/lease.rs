//! The Lease: anyone who may write it can take it, with whatever times. The controller exits, and has it again after
//! the duration that the Lease says, by its own clock.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::names::KOPS_LEASE;

use crate::field::Field;

/// Times that mean nothing, or that no library can represent.
fn times() -> [(&'static str, Value); 5] {
    [
        (
            "long ago",
            json!({"acquireTime": "1970-01-01T00:00:00.000000Z", "renewTime": "0001-01-02T00:00:00.000000Z"}),
        ),
        (
            "in a century",
            json!({"acquireTime": "2126-01-01T00:00:00.000000Z", "renewTime": "2126-01-01T00:00:00.000000Z"}),
        ),
        (
            "at the end of time",
            json!({"acquireTime": "9999-12-31T23:59:59.999999Z", "renewTime": "9999-12-31T23:59:59.999999Z"}),
        ),
        ("never", json!({"acquireTime": null, "renewTime": null})),
        ("the last transition", json!({"leaseTransitions": i32::MAX})),
    ]
}

pub async fn stolen(field: &Field) -> Vec<String> {
    let controller = &field.controller;
    for (what, times) in times() {
        controller.leads().await;
        let mut spec = times;
        spec["holderIdentity"] = json!("thief");
        spec["leaseDurationSeconds"] = json!(1);
        let steal = Patch::Merge(json!({"spec": spec}));
        let stolen = field
            .world
            .leases()
            .patch(KOPS_LEASE, &PatchParams::default(), &steal)
            .await;
        // The client cannot represent each of these times either.
        if let Err(kube::Error::Api(status)) = stolen {
            panic!("{what}: {status:?}");
        }
        let line = controller.loses().await;
        assert!(line.ends_with(": thief holds it"), "{what}: {line}");
        controller.process.start_again();
        controller.ready().await;
        controller.leads().await;
        field.joins().await;
    }
    Vec::new()
}
