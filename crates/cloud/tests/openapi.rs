//! The description of the API: whole, true to the table of endpoints, and safe to show.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tidewaiter_cloud::server::http::endpoint::{Input, Output, Permission};
use tidewaiter_cloud::server::openapi::{Served, document, markdown, page};
use tidewaiter_cloud::server::routes::ENDPOINTS;

fn described() -> Value {
    serde_json::to_value(document(&ENDPOINTS)).unwrap()
}

fn operations(document: &Value) -> Vec<(String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation.clone()))
    });
    operations.collect()
}

fn walk(value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                visit(key, value);
                walk(value, visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        _ => {}
    }
}

#[test]
fn every_endpoint_is_described_once_and_nothing_else_is() {
    let document = described();
    let found: BTreeSet<String> = operations(&document).into_iter().map(|(name, _)| name).collect();
    let wanted: BTreeSet<String> = ENDPOINTS.iter().map(|e| format!("{} {}", e.method, e.path)).collect();
    assert_eq!(wanted.len(), ENDPOINTS.len(), "an endpoint is in the table twice");
    assert_eq!(found, wanted);
    let ids: BTreeSet<String> = operations(&document)
        .iter()
        .map(|(_, o)| o["operationId"].to_string())
        .collect();
    assert_eq!(ids.len(), ENDPOINTS.len(), "{ids:?}");
    assert_eq!(document["openapi"], "3.1.0");
}

#[test]
fn every_reference_leads_somewhere_and_nothing_is_left_over() {
    let document = described();
    let (mut followed, mut lost) = (BTreeSet::new(), Vec::new());
    walk(&document, &mut |key, value| {
        if key == "$ref" {
            let place = value.as_str().unwrap().strip_prefix('#').unwrap();
            followed.insert(place.to_owned());
            lost.extend(document.pointer(place).is_none().then(|| place.to_owned()));
        }
    });
    assert!(lost.is_empty(), "{lost:?}");
    for (part, names) in document["components"].as_object().unwrap() {
        for name in names.as_object().unwrap().keys().filter(|_| part != "securitySchemes") {
            assert!(
                followed.contains(&format!("/components/{part}/{name}")),
                "nothing refers to {name}"
            );
        }
    }
}

#[test]
fn every_body_has_a_schema_and_its_example_is_valid() {
    let document = described();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        assert!(jsonschema::meta::is_valid(schema), "{name}");
        // What the table calls by a name that nobody describes would be an object without anything.
        assert_ne!(*schema, json!({"type": "object"}), "{name}");
    }
    let mut bodies = 0;
    for (name, operation) in operations(&document) {
        for (media_type, content) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
            let place = content["schema"]["$ref"].as_str().unwrap().trim_start_matches('#');
            let schema = document.pointer(place).unwrap();
            let validator = jsonschema::draft202012::options()
                .should_validate_formats(true)
                .build(schema)
                .unwrap();
            if content.get("example").is_none() {
                assert_eq!(media_type, "application/merge-patch+json", "{name}");
                continue;
            }
            let errors: Vec<String> = validator
                .iter_errors(&content["example"])
                .map(|e| e.to_string())
                .collect();
            assert!(
                errors.is_empty(),
                "{name} {media_type}: {errors:?} in {}",
                content["example"]
            );
            bodies += 1;
        }
    }
    let takes = ENDPOINTS
        .iter()
        .filter(|endpoint| endpoint.takes != Input::Nothing)
        .count();
    assert!(bodies == takes && takes > 40, "{bodies} {takes}");
}

