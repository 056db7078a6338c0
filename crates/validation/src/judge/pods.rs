//! The rules for the system's pods.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::groups::found_in;
use super::membership::Membership;
use super::{Found, Place};
use crate::objects::pod::{PodProblem, STATIC_PODS};
use crate::objects::{Pod, Priority};
use crate::verdict::{Failure, FailureKind};

/// The failures of system pods, and the numbers of unhealthy pods by problem.
#[derive(Default)]
pub(super) struct System<'a> {
    pub found: Vec<Found<'a>>,
    pub not_ready: u32,
    pub pending: u32,
    pub unknown: u32,
}

/// Judges the pods with a system priority class, by namespace and name.
pub(super) fn failures<'a>(pods: &'a [Arc<Pod>], membership: Option<&Membership<'a>>) -> System<'a> {
    let group_by_node = LazyCell::new(|| membership.map(Membership::group_by_node).unwrap_or_default());
    let mut system = System::default();
    for (pod, priority) in in_order(pods) {
        let Some(problem) = pod.problem() else { continue };
        let (counted, what) = match problem {
            PodProblem::Pending => (&mut system.pending, "pending".to_owned()),
            PodProblem::UnknownPhase => (&mut system.unknown, "unknown phase".to_owned()),
            PodProblem::NotReady(containers) => {
                (&mut system.not_ready, format!("not ready ({})", containers.join(",")))
            }
        };
        *counted += 1;
        let node = pod.spec.node_name.as_deref();
        // A cluster-critical pod belongs to no group, wherever it runs.
        let group = node
            .filter(|_| priority == Priority::Node)
            .and_then(|node| group_by_node.get(node));
        system.found.push(Found {
            failure: Failure {
                kind: FailureKind::Pod,
                name: format!("{}/{}", pod.namespace(), pod.name()),
                message: format!("{} pod {:?} is {what}", priority.as_str(), pod.name()),
                instance_group: group.map(|&name| name.clone()),
            },
            place: node.map_or(Place::Cluster, Place::Node),
        });
    }
    system
}

fn in_order(pods: &[Arc<Pod>]) -> Vec<(&Pod, Priority)> {
    let of_system = pods
        .iter()
        .filter_map(|pod| Some((pod.as_ref(), pod.spec.priority_class_name?)));
    let mut of_system: Vec<_> = of_system.collect();
    of_system.sort_by_key(|(pod, _)| (pod.namespace(), pod.name()));
    of_system
}

/// Static pods that are missing on ready control-plane nodes; the state of existing ones does not matter.
pub(super) fn missing<'a>(pods: &[Arc<Pod>], membership: &Membership<'a>) -> Vec<Found<'a>> {
    let running: HashSet<(&str, &str)> = pods
        .iter()
        .filter_map(|pod| Some((pod.spec.node_name.as_deref()?, pod.static_app()?)))
        .collect();
    let ready: BTreeMap<_, _> = membership
        .judged()
        .filter_map(|(group, machine)| Some((machine.node()?, group.summary)))
        .filter(|(node, _)| node.is_ready() && node.is_control_plane())
        .map(|(node, group)| (node.name(), group))
        .collect();
    let expected = ready.into_iter().flat_map(|node| STATIC_PODS.map(|app| (node, app)));
    expected
        .filter(|((node, _), app)| !running.contains(&(*node, *app)))
        .map(|((node, group), app)| {
            let message = format!("control-plane node {node:?} is missing {app} pod");
            found_in(group, FailureKind::Node, node, message, Place::Node(node))
        })
        .collect()
}
