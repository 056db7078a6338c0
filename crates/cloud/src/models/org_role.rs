//! The roles of users in an organization.

use std::fmt;

use utoipa::ToSchema;

/// The role of a user in an organization. Each role includes the permissions of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(rename_all = "snake_case", description = "The role of a user in an organization.")]
pub enum OrgRole {
    /// Sees everything except credentials and the audit log. The user's SSH keys are not sent to clusters.
    ReadOnly,
    /// Changes labels, node pools and autoscaling policies, and has SSH keys on the nodes.
    Member,
    /// Changes everything except the organization itself and its owners.
    Admin,
    /// All permissions.
    Owner,
}

impl OrgRole {
    /// All roles, in ascending order.
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::Member, Self::Admin, Self::Owner];

    /// The name on the wire.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// The role with the name `word`.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

impl fmt::Display for OrgRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
