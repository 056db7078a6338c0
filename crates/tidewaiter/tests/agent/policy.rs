//! The permissions of one agent's credentials, and of those of its node's kubelet.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use tidewaiter_api::NodeReport;
use tidewaiter_testkit::{Identity, eventually};

use crate::world::{HOME, SOON, World};

const POLICY: &str = "tidewaiter-agent-nodereports";

/// The thief of the token.
struct Thief {
    client: Client,
    node: String,
    uid: String,
}

impl Thief {
    async fn new(world: &World) -> Self {
        let node = world.node();
        let token = world.token(&node).await;
        let mut config: Config = world.cluster.config(&Identity::Admin);
        config.auth_info = kube::config::AuthInfo {
            token: Some(token.into()),
            ..Default::default()
        };
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.cluster.client(&Identity::Admin));
        Self {
            client: Client::try_from(config).unwrap(),
            uid: nodes.get(&node).await.unwrap().metadata.uid.unwrap(),
            node,
        }
    }

    async fn writes(&self, name: &str, metadata: Value) -> Result<(), String> {
        let reports: Api<NodeReport> = Api::all(self.client.clone());
        let mut report = json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "NodeReport", "spec": {},
            "metadata": {"name": name}, "status": {"keys": 1}});
        report["metadata"]
            .as_object_mut()
            .unwrap()
            .extend(metadata.as_object().unwrap().clone());
        let params = PatchParams::apply("thief").force();
        let applied = reports.patch(name, &params, &Patch::Apply(&report)).await;
        applied.map(drop).map_err(|error| error.to_string())
    }
}

fn owner(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid})
}

