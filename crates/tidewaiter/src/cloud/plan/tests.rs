use super::*;
use serde_json::json;

#[test]
fn a_patch_says_what_differs_and_nothing_else() {
    for (before, after, wanted) in [
        (json!({"a": 1, "b": null}), json!({"a": 1}), None),
        (json!({"a": 1}), json!({"a": 1, "b": null}), None),
        (json!({"a": 1, "b": 2}), json!({"a": 3, "b": 2}), Some(json!({"a": 3}))),
        (json!({"a": 1}), json!({"a": null}), Some(json!({"a": null}))),
        (
            json!({"a": {"b": 1, "c": 2}}),
            json!({"a": {"b": 1}}),
            Some(json!({"a": {"c": null}})),
        ),
        (json!({"a": null}), json!({"a": {}}), Some(json!({"a": {}}))),
        (json!({"a": [1, 2]}), json!({"a": [2, 1]}), Some(json!({"a": [2, 1]}))),
        (json!({"a": {"b": 1}}), json!({"a": "x"}), Some(json!({"a": "x"}))),
    ] {
        let found = patch(&before, &after);
        assert_eq!(found, wanted, "{before} {after}");
        if let Some(patch) = found {
            let mut made = before.clone();
            json_patch::merge(&mut made, &patch);
            assert_eq!(super::patch(&made, &after), None, "{made} is {after}");
        }
    }
}

#[test]
fn what_the_server_adds_is_no_difference() {
    let spec = json!({"name": "a", "rules": [{"verbs": ["get"]}]});
    let object = json!({"id": "1", "created_at": "x", "name": "a", "rules": [{"id": "2", "verbs": ["get"]}]});
    assert_eq!(patch(&fields_of(&object, &spec), &spec), None);
}

fn step(change: Change) -> String {
    let kind = Kind::Registry;
    let (title, list) = ("quay.io".to_owned(), Path::new(["x"]));
    Step {
        kind,
        title,
        list,
        change,
    }
    .shown(&HashMap::new())
    .unwrap()
}

#[test]
fn no_secret_is_shown_and_another_one_is_said_to_be_another() {
    let body = json!({"serveraddress": "quay.io", "credentials": {"username": "hunter1", "password": "hunter2"}});
    let stand_in = String::new();
    let made = step(Change::Create {
        stand_in,
        body: body.clone(),
    });
    assert!(
        made.contains("quay.io") && made.contains("password: (not shown)") && !made.contains("hunter"),
        "{made}"
    );
    let after = json!({"serveraddress": "quay.io", "credentials": {"username": "hunter1", "password": "hunter3"}});
    let patch = patch(&body, &after).unwrap();
    let changed = step(Change::Update {
        id: "1".to_owned(),
        etag: None,
        before: touched(&body, &patch),
        patch,
    });
    assert!(changed.contains("password: (another one, not shown)"), "{changed}");
    assert!(
        changed.contains("    username: (not shown)") || changed.contains("username: (not shown)"),
        "{changed}"
    );
    assert!(!changed.contains("hunter"), "{changed}");
}

#[test]
fn a_field_that_goes_or_comes_is_one_line() {
    let change = |before: Value, patch: Value| {
        step(Change::Update {
            id: "1".to_owned(),
            etag: None,
            before,
            patch,
        })
    };
    for (before, patch, sign) in [
        (json!({"email": "a"}), json!({"email": null}), '-'),
        (json!({"email": null}), json!({"email": "a"}), '+'),
    ] {
        let shown = change(before, patch);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines.len() == 2 && lines[1].contains(&format!("{sign} email: a")),
            "{shown:?}"
        );
    }
}

#[test]
fn what_others_wrote_cannot_draw_on_the_terminal() {
    let body = json!({"description": "a\u{1b}[2Jb"});
    let made = step(Change::Create {
        stand_in: String::new(),
        body,
    });
    assert!(!made.contains("\u{1b}[2J"), "{made:?}");
}

#[test]
fn stand_ins_become_ids_wherever_they_stand() {
    let mut body = json!({"a": "p", "b": ["p", {"c": "p"}], "p": 1});
    substitute(&mut body, &HashMap::from([("p".to_owned(), "7".to_owned())]));
    assert_eq!(body, json!({"a": "7", "b": ["7", {"c": "7"}], "p": 1}));
    let mut team = json!({"user_ids": ["p"], "user_ends": {"p": "2027-01-31T18:00:00Z", "q": "2027-01-31T18:00:00Z"}});
    substitute(&mut team, &HashMap::from([("p".to_owned(), "7".to_owned())]));
    let mut users: Vec<&String> = team["user_ends"].as_object().unwrap().keys().collect();
    users.sort();
    assert_eq!(users, ["7", "q"]);
}

#[test]
fn a_document_without_an_end_takes_the_end_away() {
    let spec = json!({"name": "laptop"});
    let object = json!({"name": "laptop", "id": "7", "expires_at": "2027-01-31T18:00:00Z"});
    let patched = patch(&fields_of(&object, &spec), &spec);
    assert_eq!(patched, Some(json!({"expires_at": null})));
    let endless = json!({"name": "laptop", "id": "7"});
    assert_eq!(patch(&fields_of(&endless, &spec), &spec), None);
    let team = json!({"name": "laptop", "user_ends": {"u": "2027-01-31T18:00:00Z"}});
    assert_eq!(patch(&fields_of(&team, &spec), &spec), Some(json!({"user_ends": null})));
}
