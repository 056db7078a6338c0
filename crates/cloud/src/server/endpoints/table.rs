//! The endpoints that are not uniform for all kinds.

use http::Method;

use super::{
    AUDIT, Action, CLUSTER, Endpoint, Input, ORGANIZATION, Output, POOL, ROLE_LISTS, SCRIPT, entry, organization,
};
use crate::server::access::Permission;
use crate::server::kind::Kind;
use crate::server::principal::OrgRole;

#[rustfmt::skip]
pub(super) fn accounts() -> Vec<Endpoint> {
    use Action as A;
    let t = "Account";
    vec![
        entry(Method::POST, "/v3/login/{method}", t, Permission::Anyone, A::LogIn, Input::Json("LoginRequest"), Output::One("Token"), "Log in with `password`, or, as a cluster, with `api_key`"),
        entry(Method::GET, "/v3/authenticate", t, Permission::Known, A::Authenticate, Input::Nothing, Output::One("Authenticated"), "Show the identity that a token belongs to"),
        entry(Method::GET, "/v3/account", t, Permission::User, A::GetAccount, Input::Nothing, Output::One("Account"), "Get your own account"),
        entry(Method::PUT, "/v3/account", t, Permission::User, A::ReplaceAccount, Input::Json("AccountSpec"), Output::One("Account"), "Replace your own account"),
        entry(Method::PATCH, "/v3/account", t, Permission::User, A::PatchAccount, Input::Patch("AccountSpec"), Output::One("Account"), "Change your own account"),
        entry(Method::PUT, "/v3/account/password", t, Permission::User, A::ChangePassword, Input::Json("PasswordChange"), Output::Nothing, "Change your own password; the tokens of all other logins become invalid"),
        entry(Method::GET, "/v3/account/ssh_keys", t, Permission::User, A::List(Kind::SshKey), Input::Nothing, Output::List("SshKey"), "List your own SSH keys"),
        entry(Method::POST, "/v3/account/ssh_keys", t, Permission::User, A::Create(Kind::SshKey), Input::Json("SshKeySpec"), Output::Made("SshKey"), "Add an SSH key to your own account"),
        entry(Method::DELETE, "/v3/account/ssh_keys/{id}", t, Permission::User, A::Delete(Kind::SshKey), Input::Nothing, Output::Nothing, "Delete an SSH key of your own account"),
        entry(Method::GET, "/v3/account/tokens", t, Permission::User, A::ListTokens, Input::Nothing, Output::List("TokenInfo"), "List your own tokens"),
        entry(Method::POST, "/v3/account/tokens", t, Permission::User, A::CreateToken, Input::Json("TokenSpec"), Output::Made("CreatedToken"), "Create a token; it is shown only once"),
        entry(Method::DELETE, "/v3/account/tokens/{id}", t, Permission::User, A::RevokeToken, Input::Nothing, Output::Nothing, "Revoke a token; `current` is the one of the request"),
    ]
}

