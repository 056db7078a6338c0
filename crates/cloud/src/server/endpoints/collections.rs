//! The table of uniform kinds: each line is six endpoints.

use http::Method;

use super::{
    Action, BINDINGS, CLUSTER, Endpoint, Input, MANIFESTS, NOBODY, Output, POOL, ROLE_LISTS, entry, organization,
};
use crate::server::kind::Kind;
use crate::server::principal::OrgRole;

/// A kind whose objects are listed, created, read, replaced, patched and deleted by common code.
pub(in crate::server) struct Collection {
    pub(super) kind: Kind,
    /// The path of the list.
    pub(super) path: &'static str,
    pub(super) tag: &'static str,
    /// The minimum role that may change an object.
    pub(super) writes: OrgRole,
    /// Whether clusters may read it.
    pub(super) cluster: bool,
    /// The schemas of request and response.
    pub(super) said: &'static str,
    pub(super) shown: &'static str,
}

macro_rules! collections {
    ($($kind:ident $base:ident $word:literal $tag:literal $writes:ident $cluster:literal $said:literal $shown:literal;)+) => {
        &[$(Collection {
            kind: Kind::$kind,
            path: concat!(collections!(@$base), "/", $word),
            tag: $tag,
            writes: OrgRole::$writes,
            cluster: $cluster,
            said: $said,
            shown: $shown,
        }),+]
    };
    (@organization) => { "/v3/organizations/{organization_id}" };
    (@user) => { "/v3/organizations/{organization_id}/users/{user_id}" };
    (@cluster) => { "/v3/organizations/{organization_id}/clusters/{cluster_id}" };
    (@pool) => { "/v3/organizations/{organization_id}/clusters/{cluster_id}/node-pools/{node_pool_id}" };
}

pub(in crate::server) const COLLECTIONS: &[Collection] = collections! {
    Team organization "teams" "Users" Admin false "TeamSpec" "Team";
    Registry organization "registries" "Registries" Admin true "RegistrySpec" "Registry";
    Provider organization "providers" "Providers" Admin false "ProviderSpec" "Provider";
    Cluster organization "clusters" "Clusters" Admin false "ClusterSpec" "Cluster";
    Role organization "roles" "Roles" Admin true "RoleSpec" "Role";
    RoleBinding organization "role-bindings" "Roles" Admin true "RoleBindingSpec" "RoleBinding";
    SshKey user "ssh_keys" "Users" Admin false "SshKeySpec" "SshKey";
    Plugin cluster "plugins" "Plugins" Admin true "PluginSpec" "Plugin";
    ClusterLabel cluster "labels" "Labels" Member true "ClusterLabelSpec" "ClusterLabel";
    NodePool cluster "node-pools" "Node pools" Member true "NodePoolSpec" "NodePool";
    AutoscalingPolicy cluster "autoscaling-policies" "Autoscaling" Member true "AutoscalingPolicySpec" "AutoscalingPolicy";
    Upgrade cluster "upgrades" "Upgrades" Admin true "UpgradeSpec" "Upgrade";
    NodePoolLabel pool "labels" "Labels" Member true "NodePoolLabelSpec" "NodePoolLabel";
    Node pool "nodes" "Node pools" Member true "NodeSpec" "Node";
};

impl Collection {
    pub(super) fn endpoints(&self) -> Vec<Endpoint> {
        let own = self.kind == Kind::SshKey;
        let reads = organization(OrgRole::ReadOnly, self.cluster, own);
        let writes = organization(self.writes, false, own);
        let item = match self.kind {
            Kind::Cluster => CLUSTER.to_owned(),
            Kind::NodePool => POOL.to_owned(),
            _ => format!("{}/{{id}}", self.path),
        };
        let query = match self.kind {
            Kind::Role => ROLE_LISTS,
            Kind::RoleBinding => BINDINGS,
            _ => NOBODY,
        };
        let item_query = if self.kind == Kind::Plugin { MANIFESTS } else { NOBODY };
        let (one, kind, tag) = (self.kind.singular(), self.kind, self.tag);
        // A cluster may read itself, but no list of clusters.
        let item_reads = organization(OrgRole::ReadOnly, self.cluster || kind == Kind::Cluster, own);
        let item_shown = if kind == Kind::Plugin {
            "PluginWithManifests"
        } else {
            self.shown
        };
        let made = if kind == Kind::Cluster {
            "AttachedCluster"
        } else {
            item_shown
        };
        let list = self.path;
        vec![
            entry(
                Method::GET,
                list,
                tag,
                reads,
                Action::List(kind),
                Input::Nothing,
                Output::List(self.shown),
                format!("List all objects of the kind: {one}"),
            )
            .asked(query),
            entry(
                Method::POST,
                list,
                tag,
                writes,
                Action::Create(kind),
                Input::Json(self.said),
                Output::Made(made),
                format!("Create {one}"),
            ),
            entry(
                Method::GET,
                &*item,
                tag,
                item_reads,
                Action::Get(kind),
                Input::Nothing,
                Output::One(item_shown),
                format!("Get {one}"),
            )
            .asked(item_query),
            entry(
                Method::PUT,
                &*item,
                tag,
                writes,
                Action::Replace(kind),
                Input::Json(self.said),
                Output::One(item_shown),
                format!("Replace {one}"),
            ),
            entry(
                Method::PATCH,
                &*item,
                tag,
                writes,
                Action::Patch(kind),
                Input::Patch(self.said),
                Output::One(item_shown),
                format!("Change {one}"),
            ),
            entry(
                Method::DELETE,
                &*item,
                tag,
                writes,
                Action::Delete(kind),
                Input::Nothing,
                Output::Nothing,
                format!("Delete {one}"),
            ),
        ]
    }
}
