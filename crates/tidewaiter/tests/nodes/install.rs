//! Installed by Helm on a control-plane node and a worker: it works, it is tested, it goes, and what stays is what
//! docs/install.md says.

use serde_json::{Value, json};
use tidewaiter_testkit::command::printed;
use tidewaiter_testkit::site::{CONTROL_PLANE, Cloud, SOON, Site, WORKERS};
use tidewaiter_testkit::{RealNode, eventually};

use crate::agents;
use crate::observer::Idle;
use crate::plugin::is_applied_and_goes;
use crate::takeover::takes_over;
use crate::{now, site, took};

/// Merges the second one, an object, into the first one.
pub fn merged(mut first: Value, second: Value) -> Value {
    let Value::Object(second) = second else {
        panic!("no object: {second}");
    };
    first.as_object_mut().unwrap().extend(second);
    first
}

/// The release with controller and coordinator, as its first user installs it.
pub async fn install(site: &Site, cloud: &Cloud) -> Value {
    let mut coordinator = cloud.coordinator_values();
    coordinator["plugins"] = json!({"clusterAdmin": true});
    let values = merged(site.controller_values(), json!({ "coordinator": coordinator }));
    let start = now();
    let notes = site.helm("install tidewaiter deploy/chart", &values).await;
    assert!(notes.contains("kubectl get nodeidentities"), "{notes}");
    cloud.create_key(site).await;
    site.is_labelled(site.nodes[0].name(), CONTROL_PLANE).await;
    took("from helm install to the first label", start);
    site.rolled_out("kube-system", "daemonset/tidewaiter-controller").await;
    site.rolled_out("containership-core", "deployment/tidewaiter-coordinator")
        .await;
    took("from helm install to the end of the rollouts", start);
    values
}

/// Waits until a change in the cloud is in the cluster and on its nodes.
pub async fn is_mirrored(site: &Site, cloud: &Cloud, from: &RealNode, key: &str) {
    cloud.set_label(from, key).await;
    eventually(
        format!("the label {key} of the cloud to be on the nodes"),
        SOON,
        async || {
            for node in &site.nodes {
                let labels = node.node().await.metadata.labels.unwrap_or_default();
                if !labels.contains_key(&format!("cluster.containership.io/{key}")) {
                    return Err(format!("{}: {labels:?}", node.name()));
                }
            }
            Ok(())
        },
    )
    .await;
}

#[tokio::test]
async fn what_helm_installs_works_and_goes_and_kops_daemonset_runs_it_too() {
    let site = site([CONTROL_PLANE, WORKERS]).await;
    works_and_goes(&site).await;
    // A file that stays would hide the next one.
    site.kubectl("label nodes --all kops.k8s.io/instancegroup- team-").await;
    site.kubectl("-n kube-system delete lease kops-controller-leader").await;
    takes_over(&site).await;
}

/// As the documentation says.
async fn works_and_goes(site: &Site) {
    let start = now();
    let cloud = Cloud::install(site).await;
    took("the cloud", start);
    install(site, &cloud).await;
    let [master, worker] = &site.nodes[..] else {
        unreachable!()
    };
    agents::are_installed(site).await;
    agents::cannot_pin(site).await;
    // As long as a kubelet would take to restart the controller: three probes of ten seconds.
    let flooded = now();
    let address = master.address();
    let addresses = [3984, 3986, 3987].map(|port| format!("{address}:{port}")).to_vec();
    let idle = Idle::start(worker, addresses, 1_200);

    site.is_labelled(worker.name(), WORKERS).await;
    is_mirrored(site, &cloud, worker, "installed").await;
    site.verdict_counts(worker, 2, 0).await;
    let records = site.kubectl("get nodeidentities,clusterhealths,cloudsyncs").await;
    assert_eq!(records.matches("Proven").count(), 2, "{records}");

    for release in ["tidewaiter", "cloud --namespace tidewaiter-cloud"] {
        let said = printed(&mut site.helm_alone(&format!("test {release}"))).await;
        assert!(said.contains("Phase:          Succeeded"), "{said}");
    }
    assert!(site.pods().await.len() == 7, "{:?}", site.pods().await);
    let start = now();
    is_applied_and_goes(site, &cloud).await;
    took("a plugin, from installation to removal", start);
    let start = now();
    agents::follow_the_cloud(site, &cloud).await;
    took("changes of keys", start);
    memory(site).await;

    eventually("the probes of half a minute", SOON, async || {
        let passed = flooded.elapsed();
        if passed.as_secs() > 33 {
            Ok(())
        } else {
            Err(format!("{passed:?}"))
        }
    })
    .await;
    site.is_well().await;
    site.nothing_was_restarted().await;
    let opened = idle.end().await;
    assert!(opened >= 1_200, "{opened} idle connections");

    let start = now();
    agents::are_uninstalled(site).await;
    agents::are_installed(site).await;
    took("the agents uninstalled, and installed again", start);
    uninstall(site).await;
}

