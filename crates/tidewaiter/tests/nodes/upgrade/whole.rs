//! Three real nodes are upgraded, the control plane first and one at a time, while a workload keeps what its budget
//! promises; and again, while everything that takes part is killed at each step.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::json;
use tidewaiter_agent::upgrade::files::Outcome;
use tidewaiter_api::containership::{UpgradeProgress, UpgradeStatus};
use tidewaiter_api::node_report::UpgradeState;
use tidewaiter_testkit::{Identity, Image, KubeletVersion, Process, Program, RealNode, assets, eventually};

use super::system::{Asked, System};
use super::{SCRIPT, SOON};
use crate::{now, shown, took};

/// The replicas of a workload, and how many of them must be there at any time.
const REPLICAS: usize = 3;
const BUDGET: usize = 2;

/// An upgrade that somebody orders while another one is in progress.
const SECOND: &str = "second";

/// A part of the control plane, as kubeadm makes it.
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-scheduler.yaml";

const STATIC_POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: kube-scheduler
  namespace: kube-system
  labels: {tier: control-plane}
spec:
  hostNetwork: true
  containers:
    - name: kube-scheduler
      image: IMAGE
";

/// The additional steps of a script: it counts its runs, and upgrades the control plane.
const COUNTED: &str = r#"
echo "$TIDEWAITER_UPGRADE" >>/root/runs
sync
if [ -e /etc/kubernetes/manifests/kube-scheduler.yaml ]; then
    sed "s/:v.*/:$TIDEWAITER_VERSION/" /etc/kubernetes/manifests/kube-scheduler.yaml >/root/kube-scheduler.yaml
    mv /root/kube-scheduler.yaml /etc/kubernetes/manifests/
fi
"#;

#[tokio::test]
async fn three_real_nodes_are_upgraded_one_after_the_other() {
    let start = now();
    let system = System::start(KubeletVersion::Previous).await;
    static_pods(&system, KubeletVersion::Current).await;
    workload(&system).await;
    took("three nodes with the whole system", start);

    let start = now();
    a_budget_is_kept(&system).await;
    took("three nodes upgraded", start);

    let start = now();
    everything_is_killed(&system).await;
    took("three nodes upgraded, with everything killed", start);
}

/// A static pod of the control plane, whose image has this version.
async fn static_pods(system: &System, version: KubeletVersion) {
    let [master, ..] = system.nodes();
    let name = format!("registry.k8s.io/kube-scheduler:{}", version.as_str());
    let pause = assets::node_programs().join("pause");
    let image = Image::build(
        system.site.scratch.path(),
        &name,
        &[(pause.as_path(), "pause")],
        &["/pause"],
    )
    .await;
    master.load(&image).await;
    let file = system
        .site
        .file("kube-scheduler.yaml", &STATIC_POD.replace("IMAGE", &name));
    master.put(&file, "0600", MANIFEST).await;
    let get = format!(
        "-n kube-system get pod kube-scheduler-{} -o jsonpath={{.spec.containers[0].image}}",
        master.name()
    );
    eventually(format!("the static pod {name}"), SOON, async || {
        match system.site.try_kubectl(&get).await? {
            found if found == name => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

async fn workload(system: &System) {
    let labels = json!({"app": "web"});
    let set = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "terminationGracePeriodSeconds": 1, "containers": [{"name": "web", "image": "testkit.invalid/pause:1"}]}}}});
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": BUDGET, "selector": {"matchLabels": labels}}});
    for object in [set, budget] {
        system.site.kubectl_with("create -f -", &object.to_string()).await;
    }
    system.site.rolled_out("default", "deployment/web").await;
}

/// Returns the number of its available pods.
async fn available(system: &System) -> Result<usize, String> {
    let pods: Api<Pod> = Api::default_namespaced(system.site.control_plane.client(&Identity::Admin));
    let pods = pods
        .list(&ListParams::default().labels("app=web"))
        .await
        .map_err(shown)?;
    let is_there = |pod: &&Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions
            .into_iter()
            .flatten()
            .any(|it| it.type_ == "Ready" && it.status == "True");
        ready && pod.metadata.deletion_timestamp.is_none()
    };
    Ok(pods.iter().filter(is_there).count())
}

/// The observations of an upgrade.
#[derive(Default)]
struct Story {
    /// The nodes whose turn it was, in this order.
    turns: Vec<String>,
    /// The most nodes that were in progress at the same time.
    at_once: usize,
}

impl Story {
    fn see(&mut self, progress: &UpgradeProgress) {
        let states = progress.node_statuses.iter();
        let current: Vec<_> = states
            .filter(|(_, state)| **state == UpgradeStatus::InProgress)
            .collect();
        self.at_once = self.at_once.max(current.len());
        for (name, _) in current {
            if self.turns.last() != Some(name) {
                self.turns.push(name.clone());
            }
        }
    }
}

async fn is_over(system: &System, id: &str) -> Result<(), String> {
    match system.progress(id).await?.cluster_status {
        UpgradeStatus::Success | UpgradeStatus::Failed => Ok(()),
        status => Err(format!("{status:?}")),
    }
}

