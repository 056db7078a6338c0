//! A pull secret: what it contains, and how a copy of it is cached.
//!
//! A copy is cached as a digest of its fields of ours. `Debug` shows no content.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidewaiter_api::names::{
    CONTROLLER_LABEL, MANAGED_LABEL, MANAGED_VALUE, TOKEN_EXPIRES_ANNOTATION, TOKEN_RENEWS_ANNOTATION,
    TOKEN_SOURCE_ANNOTATION,
};
use tidewaiter_kit::{Desired, Difference};

use super::credential::Login;
use super::stored::{Hidden, StoredSecret};
use crate::controllers::rbac::is_written_by;
use crate::digest::Digest;
use crate::meta;

const JSON_FORM: (&str, &str) = ("kubernetes.io/dockerconfigjson", ".dockerconfigjson");
const OLD_FORM: (&str, &str) = ("kubernetes.io/dockercfg", ".dockercfg");

/// The types of pull secrets.
pub(super) const TYPES: [&str; 2] = [JSON_FORM.0, OLD_FORM.0];

/// The field manager of the copies.
const MANAGER: &str = "tidewaiter/registry";

/// The annotations of ours; absent on a pull secret that does not expire.
const ANNOTATIONS: [&str; 3] = [
    TOKEN_EXPIRES_ANNOTATION,
    TOKEN_RENEWS_ANNOTATION,
    TOKEN_SOURCE_ANNOTATION,
];

/// The content of a registry's pull secret in every namespace.
#[derive(Clone, Debug)]
pub(super) struct PullSecret {
    name: String,
    type_: &'static str,
    key: &'static str,
    config: Hidden<Vec<u8>>,
    token: Option<TokenLife>,
    digest: Digest,
}

/// The lifetime of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenLife {
    pub(super) expires: Timestamp,
    pub(super) renews: Timestamp,
    /// The digest of the credentials that it was made with.
    pub(super) source: String,
}

impl PullSecret {
    /// For `login` alone.
    pub(super) fn of_login(name: &str, login: &Login) -> Self {
        let entry = entry(login.username.expose(), login.password.expose(), &login.email);
        let entries: BTreeMap<&str, Value> = [(login.address.key(), entry)].into();
        let (form, config) = if login.old_form {
            (OLD_FORM, json!(entries))
        } else {
            (JSON_FORM, json!({ "auths": entries }))
        };
        Self::new(name, form, config.to_string().into_bytes(), None)
    }

    /// For a token that is good for the registries at `places`.
    pub(super) fn of_token(
        name: &str,
        places: &[&str],
        (username, password): (&str, &str),
        email: &str,
        life: TokenLife,
    ) -> Self {
        let entries: BTreeMap<&str, Value> = places
            .iter()
            .map(|place| (*place, entry(username, password, email)))
            .collect();
        let config = json!({ "auths": entries });
        Self::new(name, JSON_FORM, config.to_string().into_bytes(), Some(life))
    }

    /// Parses a pull secret that was written before, by us or by the Go coordinator.
    pub(super) fn of_stored(name: &str, stored: &StoredSecret) -> Option<Self> {
        let form = [JSON_FORM, OLD_FORM].into_iter().find(|form| form.0 == stored.type_)?;
        let time = |key| stored.annotation(key).and_then(|text| text.parse().ok());
        let life = || {
            Some(TokenLife {
                expires: time(TOKEN_EXPIRES_ANNOTATION)?,
                renews: time(TOKEN_RENEWS_ANNOTATION)?,
                source: stored.annotation(TOKEN_SOURCE_ANNOTATION)?.to_owned(),
            })
        };
        Some(Self::new(name, form, stored.bytes(form.1)?.to_vec(), life()))
    }

    fn new(name: &str, (type_, key): (&'static str, &'static str), config: Vec<u8>, token: Option<TokenLife>) -> Self {
        let annotations = token.as_ref().map(TokenLife::annotations).unwrap_or_default();
        let digest = digest(name, MANAGED_VALUE, type_, &config, &annotations);
        Self {
            name: name.to_owned(),
            type_,
            key,
            config: Hidden(config),
            token,
            digest,
        }
    }

    pub(super) fn digest(&self) -> &Digest {
        &self.digest
    }

    pub(super) fn token(&self) -> Option<&TokenLife> {
        self.token.as_ref()
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let labels = [(MANAGED_LABEL, MANAGED_VALUE), (CONTROLLER_LABEL, self.name.as_str())];
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        self.token.as_ref().map(TokenLife::annotations).unwrap_or_default()
    }

    fn patch(&self) -> Value {
        let ours = self.annotations();
        let annotations: BTreeMap<&str, Option<&String>> =
            ANNOTATIONS.into_iter().map(|key| (key, ours.get(key))).collect();
        json!({
            "metadata": {"labels": self.labels(), "annotations": annotations},
            "data": {(self.key): ByteString(self.config.0.clone())},
        })
    }
}

