//! The forecast of a drain is what the eviction API then does: random pods and budgets on a real API server.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{EvictParams, Patch, PatchParams, PostParams};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::upgrade::NodePods;
use tidewaiter_kit::Pause;
use tidewaiter_testkit::Identity;
use tidewaiter_upgrade::drain::DrainBlocker;

use crate::cluster::{Wiring, coordinator};
use crate::world::{OLD, World};

/// Each has a namespace and a node of its own.
const CASES: usize = 60;

#[derive(Clone, Debug)]
struct RandomPod {
    app: &'static str,
    phase: &'static str,
    ready: bool,
    controller: &'static str,
}

#[derive(Clone, Debug)]
struct RandomBudget {
    selector: Value,
    policy: Option<&'static str>,
    allowed: i32,
    healthy: i32,
    observed: i64,
}

fn pods() -> impl Strategy<Value = Vec<RandomPod>> {
    let controllers =
        prop_oneof![4 => Just("ReplicaSet"), 1 => Just("StatefulSet"), 1 => Just("DaemonSet"), 1 => Just("")];
    let phases = prop_oneof![5 => Just("Running"), 1 => Just("Pending"), 1 => Just("Succeeded")];
    let pod = (prop_oneof![Just("a"), Just("b")], phases, any::<bool>(), controllers);
    let pod = pod.prop_map(|(app, phase, ready, controller)| RandomPod {
        app,
        phase,
        ready,
        controller,
    });
    proptest::collection::vec(pod, 1..6)
}

fn budgets() -> impl Strategy<Value = Vec<RandomBudget>> {
    let expression =
        |operator: &str| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": ["a"]}]});
    let selectors = prop_oneof![
        3 => Just(json!({"matchLabels": {"app": "a"}})),
        2 => Just(json!({"matchLabels": {"app": "b"}})),
        1 => Just(json!({})),
        1 => Just(Value::Null),
        1 => Just(expression("In")),
        1 => Just(expression("NotIn")),
        1 => Just(json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]})),
    ];
    let policies = prop_oneof![2 => Just(None), 1 => Just(Some("AlwaysAllow")), 1 => Just(Some("IfHealthyBudget"))];
    let budget = (
        selectors,
        policies,
        0..3_i32,
        1..3_i32,
        prop_oneof![4 => Just(1_i64), 1 => Just(0)],
    );
    let budget = budget.prop_map(|(selector, policy, allowed, healthy, observed)| RandomBudget {
        selector,
        policy,
        allowed,
        healthy,
        observed,
    });
    proptest::collection::vec(budget, 0..3)
}

#[tokio::test]
async fn the_forecast_is_what_the_eviction_api_does() {
    let world = World::start().await;
    let client = world.cluster.client(&Identity::Admin);
    // Its client does not wait until a budget permits more.
    let role = Wiring::new(&world.cluster.config(&coordinator()), Pause::never()).await;
    let evictor = role.clients.for_controller("evictions", 1);
    let mut runner = TestRunner::deterministic();
    let mut seen = [0; 4];
    for case in 0..CASES {
        let pods = pods().new_tree(&mut runner).unwrap().current();
        let budgets = budgets().new_tree(&mut runner).unwrap().current();
        let name = format!("case-{case:02}");
        world.join(&name, OLD, &[]).await;
        create(&world, &name, &pods, &budgets).await;
        let api: Api<Pod> = Api::namespaced(evictor.clone(), &name);
        let read = NodePods::read_all(&client).await.unwrap();
        let left = read.left.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        for left in left {
            let pod = left.pod.strip_prefix(&format!("{name}/")).unwrap();
            let (code, number) = match left.blocker {
                DrainBlocker::NoController => {
                    seen[3] += 1;
                    continue;
                }
                DrainBlocker::Leaving => (201, 0),
                DrainBlocker::Budget(_) => (429, 1),
                DrainBlocker::SeveralBudgets(_) => (500, 2),
            };
            seen[number] += 1;
            let evicted = match api.evict(pod, &EvictParams::default()).await {
                Ok(_) => 201,
                Err(kube::Error::Api(status)) => status.code,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(evicted, code, "{left}, in {left:?} of {pods:#?} {budgets:#?}");
        }
        let staying = pods
            .iter()
            .filter(|pod| pod.phase == "Succeeded" || pod.controller == "DaemonSet");
        assert_eq!(left.len(), pods.len() - staying.count(), "{pods:#?}");
    }
    assert!(seen.iter().all(|count| *count > 3), "each verdict is there: {seen:?}");
}

async fn create(world: &World, name: &str, pods: &[RandomPod], budgets: &[RandomBudget]) {
    let client = world.cluster.client(&Identity::Admin);
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    world.default_account(name).await;
    let api: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), name);
    for (number, budget) in budgets.iter().enumerate() {
        let title = format!("budget-{number}");
        let spec =
            json!({"maxUnavailable": 1, "selector": budget.selector, "unhealthyPodEvictionPolicy": budget.policy});
        let object = serde_json::from_value(json!({"metadata": {"name": title}, "spec": spec})).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
        let status = json!({"status": {"observedGeneration": budget.observed, "disruptionsAllowed": budget.allowed,
            "currentHealthy": budget.healthy, "desiredHealthy": 2, "expectedPods": 2}});
        api.patch_status(&title, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }
    let api: Api<Pod> = Api::namespaced(client, name);
    for (number, pod) in pods.iter().enumerate() {
        let title = format!("pod-{number}");
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": pod.controller, "name": "x", "uid": "1", "controller": true}]);
        let owners = if pod.controller.is_empty() { json!([]) } else { owner };
        let object = json!({"metadata": {"name": title, "labels": {"app": pod.app}, "ownerReferences": owners},
            "spec": {"nodeName": name, "containers": [{"name": "a", "image": "example.com/a"}]}});
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await
            .unwrap();
        let ready = json!({"type": "Ready", "status": if pod.ready { "True" } else { "False" }});
        let status = Patch::Merge(json!({"status": {"phase": pod.phase, "conditions": [ready]}}));
        api.patch_status(&title, &PatchParams::default(), &status)
            .await
            .unwrap();
    }
}
