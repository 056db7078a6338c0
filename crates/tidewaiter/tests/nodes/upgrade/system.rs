//! The whole system on three real nodes, one of them of the control plane: the cloud and the coordinator as processes
//! beside them, the agent by the chart, and the units of `deploy/host` by `tidewaiter host install`.

use std::net::IpAddr;

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams};
use minisign::KeyPair;
use serde_json::{Value, json};
use tidewaiter_agent::upgrade::files::{Outcome, RunResult};
use tidewaiter_api::NodeReport;
use tidewaiter_api::containership::{ClusterUpgrade, UpgradeProgress, UpgradeStatus};
use tidewaiter_api::node_report::{UpgradeReport, UpgradeState};
use tidewaiter_testkit::site::{CONTROL_PLANE, REPOSITORY, Site, WORKERS};
use tidewaiter_testkit::{Identity, Kubelet, KubeletVersion, Process, RealNode, eventually, free_port};

use super::cloud::Cloud;
use super::{FOLDER, SOON};
use crate::{images, shown};

const NAMESPACE: &str = "containership-core";
const AGENT: &str = "daemonset/tidewaiter-agent";

/// The agent of a node, and not the shell that looks for it.
const KILL_AGENT: &str = r#"
for file in /proc/[0-9]*/cmdline; do
    case "$(tr '\0' ' ' <"$file" 2>/dev/null)" in
    /*tidewaiter\ agent\ *) process=${file%/cmdline}; kill -KILL "${process#/proc/}" ;;
    esac
done
"#;

/// Dropped, it is gone.
pub struct System {
    pub coordinator: Process,
    pub cloud: Cloud,
    /// The file of the secret key.
    key: String,
    pub site: Site,
}

/// The upgrade, and its options.
pub struct Asked<'a> {
    pub script: &'a str,
    /// `nodeTimeoutSeconds`.
    pub timeout: u32,
    /// The policy, which the cloud does not have.
    pub policy: Option<Value>,
}

impl System {
    /// The workers have the kubelet of the release before, by the name of their nodes; the node of the control plane,
    /// which is the first one, has this one.
    pub async fn start(first: KubeletVersion) -> Self {
        let mut site = Site::start_at(first, images(), &[CONTROL_PLANE, WORKERS, WORKERS]).await;
        site.nodes[1..].sort_by(|one, other| one.name().cmp(other.name()));
        let names: Vec<_> = site.nodes.iter().map(RealNode::name).collect();
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let key = site.file("minisign.key", &pair.sk.to_box(None).unwrap().into_string());
        let public = pair.pk.to_box().unwrap().into_string();
        let old = &site.nodes[usize::from(first == KubeletVersion::Current)..];
        let relink = join_all(old.iter().map(|node| node.links_kubelet(KubeletVersion::Previous)));
        let binary = site.images.binary();
        let (cloud, _) = tokio::join!(Cloud::start(&binary, &names), relink);
        let install = old
            .iter()
            .map(|node| node.installs_host(&binary, &cloud.cluster, &public));
        join_all(install).await;
        let coordinator = coordinator(&site, &cloud).await;
        site.kubectl("label nodes --all containership.io/managed=true").await;
        site.rolled_out("tidewaiter-agent", AGENT).await;
        Self {
            coordinator,
            cloud,
            key: key.display().to_string(),
            site,
        }
    }

    /// The node of the control plane, and the workers in the order of their names.
    pub fn nodes(&self) -> [&RealNode; 3] {
        let [master, one, two] = &self.site.nodes[..] else {
            unreachable!()
        };
        [master, one, two]
    }

    /// Has the cloud order an upgrade, with a signed script. With a policy, a person creates the `ClusterUpgrade`,
    /// because the cloud has none; the coordinator does not run meanwhile, so that it begins with the policy.
    pub async fn order(&self, asked: &Asked<'_>) -> String {
        let spec = spec(asked.timeout);
        if asked.policy.is_some() {
            self.coordinator.kill();
        }
        let id = self.cloud.upgrade(&spec).await;
        let names: Vec<_> = self.site.nodes.iter().map(RealNode::name).collect();
        let version = KubeletVersion::Current.as_str();
        self.cloud.signs(&id, asked.script, version, &names, &self.key).await;
        if let Some(policy) = &asked.policy {
            let mut spec = spec;
            spec["id"] = json!(id);
            let given = policy.as_object().unwrap().clone();
            spec["policy"].as_object_mut().unwrap().extend(given);
            self.create(&id, &spec).await;
            self.start_coordinator().await;
        }
        id
    }

    /// A person orders an upgrade without the cloud, which has no script for it.
    pub async fn orders_by_hand(&self, name: &str) {
        self.create(name, &spec(300)).await;
    }

    async fn create(&self, name: &str, spec: &Value) {
        let object = json!({"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade", "spec": spec,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"containership.io/managed": "true"}}});
        self.site.kubectl_with("create -f -", &object.to_string()).await;
    }

    /// SIGKILL, and another one takes its place. The Lease of a killed one would have to expire; docs/operating.md says
    /// what to do.
    pub async fn kill_coordinator(&self) {
        self.coordinator.kill();
        self.start_coordinator().await;
    }

    async fn start_coordinator(&self) {
        let leases: Api<Lease> = Api::namespaced(self.site.control_plane.client(&Identity::Admin), NAMESPACE);
        let _ = leases.delete("tidewaiter-coordinator", &DeleteParams::default()).await;
        self.coordinator.start_again();
    }

    /// SIGKILL to the agent of a node.
    pub async fn kill_agent(&self, node: &RealNode) {
        node.run(["sh", "-c", KILL_AGENT]).await;
    }

    fn upgrades(&self) -> Api<ClusterUpgrade> {
        Api::namespaced(self.site.control_plane.client(&Identity::Admin), NAMESPACE)
    }

    /// Returns the progress of an upgrade; an error, before the mirror has it.
    pub async fn progress(&self, id: &str) -> Result<UpgradeProgress, String> {
        let object = self.upgrades().get_opt(id).await.map_err(shown)?;
        Ok(object.and_then(|object| object.spec.status).unwrap_or_default())
    }

    /// Waits for the end of an upgrade; `look` sees each state on the way.
    pub async fn ends(
        &self,
        id: &str,
        status: UpgradeStatus,
        mut look: impl FnMut(&UpgradeProgress),
    ) -> UpgradeProgress {
        eventually(format!("the upgrade to be {status:?}"), SOON, async || {
            let progress = self.progress(id).await?;
            look(&progress);
            if progress.cluster_status == status {
                return Ok(progress);
            }
            let says = self.says(id).await;
            assert!(
                !matches!(progress.cluster_status, UpgradeStatus::Success | UpgradeStatus::Failed),
                "{progress:?}: {says}"
            );
            Err(format!("{progress:?}: {says}\n{}", self.coordinator.log_tail()))
        })
        .await
    }

    /// Its conditions, and what the nodes report.
    pub async fn says(&self, id: &str) -> String {
        let object = self.upgrades().get_opt(id).await.ok().flatten();
        let conditions = object.and_then(|object| object.status).map(|status| status.conditions);
        let reports: Api<NodeReport> = Api::all(self.site.control_plane.client(&Identity::Admin));
        let reports = reports.list(&ListParams::default()).await.map(|list| list.items);
        let upgrades = reports
            .into_iter()
            .flatten()
            .filter_map(|report| report.status?.upgrade);
        format!("{conditions:?} {:?}", upgrades.collect::<Vec<_>>())
    }

    /// Waits until it is the turn of this node.
    pub async fn turn(&self, id: &str, node: &str) {
        eventually(format!("the turn of {node}"), SOON, async || {
            let progress = self.progress(id).await?;
            if progress.node_statuses.get(node) == Some(&UpgradeStatus::InProgress) {
                return Ok(());
            }
            Err(format!("{progress:?}: {}", self.says(id).await))
        })
        .await;
    }

    /// Waits until the host says this of the upgrade.
    pub async fn host_says(&self, node: &RealNode, id: &str, outcome: Outcome) -> RunResult {
        let path = format!("{FOLDER}/result.json");
        eventually(format!("{} to say {outcome:?}", node.name()), SOON, async || {
            let text = node.try_run(["cat", &path]).await?;
            let result: RunResult = serde_json::from_str(&text).map_err(shown)?;
            if result.id == id && result.outcome == outcome {
                return Ok(result);
            }
            Err(format!("{result:?}; {}", self.says(id).await))
        })
        .await
    }

    /// Waits until the `NodeReport` says this of the upgrade.
    pub async fn reports(&self, node: &RealNode, id: &str, state: UpgradeState) -> UpgradeReport {
        let reports: Api<NodeReport> = Api::all(self.site.control_plane.client(&Identity::Admin));
        eventually(format!("{} to report {state:?}", node.name()), SOON, async || {
            let report = reports.get(node.name()).await.map_err(shown)?;
            let report = report
                .status
                .and_then(|status| status.upgrade)
                .ok_or("it says nothing")?;
            if report.id == id && report.state == state {
                Ok(report)
            } else {
                Err(format!("{report:?}"))
            }
        })
        .await
    }

    /// A Node joins that no machine is behind, with the kubelet of the release before.
    pub async fn joins(&self, number: u8) -> Kubelet {
        let kubelet = self.site.join(number).await;
        self.has_version(&kubelet, KubeletVersion::Previous).await;
        let label = format!("label node {} containership.io/managed=true", kubelet.name());
        self.site.kubectl(&label).await;
        kubelet
    }

    /// The kubelet of such a Node says so.
    pub async fn has_version(&self, kubelet: &Kubelet, version: KubeletVersion) {
        kubelet.heartbeat().await;
        let status = json!({"status": {"nodeInfo": {"kubeletVersion": version.as_str()}}});
        kubelet.patch_status(status).await.unwrap();
    }
}

/// All nodes, to the version of the control plane. However many fail, it goes on.
fn spec(timeout: u32) -> Value {
    json!({"type": "kubernetes", "targetVersion": KubeletVersion::Current.as_str(), "labelSelector": [], "nodeTimeoutSeconds": timeout,
        "policy": {"minReadySeconds": 5, "maxFailures": 9}})
}

/// The release with the agents, and a coordinator beside the cluster.
async fn coordinator(site: &Site, cloud: &Cloud) -> Process {
    let IpAddr::V4(gateway) = site.control_plane.address().ip() else {
        panic!("nodes have IPv4");
    };
    let endpoints = format!("{gateway}:{}", free_port());
    let values = json!({
        "image": {"repository": REPOSITORY},
        "coordinator": {
            "enabled": true,
            "nodeSelector": {"example.com/none": "none"},
            "upgrades": {"drain": true},
            "settings": {
                "upgrades": "enabled",
                "cloud": {"apiBaseUrl": cloud.url, "organizationId": cloud.organization, "clusterId": cloud.cluster},
            },
        },
        "agent": {
            "enabled": true,
            "settings": {"upgrades": "enabled", "coordinator": {"url": format!("http://{endpoints}")}},
        },
    });
    site.helm("install tidewaiter deploy/chart", &values).await;
    let own = [
        ("TIDEWAITER_ENDPOINTS__ADDRESS", endpoints.as_str()),
        ("TIDEWAITER_UPGRADES", "enabled"),
    ];
    crate::coordinator(site, &[&own[..], &cloud.variables()].concat())
}