#[test]
fn each_operation_says_what_it_takes_and_what_may_be_answered() {
    let document = described();
    let operation = |name: &str| {
        operations(&document)
            .into_iter()
            .find(|(found, _)| found == name)
            .unwrap()
            .1
    };
    let names = |operation: &Value, key: &str| -> Vec<String> {
        let parameters = operation[key].as_array().into_iter().flatten();
        let names = parameters.map(|p| {
            p["name"]
                .as_str()
                .or(p["$ref"].as_str())
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned()
        });
        names.collect()
    };
    let statuses =
        |operation: &Value| -> Vec<String> { operation["responses"].as_object().unwrap().keys().cloned().collect() };

    let list = operation("GET /v3/organizations/{organization_id}/roles");
    assert_eq!(
        names(&list, "parameters"),
        [
            "organization_id",
            "side_load",
            "remove_empty",
            "rule_type",
            "limit",
            "after",
            "If-None-Match"
        ]
    );
    assert_eq!(
        statuses(&list),
        ["200", "304", "400", "401", "403", "404", "429", "500", "503"]
    );
    assert_eq!(
        list["responses"]["200"]["headers"]["Link"]["$ref"],
        "#/components/headers/Link"
    );
    assert_eq!(list["parameters"][0]["schema"]["format"], "uuid");

    let create = operation("POST /v3/organizations/{organization_id}/clusters");
    assert_eq!(names(&create, "parameters"), ["organization_id", "Idempotency-Key"]);
    assert_eq!(
        statuses(&create),
        [
            "201", "400", "401", "403", "404", "408", "409", "413", "415", "422", "429", "500", "501", "503"
        ]
    );
    for header in ["Location", "ETag", "x-request-id"] {
        assert!(create["responses"]["201"]["headers"][header].is_object(), "{header}");
    }

    let delete = operation("DELETE /v3/organizations/{organization_id}/teams/{id}");
    assert_eq!(names(&delete, "parameters"), ["organization_id", "id", "If-Match"]);
    assert_eq!(
        statuses(&delete),
        ["204", "400", "401", "403", "404", "409", "412", "429", "500", "503"]
    );
    assert_eq!(delete["responses"]["204"].get("content"), None);

    let patch = operation("PATCH /v3/organizations/{organization_id}/teams/{id}");
    assert!(patch["requestBody"]["content"]["application/merge-patch+json"].is_object());
    let events = operation("GET /v3/organizations/{organization_id}/clusters/{cluster_id}/events");
    assert!(events["responses"]["200"]["content"]["text/event-stream"].is_object());
    let responses = &document["components"]["responses"];
    assert!(responses["TooManyRequests"]["headers"]["Retry-After"].is_object());
    assert!(responses["Unauthorized"]["headers"]["WWW-Authenticate"].is_object());
    assert_eq!(
        responses["Conflict"]["content"]["application/json"]["schema"]["$ref"],
        "#/components/schemas/Failure"
    );
}

#[test]
fn only_what_everybody_may_needs_no_token() {
    let document = described();
    for endpoint in ENDPOINTS.iter() {
        let security = &document["paths"][&endpoint.path][endpoint.method.as_str().to_lowercase()]["security"];
        let wanted = if endpoint.may == Permission::Anyone {
            json!([{}])
        } else {
            json!([{"bearer": []}, {"jwt": []}])
        };
        assert_eq!(*security, wanted, "{} {}", endpoint.method, endpoint.path);
    }
}

#[test]
fn people_write_closed_objects_and_are_answered_open_ones() {
    let document = described();
    let schemas = &document["components"]["schemas"];
    for endpoint in ENDPOINTS.iter() {
        if let Output::One(body) | Output::Made(body) | Output::List(body) = endpoint.answers {
            assert_ne!(schemas[body.name]["additionalProperties"], false, "{body:?}");
        }
    }
    for name in ["TeamSpec", "TeamReplacement", "TeamPatch", "NodeSpec", "RoleChange"] {
        assert_eq!(schemas[name]["additionalProperties"], false, "{name}");
    }
    assert_eq!(schemas["TeamPatch"].get("required"), None);
    assert_eq!(schemas["TeamReplacement"]["required"], json!(["name"]));
    assert_eq!(schemas["TeamReplacement"]["properties"]["id"]["readOnly"], true);
    assert_eq!(
        schemas["PasswordChange"]["properties"]["new_password"]["writeOnly"],
        true
    );
}

/// Every text of the document replaced by one that would be a tag, or end an attribute.
fn hostile(value: &Value) -> Value {
    const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&";
    match value {
        Value::Object(map) => {
            let kept = ["$ref", "tags"];
            let entries = map.iter().map(|(key, value)| match value {
                Value::String(_) if kept.contains(&key.as_str()) => (key.clone(), value.clone()),
                Value::Object(_)
                    if ["properties", "paths", "responses", "headers", "content", "schemas"]
                        .contains(&key.as_str()) =>
                {
                    let map = value.as_object().unwrap();
                    let map = map
                        .iter()
                        .map(|(key, value)| (format!("{key}{HOSTILE}"), hostile(value)));
                    (key.clone(), Value::Object(map.collect()))
                }
                other => (key.clone(), hostile(other)),
            });
            Value::Object(entries.collect())
        }
        Value::Array(items) => items.iter().map(hostile).collect(),
        Value::String(text) => Value::String(format!("{text}{HOSTILE}")),
        other => other.clone(),
    }
}

