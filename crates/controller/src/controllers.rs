//! The controllers of the role in one table, and the caches that they share.

use std::sync::Arc;

use kube::Client;
use tidewaiter_api::ClusterName;
use tidewaiter_identity::{CloudGroups, Lookup};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Cache, ControllerContext, Kit, Tasks};
use tidewaiter_kops::Definitions;
use tidewaiter_validation::{Options, Pod, matters};

use crate::node_controller::{LabelsFrom, NodeControllerParts, Policy};
use crate::objects::{Node, Record};
use crate::verdicts::VerdictParts;
use crate::{MetricsServer, cluster_health, node_controller, verdicts};

/// Pods in a page of their list: 150,000 Pods are 300 pages.
const POD_PAGE: u32 = 500;

/// The dependencies of the role.
pub struct ControllerRole {
    /// The cluster.
    pub cluster: ClusterName,
    /// A client for each controller, whose writes pass only while this replica leads.
    pub clients: Clients,
    /// Resolves the identity of a Node.
    pub identities: Arc<Lookup>,
    /// The labels that InstanceGroups define.
    pub definitions: Definitions,
    /// The cloud's groups of instances.
    pub groups: Arc<dyn CloudGroups>,
    /// The operator's policy beyond labels.
    pub policy: Policy,
    /// The options of the verdict.
    pub options: Options,
}

/// The kinds that the controllers read, each followed once.
#[derive(Clone, Debug)]
pub struct Caches {
    /// Compressed: thousands are held, and each pass reads one.
    pub nodes: Cache<Node>,
    /// The records, compressed like the Nodes.
    pub records: Cache<Record>,
    /// Only those that can change a verdict.
    pub pods: Cache<Pod>,
}

impl Caches {
    /// Starts all of them.
    #[must_use]
    pub fn start(client: &Client, tasks: &mut Tasks, kit: &Kit) -> Self {
        Self {
            nodes: Cache::all(client.clone()).packed().start(tasks, kit),
            records: Cache::all(client.clone()).packed().start(tasks, kit),
            pods: Cache::all(client.clone())
                .page_size(POD_PAGE)
                .keep(matters)
                .packed()
                // Nodes are labelled without them.
                .optional()
                .start(tasks, kit),
        }
    }
}

/// Starts every controller of the role. Those that write begin when this replica leads.
///
/// | controller | reads | writes |
/// | --- | --- | --- |
/// | NodeController | Nodes, records, cloud, state store | labels and the startup taint of Nodes, NodeIdentity |
/// | ClusterHealth | the verdict | ClusterHealth |
/// | MetricsServer | the verdict, components | nothing |
///
/// # Errors
/// If a metric's name is taken.
pub fn start(
    role: ControllerRole,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<Arc<MetricsServer>, MetricsError> {
    let client = |controller| role.clients.for_controller(controller, DEFAULT_IN_FLIGHT);
    let caches = Caches::start(&client("caches"), tasks, &context.kit);
    let definitions = (role.policy.labels_from != LabelsFrom::Tags).then(|| role.definitions.clone());
    if let Some(definitions) = &definitions {
        let needs_files = needs_files(role.policy.labels_from, &caches.records);
        require_cluster(definitions, needs_files, &context.kit);
    }
    let verdicts = VerdictParts {
        cluster: role.cluster.clone(),
        nodes: caches.nodes.clone(),
        records: caches.records.clone(),
        pods: caches.pods,
        definitions,
        cloud: role.groups,
        options: role.options,
        client: client("verdict"),
    };
    let nodes = NodeControllerParts {
        nodes: caches.nodes,
        records: caches.records,
        client: role.clients.for_controller("node", MOST_IN_FLIGHT),
        identities: role.identities,
        definitions: role.definitions,
        policy: role.policy,
    };
    node_controller::start(nodes, context, tasks)?;
    let latest = verdicts::start(verdicts, tasks, &context.kit)?;
    let health = client("cluster-health");
    cluster_health::start(role.cluster.clone(), health, latest.clone(), context, tasks);
    Ok(MetricsServer::start(
        role.cluster,
        client("metrics-server"),
        latest,
        tasks,
        &context.kit,
    ))
}

/// Returns true while labels need files of the state store: always, or until Nodes are labelled from tags and none
/// needs a file.
fn needs_files(from: LabelsFrom, records: &Cache<Record>) -> impl Fn() -> bool + Send + Sync + 'static {
    let files = (from != LabelsFrom::Store).then(|| records.index(Record::needs_files));
    move || files.as_ref().is_none_or(|files| files.values() != [false])
}