/// The example script, unchanged, with drained nodes. Meanwhile a Node joins, and somebody orders a second upgrade.
async fn a_budget_is_kept(system: &System) {
    let nodes = system.nodes();
    let policy = json!({"drain": true, "drainTimeoutSeconds": 120});
    let id = system
        .order(&Asked {
            script: SCRIPT,
            timeout: 300,
            policy: Some(policy),
        })
        .await;
    let watch = watch(system, &id);
    let (mut story, mut samples, mut least) = (Story::default(), 0, REPLICAS);
    let watched = async {
        eventually("the upgrade to be over", SOON, async || {
            let found = available(system).await?;
            (samples, least) = (samples + 1, least.min(found));
            is_over(system, &id).await
        })
        .await;
    };
    let meanwhile = async {
        system.turn(&id, nodes[0].name()).await;
        let joined = system.joins(77).await;
        system.orders_by_hand(SECOND).await;
        let waits = "wait clusterupgrade/{} -n containership-core --timeout=2m \
            --for=jsonpath={.status.conditions[?(@.type==\"Progressing\")].reason}=OtherUpgrade";
        system.site.kubectl(&waits.replace("{}", SECOND)).await;
        system.turn(&id, joined.name()).await;
        system.has_version(&joined, KubeletVersion::Current).await;
        // A node that was done and does not stay Ready has failed.
        eventually("the upgrade to be over", SOON, async || {
            joined.heartbeat().await;
            is_over(system, &id).await
        })
        .await;
        joined.name().to_owned()
    };
    let end = system.ends(&id, UpgradeStatus::Success, |progress| story.see(progress));
    let ((), joined, end) = tokio::join!(watched, meanwhile, end);

    println!("{samples} samples, {least} of {REPLICAS} replicas at least");
    assert!(samples > 20 && least >= BUDGET, "{least} replicas in {samples} samples");
    // The turn of the one that joined may be too short to be seen.
    let turns: Vec<_> = story.turns.iter().filter(|name| **name != joined).collect();
    assert_eq!(
        turns,
        nodes.map(RealNode::name),
        "the control plane first, and no node twice"
    );
    assert_eq!(story.at_once, 1);
    assert!(end.node_statuses.contains_key(&joined), "{end:?}");
    assert_eq!(end.node_statuses.len(), nodes.len() + 1, "{end:?}");
    for node in nodes {
        node.has_kubelet(KubeletVersion::Current).await;
        node.ready().await;
        assert_ne!(
            node.node().await.spec.unwrap().unschedulable,
            Some(true),
            "it is in service"
        );
        let report = system.reports(node, &id, UpgradeState::Succeeded).await;
        assert_eq!(report.exit_code, Some(0), "{report:?}");
    }
    let status = watch.exited(SOON).await;
    assert_eq!(status.code(), Some(0), "{}", watch.log());
    assert!(watch.log().contains(nodes[2].name()), "{}", watch.log());

    // Nothing is left to do for the second one.
    let second = system.ends(SECOND, UpgradeStatus::Success, |_| ()).await;
    assert!(second.node_statuses.is_empty(), "{second:?}");
    system.site.kubectl(&format!("delete node {joined}")).await;
}

/// `tidewaiter upgrade watch`.
fn watch(system: &System, id: &str) -> Process {
    let kubeconfig = system.site.control_plane.kubeconfig(&Identity::Admin);
    let program = Program::new(system.site.images.binary())
        .name("watch")
        .args(["upgrade", "watch", id])
        .env("KUBECONFIG", kubeconfig);
    Process::start(&system.site.scratch, program)
}

/// The coordinator is killed after each of its writes, the agent of the control plane at each step, one worker has its
/// power cut before there is a script for it, while the cloud is away, and one after its script has ended.
async fn everything_is_killed(system: &System) {
    let [master, one, two] = system.nodes();
    let reset = async |node: &RealNode| node.links_kubelet(KubeletVersion::Previous).await;
    tokio::join!(
        reset(master),
        reset(one),
        reset(two),
        static_pods(system, KubeletVersion::Previous)
    );
    let script = SCRIPT.replace("set -eu\n", &format!("set -eu\n{COUNTED}"));
    let id = system
        .order(&Asked {
            script: &script,
            timeout: 600,
            policy: None,
        })
        .await;
    let killed = async {
        let (mut before, mut kills) = (UpgradeProgress::default(), 0);
        eventually("the upgrade to be over", SOON, async || {
            let progress = system.progress(&id).await?;
            if progress != before {
                system.kill_coordinator().await;
                kills += 1;
                before = progress;
            }
            match before.cluster_status {
                UpgradeStatus::Success | UpgradeStatus::Failed => Ok(()),
                _ => Err(format!("{before:?}")),
            }
        })
        .await;
        kills
    };
    let faults = async {
        system.turn(&id, master.name()).await;
        system.kill_agent(master).await;
        system.host_says(master, &id, Outcome::Succeeded).await;
        system.kill_agent(master).await;
        system.cloud.server.kill();

        system.turn(&id, one.name()).await;
        let report = system.reports(one, &id, UpgradeState::Blocked).await;
        assert!(report.message.contains("the coordinator"), "{report:?}");
        one.power_cut().await;
        one.power_on().await;
        system.cloud.server.start_again();

        system.host_says(two, &id, Outcome::Succeeded).await;
        two.power_cut().await;
        two.power_on().await;
        two.ready().await;
    };
    let end = system.ends(&id, UpgradeStatus::Success, |_| ());
    let (kills, ..) = tokio::join!(killed, faults, end);
    println!("the coordinator was killed {kills} times");
    assert!(kills >= 4, "{kills}");
    for node in system.nodes() {
        node.has_kubelet(KubeletVersion::Current).await;
        let runs = node.run(["cat", "/root/runs"]).await;
        assert_eq!(runs, format!("{id}\n"), "the script of {} ran once", node.name());
    }
    let get = "-n kube-system get pods -l tier=control-plane -o jsonpath={.items[*].spec.containers[*].image}";
    let images = system.site.kubectl(get).await;
    assert!(images.ends_with(KubeletVersion::Current.as_str()), "{images}");
}
