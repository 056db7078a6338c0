//! The version rules.
//!
//! Source: the version skew policy of Kubernetes; that no minor version is skipped on any node is a rule of the
//! Containership cluster manager.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::observation::{Node, Observation};
use crate::orders::Unhealthy;
use crate::refusal::Refusal;
use crate::version::Version;

/// From this minor version of the control plane on, kubelets may be three minor versions older, and two before.
const WIDER_SKEW: u64 = 28;

/// Checks an upgrade before it begins: that it selects a node which fits, and that no kubelet will be newer than the
/// control plane. A node that does not fit fails alone, after the others: its kubelet writes its version, and must not
/// keep them from theirs.
///
/// # Errors
/// The first violation, by the name of the node.
pub fn preflight(seen: &Observation<'_>, target: &Version, selected: &[&Node]) -> Result<(), Refusal> {
    let first = selected.first().ok_or(Refusal::NoNode)?;
    let fit: Vec<&Node> = selected
        .iter()
        .copied()
        .filter(|node| fits(node, target).is_ok())
        .collect();
    if fit.is_empty() {
        return fits(first, target);
    }
    if fit.iter().all(|node| node.is_control_plane()) {
        return Ok(());
    }
    let nodes = oldest(seen, target, |node| {
        if fit.iter().any(|it| it.name == node.name) {
            Some(target.clone())
        } else {
            node.oldest()
        }
    });
    // An API server is upgraded with its node, where there is one.
    let is_upgraded = fit.iter().any(|node| node.is_control_plane());
    let control_plane = nodes.filter(|_| is_upgraded);
    let control_plane = control_plane.unwrap_or_else(|| with_api_server(seen, target));
    behind_control_plane(&control_plane, target)
}

/// Problems to report that do not delay an upgrade: the selected nodes that will fail, and the others that a control
/// plane at the target does not support any more.
#[must_use]
pub fn misfits(seen: &Observation<'_>, target: &Version, selected: &[&Node]) -> Vec<Refusal> {
    let is_selected: BTreeSet<_> = selected.iter().map(|node| &node.name).collect();
    let upgrades_control_plane = selected.iter().any(|node| node.is_control_plane());
    let others = seen.nodes.iter().filter(|node| !is_selected.contains(&node.name));
    let left_behind = others
        .filter(|_| upgrades_control_plane)
        .filter_map(|node| keeps_up(node, target).err());
    let unfit = selected.iter().filter_map(|node| fits(node, target).err());
    unfit.chain(left_behind).collect()
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
    behind_control_plane(&with_api_server(seen, target), target)
}

/// Checks that the cluster is healthy: all Nodes are Ready, also those that the upgrade does not concern; etcd answers;
/// `ClusterHealth` is Healthy. A part that cannot be read is not healthy.
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

/// The oldest version of the control plane as it is: that of its nodes, and of the API server that answers, which no
/// kubelet writes.
fn with_api_server(seen: &Observation<'_>, target: &Version) -> Version {
    let nodes = oldest(seen, target, Node::oldest);
    let older = nodes.filter(|version| version.order(seen.api_server).is_lt());
    older.unwrap_or_else(|| seen.api_server.clone())
}

/// The oldest version of the nodes of the control plane. One of another major version cannot be compared.
fn oldest(seen: &Observation<'_>, target: &Version, version: impl Fn(&Node) -> Option<Version>) -> Option<Version> {
    let nodes = seen.nodes.iter().filter(|node| node.is_control_plane());
    let versions = nodes.filter_map(version);
    let comparable = versions.filter(|version| version.major() == target.major());
    comparable.min_by(Version::order)
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
