//! Values drawn from the chart's own schema: what the schema accepts is rendered, and the API server accepts the
//! objects.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use proptest::string::string_regex;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Map, Value, json};
use tidewaiter_testkit::ControlPlane;

use crate::accepted::{dry_run, prepare};
use crate::{chart, template};

const CASES: u32 = 16;

/// Settings that the chart sets itself, and refuses with a remedy.
const OF_THE_CHART: &str = "#/$defs/ofTheChart";

fn schema() -> Value {
    let text = std::fs::read_to_string(chart().join("values.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let Some(reference) = schema["$ref"].as_str() else {
        return schema;
    };
    root.pointer(reference.strip_prefix('#').unwrap()).unwrap()
}

/// Values that this part of the schema accepts: of the keywords, those that the schema uses.
fn values(root: &Value, schema: &Value) -> BoxedStrategy<Value> {
    let schema = resolved(root, schema);
    if let Some(only) = schema.get("const") {
        return Just(only.clone()).boxed();
    }
    if let Some(options) = schema["enum"].as_array() {
        return select(options.clone()).boxed();
    }
    // The checks of templates/checks.yaml.
    if let Some(examples) = schema["examples"].as_array() {
        return select(examples.clone()).boxed();
    }
    if let (Some(then), Some(other)) = (schema.get("then"), schema.get("else")) {
        return Union::new([values(root, then), values(root, other)]).boxed();
    }
    if let Some(options) = schema["anyOf"].as_array() {
        return Union::new(options.iter().map(|option| values(root, option))).boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => {
            let [least, most] = ["minimum", "maximum"].map(|bound| schema[bound].as_i64().unwrap());
            (least..=most).prop_map(Value::from).boxed()
        }
        Some("string") => {
            // Any printable text, if there is no pattern.
            let pattern = schema["pattern"].as_str().unwrap_or("^[ -~\n]{0,20}$");
            texts(pattern).prop_map(Value::from).boxed()
        }
        Some("array") => {
            let unique = schema["uniqueItems"] == true;
            let items = prop::collection::vec(values(root, &schema["items"]), 0..3);
            let items = items.prop_map(move |mut items| {
                if unique {
                    items.dedup();
                }
                Value::Array(items)
            });
            items.boxed()
        }
        Some("object") => fields(root, schema),
        other => panic!("the schema uses the type {other:?}, which this test does not know"),
    }
}

/// Texts of this pattern.
fn texts(pattern: &str) -> BoxedStrategy<String> {
    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
    string_regex(inner).unwrap().boxed()
}

fn fields(root: &Value, schema: &Value) -> BoxedStrategy<Value> {
    let mut object = Just(Map::new()).boxed();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if field["$ref"] == OF_THE_CHART {
            continue;
        }
        let required = schema["required"]
            .as_array()
            .is_some_and(|names| names.contains(&json!(name)));
        let value = values(root, field);
        let value = if required {
            value.prop_map(Some).boxed()
        } else {
            prop::option::weighted(0.6, value).boxed()
        };
        let name = name.clone();
        let with = (object, value).prop_map(move |(mut object, value)| {
            object.extend(value.map(|value| (name.clone(), value)));
            object
        });
        object = with.boxed();
    }
    for (pattern, field) in schema["patternProperties"].as_object().into_iter().flatten() {
        let more = prop::collection::vec((texts(pattern), values(root, field)), 0..3);
        object = more.prop_map(Map::from_iter).boxed();
    }
    object.prop_map(Value::Object).boxed()
}

