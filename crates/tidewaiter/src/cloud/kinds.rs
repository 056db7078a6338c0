//! The kinds that the command line knows: path, name fields, columns, and the validation of a document before it is
//! sent.

use clap::ValueEnum as _;
use serde::Serialize;
use serde_json::Value;
use tidewaiter_cloud::models::{
    AutoscalingPolicySpec, ClusterLabelSpec, ClusterSpec, InvalidField, Model, NodePoolLabelSpec, NodePoolSpec,
    NodeSpec, OrganizationSpec, PluginSpec, ProviderSpec, RegistrySpec, RoleBindingSpec, RoleSpec, SshKeySpec,
    TeamSpec, Unknown, UpgradeSpec, UserSpec, parse,
};

use crate::cli::CloudKind;

/// The parent of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Account,
    Organization,
    User,
    Cluster,
    NodePool,
}

/// The properties of a kind.
pub(super) struct Shape {
    /// Its name in documents.
    pub(super) name: &'static str,
    pub(super) scope: Scope,
    /// The last part of the list's path.
    pub(super) segment: &'static str,
    /// The fields that together are unique within a list: the name of an object.
    pub(super) key: &'static [&'static str],
    /// The columns of a table, besides the id.
    pub(super) columns: &'static [&'static str],
    /// Whether `apply` supports it.
    pub(super) declared: bool,
    check: fn(&Value) -> Result<Value, InvalidField>,
}

/// Fields that no table, no diff and no message shows.
pub(super) const SECRETS: [&str; 2] = ["credentials", "password"];

/// The kinds that documents may name.
pub(super) fn named(name: &str) -> Option<CloudKind> {
    CloudKind::value_variants()
        .iter()
        .copied()
        .find(|kind| kind.shape().name == name)
}

impl Shape {
    /// The normalized spec with all fields. It contains credentials unchanged.
    pub(super) fn check(&self, spec: &Value) -> Result<Value, InvalidField> {
        let mut normal = (self.check)(spec)?;
        if let Some(credentials) = spec.get("credentials").filter(|given| !given.is_null()) {
            normal["credentials"] = credentials.clone();
        }
        Ok(normal)
    }
}

fn check<T: Model + Serialize>(spec: &Value) -> Result<Value, InvalidField> {
    let spec: T = parse(spec.to_string().as_bytes(), Unknown::Refuse)?;
    serde_json::to_value(spec).map_err(|error| InvalidField {
        field: String::new(),
        reason: error.to_string(),
    })
}

macro_rules! shapes {
    ($($kind:ident: $name:literal $scope:ident $segment:literal [$($key:literal)*] [$($column:literal)*] $declared:literal $check:expr;)+) => {
        impl CloudKind {
            /// The properties of the kind.
            pub(super) fn shape(self) -> &'static Shape {
                match self {
                    $(Self::$kind => const { &Shape {
                        name: $name,
                        scope: Scope::$scope,
                        segment: $segment,
                        key: &[$($key),*],
                        columns: &[$($column),*],
                        declared: $declared,
                        check: $check,
                    } }),+
                }
            }
        }
    };
}

shapes! {
    Organizations: "Organization" Account "organizations" ["name"] ["name" "locked"] false check::<OrganizationSpec>;
    Users: "User" Organization "users" ["email"] ["email" "name" "added_at"] true check::<UserSpec>;
    SshKeys: "SshKey" User "ssh_keys" ["key"] ["name" "fingerprint"] true check::<SshKeySpec>;
    Teams: "Team" Organization "teams" ["name"] ["name" "description"] true check::<TeamSpec>;
    Roles: "Role" Organization "roles" ["name"] ["name" "description"] true check::<RoleSpec>;
    Registries: "Registry" Organization "registries" ["serveraddress" "description"] ["serveraddress" "provider" "description"] true check::<RegistrySpec>;
    Providers: "Provider" Organization "providers" ["provider" "description"] ["provider" "description"] true check::<ProviderSpec>;
    Clusters: "Cluster" Organization "clusters" ["name"] ["name" "provider_name" "version" "status"] false check::<ClusterSpec>;
    Labels: "ClusterLabel" Cluster "labels" ["key"] ["key" "value"] true check::<ClusterLabelSpec>;
    Plugins: "Plugin" Cluster "plugins" ["type" "implementation"] ["type" "implementation" "version"] true check::<PluginSpec>;
    AutoscalingPolicies: "AutoscalingPolicy" Cluster "autoscaling-policies" ["name"] ["name" "metric" "poll_interval"] true check::<AutoscalingPolicySpec>;
    NodePools: "NodePool" Cluster "node-pools" ["name"] ["name" "kubernetes_mode" "count" "kubernetes_version" "status"] true check::<NodePoolSpec>;
    NodePoolLabels: "NodePoolLabel" NodePool "labels" ["key"] ["key" "value"] true check::<NodePoolLabelSpec>;
    Nodes: "Node" NodePool "nodes" ["name"] ["name" "node_pool_id" "status" "updated_at"] false check::<NodeSpec>;
    RoleBindings: "RoleBinding" Organization "role-bindings" ["type" "user_id" "team_id" "authorization_role_id" "cluster_id" "namespace"] ["type" "authorization_role_id" "user_id" "team_id" "cluster_id" "namespace"] true check::<RoleBindingSpec>;
    Upgrades: "Upgrade" Cluster "upgrades" [] ["type" "targetVersion" "description" "status"] false check::<UpgradeSpec>;
}
