use super::*;
use crate::testing::{at, in_progress, name, version};

struct Case {
    upgrades: Vec<Upgrade>,
    kubelet: Option<&'static str>,
    seen: i64,
    begun: bool,
    repeatable: Repeatable,
    seconds: i64,
}

/// The node `w1` is current in the upgrade `u` of generation 5 since the time 0, for ten minutes.
fn case() -> Case {
    Case {
        upgrades: vec![in_progress("u", "cp=Success w1=InProgress")],
        kubelet: Some("v1.35.4"),
        seen: 5,
        begun: false,
        repeatable: Repeatable::No,
        seconds: 0,
    }
}

fn says(case: &Case) -> Result<Run, String> {
    let ledger = Ledger {
        seen: [("uid-u".to_owned(), case.seen)].into(),
        begun: case.begun.then(|| "uid-u".to_owned()).into_iter().collect(),
    };
    let (node, version) = (name("w1"), case.kubelet.map(version));
    let host = Host {
        node: &node,
        version: version.as_ref(),
        ledger: &ledger,
        now: at(case.seconds),
    };
    decide(&case.upgrades, host, case.repeatable).map_err(|refused| refused.to_string())
}

#[test]
fn the_script_of_the_current_node_runs_until_shortly_before_the_deadline() {
    let run = says(&case()).unwrap();
    assert_eq!(
        (run.upgrade.as_str(), run.generation, run.until),
        ("uid-u", 5, at(600 - 30))
    );
    assert!(says(&Case { seconds: 569, ..case() }).is_ok());
    // The start lies in the future: the script has no more time than a node has.
    let early = Case {
        seconds: -10_000,
        ..case()
    };
    assert_eq!(says(&early).unwrap().until, at(600 - 10_000));
    assert!(says(&Case { seen: 4, ..case() }).is_ok());
    assert!(
        says(&Case {
            begun: true,
            repeatable: Repeatable::Yes,
            ..case()
        })
        .is_ok()
    );
}

#[test]
fn nothing_else_runs_and_the_reason_is_said() {
    let over = |mut upgrade: Upgrade| {
        upgrade.progress.cluster = tidewaiter_api::containership::UpgradeStatus::Failed;
        upgrade
    };
    for (case, why) in [
        (
            Case {
                upgrades: vec![],
                ..case()
            },
            "not the turn",
        ),
        (
            Case {
                upgrades: vec![in_progress("u", "cp=InProgress")],
                ..case()
            },
            "not the turn",
        ),
        (
            Case {
                upgrades: vec![in_progress("u", "w1=Success")],
                ..case()
            },
            "not the turn",
        ),
        (
            Case {
                upgrades: vec![over(in_progress("u", "w1=InProgress"))],
                ..case()
            },
            "not the turn",
        ),
        (
            Case {
                upgrades: vec![in_progress("u", "w1=InProgress"), in_progress("v", "w1=InProgress")],
                ..case()
            },
            "several upgrades",
        ),
        (
            Case { seen: 6, ..case() },
            "generation 5, and generation 6 of the upgrade was seen",
        ),
        (Case { begun: true, ..case() }, "begun before"),
        (
            Case {
                kubelet: Some("v1.36.3"),
                ..case()
            },
            "the kubelet is at v1.36.3, so an upgrade to v1.36.3 has nothing to do",
        ),
        (
            Case {
                kubelet: Some("v1.37.0"),
                ..case()
            },
            "the kubelet is at v1.37.0",
        ),
        (
            Case {
                kubelet: None,
                ..case()
            },
            "the version of the kubelet cannot be read",
        ),
        (Case { seconds: 570, ..case() }, "is over or too near"),
    ] {
        let refused = says(&case).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_recorded_run_is_confirmed_only_for_its_own_upgrade() {
    let ledger = Ledger {
        begun: ["uid-u".to_owned()].into(),
        ..Ledger::default()
    };
    let (node, version) = (name("w1"), version("v1.35.4"));
    let host = Host {
        node: &node,
        version: Some(&version),
        ledger: &ledger,
        now: at(0),
    };
    let upgrades = [in_progress("u", "w1=InProgress")];
    assert_eq!(
        confirm("uid-u", Again::No, &upgrades, host).map(|run| run.upgrade),
        Ok("uid-u".to_owned())
    );
    assert_eq!(confirm("uid-v", Again::No, &upgrades, host), Err(Refused::NotCurrent));
}

#[test]
fn only_a_script_that_runs_again_may_find_the_kubelet_at_the_version() {
    for (kubelet, begun, repeatable, expected) in [
        ("v1.36.3", true, Repeatable::Yes, Ok(Again::Yes)),
        ("v1.35.4", true, Repeatable::Yes, Ok(Again::Yes)),
        ("v1.35.4", false, Repeatable::Yes, Ok(Again::No)),
        ("v1.36.3", false, Repeatable::Yes, Err("nothing to do")),
        ("v1.36.3", true, Repeatable::No, Err("begun before")),
        ("v1.36.4", true, Repeatable::Yes, Err("nothing to do")),
        ("v1.36.3-eks-3abbec1", false, Repeatable::Yes, Err("nothing to do")),
    ] {
        let mut ledger = Ledger::default();
        if begun {
            ledger.begun.insert("uid-u".to_owned());
        }
        let (node, version) = (name("w1"), version(kubelet));
        let host = Host {
            node: &node,
            version: Some(&version),
            ledger: &ledger,
            now: at(0),
        };
        let upgrades = [in_progress("u", "w1=InProgress")];
        let decided = decide(&upgrades, host, repeatable);
        let confirmed = decided
            .clone()
            .and_then(|run| confirm(&run.upgrade, run.again, &upgrades, host));
        assert_eq!(decided, confirmed, "{kubelet}");
        match (decided, expected) {
            (Ok(run), Ok(again)) => assert_eq!(run.again, again, "{kubelet}"),
            (Err(refused), Err(why)) => assert!(refused.to_string().contains(why), "{refused}"),
            (decided, _) => panic!("{kubelet} {begun} {repeatable:?}: {decided:?}"),
        }
    }
}

#[test]
fn another_build_of_the_release_is_an_upgrade_where_the_target_names_a_build() {
    let mut upgrade = in_progress("u", "w1=InProgress");
    upgrade.spec.as_mut().unwrap().target = version("v1.36.3-gke.2");
    for (kubelet, runs) in [
        ("v1.36.3-gke.1", true),
        ("v1.36.3-gke.2", false),
        ("v1.36.3", true),
        ("v1.36.4-gke.1", false),
    ] {
        let (node, version, ledger) = (name("w1"), version(kubelet), Ledger::default());
        let host = Host {
            node: &node,
            version: Some(&version),
            ledger: &ledger,
            now: at(0),
        };
        let decided = decide(std::slice::from_ref(&upgrade), host, Repeatable::No);
        assert_eq!(decided.is_ok(), runs, "{kubelet}: {decided:?}");
    }
}

#[test]
fn the_ledger_keeps_the_newest_generation() {
    let mut ledger = Ledger::default();
    let of = |generation| {
        [Upgrade {
            generation,
            ..in_progress("u", "")
        }]
    };
    for (generation, seen) in [(5, 5), (7, 7), (6, 7)] {
        ledger.see(&of(generation));
        assert_eq!(ledger.seen["uid-u"], seen);
    }
}
