use serde_json::json;
use tidewaiter_cloud::signed::manifests_digest;

use super::super::*;

#[test]
fn the_digest_is_that_of_the_whole() {
    for json in [
        json!({}),
        json!({"manifests": [], "jobs": null, "depends_on": null}),
        json!({"manifests": [[], [{"b": 1, "a": [1.50, {"d": "é\n", "c": null}]}, 7]], "jobs": {"post_apply": [{"z": 1, "y": 2}]},
            "depends_on": ["b", "a"], "other": 1}),
    ] {
        let spaced = serde_json::to_string_pretty(&json).unwrap();
        assert_eq!(
            Sent::read(spaced.as_bytes()).unwrap().digest().unwrap(),
            manifests_digest(&json)
        );
    }
}

#[test]
fn a_list_is_one_however_its_kind_is_escaped() {
    for (kind, version, expected) in [
        ("List", "v1", true),
        (r"\u004cist", r"v\u0031", true),
        ("List", "v2", false),
        ("Lists", "v1", false),
    ] {
        let list = format!(r#"{{"kind":"{kind}","apiVersion":"{version}","items":[]}}"#);
        let part: Part = serde_json::from_str(&list).unwrap();
        assert_eq!(part.items_of_list("here").unwrap().is_some(), expected, "{list}");
    }
}

#[test]
fn what_becomes_more_memory_than_it_may_is_refused() {
    const TEXT: usize = 2 * LARGEST_PART / 3;
    for item in ["0", "[]", r#"{"":0}"#] {
        let list = vec![item; TEXT / (item.len() + 1)].join(",");
        let object = format!(r#"{{"kind":"A","a":[{list}]}}"#);
        let part: Part = serde_json::from_str(&object).unwrap();
        let found = part.read::<Value>("here");
        // The others take 32 bytes each.
        assert_eq!(found.is_err(), item.starts_with('{'), "{item}");
        let manifests = format!(r#"{{"manifests":[[{list}]]}}"#);
        let sent = Sent::read(manifests.as_bytes()).unwrap();
        let group = sent.manifests.unwrap().items("manifests").unwrap().remove(0);
        let why = group.items("manifests[0]").map(|items| items.len()).unwrap_err().why;
        assert!(why.contains("4000 items"), "{why}");
    }
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(LARGEST_PART));
    let part: Part = serde_json::from_str(&long).unwrap();
    let refused = part.read::<Value>("here").unwrap_err();
    assert!(refused.why.contains("split it"), "{refused}");
}
