use super::*;
use crate::testing::{nodes, observation, upgrade, version};

/// The result of the preflight for an upgrade of the nodes whose names are in `selected`, where the API server is at
/// `api_server`.
fn says(all: &str, selected: &str, target: &str, api_server: &str) -> Result<(), String> {
    let (upgrade, nodes, api_server) = (upgrade("u"), nodes(all), version(api_server));
    let seen = observation(&upgrade, &[], &nodes, &api_server, 0);
    let chosen: Vec<&Node> = nodes
        .iter()
        .filter(|node| selected.split_whitespace().any(|name| name == node.name.as_str()))
        .collect();
    preflight(&seen, &version(target), &chosen).map_err(|refusal| refusal.to_string())
}

#[test]
fn what_the_version_rules_permit() {
    for (all, selected, target, api_server) in [
        // A patch, a minor version, and a node that is there already.
        ("cp=v1.36.0 w1=v1.36.0", "cp w1", "v1.36.3", "v1.36.0"),
        ("cp=v1.35.4 w1=v1.35.4", "cp w1", "v1.36.3", "v1.35.4"),
        ("cp=v1.36.3 w1=v1.35.4", "cp w1", "v1.36.3", "v1.36.3"),
        ("cp=v1.36.0-rc.1", "cp", "v1.36.0", "v1.36.0-rc.1"),
        // The control plane alone; the others are at most three minor versions older, two before 1.28.
        ("cp=v1.35.4 w1=v1.33.0", "cp", "v1.36.3", "v1.35.4"),
        ("cp=v1.26.0 w1=v1.25.0", "cp", "v1.27.0", "v1.26.0"),
        // Workers alone, at most as new as the control plane.
        ("cp=v1.36.3 w1=v1.35.4", "w1", "v1.36.3", "v1.36.3"),
        ("cp=v1.36.0 w1=v1.36.0", "w1", "v1.36.3", "v1.36.0"),
        // A node that does not fit fails alone. One that is not selected is only named.
        ("cp=v1.36.3 w1=v1.37.0", "cp w1", "v1.36.4", "v1.36.3"),
        ("cp=v1.35.4 w1=v99.0.0 w2=v1.10.0", "cp w1", "v1.36.3", "v1.35.4"),
        ("cp=v1.35.4 w1=?", "cp w1", "v1.36.3", "v1.35.4"),
        ("cp=v1.35.4 w1=v1.32.0", "cp", "v1.36.3", "v1.35.4"),
        ("cp=v1.36.3 cp2=v99.0.0 w1=v1.35.4", "w1", "v1.36.3", "v1.36.3"),
        // No Node is of the control plane: the API server counts.
        ("w1=v1.35.4", "w1", "v1.36.3", "v1.36.1"),
    ] {
        assert_eq!(
            says(all, selected, target, api_server),
            Ok(()),
            "{all}: {selected} to {target}"
        );
    }
}

#[test]
fn what_the_version_rules_refuse_and_why() {
    for (all, selected, target, api_server, why) in [
        (
            "cp=v1.35.4",
            "",
            "v1.36.3",
            "v1.35.4",
            "no Node with the label containership.io/managed=true matches",
        ),
        (
            "cp=v1.36.4",
            "cp",
            "v1.36.3",
            "v1.36.4",
            "cp is at v1.36.4, which is newer than v1.36.3, and a version never goes down",
        ),
        (
            "cp=v1.36.0",
            "cp",
            "v1.36.0-rc.1",
            "v1.36.0",
            "cp is at v1.36.0, which is newer than v1.36.0-rc.1",
        ),
        (
            "cp=v1.34.4",
            "cp",
            "v1.36.3",
            "v1.34.4",
            "cp is at v1.34.4: an upgrade to v1.36.3 would skip a minor version. Upgrade it to v1.35 first",
        ),
        (
            "cp=v1.36.3 w1=v1.34.0",
            "w1",
            "v1.36.3",
            "v1.36.3",
            "w1 is at v1.34.0: an upgrade to v1.36.3 would skip a minor version",
        ),
        (
            "cp=v1.35.4",
            "cp",
            "v2.0.0",
            "v1.35.4",
            "of another major version than v2.0.0",
        ),
        (
            "cp=v1.36.3 w1=?",
            "w1",
            "v1.36.3",
            "v1.36.3",
            "the kubelet of w1 reports no version that can be read",
        ),
        // The API server that answers is older than its nodes say.
        (
            "cp=v1.36.3 w1=v1.35.4",
            "w1",
            "v1.36.3",
            "v1.35.9",
            "the control plane is at v1.35.9",
        ),
        (
            "cp=v1.35.4 w1=v1.35.4",
            "w1",
            "v1.36.3",
            "v1.36.3",
            "the control plane is at v1.35.4, and a kubelet must not be of a newer minor version (v1.36.3)",
        ),
        // One of two: the other one stays behind.
        (
            "cp=v1.35.4 cp2=v1.35.4 w1=v1.35.4",
            "cp w1",
            "v1.36.3",
            "v1.35.4",
            "the control plane is at v1.35.4",
        ),
        (
            "w1=v1.35.4",
            "w1",
            "v1.36.3",
            "v1.35.9",
            "the control plane is at v1.35.9",
        ),
    ] {
        let refused = says(all, selected, target, api_server).unwrap_err();
        assert!(refused.contains(why), "{all}: {selected} to {target}: {refused}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    for (all, selected, target, expected) in [
        ("cp=v1.35.4 w1=v1.33.0", "cp", "v1.36.3", &[][..]),
        (
            "cp=v1.35.4 w1=v1.32.0",
            "cp",
            "v1.36.3",
            &[
                "w1 is at v1.32.0, and a control plane at v1.36.3 supports kubelets that are at most 3 minor versions older",
            ],
        ),
        (
            "cp=v1.26.0 w1=v1.24.0",
            "cp",
            "v1.27.0",
            &["at most 2 minor versions older"],
        ),
        // Workers alone leave nobody behind.
        ("cp=v1.36.3 w1=v1.35.4 w2=v1.10.0", "w1", "v1.36.3", &[]),
        (
            "cp=v1.35.4 w1=v99.0.0 w2=v1.10.0",
            "cp w1",
            "v1.36.3",
            &[
                "w1 is at v99.0.0, of another major version",
                "w2 is at v1.10.0, and a control plane",
            ],
        ),
    ] {
        let (upgrade, nodes, api_server) = (upgrade("u"), nodes(all), version("v1.35.4"));
        let seen = observation(&upgrade, &[], &nodes, &api_server, 0);
        let is_chosen = |node: &&Node| selected.split_whitespace().any(|name| name == node.name.as_str());
        let chosen: Vec<&Node> = nodes.iter().filter(is_chosen).collect();
        let found = misfits(&seen, &version(target), &chosen);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{all}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{all}: {found}");
        }
    }
}

#[test]
fn the_pods_of_the_control_plane_count_as_well() {
    let (mut all, target) = (nodes("cp=v1.36.3 w1=v1.35.4"), version("v1.36.3"));
    let (upgrade, api_server) = (upgrade("u"), version("v1.36.3"));
    all[0].components = vec![version("v1.36.3"), version("v1.35.4")];
    assert!(!all[0].is_at(&target));
    let seen = observation(&upgrade, &[], &all, &api_server, 0);
    let refused = supports_workers(&seen, &target).unwrap_err();
    assert!(
        refused.to_string().contains("the control plane is at v1.35.4"),
        "{refused}"
    );
    all[0].components = vec![version("v1.37.0")];
    assert!(matches!(fits(&all[0], &target), Err(Refusal::Newer { .. })));
}
