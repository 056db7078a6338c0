//! The fields of the custom resources, from their definitions.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::markdown::{cell, code, codes, head, section, table};

const INTRODUCTION: &str = "All fields of the custom resources. `tidewaiter crds` prints the definitions, and \
    `kubectl explain` shows the same for one of them. `[]` stands for each element of a list, and `NAME` for each key \
    of a map.";

/// Returns the page.
pub fn page() -> Result<String> {
    let mut page = head("Custom resources", INTRODUCTION);
    for crd in tidewaiter_api::crds() {
        let spec = serde_json::to_value(&crd.spec).context("a definition as JSON")?;
        resource(&mut page, &spec);
    }
    Ok(page)
}

fn resource(page: &mut String, spec: &Value) {
    let names = &spec["names"];
    section(page, text(&names["kind"]));
    for version in spec["versions"].as_array().into_iter().flatten() {
        let schema = &version["schema"]["openAPIV3Schema"];
        let short = names["shortNames"].as_array().into_iter().flatten().map(text);
        let all_names = codes([text(&names["plural"])].into_iter().chain(short));
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "\n{}\n\n`{}/{}`, {all_names}, scope {}.\n",
            cell(text(&schema["description"])),
            text(&spec["group"]),
            text(&version["name"]),
            text(&spec["scope"]),
        );
        let mut rows = Vec::new();
        fields(schema, "", &mut rows);
        table(page, ["field", "type", "meaning"], rows);
    }
}

/// Adds a row for each field of an object at `path`.
fn fields(schema: &Value, path: &str, rows: &mut Vec<[String; 3]>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        let mut required = schema["required"].as_array().into_iter().flatten();
        let required = if required.any(|required| required == name) {
            ", required"
        } else {
            ""
        };
        rows.push([
            code(&path),
            format!("{}{required}", kind(field)),
            cell(text(&field["description"])),
        ]);
        below(field, &path, rows);
    }
}

/// Adds the fields of what the field contains.
fn below(field: &Value, path: &str, rows: &mut Vec<[String; 3]>) {
    fields(field, path, rows);
    for (inner, suffix) in [(&field["items"], "[]"), (&field["additionalProperties"], ".NAME")] {
        if inner.is_object() {
            below(inner, &format!("{path}{suffix}"), rows);
        }
    }
}

/// Returns the type of a field, with the permitted values if they are listed.
fn kind(field: &Value) -> String {
    if let Some(values) = field["enum"].as_array() {
        return codes(values.iter().filter_map(Value::as_str));
    }
    if field["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    match (text(&field["type"]), &field["items"], &field["additionalProperties"]) {
        ("array", items, _) if items.is_object() => format!("list of {}", kind(items)),
        ("object", _, values) if values.is_object() => format!("map of {}", kind(values)),
        (other, ..) => other.to_owned(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_has_a_row() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {"b": {"enum": ["x", "y"], "type": "string"}}}},
            "c": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "Counts."},
        }});
        let mut rows = Vec::new();
        fields(&schema, "spec", &mut rows);
        let expected = [
            ["`spec.a`", "list of object, required", ""],
            ["`spec.a[].b`", "`x`, `y`", ""],
            ["`spec.c`", "map of integer", "Counts."],
        ];
        assert_eq!(rows, expected);
    }
}
