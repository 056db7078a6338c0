//! The table of endpoints, with the required permission, the request body and the response of each. The router, the
//! permission check, the OpenAPI document, the page and the tests all iterate over this table.

mod collections;
mod table;

use std::sync::LazyLock;

use http::Method;

use super::access::Permission;
use super::kind::Kind;
use super::principal::OrgRole;
pub(super) use collections::COLLECTIONS;

/// A method of a path.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The method.
    pub method: Method,
    /// The path, with its parameters in braces: `/v3/organizations/{organization_id}`.
    pub path: String,
    /// A short summary.
    pub summary: String,
    /// The section in the description.
    pub tag: &'static str,
    /// The required permission.
    pub may: Permission,
    /// The action.
    pub action: Action,
    /// The query parameters, besides those of its action (`limit` and `after` of lists).
    pub query: &'static [Parameter],
    /// The request body.
    pub takes: Input,
    /// The body of a successful response.
    pub answers: Output,
}

/// A parameter of the query.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub description: &'static str,
    /// Its type.
    pub form: ParameterType,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// `true` or `false`.
    Bool,
    /// A UUID.
    Id,
    /// A semantic version.
    Version,
    /// One of these values.
    Words(&'static [&'static str]),
    /// An integer from 1 to this maximum.
    Number(u32),
}

/// The request body of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// No body.
    Nothing,
    /// JSON with this schema.
    Json(&'static str),
    /// A JSON merge patch (RFC 7386) of this schema.
    Patch(&'static str),
    /// Text.
    Text,
}

/// The successful response of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// 200 with a list of objects with this schema.
    List(&'static str),
    /// 200 with an object with this schema.
    One(&'static str),
    /// 201 with an object with this schema.
    Made(&'static str),
    /// 204.
    Nothing,
    /// 200 with text of this media type.
    Text(&'static str),
    /// 200 with a stream of events.
    Events,
    /// 200 with JSON that has no schema here.
    Json,
}

/// The action of an endpoint.
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
    ListSshUsers,
    CreateMember,
    GetMember,
    ReplaceMember,
    PatchMember,
    DeleteMember,
    SetRole,
    SetPassword,
    SetLocked,
    ListOperators,
    AddOperator,
    RemoveOperator,
    EndLogins,
    Audit,
    ServerAudit,
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
    GetManifests,
    SetManifests,
    DeleteVersion,
    Templates,
    Discovery,
    Jwks,
    OpenApi,
    Docs,
}

impl Action {
    /// The kind of the objects, for actions that many kinds share.
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

    /// Whether the action is read-only.
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
                | Self::ListSshUsers
                | Self::GetMember
                | Self::ListOperators
                | Self::Audit
                | Self::ServerAudit
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
                | Self::GetManifests
                | Self::Templates
                | Self::Discovery
                | Self::Jwks
                | Self::OpenApi
                | Self::Docs
        )
    }
}

const ORGANIZATION: &str = "/v3/organizations/{organization_id}";
const CLUSTER: &str = "/v3/organizations/{organization_id}/clusters/{cluster_id}";
const POOL: &str = "/v3/organizations/{organization_id}/clusters/{cluster_id}/node-pools/{node_pool_id}";

const ROLE_LISTS: &[Parameter] = &[
    Parameter {
        name: "side_load",
        description: "`rules` includes the rules of each role",
        form: ParameterType::Words(&["rules"]),
    },
    Parameter {
        name: "remove_empty",
        description: "omits roles without a rule of `rule_type`",
        form: ParameterType::Bool,
    },
    Parameter {
        name: "rule_type",
        description: "includes only rules of this type",
        form: ParameterType::Words(&["kubernetes", "containership"]),
    },
];
const BINDINGS: &[Parameter] = &[Parameter {
    name: "cluster_id",
    description: "only those of this cluster and those that apply to all clusters",
    form: ParameterType::Id,
}];
const MANIFESTS: &[Parameter] = &[Parameter {
    name: "previous_version",
    description: "the current version of the cluster",
    form: ParameterType::Version,
}];
const SCRIPT: &[Parameter] = &[Parameter {
    name: "version",
    description: "the target version, without v",
    form: ParameterType::Version,
}];
const AUDIT: &[Parameter] = &[
    Parameter {
        name: "limit",
        description: "the maximum number of changes, newest first",
        form: ParameterType::Number(1_000),
    },
    Parameter {
        name: "before",
        description: "only changes with a smaller number",
        form: ParameterType::Number(u32::MAX),
    },
];

const NOBODY: &[Parameter] = &[];

fn organization(role: OrgRole, cluster: bool, own: bool) -> Permission {
    Permission::Organization { role, cluster, own }
}

#[expect(clippy::too_many_arguments, reason = "each is a column of the table")]
fn entry(
    method: Method,
    path: impl Into<String>,
    tag: &'static str,
    may: Permission,
    action: Action,
    takes: Input,
    answers: Output,
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
    all.extend(table::accounts());
    all.extend(table::organizations());
    all.extend(table::operators());
    for collection in COLLECTIONS {
        all.extend(collection.endpoints());
    }
    all.extend(table::clusters());
    all.extend(table::catalogue());
    all.extend(table::documents());
    all
});
