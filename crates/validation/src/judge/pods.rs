//! The rules for the system's pods.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::finder::count;
use super::findings::{Findings, Place};
use super::groups::failure_in;
use super::membership::Membership;
use crate::objects::pod::{PodProblem, STATIC_PODS};
use crate::objects::{Pod, Priority};
use crate::verdict::{Failure, FailureKind};

/// The numbers of unhealthy system pods by problem.
#[derive(Default)]
pub(super) struct System {
    pub not_ready: u32,
    pub pending: u32,
    pub unknown: u32,
}

/// Judges the pods with a system priority class, by namespace and name.
pub(super) fn failures<'a>(
    pods: &'a [Arc<Pod>],
    membership: Option<&Membership<'a>>,
    findings: &mut Findings<'a>,
) -> System {
    let by_place = LazyCell::new(|| membership.map(Membership::by_place).unwrap_or_default());
    let group_of = |node: &str| by_place[membership?.place(node)?].map(|(group, _)| &group.name);
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
        let place = node.map_or(Place::Cluster, Place::Node);
        findings.add(FailureKind::Pod, place, || {
            // A cluster-critical pod belongs to no group, wherever it runs.
            let group = node.filter(|_| priority == Priority::Node).and_then(group_of);
            Failure {
                kind: FailureKind::Pod,
                name: format!("{}/{}", pod.namespace(), pod.name()),
                message: format!("{} pod {:?} is {what}", priority.as_str(), pod.name()),
                instance_group: group.cloned(),
            }
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

/// Static pods that are missing on ready control-plane nodes; the state of existing ones does not matter. Returns their
/// number.
pub(super) fn missing<'a>(pods: &[Arc<Pod>], membership: &Membership<'a>, findings: &mut Findings<'a>) -> u32 {
    let running: HashSet<(&str, &str)> = pods
        .iter()
        .filter_map(|pod| Some((pod.spec.node_name.as_deref()?, pod.static_app()?)))
        .collect();
    let ready: BTreeMap<_, _> = membership
        .judged_nodes()
        .filter(|(_, node)| node.state.ready && node.state.control_plane)
        .map(|(group, joined)| (joined.node.name(), group))
        .collect();
    let expected = ready.into_iter().flat_map(|node| STATIC_PODS.map(|app| (node, app)));
    let missing = expected.filter(|((node, _), app)| !running.contains(&(*node, *app)));
    count(missing.inspect(|&((node, group), app)| {
        findings.add(FailureKind::Node, Place::Node(node), || {
            let message = format!("control-plane node {node:?} is missing {app} pod");
            failure_in(group, FailureKind::Node, node, message)
        });
    }))
}
