//! One manifest: the identity of its object, and its fields as the API server stores them. Pure.
//!
//! A server-side apply owns the fields that it names. What is stored under another name belongs to nobody there: nobody
//! sees that somebody changes it, and a version that does not have it any more leaves it behind. What a controller of
//! Kubernetes writes as well is written by both of them in turn.
//!
//! Source: the conversions of k8s.io/kubernetes (`pkg/apis/core/v1/conversion.go`), the strategies of its registry, and
//! kube-controller-manager.

use std::fmt::Display;

use base64::engine::general_purpose::{GeneralPurpose, PAD, STANDARD};
use base64::{Engine as _, alphabet};
use serde_json::{Map, Value, json};
use tidewaiter_api::names::CONTAINERSHIP_ACCOUNT;
use tidewaiter_api::values::quoted;

use crate::controllers::authorization_role_binding::STAND_IN;
use crate::controllers::plugin::desired::{ObjectId, QUOTES, Refused, refused};
use crate::mirror::is_id;

/// Returns true if the object is, or could be taken for, one of the coordinator's or the controller's.
pub(crate) fn is_tidewaiters(id: &ObjectId) -> bool {
    let is_our_group = |group: &str| {
        let ours = ["tidewaiter.dev", "containership.io"];
        let below = |ours: &&str| {
            group
                .strip_suffix(*ours)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        ours.iter().any(below) && group != "cerebral.containership.io"
    };
    let defines_ours =
        id.kind == "CustomResourceDefinition" && id.name.split_once('.').is_some_and(|(_, group)| is_our_group(group));
    let is_account =
        (id.group.as_str(), id.kind.as_str()) == ("", "ServiceAccount") && id.name == CONTAINERSHIP_ACCOUNT;
    let of_mirrored_role = id.name.strip_suffix(STAND_IN).unwrap_or(&id.name);
    let is_mirrored_role = id.group == "rbac.authorization.k8s.io" && is_id(of_mirrored_role);
    is_our_group(&id.group) || defines_ours || is_account || is_mirrored_role || id.name.starts_with("tidewaiter-")
}

/// Reads what names the object.
pub(crate) fn identity(at: &str, body: &Map<String, Value>) -> Result<(ObjectId, String), Refused> {
    let of_body = |field: &'static str| text(&at, field, body.get(field));
    let (api_version, kind) = (of_body("apiVersion")?, of_body("kind")?);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if !(is_dns(version, 63) && (group.is_empty() || is_dns(group, 253))) {
        return Err(refused(
            at,
            "apiVersion must be a group and a version, for example apps/v1",
        ));
    }
    if kind.is_empty() || kind.len() > 63 || !kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(refused(at, "kind must be a kind, for example Deployment"));
    }
    let metadata = body.get("metadata").filter(|metadata| metadata.is_object());
    let of_metadata = |field: &'static str| metadata.and_then(|metadata| metadata.get(field));
    let place = format!("{at} ({kind})");
    let id = ObjectId {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: text(&place, "metadata.namespace", of_metadata("namespace"))?.to_owned(),
        name: text(&place, "metadata.name", of_metadata("name"))?.to_owned(),
    };
    if of_metadata("generateName").is_some_and(|name| !name.is_null()) {
        let why =
            "metadata.generateName is not permitted: each pass would create another object; give it a metadata.name";
        return Err(refused(format!("{at} ({})", id.kind_name()), why));
    }
    // Names of roles and bindings may be path segments.
    let is_path = id.group == "rbac.authorization.k8s.io"
        && !matches!(id.name.as_str(), "" | "." | "..")
        && id.name.len() <= 253
        && id
            .name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/%".contains(&byte));
    if !(is_path || is_dns(&id.name, 253)) {
        let why = "metadata.name must be a DNS name: small letters, digits, - and .";
        return Err(refused(format!("{at} ({})", id.kind_name()), why));
    }
    if !id.namespace.is_empty() && (!is_dns(&id.namespace, 63) || id.namespace.contains('.')) {
        return Err(refused(
            id.to_string(),
            "metadata.namespace must be the name of a namespace",
        ));
    }
    Ok((id, version.to_owned()))
}

