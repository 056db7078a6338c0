//! The identity of an object, and the objects that no plugin may have by their name. Pure.

use std::fmt::Display;

use serde_json::{Map, Value};
use tidewaiter_api::names::CONTAINERSHIP_ACCOUNT;

use super::{ObjectId, QUOTES, Refused, refused};
use crate::controllers::authorization_role_binding::STAND_IN;
use crate::mirror::is_id;

/// Returns true if the object is, or could be taken for, one of the coordinator's or the controller's.
pub(super) fn is_tidewaiters(id: &ObjectId) -> bool {
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
pub(super) fn identity(at: &str, body: &Map<String, Value>) -> Result<(ObjectId, String), Refused> {
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
pub(super) fn annotation<'a>(id: &ObjectId, body: &'a Map<String, Value>, key: &str) -> Result<&'a str, Refused> {
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
