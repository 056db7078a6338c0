//! The agents' `NodeReport`s: the outcome of the upgrade's script, which decides when its node is done or has failed; a
//! flag that they follow the status of their own node, without which one worker is upgraded at a time; and the reason
//! why their host would refuse every script.
//!
//! The reports of the nodes in progress are read by name in each pass, and not watched: they have more than this, and
//! matter only while an upgrade is in progress. What is final stays so, so a report that is read late delays a decision
//! and changes none. When many nodes are in progress, and where several may be, all reports are listed, once a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, ObjectMeta};
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidewaiter_api::{NodeName, NodeReport};
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::client::optional;
use tidewaiter_kit::{Clock, Guarded, slim};
use tidewaiter_upgrade::HostReport;

/// The maximum age of a list.
const AGE: Duration = Duration::from_mins(1);

/// This many reports at most are read by name.
const BY_NAME: usize = 16;

/// The length of a host's message in a condition.
const MESSAGE: usize = 300;

/// The namespace in which kubelets renew the Leases of their Nodes (KEP-589).
const LEASES: &str = "kube-node-lease";

const DISABLED: &str = "its agent has upgrades disabled (agent.settings.upgrades)";

/// The states after which nothing of the upgrade runs on the node any more, and nothing of it will.
const FINAL_FAILURES: [&str; 4] = ["Refused", "Failed", "TimedOut", "Interrupted"];
const SUCCEEDED: &str = "Succeeded";
const BLOCKED: &str = "Blocked";
/// The states in which something of the upgrade runs on the node.
const RUNNING: [&str; 2] = ["Running", "RollingBack"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = NodeReport)]
struct SlimReport {
    #[serde(deserialize_with = "slim::without_labels")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Status {
    #[serde(default)]
    upgrade: Option<Agent>,
}

/// The report of an agent on upgrades of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Agent {
    /// The upgrade that it concerns.
    #[serde(default)]
    id: String,
    /// The outcome of its script. A text, because an agent may be newer than the coordinator.
    #[serde(default)]
    state: String,
    #[serde(default)]
    message: String,
    /// From when on the signature of its script counts. A text, like the state.
    #[serde(default)]
    not_before: Option<String>,
    /// True if it follows the status of its own node.
    #[serde(default)]
    pub(super) follows_own_status: bool,
    /// The reason why its host would refuse every script. Empty if it would not.
    #[serde(default)]
    pub(super) host_problem: String,
}

/// The reports of the agents.
#[derive(Clone, Debug, Default)]
pub struct AgentReports {
    /// By node. None: its report does not exist, or has nothing about upgrades.
    nodes: BTreeMap<String, Option<Agent>>,
    /// True if all reports were read.
    is_complete: bool,
    /// The times when kubelets last renewed the Leases of their Nodes, for the Nodes that were read by name.
    renewed: BTreeMap<String, Timestamp>,
}

impl AgentReports {
    /// All reports, as in a cluster without any.
    pub(super) fn none() -> Self {
        Self {
            is_complete: true,
            ..Self::default()
        }
    }

    /// The time when the kubelet of a node has renewed its Lease; None if there is none, or it was not read.
    pub(super) fn renewed(&self, node: &str) -> Option<Timestamp> {
        self.renewed.get(node).copied()
    }

    /// The report of a node's agent; None if it says nothing, or was not asked.
    pub(super) fn of(&self, node: &str) -> Option<&Agent> {
        self.nodes.get(node)?.as_ref()
    }

    /// Returns true if the agent of a node says nothing, or was not asked.
    #[must_use]
    pub fn is_silent(&self, node: &str) -> bool {
        self.of(node).is_none()
    }

    /// The reason why the host of a node would refuse every script, as far as that is known.
    pub(super) fn problem(&self, node: &str) -> Option<&str> {
        let problem = match self.nodes.get(node)? {
            Some(agent) => agent.host_problem.as_str(),
            None => DISABLED,
        };
        Some(problem).filter(|problem| !problem.is_empty())
    }

    /// The report of a node's host on the upgrade with this id.
    pub(super) fn host(&self, node: &str, upgrade: &str) -> HostReport {
        match self.nodes.get(node) {
            None if !self.is_complete => HostReport::Pending,
            None | Some(None) => HostReport::Silent,
            Some(Some(agent)) if agent.id != upgrade => HostReport::Pending,
            Some(Some(agent)) => agent.report(),
        }
    }
}

