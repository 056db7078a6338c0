//! Examples, composed of those of the single values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use utoipa::openapi::schema::{ArrayItems, SchemaType};
use utoipa::openapi::{KnownFormat, Object, RefOr, Schema, SchemaFormat, Type};

/// A value that is valid according to `schema`; references are resolved in `components`.
#[must_use]
pub fn example(schema: &RefOr<Schema>, components: &BTreeMap<String, RefOr<Schema>>) -> Value {
    match schema {
        RefOr::Ref(reference) => {
            let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
            let schema = components.get(name);
            schema.map_or(Value::Null, |schema| example(schema, components))
        }
        RefOr::T(Schema::Object(object)) => of_object(object, components),
        RefOr::T(Schema::Array(array)) => match &array.items {
            ArrayItems::RefOrSchema(items) => vec![example(items, components)].into(),
            ArrayItems::False => Value::Array(Vec::new()),
        },
        RefOr::T(Schema::OneOf(one)) => {
            let mut examples = one.items.iter().map(|item| example(item, components));
            examples.find(|example| !example.is_null()).unwrap_or_default()
        }
        RefOr::T(_) => Value::Null,
    }
}

fn of_object(object: &Object, components: &BTreeMap<String, RefOr<Schema>>) -> Value {
    let words = object.enum_values.iter().flatten();
    if let Some(given) = object.examples.iter().chain(words).next() {
        return given.clone();
    }
    let only = match &object.schema_type {
        SchemaType::Type(only) => Some(only),
        SchemaType::Array(types) => types.first(),
        SchemaType::AnyValue => None,
    };
    match only {
        Some(Type::Object) => {
            let written = object.properties.iter().filter(|(_, schema)| !is_read_only(schema));
            let fields = written.map(|(key, schema)| (key.clone(), example(schema, components)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Some(Type::String) => match object.format {
            Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)) => "2019-03-01T12:00:00Z".into(),
            _ => "text".into(),
        },
        Some(Type::Boolean) => true.into(),
        Some(Type::Integer | Type::Number) => 1.into(),
        Some(Type::Array | Type::Null) | None => Value::Null,
    }
}

fn is_read_only(schema: &RefOr<Schema>) -> bool {
    match schema {
        RefOr::T(Schema::Object(object)) => object.read_only == Some(true),
        RefOr::T(Schema::Array(array)) => {
            let more = array.extensions.as_ref();
            more.is_some_and(|more| more.contains_key("readOnly"))
        }
        _ => false,
    }
}
