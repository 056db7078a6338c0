//! Users who may log in on the nodes, with their SSH keys.

use tidewaiter_api::containership::{SshKey, User, UserSpec};
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::Kind;

use super::or_empty;
use crate::mirror::kind::{CacheOf, Listed, MirroredKind, in_core, named};

/// The users of the cluster.
pub(crate) struct Users;

impl MirroredKind for Users {
    const NAME: &'static str = "users";
    const CONTROLLER: &'static str = "sync-users";
    const CHANGED: &'static [Kind] = &[Kind::User];
    const CACHE: CacheOf<User> = in_core;
    const LISTED: Listed = Listed::At(Cluster::ssh_users);
    const IS_RELEASED_BY_PERSON: bool = true;
    type Object = models::User;
    type Resource = User;

    fn called(&self, user: &User) -> String {
        user.spec.name.clone()
    }

    fn resource(&self, user: models::User) -> Option<User> {
        let key = |key: models::SshKey| SshKey {
            id: key.id.to_string(),
            name: key.spec.name.to_string(),
            fingerprint: key.fingerprint.to_string(),
            expires_at: or_empty(key.spec.expires_at),
            key: key.spec.key.to_string(),
        };
        let spec = UserSpec {
            id: user.id.to_string(),
            name: user.spec.name.to_string(),
            avatar_url: or_empty(user.spec.avatar_url),
            added_at: user.added_at.to_string(),
            expires_at: or_empty(user.spec.expires_at),
            ssh_keys: user.ssh_keys.into_iter().map(key).collect(),
        };
        Some(User {
            metadata: named(&spec.id),
            spec,
        })
    }
}
