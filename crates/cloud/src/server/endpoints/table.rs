//! The lines of the table that are not alike for every kind.

use http::Method;

use super::{
    AUDIT, Action, Answers, CLUSTER, Endpoint, ORGANIZATION, POOL, ROLE_LISTS, SCRIPT, Takes, entry, organization,
};
use crate::server::access::May;
use crate::server::kind::Kind;
use crate::server::principal::OrgRole;

#[rustfmt::skip]
pub(super) fn accounts() -> Vec<Endpoint> {
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
pub(super) fn organizations() -> Vec<Endpoint> {
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
pub(super) fn operators() -> Vec<Endpoint> {
    use Action as A;
    let t = "Operators";
    let operator = "/v3/operators/{user_id}";
    vec![
        entry(Method::GET, "/v3/operators", t, May::Operator, A::ListOperators, Takes::Nothing, Answers::List("Operator"), "List the operators of this server"),
        entry(Method::PUT, operator, t, May::Operator, A::AddOperator, Takes::Nothing, Answers::One("Operator"), "Make a user an operator, who may do what concerns all organizations"),
        entry(Method::DELETE, operator, t, May::Operator, A::RemoveOperator, Takes::Nothing, Answers::Nothing, "Make a user no operator any more; one always stays"),
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
pub(super) fn catalogue() -> Vec<Endpoint> {
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
pub(super) fn documents() -> Vec<Endpoint> {
    use Action as A;
    let t = "Server";
    vec![
        entry(Method::GET, "/.well-known/openid-configuration", t, May::Anyone, A::Discovery, Takes::Nothing, Answers::Json, "Say what this OpenID Connect issuer is"),
        entry(Method::GET, "/.well-known/jwks.json", t, May::Anyone, A::Jwks, Takes::Nothing, Answers::Json, "Give the keys that verify its tokens"),
        entry(Method::GET, "/openapi.json", t, May::Anyone, A::OpenApi, Takes::Nothing, Answers::Json, "Describe this API to programs (OpenAPI 3.1)"),
        entry(Method::GET, "/docs", t, May::Anyone, A::Docs, Takes::Nothing, Answers::Text("text/html; charset=utf-8"), "Describe this API to people"),
    ]
}
