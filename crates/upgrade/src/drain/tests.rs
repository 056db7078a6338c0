use super::*;

fn pod(name: &str) -> Pod {
    Pod {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        labels: [("app".to_owned(), name.trim_end_matches(char::is_numeric).to_owned())].into(),
        phase: "Running".to_owned(),
        ready: true,
        controller: Some("ReplicaSet".to_owned()),
        ..Pod::default()
    }
}

/// A budget for the pods of this app.
fn budget(name: &str, app: &str, disruptions_allowed: i32) -> Budget {
    Budget {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        selects: Selects {
            labels: [("app".to_owned(), app.to_owned())].into(),
            ..Selects::default()
        },
        disruptions_allowed,
        current_healthy: 2,
        desired_healthy: 2,
        is_observed: true,
        ..Budget::default()
    }
}

fn says(pods: &[Pod], budgets: &[Budget]) -> String {
    let left = forecast(pods, budgets);
    left.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn what_kubectl_drain_leaves_alone_stays() {
    let with = |change: fn(&mut Pod)| {
        let mut pod = pod("a");
        change(&mut pod);
        pod.treatment()
    };
    for (treatment, expected) in [
        (with(|_| {}), Treatment::Evicted),
        (
            with(|pod| pod.controller = Some("StatefulSet".to_owned())),
            Treatment::Evicted,
        ),
        (
            with(|pod| pod.controller = Some("DaemonSet".to_owned())),
            Treatment::Stays,
        ),
        (with(|pod| pod.controller = None), Treatment::Unmovable),
        (
            with(|pod| (pod.is_static, pod.controller) = (true, Some("Node".to_owned()))),
            Treatment::Stays,
        ),
        (
            with(|pod| (pod.phase, pod.controller) = ("Succeeded".to_owned(), None)),
            Treatment::Stays,
        ),
        (with(|pod| pod.phase = "Failed".to_owned()), Treatment::Stays),
        (with(|pod| pod.phase = "Pending".to_owned()), Treatment::Evicted),
    ] {
        assert_eq!(treatment, expected);
    }
}

#[test]
fn the_budget_that_blocks_is_named() {
    let blocked = |pod: &str, budget: &str| {
        format!("default/{pod}: the PodDisruptionBudget default/{budget} permits no disruption now")
    };
    assert_eq!(says(&[pod("a")], &[]), "default/a has not ended yet");
    assert_eq!(says(&[pod("a")], &[budget("x", "a", 0)]), blocked("a", "x"));
    assert_eq!(says(&[pod("b")], &[budget("x", "a", 0)]), "default/b has not ended yet");
    // Each eviction takes one of the disruptions.
    let two = format!("default/a1 has not ended yet; {}", blocked("a2", "x"));
    assert_eq!(says(&[pod("a1"), pod("a2")], &[budget("x", "a", 1)]), two);
    let stale = Budget {
        is_observed: false,
        ..budget("x", "a", 1)
    };
    assert_eq!(says(&[pod("a")], &[stale]), blocked("a", "x"));
    let elsewhere = Budget {
        namespace: "other".to_owned(),
        ..budget("x", "a", 0)
    };
    assert_eq!(says(&[pod("a")], &[elsewhere]), "default/a has not ended yet");
    let several = "default/a: several PodDisruptionBudgets select it, which no eviction passes: default/x, default/y";
    assert_eq!(says(&[pod("a")], &[budget("x", "a", 9), budget("y", "a", 9)]), several);
    let alone = Pod {
        controller: None,
        ..pod("a")
    };
    assert!(says(&[alone], &[]).starts_with("default/a has no controller"));
    // One that is Pending, or is being deleted, takes none.
    let leaving = [
        Pod {
            phase: "Pending".to_owned(),
            ..pod("a1")
        },
        Pod {
            terminating: true,
            ..pod("a2")
        },
    ];
    assert_eq!(
        says(&leaving, &[budget("x", "a", 0)]),
        "default/a1 has not ended yet; default/a2 has not ended yet"
    );
}

#[test]
fn a_pod_that_is_not_ready_is_disrupted_already() {
    let unready = Pod {
        ready: false,
        ..pod("a")
    };
    let too_few = Budget {
        current_healthy: 1,
        ..budget("x", "a", 0)
    };
    let always = Budget {
        always_unhealthy: true,
        ..too_few.clone()
    };
    for (budget, passes) in [(budget("x", "a", 0), true), (too_few, false), (always, true)] {
        assert_eq!(
            forecast(std::slice::from_ref(&unready), &[budget])[0].blocker == DrainBlocker::Leaving,
            passes
        );
    }
}

#[test]
fn the_selector_of_a_budget_selects_as_in_kubernetes() {
    let selects = |key: &str, operator: &str, values: &[&str]| Selects {
        expressions: vec![Requirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }],
        ..Selects::default()
    };
    let none = Selects {
        nothing: true,
        ..Selects::default()
    };
    for (selects, expected) in [
        (Selects::default(), true),
        (none, false),
        (selects("app", "In", &["a", "b"]), true),
        (selects("app", "In", &["b"]), false),
        (selects("app", "NotIn", &["b"]), true),
        (selects("x", "NotIn", &["b"]), true),
        (selects("app", "Exists", &[]), true),
        (selects("x", "Exists", &[]), false),
        (selects("x", "DoesNotExist", &[]), true),
        (selects("app", "DoesNotExist", &[]), false),
    ] {
        let budget = Budget {
            selects: selects.clone(),
            ..budget("x", "a", 0)
        };
        assert_eq!(budget.selects(&pod("a")), expected, "{selects:?}");
    }
}
