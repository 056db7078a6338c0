//! 150,000 pods that no API server here could hold beside everything else: their list is answered in its place, by the
//! proxy.
//!
//! Anyone who lists pods through the proxy gets these, page by page; the watch that follows goes on at the real API
//! server, so what comes and goes later are real pods.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{Api, ListParams};
use serde::Serialize;
use serde_json::{Value, json};
use tidewaiter_testkit::{Action, ApiProxy, ApiRequest};

use crate::bed::Bed;

pub const PODS: usize = 150_000;

/// Pods of the system on each Node; each needs its node.
const DAEMONS: usize = 4;
/// One in this number of them is not ready.
const TROUBLED: usize = 200;
/// Pods that the cluster needs: DNS, autoscaler, operators.
const OF_CLUSTER: usize = 36;

/// A pod of a Deployment as the API server writes it, about 8 kB, without the name, the uid and the node of its own.
const POD: &str = include_str!("pod.json");

/// In the order of the API server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodList {
    kind: &'static str,
    api_version: &'static str,
    metadata: ListMeta,
    items: Vec<Pod>,
}

struct Feed {
    /// The moment of the list: from it the real watch goes on.
    version: String,
    nodes: Vec<String>,
    daemon: Pod,
    troubled: Pod,
    of_cluster: Pod,
    other: Pod,
}

/// Has the proxy answer every list of pods from now on.
pub async fn feed(bed: &Bed, proxy: &ApiProxy) -> Result<()> {
    let real = Api::<Pod>::all(bed.admin())
        .list(&ListParams::default().limit(1))
        .await?;
    let version = real.metadata.resource_version.context("a list without a version")?;
    let feed = Feed {
        version,
        nodes: bed.instances.iter().map(|one| one.node_name().to_owned()).collect(),
        daemon: template(Some("system-node-critical"), true)?,
        troubled: template(Some("system-node-critical"), false)?,
        of_cluster: template(Some("system-cluster-critical"), true)?,
        other: template(None, true)?,
    };
    proxy.hook(move |request| {
        if request.path == "/api/v1/pods" && !request.is_watch() && !request.is_write() {
            match feed.page(request) {
                Ok(body) => Action::Reply { status: 200, body },
                Err(error) => Action::refuse(500, "InternalError", &error.to_string()),
            }
        } else {
            Action::Forward
        }
    });
    Ok(())
}

impl Feed {
    /// The page that is requested with `limit` and `continue`: the number of its first pod. It is encoded again each
    /// time, as an API server does it, which is most of what a list costs.
    fn page(&self, request: &ApiRequest) -> serde_json::Result<String> {
        let parameter = |name: &str| {
            let mut pairs = request.query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name)?.1.parse::<usize>().ok()
        };
        let start = parameter("continue").unwrap_or(0);
        let end = PODS.min(start + parameter("limit").unwrap_or(PODS));
        let metadata = ListMeta {
            resource_version: Some(self.version.clone()),
            continue_: (end < PODS).then(|| end.to_string()),
            ..ListMeta::default()
        };
        let items = (start..end).map(|number| self.pod(number)).collect();
        serde_json::to_string(&PodList {
            kind: "PodList",
            api_version: "v1",
            metadata,
            items,
        })
    }

    fn pod(&self, number: usize) -> Pod {
        let daemons = self.nodes.len() * DAEMONS;
        let template = match number {
            _ if number < daemons && number.is_multiple_of(TROUBLED) => &self.troubled,
            _ if number < daemons => &self.daemon,
            _ if number < daemons + OF_CLUSTER => &self.of_cluster,
            _ => &self.other,
        };
        let mut pod = template.clone();
        pod.metadata.name = Some(format!("web-7c9d8b6f5d-{number:06}"));
        pod.metadata.uid = Some(format!("8a4c2f6e-0000-4000-8000-{number:012}"));
        let node = self.nodes[number % self.nodes.len()].clone();
        pod.spec.get_or_insert_default().node_name = Some(node);
        pod
    }
}

/// A pod of this priority class, if of any.
fn template(class: Option<&str>, ready: bool) -> Result<Pod> {
    let mut pod: Value = serde_json::from_str(POD)?;
    if let Some(class) = class {
        pod["metadata"]["namespace"] = json!("kube-system");
        pod["spec"]["priorityClassName"] = json!(class);
    }
    pod["status"]["containerStatuses"][0]["ready"] = json!(ready);
    Ok(serde_json::from_value(pod)?)
}