/// Makes the Cluster a condition of readiness, and of being preferred as the leader. A replica that cannot read it may
/// lead nevertheless, when no other replica can: then it says on each Node why that gets no labels. It is no condition
/// while no label `needs_files` of the state store.
pub fn require_cluster(definitions: &Definitions, needs_files: impl Fn() -> bool + Send + Sync + 'static, kit: &Kit) {
    definitions.require_cluster();
    let checked = definitions.clone();
    kit.checks.prefer("state-store", move || {
        checked
            .check()
            .or_else(|error| if needs_files() { Err(error) } else { Ok(()) })
    });
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use serde_json::json;
    use tidewaiter_kit::{Feed, ManualClock};
    use tidewaiter_kops::store::{Etag, Read, ReadFile};
    use tidewaiter_kops::{DefinitionsSettings, StoreError};

    use super::*;

    #[derive(Debug)]
    struct Denied;

    #[async_trait]
    impl ReadFile for Denied {
        async fn read(&self, file: &str, _: Option<&Etag>) -> Result<Read, StoreError> {
            let (file, detail) = (file.to_owned(), "AccessDenied".to_owned());
            Err(StoreError::Denied { file, detail })
        }

        async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
            self.read(folder, None).await.map(|_| Vec::new())
        }
    }

    /// A record with a label of this file, or with none, whose `LabelsValid` is this.
    fn record(name: &str, file: Option<&str>, valid: &str) -> Record {
        let labels = file.map(|file| json!({"key": "team", "value": "red", "source": "InstanceTag", "file": file}));
        let condition = json!({"type": "LabelsValid", "status": valid, "reason": "x", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"labels": Vec::from_iter(labels), "conditions": [condition]});
        let spec = json!({"nodeUID": name, "providerID": ""});
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}))
            .unwrap()
    }

    #[tokio::test]
    async fn a_store_that_denies_access_is_needed_unless_tags_serve_every_node() {
        use LabelsFrom::{AsRecorded, Store, StoreThenTags, TagsThenStore};
        let tagged = || record("a", Some(""), "True");
        for (what, records, ready) in [
            ("nothing is known", vec![], false),
            ("tags", vec![tagged()], true),
            ("no answer yet", vec![tagged(), record("b", None, "True")], true),
            (
                "a file",
                vec![tagged(), record("b", Some("instancegroup/nodes"), "True")],
                false,
            ),
            ("no definition", vec![tagged(), record("b", None, "Unknown")], false),
        ] {
            for from in [Store, AsRecorded, StoreThenTags, TagsThenStore] {
                let kit = Kit::new(ManualClock::default().shared()).unwrap();
                let (mut feed, cache) = Feed::<Record>::new(&kit);
                let (cluster, settings) = ("cluster.example.com".parse().unwrap(), DefinitionsSettings::default());
                let clock = Arc::clone(&kit.clock);
                let definitions = Definitions::new(Arc::new(Denied), cluster, settings, clock, &kit.metrics).unwrap();
                require_cluster(&definitions, needs_files(from, &cache), &kit);
                definitions.refresh().await;
                feed.list(records.clone());
                let (_, report) = kit.checks.report();
                let passes = report.contains("[+]state-store ok");
                assert_eq!(passes, ready && from != Store, "{what}, {from:?}: {report}");
            }
        }
    }
}
