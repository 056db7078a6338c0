//! The explanation of a Node, from the objects in the cluster.

use serde_json::{Value, json};
use tidewaiter_api::Condition;
use tidewaiter_identity::Refusal;

use super::live::Census;
use super::*;
use crate::node_controller::census::Brake;
use crate::objects::Node;

const CLAIM: &str = "aws:///us-east-1a/i-0123456789abcdef0";

fn node(name: &str, provider_id: &str) -> Node {
    let node =
        json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "spec": {"providerID": provider_id}});
    serde_json::from_value(node).unwrap()
}

fn record(name: &str, provider_id: &str, status: &str, reason: &str, message: &str) -> Record {
    let condition = json!({"type": "Verified", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let record = json!({
        "metadata": {"name": name},
        "spec": {"nodeUID": format!("uid-of-{name}"), "providerID": provider_id},
        "status": {"instance": "i-0123456789abcdef0", "instanceGroup": "nodes", "zone": "us-east-1a", "conditions": [condition]},
    });
    serde_json::from_value(record).unwrap()
}

fn claim(name: &str, rivals: &[&str]) -> Claim {
    let node = node(name, CLAIM);
    let claimed = Claimed::read(&node, rivals.iter().copied()).unwrap();
    claimed.claim.unwrap().unwrap()
}

fn other(change: impl FnOnce(&mut Value)) -> Record {
    let mut record = serde_json::to_value(record("a", CLAIM, "True", "Proven", "")).unwrap();
    change(&mut record);
    serde_json::from_value(record).unwrap()
}

#[test]
fn who_a_node_is_by_its_record() {
    let proven = other(|_| {});
    let weak = record("a", CLAIM, "True", "NameNotEnforced", "");
    let rows = [
        ("proven", Some(proven), &[][..], Ok("Proven")),
        ("its rival has another name", Some(other(|_| {})), &["b"], Ok("Proven")),
        ("under warn", Some(weak.clone()), &[], Ok("NameNotEnforced")),
        ("under warn, with a rival", Some(weak), &["b"], Ok("Duplicate")),
        ("none", None, &[], Err("no record")),
        (
            "of another Node",
            Some(other(|record| record["spec"]["nodeUID"] = json!("old"))),
            &[],
            Err("an earlier Node"),
        ),
        (
            "of another claim",
            Some(other(|record| record["spec"]["providerID"] = json!("aws:///z/i-1"))),
            &[],
            Err("an earlier providerID"),
        ),
        (
            "refused",
            Some(record("a", CLAIM, "False", "NotFound", "")),
            &[],
            Err("refused"),
        ),
        (
            "held",
            Some(record(
                "a",
                CLAIM,
                "False",
                "GroupChanged",
                "group y was group x. Find out who changed it",
            )),
            &[],
            Err(
                "it is held: it keeps what it has. To have a Node of the other group, replace the instance: kops delete instance a --yes",
            ),
        ),
        (
            "not answered",
            Some(record("a", CLAIM, "Unknown", "Throttled", "")),
            &[],
            Err("could not ask"),
        ),
        (
            "half",
            Some(other(|record| record["status"]["zone"] = Value::Null)),
            &[],
            Err("incomplete"),
        ),
    ];
    for (what, record, rivals, expected) in rows {
        let found = from_record(&claim("a", rivals), record.as_ref());
        match (&found, expected) {
            (Ok(Ok(proven)), Ok(reason)) => {
                let told = proven.warning().map_or("Proven", |_| "NameNotEnforced");
                assert_eq!(told, reason, "{what}");
            }
            (Ok(Err(refusal)), Ok(reason)) => assert_eq!(refusal.reason(), reason, "{what}"),
            (Err(why), Err(words)) => assert!(why.contains(words), "{what}: {why}"),
            _ => panic!("{what}: {found:?}"),
        }
    }
}

#[test]
fn the_brake_by_the_records() {
    let (forged, honest) = (
        |name| record(name, CLAIM, "False", "NameMismatch", ""),
        |name| record(name, CLAIM, "True", "Proven", ""),
    );
    let foreign = |name, forged| {
        let mut record = record(name, CLAIM, "False", "ForeignProject", "");
        record.status.forged = forged;
        record
    };
    let nodes = || vec![node("a", CLAIM), node("b", CLAIM), node("c", "")];
    for (what, records, expected) in [
        ("no record", vec![honest("a")], (0, 1)),
        ("all judged", vec![honest("a"), honest("b")], (0, 0)),
        ("a forged one", vec![honest("a"), forged("b")], (1, 0)),
        (
            "an instance of another cluster",
            vec![honest("a"), foreign("b", true)],
            (1, 0),
        ),
        (
            "an instance without a mark",
            vec![honest("a"), foreign("b", false)],
            (0, 0),
        ),
        (
            "an outage",
            vec![honest("a"), record("b", CLAIM, "Unknown", "Throttled", "")],
            (0, 1),
        ),
        (
            "another claim",
            vec![honest("a"), record("b", "aws:///z/i-1", "False", "NameMismatch", "")],
            (0, 1),
        ),
        (
            "what is no claim",
            vec![honest("a"), record("b", "\"x\"", "False", "InvalidProviderId", "")],
            (0, 0),
        ),
        (
            "one that is gone",
            vec![honest("a"), honest("b"), forged("gone")],
            (0, 0),
        ),
    ] {
        let live = Live::new(nodes(), records);
        let (forged, unjudged) = expected;
        let census = Census {
            nodes: 3,
            forged,
            unjudged,
        };
        assert_eq!(live.recorded_census(), census, "{what}");
    }
    let live = Live::new(nodes(), vec![honest("a"), forged("b")]);
    let now = Finding::Refused(Refusal::AddressMismatch {
        instance: "i".to_owned(),
        node: "a".parse().unwrap(),
        actual: Vec::new(),
    });
    let brake = |found| live.census(&"a".parse().unwrap(), found).brake();
    assert_eq!(brake(None), Brake::Free);
    assert_eq!(brake(Some(&now)), Brake::Held);
    assert_eq!(Live::new(nodes(), vec![]).recorded_census().brake(), Brake::Unjudged);
}

#[test]
fn what_others_wrote_is_made_fit_to_be_shown() {
    let hostile = "\u{1b}[31m\u{9b}2J\u{202e}";
    let mut record = record("a", CLAIM, "False", hostile, hostile);
    let about_labels = Condition {
        type_: "LabelsValid".to_owned(),
        ..record.status.conditions[0].clone()
    };
    record.status.conditions.push(about_labels);
    record.status.instance = Some(hostile.to_owned());
    let mut node = node("a", CLAIM);
    node.metadata.labels = Some([("k".to_owned(), hostile.to_owned())].into());
    let claimed = Claimed::read(&node, std::iter::empty()).unwrap();
    let seen = Observation {
        fresh_for: None,
        name: claimed.name,
        uid: claimed.uid,
        node: Arc::new(node),
        record: Some(Arc::new(record)),
        finding: Finding::Unclaimed,
        owned: Arc::default(),
        brake: Brake::Unjudged,
        policy: Policy::default(),
    };
    let explained = describe::explain(&seen, Some(hostile.to_owned()), false, jiff::Timestamp::UNIX_EPOCH);
    let text = format!("{explained:?}");
    assert!(text.contains("u{1b}") && explained.instance.is_some(), "{text}");
    let shown = serde_json::to_string(&explained).unwrap();
    for bad in hostile.chars().filter(|c| !c.is_ascii_graphic()) {
        assert!(!shown.contains(bad), "{bad:?} in {shown}");
    }
    assert!(!shown.contains("\\u001b"), "{shown}");
}
