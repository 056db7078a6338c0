use serde_json::json;

use super::*;
use crate::controllers::plugin::desired::render::packed;

/// The differences, as `path: before -> after`.
fn words(differences: &[Difference]) -> Vec<String> {
    let value = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
    let word = |it: &Difference| format!("{}: {} -> {}", it.path, value(&it.before), value(&it.after));
    differences.iter().map(word).collect()
}

#[test]
fn only_paths_that_differ_are_shown() {
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    for (before, after, expected) in [
        (json!({"a": 1, "b": {"c": 2}}), json!({"a": 1, "b": {"c": 2}}), vec![]),
        (
            json!({"a": 1}),
            json!({"a": 2, "d.e": null}),
            vec!["a: 1 -> 2", "[\"d.e\"]: - -> null"],
        ),
        (
            json!({"a": {"b": 1, "c": 1}}),
            json!({"a": {"c": 1}}),
            vec!["a.b: 1 -> -"],
        ),
        // Lists whose items have names are compared by them, whatever their places.
        (
            json!({"c": [container("x", "1"), container("y", "1")]}),
            json!({"c": [container("new", "1"), container("x", "2"), container("y", "1")]}),
            vec![
                "c[x].image: \"1\" -> \"2\"",
                "c[new]: - -> {\"image\":\"1\",\"name\":\"new\"}",
            ],
        ),
        (
            json!({"l": ["a", "b"]}),
            json!({"l": ["a", "c", "d"]}),
            vec!["l[1]: \"b\" -> \"c\"", "l[2]: - -> \"d\""],
        ),
        (
            json!({"l": [{"name": "x"}]}),
            json!({"l": ["x"]}),
            vec!["l[0]: {\"name\":\"x\"} -> \"x\""],
        ),
        (json!({"l": []}), json!({"l": [1]}), vec!["l[0]: - -> 1"]),
    ] {
        assert_eq!(words(&differences(&before, &after)), expected, "{before} {after}");
    }
    // Of what the API server says of a new object, only what the manifest says counts.
    let rendered = json!({"spec": {"ip": "10.0.0.7", "ports": [{"port": 80, "nodePort": 31234}], "cpu": "1"}});
    let manifest = json!({"spec": {"ports": [{"port": 80}], "cpu": "1000m"}});
    assert_eq!(
        projected(&rendered, &manifest),
        json!({"spec": {"ports": [{"port": 80}], "cpu": "1"}})
    );
    let found = differences_of(&rendered, &json!({"spec": {"cpu": "2", "new": true}}));
    assert_eq!(words(&found), ["spec.cpu: \"1\" -> \"2\"", "spec.new: - -> true"]);
}

fn diff() -> PluginDiff {
    let difference = |path: &str, after: Value| Difference {
        path: path.to_owned(),
        before: None,
        after: Some(after),
    };
    PluginDiff {
        version: "2.0.0".to_owned(),
        revision: "ab".to_owned(),
        changes: vec![ObjectChange {
            operation: Operation::Change,
            object: "ConfigMap default/a".to_owned(),
            secret: false,
            note: String::new(),
            differences: vec![difference("data.a", json!("2")), difference("data.b", Value::Null)],
        }],
        digest_of_all: None,
    }
}

#[test]
fn whatever_differs_has_another_digest() {
    let one = diff();
    let mut digests = vec![one.digest()];
    let mut other = |change: fn(&mut PluginDiff)| {
        let mut diff = diff();
        change(&mut diff);
        digests.push(diff.digest());
    };
    other(|diff| diff.revision = "ac".to_owned());
    other(|diff| diff.changes[0].operation = Operation::Create);
    other(|diff| diff.changes[0].object = "ConfigMap default/b".to_owned());
    other(|diff| diff.changes[0].differences[0].path = "data.c".to_owned());
    other(|diff| diff.changes[0].differences[0].before = Some(json!("1")));
    other(|diff| diff.changes[0].differences[1].after = None);
    other(|diff| diff.changes[0].differences.truncate(1));
    other(|diff| diff.changes.clear());
    let count = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), count);
    // A note explains, and can repeat what an API server says in other words the next time.
    let mut noted = diff();
    noted.changes[0].note = "because".to_owned();
    assert_eq!(noted.digest(), one.digest());
}

#[test]
fn it_is_read_as_it_was_stored_and_nothing_else_is() {
    let diff = diff();
    assert_eq!(PluginDiff::unpack(&diff.pack()).unwrap(), diff);
    let small = diff.clone().without_differences();
    assert_eq!((small.digest(), small.pending()), (diff.digest(), diff.pending()));
    assert_eq!(PluginDiff::unpack(&small.pack()).unwrap().digest(), diff.digest());
    // One that is too large is stored without its differences.
    let size = diff.pack().len();
    assert_eq!(packed(&diff, size), diff.pack());
    assert_eq!(packed(&diff, size - 1), small.pack());
    for forged in [
        &b""[..],
        b"abc",
        &[0xff; 64],
        &compress_prepend_size(b"{\"hunter2\": 1}"),
    ] {
        let error = PluginDiff::unpack(forged).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn no_value_of_a_secret_is_shown_but_what_names_it() {
    let metadata = json!({"name": "s", "labels": {"a": "b"}, "annotations": {"note": "hunter2"}});
    let whole = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque",
        "data": {"password": "hunter2"}, "stringData": {"list": "hunter2"}});
    let difference = |path: &str, after: Value| Difference {
        path: path.to_owned(),
        before: Some(json!("hunter2")),
        after: Some(after),
    };
    let change = ObjectChange {
        operation: Operation::Change,
        object: "Secret default/s".to_owned(),
        secret: true,
        note: String::new(),
        differences: vec![
            difference("", whole),
            difference("data.password", json!("hunter3")),
            difference("dataless", json!(["hunter2"])),
        ],
    };
    let shown = serde_json::to_string(&change.clone().without_secrets()).unwrap();
    assert!(!shown.contains("hunter"), "{shown}");
    for word in ["Opaque", r#""a":"b""#, "SHA-256", r#""name":"s""#] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let plain = ObjectChange {
        secret: false,
        ..change
    };
    assert_eq!(plain.clone().without_secrets(), plain);
}