#[rustfmt::skip]
pub(super) fn organizations() -> Vec<Endpoint> {
    use Action as A;
    let (t, u) = ("Organizations", "Users");
    let users = format!("{ORGANIZATION}/users");
    let user = format!("{users}/{{user_id}}");
    let reads = organization(OrgRole::ReadOnly, false, false);
    let admin = organization(OrgRole::Admin, false, false);
    let owner = organization(OrgRole::Owner, false, false);
    vec![
        entry(Method::GET, "/v3/organizations", t, Permission::User, A::ListOrganizations, Input::Nothing, Output::List("Organization"), "List the organizations that you are a member of"),
        entry(Method::POST, "/v3/organizations", t, Permission::Operator, A::CreateOrganization, Input::Json("OrganizationSpec"), Output::Made("Organization"), "Create an organization; you become its owner"),
        entry(Method::GET, ORGANIZATION, t, organization(OrgRole::ReadOnly, true, false), A::Get(Kind::Organization), Input::Nothing, Output::One("Organization"), "Get an organization"),
        entry(Method::PUT, ORGANIZATION, t, owner, A::Replace(Kind::Organization), Input::Json("OrganizationSpec"), Output::One("Organization"), "Replace an organization"),
        entry(Method::PATCH, ORGANIZATION, t, owner, A::Patch(Kind::Organization), Input::Patch("OrganizationSpec"), Output::One("Organization"), "Change an organization"),
        entry(Method::PUT, format!("{ORGANIZATION}/locked"), t, Permission::Operator, A::SetLocked, Input::Json("Lock"), Output::One("Organization"), "Lock an organization against changes, or unlock it"),
        entry(Method::DELETE, ORGANIZATION, t, owner, A::Delete(Kind::Organization), Input::Nothing, Output::Nothing, "Delete an organization and everything in it"),
        entry(Method::GET, &*users, u, organization(OrgRole::ReadOnly, true, false), A::ListMembers, Input::Nothing, Output::List("User"), "List the users of an organization and their SSH keys"),
        entry(Method::POST, &*users, u, admin, A::CreateMember, Input::Json("MemberSpec"), Output::Made("User"), "Create a user whose home is this organization"),
        entry(Method::GET, &*user, u, organization(OrgRole::ReadOnly, true, false), A::GetMember, Input::Nothing, Output::One("User"), "Get a user"),
        entry(Method::PUT, &*user, u, admin, A::ReplaceMember, Input::Json("UserSpec"), Output::One("User"), "Replace a user whose home is this organization"),
        entry(Method::PATCH, &*user, u, admin, A::PatchMember, Input::Patch("UserSpec"), Output::One("User"), "Change a user whose home is this organization"),
        entry(Method::DELETE, &*user, u, admin, A::DeleteMember, Input::Nothing, Output::Nothing, "Remove a user from the organization; in the user's home organization, delete the user"),
        entry(Method::PUT, format!("{user}/role"), u, admin, A::SetRole, Input::Json("RoleChange"), Output::One("Membership"), "Set the role of a user in the organization; an operator can also add a user of another organization"),
        entry(Method::PUT, format!("{user}/password"), u, admin, A::SetPassword, Input::Json("NewPassword"), Output::Nothing, "Set the password of a user whose home is this organization; the user's tokens become invalid"),
        entry(Method::DELETE, format!("{user}/tokens"), u, owner, A::EndLogins, Input::Nothing, Output::Nothing, "Revoke all tokens of a user whose home is this organization"),
        entry(Method::GET, format!("{ORGANIZATION}/audit"), t, admin, A::Audit, Input::Nothing, Output::List("AuditRow"), "List changes, with author and time").asked(AUDIT),
        entry(Method::GET, format!("{ORGANIZATION}/templates"), "Clusters", reads, A::Templates, Input::Nothing, Output::Json, "List provisioning templates: always empty, because nothing is provisioned here"),
    ]
}

#[rustfmt::skip]
pub(super) fn operators() -> Vec<Endpoint> {
    use Action as A;
    let t = "Operators";
    let operator = "/v3/operators/{user_id}";
    vec![
        entry(Method::GET, "/v3/operators", t, Permission::Operator, A::ListOperators, Input::Nothing, Output::List("Operator"), "List the operators of this server"),
        entry(Method::PUT, operator, t, Permission::Operator, A::AddOperator, Input::Nothing, Output::One("Operator"), "Make a user an operator, who administers all organizations"),
        entry(Method::GET, "/v3/audit", t, Permission::Operator, A::ServerAudit, Input::Nothing, Output::List("AuditRow"), "List changes of the catalogue, with author and time").asked(AUDIT),
        entry(Method::DELETE, operator, t, Permission::Operator, A::RemoveOperator, Input::Nothing, Output::Nothing, "Remove an operator; the last operator cannot be removed"),
    ]
}

