//! The objects of the API, one file per kind: parsed strictly, and serialized so that clients of the old service can
//! read them.
//!
//! A result of [`parse`] is valid as a whole: every string is a type, all lists and texts are bounded, and rules that
//! span fields hold. Rules that depend on other objects (that a member of a team exists) are not checked here. No error
//! contains a control character or a secret; no `Debug` output contains a secret, and plain `Serialize` omits it.
//!
//! The reasons for the design of each kind: `docs/design/cloud.md`.

#![expect(missing_docs, reason = "a field or a function that its name explains has no comment")]
#![expect(clippy::missing_errors_doc, reason = "an InvalidField names the field and the rule")]

mod account;
mod autoscaling;
mod catalogue;
mod clear_text;
mod cluster;
mod cluster_report;
mod document;
mod failure;
mod fields;
mod identity;
mod kind;
mod label;
mod login;
mod manifests;
mod node;
mod node_pool;
mod open_object;
mod org_role;
mod organization;
mod plugin;
mod provider;
mod registry;
mod resource;
mod role;
mod role_binding;
pub mod schema;
mod secret;
mod service_account;
mod status;
mod team;
mod token_scope;
mod upgrade;
mod user;
pub mod values;
mod written;

pub use account::Account;
pub use autoscaling::{
    AdjustmentType, AutoscalingPolicy, AutoscalingPolicySpec, Comparison, Finite, ScalingPolicy, ScalingStep,
};
pub use catalogue::{Catalogue, Compatibility, PluginBounds, PluginDefinition, PluginVersion, VersionBounds};
pub use cluster::{CLUSTER_AUDIENCE, Cluster, ClusterConfiguration, ClusterSpec};
pub use cluster_report::{
    AgentsReport, ApprovalSpec, ClusterDecision, ClusterReport, DECISION_LIFETIME, HeldReport, KindReport, MAX_REPORT,
    PluginReport, RefusedReport, ReleaseSpec, ReportedCluster, WaitingVersion,
};
pub use document::{InvalidField, Unknown};
pub use failure::Failure;
pub use fields::{Fields, Model};
pub use identity::Identity;
pub use label::{
    CLUSTER_LABEL_PREFIX, ClusterLabel, ClusterLabelSpec, NODE_POOL_LABEL_PREFIX, NodePoolLabel, NodePoolLabelSpec,
};
pub use login::Login;
pub use manifests::{Job, Jobs, Manifest, PluginManifests};
pub use node::{Node, NodeSpec, NodeStatusReport};
pub use node_pool::{Autoscaling, KubernetesMode, NodePool, NodePoolSpec, ScalingStrategy};
pub use open_object::OpenObject;
pub use org_role::OrgRole;
pub use organization::{Organization, OrganizationSpec};
pub use plugin::{Plugin, PluginSpec};
pub use provider::{Provider, ProviderSpec};
pub use registry::{Registry, RegistryProvider, RegistrySpec};
pub use resource::{
    Body, Code, Credential, Document, Facts, MAX_SPEC, Parameter, ParameterType, Resource, UniqueName, Use, current,
    stored,
};
pub use role::{Role, RoleSpec, Rule, RuleSpec, RuleType};
pub use role_binding::{BindingSubject, RoleBinding, RoleBindingSpec};
pub use secret::{Credentials, Secret};
pub use service_account::{ServiceAccount, ServiceAccountSpec};
pub use status::Status;
pub use team::{MAX_TEAMS, Team, TeamSpec};
pub use token_scope::{ScopeKind, ScopeVerb, TokenScope};
pub use upgrade::{
    NodeSelector, SelectorOperator, Upgrade, UpgradeProgress, UpgradeScript, UpgradeSpec, UpgradeStatus, UpgradeType,
};
pub use user::{SshKey, SshKeySpec, User, UserSpec};

use fields::{At, Read as _};
use serde_json::Value;
use uuid::Uuid;