#[test]
fn the_page_shows_everything_and_loads_nothing() {
    let document = described();
    let html = page(&document);
    for (_, operation) in operations(&document) {
        assert!(html.contains(operation["operationId"].as_str().unwrap()), "{operation}");
    }
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        assert!(html.contains(&format!("<details id=\"schema-{name}\">")), "{name}");
    }
    for html in [html, page(&hostile(&document))] {
        let mut tags = BTreeSet::new();
        for tag in html.split('<').skip(1) {
            let tag = tag.split_once('>').unwrap().0;
            // Names of elements and attributes: every second part stands in quotes.
            tags.insert(tag.split('"').step_by(2).collect::<String>());
            if let Some((_, target)) = tag.split_once("href=\"") {
                assert!(target.starts_with('#') || target == "openapi.json\"", "{tag}");
            }
        }
        let allowed = [
            "!doctype html",
            "a href=",
            "body",
            "br",
            "code",
            "code class=",
            "details id=",
            "h1",
            "h2 id=",
            "h4",
            "head",
            "html lang=",
            "li",
            "meta charset=",
            "meta name= content=",
            "nav",
            "p",
            "pre",
            "span",
            "style",
            "summary",
            "table",
            "td",
            "th",
            "title",
            "tr",
            "ul",
        ];
        tags.retain(|tag| !tag.starts_with('/') && !allowed.contains(&tag.as_str()));
        assert!(tags.is_empty(), "{tags:?}");
        for element in ["details", "table", "tr", "td", "th", "p", "code", "pre"] {
            let opened = html.matches(&format!("<{element}>")).count() + html.matches(&format!("<{element} ")).count();
            assert_eq!(opened, html.matches(&format!("</{element}>")).count(), "{element}");
        }
    }
}

#[tokio::test]
async fn the_documents_are_served_as_they_are_and_only_once() {
    let document = document(&ENDPOINTS);
    let json = Served::json(&document);
    let answer = json.answer(&HeaderMap::new());
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let etag = answer.headers()["etag"].clone();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), described());

    for (sent, status) in [
        (etag.to_str().unwrap().to_owned(), StatusCode::NOT_MODIFIED),
        (format!("\"a\", W/{}", etag.to_str().unwrap()), StatusCode::NOT_MODIFIED),
        ("*".to_owned(), StatusCode::NOT_MODIFIED),
        ("\"a\"".to_owned(), StatusCode::OK),
    ] {
        let headers = HeaderMap::from_iter([(http::header::IF_NONE_MATCH, HeaderValue::from_str(&sent).unwrap())]);
        let answer = json.answer(&headers);
        assert_eq!(answer.status(), status, "{sent}");
        assert_eq!(answer.headers()["etag"], etag);
        let empty = body_of(answer.into_body()).await.is_empty();
        assert_eq!(empty, status == StatusCode::NOT_MODIFIED);
    }
}

async fn body_of(body: Body) -> String {
    String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn the_browser_is_told_to_allow_the_pages_style_and_nothing_else() {
    let answer = Served::page(&document(&ENDPOINTS)).answer(&HeaderMap::new());
    assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
    let html = body_of(answer.into_body()).await;
    let (_, style) = html.split_once("<style>").unwrap();
    let (style, rest) = style.split_once("</style>").unwrap();
    let hash = STANDARD.encode(digest(&SHA256, style.as_bytes()));
    assert!(
        policy.starts_with("default-src 'none'; ") && policy.contains(&format!("style-src 'sha256-{hash}'")),
        "{policy}"
    );
    assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{policy}");
    assert!(!rest.contains("<style") && !rest.contains("style="));
}

#[test]
fn the_list_for_the_documentation_has_every_endpoint_with_who_may() {
    let list = markdown(&ENDPOINTS);
    for endpoint in ENDPOINTS.iter() {
        let row = format!("`{} {}`", endpoint.method, endpoint.path);
        let row = list
            .lines()
            .find(|line| line.contains(&row))
            .unwrap_or_else(|| panic!("{row}"));
        assert_eq!(row.matches(" | ").count(), 3, "{row}");
    }
    assert!(list.contains("an operator of this server"));
}
