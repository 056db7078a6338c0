//! The paths of objects, from typed ids: no path is concatenated from strings.

use std::fmt::Display;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use crate::models::values::{ClusterId, KubernetesVersion, NodeId, NodePoolId, OrganizationId, PluginId, UpgradeId};

/// The characters of a segment that a URL escapes (RFC 3986, section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path of the API below `/v3`, with its query; or one below `/.well-known`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    root: &'static str,
    segments: Vec<String>,
    query: Vec<(&'static str, String)>,
}

impl Path {
    /// The path with these segments, which may contain any characters.
    pub fn new<S: Display>(segments: impl IntoIterator<Item = S>) -> Self {
        Self {
            root: "v3",
            segments: segments.into_iter().map(|segment| segment.to_string()).collect(),
            query: Vec::new(),
        }
    }

    /// The path of a document of the issuer of tokens.
    #[must_use]
    pub fn well_known(name: &str) -> Self {
        Self {
            root: ".well-known",
            ..Self::new([name])
        }
    }

    #[must_use]
    pub fn below(mut self, segment: impl Display) -> Self {
        self.segments.push(segment.to_string());
        self
    }

    #[must_use]
    pub fn query(mut self, name: &'static str, value: impl Display) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    #[must_use]
    pub fn map(mut self, change: impl Fn(String) -> String) -> Self {
        self.segments = self.segments.into_iter().map(change).collect();
        self
    }

    /// The segments, as they are before a URL escapes them.
    pub(crate) fn segments(&self) -> &[String] {
        &self.segments
    }

    /// The path and the query, with what a URL escapes.
    pub(crate) fn uri(&self) -> String {
        let segments = self
            .segments
            .iter()
            .map(|segment| utf8_percent_encode(segment, ESCAPED).to_string());
        let path: Vec<String> = segments.collect();
        let mut uri = format!("/{}/{}", self.root, path.join("/"));
        if !self.query.is_empty() {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            uri.push('?');
            uri.push_str(&query.extend_pairs(&self.query).finish());
        }
        uri
    }

    /// The full URL, on the base URL that serves this path.
    pub(super) fn url(&self, bases: &[Url; 3]) -> Url {
        let mut url = bases[self.base()].clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().push(self.root).extend(&self.segments);
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }

    /// API is 0, Provision 1, Auth 2, as in `containership.md`.
    fn base(&self) -> usize {
        const PROVISION: [&str; 5] = ["node-pools", "nodes", "autoscaling-policies", "upgrades", "templates"];
        const AUTH: [&str; 3] = ["roles", "role-bindings", "token"];
        if self.root != "v3" {
            return 2;
        }
        let below = match self.segments.first().map(String::as_str) {
            Some("login" | "authenticate") => return 2,
            Some("organizations") => self.segments.get(2..).unwrap_or_default(),
            _ => return 0,
        };
        let has = |words: &[&str]| below.iter().any(|segment| words.contains(&segment.as_str()));
        match (has(&PROVISION), has(&AUTH)) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 0,
        }
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}/{}", self.root, self.segments.join("/"))
    }
}

/// Paths one segment below that of the object.
macro_rules! paths {
    ($($(#[$doc:meta])* $name:ident: $segment:literal;)+) => { $(
        $(#[$doc])*
        #[must_use]
        pub fn $name(self) -> Path {
            self.path().below($segment)
        }
    )+ };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Organization(pub OrganizationId);

impl Organization {
    #[must_use]
    pub fn path(self) -> Path {
        Path::new(["organizations"]).below(self.0)
    }

    paths! {
        users: "users";
        registries: "registries";
    }
}

/// A cluster of an organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub organization: OrganizationId,
    pub id: ClusterId,
}

impl Cluster {
    #[must_use]
    pub fn path(self) -> Path {
        Organization(self.organization).path().below("clusters").below(self.id)
    }

    #[must_use]
    pub fn organization(self) -> Organization {
        Organization(self.organization)
    }

    #[must_use]
    pub fn plugin(self, plugin: PluginId) -> Path {
        self.plugins().below(plugin)
    }

    #[must_use]
    pub fn node_pool(self, pool: NodePoolId) -> Path {
        self.node_pools().below(pool)
    }

    #[must_use]
    pub fn node_pool_labels(self, pool: NodePoolId) -> Path {
        self.node_pool(pool).below("labels")
    }

    /// The autoscaling policies of a node pool.
    #[must_use]
    pub fn node_pool_policies(self, pool: NodePoolId) -> Path {
        self.node_pool(pool).below("autoscaling-policies")
    }

    #[must_use]
    pub fn node_status(self, node: NodeId) -> Path {
        self.nodes().below(node).below("status")
    }

    /// The script that upgrades a node to a version.
    #[must_use]
    pub fn upgrade_script(self, node: NodeId, version: &KubernetesVersion) -> Path {
        let path = self.nodes().below(node).below("upgrade").below("kubernetes");
        path.query("version", version)
    }

    /// Its roles with their rules, without rules of other types than Kubernetes.
    #[must_use]
    pub fn roles(self) -> Path {
        let path = self.path().below("roles").query("side_load", "rules");
        path.query("remove_empty", true).query("rule_type", "kubernetes")
    }

    /// The role bindings that apply to it.
    #[must_use]
    pub fn role_bindings(self) -> Path {
        let path = Organization(self.organization).path().below("role-bindings");
        path.query("cluster_id", self.id)
    }

    #[must_use]
    pub fn upgrade_status(self, upgrade: UpgradeId) -> Path {
        self.upgrades().below(upgrade).below("status")
    }

    paths! {
        status: "status";
        /// The report of the cluster on itself.
        report: "report";
        /// The releases and approvals for the cluster.
        decisions: "decisions";
        plugins: "plugins";
        labels: "labels";
        node_pools: "node-pools";
        nodes: "nodes";
        /// The users who may log in on its nodes.
        ssh_users: "ssh-users";
        autoscaling_policies: "autoscaling-policies";
        upgrades: "upgrades";
        deletions: "deletions";
        events: "events";
    }
}
