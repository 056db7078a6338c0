use super::*;

fn identity(name: &str) -> Identity {
    Identity {
        id: format!("id-{name}"),
        type_: name.to_owned(),
        implementation: "it".to_owned(),
    }
}

/// Each plugin, what it depends on, and whether it is ready.
fn plugins(all: &[(&str, &[&str], bool)]) -> Plugins {
    let known = |depends_on: &[&str], ready: bool| Known {
        not_ready: (!ready).then(|| "why".to_owned()),
        depends_on: depends_on.iter().map(ToString::to_string).collect(),
    };
    all.iter()
        .map(|(name, depends_on, ready)| (identity(name), known(depends_on, *ready)))
        .collect()
}

fn asked(all: &Plugins, name: &str, complete: bool) -> Option<(&'static str, String)> {
    let plugin = identity(name);
    let found = blocked(&plugin, &all[&plugin].depends_on, all, complete)?;
    Some(match found {
        Blocked::Waits(waits) => (waits.reason, waits.message),
        Blocked::Problem(problem) => (problem.reason, problem.note),
    })
}

#[test]
fn a_plugin_waits_for_those_that_it_names_and_no_other_does() {
    let all = plugins(&[
        ("a", &[], false),
        ("b", &["a"], false),
        ("c", &["a/it", "d"], false),
        ("d", &[], true),
        ("e", &["id-d", "D"], false),
        ("f", &["missing"], false),
    ]);
    assert_eq!(asked(&all, "a", true), None);
    for name in ["b", "c"] {
        let (reason, message) = asked(&all, name, true).unwrap();
        assert_eq!(reason, "DependencyNotReady");
        assert!(message.contains("a/it (id-a)") && message.contains("why"), "{message}");
    }
    assert_eq!(asked(&all, "e", true), None);
    let (reason, message) = asked(&all, "f", true).unwrap();
    assert_eq!(reason, "DependencyMissing");
    assert!(message.contains("depends on missing"), "{message}");
    // It may be that the mirror has not written it yet.
    assert_eq!(asked(&all, "f", false).unwrap().0, "DependencyNotReady");
}

#[test]
fn a_cycle_is_said_by_each_of_its_plugins_and_ends_the_search() {
    let all = plugins(&[
        ("a", &["b"], true),
        ("b", &["c"], true),
        ("c", &["a"], true),
        ("d", &["d"], true),
        ("e", &["a"], true),
    ]);
    for name in ["a", "b", "c", "d"] {
        let (reason, message) = asked(&all, name, true).unwrap();
        assert_eq!(reason, "DependencyCycle", "{message}");
    }
    let (_, message) = asked(&all, "a", true).unwrap();
    assert!(
        message.contains("a/it (id-a), then b/it (id-b), then c/it (id-c), then a/it"),
        "{message}"
    );
    assert_eq!(
        asked(&all, "e", true),
        None,
        "it is behind a cycle that is ready all the same"
    );
    // A type that another plugin has too.
    let mut all = plugins(&[("a", &["a"], false)]);
    let other = Identity {
        implementation: "other".to_owned(),
        id: "id-other".to_owned(),
        ..identity("a")
    };
    all.insert(other, Known::default());
    assert_eq!(asked(&all, "a", true), None);
}

#[test]
fn plugins_are_removed_before_those_that_they_depend_on() {
    let all = plugins(&[
        ("a", &[], true),
        ("b", &["a"], true),
        ("c", &["d"], true),
        ("d", &["c"], true),
    ]);
    let first = |name: &str| goes_first(&identity(name), &all[&identity(name)].depends_on, &all);
    assert_eq!(first("a"), Some(&identity("b")));
    for name in ["b", "c", "d"] {
        assert_eq!(first(name), None, "{name}");
    }
}
