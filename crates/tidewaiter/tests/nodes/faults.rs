//! One thing fails on one of two nodes of the control plane: labels, the verdict and the sync go on, and when it is
//! repaired, all is as before without anybody's help.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tidewaiter_testkit::site::{CONTROL_PLANE, Cloud, SOON, Site, WORKERS, cloud};
use tidewaiter_testkit::{RealNode, Unit, eventually};

use crate::install::{install, is_mirrored};
use crate::observer::seconds;
use crate::{now, shown, site};

/// After a leader is gone without a word: 18 s are promised (`make bench` measures them), and this machine does ten
/// things at once.
const LABELS: Duration = Duration::from_mins(1);
/// A replica of the cloud that is gone gets requests until its node is known to be gone, 20 s here and 50 s by default.
/// If all replicas were there, they are replaced after another 30 s.
const SYNC: Duration = Duration::from_mins(2);

const DEPLOYMENTS: [(&str, &str); 2] = [
    ("containership-core", "deployment/tidewaiter-coordinator"),
    (cloud::NAMESPACE, "deployment/tidewaiter-cloud"),
];

struct Release {
    site: Site,
    cloud: Cloud,
    /// Nodes that joined and left.
    joined: u8,
}

impl Release {
    async fn install() -> Self {
        let site = site([CONTROL_PLANE; 2]).await;
        let cloud = Cloud::install(&site).await;
        install(&site, &cloud).await;
        Self { site, cloud, joined: 0 }
    }

    /// The node of the controller that leads, and the other one.
    async fn leader(&self) -> (&RealNode, &RealNode) {
        let holder = "-n kube-system get lease kops-controller-leader -o jsonpath={.spec.holderIdentity}";
        let [first, second] = &self.site.nodes[..] else {
            unreachable!()
        };
        eventually("a controller to lead", SOON, async || {
            let holder = self.site.try_kubectl(holder).await.map_err(shown)?;
            match (holder.starts_with(first.name()), holder.starts_with(second.name())) {
                (true, _) => Ok((first, second)),
                (_, true) => Ok((second, first)),
                _ => Err(holder),
            }
        })
        .await
    }

    /// A new Node gets its labels, and a change in the cloud reaches the cluster; asked from this node.
    async fn goes_on(&self, fault: &str, number: u8, from: &RealNode) {
        let start = now();
        let node = self.site.join(number).await;
        self.site.is_labelled(node.name(), WORKERS).await;
        let labels = start.elapsed();
        is_mirrored(&self.site, &self.cloud, from, fault).await;
        let sync = start.elapsed();
        println!("{fault}: labels after {labels:.1?}, the change of the cloud after {sync:.1?}");
        assert!(labels < LABELS && sync < SYNC, "{fault}: {labels:?}, {sync:?}");
        self.site.kubectl(&format!("delete node {}", node.name())).await;
    }

    /// Puts all replicas of the coordinator and of the cloud on this node; the scheduler may do that.
    async fn crowd(&self, node: &RealNode, other: &RealNode) {
        self.site.kubectl(&format!("cordon {}", other.name())).await;
        for (namespace, workload) in DEPLOYMENTS {
            self.site
                .kubectl(&format!("-n {namespace} rollout restart {workload}"))
                .await;
            self.site.rolled_out(namespace, workload).await;
        }
        self.site.kubectl(&format!("uncordon {}", other.name())).await;
        let pods = self.site.pods().await;
        let left = pods.iter().filter(|pod| is_replica_on(pod, other)).count();
        assert_eq!(left, 0, "all replicas are on {}", node.name());
    }

    /// Everything has as many ready replicas as before.
    async fn is_as_before(&self, fault: &str) {
        let start = now();
        self.site.is_well().await;
        let controller = ("kube-system", "daemonset/tidewaiter-controller");
        for (namespace, workload) in DEPLOYMENTS.into_iter().chain([controller]) {
            self.site.rolled_out(namespace, workload).await;
        }
        self.site.verdict_counts(&self.site.nodes[0], 2, 0).await;
        println!("{fault}: as before {:.1} s after the repair", seconds(start));
    }

