//! The table of endpoints: which paths there are, who may ask each, what each takes and answers. The router, the check of
//! who may, the OpenAPI document, the page and the tests all walk this one table.

use std::sync::LazyLock;

use http::Method;

use super::access::May;
use super::kind::Kind;
use super::principal::OrgRole;

/// One method of one path.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The method.
    pub method: Method,
    /// The path, with its parameters in braces: `/v3/organizations/{organization_id}`.
    pub path: String,
    /// What it is for, in a few words.
    pub summary: String,
    /// Under what a reader looks for it.
    pub tag: &'static str,
    /// Who may.
    pub may: May,
    /// What it does.
    pub action: Action,
    /// The query's parameters beside those that its action brings (`limit` and `after` of lists).
    pub query: &'static [Parameter],
    /// Its body.
    pub takes: Takes,
    /// The body of its good answer.
    pub answers: Answers,
}

/// A parameter of the query.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
    /// What it may be.
    pub form: Form,
}

/// What a parameter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `true` or `false`.
    Bool,
    /// A UUID.
    Id,
    /// A version.
    Version,
    /// One of these.
    Words(&'static [&'static str]),
    /// A whole number from 1 to this.
    Number(u32),
}

/// What an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// No body.
    Nothing,
    /// JSON of that schema.
    Json(&'static str),
    /// A JSON merge patch (RFC 7386) of that schema.
    Patch(&'static str),
    /// Text.
    Text,
}

/// What an endpoint answers when it grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// 200 and a list of that schema.
    List(&'static str),
    /// 200 and one of that schema.
    One(&'static str),
    /// 201 and one of that schema.
    Made(&'static str),
    /// 204.
    Nothing,
    /// 200 and text of that type.
    Text(&'static str),
    /// 200 and a stream of events.
    Events,
    /// 200 and JSON that has no schema of ours.
    Json,
}

/// What an endpoint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its endpoint's summary says")]
pub enum Action {
    List(Kind),
    Create(Kind),
    Get(Kind),
    Replace(Kind),
    Patch(Kind),
    Delete(Kind),
    SetStatus(Kind),
    LogIn,
    Authenticate,
    GetAccount,
    ReplaceAccount,
    PatchAccount,
    ChangePassword,
    ListTokens,
    CreateToken,
    RevokeToken,
    ListOrganizations,
    CreateOrganization,
    ListMembers,
    CreateMember,
    GetMember,
    ReplaceMember,
    PatchMember,
    DeleteMember,
    SetRole,
    SetPassword,
    SetLocked,
    Audit,
    ListKeys,
    CreateKey,
    DeleteKey,
    ClusterToken,
    Events,
    ListAssigned,
    Assign,
    Unassign,
    NodeInCluster,
    NodesInCluster,
    SetScript,
    GetScript,
    Catalogue,
    CatalogueType,
    CatalogueDefinition,
    CatalogueVersion,
    SetVersion,
    SetManifests,
    DeleteVersion,
    Templates,
    Discovery,
    Jwks,
    OpenApi,
    Docs,
}

impl Action {
    /// The kind that it is about, of those that act alike on many kinds.
    #[must_use]
    pub const fn kind(self) -> Option<Kind> {
        match self {
            Self::List(kind)
            | Self::Create(kind)
            | Self::Get(kind)
            | Self::Replace(kind)
            | Self::Patch(kind)
            | Self::Delete(kind)
            | Self::SetStatus(kind) => Some(kind),
            _ => None,
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(
            self,
            Self::List(_)
                | Self::Get(_)
                | Self::Authenticate
                | Self::GetAccount
                | Self::ListTokens
                | Self::ListOrganizations
                | Self::ListMembers
                | Self::GetMember
                | Self::Audit
                | Self::ListKeys
                | Self::Events
                | Self::ListAssigned
                | Self::NodeInCluster
                | Self::NodesInCluster
                | Self::GetScript
                | Self::Catalogue
                | Self::CatalogueType
                | Self::CatalogueDefinition
                | Self::CatalogueVersion
                | Self::Templates
                | Self::Discovery
                | Self::Jwks
                | Self::OpenApi
                | Self::Docs
        )
    }
}

/// The kinds that are listed, made, got, replaced, patched and deleted all alike.
pub(super) struct Collection {
    pub(super) kind: Kind,
    /// The path of the list.
    pub(super) path: &'static str,
    pub(super) tag: &'static str,
    /// The least role that may change one.
    pub(super) writes: OrgRole,
    /// Whether a cluster reads them.
    pub(super) cluster: bool,
    /// Schemas: what is said, and what is answered.
    pub(super) said: &'static str,
    pub(super) shown: &'static str,
}

const ORGANIZATION: &str = "/v3/organizations/{organization_id}";
const CLUSTER: &str = "/v3/organizations/{organization_id}/clusters/{cluster_id}";
const POOL: &str = "/v3/organizations/{organization_id}/clusters/{cluster_id}/node-pools/{node_pool_id}";

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

pub(super) const COLLECTIONS: &[Collection] = collections! {
    Team organization "teams" "Users" Admin false "TeamSpec" "Team";
    Registry organization "registries" "Registries" Admin true "RegistrySpec" "Registry";
    Provider organization "providers" "Providers" Admin false "ProviderSpec" "Provider";
    Cluster organization "clusters" "Clusters" Admin false "ClusterSpec" "Cluster";
    Role organization "roles" "Roles" Admin true "RoleSpec" "Role";
    RoleBinding organization "role-bindings" "Roles" Admin true "RoleBindingSpec" "RoleBinding";
    SshKey user "ssh_keys" "Users" Admin false "SshKeySpec" "SshKey";
    Plugin cluster "plugins" "Plugins" Admin true "PluginSpec" "Plugin";
    ClusterLabel cluster "labels" "Labels" Member true "LabelSpec" "ClusterLabel";
    NodePool cluster "node-pools" "Node pools" Member true "NodePoolSpec" "NodePool";
    AutoscalingPolicy cluster "autoscaling-policies" "Autoscaling" Member true "AutoscalingPolicySpec" "AutoscalingPolicy";
    Upgrade cluster "upgrades" "Upgrades" Admin true "UpgradeSpec" "Upgrade";
    NodePoolLabel pool "labels" "Labels" Member true "LabelSpec" "NodePoolLabel";
    Node pool "nodes" "Node pools" Member true "NodeSpec" "Node";
};

const ROLE_LISTS: &[Parameter] = &[
    Parameter {
        name: "side_load",
        description: "`rules` shows each role's rules",
        form: Form::Words(&["rules"]),
    },
    Parameter {
        name: "remove_empty",
        description: "leaves out roles without a rule of `rule_type`",
        form: Form::Bool,
    },
    Parameter {
        name: "rule_type",
        description: "shows rules of this type only",
        form: Form::Words(&["kubernetes", "containership"]),
    },
];
const BINDINGS: &[Parameter] = &[Parameter {
    name: "cluster_id",
    description: "those of this cluster and those of every cluster",
    form: Form::Id,
}];
const MANIFESTS: &[Parameter] = &[Parameter {
    name: "previous_version",
    description: "the version that the cluster has now",
    form: Form::Version,
}];
const SCRIPT: &[Parameter] = &[Parameter {
    name: "version",
    description: "the version to upgrade to, without v",
    form: Form::Version,
}];
const AUDIT: &[Parameter] = &[
    Parameter {
        name: "limit",
        description: "at most so many, the newest first",
        form: Form::Number(1_000),
    },
    Parameter {
        name: "before",
        description: "only changes with a smaller number",
        form: Form::Number(u32::MAX),
    },
];

const NOBODY: &[Parameter] = &[];

fn organization(role: OrgRole, cluster: bool, own: bool) -> May {
    May::Organization { role, cluster, own }
}

#[expect(clippy::too_many_arguments, reason = "each is a column of the table")]
fn entry(
    method: Method,
    path: impl Into<String>,
    tag: &'static str,
    may: May,
    action: Action,
    takes: Takes,
    answers: Answers,
    summary: impl Into<String>,
) -> Endpoint {
    Endpoint {
        method,
        path: path.into(),
        summary: summary.into(),
        tag,
        may,
        action,
        query: NOBODY,
        takes,
        answers,
    }
}

impl Endpoint {
    fn asked(mut self, query: &'static [Parameter]) -> Self {
        self.query = query;
        self
    }
}

/// Every endpoint.
pub static ENDPOINTS: LazyLock<Vec<Endpoint>> = LazyLock::new(|| {
    let mut all = Vec::new();
    all.extend(accounts());
    all.extend(organizations());
    for collection in COLLECTIONS {
        all.extend(collection.endpoints());
    }
    all.extend(clusters());
    all.extend(catalogue());
    all.extend(documents());
    all
});

impl Collection {
    fn endpoints(&self) -> Vec<Endpoint> {
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
        // A cluster sees itself, and no list of others.
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
                Takes::Nothing,
                Answers::List(self.shown),
                format!("List: {one} each"),
            )
            .asked(query),
            entry(
                Method::POST,
                list,
                tag,
                writes,
                Action::Create(kind),
                Takes::Json(self.said),
                Answers::Made(made),
                format!("Make {one}"),
            ),
            entry(
                Method::GET,
                &*item,
                tag,
                item_reads,
                Action::Get(kind),
                Takes::Nothing,
                Answers::One(item_shown),
                format!("Get {one}"),
            )
            .asked(item_query),
            entry(
                Method::PUT,
                &*item,
                tag,
                writes,
                Action::Replace(kind),
                Takes::Json(self.said),
                Answers::One(item_shown),
                format!("Replace {one}"),
            ),
            entry(
                Method::PATCH,
                &*item,
                tag,
                writes,
                Action::Patch(kind),
                Takes::Patch(self.said),
                Answers::One(item_shown),
                format!("Change {one}"),
            ),
            entry(
                Method::DELETE,
                &*item,
                tag,
                writes,
                Action::Delete(kind),
                Takes::Nothing,
                Answers::Nothing,
                format!("Delete {one}"),
            ),
        ]
    }
}

#[rustfmt::skip]
fn accounts() -> Vec<Endpoint> {
    use Action as A;
    let t = "Account";
    vec![
        entry(Method::POST, "/v3/login/{method}", t, May::Anyone, A::LogIn, Takes::Json("LoginRequest"), Answers::One("Token"), "Log in with `password`, or, as a cluster, with `api_key`"),
        entry(Method::GET, "/v3/authenticate", t, May::Known, A::Authenticate, Takes::Nothing, Answers::One("Authenticated"), "Who the token is"),
        entry(Method::GET, "/v3/account", t, May::User, A::GetAccount, Takes::Nothing, Answers::One("Account"), "Get one's own account"),
        entry(Method::PUT, "/v3/account", t, May::User, A::ReplaceAccount, Takes::Json("AccountSpec"), Answers::One("Account"), "Replace one's own account"),
        entry(Method::PATCH, "/v3/account", t, May::User, A::PatchAccount, Takes::Patch("AccountSpec"), Answers::One("Account"), "Change one's own account"),
        entry(Method::PUT, "/v3/account/password", t, May::User, A::ChangePassword, Takes::Json("PasswordChange"), Answers::Nothing, "Change one's own password; all tokens of other logins end"),
        entry(Method::GET, "/v3/account/ssh_keys", t, May::User, A::List(Kind::SshKey), Takes::Nothing, Answers::List("SshKey"), "List one's own SSH keys"),
        entry(Method::POST, "/v3/account/ssh_keys", t, May::User, A::Create(Kind::SshKey), Takes::Json("SshKeySpec"), Answers::Made("SshKey"), "Add an SSH key of one's own"),
        entry(Method::DELETE, "/v3/account/ssh_keys/{id}", t, May::User, A::Delete(Kind::SshKey), Takes::Nothing, Answers::Nothing, "Delete an SSH key of one's own"),
        entry(Method::GET, "/v3/account/tokens", t, May::User, A::ListTokens, Takes::Nothing, Answers::List("TokenInfo"), "List one's own tokens"),
        entry(Method::POST, "/v3/account/tokens", t, May::User, A::CreateToken, Takes::Json("TokenSpec"), Answers::Made("CreatedToken"), "Make a token; its text is shown once"),
        entry(Method::DELETE, "/v3/account/tokens/{id}", t, May::User, A::RevokeToken, Takes::Nothing, Answers::Nothing, "Revoke a token"),
    ]
}

#[rustfmt::skip]
fn organizations() -> Vec<Endpoint> {
    use Action as A;
    let (t, u) = ("Organizations", "Users");
    let users = format!("{ORGANIZATION}/users");
    let user = format!("{users}/{{user_id}}");
    let reads = organization(OrgRole::ReadOnly, false, false);
    let admin = organization(OrgRole::Admin, false, false);
    let owner = organization(OrgRole::Owner, false, false);
    vec![
        entry(Method::GET, "/v3/organizations", t, May::User, A::ListOrganizations, Takes::Nothing, Answers::List("Organization"), "List the organizations that one is in"),
        entry(Method::POST, "/v3/organizations", t, May::Operator, A::CreateOrganization, Takes::Json("OrganizationSpec"), Answers::Made("Organization"), "Make an organization; whoever makes it owns it"),
        entry(Method::GET, ORGANIZATION, t, organization(OrgRole::ReadOnly, true, false), A::Get(Kind::Organization), Takes::Nothing, Answers::One("Organization"), "Get an organization"),
        entry(Method::PUT, ORGANIZATION, t, owner, A::Replace(Kind::Organization), Takes::Json("OrganizationSpec"), Answers::One("Organization"), "Replace an organization"),
        entry(Method::PATCH, ORGANIZATION, t, owner, A::Patch(Kind::Organization), Takes::Patch("OrganizationSpec"), Answers::One("Organization"), "Change an organization"),
        entry(Method::PUT, format!("{ORGANIZATION}/locked"), t, May::Operator, A::SetLocked, Takes::Json("Lock"), Answers::One("Organization"), "Lock an organization, so that nothing in it changes, or unlock it"),
        entry(Method::DELETE, ORGANIZATION, t, owner, A::Delete(Kind::Organization), Takes::Nothing, Answers::Nothing, "Delete an organization and everything in it"),
        entry(Method::GET, &*users, u, organization(OrgRole::ReadOnly, true, false), A::ListMembers, Takes::Nothing, Answers::List("User"), "List the users of an organization and their SSH keys"),
        entry(Method::POST, &*users, u, admin, A::CreateMember, Takes::Json("MemberSpec"), Answers::Made("User"), "Make a user, at home in this organization"),
        entry(Method::GET, &*user, u, organization(OrgRole::ReadOnly, true, false), A::GetMember, Takes::Nothing, Answers::One("User"), "Get a user"),
        entry(Method::PUT, &*user, u, admin, A::ReplaceMember, Takes::Json("UserSpec"), Answers::One("User"), "Replace a user who is at home here"),
        entry(Method::PATCH, &*user, u, admin, A::PatchMember, Takes::Patch("UserSpec"), Answers::One("User"), "Change a user who is at home here"),
        entry(Method::DELETE, &*user, u, admin, A::DeleteMember, Takes::Nothing, Answers::Nothing, "Take a user out of the organization; out of his home, delete him"),
        entry(Method::PUT, format!("{user}/role"), u, admin, A::SetRole, Takes::Json("RoleChange"), Answers::One("Membership"), "Say what a user is in the organization; an operator also adds one of another organization"),
        entry(Method::PUT, format!("{user}/password"), u, admin, A::SetPassword, Takes::Json("NewPassword"), Answers::Nothing, "Set the password of a user who is at home here; his tokens end"),
        entry(Method::GET, format!("{ORGANIZATION}/audit"), t, admin, A::Audit, Takes::Nothing, Answers::List("AuditRow"), "Who changed what, and when").asked(AUDIT),
        entry(Method::GET, format!("{ORGANIZATION}/templates"), "Clusters", reads, A::Templates, Takes::Nothing, Answers::Json, "Provisioning templates: there are none, because nothing is provisioned here"),
    ]
}

#[rustfmt::skip]
fn clusters() -> Vec<Endpoint> {
    use Action as A;
    let (t, p, n) = ("Clusters", "Autoscaling", "Node pools");
    let reads = organization(OrgRole::ReadOnly, true, false);
    let admin = organization(OrgRole::Admin, false, false);
    let member = organization(OrgRole::Member, false, false);
    let reports = organization(OrgRole::Admin, true, false);
    let keys = format!("{CLUSTER}/api-keys");
    let assigned = format!("{POOL}/autoscaling-policies");
    let upgrade = format!("{CLUSTER}/upgrades/{{upgrade_id}}");
    vec![
        entry(Method::PUT, format!("{CLUSTER}/status"), t, reports, A::SetStatus(Kind::Cluster), Takes::Json("StatusReport"), Answers::One("Cluster"), "Say how a cluster is doing"),
        entry(Method::PUT, format!("{POOL}/status"), n, reports, A::SetStatus(Kind::NodePool), Takes::Json("StatusReport"), Answers::One("NodePool"), "Say how a node pool is doing"),
        entry(Method::PUT, format!("{CLUSTER}/nodes/{{id}}/status"), n, reports, A::SetStatus(Kind::Node), Takes::Json("StatusReport"), Answers::One("Node"), "Say how a node is doing"),
        entry(Method::PUT, format!("{upgrade}/status"), "Upgrades", reports, A::SetStatus(Kind::Upgrade), Takes::Json("UpgradeReport"), Answers::One("Upgrade"), "Say how far an upgrade is"),
        entry(Method::GET, &*keys, t, admin, A::ListKeys, Takes::Nothing, Answers::List("ApiKeyInfo"), "List a cluster's API keys, without the keys"),
        entry(Method::POST, &*keys, t, admin, A::CreateKey, Takes::Nothing, Answers::Made("CreatedApiKey"), "Make an API key for a cluster; it is shown once"),
        entry(Method::DELETE, format!("{keys}/{{id}}"), t, admin, A::DeleteKey, Takes::Nothing, Answers::Nothing, "Delete an API key"),
        entry(Method::POST, format!("{CLUSTER}/token"), t, organization(OrgRole::ReadOnly, false, false), A::ClusterToken, Takes::Nothing, Answers::One("ClusterToken"), "Make a short token for this cluster's kube-apiserver"),
        entry(Method::GET, format!("{CLUSTER}/events"), t, reads, A::Events, Takes::Nothing, Answers::Events, "Hear which kinds change for a cluster"),
        entry(Method::GET, format!("{CLUSTER}/roles"), "Roles", reads, A::List(Kind::Role), Takes::Nothing, Answers::List("Role"), "List the roles that a cluster mirrors").asked(ROLE_LISTS),
        entry(Method::GET, format!("{CLUSTER}/nodes"), n, reads, A::NodesInCluster, Takes::Nothing, Answers::List("Node"), "List the nodes of all node pools"),
        entry(Method::GET, format!("{CLUSTER}/nodes/{{id}}"), n, reads, A::NodeInCluster, Takes::Nothing, Answers::One("Node"), "Get a node of any node pool"),
        entry(Method::GET, format!("{CLUSTER}/nodes/{{id}}/upgrade/kubernetes"), "Upgrades", reports, A::GetScript, Takes::Nothing, Answers::Text("text/x-shellscript"), "Get the script with which a node upgrades itself").asked(SCRIPT),
        entry(Method::PUT, format!("{upgrade}/script"), "Upgrades", admin, A::SetScript, Takes::Text, Answers::Nothing, "Set the script of an upgrade, for every node"),
        entry(Method::PUT, format!("{upgrade}/nodes/{{id}}/script"), "Upgrades", admin, A::SetScript, Takes::Text, Answers::Nothing, "Set the script of an upgrade for one node"),
        entry(Method::GET, &*assigned, p, reads, A::ListAssigned, Takes::Nothing, Answers::List("AutoscalingPolicy"), "List the policies that scale a node pool"),
        entry(Method::PUT, format!("{assigned}/{{id}}"), p, member, A::Assign, Takes::Nothing, Answers::Nothing, "Have a policy scale a node pool"),
        entry(Method::DELETE, format!("{assigned}/{{id}}"), p, member, A::Unassign, Takes::Nothing, Answers::Nothing, "Have a policy scale a node pool no more"),
    ]
}

#[rustfmt::skip]
fn catalogue() -> Vec<Endpoint> {
    use Action as A;
    let t = "Catalogue";
    let definition = "/v3/plugins/{type}/implementations/{implementation}";
    let version = format!("{definition}/versions/{{version}}");
    vec![
        entry(Method::GET, "/v3/plugins", t, May::Known, A::Catalogue, Takes::Nothing, Answers::One("Catalogue"), "Get the catalogue of plugins"),
        entry(Method::GET, "/v3/plugins/{type}", t, May::Known, A::CatalogueType, Takes::Nothing, Answers::List("PluginDefinition"), "List the plugins of a type"),
        entry(Method::GET, definition, t, May::Known, A::CatalogueDefinition, Takes::Nothing, Answers::One("PluginDefinition"), "Get the definition of a plugin"),
        entry(Method::GET, &*version, t, May::Known, A::CatalogueVersion, Takes::Nothing, Answers::One("PluginVersion"), "Get a version of a plugin"),
        entry(Method::PUT, &*version, t, May::Operator, A::SetVersion, Takes::Json("PluginVersion"), Answers::One("PluginVersion"), "Put a version into the catalogue"),
        entry(Method::PUT, format!("{version}/manifests"), t, May::Operator, A::SetManifests, Takes::Json("PluginManifests"), Answers::Nothing, "Put the manifests of a version into the catalogue"),
        entry(Method::DELETE, &*version, t, May::Operator, A::DeleteVersion, Takes::Nothing, Answers::Nothing, "Take a version out of the catalogue"),
    ]
}

#[rustfmt::skip]
fn documents() -> Vec<Endpoint> {
    use Action as A;
    let t = "Server";
    vec![
        entry(Method::GET, "/.well-known/openid-configuration", t, May::Anyone, A::Discovery, Takes::Nothing, Answers::Json, "Say what this OpenID Connect issuer is"),
        entry(Method::GET, "/.well-known/jwks.json", t, May::Anyone, A::Jwks, Takes::Nothing, Answers::Json, "Give the keys that verify its tokens"),
        entry(Method::GET, "/openapi.json", t, May::Anyone, A::OpenApi, Takes::Nothing, Answers::Json, "Describe this API to programs (OpenAPI 3.1)"),
        entry(Method::GET, "/docs", t, May::Anyone, A::Docs, Takes::Nothing, Answers::Text("text/html; charset=utf-8"), "Describe this API to people"),
    ]
}
