//! The objects of the API, one file per kind: read strictly, written so that a client of the old service can read them.
//!
//! What [`parse`] accepts is valid as a whole: every string has become a type, every list and text is bounded, rules that
//! span fields hold. What needs other objects to be known (that a member of a team exists) is not checked here. No error
//! holds a control character or the text of a secret; no `Debug` shows a secret, and plain `Serialize` leaves it out.
//!
//! Why each kind is as it is: `docs/design/cloud.md`.

mod account;
mod autoscaling;
mod catalogue;
mod cluster;
mod document;
mod failure;
mod fields;
mod label;
mod login;
mod manifests;
mod node;
mod node_pool;
mod organization;
mod plugin;
mod provider;
mod registry;
mod role;
mod role_binding;
pub mod schema;
mod secret;
mod status;
mod team;
mod upgrade;
mod user;
pub mod values;

pub use account::Account;
pub use autoscaling::{
    AdjustmentType, AutoscalingPolicy, AutoscalingPolicySpec, Comparison, Finite, ScalingPolicy, ScalingStep,
};
pub use catalogue::{Catalogue, Compatibility, PluginBounds, PluginDefinition, PluginVersion, VersionBounds};
pub use cluster::{Cluster, ClusterConfiguration, ClusterSpec};
pub use document::{InvalidField, Unknown};
pub use failure::Failure;
pub use fields::{Fields, Model, OpenObject};
pub use label::{ClusterLabel, LabelSpec, NodePoolLabel};
pub use login::{Accepted, Login, Token};
pub use manifests::{Job, Jobs, Manifest, PluginManifests};
pub use node::{Node, NodeSpec, NodeStatusReport};
pub use node_pool::{Autoscaling, KubernetesMode, NodePool, NodePoolChange, NodePoolSpec};
pub use organization::{Organization, OrganizationSpec};
pub use plugin::{Plugin, PluginChange, PluginSpec};
pub use provider::{Provider, ProviderSpec};
pub use registry::{Registry, RegistryProvider, RegistrySpec};
pub use role::{Role, RoleSpec, Rule, RuleSpec, RuleType};
pub use role_binding::{BindingSubject, RoleBinding, RoleBindingSpec};
pub use secret::{Credentials, Secret};
pub use status::Status;
pub use team::{Team, TeamSpec};
pub use upgrade::{
    NodeSelector, SelectorOperator, Upgrade, UpgradeProgress, UpgradeScript, UpgradeSpec, UpgradeStatus, UpgradeType,
};
pub use user::{SshKey, SshKeySpec, User, UserSpec};

use fields::{At, Read as _};

/// The most bytes that a list of objects may have.
const MAX_LIST_BYTES: usize = 64 * 1024 * 1024;

/// The most bytes that any object may have.
const MAX_OPEN_BYTES: usize = 16 * 1024 * 1024;

/// Reads one object.
///
/// # Errors
/// The first field that is wrong, when `bytes` are no such object.
pub fn parse<T: Model>(bytes: &[u8], unknown: Unknown) -> Result<T, InvalidField> {
    let value = document::parse(bytes, T::MAX_BYTES)?;
    T::read(&At::root(&value, unknown))
}

/// Reads an object of which nothing is known but that it is one.
///
/// # Errors
/// When `bytes` are no object, or one in which a key occurs twice.
pub fn parse_open(bytes: &[u8]) -> Result<OpenObject, InvalidField> {
    let value = document::parse(bytes, MAX_OPEN_BYTES)?;
    OpenObject::read(&At::root(&value, Unknown::Refuse))
}

/// Reads a list of objects. Only a JSON array is one: no bytes at all, `null` or a page of HTML is an error and never the
/// empty list, which would mean that everything is to go.
///
/// # Errors
/// As [`parse`]; the field begins with the place in the list, `[3]`.
pub fn parse_list<T: Model>(bytes: &[u8], unknown: Unknown) -> Result<Vec<T>, InvalidField> {
    let value = document::parse(bytes, MAX_LIST_BYTES)?;
    At::root(&value, unknown).items(usize::MAX)
}
