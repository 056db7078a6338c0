//! Users of an organization and their SSH keys. A key becomes a line of `authorized_keys` on every node of a cluster.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::fields::model;
use super::values::{DisplayName, Email, EndTime, Fingerprint, HttpUrl, SshKeyId, SshPublicKey, UnixMillis, UserId};
use super::{Facts, Fields, InvalidField, Kind, Model, Resource, UniqueName, schema};

model! {
    /// The settings of a user.
    UserSpec, "a user" =>
    required name: DisplayName,
    required email: Email,
    optional avatar_url: Option<HttpUrl>,
    /// From this second on, the user cannot log in, and no token or SSH key of the user is accepted. If absent, the
    /// access does not end. Owners and operators have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    nullable expires_at: Option<EndTime> as Option<schema::EndTime>,
}

model! {
    /// A user.
    User, UserSpec::KIND, check =>
    required id: UserId,
    flatten spec: UserSpec,
    required added_at: UnixMillis,
    /// All belong to this user, without duplicates.
    or_default ssh_keys: Vec<SshKey>,
}

model! {
    /// The settings of an SSH key.
    SshKeySpec, "an SSH key" =>
    required name: DisplayName,
    required key: SshPublicKey,
    /// From this second on, the key opens no node. If absent, the key does not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    nullable expires_at: Option<EndTime> as Option<schema::EndTime>,
}

/// An SSH key.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct SshKey {
    pub id: SshKeyId,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    pub user_id: UserId,
    /// The fingerprint of the key; computed if absent.
    #[schema(value_type = Option<Fingerprint>)]
    pub fingerprint: Fingerprint,
    #[serde(flatten)]
    pub spec: SshKeySpec,
}

impl Resource for UserSpec {
    type Object = User;

    const FACTS: Facts = Facts {
        quota: 20_000,
        has_own_endpoints: true,
        key: &["email"],
        columns: &["email", "name", "added_at", "expires_at", "role_expires_at"],
        about: "Members of the organization",
        aliases: &["user"],
        ..Facts::of::<Self>(Kind::User, "users", &[Kind::Organization])
    };

    /// Addresses that differ only in case reach the same mailbox nearly everywhere, so they must not belong to
    /// different users.
    fn name(&self, _: &Map<String, Value>) -> Option<UniqueName> {
        let email = self.email.as_str().to_lowercase();
        Some(UniqueName::of("email", &[("email", &email)]))
    }
}

impl User {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        let ids: Vec<_> = self.ssh_keys.iter().map(|key| key.id).collect();
        fields.unique("ssh_keys", &ids)?;
        // Compared by their data: the same key with another comment is a duplicate.
        let keys: Vec<_> = self.ssh_keys.iter().map(|key| key.spec.key.fingerprint()).collect();
        fields.unique("ssh_keys", &keys)?;
        match self.ssh_keys.iter().find(|key| key.user_id != self.id) {
            Some(key) => Err(fields.invalid(
                "ssh_keys",
                format!("contains the key {}, whose user_id is that of another user", key.id),
            )),
            None => Ok(()),
        }
    }
}

impl Resource for SshKeySpec {
    type Object = SshKey;

    const FACTS: Facts = Facts {
        event: Some(Kind::User),
        quota: 50_000,
        segment: "ssh_keys",
        tag: "Users",
        is_for_clusters: false,
        generated: &["id", "created_at", "updated_at", "user_id", "fingerprint"],
        key: &["key"],
        columns: &["name", "fingerprint", "expires_at"],
        about: "SSH keys of a user",
        aliases: &["ssh-key", "keys"],
        ..Facts::of::<Self>(Kind::SshKey, "ssh-keys", &[Kind::User])
    };

    /// The same key with another comment is the same key.
    fn name(&self, _: &Map<String, Value>) -> Option<UniqueName> {
        let fingerprint = self.key.fingerprint().to_string();
        Some(UniqueName::of("key", &[("fingerprint", &fingerprint)]))
    }
}

impl Model for SshKey {
    const KIND: &'static str = SshKeySpec::KIND;

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let spec = SshKeySpec::take(fields)?;
        let fingerprint = fields
            .optional("fingerprint")?
            .unwrap_or_else(|| spec.key.fingerprint().clone());
        if !fingerprint.matches(&spec.key) {
            let reason = format!(
                "does not match the key, whose fingerprint is {}",
                spec.key.fingerprint()
            );
            return Err(fields.invalid("fingerprint", reason));
        }
        Ok(Self {
            id: fields.required("id")?,
            created_at: fields.required("created_at")?,
            updated_at: fields.required("updated_at")?,
            user_id: fields.required("user_id")?,
            fingerprint,
            spec,
        })
    }
}