impl TokenLife {
    fn annotations(&self) -> BTreeMap<String, String> {
        let (expires, renews) = (self.expires.to_string(), self.renews.to_string());
        ANNOTATIONS
            .map(str::to_owned)
            .into_iter()
            .zip([expires, renews, self.source.clone()])
            .collect()
    }
}

impl Desired for PullSecret {
    type Child = SecretCopy;
    type Body = Secret;

    fn name(&self) -> &str {
        &self.name
    }

    fn body(&self, namespace: &str) -> Option<Secret> {
        Some(Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(namespace.to_owned()),
                labels: Some(self.labels()),
                annotations: Some(self.annotations()).filter(|annotations| !annotations.is_empty()),
                ..ObjectMeta::default()
            },
            type_: Some(self.type_.to_owned()),
            data: Some([(self.key.to_owned(), ByteString(self.config.0.clone()))].into()),
            ..Secret::default()
        })
    }

    fn difference(&self, copy: &SecretCopy) -> Difference {
        if copy.read.digest == self.digest {
            Difference::None
        } else if copy.read.immutable || copy.read.old_form != Some(self.type_ == OLD_FORM.0) {
            Difference::Replace
        } else {
            Difference::Patch(self.patch())
        }
    }

    fn owns(&self, metadata: &ObjectMeta) -> bool {
        is_written(metadata)
    }

    fn full_patch(&self) -> Option<Value> {
        Some(self.patch())
    }
}

/// Returns true if we wrote it, also if somebody took our labels off. The labels alone do not say it: other Secrets
/// have them, too, such as those with the credentials.
pub(super) fn is_written(metadata: &ObjectMeta) -> bool {
    is_written_by(metadata, MANAGER)
}

fn entry(username: &str, password: &str, email: &str) -> Value {
    let mut entry = json!({
        "username": username,
        "password": password,
        "auth": STANDARD.encode(format!("{username}:{password}")),
    });
    if !email.is_empty() {
        entry["email"] = json!(email);
    }
    entry
}

fn digest(id: &str, managed: &str, type_: &str, config: &[u8], annotations: &BTreeMap<String, String>) -> Digest {
    let values = ANNOTATIONS.map(|key| annotations.get(key).map_or("", String::as_str).as_bytes());
    let fields = [id.as_bytes(), managed.as_bytes(), type_.as_bytes(), config];
    Digest::of(fields.into_iter().chain(values))
}

/// A copy of a pull secret as it is cached.
#[derive(Clone, Debug, Serialize, Deserialize, Resource)]
#[resource(inherit = Secret)]
#[serde(from = "Received")]
pub(super) struct SecretCopy {
    metadata: ObjectMeta,
    read: Read,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    named: bool,
    /// None if its type is that of no pull secret.
    old_form: Option<bool>,
    immutable: bool,
    digest: Digest,
}

impl SecretCopy {
    /// Returns true if its name and its label are those of the pull secret of a registry: other managed Secrets are not
    /// touched. If there is such a registry, one of another type is replaced: it has our labels, and nothing of ours
    /// has another type.
    pub(super) fn is_named_as_pull_secret(&self) -> bool {
        self.read.named
    }

    /// Returns true if it is ours and has the type of a pull secret: it is deleted when its registry is gone.
    pub(super) fn is_pull_secret(&self) -> bool {
        self.read.named && self.read.old_form.is_some()
    }
}

/// A Secret as the API server sends it, or as the cache packed it.
#[derive(Deserialize)]
struct Received {
    #[serde(deserialize_with = "tidewaiter_kit::slim::annotated")]
    metadata: ObjectMeta,
    #[serde(default, rename = "type")]
    type_: String,
    #[serde(default)]
    data: Option<BTreeMap<String, ByteString>>,
    #[serde(default)]
    immutable: Option<bool>,
    /// Not a field of a Secret.
    read: Option<Read>,
}

impl From<Received> for SecretCopy {
    fn from(received: Received) -> Self {
        let read = received.read.clone().unwrap_or_else(|| received.read_fields());
        Self {
            metadata: meta::identity(received.metadata),
            read,
        }
    }
}

impl Received {
    fn read_fields(&self) -> Read {
        let empty = BTreeMap::new();
        let labels = self.metadata.labels.as_ref().unwrap_or(&empty);
        let annotations = self.metadata.annotations.as_ref().unwrap_or(&empty);
        let label = |key| labels.get(key).map_or("", String::as_str);
        let form = [JSON_FORM, OLD_FORM].into_iter().find(|form| form.0 == self.type_);
        let config = form.and_then(|form| self.data.as_ref()?.get(form.1));
        let id = label(CONTROLLER_LABEL);
        Read {
            named: self.metadata.name.as_deref() == Some(id),
            old_form: form.map(|form| form == OLD_FORM),
            immutable: self.immutable.unwrap_or_default(),
            digest: digest(
                id,
                label(MANAGED_LABEL),
                &self.type_,
                config.map_or(&[], |config| &config.0),
                annotations,
            ),
        }
    }
}

#[cfg(test)]
mod tests;
