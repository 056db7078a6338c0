//! The claims of the Nodes to be instances, each with its proof.
//!
//! A claim counts only if the `NodeIdentity` of this very Node proves it. A [`ClaimTable`] compares a Node with its
//! record when one of the two changes, so that no verdict compares them again: a verdict on 50,000 Nodes would wait for
//! memory most of the time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::instances::Instances;
use crate::objects::{IdentityRecord, IdentityResult, Node};

/// A Node and its claim. What a verdict reads of each Node is repeated here, because the Nodes themselves are scattered
/// over the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub node: Arc<Node>,
    pub state: State,
    pub proof: Proof,
    /// The [number](Instances::number) of the instance.
    instance: Option<u32>,
}

/// The state of a Node that decides failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub ready: bool,
    pub control_plane: bool,
}

/// The result of the record of a Node about its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    Proven,
    /// The claim counts for nothing.
    Forged,
    Doubtful(Doubt),
}

/// The reason why a claim is not proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The `NodeIdentities` are not known.
    Unread,
    NoRecord,
    /// The record is about a deleted Node of the same name.
    OfEarlierNode,
    /// The record is about another providerID.
    OfOtherInstance,
    /// The reason in the record.
    Unproven(Arc<str>),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread => f.write_str("the NodeIdentities are not known"),
            Self::NoRecord => f.write_str("it has no NodeIdentity"),
            Self::OfEarlierNode => f.write_str("its NodeIdentity is about an earlier Node of this name"),
            Self::OfOtherInstance => f.write_str("its NodeIdentity is about another providerID"),
            Self::Unproven(reason) => write!(f, "its NodeIdentity says {reason}"),
        }
    }
}

impl Proof {
    fn of(node: &Node, record: Option<&IdentityRecord>) -> Self {
        let Some(record) = record else {
            return Self::Doubtful(Doubt::NoRecord);
        };
        if !record.is_about(node) {
            return Self::Doubtful(Doubt::OfEarlierNode);
        }
        match record.result() {
            // Whatever else it claims now: somebody lied.
            IdentityResult::Forged => Self::Forged,
            _ if !record.is_about_instance_of(node) => Self::Doubtful(Doubt::OfOtherInstance),
            IdentityResult::Proven => Self::Proven,
            IdentityResult::Unproven(reason) => Self::Doubtful(Doubt::Unproven(Arc::clone(reason))),
        }
    }
}

/// The Nodes and their records. It is kept between verdicts.
#[derive(Debug, Default)]
pub struct ClaimTable {
    /// By the name of the Node.
    rows: BTreeMap<Arc<str>, Row>,
    /// The numbers of the instances in the claims.
    instances: Option<Arc<Instances>>,
    /// All claims in order, unless one came or went since they were last asked for.
    listed: Option<Arc<Vec<Claim>>>,
}

#[derive(Debug, Default)]
struct Row {
    claim: Option<Claim>,
    record: Option<Box<IdentityRecord>>,
}

impl ClaimTable {
    /// The Node of this name is this one, or is gone.
    pub fn set_node(&mut self, name: &Arc<str>, node: Option<Arc<Node>>) {
        let instances = self.instances.clone();
        self.update(name, |row| {
            if let (Some(node), Some(record)) = (&node, &mut row.record) {
                record.share_with(node);
            }
            row.claim = node.map(|node| Claim {
                state: State {
                    ready: node.is_ready(),
                    control_plane: node.is_control_plane(),
                },
                proof: Proof::of(&node, row.record.as_deref()),
                instance: instances.and_then(|instances| number(&instances, &node)),
                node,
            });
        });
    }

    /// The record of the Node of this name is this one, or is gone.
    pub fn set_record(&mut self, name: &Arc<str>, mut record: Option<IdentityRecord>) {
        self.update(name, |row| {
            if let (Some(claim), Some(record)) = (&row.claim, &mut record) {
                record.share_with(&claim.node);
            }
            row.record = record.map(Box::new);
            if let Some(claim) = &mut row.claim {
                claim.proof = Proof::of(&claim.node, row.record.as_deref());
            }
        });
    }

    fn update(&mut self, name: &Arc<str>, update: impl FnOnce(&mut Row)) {
        if !self.rows.contains_key(name) {
            self.rows.insert(Arc::clone(name), Row::default());
        }
        let Some(row) = self.rows.get_mut(name) else { return };
        update(row);
        self.listed = self
            .listed
            .take()
            .and_then(|listed| relisted(listed, name, row.claim.as_ref()));
        if row.claim.is_none() && row.record.is_none() {
            self.rows.remove(name);
        }
    }

