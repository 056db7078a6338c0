//! The writes that the admission policies refuse: each write with real credentials, as a dry run. Without its policy,
//! each is accepted; and every write that is somebody's work is accepted with the policies.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::{ControlPlane, Identity, eventually};

use crate::world::{SOON, repository};
use rows::{NODES, Row, rows};

mod rows;

/// The time in which an API server enforces a policy that it has, or forgets one.
const ENFORCED: Duration = Duration::from_mins(3);

/// A control plane with all that `deploy/` has, and the objects that the rows change.
async fn prepared() -> ControlPlane {
    let cluster = ControlPlane::builder().with_controller_manager().start().await;
    for folder in [
        "crds",
        "crds/coordinator",
        "crds/agent",
        "controller",
        "coordinator",
        "agent",
    ] {
        cluster.apply_manifests(repository().join("deploy").join(folder)).await;
    }
    for name in NODES {
        let built = node(name)
            .label("cluster.containership.io/env", "prod")
            .label("containership.io/node-pool-id", "11111111-1111-4111-8111-111111111111")
            .label("node-role.kubernetes.io/node", "")
            .taint("dedicated", "NoSchedule")
            .build();
        let path = "/api/v1/nodes";
        sent(&cluster, &Identity::Admin, "POST", path, &json!(built), false)
            .await
            .unwrap();
    }
    for object in rows::objects() {
        cluster.apply(&object.to_string()).await;
    }
    cluster
}

/// Returns the response of the API server.
async fn sent(
    cluster: &ControlPlane,
    who: &Identity,
    method: &str,
    path: &str,
    body: &Value,
    dry: bool,
) -> Result<(), String> {
    let query = if dry { "?dryRun=All" } else { "" };
    let content = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{path}{query}"))
        .header("Content-Type", content)
        .body(body)
        .unwrap();
    let answer = cluster.client(who).request::<Value>(request).await;
    answer.map(drop).map_err(|error| error.to_string())
}

impl Row {
    async fn play(&self, cluster: &ControlPlane) -> Result<(), String> {
        sent(cluster, &self.who, self.method, &self.path, &self.body, true).await
    }

    /// Waits until the row's own policy refuses it, in its words.
    async fn is_refused(&self, cluster: &ControlPlane) {
        let Some((policy, words)) = &self.refused else { return };
        eventually(
            format!("{policy} to refuse: {}", self.what),
            ENFORCED,
            async || match self.play(cluster).await {
                Err(refusal) if refusal.contains(&format!("'{policy}'")) && refusal.contains(words) => Ok(()),
                other => Err(format!("{other:?}")),
            },
        )
        .await;
    }

    async fn is_accepted(&self, cluster: &ControlPlane) {
        eventually(
            format!("the API server to accept: {}", self.what),
            ENFORCED,
            async || self.play(cluster).await,
        )
        .await;
    }
}

#[tokio::test]
async fn each_policy_refuses_what_it_is_for_and_nothing_else() {
    let cluster = prepared().await;
    have_no_warnings(&cluster).await;
    let rows = rows();
    for row in &rows {
        row.is_refused(&cluster).await;
    }
    for row in rows.iter().filter(|row| row.refused.is_none()) {
        let accepted = row.play(&cluster).await;
        assert!(accepted.is_ok(), "{}: {}", row.what, accepted.unwrap_err());
    }

    // An account that may delete the policies is not limited by those for it.
    let of_the_coordinator = rows
        .iter()
        .filter(|row| row.who == rows::coordinator() && row.refused.is_some());
    let of_the_coordinator: Vec<&Row> = of_the_coordinator.collect();
    cluster
        .apply_manifests(repository().join("deploy/coordinator/plugins"))
        .await;
    for row in &of_the_coordinator {
        row.is_accepted(&cluster).await;
    }
    let bound: Api<ClusterRoleBinding> = Api::all(cluster.client(&Identity::Admin));
    bound
        .delete("tidewaiter-coordinator-plugins", &DeleteParams::default())
        .await
        .unwrap();
    for row in &of_the_coordinator {
        row.is_refused(&cluster).await;
    }

    // It is the policies that refuse.
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client(&Identity::Admin));
    let all = ListParams::default();
    bindings
        .delete_collection(&DeleteParams::default(), &all)
        .await
        .unwrap();
    for row in &rows {
        row.is_accepted(&cluster).await;
    }
}

/// The types of every expression are right, by the API server's own check, and every policy has a row.
async fn have_no_warnings(cluster: &ControlPlane) {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client(&Identity::Admin));
    let mut names = BTreeSet::new();
    for policy in policies.list(&ListParams::default()).await.unwrap() {
        let name = policy.metadata.name.unwrap();
        let checked = eventually(format!("the types of {name} to be checked"), SOON, async || {
            let policy = policies.get(&name).await.map_err(|error| error.to_string())?;
            let status = policy.status.ok_or("it has no status")?;
            let is_current = status.observed_generation == policy.metadata.generation;
            if is_current {
                Ok(status)
            } else {
                Err("it is not checked yet".to_owned())
            }
        })
        .await;
        let warnings = checked.type_checking.and_then(|checked| checked.expression_warnings);
        assert!(warnings.as_ref().is_none_or(Vec::is_empty), "{name}: {warnings:#?}");
        names.insert(name);
    }
    // tests/agent/policy.rs has the rows of the agent's.
    names.remove("tidewaiter-agent-nodereports");
    let tried = rows()
        .iter()
        .filter_map(|row| Some(row.refused.as_ref()?.0.clone()))
        .collect();
    assert_eq!(names, tried);
}
