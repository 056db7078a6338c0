//! The schemas of the objects, for the description of the API (JSON Schema 2020-12).
//!
//! They are derived from the types, and equivalent to `parse`, except for rules that span fields or need a library.
//! `parse` is also more lenient in two ways: an optional text may be empty, and Unix seconds may be a number.
//!
//! In every schema that this module returns, flattened fields are part of their object, values are inlined, and
//! nullable fields have `null` among their types. Request bodies are closed: an unknown field is invalid. Responses are
//! open.

mod example;
mod foreign;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use utoipa::openapi::schema::{AdditionalProperties, AllOf, ArrayItems, OneOf, SchemaType};
use utoipa::openapi::{Array, Object, ObjectBuilder, Ref, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

pub use example::example;
pub(crate) use foreign::EndTime;
pub(super) use foreign::{
    ClusterLabelKey, DisplayNameOrEmpty, LabelKey, LabelValue, NodeName, NodePoolLabelKey, NodeProviderId, SlugOrEmpty,
    VersionOrEmpty, VersionTextOrEmpty,
};

use super::document::MAX_ITEMS;

const COMPONENTS: &str = "#/components/schemas/";

/// The schema of a type, with all schemas that it refers to.
pub struct Described {
    pub name: String,
    derived: BTreeMap<String, RefOr<Schema>>,
    closed: bool,
}

impl Described {
    #[must_use]
    pub fn of<T: ToSchema>() -> Self {
        let name = T::name().into_owned();
        let mut derived = vec![(name.clone(), T::schema())];
        T::schemas(&mut derived);
        Self {
            name,
            derived: derived.into_iter().collect(),
            closed: false,
        }
    }

    /// The schema of a response body: objects refer to each other by name.
    #[must_use]
    pub fn answer(mut self) -> BTreeMap<String, RefOr<Schema>> {
        self.closed = false;
        let mut schemas = BTreeMap::new();
        let mut names = vec![self.name.clone()];
        while let Some(name) = names.pop() {
            if let Entry::Vacant(place) = schemas.entry(name) {
                let schema = self.named(place.key());
                referred(&schema, &mut names);
                place.insert(schema);
            }
        }
        schemas
    }

    /// The schema of a request body: closed, and without references.
    #[must_use]
    pub fn request(mut self) -> RefOr<Schema> {
        self.closed = true;
        self.named(&self.name)
    }

    /// The schema of a body that replaces an object with the schema `answer`: fields that the server sets are
    /// permitted, so that a response can be edited and sent back.
    #[must_use]
    pub fn replacement(self, answer: Self) -> RefOr<Schema> {
        merged(self.request(), answer.request())
    }

    /// The schema of a JSON merge patch (RFC 7386): no field is required.
    #[must_use]
    pub fn patch(self, answer: Self) -> RefOr<Schema> {
        optional(self.replacement(answer))
    }

    fn named(&self, name: &str) -> RefOr<Schema> {
        let derived = self.derived.get(name);
        derived.map_or_else(|| Ref::from_schema_name(name).into(), |schema| self.plain(schema))
    }

    fn plain(&self, schema: &RefOr<Schema>) -> RefOr<Schema> {
        match schema {
            RefOr::Ref(reference) => self.followed(reference),
            RefOr::T(Schema::Object(object)) => self.object(object.clone()).into(),
            RefOr::T(Schema::Array(array)) => self.array(array.clone()).into(),
            RefOr::T(Schema::AllOf(all)) => self.flat(all).into(),
            RefOr::T(Schema::OneOf(one)) => self.nullable(one),
            RefOr::T(other) => other.clone().into(),
        }
    }

    /// Inlines values, and in closed schemas objects too.
    fn followed(&self, reference: &Ref) -> RefOr<Schema> {
        let name = reference.ref_location.trim_start_matches(COMPONENTS);
        let mut target = self.named(name);
        if !self.closed && !is_value(&target) {
            return reference.clone().into();
        }
        describe(&mut target, &reference.description);
        if reference.write_only == Some(true) {
            return write_only(target);
        }
        target
    }

    fn object(&self, mut object: Object) -> Object {
        for property in object.properties.values_mut() {
            *property = self.plain(property);
        }
        object.additional_properties = object.additional_properties.map(|additional| match *additional {
            AdditionalProperties::RefOr(schema) => Box::new(AdditionalProperties::RefOr(self.plain(&schema))),
            AdditionalProperties::FreeForm(free) => Box::new(AdditionalProperties::FreeForm(free)),
        });
        if self.closed && object.additional_properties.is_none() && !object.properties.is_empty() {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        }
        object
    }

    fn array(&self, mut array: Array) -> Array {
        if let ArrayItems::RefOrSchema(items) = &array.items {
            array.items = self.plain(items).into();
        }
        array.max_items = array.max_items.or(Some(MAX_ITEMS));
        array
    }

    /// Merges the fields of all parts into one object, the type's own fields before the flattened ones.
    fn flat(&self, all: &AllOf) -> Object {
        let mut flat = Object::new();
        flat.description.clone_from(&all.description);
        flat.examples.clone_from(&all.examples);
        for item in all.items.iter().rev() {
            let item = match item {
                RefOr::Ref(reference) => self.named(reference.ref_location.trim_start_matches(COMPONENTS)),
                item @ RefOr::T(_) => self.plain(item),
            };
            if let RefOr::T(Schema::Object(part)) = item {
                flat.properties.extend(part.properties);
                flat.required.extend(part.required);
                let open = part
                    .additional_properties
                    .filter(|part| **part != AdditionalProperties::FreeForm(false));
                flat.additional_properties = flat.additional_properties.or(open);
            }
        }
        self.object(flat)
    }

    /// A nullable schema, with `null` among its types if it has any.
    fn nullable(&self, one: &OneOf) -> RefOr<Schema> {
        let null = Object::with_type(Type::Null).into();
        let items = one.items.iter().filter(|item| **item != null);
        let mut items: Vec<_> = items.map(|item| self.plain(item)).collect();
        if items.len() == one.items.len() || !matches!(&items[..], [RefOr::T(Schema::Object(_) | Schema::Array(_))]) {
            let mut one = one.clone();
            one.items = one.items.iter().map(|item| self.plain(item)).collect();
            return Schema::OneOf(one).into();
        }
        let mut schema = items.swap_remove(0);
        describe(&mut schema, one.description.as_deref().unwrap_or_default());
        or_null(schema)
    }
}

/// Returns true if it is inlined: everything except objects with fields.
fn is_value(schema: &RefOr<Schema>) -> bool {
    match schema {
        RefOr::T(Schema::Object(object)) => object.properties.is_empty(),
        RefOr::T(Schema::Array(_)) => true,
        _ => false,
    }
}

/// The names of the objects that `schema` refers to.
fn referred(schema: &RefOr<Schema>, names: &mut Vec<String>) {
    match schema {
        RefOr::Ref(reference) => names.push(reference.ref_location.trim_start_matches(COMPONENTS).to_owned()),
        RefOr::T(Schema::Object(object)) => {
            let properties = object.properties.values();
            properties.for_each(|property| referred(property, names));
            if let Some(AdditionalProperties::RefOr(values)) = object.additional_properties.as_deref() {
                referred(values, names);
            }
        }
        RefOr::T(Schema::Array(array)) => {
            if let ArrayItems::RefOrSchema(items) = &array.items {
                referred(items, names);
            }
        }
        RefOr::T(Schema::OneOf(one)) => one.items.iter().for_each(|item| referred(item, names)),
        RefOr::T(_) => {}
    }
}

/// Puts the description of a field before that of its type.
fn describe(schema: &mut RefOr<Schema>, of_field: &str) {
    let description = match schema {
        RefOr::T(Schema::Object(object)) => &mut object.description,
        RefOr::T(Schema::Array(array)) => &mut array.description,
        _ => return,
    };
    if !of_field.is_empty() {
        let of_type = description.take().unwrap_or_default();
        *description = Some(format!("{of_field} {of_type}").trim_end().to_owned());
    }
}

fn or_null(mut schema: RefOr<Schema>) -> RefOr<Schema> {
    let schema_type = match &mut schema {
        RefOr::T(Schema::Object(object)) => {
            if let Some(words) = &mut object.enum_values {
                words.push(serde_json::Value::Null);
            }
            &mut object.schema_type
        }
        RefOr::T(Schema::Array(array)) => &mut array.schema_type,
        _ => return schema,
    };
    if let SchemaType::Type(only) = schema_type {
        *schema_type = [only.clone(), Type::Null].into_iter().collect();
    }
    schema
}

/// Adds to `spec` the fields that only `answer` has, as read-only.
fn merged(mut spec: RefOr<Schema>, answer: RefOr<Schema>) -> RefOr<Schema> {
    match (&mut spec, answer) {
        (RefOr::T(Schema::Object(spec)), RefOr::T(Schema::Object(answer))) => {
            for (key, property) in answer.properties {
                let property = match spec.properties.shift_remove(&key) {
                    Some(said) => merged(said, property),
                    None => read_only(property),
                };
                spec.properties.insert(key, property);
            }
        }
        (RefOr::T(Schema::Array(spec)), RefOr::T(Schema::Array(answer))) => {
            if let (ArrayItems::RefOrSchema(said), ArrayItems::RefOrSchema(items)) = (&mut spec.items, answer.items) {
                **said = merged((**said).clone(), *items);
            }
        }
        _ => {}
    }
    spec
}

fn read_only(mut schema: RefOr<Schema>) -> RefOr<Schema> {
    match &mut schema {
        RefOr::T(Schema::Object(object)) => object.read_only = Some(true),
        // The library's array has no field for this.
        RefOr::T(Schema::Array(array)) => array.extensions = Some([("readOnly", true)].into_iter().collect()),
        _ => {}
    }
    schema
}

fn optional(mut schema: RefOr<Schema>) -> RefOr<Schema> {
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.required.clear();
        for property in object.properties.values_mut() {
            *property = optional(property.clone());
        }
    }
    schema
}

