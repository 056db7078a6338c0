//! The description as one HTML page: no script, nothing from other servers, and every text escaped.

use std::fmt::{Display, Formatter, Result as Written, Write as _};

use serde_json::{Map, Value};

/// The only style of the page; its hash is in the content security policy.
pub(super) const STYLE: &str = include_str!("page.css");

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
/// The keys of a schema that are shown with their values, separated by spaces.
const LIMITS: &str = "format enum minimum exclusiveMinimum maximum minLength maxLength minItems maxItems pattern";
/// The keys of a schema that are shown if they are true.
const FLAGS: [&str; 3] = ["readOnly", "writeOnly", "uniqueItems"];

/// Text, escaped for HTML content and attributes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        self.0.chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            other => f.write_char(other),
        })
    }
}

/// The page of `document`.
#[must_use]
pub fn page(document: &Value) -> String {
    let info = &document["info"];
    let (title, version) = (escaped(info, "title"), escaped(info, "version"));
    let lines = text(info, "description").lines().filter(|line| !line.is_empty());
    let paragraphs = joined(lines.map(|line| format!("<p>{}</p>", Escaped(line))));
    let tags = tags(document);
    let link = |tag: &&str| format!("<li><a href=\"#{}\">{}</a></li>", anchor(tag), Escaped(tag));
    let index = joined(tags.iter().map(link));
    let sections = joined(tags.iter().map(|tag| section(document, tag)));
    let schemas = object(document.pointer("/components/schemas"));
    let schemas = joined(schemas.map(|(name, schema)| {
        let (name, fields) = (Escaped(name), of_schema(schema));
        format!("<details id=\"schema-{name}\"><summary>{name}</summary>{fields}</details>")
    }));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}, version {version}</h1>{paragraphs}\
         <p>For programs: <a href=\"openapi.json\">openapi.json</a>.</p><nav><ul>{index}\
         <li><a href=\"#schemas\">Schemas</a></li></ul></nav>{sections}<h2 id=\"schemas\">Schemas</h2>{schemas}</body></html>\n"
    )
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn escaped<'a>(value: &'a Value, key: &str) -> Escaped<'a> {
    Escaped(text(value, key))
}

fn object(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect()
}

