//! What names an object, and which objects no plugin may have by their name. Pure.

use serde_json::{Map, Value};
use tidewaiter_api::names::CONTAINERSHIP_ACCOUNT;

use super::{ObjectId, Refused, refused};
use crate::controllers::authorization_role_binding::STAND_IN;
use crate::mirror::is_id;

/// Whether the object is, or could be taken for, one of the coordinator's or the controller's.
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
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text(body.get("apiVersion")), text(body.get("kind")));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
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
    let of_metadata = |field| metadata.and_then(|metadata| metadata.get(field));
    let id = ObjectId {
        group: group.to_owned(),
        kind,
        namespace: text(of_metadata("namespace")),
        name: text(of_metadata("name")),
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

pub(super) fn annotation<'a>(body: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    body.get("metadata")?.get("annotations")?.get(key)?.as_str()
}