    /// The claims, numbered by `instances`. They are looked up again only if these are others than before.
    #[must_use]
    pub fn claims(&mut self, instances: Option<&Arc<Instances>>) -> Claims {
        if let Some(instances) = instances
            && !is_same(self.instances.as_ref(), instances)
        {
            for claim in self.rows.values_mut().filter_map(|row| row.claim.as_mut()) {
                claim.instance = number(instances, &claim.node);
            }
            self.instances = Some(Arc::clone(instances));
            self.listed = None;
        }
        let all = || self.rows.values().filter_map(|row| row.claim.clone());
        let listed = self.listed.get_or_insert_with(|| Arc::new(all().collect()));
        Claims {
            by_name: Arc::clone(listed),
            instances: self.instances.clone(),
        }
    }
}

/// The list with the claim of the Node of this name as it is now. None if it must be made anew: the claim came or went,
/// or a verdict reads the list.
fn relisted(mut listed: Arc<Vec<Claim>>, name: &str, claim: Option<&Claim>) -> Option<Arc<Vec<Claim>>> {
    let all = Arc::get_mut(&mut listed)?;
    match (all.binary_search_by(|listed| listed.node.name().cmp(name)), claim) {
        (Ok(place), Some(claim)) => all[place] = claim.clone(),
        (Err(_), None) => {}
        (Ok(_), None) | (Err(_), Some(_)) => return None,
    }
    Some(listed)
}

fn number(instances: &Instances, node: &Node) -> Option<u32> {
    instances.number(node.provider_id.as_ref()?)
}

fn is_same(one: Option<&Arc<Instances>>, other: &Arc<Instances>) -> bool {
    one.is_some_and(|one| Arc::ptr_eq(one, other))
}

/// The claims at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    by_name: Arc<Vec<Claim>>,
    instances: Option<Arc<Instances>>,
}

impl Claims {
    /// The claims to be one of `instances`, by the name of the Node, with the number of the instance.
    pub(crate) fn of(&self, instances: &Arc<Instances>) -> impl Iterator<Item = (&Claim, u32)> {
        let numbered = is_same(self.instances.as_ref(), instances);
        self.by_name.iter().filter_map(move |claim| {
            let number = if numbered {
                claim.instance
            } else {
                number(instances, &claim.node)
            };
            Some((claim, number?))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, ready: &str) -> Arc<Node> {
        let node = json!({"metadata": {"name": name, "uid": name}, "spec": {"providerID": format!("aws:///a/{name}")},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    /// The Nodes in the table, each with whether it is ready, and where the list is.
    fn listed(table: &mut ClaimTable, instances: &Arc<Instances>) -> (Vec<String>, *const Claim) {
        let claims = table.claims(Some(instances));
        let shown = |claim: &Claim| format!("{} {} {:?}", claim.node.name(), claim.state.ready, claim.proof);
        (claims.by_name.iter().map(shown).collect(), claims.by_name.as_ptr())
    }

    #[test]
    fn the_list_is_made_anew_only_when_a_claim_comes_or_goes() {
        let (mut table, instances) = (ClaimTable::default(), Arc::<Instances>::default());
        table.set_node(&"b".into(), Some(node("b", "True")));
        table.set_node(&"a".into(), Some(node("a", "True")));
        let (all, first) = listed(&mut table, &instances);
        assert_eq!(all, ["a true Doubtful(NoRecord)", "b true Doubtful(NoRecord)"]);
        table.set_node(&"b".into(), Some(node("b", "False")));
        table.set_record(&"c".into(), None);
        let (all, place) = listed(&mut table, &instances);
        assert_eq!(all[1], "b false Doubtful(NoRecord)");
        assert_eq!(place, first, "the other claims were copied");
        table.set_node(&"a".into(), None);
        assert_eq!(listed(&mut table, &instances).0, ["b false Doubtful(NoRecord)"]);
        let read = table.claims(Some(&instances));
        table.set_node(&"b".into(), Some(node("b", "True")));
        assert!(!read.by_name[0].state.ready, "a verdict sees the claims at one time");
        assert_eq!(listed(&mut table, &instances).0, ["b true Doubtful(NoRecord)"]);
        table.set_node(&"b".into(), None);
        assert!(table.rows.is_empty());
    }

    #[test]
    fn what_a_node_and_its_record_have_in_common_is_held_once() {
        let sent = json!({"metadata": {"name": "a", "uid": "r"}, "spec": {"nodeUID": "a", "providerID": "aws:///a/a"}});
        let record = || {
            serde_json::from_value::<crate::objects::Listed>(sent.clone())
                .unwrap()
                .record
        };
        for record_first in [true, false] {
            let (mut table, name) = (ClaimTable::default(), Arc::<str>::from("a"));
            if record_first {
                table.set_record(&name, Some(record()));
            }
            let node = node("a", "True");
            table.set_node(&name, Some(Arc::new((*node).clone().sharing_name(&name))));
            if !record_first {
                table.set_record(&name, Some(record()));
            }
            let row = &table.rows["a"];
            let (claim, record) = (row.claim.as_ref().unwrap(), row.record.as_ref().unwrap());
            assert!(record.is_about(&claim.node) && record.is_about_instance_of(&claim.node));
            // The name: here, in the table, in the Node and in the record.
            assert_eq!(Arc::strong_count(&name), 4, "record first: {record_first}");
        }
    }
}
