use serde_json::json;

use super::*;

fn check(current: &str, in_progress: &str, failed: &str) -> Result<HealthCheck, String> {
    let sent = json!({"apiVersion": "example.com/v1", "kind": "Widget", "current": current, "inProgress": in_progress, "failed": failed});
    HealthCheck::read(serde_json::from_value(sent).unwrap())
}

fn widget(status: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "generation": 2, "labels": {"a": "b"}},
        "spec": {"replicas": 3}, "status": status})
}

fn word(health: &Health) -> &'static str {
    match health {
        Health::Current => "current",
        Health::InProgress(_) => "in progress",
        Health::Failed(_) => "failed",
    }
}

#[test]
fn an_expression_says_how_an_object_is() {
    let ready = "status.conditions.filter(e, e.type == 'Ready').all(e, e.status == 'True' && e.observedGeneration == metadata.generation)";
    let condition =
        |type_: &str, status: &str| json!({"conditions": [{"type": type_, "status": status, "observedGeneration": 2}]});
    for (current, status, expected) in [
        (ready, condition("Ready", "True"), "current"),
        (ready, condition("Ready", "False"), "in progress"),
        (ready, Value::Null, "in progress"),
        (
            "status.phase in ['Running', 'Done']",
            json!({"phase": "Done"}),
            "current",
        ),
        (
            "status.phase in ['Running', 'Done']",
            json!({"phase": "New"}),
            "in progress",
        ),
        ("status.ready == spec.replicas", json!({"ready": 3}), "current"),
        ("status.ready - 1 >= spec.replicas", json!({"ready": 3}), "in progress"),
        (
            "has(status.url) && size(status.url) > 0",
            json!({"url": "x"}),
            "current",
        ),
        ("has(status.url) && size(status.url) > 0", json!({}), "in progress"),
        (
            "status.conditions.exists(e, e.type == 'Ready')",
            condition("Ready", "True"),
            "current",
        ),
        (
            "status.conditions.exists_one(e, e.type == 'Ready')",
            condition("Ready", "True"),
            "current",
        ),
        ("metadata.labels['a'].startsWith('b')", json!({}), "current"),
        ("status.share > 0.5", json!({"share": 0.75}), "current"),
        // It is no truth value, and it does not fit.
        ("status.phase", json!({"phase": "x"}), "in progress"),
        ("status.phase > 3", json!({"phase": "x"}), "in progress"),
        ("nothing.of.it", json!({}), "in progress"),
    ] {
        let found = check(current, "", "").unwrap().health(&widget(&status));
        assert_eq!(word(&found), expected, "{current}: {found:?}");
    }
}

#[test]
fn in_progress_counts_before_failed_and_failed_before_current() {
    let check = check("true", "status.a == 1", "status.b == 1").unwrap();
    for (status, expected) in [
        (json!({"a": 1, "b": 1}), "in progress"),
        (json!({"a": 0, "b": 1}), "failed"),
        (json!({"a": 0, "b": 0}), "current"),
        (json!({"b": 0}), "in progress"),
    ] {
        assert_eq!(word(&check.health(&widget(&status))), expected, "{status}");
    }
    let mut deleted = widget(&json!({"a": 0, "b": 0}));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(word(&check.health(&deleted)), "in progress");
}

#[test]
fn expressions_that_could_cost_too_much_are_refused() {
    let times = |count: usize, open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(count), close.repeat(count))
    };
    for (expression, words) in [
        (String::new(), "at most 512 bytes"),
        ("a".repeat(513), "at most 512 bytes"),
        ("!".repeat(200), "operators"),
        ("(".repeat(200), "operators"),
        ("(".repeat(9), "brackets at most 8 deep"),
        ("a ".to_owned() + &"in a ".repeat(60), "operators"),
        ("a".to_owned() + &".a".repeat(200), "operators"),
        ("a ".to_owned() + &"== a ".repeat(60), "operators"),
        ("status.".to_owned(), "not valid CEL"),
        ("a b".to_owned(), "not valid CEL"),
        ("'".to_owned(), "not valid CEL"),
        ("\u{0}".to_owned(), "not valid CEL"),
        ("has(a)".to_owned(), "not valid CEL"),
        ("a.matches('(a+)+$')".to_owned(), "matches is not permitted"),
        ("a + a == 'aa'".to_owned(), "+ is not permitted"),
        ("a.map(e, [e, e]) == []".to_owned(), "map is not permitted"),
        ("a.map(e, e.b, [e, e]) == []".to_owned(), "map is not permitted"),
        ("a.filter(e, e + e == 2).size() == 0".to_owned(), "+ is not permitted"),
        ("{'a': 1} == a".to_owned(), "maps and structs"),
        ("A{b: 1} == a".to_owned(), "maps and structs"),
        ("a.all(b, b.all(c, c.all(d, d)))".to_owned(), "at most 2 deep"),
        ("dyn(a) == 1".to_owned(), "dyn is not permitted"),
        ("string(a) == 'b'".to_owned(), "string is not permitted"),
    ] {
        let refused = check(&expression, "", "").unwrap_err();
        assert!(
            refused.starts_with("current: ") && refused.contains(words),
            "{expression}: {refused}"
        );
    }
    // What is just short enough harms nothing, whatever it means.
    for expression in [
        times(48, "!", "true", ""),
        times(8, "(", "true", ")"),
        times(8, "[", "1", "]"),
        times(48, "-", "1", ""),
        times(48, "true ? ", "true", " : a"),
        times(40, "a ? a : ", "true", ""),
        "a".to_owned() + &".a".repeat(48),
        "a".to_owned() + &"[0]".repeat(48),
        "a ".to_owned() + &"in a ".repeat(48),
        "a".to_owned() + &"&&a".repeat(160),
        times(8, "a.all(b, ", "true", ")"),
        times(8, "(a ? a : ", "true", ")"),
        times(8, "[!-a == ", "true", "]"),
    ] {
        if let Ok(check) = check(&expression, "", "") {
            check.health(&widget(&json!({})));
        }
    }
}

#[test]
fn a_hostile_object_costs_little() {
    let loops = check("status.a.all(x, status.a.all(y, x != y || x == y))", "", "").unwrap();
    let of = |count: usize| widget(&json!({"a": (0..count).collect::<Vec<_>>()}));
    assert_eq!(word(&loops.health(&of(100))), "current");
    let found = loops.health(&of(100_000));
    assert!(
        matches!(&found, Health::Failed(why) if why.contains("too large")),
        "{found:?}"
    );
}

#[test]
fn an_error_shows_no_value() {
    let found = check("status.password > 3", "", "")
        .unwrap()
        .health(&widget(&json!({"password": "hunter2"})));
    assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
}

#[test]
fn an_object_is_small_enough_for_the_loops() {
    let (one, nested) = (
        "status.all(a, a != '')",
        "status.all(a, status.all(b, status == status))",
    );
    let texts = |count: usize, length: usize| json!(vec!["x".repeat(length); count]);
    for (current, status, expected) in [
        (one, texts(1_900, 1), "current"),
        (one, texts(2_000, 1), "failed"),
        (one, texts(2, 256 * 1_000), "failed"),
        (nested, texts(100, 1), "current"),
        (nested, texts(200, 1), "failed"),
        (nested, texts(2, 256 * 100), "failed"),
    ] {
        let health = check(current, "", "").unwrap().health(&widget(&status));
        assert_eq!(word(&health), expected, "{current}: {health:?}");
    }
}
