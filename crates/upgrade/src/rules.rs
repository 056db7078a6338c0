//! The version rules.
//!
//! Source: the version skew policy of Kubernetes; that no minor version is skipped on any node is a rule of the Containership cluster manager.

use std::cmp::Ordering;

use crate::observation::{Node, Observation};
use crate::orders::Unhealthy;
use crate::refusal::Refusal;
use crate::version::Version;

/// From this minor version of the control plane on, kubelets may be three minor versions older, and two before.
const WIDER_SKEW: u64 = 28;

/// Checks an upgrade before it begins: each selected node on its own, that no kubelet will be newer than the control plane, and that no
/// kubelet will be left behind it.
///
/// # Errors
/// The first violation, by the name of the node.
pub fn preflight(seen: &Observation<'_>, target: &Version, selected: &[&Node]) -> Result<(), Refusal> {
    if selected.is_empty() {
        return Err(Refusal::NoNode);
    }
    selected.iter().try_for_each(|node| fits(node, target))?;
    let is_selected = |node: &Node| selected.iter().any(|selected| selected.name == node.name);
    if selected.iter().any(|node| !node.is_control_plane()) {
        let control_plane = oldest(seen, |node| {
            if is_selected(node) {
                Some(target.clone())
            } else {
                node.oldest()
            }
        });
        behind_control_plane(&control_plane, target)?;
    }
    if selected.iter().any(|node| node.is_control_plane()) {
        seen.nodes.iter().try_for_each(|node| keeps_up(node, target))?;
    }
    Ok(())
}

/// Checks a node on its own: its version is known, does not go down, and skips no minor version.
///
/// # Errors
/// The violation.
pub fn fits(node: &Node, target: &Version) -> Result<(), Refusal> {
    let name = || node.name.clone();
    if node.kubelet.is_none() {
        return Err(Refusal::Unknown(name()));
    }
    for version in node.versions() {
        let (version, target) = (version.clone(), target.clone());
        if version.major() != target.major() {
            return Err(Refusal::OtherMajor {
                node: name(),
                version,
                target,
            });
        }
        if version.order(&target) == Ordering::Greater {
            return Err(Refusal::Newer {
                node: name(),
                version,
                target,
            });
        }
        if version.minors_before(&target) > 1 {
            return Err(Refusal::SkipsMinor {
                node: name(),
                version,
                target,
            });
        }
    }
    Ok(())
}

/// Checks that the control plane, as it is now, supports workers at the target.
///
/// # Errors
/// [`Refusal::AheadOfControlPlane`].
pub fn supports_workers(seen: &Observation<'_>, target: &Version) -> Result<(), Refusal> {
    behind_control_plane(&oldest(seen, Node::oldest), target)
}

/// Checks that the cluster is healthy: all Nodes are Ready, also those that the upgrade does not concern; etcd answers; `ClusterHealth` says so. What
/// cannot be read is not healthy.
///
/// # Errors
/// The first of these that is not so.
pub fn healthy(seen: &Observation<'_>) -> Result<(), Unhealthy> {
    unhealthy(seen).into_iter().next().map_or(Ok(()), Err)
}

/// All that is not healthy in the cluster.
#[must_use]
pub fn unhealthy(seen: &Observation<'_>) -> Vec<Unhealthy> {
    let health = seen.health;
    let unready = seen.nodes.iter().filter(|node| !node.ready);
    let unready: Vec<_> = unready.map(|node| node.name.clone()).collect();
    let nodes = (!unready.is_empty()).then_some(Unhealthy::Nodes(unready));
    let unknown = health.is_unknown.then_some(Unhealthy::Unknown);
    let etcd = health.etcd_failed.then_some(Unhealthy::Etcd);
    let cluster = health.unhealthy.clone().map(Unhealthy::Cluster);
    [nodes, unknown, etcd, cluster].into_iter().flatten().collect()
}

fn behind_control_plane(control_plane: &Version, target: &Version) -> Result<(), Refusal> {
    if control_plane.minors_before(target) == 0 {
        return Ok(());
    }
    Err(Refusal::AheadOfControlPlane {
        control_plane: control_plane.clone(),
        target: target.clone(),
    })
}

/// The oldest version of the control plane: that of its nodes, or where it has none that the cluster shows, that of the API server.
fn oldest(seen: &Observation<'_>, version: impl Fn(&Node) -> Option<Version>) -> Version {
    let nodes = seen.nodes.iter().filter(|node| node.is_control_plane());
    let oldest = nodes.filter_map(version).min_by(Version::order);
    oldest.unwrap_or_else(|| seen.api_server.clone())
}

/// Checks that a control plane at the target still supports the kubelet of this node.
fn keeps_up(node: &Node, target: &Version) -> Result<(), Refusal> {
    let skew = if target.minor() >= WIDER_SKEW { 3 } else { 2 };
    match &node.kubelet {
        Some(version) if version.major() == target.major() && version.minors_before(target) > skew => {
            Err(Refusal::LeftBehind {
                node: node.name.clone(),
                version: version.clone(),
                target: target.clone(),
                skew,
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