/// A DNS subdomain (RFC 1123) of at most `most` characters.
fn is_dns(text: &str, most: usize) -> bool {
    let is_label = |label: &str| {
        let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().is_some_and(edge)
            && bytes.last().is_some_and(edge)
            && bytes.iter().all(|byte| edge(byte) || *byte == b'-')
    };
    text.len() <= most && text.split('.').all(is_label)
}

/// The annotation of the object; empty if it has none.
pub(crate) fn annotation<'a>(id: &ObjectId, body: &'a Map<String, Value>, key: &str) -> Result<&'a str, Refused> {
    let annotations = body.get("metadata").and_then(|metadata| metadata.get("annotations"));
    text(id, key, annotations.and_then(|annotations| annotations.get(key)))
}

/// The text of a field; empty if it is absent. What is present and no text is not read as if it were absent: an object
/// would be applied under another name, or in another namespace.
fn text<'a>(at: &dyn Display, field: &str, value: Option<&'a Value>) -> Result<&'a str, Refused> {
    let shown = match value {
        None | Some(Value::Null) => return Ok(""),
        Some(Value::String(text)) => return Ok(text),
        // They may contain what is secret.
        Some(Value::Array(_)) => "a list".to_owned(),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(value) => value.to_string(),
    };
    let why = format!("{field} is {shown}, and must be a text: {QUOTES}");
    Err(refused(at.to_string(), why))
}

/// The base64 of the API server, whose last character may have bits that are not used. Source: `StdEncoding` of Go.
const BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));

/// Written by the controller of Deployments, and exported with them.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// The groups whose kinds have no field that may be `null`.
const BUILT_IN: [&str; 13] = [
    "",
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Replaces the manifest by what the API server stores of it. True if an earlier apply of the same manifest must be
/// repeated, because its fields belong to nobody or are written in turn.
pub(crate) fn as_stored(body: &mut Map<String, Value>) -> bool {
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let is_data = group.is_empty() && matches!(kind.as_str(), "ConfigMap" | "Secret");
    let is_built_in = BUILT_IN.contains(&group) && !is_data;
    if is_built_in {
        leave_out_nulls(body);
    } else if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        leave_out_nulls(metadata);
    }
    if let Some(spec) = pod_spec(&api_version, &kind, body) {
        name_service_account(spec);
    }
    let is_again = match (api_version.as_str(), kind.as_str()) {
        ("v1", "Secret") => encode(body),
        // The controller replaces the rules by those of the roles that are aggregated.
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => {
            let is_aggregated = body.get("aggregationRule").is_some_and(|rule| !rule.is_null());
            is_aggregated && body.remove("rules").is_some()
        }
        ("apps/v1", "Deployment" | "ReplicaSet") => {
            let metadata = body.get_mut("metadata");
            let annotations = metadata.and_then(|metadata| metadata.get_mut("annotations")?.as_object_mut());
            annotations.is_some_and(|annotations| annotations.remove(REVISION).is_some())
        }
        _ => false,
    };
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        leave_out_empty(metadata);
    }
    is_again
}

/// A field that is `null` is absent. An apply owns it nevertheless, and what others put there changes what it owns.
fn leave_out_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    for (field, value) in fields {
        leave_out_nulls_of(value);
        if let Some(metadata) = value.as_object_mut().filter(|_| field == "metadata") {
            leave_out_empty(metadata);
        }
    }
}

fn leave_out_nulls_of(value: &mut Value) {
    match value {
        Value::Object(fields) => leave_out_nulls(fields),
        Value::Array(items) => items.iter_mut().for_each(leave_out_nulls_of),
        _ => {}
    }
}

/// Labels and annotations that are `{}` are absent in the same way.
fn leave_out_empty(metadata: &mut Map<String, Value>) {
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    metadata.retain(|field, value| !matches!(field.as_str(), "annotations" | "labels") || !is_empty(value));
}

