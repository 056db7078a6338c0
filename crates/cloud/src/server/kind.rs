//! The kinds of objects in the store, and their names in the store, the audit log and the events.

use uuid::Uuid;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $word:literal, $singular:literal;)+) => {
        /// A kind of object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind),+ }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Its name in the store, the audit log and the events.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$kind => $word),+ }
            }

            /// Its name in messages, with an article.
            #[must_use]
            pub const fn singular(self) -> &'static str {
                match self { $(Self::$kind => $singular),+ }
            }

            /// The kind with the name `word`.
            #[must_use]
            pub fn of(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.word() == word)
            }
        }
    };
}

kinds! {
    /// The owner of all other objects.
    Organization = "organizations", "an organization";
    /// Owned by the user's home organization.
    User = "users", "a user";
    /// Of a user.
    SshKey = "ssh-keys", "an SSH key";
    /// The role of a user in an organization.
    Membership = "memberships", "a membership";
    /// The hash of a user's password.
    Password = "passwords", "a password";
    /// A user who administers all organizations.
    Operator = "operators", "an operator";
    /// A token of a user, or of a cluster (issued for one of its keys). Its text is not stored.
    Token = "tokens", "a token";
    /// Of an organization.
    Team = "teams", "a team";
    /// Of an organization.
    Registry = "registries", "a registry";
    /// Of an organization.
    Provider = "providers", "a provider";
    /// Of an organization.
    Cluster = "clusters", "a cluster";
    /// The hash of a cluster's key.
    ApiKey = "api-keys", "an API key";
    /// Of a cluster.
    Plugin = "plugins", "a plugin";
    /// Of a cluster.
    ClusterLabel = "labels", "a cluster label";
    /// Of a cluster.
    NodePool = "node-pools", "a node pool";
    /// Of a node pool.
    NodePoolLabel = "node-pool-labels", "a node pool label";
    /// Of a node pool.
    Node = "nodes", "a node";
    /// Of a cluster.
    AutoscalingPolicy = "autoscaling-policies", "an autoscaling policy";
    /// The assignment of an autoscaling policy to a node pool.
    PolicyAssignment = "autoscaling-assignments", "an autoscaling policy assignment";
    /// Of an organization.
    Role = "roles", "a role";
    /// Of an organization.
    RoleBinding = "role-bindings", "a role binding";
    /// Of a cluster.
    Upgrade = "upgrades", "an upgrade";
    /// Of an upgrade, for all nodes or for one.
    UpgradeScript = "upgrade-scripts", "an upgrade script";
    /// A version in the catalogue of plugins.
    PluginVersion = "plugin-versions", "a version of a plugin";
    /// The manifests of a version in the catalogue.
    PluginManifests = "plugin-manifests", "the manifests of a plugin";
}

impl Kind {
    /// The kinds that are deleted with an object of this kind: those whose `parent_id` is its id.
    #[must_use]
    pub const fn children(self) -> &'static [Self] {
        match self {
            Self::Organization => &[
                Self::RoleBinding,
                Self::Role,
                Self::Team,
                Self::Registry,
                Self::Cluster,
                Self::Provider,
                Self::Membership,
                Self::User,
            ],
            Self::User => &[Self::SshKey, Self::Password, Self::Operator, Self::Token],
            Self::Cluster => &[
                Self::Upgrade,
                Self::Plugin,
                Self::ClusterLabel,
                Self::NodePool,
                Self::AutoscalingPolicy,
                Self::ApiKey,
            ],
            Self::NodePool => &[Self::PolicyAssignment, Self::NodePoolLabel, Self::Node],
            Self::ApiKey => &[Self::Token],
            Self::Upgrade => &[Self::UpgradeScript],
            Self::PluginVersion => &[Self::PluginManifests],
            _ => &[],
        }
    }

    /// The kind's name on a cluster's change stream; `None` if clusters do not mirror it.
    #[must_use]
    pub const fn event(self) -> Option<&'static str> {
        Some(match self {
            Self::User | Self::SshKey | Self::Membership => Self::User.word(),
            Self::AutoscalingPolicy | Self::PolicyAssignment => Self::AutoscalingPolicy.word(),
            Self::Upgrade | Self::UpgradeScript => Self::Upgrade.word(),
            Self::Plugin | Self::PluginVersion | Self::PluginManifests => Self::Plugin.word(),
            Self::Registry
            | Self::Cluster
            | Self::ClusterLabel
            | Self::NodePool
            | Self::NodePoolLabel
            | Self::Node
            | Self::Role
            | Self::RoleBinding
            | Self::Team => self.word(),
            Self::Organization | Self::Password | Self::Operator | Self::Token | Self::Provider | Self::ApiKey => {
                return None;
            }
        })
    }

    /// The maximum number of such objects in an organization, unless the operator of the server sets another one.
    #[must_use]
    pub const fn quota(self) -> i64 {
        match self {
            Self::Organization => i64::MAX,
            Self::Registry | Self::Provider | Self::Role | Self::PluginVersion | Self::PluginManifests => 1_000,
            Self::Team | Self::Cluster | Self::AutoscalingPolicy => 5_000,
            Self::User | Self::Membership | Self::Password | Self::Operator | Self::ApiKey | Self::RoleBinding => {
                20_000
            }
            Self::SshKey | Self::Token | Self::Plugin | Self::NodePool | Self::Upgrade | Self::UpgradeScript => 50_000,
            Self::ClusterLabel | Self::NodePoolLabel | Self::Node | Self::PolicyAssignment => 100_000,
        }
    }

    /// Whether a change (or deletion) of such an object may affect the identity or the permissions of a caller. A new
    /// token or cluster had no identity before, and the status that a cluster reports gives it no permissions.
    #[must_use]
    pub const fn decides_who_may(self, deleted: bool) -> bool {
        match self {
            Self::Membership | Self::Operator => true,
            Self::Organization | Self::User | Self::Token | Self::Cluster | Self::ApiKey => deleted,
            _ => false,
        }
    }

    /// Whose identity a change of the object `id` may affect: a user's, or that of the object itself.
    #[must_use]
    pub fn decides_for(self, id: &str, deleted: bool) -> Option<Uuid> {
        // The id of a membership ends with the user's.
        let own = id.rsplit('.').next().unwrap_or_default();
        self.decides_who_may(deleted)
            .then(|| Uuid::try_parse(own).unwrap_or_default())
    }
}
