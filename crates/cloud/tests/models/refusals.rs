//! The values that are refused, of each field of each kind: by the path of the field, in one line, without the value of
//! a secret.

use serde_json::{Value, json};
use tidewaiter_cloud::models::{InvalidField, ProviderSpec, RegistrySpec, Unknown, parse};

use crate::kinds::{Kind, SECRET, Step, all, at, named, paths, shown};
use crate::schemas;

/// Returns true if the values there are another's matter, so that nearly everything may stand there.
fn is_open(kind: &str, path: &str) -> bool {
    let open = [
        "configuration.provider.",
        "configuration.resource.",
        "configuration.mtu",
        "metric_configuration.",
    ];
    open.iter().any(|open| path.starts_with(open))
        || path.contains("configuration_schema[0].")
        || path.contains("spec.template")
        || (kind == "failure" && path != "code")
}

/// Returns true if people write there in their own words.
fn is_prose(path: &str) -> bool {
    ["name", "description", "os", "message"]
        .iter()
        .any(|field| path == *field || path.ends_with(&format!(".{field}")))
        && !path.contains("metadata")
}

fn is_secret(path: &str) -> bool {
    path.starts_with("credentials.") || path == "password"
}

pub fn refuse(kind: &Kind, document: &Value) -> InvalidField {
    match (kind.accept)(document.to_string().as_bytes()) {
        Ok(_) => panic!("{} accepts {document}", kind.name),
        Err(error) => {
            schemas::assert_refused(kind, document, &error);
            error
        }
    }
}

pub fn assert_safe(error: &InvalidField) {
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(!text.contains(SECRET), "{text}");
    assert!(text.len() < 2_000, "{text}");
}

/// `value` in place of what stands at `path`.
fn replaced(kind: &Kind, path: &[Step], value: Value) -> Value {
    let mut document = kind.example.clone();
    *at(&mut document, path) = value;
    document
}

#[test]
fn every_field_refuses_what_no_field_of_its_type_may_hold() {
    let (mut tried, long) = (0, "a".repeat(20_000));
    for kind in all() {
        for path in paths(&kind.example) {
            let field = shown(&path);
            if is_open(kind.name, &field) {
                continue;
            }
            let before = at(&mut kind.example.clone(), &path).clone();
            let mut bad = match before {
                Value::String(_) | Value::Null => vec![json!([]), json!({}), json!(true), json!(long)],
                Value::Number(_) => vec![json!([]), json!("1"), json!(""), json!(true), json!(-7.5e300)],
                Value::Bool(_) => vec![json!("true"), json!(""), json!(1), json!([])],
                Value::Array(_) => vec![json!({}), json!("a"), json!(""), json!(1)],
                Value::Object(_) => vec![json!([]), json!("a"), json!(""), json!(1)],
            };
            if before.is_string() && !is_secret(&field) {
                bad.extend(["a\u{1}b", "a\nb", "\u{1b}[31m", "a\u{202e}b", " "].map(Value::from));
                if !is_prose(&field) {
                    bad.extend(["\u{430}", "\u{e4}", "\u{ff11}"].map(Value::from));
                }
            }
            // A threshold may be any number.
            bad.retain(|value| !(field.ends_with("threshold") && value.is_number()));
            // Agents send a percentage as a text.
            bad.retain(|value| !(field.ends_with("percent") && value == "1"));
            // No groups are an empty list too.
            bad.retain(|value| !(field == "rules[1].api_groups" && *value == json!([])));
            // Two spaces around nothing are a sentence, if a poor one.
            bad.retain(|value| !(value == " " && (field.ends_with("description") || field.ends_with("message"))));
            for value in bad {
                let error = refuse(&kind, &replaced(&kind, &path, value.clone()));
                assert_eq!(error.field, field, "{}: {value:.50}: {error}", kind.name);
                assert_safe(&error);
                tried += 1;
            }
        }
    }
    assert!(tried > 2_000, "{tried}");
}

