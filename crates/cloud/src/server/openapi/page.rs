//! The description as one HTML page: no script, nothing from other servers, and every text escaped.

use std::fmt::{Display, Formatter, Result as Written, Write as _};

use serde_json::{Map, Value};

/// The only style of the page; its hash is in the content security policy.
pub(super) const STYLE: &str = include_str!("page.css");

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

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

/// The document, and the page under construction.
struct Page<'a> {
    document: &'a Value,
    html: String,
}

#[must_use]
pub fn page(document: &Value) -> String {
    let mut page = Page {
        document,
        html: String::new(),
    };
    // Writing to a string cannot fail.
    let _ = page.whole();
    page.html
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn object(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

impl<'a> Page<'a> {
    fn whole(&mut self) -> Written {
        let info = &self.document["info"];
        let title = Escaped(text(info, "title"));
        write!(
            self.html,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}, version {}</h1>",
            Escaped(text(info, "version"))
        )?;
        for paragraph in text(info, "description").lines().filter(|line| !line.is_empty()) {
            write!(self.html, "<p>{}</p>", Escaped(paragraph))?;
        }
        self.html
            .push_str("<p>For programs: <a href=\"openapi.json\">openapi.json</a>.</p><nav><ul>");
        let tags = self.tags();
        for tag in &tags {
            write!(self.html, "<li><a href=\"#{}\">{}</a></li>", anchor(tag), Escaped(tag))?;
        }
        self.html
            .push_str("<li><a href=\"#schemas\">Schemas</a></li></ul></nav>");
        for tag in &tags {
            write!(self.html, "<h2 id=\"{}\">{}</h2>", anchor(tag), Escaped(tag))?;
            self.operations(tag)?;
        }
        self.html.push_str("<h2 id=\"schemas\">Schemas</h2>");
        for (name, schema) in object(self.document.pointer("/components/schemas")) {
            write!(
                self.html,
                "<details id=\"schema-{0}\"><summary>{0}</summary>",
                Escaped(name)
            )?;
            self.schema(schema)?;
            self.html.push_str("</details>");
        }
        self.html.push_str("</body></html>\n");
        Ok(())
    }

    fn tags(&self) -> Vec<&'a str> {
        let mut tags = Vec::new();
        for (_, path) in object(self.document.get("paths")) {
            for (_, operation) in object(Some(path)) {
                let tag = operation["tags"][0].as_str().unwrap_or_default();
                if !tags.contains(&tag) {
                    tags.push(tag);
                }
            }
        }
        tags
    }

    fn operations(&mut self, tag: &str) -> Written {
        for (path, methods) in object(self.document.get("paths")) {
            for method in METHODS {
                match methods.get(method) {
                    Some(operation) if operation["tags"][0] == tag => self.operation(path, method, operation)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn operation(&mut self, path: &str, method: &str, operation: &'a Value) -> Written {
        write!(
            self.html,
            "<details id=\"{}\"><summary><code class=\"method\">{}</code> <code>{}</code> <span>{}</span></summary><p>{}</p>",
            Escaped(text(operation, "operationId")),
            Escaped(&method.to_uppercase()),
            Escaped(path),
            Escaped(text(operation, "summary")),
            Escaped(text(operation, "description"))
        )?;
        self.parameters(operation)?;
        if let Some(body) = operation.get("requestBody") {
            self.html.push_str("<h4>Body</h4>");
            self.contents(body)?;
        }
        self.html.push_str("<h4>Answers</h4><table>");
        for (status, response) in object(operation.get("responses")) {
            let response = self.followed(response);
            write!(
                self.html,
                "<tr><th>{}</th><td>{}",
                Escaped(status),
                Escaped(text(response, "description"))
            )?;
            let names: Vec<&str> = object(response.get("headers")).map(|(name, _)| name.as_str()).collect();
            if !names.is_empty() {
                write!(self.html, " Headers: <code>{}</code>.", Escaped(&names.join(", ")))?;
            }
            self.contents(response)?;
            self.html.push_str("</td></tr>");
        }
        self.html.push_str("</table></details>");
        Ok(())
    }

    fn parameters(&mut self, operation: &'a Value) -> Written {
        let parameters: Vec<&Value> = items(operation.get("parameters"))
            .map(|item| self.followed(item))
            .collect();
        if parameters.is_empty() {
            return Ok(());
        }
        self.html.push_str("<h4>Parameters</h4><table>");
        for parameter in parameters {
            write!(
                self.html,
                "<tr><th><code>{}</code></th><td>{}</td><td>",
                Escaped(text(parameter, "name")),
                Escaped(text(parameter, "in"))
            )?;
            self.kind(&parameter["schema"])?;
            write!(
                self.html,
                "</td><td>{}</td></tr>",
                Escaped(text(parameter, "description"))
            )?;
        }
        self.html.push_str("</table>");
        Ok(())
    }

    fn contents(&mut self, holder: &'a Value) -> Written {
        for (media_type, content) in object(holder.get("content")) {
            write!(self.html, "<p><code>{}</code>: ", Escaped(media_type))?;
            self.kind(&content["schema"])?;
            self.html.push_str("</p>");
            if let Some(example) = content.get("example") {
                write!(self.html, "<pre>{}</pre>", Escaped(&format!("{example:#}")))?;
            }
        }
        Ok(())
    }

    /// The fields of an object, or the description of another type.
    fn schema(&mut self, schema: &'a Value) -> Written {
        if !text(schema, "description").is_empty() {
            write!(self.html, "<p>{}</p>", Escaped(text(schema, "description")))?;
        }
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            self.html.push_str("<p>");
            self.kind(schema)?;
            self.html.push_str("</p>");
            return Ok(());
        };
        let required: Vec<&str> = items(schema.get("required")).filter_map(Value::as_str).collect();
        self.fields(properties, &required)
    }

    fn fields(&mut self, properties: &'a Map<String, Value>, required: &[&str]) -> Written {
        self.html.push_str("<table>");
        for (name, property) in properties {
            let must = if required.contains(&name.as_str()) {
                "required"
            } else {
                ""
            };
            write!(
                self.html,
                "<tr><th><code>{}</code></th><td>{must}</td><td>",
                Escaped(name)
            )?;
            self.kind(property)?;
            write!(self.html, "</td><td>{}", Escaped(text(property, "description")))?;
            let below = property.get("items").unwrap_or(property);
            if let Some(Value::Object(below_properties)) = below.get("properties") {
                let required: Vec<&str> = items(below.get("required")).filter_map(Value::as_str).collect();
                self.fields(below_properties, &required)?;
            }
            self.html.push_str("</td></tr>");
        }
        self.html.push_str("</table>");
        Ok(())
    }

    /// A short description of a value: its type, its enum values, its limits, or the referenced object.
    fn kind(&mut self, schema: &'a Value) -> Written {
        if let Some(name) = text(schema, "$ref").strip_prefix("#/components/schemas/") {
            return write!(self.html, "<a href=\"#schema-{0}\">{0}</a>", Escaped(name));
        }
        let alternatives: Vec<&Value> = items(schema.get("oneOf")).collect();
        for (place, alternative) in alternatives.iter().enumerate() {
            self.html.push_str(if place > 0 { " or " } else { "" });
            self.kind(alternative)?;
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
            only => only.as_str().unwrap_or_default().to_owned(),
        };
        write!(self.html, "{}", Escaped(&types))?;
        if let Some(of) = schema.get("items") {
            self.html.push_str(" of ");
            self.kind(of)?;
        }
        if let Some(of @ Value::Object(_)) = schema.get("additionalProperties") {
            self.html.push_str(" of ");
            self.kind(of)?;
        }
        for key in [
            "format",
            "enum",
            "minimum",
            "exclusiveMinimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "pattern",
        ] {
            if let Some(value) = schema.get(key) {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                write!(self.html, "<br>{key} <code>{}</code>", Escaped(&shown))?;
            }
        }
        for key in ["readOnly", "writeOnly", "uniqueItems"] {
            if schema[key] == true {
                write!(self.html, "<br>{key}")?;
            }
        }
        Ok(())
    }

    /// Resolves a reference.
    fn followed(&self, value: &'a Value) -> &'a Value {
        let place = value
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|place| place.strip_prefix('#'));
        place.and_then(|place| self.document.pointer(place)).unwrap_or(value)
    }
}

/// A tag as an anchor in the page.
fn anchor(tag: &str) -> String {
    tag.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect()
}
