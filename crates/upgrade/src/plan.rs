//! The past and future actions of an upgrade, node by node, for people.

use std::fmt;

use tidewaiter_api::NodeName;

use crate::observation::{Node, NodeState, Observation, Spec};
use crate::refusal::Refusal;
use crate::rules;
use crate::version::Version;

/// A node of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its name.
    pub name: NodeName,
    /// True if it is of the control plane.
    pub control_plane: bool,
    /// The version of its kubelet; None if it is not known, or the Node is gone.
    pub version: Option<Version>,
    /// The planned action.
    pub action: PlannedAction,
}

/// The planned action for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedAction {
    /// The upgrade has started it.
    Started(NodeState),
    /// It is at the target already.
    AtTarget,
    /// It will be started.
    Waits,
    /// It will fail when it is its turn, without a script.
    WillFail(Refusal),
}

/// The nodes of an upgrade in the order of their turns: what was started, then what is left, the control plane first.
#[must_use]
pub fn plan(seen: &Observation<'_>, spec: &Spec) -> Vec<Planned> {
    let progress = &seen.upgrade.progress;
    let find = |name: &NodeName| seen.nodes.iter().find(|node| node.name == *name);
    let started = progress.nodes.iter().map(|(name, state)| {
        let node = find(name);
        Planned {
            name: name.clone(),
            control_plane: node.is_some_and(Node::is_control_plane),
            version: node.and_then(|node| node.kubelet.clone()),
            action: PlannedAction::Started(*state),
        }
    });
    let mut left: Vec<&Node> = spec
        .select(seen.nodes)
        .filter(|node| !progress.nodes.contains_key(&node.name))
        .collect();
    left.sort_by_key(|node| !node.is_control_plane());
    let left = left.into_iter().map(|node| Planned {
        name: node.name.clone(),
        control_plane: node.is_control_plane(),
        version: node.kubelet.clone(),
        action: planned_action(node, spec),
    });
    started.chain(left).collect()
}

/// The numbers of nodes of an upgrade, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The nodes that it has started, and those that it selects.
    pub nodes: usize,
    /// The number of nodes at the version.
    pub done: usize,
    /// The number of failed nodes.
    pub failed: usize,
}

impl Counts {
    /// Counts the nodes of an upgrade.
    #[must_use]
    pub fn of(seen: &Observation<'_>, spec: &Spec) -> Self {
        let progress = &seen.upgrade.progress;
        let mut counts = Self {
            nodes: progress.nodes.len(),
            done: progress.count(NodeState::Success),
            failed: progress.count(NodeState::Failed),
        };
        let left = spec.select(seen.nodes);
        for node in left.filter(|node| !progress.nodes.contains_key(&node.name)) {
            counts.nodes += 1;
            counts.done += usize::from(node.is_left_alone(&spec.target));
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, done, failed } = self;
        write!(f, "{done} of {nodes} nodes are at the version, {failed} failed")
    }
}

/// The Nodes that an upgrade does not concern, and why.
pub fn left_out<'a>(seen: &Observation<'a>, spec: &'a Spec) -> impl Iterator<Item = (&'a Node, &'static str)> {
    let progress = &seen.upgrade.progress.nodes;
    let others = seen.nodes.iter().filter(|node| !progress.contains_key(&node.name));
    others.filter_map(|node| {
        if !node.is_managed() {
            Some((
                node,
                "left out: it does not have the label containership.io/managed=true",
            ))
        } else if !spec.selector.matches(&node.labels) {
            Some((node, "left out: spec.labelSelector does not match its labels"))
        } else {
            None
        }
    })
}

fn planned_action(node: &Node, spec: &Spec) -> PlannedAction {
    if node.is_left_alone(&spec.target) {
        return PlannedAction::AtTarget;
    }
    rules::fits(node, &spec.target).map_or_else(PlannedAction::WillFail, |()| PlannedAction::Waits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_progress, nodes, observation, version};

    #[test]
    fn the_plan_is_in_the_order_of_the_turns() {
        let upgrade = in_progress("u", "cp1=Success gone=Failed");
        let all = nodes("a=v1.36.3 b=v1.35.4 c=v1.37.0 cp1=v1.36.3 cp2=v1.35.4");
        let (api_server, spec) = (version("v1.35.4"), upgrade.spec.clone().unwrap());
        let plan = plan(&observation(&upgrade, &[], &all, &api_server, 0), &spec);
        let shown: Vec<_> = plan
            .iter()
            .map(|it| (it.name.as_str(), it.control_plane, &it.action))
            .collect();
        assert_eq!(shown[0], ("cp1", true, &PlannedAction::Started(NodeState::Success)));
        assert_eq!(shown[1], ("gone", false, &PlannedAction::Started(NodeState::Failed)));
        assert_eq!(shown[2], ("cp2", true, &PlannedAction::Waits));
        assert_eq!(shown[3], ("a", false, &PlannedAction::AtTarget));
        assert_eq!(shown[4], ("b", false, &PlannedAction::Waits));
        assert!(matches!(
            shown[5],
            ("c", false, PlannedAction::WillFail(Refusal::Newer { .. }))
        ));
        let counts = Counts::of(&observation(&upgrade, &[], &all, &api_server, 0), &spec);
        assert_eq!(counts.to_string(), "2 of 6 nodes are at the version, 1 failed");
    }

    #[test]
    fn what_is_left_out_says_why() {
        let upgrade = in_progress("u", "a=Success");
        let mut all = nodes("a=v1.36.3 b=v1.35.4 c=v1.35.4 d=v1.35.4");
        for node in [0, 1] {
            all[node].labels.clear();
        }
        all[2].labels.insert("zone".to_owned(), "x".to_owned());
        let mut spec = upgrade.spec.clone().unwrap();
        let zone = serde_json::json!({"label": "zone", "operator": "="  , "value": ["x"]});
        spec.selector = crate::Selector::new(&[serde_json::from_value(zone).unwrap()]).unwrap();
        let api_server = version("v1.35.4");
        let seen = observation(&upgrade, &[], &all, &api_server, 0);
        let shown: Vec<_> = left_out(&seen, &spec)
            .map(|(node, why)| format!("{} {why}", node.name))
            .collect();
        let expected = [
            "b left out: it does not have the label containership.io/managed=true",
            "d left out: spec.labelSelector does not match its labels",
        ];
        assert_eq!(shown, expected);
    }
}