#[test]
fn an_unknown_field_is_named_with_the_nearest_known_one() {
    for kind in all() {
        let first = kind.example.as_object().unwrap().keys().next().unwrap().clone();
        let mut document = kind.example.clone();
        document[format!("{first}x")] = json!(SECRET);
        let error = refuse(&kind, &document);
        assert_eq!(error.field, format!("{first}x"), "{}", kind.name);
        assert!(
            error.reason.contains(&format!("the nearest known field is {first}")),
            "{error}"
        );
        assert_safe(&error);
    }
}

#[test]
fn a_field_that_must_be_there_is_named_when_it_is_not() {
    let mut missing = Vec::new();
    for kind in all() {
        for field in kind.example.as_object().unwrap().keys() {
            let mut document = kind.example.clone();
            document.as_object_mut().unwrap().remove(field);
            if let Err(error) = (kind.accept)(document.to_string().as_bytes()) {
                schemas::assert_refused(&kind, &document, &error);
                assert_eq!(error.field, *field, "{}: {error}", kind.name);
                // Without credentials it is the provider that misses some.
                let start = if field == "credentials" {
                    "must have"
                } else {
                    "is missing: must"
                };
                assert!(error.reason.starts_with(start), "{}: {error}", kind.name);
                missing.push(format!("{}.{field}", kind.name));
            }
        }
    }
    for field in [
        "user.id",
        "user.name",
        "user.email",
        "user.added_at",
        "registry.provider",
        "registry.serveraddress",
        "registry.organization_id",
        "cluster.name",
        "plugin.version",
        "node pool.count",
        "role binding.user_id",
        "role spec.rules",
        "upgrade.targetVersion",
        "upgrade.nodeTimeoutSeconds",
        "login.password",
        "cluster label.key",
        "node pool label.key",
        "manifests.manifests",
    ] {
        assert!(missing.iter().any(|missing| missing == field), "{field} in {missing:?}");
    }
}

#[test]
fn a_key_that_is_given_twice_is_refused_in_every_kind() {
    for kind in all() {
        let text = kind.example.to_string();
        let (first, _) = text[1..].split_once(':').unwrap();
        let twice = format!("{{{first}:1,{}", &text[1..]);
        let error = (kind.accept)(twice.as_bytes()).err().unwrap();
        assert_eq!(error.field, first.trim_matches('"'), "{}", kind.name);
        assert!(error.reason.contains("twice"), "{error}");
    }
}

#[test]
fn what_only_goes_in_is_checked_and_never_comes_out() {
    let registry = json!({"provider": "quay", "serveraddress": "quay.io",
        "credentials": {"username": "ci", "password": SECRET}});
    let spec: RegistrySpec = parse(registry.to_string().as_bytes(), Unknown::Refuse).unwrap();
    assert_eq!(spec.credentials.get("password").unwrap().expose(), SECRET);
    assert!(!format!("{spec:?}{}", serde_json::to_string(&spec).unwrap()).contains(SECRET));

    let provider = json!({"provider": "digital_ocean", "credentials": {"token": SECRET}});
    let spec: ProviderSpec = parse(provider.to_string().as_bytes(), Unknown::Refuse).unwrap();
    assert_eq!(spec.credentials.revealed().into_keys().collect::<Vec<_>>(), ["token"]);
    assert!(!format!("{spec:?}{}", serde_json::to_string(&spec).unwrap()).contains(SECRET));
    for (field, value) in [
        ("credentials", json!({"token": 7})),
        ("provider", json!("a b")),
        ("description", json!("a\nb")),
    ] {
        let mut document = provider.clone();
        document[field] = value;
        let error = parse::<ProviderSpec>(document.to_string().as_bytes(), Unknown::Refuse).unwrap_err();
        assert!(error.field.starts_with(field), "{error}");
    }

    let mut whole = named("provider").example;
    whole["credentials"] = json!({"token": SECRET});
    assert_eq!(refuse(&named("provider"), &whole).field, "credentials");
}