impl Agent {
    fn report(&self) -> HostReport {
        if self.state == SUCCEEDED {
            return HostReport::Succeeded;
        }
        let early = self.not_before.as_ref().filter(|_| self.state == BLOCKED);
        if let Some(early) = early.and_then(|time| time.parse().ok()) {
            return HostReport::Early(early);
        }
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let message: String = self.message.chars().map(printable).take(MESSAGE).collect();
        let said = format!("{}: {message}", self.state);
        match &*self.state {
            BLOCKED => HostReport::Blocked(said),
            state if RUNNING.contains(&state) => HostReport::Running,
            state if FINAL_FAILURES.contains(&state) => HostReport::Failed(said),
            _ => HostReport::Pending,
        }
    }
}

/// The last list, for which upgrade (its uid) and when it was read (monotonic).
#[derive(Debug, Default)]
pub(super) struct Agents {
    read: Mutex<Option<(String, Duration, AgentReports)>>,
}

impl Agents {
    /// Reads the reports of these nodes, and where `all` are needed a list that is at most a minute old. It was read
    /// for the same upgrade: one that is new must not see what was before it.
    ///
    /// # Errors
    /// The API server does not answer, or does not permit it.
    pub(super) async fn reports(
        &self,
        client: &Client,
        clock: &dyn Clock,
        (upgrade, nodes): (&str, &[NodeName]),
        all: bool,
    ) -> kube::Result<AgentReports> {
        let is_listed = all || nodes.len() > BY_NAME;
        let mut reports = if is_listed {
            self.list(client, clock, upgrade).await?
        } else {
            AgentReports::default()
        };
        for node in nodes.iter().take(BY_NAME) {
            let agent = read_report(client, node).await?;
            reports.nodes.insert(node.to_string(), agent);
            let renewed = read_lease(client, node).await?.map(|at| (node.to_string(), at));
            reports.renewed.extend(renewed);
        }
        Ok(reports)
    }

    async fn list(&self, client: &Client, clock: &dyn Clock, upgrade: &str) -> kube::Result<AgentReports> {
        let now = clock.monotonic();
        let known = self.read.lock().clone();
        if let Some((of, read, agents)) = known
            && of == upgrade
            && now.saturating_sub(read) < AGE
        {
            return Ok(agents);
        }
        let agents = list_reports(client).await?;
        *self.read.lock() = Some((upgrade.to_owned(), now, agents.clone()));
        Ok(agents)
    }
}

/// The report of a node's agent on upgrades; None if it says nothing. A list of one needs no other permission than the
/// list of all.
async fn read_report(client: &Client, node: &NodeName) -> kube::Result<Option<Agent>> {
    let api = Api::<Guarded<SlimReport>>::all(client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={node}"));
    let found = optional(api.list(&params).await)?;
    let report = found.and_then(|found| found.items.into_iter().next());
    Ok(report.and_then(|Guarded(report)| match report {
        Ok(report) => report.status.upgrade,
        // It cannot be read, so it has said nothing that is final.
        Err(_) => Some(Agent::default()),
    }))
}

/// The time when the kubelet of a node has renewed its Lease. A cluster may have no Leases of Nodes, or keep them from
/// us: then the condition `Ready` has to do.
async fn read_lease(client: &Client, node: &NodeName) -> kube::Result<Option<Timestamp>> {
    let api = Api::<Lease>::namespaced(client.clone(), LEASES);
    let lease = match api.get(node.as_str()).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => return Ok(None),
        found => found?,
    };
    Ok(lease.spec.and_then(|spec| Some(spec.renew_time?.0)))
}