fn tags(document: &Value) -> Vec<&str> {
    let mut tags = Vec::new();
    for (_, path) in object(document.get("paths")) {
        for (_, operation) in object(Some(path)) {
            let tag = operation["tags"][0].as_str().unwrap_or_default();
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
    }
    tags
}

/// The operations with this tag.
fn section(document: &Value, tag: &str) -> String {
    let mut html = format!("<h2 id=\"{}\">{}</h2>", anchor(tag), Escaped(tag));
    for (path, methods) in object(document.get("paths")) {
        for method in METHODS {
            let operation = methods.get(method).filter(|operation| operation["tags"][0] == tag);
            html.extend(operation.map(|operation| of_operation(document, path, method, operation)));
        }
    }
    html
}

fn of_operation(document: &Value, path: &str, method: &str, operation: &Value) -> String {
    let (id, method, path) = (escaped(operation, "operationId"), method.to_uppercase(), Escaped(path));
    let (summary, description) = (escaped(operation, "summary"), escaped(operation, "description"));
    let parameters = items(operation.get("parameters"));
    let mut parameters = joined(parameters.map(|parameter| of_parameter(followed(document, parameter))));
    if !parameters.is_empty() {
        parameters = format!("<h4>Parameters</h4><table>{parameters}</table>");
    }
    let body = operation.get("requestBody");
    let body = body.map_or_else(String::new, |body| format!("<h4>Body</h4>{}", contents(body)));
    let responses = object(operation.get("responses"));
    let responses = joined(responses.map(|(status, response)| of_response(status, followed(document, response))));
    format!(
        "<details id=\"{id}\"><summary><code class=\"method\">{method}</code> <code>{path}</code> <span>{summary}</span></summary>\
         <p>{description}</p>{parameters}{body}<h4>Answers</h4><table>{responses}</table></details>"
    )
}

fn of_parameter(parameter: &Value) -> String {
    let (name, place, kind) = (
        escaped(parameter, "name"),
        escaped(parameter, "in"),
        kind(&parameter["schema"]),
    );
    let description = escaped(parameter, "description");
    format!("<tr><th><code>{name}</code></th><td>{place}</td><td>{kind}</td><td>{description}</td></tr>")
}

fn of_response(status: &str, response: &Value) -> String {
    let (status, description, contents) = (Escaped(status), escaped(response, "description"), contents(response));
    let headers: Vec<&str> = object(response.get("headers")).map(|(name, _)| name.as_str()).collect();
    let mut shown = String::new();
    if !headers.is_empty() {
        shown = format!(" Headers: <code>{}</code>.", Escaped(&headers.join(", ")));
    }
    format!("<tr><th>{status}</th><td>{description}{shown}{contents}</td></tr>")
}

/// The media types of a body, each with its schema and its example.
fn contents(holder: &Value) -> String {
    joined(object(holder.get("content")).map(|(media_type, content)| {
        let example = content.get("example").map(|example| format!("{example:#}"));
        let example = example.map_or_else(String::new, |example| format!("<pre>{}</pre>", Escaped(&example)));
        let (media_type, kind) = (Escaped(media_type), kind(&content["schema"]));
        format!("<p><code>{media_type}</code>: {kind}</p>{example}")
    }))
}

/// The fields of an object, or the description of another type.
fn of_schema(schema: &Value) -> String {
    let description = escaped(schema, "description");
    let mut html = String::new();
    if !description.0.is_empty() {
        html = format!("<p>{description}</p>");
    }
    html + &match schema.get("properties") {
        Some(Value::Object(properties)) => fields(properties, schema),
        _ => format!("<p>{}</p>", kind(schema)),
    }
}

/// The fields `properties` of the object with the schema `owner`.
fn fields(properties: &Map<String, Value>, owner: &Value) -> String {
    let row = |(name, property): (&String, &Value)| {
        let is_required = items(owner.get("required")).any(|required| required == name);
        let must = if is_required { "required" } else { "" };
        let below = property.get("items").unwrap_or(property);
        let inner = match below.get("properties") {
            Some(Value::Object(properties)) => fields(properties, below),
            _ => String::new(),
        };
        let (name, kind, description) = (Escaped(name), kind(property), escaped(property, "description"));
        format!("<tr><th><code>{name}</code></th><td>{must}</td><td>{kind}</td><td>{description}{inner}</td></tr>")
    };
    format!("<table>{}</table>", joined(properties.iter().map(row)))
}

/// A short description of a value: its type, its enum values, its limits, or the referenced object.
fn kind(schema: &Value) -> String {
    if let Some(name) = text(schema, "$ref").strip_prefix("#/components/schemas/") {
        return format!("<a href=\"#schema-{0}\">{0}</a>", Escaped(name));
    }
    let alternatives: Vec<String> = items(schema.get("oneOf")).map(kind).collect();
    let mut html = alternatives.join(" or ");
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        only => only.as_str().into_iter().collect(),
    };
    html += &Escaped(&types.join(" or ")).to_string();
    let inner = ["items", "additionalProperties"].map(|key| schema.get(key).filter(|of| of.is_object()));
    html.extend(inner.into_iter().flatten().map(|of| format!(" of {}", kind(of))));
    html.extend(LIMITS.split(' ').filter_map(|key| {
        let value = schema.get(key)?;
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some(format!("<br>{key} <code>{}</code>", Escaped(&shown)))
    }));
    let flags = FLAGS.into_iter().filter(|key| schema[key] == true);
    html.extend(flags.map(|key| format!("<br>{key}")));
    html
}

/// Resolves a reference.
fn followed<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let place = text(value, "$ref").strip_prefix('#');
    place.and_then(|place| document.pointer(place)).unwrap_or(value)
}

/// A tag as an anchor in the page.
fn anchor(tag: &str) -> String {
    tag.to_ascii_lowercase()
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}
