//! Additions to the derived schemas of the definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::Schema;
use serde::{Deserialize, Deserializer};

/// Replaces the format `uint32`, which the API server does not know, by the same bounds on an `int64`.
pub(crate) fn kubernetes_integer(schema: &mut Schema) {
    if schema.get("format").is_some_and(|format| format == "uint32") {
        schema.insert("format".to_owned(), "int64".into());
        schema.insert("maximum".to_owned(), u32::MAX.into());
    }
}

/// The definition without the status subresource that the derive adds for every type with a status: for kinds of which
/// one write updates everything.
pub(crate) fn without_status_subresource(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

/// The definition of a kind that the Go coordinator defined before, so that it can replace the old definition in a
/// cluster with objects.
///
/// - It sets `preserveUnknownFields: false`, because `kubectl apply` leaves a field that it is not given at the old
///   value, `true`.
/// - Unknown fields are preserved in each object, as they were without a schema, but for the policy of an upgrade,
///   which the Go coordinator did not have: there, kubectl refuses a misspelled field, which would be a hold that does
///   not hold.
/// - Lists and maps may be `null`: Go writes an empty one so.
/// - No field has a default, so that each object is served as it was written.
pub(crate) fn replacing(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.preserve_unknown_fields = Some(false);
    let schemas = crd
        .spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut());
    for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
        tolerate(schema, false);
    }
    crd
}

/// The definition with a spec that is one value for server-side apply, for kinds of which the cloud decides the whole
/// spec: an apply removes what others added.
pub(crate) fn atomic(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let schema = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut());
        let spec = schema.and_then(|schema| schema.properties.as_mut()?.get_mut("spec"));
        if let Some(spec) = spec {
            spec.x_kubernetes_map_type = Some("atomic".to_owned());
        }
    }
    crd
}

fn tolerate(schema: &mut JSONSchemaProps, is_new: bool) {
    schema.default = None;
    // The API server does not know it; a `number` has it anyway.
    schema.format.take_if(|format| format == "double");
    if schema.properties.is_some() && !is_new {
        schema.x_kubernetes_preserve_unknown_fields = Some(true);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        schema.nullable = Some(true);
        tolerate(value, is_new);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut schema.items {
        schema.nullable = Some(true);
        tolerate(item, is_new);
    }
    for (name, property) in schema.properties.iter_mut().flatten() {
        tolerate(property, is_new || name == "policy");
    }
}

/// Reads `null` as the empty list or map that it stands for in what Go wrote.
pub(crate) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