/// Until the API server has compiled the policy, it does not apply it.
async fn enforced(thief: &Thief) {
    eventually("the policy to be enforced", SOON, async || {
        match thief.writes("nobodys-node", json!({})).await {
            Err(refusal) if refusal.contains("ValidatingAdmissionPolicy") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_writes_the_report_of_its_own_node_alone() {
    let world = World::alone().await;
    let (thief, victim) = (Thief::new(&world).await, Thief::new(&world).await);
    enforced(&thief).await;
    let own = thief.node.as_str();
    let refusal = thief.writes(own, json!({})).await.unwrap_err();
    assert!(
        refusal.contains("owned by its Node alone"),
        "without an owner: {refusal}"
    );
    thief
        .writes(own, json!({"ownerReferences": [owner(own, &thief.uid)]}))
        .await
        .unwrap();
    victim
        .writes(
            &victim.node,
            json!({"ownerReferences": [owner(&victim.node, &victim.uid)]}),
        )
        .await
        .unwrap();
    for (what, name, metadata, words) in [
        (
            "another node's report",
            victim.node.as_str(),
            json!({}),
            "the token is for the node",
        ),
        ("a report of no node", "other", json!({}), "the token is for the node"),
        (
            "an owner that is another node",
            own,
            json!({"ownerReferences": [owner(&victim.node, &victim.uid)]}),
            "owned by its Node alone",
        ),
        (
            "an owner that is no more",
            own,
            json!({"ownerReferences": [owner(own, "other")]}),
            "owned by its Node alone",
        ),
        (
            "no owner any more",
            own,
            json!({"ownerReferences": []}),
            "owned by its Node alone",
        ),
        (
            "a finalizer",
            own,
            json!({"finalizers": ["example.com/x"], "ownerReferences": [owner(own, &thief.uid)]}),
            "no finalizers",
        ),
    ] {
        let refusal = thief.writes(name, metadata).await.unwrap_err();
        assert!(refusal.contains(words), "{what}: {refusal}");
    }
    // A token that is not of a pod.
    let reports: Api<NodeReport> = Api::all(world.cluster.client(&crate::world::account()));
    let report = NodeReport::new(own, tidewaiter_api::node_report::NodeReportSpec {});
    let refusal = reports
        .patch(own, &PatchParams::apply("thief").force(), &Patch::Apply(&report))
        .await
        .unwrap_err();
    assert!(refusal.to_string().contains("ValidatingAdmissionPolicy"), "{refusal}");

    // It is the policy that refuses.
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(world.cluster.client(&Identity::Admin));
    bindings.delete(POLICY, &DeleteParams::default()).await.unwrap();
    eventually("the other node's report to be written", SOON, async || {
        thief.writes(&victim.node, json!({})).await
    })
    .await;
}

/// Every permission beyond those of any user is one of these.
#[tokio::test]
async fn a_token_permits_nothing_else() {
    let world = World::start().await;
    let thief = Thief::new(&world).await;
    let nobody = world.cluster.client(&Identity::user("nobody", &[]));
    let expected = |namespace: &str| {
        let mut rows = vec![
            "create nodereports".to_owned(),
            "get nodereports".to_owned(),
            "patch nodereports".to_owned(),
            "list cloudsyncs/cloud".to_owned(),
            "watch cloudsyncs/cloud".to_owned(),
        ];
        match namespace {
            "containership-core" => rows.extend(
                [
                    "list users",
                    "watch users",
                    "list nodeupgrades",
                    "watch nodeupgrades",
                    "list configmaps/tidewaiter-terminate",
                    "watch configmaps/tidewaiter-terminate",
                ]
                .map(str::to_owned),
            ),
            "default" => rows.push("create events".to_owned()),
            _ => {}
        }
        rows.into_iter().collect::<BTreeSet<_>>()
    };
    for namespace in ["containership-core", "default", "kube-system", "tidewaiter-agent"] {
        let everybody = permissions(&nobody, namespace).await;
        let own = permissions(&thief.client, namespace).await;
        let own: BTreeSet<String> = own.difference(&everybody).cloned().collect();
        assert_eq!(own, expected(namespace), "{namespace}");
    }
}

async fn permissions(client: &Client, namespace: &str) -> BTreeSet<String> {
    let question: SelfSubjectRulesReview =
        serde_json::from_value(json!({"metadata": {}, "spec": {"namespace": namespace}})).unwrap();
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &question).await.unwrap();
    let mut rows = BTreeSet::new();
    for rule in answer.status.unwrap().resource_rules {
        for verb in &rule.verbs {
            for resource in rule.resources.iter().flatten() {
                match rule.resource_names.as_deref() {
                    None | Some([]) => rows.insert(format!("{verb} {resource}")),
                    Some(names) => names
                        .iter()
                        .fold(true, |_, name| rows.insert(format!("{verb} {resource}/{name}"))),
                };
            }
        }
    }
    rows
}

#[tokio::test]
async fn a_kubelet_writes_no_report_and_reads_no_user() {
    let world = World::start().await;
    let thief = Thief::new(&world).await;
    let kubelet = Thief {
        client: world.cluster.client(&Identity::kubelet(&thief.node)),
        ..thief
    };
    let refusal = kubelet.writes(&kubelet.node, json!({})).await.unwrap_err();
    assert!(refusal.contains("forbidden"), "{refusal}");
    let users: Api<tidewaiter_api::containership::User> = Api::namespaced(kubelet.client.clone(), "containership-core");
    let refusal = users.list(&ListParams::default()).await.unwrap_err().to_string();
    assert!(refusal.contains("forbidden"), "{refusal}");
}

/// The kubelet of a node gets the tokens of the pods on its node, and of no other: docs/agent.md.
#[tokio::test]
async fn a_kubelet_gets_the_token_of_the_agent_on_its_own_node_alone() {
    let world = World::start().await;
    let (own, other) = (world.node(), world.node());
    for node in [&own, &other] {
        world.token(node).await;
    }
    let kubelet = world.cluster.client(&Identity::kubelet(&own));
    let accounts: Api<ServiceAccount> = Api::namespaced(kubelet, HOME);
    let pods: Api<Pod> = Api::namespaced(world.cluster.client(&Identity::Admin), HOME);
    let asks = async |pod: &str| {
        let uid = pods.get(pod).await.unwrap().metadata.uid;
        let request = json!({"metadata": {}, "spec": {"audiences": [],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}}});
        let request: TokenRequest = serde_json::from_value(request).unwrap();
        let params = PostParams::default();
        let token = accounts
            .create_token_request("tidewaiter-agent", &params, &request)
            .await;
        token.map(drop).map_err(|error| error.to_string())
    };
    // The authorizer of nodes learns of a pod from a watch.
    eventually("the token of its own node", SOON, async || asks(&own).await).await;
    let refusal = asks(&other).await.unwrap_err();
    assert!(
        refusal.contains("not scheduled to this node") || refusal.contains("forbidden"),
        "{refusal}"
    );
}