kind::kinds! {
    resources {
        Organization: OrganizationSpec,
        User: UserSpec,
        Team: TeamSpec,
        ServiceAccount: ServiceAccountSpec,
        Registry: RegistrySpec,
        Provider: ProviderSpec,
        Cluster: ClusterSpec,
        Role: RoleSpec,
        RoleBinding: RoleBindingSpec,
        SshKey: SshKeySpec,
        Plugin: PluginSpec,
        ClusterLabel: ClusterLabelSpec,
        NodePool: NodePoolSpec,
        AutoscalingPolicy: AutoscalingPolicySpec,
        Upgrade: UpgradeSpec,
        NodePoolLabel: NodePoolLabelSpec,
        Node: NodeSpec,
    }
    others {
        /// The role of a user in an organization.
        Membership: Facts {
            event: Some(Self::User),
            ..Facts::internal("memberships", "a membership", 20_000, &[Self::Organization])
        },
        /// An invitation to an organization, with the hash of its secret.
        Invitation: Facts::internal("invitations", "an invitation", 1_000, &[Self::Organization]),
        /// The hash of a user's password.
        Password: Facts::internal("passwords", "a password", 20_000, &[Self::User]),
        /// The account of a user at a provider of OpenID Connect: its issuer and subject.
        Identity: Facts::internal("identities", "an identity", 50_000, &[Self::User]),
        /// A security key of a user: its public key, which a login with the password needs too.
        SecurityKey: Facts::internal("security-keys", "a security key", 200_000, &[Self::User]),
        /// The digests of a user's recovery codes; its id is that of the user.
        RecoveryCodes: Facts::internal("recovery-codes", "the recovery codes", 20_000, &[Self::User]),
        /// A user who administers all organizations.
        Operator: Facts::internal("operators", "an operator", 20_000, &[Self::User]),
        /// A token of a user, a service account, or a cluster (issued for one of its keys). Its text is not stored.
        Token: Facts::internal("tokens", "a token", 1_000, &[Self::User, Self::ApiKey, Self::ServiceAccount]),
        /// The hash of a cluster's key.
        ApiKey: Facts::internal("api-keys", "an API key", 20_000, &[Self::Cluster]),
        /// The assignment of an autoscaling policy to a node pool.
        PolicyAssignment: Facts {
            event: Some(Self::AutoscalingPolicy),
            ..Facts::internal("autoscaling-assignments", "an autoscaling policy assignment", 100_000, &[Self::NodePool])
        },
        /// Of an upgrade, for all nodes or for one.
        UpgradeScript: Facts {
            event: Some(Self::Upgrade),
            ..Facts::internal("upgrade-scripts", "an upgrade script", 50_000, &[Self::Upgrade])
        },
        /// The script of each upgrade without one of its own: of a cluster, or of all clusters of an organization.
        ScriptTemplate: Facts::internal("script-templates", "a script template", 1_000, &[Self::Cluster, Self::Organization]),
        /// The last report of a cluster on itself; its id is that of the cluster.
        ClusterReport: Facts::internal("cluster-reports", "the report of a cluster", 20_000, &[Self::Cluster]),
        /// A release or an approval that a cluster has yet to take.
        ClusterDecision: Facts {
            event: Some(Self::ClusterDecision),
            ..Facts::internal("decisions", "a decision", 10_000, &[Self::Cluster])
        },
        /// A version in the catalogue of plugins.
        PluginVersion: Facts {
            event: Some(Self::Plugin),
            ..Facts::internal("plugin-versions", "a version of a plugin", 1_000, &[])
        },
        /// The manifests of a version in the catalogue.
        PluginManifests: Facts {
            event: Some(Self::Plugin),
            ..Facts::internal("plugin-manifests", "the manifests of a plugin", 1_000, &[Self::PluginVersion])
        },
    }
}

/// The header of a change stream that names the interval of its heartbeats in seconds.
pub(crate) const HEARTBEAT_HEADER: &str = "tidewaiter-heartbeat";

/// The header with the number of a change: of a response to a change, that of the change; of any other response, that
/// up to which it is current.
pub(crate) const CHANGE_HEADER: &str = "tidewaiter-change";

/// The maximum size of a list of objects, in bytes.
const MAX_LIST_BYTES: usize = 64 * 1024 * 1024;

/// The maximum size of any object, in bytes.
const MAX_OPEN_BYTES: usize = 16 * 1024 * 1024;

/// Parses an object.
///
/// # Errors
/// The first invalid field, if `bytes` are not such an object.
pub fn parse<T: Model>(bytes: &[u8], unknown: Unknown) -> Result<T, InvalidField> {
    let value = document::parse(bytes, T::MAX_BYTES)?;
    T::read(&At::root(&value, unknown))
}

/// Parses an object of any kind.
///
/// # Errors
/// If `bytes` are not an object, or a key occurs twice.
pub fn parse_open(bytes: &[u8]) -> Result<OpenObject, InvalidField> {
    let value = document::parse(bytes, MAX_OPEN_BYTES)?;
    At::root(&value, Unknown::Refuse).map().cloned().map(OpenObject)
}

/// An item of a list that is not such an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidItem {
    /// Its id, if that at least can be read.
    pub id: Option<Uuid>,
    /// The error; the field begins with the index in the list, `[3]`.
    pub error: InvalidField,
}

/// Parses a list as [`parse_list`], each item by itself: an invalid one does not hide the others.
///
/// # Errors
/// If `bytes` are not a JSON array.
pub fn parse_each<T: Model>(bytes: &[u8], unknown: Unknown) -> Result<Vec<Result<T, InvalidItem>>, InvalidField> {
    let read = |index, item: &Value| {
        T::read(&At::item(index, item, unknown)).map_err(|error| InvalidItem {
            id: item.get("id").and_then(|id| id.as_str()?.parse().ok()),
            error,
        })
    };
    if let Some(items) = document::parse_items(bytes, MAX_LIST_BYTES, read)? {
        return Ok(items);
    }
    let value = document::parse(bytes, MAX_LIST_BYTES)?;
    Err(At::root(&value, Unknown::Ignore).must_be("a list"))
}

/// Parses a list of objects, which must be a JSON array: an empty body, `null` or HTML is an error and never the empty
/// list, which would mean that everything must be deleted.
///
/// # Errors
/// As [`parse`]; the field begins with the index in the list, `[3]`.
pub fn parse_list<T: Model>(bytes: &[u8], unknown: Unknown) -> Result<Vec<T>, InvalidField> {
    let items = parse_each(bytes, unknown)?.into_iter();
    items.map(|item| item.map_err(|invalid| invalid.error)).collect()
}