/// Refuses a Secret with values that the API server cannot read, with their keys: nothing of what it says of a Secret
/// is shown, because it repeats values.
pub(crate) fn check_secret(id: &ObjectId, body: &Map<String, Value>) -> Result<(), Refused> {
    if !id.is_secret() {
        return Ok(());
    }
    let encode = "must be base64: encode it, or write it as it is into stringData";
    let quote = format!("must be a text: {QUOTES}");
    // The API server ignores line breaks.
    let is_base64 = |text: &str| BASE64.decode(text.replace(['\r', '\n'], "")).is_ok();
    check_values(id, "data", body.get("data"), is_base64, encode)?;
    check_values(id, "stringData", body.get("stringData"), |_| true, &quote)?;
    ["labels", "annotations"].into_iter().try_for_each(|field| {
        let values = body.get("metadata").and_then(|metadata| metadata.get(field));
        check_values(id, &format!("metadata.{field}"), values, |_| true, &quote)
    })
}

fn check_values(
    id: &ObjectId,
    field: &str,
    values: Option<&Value>,
    is_valid: fn(&str) -> bool,
    rule: &str,
) -> Result<(), Refused> {
    let values = match values {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(values)) => values,
        Some(_) => return Err(refused(id.to_string(), format!("{field} must be an object"))),
    };
    let wrong = values
        .iter()
        .find(|(_, value)| !(value.is_null() || value.as_str().is_some_and(is_valid)));
    match wrong {
        None => Ok(()),
        Some((key, _)) => {
            let why = format!(
                "the value of {} in {field} {rule} (the value is not shown)",
                quoted(key)
            );
            Err(refused(id.to_string(), why))
        }
    }
}

/// `stringData` becomes `data`, and wins over it. What the API server would refuse stays.
fn encode(secret: &mut Map<String, Value>) -> bool {
    let Some(texts) = secret.get("stringData").and_then(Value::as_object) else {
        secret.retain(|field, value| field != "stringData" || !value.is_null());
        return false;
    };
    let encoded = texts
        .iter()
        .map(|(key, text)| Some((key.clone(), json!(STANDARD.encode(text.as_str()?)))));
    let Some(encoded) = encoded.collect::<Option<Map<_, _>>>() else {
        return false;
    };
    let mut data = match secret.get("data") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(data)) => data.clone(),
        Some(_) => return false,
    };
    data.extend(encoded);
    secret.remove("stringData");
    secret.insert("data".to_owned(), Value::Object(data));
    true
}

/// The service account of pods has two names, both of which are stored. An owner of only
/// one of them cannot remove it: the API server restores it from the other.
fn name_service_account(spec: &mut Map<String, Value>) {
    const NAMES: [&str; 2] = ["serviceAccountName", "serviceAccount"];
    let named = NAMES
        .iter()
        .find_map(|name| spec.get(*name)?.as_str().filter(|account| !account.is_empty()));
    if let Some(account) = named.map(str::to_owned) {
        spec.extend(NAMES.map(|name| (name.to_owned(), json!(account))));
    }
}

/// The pods that the object has or makes.
fn pod_spec<'a>(api_version: &str, kind: &str, body: &'a mut Map<String, Value>) -> Option<&'a mut Map<String, Value>> {
    let (first, rest): (&str, &[&str]) = match (api_version, kind) {
        ("v1", "Pod") => ("spec", &[]),
        ("v1", "PodTemplate") => ("template", &["spec"]),
        ("v1", "ReplicationController")
        | ("apps/v1", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch/v1", "Job") => ("spec", &["template", "spec"]),
        ("batch/v1", "CronJob") => ("spec", &["jobTemplate", "spec", "template", "spec"]),
        _ => return None,
    };
    let mut found = body.get_mut(first)?;
    for field in rest {
        found = found.get_mut(*field)?;
    }
    found.as_object_mut()
}

#[cfg(test)]
mod tests;