/// Reads the reports. In a cluster without their definition there are none.
///
/// # Errors
/// The API server does not answer, or does not permit it.
pub async fn list_reports(client: &Client) -> kube::Result<AgentReports> {
    let listed = list_all(&Api::<Guarded<SlimReport>>::all(client.clone())).await;
    let Some((all, undecodable)) = optional(listed)? else {
        return Ok(AgentReports::none());
    };
    let said = all
        .into_iter()
        .map(|report| (report.metadata.name, report.status.upgrade));
    let unread = undecodable
        .into_iter()
        .map(|report| (report.metadata.name, Some(Agent::default())));
    let nodes = said.chain(unread).filter_map(|(name, agent)| Some((name?, agent)));
    Ok(AgentReports {
        nodes: nodes.collect(),
        ..AgentReports::none()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
    use tidewaiter_kit::{Kit, Leadership, SimulatedClock};
    use tidewaiter_testkit::sim::{ApiServer, Kind, Process};

    use super::super::question::Question;
    use super::*;

    fn agent(report: serde_json::Value) -> Agent {
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn only_what_is_final_and_of_this_upgrade_counts() {
        let said = |id: &str, state: &str| {
            let agent = agent(json!({"id": id, "state": state, "message": "m\u{7}"}));
            let reports = AgentReports {
                nodes: [("w1".to_owned(), Some(agent)), ("w2".to_owned(), None)].into(),
                ..AgentReports::default()
            };
            reports.host("w1", "u")
        };
        let failed = |state: &str| HostReport::Failed(format!("{state}: m "));
        for (state, expected) in [
            ("None", HostReport::Pending),
            ("Offered", HostReport::Pending),
            ("Blocked", HostReport::Blocked("Blocked: m ".to_owned())),
            ("Running", HostReport::Running),
            ("RollingBack", HostReport::Running),
            ("OfANewerAgent", HostReport::Pending),
            ("Succeeded", HostReport::Succeeded),
            ("Refused", failed("Refused")),
            ("Failed", failed("Failed")),
            ("TimedOut", failed("TimedOut")),
            ("Interrupted", failed("Interrupted")),
        ] {
            assert_eq!(said("u", state), expected, "{state}");
            assert_eq!(said("other", state), HostReport::Pending, "{state} of another upgrade");
        }
    }

    #[test]
    fn a_script_that_counts_later_is_known_while_it_is_blocked() {
        let early = HostReport::Early("2026-11-22T06:00:00Z".parse().unwrap());
        for (state, not_before, expected) in [
            ("Blocked", "2026-11-22T06:00:00Z", early),
            ("Blocked", "tomorrow", HostReport::Blocked("Blocked: ".to_owned())),
            ("Running", "2026-11-22T06:00:00Z", HostReport::Running),
            ("Succeeded", "2026-11-22T06:00:00Z", HostReport::Succeeded),
        ] {
            let said = agent(json!({"id": "u", "state": state, "notBefore": not_before})).report();
            assert_eq!(said, expected, "{state} {not_before}");
        }
    }

    /// An upgrade is deleted and created again under its name, and then another one begins, all within a minute.
    #[tokio::test(start_paused = true)]
    async fn a_list_is_that_of_one_object() {
        let clock = SimulatedClock::shared();
        let kit = Kit::new(Arc::clone(&clock)).unwrap();
        let server = ApiServer::new([Kind::of::<NodeReport>()], 7);
        let process = server.connect(&Process::new("coordinator"));
        let clients = Clients::over(process, &Leadership::always(Arc::clone(&clock)), &kit);
        let client = clients.for_controller("upgrade", DEFAULT_IN_FLIGHT);
        let report = json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "NodeReport", "metadata": {"name": "w1"}});
        assert!(server.create("agent", &report));
        let says = |id: &str, state: &str| {
            let said = json!({"upgrade": {"id": id, "state": state}});
            assert!(server.edit("agent", "nodereports", "", "w1", |report| report["status"] = said));
        };
        let agents = Agents::default();
        let read = async |name: &str, uid: &str| {
            let upgrade = json!({"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade",
                "metadata": {"name": name, "namespace": "n", "uid": uid},
                "spec": {"type": "kubernetes", "targetVersion": "v1.36.3", "status": {"clusterStatus": "InProgress"}}});
            let asked = Question::about(&serde_json::from_value(upgrade).unwrap());
            let about = (&*asked.upgrade, &*asked.in_progress);
            agents.reports(&client, &*clock, about, asked.all).await.unwrap()
        };
        let failed = HostReport::Failed("Failed: ".to_owned());
        says("u", "Failed");
        assert_eq!(read("u", "1").await.host("w1", "u"), failed);
        says("u", "Running");
        assert_eq!(
            read("u", "1").await.host("w1", "u"),
            failed,
            "it is at most a minute old"
        );
        assert_eq!(
            read("u", "2").await.host("w1", "u"),
            HostReport::Running,
            "of another object"
        );
        says("v", "Succeeded");
        assert_eq!(read("v", "3").await.host("w1", "v"), HostReport::Succeeded);
        says("u", "Succeeded");
        assert_eq!(read("u", "2").await.host("w1", "u"), HostReport::Succeeded);
        says("u", "Running");
        clock.sleep(AGE).await;
        assert_eq!(read("u", "2").await.host("w1", "u"), HostReport::Running);
    }

    #[test]
    fn a_node_whose_agent_says_nothing_is_not_one_that_was_not_asked() {
        let nodes = [("w1".to_owned(), None)];
        let asked = AgentReports {
            nodes: nodes.into(),
            ..AgentReports::default()
        };
        assert_eq!(asked.host("w1", "u"), HostReport::Silent);
        assert_eq!(asked.host("w2", "u"), HostReport::Pending);
        assert_eq!(AgentReports::none().host("w2", "u"), HostReport::Silent);
        assert_eq!(
            (
                asked.problem("w1"),
                asked.problem("w2"),
                AgentReports::none().problem("w2")
            ),
            (Some(DISABLED), None, None)
        );
    }
}