/// Adds the values that no schema can require: a role is enabled, the image and the cloud are named, upgrade scripts
/// belong to root, and a limit is not below its request.
fn completed(mut values: Value) -> Value {
    let image = values["image"]["repository"].as_str().unwrap_or_default();
    if image.is_empty() {
        values["image"]["repository"] = "registry.example.com/tidewaiter".into();
    }
    let roles = ["controller", "coordinator", "agent", "cloud"];
    if roles.iter().all(|role| values[role]["enabled"] != true) {
        values["controller"]["enabled"] = true.into();
    }
    let settings = &mut values["coordinator"]["settings"]["cloud"];
    settings["apiBaseUrl"] = "https://cloud.example.com".into();
    settings["organizationId"] = "11111111-1111-4111-8111-111111111111".into();
    settings["clusterId"] = "22222222-2222-4222-8222-222222222222".into();
    let settings = &mut values["cloud"]["settings"];
    settings["publicUrl"] = "https://cloud.example.com".into();
    settings["database"] = "postgres://tidewaiter@postgres.example.com/tidewaiter".into();
    if settings["address"].is_null() {
        settings["address"] = "0.0.0.0:3990".into();
    }
    if values["agent"]["settings"].get("upgrades") == Some(&json!("enabled")) {
        values["agent"]["settings"]["ownerUid"] = 0.into();
    }
    for (folder, own) in [
        ("pinnedFolder", "/srv/tidewaiter-pinned"),
        ("stateFolder", "/srv/tidewaiter-state"),
    ] {
        if values["agent"]["settings"].get(folder).is_some() {
            values["agent"]["settings"][folder] = own.into();
        }
    }
    for role in roles {
        let Some(resources) = values[role]["resources"].as_object_mut() else {
            continue;
        };
        let mut amounts = Map::new();
        for (_, quantities) in std::mem::take(resources) {
            amounts.extend(quantities.as_object().unwrap().clone());
        }
        *resources = ["requests", "limits"]
            .map(|part| (part.to_owned(), json!(amounts)))
            .into_iter()
            .collect();
    }
    values
}

#[tokio::test]
async fn what_the_schema_accepts_is_rendered_and_accepted_by_the_api_server() {
    let cluster = ControlPlane::start().await;
    prepare(&cluster);
    let schema = schema();
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 100,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&values(&schema, &schema).prop_map(completed), |values| {
        let rendered = template(&values, &["--skip-tests"]);
        prop_assert!(rendered.success, "{}", rendered.err);
        let accepted = dry_run(&cluster, &rendered.out);
        prop_assert!(accepted.success, "{}\n{}", accepted.err, rendered.out);
        Ok::<(), TestCaseError>(())
    });
    outcome.unwrap();
}

/// The objects that permit keys that the schema does not know: rows by plugin or kind, and what Helm sets.
const OPEN: [&str; 4] = [
    "/cloud/settings/quotas",
    "/coordinator/settings/pluginApproval",
    "/coordinator/settings/pluginServiceAccounts",
    "/global",
];

/// The path of each object without keys of a pattern, and whether it permits other keys.
fn paths(root: &Value, schema: &Value, path: &str, found: &mut Vec<(String, bool)>) {
    let schema = resolved(root, schema);
    if schema["type"] == "object" && schema["patternProperties"].is_null() {
        found.push((path.to_owned(), schema["additionalProperties"] != false));
    }
    for option in schema["anyOf"].as_array().into_iter().flatten() {
        let option = resolved(root, option);
        if option["type"] == "object" && option["additionalProperties"].is_null() {
            found.push((path.to_owned(), true));
        }
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        paths(root, field, &format!("{path}/{name}"), found);
    }
}

#[test]
fn an_unknown_key_is_refused_wherever_it_is() {
    let schema = schema();
    let mut found = Vec::new();
    paths(&schema, &schema, "", &mut found);
    found.sort();
    let (open, closed): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, open)| *open);
    let open: Vec<String> = open.into_iter().map(|(path, _)| path).collect();
    assert_eq!(open, OPEN);
    let closed: Vec<String> = closed.into_iter().map(|(path, _)| path).collect();
    let mut values = json!({});
    for path in &closed {
        let names = path.split('/').skip(1);
        let object = names.fold(&mut values, |value, name| &mut value[name]);
        object["unknownKey"] = 1.into();
    }
    let refusal = template(&values, &[]).refusal();
    for path in &closed {
        let wanted = format!("- at '{path}': additional properties 'unknownKey' not allowed");
        assert!(refusal.contains(&wanted), "no {wanted} in {refusal}");
    }
}
