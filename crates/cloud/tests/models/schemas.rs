//! The schemas say what `parse` says. Every document that another test here reads is held against the schema of its
//! kind too, so that each sample and each refusal is a test of both.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, OnceLock};

use jsonschema::Validator;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_cloud::models::schema::{Described, example};
use tidewaiter_cloud::models::{
    InvalidField, Kind, Login, Model, NodePool, NodePoolSpec, ProviderSpec, Registry, Role, RoleSpec, Unknown, Upgrade,
    User, parse,
};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::kinds::{self, ID, named};

/// The refusals that no schema expresses: rules that span fields or items, and those that a library checks.
const BEYOND: [&str; 25] = [
    "all who may read the organization see it here",
    "rules[1]: occurs twice",
    "ssh_keys[1]: occurs twice",
    "versions[1]: occurs twice",
    // As two spellings of one id.
    "user_ids[1]: occurs twice",
    "does not match the key",
    "whose user_id is that of another user",
    "must have username and password for the provider",
    "must have a username without",
    "the bounds of its autoscaling",
    "must not be less than min_nodes",
    "must be false in a pool of workers",
    "is not allowed in a pool without etcd",
    "must be at least the poll_interval",
    "must have scale_up, scale_down or both",
    "is 1001, must be more than 0 and at most 1000",
    "with the operator",
    "must not be before min",
    "use a separate rule",
    "must have at least one resource; otherwise use non_resource_urls",
    "must have at least one group",
    "Binding; omit it",
    "must be set in a",
    "the name of a time zone",
    // The metadata of a manifest is another's matter, apart from what YAML makes of it.
    "a text, or the API server refuses the object",
];

fn validator(schema: &RefOr<Schema>) -> Validator {
    let schema = serde_json::to_value(schema).unwrap();
    assert!(jsonschema::meta::is_valid(&schema), "{schema:#}");
    jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(&schema)
        .unwrap_or_else(|error| panic!("{error}: {schema:#}"))
}

fn validator_of<T: ToSchema>() -> &'static Validator {
    static KNOWN: OnceLock<Mutex<HashMap<String, &'static Validator>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap();
    let build = || &*Box::leak(Box::new(validator(&Described::of::<T>().request())));
    known.entry(T::name().into_owned()).or_insert_with(build)
}

/// `document` as the schemas want it where `parse` is more lenient: no empty texts for no value, every time and every
/// percentage in the form in which it is written.
fn strict(document: &Value) -> Value {
    match document {
        Value::Object(map) => {
            let map = map.iter().filter(|(_, value)| **value != "");
            let map = map.map(|(key, value)| match (key.as_str(), value) {
                ("addedAt", Value::Number(seconds)) => (key.clone(), seconds.to_string().into()),
                ("created_at" | "updated_at" | "added_at", Value::Number(_) | Value::String(_)) => {
                    (key.clone(), "0".into())
                }
                ("currentStartTime", Value::Number(_) | Value::String(_)) => {
                    (key.clone(), "Thu Jan  1 00:00:00 UTC 1970".into())
                }
                ("percent", Value::String(_)) => (key.clone(), 0.into()),
                _ => (key.clone(), strict(value)),
            });
            Value::Object(map.collect())
        }
        Value::Array(items) => items.iter().map(strict).collect(),
        other => other.clone(),
    }
}

/// That what `parse` took is valid.
pub fn assert_valid<T: Model + ToSchema>(bytes: &[u8]) {
    let document: Value = serde_json::from_slice(bytes).unwrap();
    let valid = |document: &Value| {
        validator_of::<T>()
            .validate(document)
            .map_err(|error| error.to_string())
    };
    let outcome = valid(&document).or_else(|_| valid(&strict(&document)));
    assert_eq!(outcome, Ok(()), "{}: {document}", T::KIND);
}

/// Returns true if the schema of `T` refuses it.
pub fn is_invalid<T: ToSchema>(document: &Value) -> bool {
    !validator_of::<T>().is_valid(document)
}

