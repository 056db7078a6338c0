//! `User`: a user who may log in on the nodes of the cluster with an SSH key.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MAX_ID;
use crate::schema::null_is_empty;
use crate::values::EndTime;

/// A user, as the cloud lists the users of this cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "containership.io",
    version = "v3",
    kind = "User",
    plural = "users",
    shortname = "usr",
    namespaced,
    doc = "A user who may log in on the nodes of the cluster. Mirrored from the cloud by the coordinator.",
    derive = "PartialEq",
    label("containership.io/managed", "true"),
    validation = Rule::new("self.metadata.name == self.spec.id").message("metadata.name must be spec.id"),
    printcolumn(name = "User", type_ = "string", json_path = ".spec.name", description = "The name of the user", priority = 1),
    printcolumn(name = "Expires", type_ = "string", json_path = ".spec.expires_at", description = "The time at which the access ends; empty if it does not", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct UserSpec {
    /// The id of the user in the cloud, a UUID. It becomes part of a command in `authorized_keys`.
    #[schemars(length(max = MAX_ID))]
    pub id: String,
    /// The name of the user, for people.
    #[serde(default)]
    pub name: String,
    /// The URL of the user's picture, or empty.
    #[serde(default)]
    pub avatar_url: String,
    /// When the user was added to the organization, as the cloud writes it.
    #[serde(default)]
    pub added_at: String,
    /// The time from which on no key of the user counts any more, `2027-01-31T18:00:00Z`; absent if it has no end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = EndTime::FIELD_PATTERN))]
    pub expires_at: String,
    /// The SSH keys with which the user may log in.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub ssh_keys: Vec<SshKey>,
}

/// An SSH public key of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SshKey {
    /// The id of the key in the cloud, a UUID.
    #[serde(default)]
    pub id: String,
    /// The name of the key, for people.
    #[serde(default)]
    pub name: String,
    /// The fingerprint of the key, as the cloud writes it.
    #[serde(default)]
    pub fingerprint: String,
    /// The time from which on the key does not count any more, `2027-01-31T18:00:00Z`; absent if it has no end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = EndTime::FIELD_PATTERN))]
    pub expires_at: String,
    /// The key as one line: its type, its data in base64, and an optional comment (sshd(8), its file format). It
    /// becomes a line of `authorized_keys` on each node, so it has no options and no control characters but tabs. A
    /// line ending is dropped.
    #[schemars(
        length(max = 8192),
        regex(
            pattern = r"^[ \t\r\n]*(ssh|ecdsa|sk)-[-a-z0-9.@]+[ \t]+[A-Za-z0-9+/]+={0,2}([ \t][^\x00-\x08\x0a-\x1f\x7f]*)?[ \t\r\n]*$"
        )
    )]
    pub key: String,
}
