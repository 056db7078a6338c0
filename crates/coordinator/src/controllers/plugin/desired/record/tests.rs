use serde_json::json;

use super::*;
use crate::merge_patch::merge_patch;

fn plugin(version: &str) -> PluginSpec {
    PluginSpec {
        id: "p".to_owned(),
        added_at: String::new(),
        description: String::new(),
        type_: "metrics".to_owned(),
        version: version.to_owned(),
        implementation: "prometheus".to_owned(),
    }
}

#[test]
fn a_patch_has_what_differs_and_removes_what_is_gone() {
    let of = |type_: &str, applied: Option<PluginSpec>, objects: &[&str]| PluginInventorySpec {
        type_: type_.to_owned(),
        applied,
        kinds: objects
            .iter()
            .map(|name| AppliedKind {
                kind: (*name).to_owned(),
                ..AppliedKind::default()
            })
            .collect(),
        ..PluginInventorySpec::default()
    };
    let before = of("metrics", Some(plugin("1")), &["a", "b"]);
    assert_eq!(
        merge_patch(&before, &of("", None, &[])),
        json!({"applied": null, "kinds": null, "type": null})
    );
    let mut described = plugin("1");
    described.implementation.clear();
    for (what, after, keys) in [
        ("nothing", before.clone(), &[][..]),
        ("a kind", of("metrics", Some(plugin("1")), &["a"]), &["kinds"]),
        (
            "the version",
            of("metrics", Some(plugin("2")), &["a", "b"]),
            &["applied"],
        ),
        (
            "a field of it",
            of("metrics", Some(described), &["a", "b"]),
            &["applied"],
        ),
    ] {
        let patch = merge_patch(&before, &after);
        let found: Vec<&str> = patch.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, keys, "{what}");
    }
}

#[test]
fn an_inventory_has_each_kind_once_in_each_namespace_and_is_read_as_it_was_written() {
    let mut record = Record::default();
    let of = |group: &str, kind: &str, namespace: &str, name: &str| ObjectId {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    for (id, version) in [
        (of("", "ConfigMap", "one", "b"), "v1"),
        (of("apps", "Deployment", "one", "a"), "v1"),
        (of("", "ConfigMap", "two", "a"), "v1"),
        (of("", "ConfigMap", "one", "a"), "v1"),
        (of("", "Namespace", "", "one"), "v1"),
        (of("example.com", "Thing", "one", "old"), "v1beta1"),
        (of("example.com", "Thing", "one", "new"), "v1"),
    ] {
        record.expect(id, version, 0);
    }
    let applied = of("", "ConfigMap", "one", "a");
    record.apply(&applied, "manifest", "ours".to_owned());
    let written = record.write();
    let lines: Vec<String> = written
        .kinds
        .iter()
        .map(|it| {
            let names: Vec<&str> = it.objects.iter().map(|object| object.name.as_str()).collect();
            format!("{}/{} {} {:?} {names:?}", it.group, it.version, it.kind, it.namespace)
        })
        .collect();
    assert_eq!(
        lines,
        [
            r#"/v1 ConfigMap "one" ["a", "b"]"#,
            r#"/v1 ConfigMap "two" ["a"]"#,
            r#"/v1 Namespace "" ["one"]"#,
            r#"apps/v1 Deployment "one" ["a"]"#,
            r#"example.com/v1 Thing "one" ["new"]"#,
            r#"example.com/v1beta1 Thing "one" ["old"]"#,
        ]
    );
    assert_eq!(Record::read(&written), record);
    assert!(record.is_kept_by(&written));
    assert_eq!(record.applied(&applied).unwrap().fields, "ours");
    assert_eq!(record.applied(&of("", "ConfigMap", "one", "b")), None);
    assert_eq!(
        record.version(&of("example.com", "Thing", "one", "old")),
        Some("v1beta1")
    );
    record.expect(of("", "ConfigMap", "two", "b"), "v1", 0);
    assert!(!record.is_kept_by(&written));
}

fn versions(record: &Record) -> Vec<&str> {
    let all = record.releases().iter();
    all.map(|release| release.version.as_str()).collect()
}

#[test]
fn the_last_ten_accepted_versions_are_kept_and_the_applied_one_in_any_case() {
    let mut record = Record::default();
    let revision = |version: usize| format!("{version:08}{:056}", 0);
    let accept = |record: &mut Record, version: usize, too_large: bool| {
        let version = (version.to_string(), revision(version));
        record.accept(&plugin(&version.0), &version.1, too_large, Timestamp::UNIX_EPOCH);
    };
    accept(&mut record, 1, false);
    let release = Release {
        revision: revision(1),
        ..Release::default()
    };
    record.finish(&plugin("1"), &release);
    for version in [2, 2, 3, 2] {
        accept(&mut record, version, version == 3);
    }
    assert_eq!(versions(&record), ["1", "3", "2"]);
    assert_eq!(record.secrets("p").len(), 2);
    for version in 4..=12 {
        accept(&mut record, version, false);
    }
    assert_eq!(versions(&record), ["1", "4", "5", "6", "7", "8", "9", "10", "11", "12"]);
    assert_eq!(record.accepted(&revision(7)).unwrap().version, "7");
    assert_eq!(record.accepted("00000007").unwrap().version, "7");
    for unknown in ["", "0000000", "00000003", &revision(3)] {
        assert_eq!(record.accepted(unknown), None, "{unknown}");
    }
}

#[test]
fn an_earlier_version_takes_no_signature_back() {
    let mut record = Record::default();
    let identity = Identity::of(&plugin("1"));
    for (signed_at, last) in [
        (Some(5), Some(5)),
        (Some(3), Some(5)),
        (None, Some(5)),
        (Some(7), Some(7)),
    ] {
        let release = Release {
            signed_at,
            ..Release::default()
        };
        record.begin(&identity, &release);
        assert_eq!(record.signed_at(), last);
    }
}