/// That what `parse` refused is invalid too, unless no schema can say why.
pub fn assert_refused(kind: &kinds::Kind, document: &Value, error: &InvalidField) {
    let text = error.to_string();
    let beyond = BEYOND.iter().any(|beyond| text.contains(beyond));
    assert!(
        beyond || (kind.is_invalid)(document),
        "the schema of {} takes {document}, but {error}",
        kind.name
    );
}

#[test]
fn the_examples_can_be_sent() {
    for kind in Kind::resources() {
        let code = kind.code().unwrap();
        let described = ((code.spec)().described)().request();
        let document = example(&described, &BTreeMap::new());
        assert!(validator(&described).is_valid(&document), "{document}");
        if let Err(error) = (code.read)(&document, Unknown::Refuse) {
            panic!("{kind:?}: {error} in {document}");
        }
    }
    let login = example(&Described::of::<Login>().request(), &BTreeMap::new());
    parse::<Login>(login.to_string().as_bytes(), Unknown::Refuse).unwrap();
}

/// The policy of an upgrade has the fields of the one in the cluster, with the same bounds.
#[test]
fn the_policy_of_an_upgrade_is_that_of_the_cluster() {
    let definition = serde_json::to_value(ClusterUpgrade::crd()).unwrap();
    let in_cluster = definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/policy")
        .unwrap();
    let here = serde_json::to_value(Described::of::<Upgrade>().request()).unwrap();
    compare("policy", in_cluster, &here["properties"]["policy"]);
}

/// That two schemas permit the same, as far as these words say it.
fn compare(path: &str, cluster: &Value, here: &Value) {
    for word in ["minimum", "maxItems", "maxLength", "pattern"] {
        assert_eq!(cluster[word].as_f64(), here[word].as_f64(), "{path}: {word} in {here}");
        assert_eq!(cluster[word].as_str(), here[word].as_str(), "{path}: {word} in {here}");
    }
    let words = |schema: &Value| {
        let words = schema["enum"].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words(cluster), words(here), "{path}");
    let fields = |schema: &Value| {
        let fields = schema["properties"].as_object();
        fields.map(|fields| fields.keys().cloned().collect::<BTreeSet<_>>())
    };
    assert_eq!(fields(cluster), fields(here), "{path}");
    for field in fields(cluster).into_iter().flatten() {
        compare(
            &format!("{path}.{field}"),
            &cluster["properties"][&field],
            &here["properties"][&field],
        );
    }
    if cluster.get("items").is_some() {
        compare(&format!("{path}[]"), &cluster["items"], &here["items"]);
    }
}

/// The whole of a small one, so that a change of what is derived is seen.
#[test]
fn a_schema_is_one_flat_object_with_its_types_in_place() {
    let schema = serde_json::to_value(Described::of::<NodePool>().request()).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["id"]["format"], "uuid");
    assert_eq!(schema["properties"]["os"]["type"], json!(["string", "null"]));
    assert_eq!(schema["properties"]["status"]["type"], json!(["object", "null"]));
    assert_eq!(schema["properties"]["count"]["maximum"], 5000);
    assert_eq!(
        schema["properties"]["kubernetes_mode"]["enum"],
        json!(["master", "worker"])
    );
    assert_eq!(schema["properties"]["autoscaling"]["additionalProperties"], false);
    let required = [
        "id",
        "name",
        "count",
        "kubernetes_mode",
        "kubernetes_version",
        "etcd",
        "is_schedulable",
    ];
    let mut found: Vec<&str> = schema["required"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(found.len(), required.len(), "{found:?}");
    found.retain(|name| !required.contains(name));
    assert!(found.is_empty(), "{found:?}");
    assert!(
        !schema.to_string().contains("allOf") && !schema.to_string().contains("$ref"),
        "{schema:#}"
    );
}

#[test]
fn what_is_read_more_leniently_than_it_is_described_is_valid_once_it_is_written() {
    for (name, place, value) in [
        ("upgrade", "/addedAt", json!(7)),
        ("upgrade", "/status/currentStartTime", json!(7)),
        ("node", "/status/percent", json!("7")),
        ("node", "/created_at", json!("2019-03-01T12:00:00Z")),
        ("role", "/rules/0/created_at", json!("")),
        ("user", "/ssh_keys/0/fingerprint", json!("")),
    ] {
        let kind = named(name);
        let mut document = kind.example.clone();
        *document.pointer_mut(place).unwrap() = value;
        assert!((kind.is_invalid)(&document), "{name}{place}");
        let written = (kind.accept)(document.to_string().as_bytes()).unwrap().written;
        assert!(!(kind.is_invalid)(&written), "{written}");
    }
}