    fn next(&mut self) -> u8 {
        self.joined += 1;
        20 + self.joined
    }
}

#[tokio::test]
async fn the_node_of_the_leader_fails() {
    let mut release = Release::install().await;
    let number = release.next();
    let (leader, other) = release.leader().await;
    leader.power_cut().await;
    release.goes_on("power", number, other).await;
    leader.not_ready().await;
    release.site.verdict_counts(other, 2, 1).await;
    leader.power_on().await;
    release.is_as_before("power").await;

    let number = release.next();
    let (leader, other) = release.leader().await;
    release.crowd(leader, other).await;
    leader.cut_network().await;
    release.goes_on("network", number, other).await;
    leader.not_ready().await;
    release.site.verdict_counts(other, 2, 1).await;
    leader.heal_network().await;
    release.is_as_before("network").await;

    let number = release.next();
    let (leader, other) = release.leader().await;
    leader.stop(Unit::Kubelet).await;
    leader.not_ready().await;
    release.goes_on("kubelet", number, other).await;
    release.site.verdict_counts(other, 2, 1).await;
    leader.start_again(Unit::Kubelet).await;
    release.is_as_before("kubelet").await;
}

/// A soft threshold above all memory: kubelet evicts pods, and reserves nothing.
const PRESSURE: &str = r#"
config=/etc/kubernetes/kubelet.yaml
cp $config $config.before
sed -i 's/^{/{"evictionSoft":{"memory.available":"100Ti"},"evictionSoftGracePeriod":{"memory.available":"1s"},"evictionMaxPodGracePeriod":10,/' $config
systemctl restart kubelet
"#;
const NO_PRESSURE: &str =
    "mv /etc/kubernetes/kubelet.yaml.before /etc/kubernetes/kubelet.yaml; systemctl restart kubelet";

#[tokio::test]
async fn a_node_has_no_room_and_nodes_reboot_without_a_registry() {
    let mut release = Release::install().await;
    let number = release.next();
    let (leader, other) = release.leader().await;
    leader.fill_disk().await;
    leader.has_condition("DiskPressure", "True").await;
    release.goes_on("disk", number, other).await;
    leader.free_disk().await;
    leader.has_condition("DiskPressure", "False").await;
    release.is_as_before("disk").await;

    let number = release.next();
    let (leader, other) = release.leader().await;
    leader.run(["sh", "-ec", PRESSURE]).await;
    leader.has_condition("MemoryPressure", "True").await;
    release.evicted_from(leader).await;
    release.goes_on("memory", number, other).await;
    leader.run(["sh", "-ec", NO_PRESSURE]).await;
    leader.has_condition("MemoryPressure", "False").await;
    release.is_as_before("memory").await;

    release.site.registry.process().kill();
    for index in [0, 1] {
        let number = release.next();
        let (node, other) = (&release.site.nodes[index], &release.site.nodes[1 - index]);
        node.reboot().await;
        release.goes_on(&format!("reboot-{index}"), number, other).await;
        release.is_as_before("reboot").await;
    }
}

impl Release {
    /// Waits until no pod of the coordinator and of the cloud is on this node.
    async fn evicted_from(&self, node: &RealNode) {
        eventually(format!("the pods of {} to be evicted", node.name()), SOON, async || {
            let pods = self.site.pods().await;
            match pods.iter().filter(|pod| is_replica_on(pod, node)).count() {
                0 => Ok(()),
                left => Err(format!("{left} are there")),
            }
        })
        .await;
    }
}

/// Returns true if it is a pod of the coordinator or of the cloud on this node.
fn is_replica_on(pod: &Pod, node: &RealNode) -> bool {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    on == Some(node.name()) && pod.metadata.namespace.as_deref() != Some("kube-system")
}
