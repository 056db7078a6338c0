//! The verdict on the cluster: no Node makes it better than it is while nobody can say whose Node it is.

use std::process::Stdio;

use kube::api::Api;
use tidewaiter_api::ClusterHealth;
use tidewaiter_testkit::fake_ec2::{FakeInstance, group};
use tidewaiter_testkit::{Identity, Kubelet, Scripted, eventually};
use tokio::process::Command;

use crate::field::Field;
use crate::world::{CLUSTER, SOON, World, shown};

/// May list what `tidewaiter validate` reads, except the records.
const MAY_NOT_READ_RECORDS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: may-not-read-records}
rules:
- {apiGroups: [""], resources: [nodes, pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: may-not-read-records}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: may-not-read-records}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
"#;

/// A ready Node claims the only instance that has not joined. The cloud throttles, so its record proves nothing; and
/// who may not read the records is not told that all is well either.
pub async fn unproven(field: &Field) -> Vec<String> {
    let world = &field.world;
    let missing = field.launches("nodes");
    only_waits_for(world, &missing);
    world.ec2.fail(missing.id(), Scripted::Throttled);
    let scene = field.scene();
    let node = scene.claims(&missing).ready("True").build();
    let thief = Kubelet::register(&world.cluster, &node).await;

    let words = format!(
        "node {:?} is not proven to be instance {:?}",
        thief.name(),
        missing.id()
    );
    eventually("the verdict to name the Node", SOON, async || {
        let health: Api<ClusterHealth> = Api::all(world.cluster.client(&Identity::Admin));
        let health = health.get(CLUSTER).await.map_err(shown)?;
        let conditions = health.status.map(|status| status.conditions).unwrap_or_default();
        // The group's instances cannot be listed either.
        let is_told =
            |message: &str| message.contains(&words) || message.contains("ec2:DescribeInstances is throttled");
        let told = conditions
            .iter()
            .any(|it| it.reason == "CannotTell" && is_told(&it.message));
        if told { Ok(()) } else { Err(shown(conditions)) }
    })
    .await;
    let flips = world.events(CLUSTER).await;
    assert!(flips.iter().all(|(reason, _)| reason != "ClusterReady"), "{flips:?}");

    world.cluster.apply(MAY_NOT_READ_RECORDS).await;
    let told = validate(world, &Identity::user("bob", &[])).await;
    assert!(told.contains("permission to list nodeidentities is missing"), "{told}");
    vec![thief.name().to_owned()]
}

/// The cluster would be ready if this instance had joined.
fn only_waits_for(world: &World, missing: &FakeInstance) {
    let named = |name: &str, target| {
        let group = group(&format!("{name}.{CLUSTER}")).kops(CLUSTER, name);
        group.sizes(0, target, 9).configuration("current")
    };
    let nodes = named("nodes", 1).with([missing.member().configuration("current")]);
    world.ec2.groups([nodes, named("masters", 0)]);
}

/// Returns the output of the command, which cannot tell.
async fn validate(world: &World, who: &Identity) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
    command.env_clear().env("AWS_EC2_METADATA_DISABLED", "true");
    command.envs(world.ec2.environment());
    command.args(["validate", "-o", "json", "--conf"]);
    command.arg(world.file("validate.json", &world.config()));
    command.arg("--kubeconfig").arg(world.cluster.kubeconfig(who));
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(SOON, command.output())
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