/// An object without fields yet.
pub(super) fn object(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().description(Some(description).filter(|text| !text.is_empty()))
}

/// A text with this pattern, for example `example`.
pub(super) fn text(pattern: &str, example: &str) -> ObjectBuilder {
    let text = ObjectBuilder::new().schema_type(Type::String);
    text.pattern(Some(pattern)).examples([example])
}

/// The nullable schema of a value.
pub(super) fn nullable<T: PartialSchema>() -> RefOr<Schema> {
    or_null(T::schema())
}

/// A write-only schema, for values that no response contains.
pub(super) fn write_only(mut schema: RefOr<Schema>) -> RefOr<Schema> {
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.write_only = Some(true);
    }
    schema
}

/// The schema of a value, where references are not possible.
pub(super) fn value<T: PartialSchema>() -> Schema {
    match T::schema() {
        RefOr::T(schema) => schema,
        RefOr::Ref(_) => Object::new().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(ToSchema)]
    #[expect(dead_code, reason = "stands for its schema")]
    enum Word {
        Some,
    }

    #[derive(ToSchema)]
    #[expect(dead_code, reason = "stands for its schema")]
    struct Sentence {
        /// Of the field.
        word: Option<Word>,
    }

    #[test]
    fn a_word_that_may_be_null_has_null_among_its_words() {
        let schema = serde_json::to_value(Described::of::<Sentence>().request()).unwrap();
        let word =
            serde_json::json!({"type": ["string", "null"], "enum": ["Some", null], "description": "Of the field."});
        assert_eq!(schema["properties"]["word"], word);
    }
}