#[rustfmt::skip]
pub(super) fn clusters() -> Vec<Endpoint> {
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
        entry(Method::PUT, format!("{CLUSTER}/status"), t, reports, A::SetStatus(Kind::Cluster), Input::Json("StatusReport"), Output::One("Cluster"), "Report the status of a cluster"),
        entry(Method::PUT, format!("{POOL}/status"), n, reports, A::SetStatus(Kind::NodePool), Input::Json("StatusReport"), Output::One("NodePool"), "Report the status of a node pool"),
        entry(Method::PUT, format!("{CLUSTER}/nodes/{{id}}/status"), n, reports, A::SetStatus(Kind::Node), Input::Json("StatusReport"), Output::One("Node"), "Report the status of a node"),
        entry(Method::PUT, format!("{upgrade}/status"), "Upgrades", reports, A::SetStatus(Kind::Upgrade), Input::Json("UpgradeReport"), Output::One("Upgrade"), "Report the status of an upgrade"),
        entry(Method::GET, &*keys, t, admin, A::ListKeys, Input::Nothing, Output::List("ApiKeyInfo"), "List a cluster's API keys, without the keys"),
        entry(Method::POST, &*keys, t, admin, A::CreateKey, Input::Nothing, Output::Made("CreatedApiKey"), "Create an API key for a cluster; it is shown only once"),
        entry(Method::DELETE, format!("{keys}/{{id}}"), t, admin, A::DeleteKey, Input::Nothing, Output::Nothing, "Delete an API key"),
        entry(Method::POST, format!("{CLUSTER}/token"), t, organization(OrgRole::ReadOnly, false, false), A::ClusterToken, Input::Nothing, Output::One("ClusterToken"), "Create a short-lived token for this cluster's kube-apiserver"),
        entry(Method::GET, format!("{CLUSTER}/events"), t, reads, A::Events, Input::Nothing, Output::Events, "Stream the kinds that change for a cluster"),
        entry(Method::GET, format!("{CLUSTER}/roles"), "Roles", reads, A::List(Kind::Role), Input::Nothing, Output::List("Role"), "List the roles that a cluster mirrors").asked(ROLE_LISTS),
        entry(Method::GET, format!("{CLUSTER}/ssh-users"), t, reads, A::ListSshUsers, Input::Nothing, Output::List("User"), "List the users who may log in on the nodes of a cluster, and their SSH keys"),
        entry(Method::GET, format!("{CLUSTER}/nodes"), n, reads, A::NodesInCluster, Input::Nothing, Output::List("Node"), "List the nodes of all node pools"),
        entry(Method::GET, format!("{CLUSTER}/nodes/{{id}}"), n, reads, A::NodeInCluster, Input::Nothing, Output::One("Node"), "Get a node of any node pool"),
        entry(Method::GET, format!("{CLUSTER}/nodes/{{id}}/upgrade/kubernetes"), "Upgrades", reports, A::GetScript, Input::Nothing, Output::Text("text/x-shellscript"), "Get the upgrade script of a node").asked(SCRIPT),
        entry(Method::PUT, format!("{upgrade}/script"), "Upgrades", admin, A::SetScript, Input::Text, Output::Nothing, "Set the script of an upgrade for all nodes"),
        entry(Method::PUT, format!("{upgrade}/nodes/{{id}}/script"), "Upgrades", admin, A::SetScript, Input::Text, Output::Nothing, "Set the script of an upgrade for one node"),
        entry(Method::GET, &*assigned, p, reads, A::ListAssigned, Input::Nothing, Output::List("AutoscalingPolicy"), "List the autoscaling policies of a node pool"),
        entry(Method::PUT, format!("{assigned}/{{id}}"), p, member, A::Assign, Input::Nothing, Output::Nothing, "Assign an autoscaling policy to a node pool"),
        entry(Method::DELETE, format!("{assigned}/{{id}}"), p, member, A::Unassign, Input::Nothing, Output::Nothing, "Unassign an autoscaling policy from a node pool"),
    ]
}

#[rustfmt::skip]
pub(super) fn catalogue() -> Vec<Endpoint> {
    use Action as A;
    let t = "Catalogue";
    let definition = "/v3/plugins/{type}/implementations/{implementation}";
    let version = format!("{definition}/versions/{{version}}");
    vec![
        entry(Method::GET, "/v3/plugins", t, Permission::Known, A::Catalogue, Input::Nothing, Output::One("Catalogue"), "Get the catalogue of plugins"),
        entry(Method::GET, "/v3/plugins/{type}", t, Permission::Known, A::CatalogueType, Input::Nothing, Output::List("PluginDefinition"), "List the plugins of a type"),
        entry(Method::GET, definition, t, Permission::Known, A::CatalogueDefinition, Input::Nothing, Output::One("PluginDefinition"), "Get the definition of a plugin"),
        entry(Method::GET, &*version, t, Permission::Known, A::CatalogueVersion, Input::Nothing, Output::One("PluginVersion"), "Get a version of a plugin"),
        entry(Method::PUT, &*version, t, Permission::Operator, A::SetVersion, Input::Json("PluginVersion"), Output::One("PluginVersion"), "Add a version to the catalogue"),
        entry(Method::GET, format!("{version}/manifests"), t, Permission::Operator, A::GetManifests, Input::Nothing, Output::One("PluginManifests"), "Get the manifests of a version in the catalogue"),
        entry(Method::PUT, format!("{version}/manifests"), t, Permission::Operator, A::SetManifests, Input::Json("PluginManifests"), Output::Nothing, "Set the manifests of a version in the catalogue; to replace those of a published version, send their ETag in If-Match"),
        entry(Method::DELETE, &*version, t, Permission::Operator, A::DeleteVersion, Input::Nothing, Output::Nothing, "Remove a version from the catalogue"),
    ]
}

#[rustfmt::skip]
pub(super) fn documents() -> Vec<Endpoint> {
    use Action as A;
    let t = "Server";
    vec![
        entry(Method::GET, "/.well-known/openid-configuration", t, Permission::Anyone, A::Discovery, Input::Nothing, Output::Json, "Get the OpenID Connect discovery document"),
        entry(Method::GET, "/.well-known/jwks.json", t, Permission::Anyone, A::Jwks, Input::Nothing, Output::Json, "Get the keys that verify tokens of this server"),
        entry(Method::GET, "/openapi.json", t, Permission::Anyone, A::OpenApi, Input::Nothing, Output::Json, "Get the description of this API for programs (OpenAPI 3.1)"),
        entry(Method::GET, "/docs", t, Permission::Anyone, A::Docs, Input::Nothing, Output::Text("text/html; charset=utf-8"), "Get the description of this API as a web page"),
    ]
}