#[test]
fn answers_are_open_and_refer_only_to_what_is_there() {
    for (answer, objects) in [
        (Described::of::<User>().answer(), vec!["SshKey", "User"]),
        (Described::of::<Role>().answer(), vec!["Role", "Rule"]),
    ] {
        assert_eq!(answer.keys().collect::<Vec<_>>(), objects);
        for (name, schema) in &answer {
            let schema = serde_json::to_value(schema).unwrap();
            assert_eq!(schema.get("additionalProperties"), None, "{name}");
        }
    }
    let user = serde_json::to_value(&Described::of::<User>().answer()["User"]).unwrap();
    assert_eq!(
        user["properties"]["ssh_keys"]["items"],
        json!({"$ref": "#/components/schemas/SshKey"})
    );
}

#[test]
fn an_answer_that_was_edited_can_be_sent_back() {
    let replacement = || Described::of::<NodePoolSpec>().replacement(Described::of::<NodePool>());
    let put = validator(&replacement());
    let pool = named("node pool").example;
    assert!(put.is_valid(&pool));
    assert!(put.is_valid(&named("node pool spec").example));
    assert!(!put.is_valid(&json!({"count": 3})));
    let patch = validator(&Described::of::<NodePoolSpec>().patch(Described::of::<NodePool>()));
    for (valid, body) in [
        (true, json!({"count": 3})),
        (true, json!({"os": null, "id": ID})),
        (true, json!({"autoscaling": {"enabled": false}})),
        (true, json!({})),
        (false, json!({"count": null})),
        (false, json!({"counts": 3})),
        (false, json!({"count": 5001})),
    ] {
        assert_eq!(patch.is_valid(&body), valid, "{body}");
    }
    let document = serde_json::to_value(replacement()).unwrap();
    assert_eq!(document["properties"]["id"]["readOnly"], true);
    assert_eq!(document["properties"]["count"].get("readOnly"), None);
}

#[test]
fn what_the_server_makes_of_an_item_may_be_sent_back_too() {
    let role = named("role").example;
    let put = validator(&Described::of::<RoleSpec>().replacement(Described::of::<Role>()));
    assert!(put.is_valid(&role));
    let mut unknown = role.clone();
    unknown["rules"][0]["ids"] = json!(ID);
    assert!(!put.is_valid(&unknown));
}

#[test]
fn secrets_are_marked_as_such() {
    let schema = |schema: RefOr<Schema>| serde_json::to_value(schema).unwrap();
    let provider = schema(Described::of::<ProviderSpec>().request());
    assert_eq!(provider["properties"]["credentials"]["writeOnly"], true);
    let login = schema(Described::of::<Login>().request());
    assert_eq!(login["properties"]["password"]["writeOnly"], true);
    assert_eq!(login["properties"]["password"]["format"], "password");
    // Clusters pull with what the registry's answer holds.
    let registry = schema(Described::of::<Registry>().request());
    assert_eq!(registry["properties"]["credentials"].get("writeOnly"), None);
    assert_eq!(
        registry["properties"]["credentials"]["additionalProperties"]["format"],
        "password"
    );
    let upgrade = schema(Described::of::<Upgrade>().request()).to_string();
    assert!(!upgrade.contains("password"));
}

#[test]
fn what_the_server_sets_is_nothing_that_a_client_says() {
    for kind in Kind::resources() {
        let code = kind.code().unwrap();
        let schema = serde_json::to_value(((code.spec)().described)().request()).unwrap();
        let said = schema["properties"]
            .as_object()
            .unwrap_or_else(|| panic!("{kind:?}: {schema:#}"));
        let generated = kind.facts().generated;
        assert!(generated.contains(&"id"), "{kind:?}: {generated:?}");
        for field in generated {
            assert!(!said.contains_key(*field), "{kind:?}: {field}");
        }
    }
}