/// The peak of each container, and that the limit of its pod is in force on the node.
async fn memory(site: &Site) {
    for node in &site.nodes {
        let groups = "cd /sys/fs/cgroup/memory/kubepods && find . -mindepth 3 -name memory.max_usage_in_bytes | while read -r file; do \
                      group=${file%/*}; echo \"$group $(cat $file) $(cat $group/memory.limit_in_bytes)\"; done";
        for line in node.run(["sh", "-c", groups]).await.lines() {
            let numbers: Vec<u64> = line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
            // The pause container of each pod has no limit of its own.
            if numbers[1] < 1 << 40 {
                println!(
                    "{}: peak {} MiB of {} MiB",
                    node.name(),
                    numbers[0] >> 20,
                    numbers[1] >> 20
                );
                assert!(numbers[0] < numbers[1], "{line}");
            }
        }
    }
}

/// The section "Uninstalling" of docs/install.md.
async fn uninstall(site: &Site) {
    let request = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "tidewaiter-terminate", "namespace": "containership-core"},
        "data": {"requestedBy": "an administrator", "requestedAt": "2026-01-01T00:00:00Z", "state": "Requested"},
    });
    site.kubectl_with("create -f -", &request.to_string()).await;
    site.kubectl(
        "-n containership-core wait --timeout=4m configmap/tidewaiter-terminate --for=jsonpath={.data.state}=Removed",
    )
    .await;
    agents::have_no_keys(site).await;
    for words in [
        "uninstall tidewaiter --wait",
        "uninstall cloud --wait --namespace tidewaiter-cloud",
    ] {
        printed(&mut site.helm_alone(words)).await;
    }
    let kinds = "crds,namespaces,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,configmaps,secrets,services,\
                 daemonsets,deployments,replicasets,pods,poddisruptionbudgets,networkpolicies,priorityclasses,leases,\
                 controllerrevisions,validatingadmissionpolicies,validatingadmissionpolicybindings";
    let ours = async || {
        let printed = site.kubectl(&format!("get -A -o name {kinds}")).await;
        let is_ours = |line: &&str| {
            let name = line.split_once('/').unwrap().1;
            ["tidewaiter", "containership", "kops-controller"]
                .iter()
                .any(|part| name.contains(part))
        };
        let mut ours: Vec<String> = printed.lines().filter(is_ours).map(str::to_owned).collect();
        ours.sort();
        ours.retain(|line| !line.starts_with("customresourcedefinition"));
        ours
    };
    let stays = [
        // kOps'.
        "configmap/kops-controller",
        // The request to terminate.
        "configmap/tidewaiter-terminate",
        "lease.coordination.k8s.io/kops-controller-leader",
        "lease.coordination.k8s.io/tidewaiter-coordinator",
        "namespace/containership-core",
        "namespace/tidewaiter-agent",
        "namespace/tidewaiter-cloud",
        // Those that the installer created.
        "secret/tidewaiter-cloud-database",
        "secret/tidewaiter-cloud-keys",
        "secret/tidewaiter-cloud-sealing",
        "secret/tidewaiter-cloud-tls",
        "secret/tidewaiter-coordinator-cloud",
    ];
    eventually("what stays to be left, and the pods to end", SOON, async || {
        let left = ours().await;
        if left == stays {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    for node in &site.nodes {
        let labels = node.node().await.metadata.labels.unwrap_or_default();
        assert!(
            labels.contains_key("kops.k8s.io/instancegroup"),
            "the controller's labels stay: {labels:?}"
        );
        assert!(!labels.keys().any(|key| key.contains("containership.io")), "{labels:?}");
    }
    site.kubectl("delete -f deploy/crds -f deploy/crds/coordinator -f deploy/crds/agent")
        .await;
    site.kubectl("delete namespace containership-core tidewaiter-agent tidewaiter-cloud")
        .await;
    let left = ours().await;
    assert_eq!(left, [stays[0], stays[2]]);
}
