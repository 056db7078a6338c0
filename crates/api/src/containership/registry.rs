//! `Registry`: a container registry and the credentials with which the cluster pulls from it.
//!
//! `Debug` and decoding errors never show a credential.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MAX_ID;
use crate::values::{SecretText, opaque};

/// A registry, as the cloud lists those of the organization.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "containership.io",
    version = "v3",
    kind = "Registry",
    plural = "registries",
    shortname = "reg",
    namespaced,
    doc = "A container registry that the cluster pulls from. Mirrored from the cloud by the coordinator.",
    derive = "PartialEq",
    label("containership.io/managed", "true"),
    validation = Rule::new("self.metadata.name == self.spec.id").message("metadata.name must be spec.id"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider", description = "The kind of registry", priority = 1),
    printcolumn(name = "Server", type_ = "string", json_path = ".spec.serveraddress", description = "The address of the registry", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct RegistrySpec {
    /// The id of the registry in the cloud, a UUID. The pull secrets have this name.
    #[schemars(length(max = MAX_ID))]
    pub id: String,
    /// When the registry was added, as the cloud writes it.
    #[serde(default)]
    pub added_at: String,
    /// The purpose of the registry, for people.
    #[serde(default)]
    pub description: String,
    /// The id of the organization in the cloud.
    #[serde(default)]
    pub organization_id: String,
    /// The email address that older container runtimes want in a pull secret, or empty.
    #[serde(default)]
    pub email: String,
    /// The address of the registry, `HOST`, `HOST:PORT`, with a path, or a URL. It is the key under which a container
    /// runtime looks for the credentials, so no byte of it may change.
    #[serde(default)]
    #[schemars(length(max = 512), regex(pattern = "^[!-~]*$"))]
    pub serveraddress: String,
    /// The kind of registry, which decides how the credentials become a pull secret: `amazon_ec2_registry`,
    /// `google_registry`, `azure`, `dockerhub`, `quay` or `private`.
    #[serde(default)]
    pub provider: String,
    /// The credentials, by the names that the provider requires. Secret.
    #[serde(default, deserialize_with = "opaque")]
    pub credentials: BTreeMap<String, SecretText>,
    /// The id of the user who added the registry, or empty.
    #[serde(default)]
    pub owner: String,
    /// The token that was made from the credentials.
    #[serde(default, rename = "authToken", deserialize_with = "opaque")]
    pub auth_token: AuthToken,
}

/// The contents of a pull secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthToken {
    /// The token. Secret.
    #[serde(default)]
    pub token: SecretText,
    /// The address that the token is for.
    #[serde(default)]
    pub endpoint: String,
    /// The type of the pull secret: `dockerconfigjson` or `dockercfg`.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// When the token expires, or empty.
    #[serde(default)]
    pub expires: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn neither_debug_nor_an_error_shows_a_credential() {
        let read = |credentials, token| {
            serde_json::from_value::<RegistrySpec>(json!({"id": "r", "credentials": credentials, "authToken": token}))
        };
        let secret = "hunter2";
        let spec = read(json!({"password": secret}), json!({"token": secret})).unwrap();
        assert!(!format!("{spec:?}").contains(secret), "{spec:?}");
        assert_eq!(spec.credentials["password"].expose(), secret);
        for (credentials, token) in [
            (json!(secret), json!({})),
            (json!([secret]), json!({})),
            (json!({"password": [secret]}), json!({})),
            (json!({}), json!(secret)),
            (json!({}), json!({"token": {"a": secret}})),
        ] {
            let error = read(credentials, token).unwrap_err().to_string();
            assert!(!error.contains(secret), "{error}");
        }
    }
}
