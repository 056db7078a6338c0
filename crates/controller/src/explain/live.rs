//! Live reads of the cluster: every Node and every record, read once, and the Events about one Node.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use tidewaiter_api::node_identity::VERIFIED;
use tidewaiter_api::values::printable;
use tidewaiter_api::{ConditionStatus, NodeName};
use tidewaiter_identity::Refusal;
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::{Guarded, Undecodable};

use super::{EventExplained, ExplainError};
use crate::node_controller::census::{Brake, Classification};
use crate::node_controller::finding::Finding;
use crate::objects::{Node, Record};

/// Events that are shown of those about a Node.
const EVENTS: usize = 10;

/// Nodes and records.
pub(super) struct Live {
    pub(super) nodes: Vec<Arc<Node>>,
    records: HashMap<String, Arc<Record>>,
    /// The records that cannot be decoded, by name, and why.
    undecodable: HashMap<String, String>,
}

/// The number of Nodes, by classification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) nodes: usize,
    pub(super) forged: usize,
    pub(super) unjudged: usize,
}

impl Live {
    pub(super) async fn read(client: &Client) -> Result<Self, ExplainError> {
        let nodes = list_all(&Api::<Guarded<Node>>::all(client.clone())).await;
        let (nodes, _) = nodes.map_err(|source| ExplainError::Read { what: "Nodes", source })?;
        let (records, undecodable) = match list_all(&Api::<Guarded<Record>>::all(client.clone())).await {
            // Of a list only the kind can be missing.
            Err(kube::Error::Api(status)) if status.code == 404 => return Err(ExplainError::NoRecords),
            records => records.map_err(|source| ExplainError::Read {
                what: "NodeIdentity records",
                source,
            })?,
        };
        let undecodable = undecodable
            .into_iter()
            .map(|Undecodable { metadata, error }| (metadata.name.unwrap_or_default(), printable(&error)));
        Ok(Self {
            undecodable: undecodable.collect(),
            ..Self::new(nodes, records)
        })
    }

    pub(super) fn new(nodes: Vec<Node>, records: Vec<Record>) -> Self {
        let named = |record: Record| (record.metadata.name.clone().unwrap_or_default(), Arc::new(record));
        Self {
            nodes: nodes.into_iter().map(Arc::new).collect(),
            records: records.into_iter().map(named).collect(),
            undecodable: HashMap::new(),
        }
    }

    pub(super) fn node(&self, name: &NodeName) -> Option<Arc<Node>> {
        let mut nodes = self.nodes.iter();
        nodes.find(|node| name_of(node) == name.as_str()).cloned()
    }

    pub(super) fn record(&self, name: &str) -> Option<Arc<Record>> {
        self.records.get(name).cloned()
    }

    /// Returns the note for an operator about a record that cannot be decoded.
    pub(super) fn note(&self, name: &str) -> Option<String> {
        let error = self.undecodable.get(name)?;
        Some(format!(
            "its record cannot be decoded: {error}. Correct it, or delete it: kubectl delete nodeidentity {name}"
        ))
    }

    /// The names of the other Nodes with the providerID of `node`, to the letter.
    pub(super) fn rivals<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a str> {
        let same =
            |other: &&Arc<Node>| other.spec.provider_id == node.spec.provider_id && name_of(other) != name_of(node);
        self.nodes.iter().filter(same).map(|other| name_of(other))
    }

    /// Counts the Nodes by what their records tell, and the Node `name` by what was found out just now, if anything
    /// was.
    pub(super) fn census(&self, name: &NodeName, found: Option<&Finding>) -> Census {
        self.count(|node| match found {
            Some(finding) if name_of(node) == name.as_str() => {
                let uid = node.metadata.uid.as_deref().unwrap_or_default();
                Classification::of(finding, self.record(name.as_str()).as_deref(), uid)
            }
            _ => self.classify(node),
        })
    }

    /// The number of Nodes by classification, from the records alone.
    pub(super) fn recorded_census(&self) -> Census {
        self.count(|node| self.classify(node))
    }

    fn count(&self, classify: impl Fn(&Node) -> Option<Classification>) -> Census {
        let mut census = Census {
            nodes: self.nodes.len(),
            ..Census::default()
        };
        for node in &self.nodes {
            match classify(node) {
                Some(Classification::Forged) => census.forged += 1,
                Some(Classification::Other) => {}
                None => census.unjudged += 1,
            }
        }
        census
    }

    /// Returns the controller's last classification of the Node, from its record.
    pub(super) fn classify(&self, node: &Node) -> Option<Classification> {
        let claimed = node.spec.provider_id.as_deref().unwrap_or_default();
        if claimed.is_empty() {
            return Some(Classification::Other);
        }
        let record = self.record(name_of(node))?;
        if Some(record.spec.node_uid.as_str()) != node.metadata.uid.as_deref() {
            return None;
        }
        let conditions = &record.status.conditions;
        let verified = conditions.iter().find(|condition| condition.type_ == VERIFIED)?;
        let malformed = verified.reason == "InvalidProviderId";
        match verified.status {
            // A malformed providerID is in the record as it can be shown.
            _ if record.spec.provider_id != claimed && !malformed => None,
            ConditionStatus::Unknown => None,
            ConditionStatus::False
                if Refusal::is_recorded_forgery(&record.status)
                    || record.quarantines(record.spec.node_uid.as_str()) =>
            {
                Some(Classification::Forged)
            }
            ConditionStatus::True | ConditionStatus::False => Some(Classification::Other),
        }
    }
}

impl Census {
    /// Returns the state of the brake of quarantine.
    pub(super) fn brake(self) -> Brake {
        if self.unjudged > 0 {
            Brake::Unjudged
        } else {
            Brake::of(self.nodes, self.forged)
        }
    }
}

pub(super) fn name_of(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// The last Events about the Node and its record, the newest first.
pub(super) async fn events(client: &Client, name: &NodeName) -> Result<Vec<EventExplained>, ExplainError> {
    // Objects without a namespace have theirs in this one.
    let api: Api<Event> = Api::namespaced(client.clone(), "default");
    let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let found = api.list(&about).await;
    let found = found.map_err(|source| ExplainError::Read { what: "Events", source })?;
    let mut events: Vec<EventExplained> = found.items.into_iter().filter_map(explained).collect();
    events.sort_by_key(|event| Reverse(event.last_seen));
    events.truncate(EVENTS);
    Ok(events)
}

fn explained(event: Event) -> Option<EventExplained> {
    let kind = event.involved_object.kind.unwrap_or_default();
    if kind != "Node" && kind != "NodeIdentity" {
        return None;
    }
    let series = event.series.and_then(|series| series.last_observed_time);
    let precise = series.or(event.event_time).map(|time| time.0);
    let coarse = event.last_timestamp.or(event.metadata.creation_timestamp);
    Some(EventExplained {
        last_seen: precise.or(coarse.map(|time| time.0)).map(whole_seconds),
        about: kind,
        type_: printable(&event.type_.unwrap_or_default()),
        reason: printable(&event.reason.unwrap_or_default()),
        message: printable(&event.message.unwrap_or_default()),
    })
}

/// Events keep microseconds, which nobody reads.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
