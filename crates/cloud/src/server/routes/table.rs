//! The endpoints that are not uniform for all kinds.

use http::{Method, StatusCode};

use super::catalogue::Part;
use super::route::{
    AUDIT, CLUSTER, IF_MATCH, IF_NONE_MATCH, LAST_EVENT, MAX_BODY, MAX_MANIFESTS, ORGANIZATION, PAGES, POOL, Route,
    SCRIPT, created, entry, json, list, one, organization, patch, to,
};
use super::{
    accounts, api_keys, catalogue, clusters, collection, decisions, documents, identities, invitations, lists, login,
    login_grants, members, operators, organizations, rules, script_templates, scripts, second_factor, stream, tokens,
};
use crate::models::{
    Account, ApprovalSpec, AutoscalingPolicy, Catalogue, Cluster, ClusterDecision, ClusterReport, Identity, Kind, Node,
    NodePool, NodeStatusReport, Organization, OrganizationSpec, PluginDefinition, PluginManifests, PluginVersion,
    ReleaseSpec, ReportedCluster, Resource as _, Role, RoleSpec, ServiceAccountSpec, SshKey, SshKeySpec, Upgrade,
    UserSpec,
};
use crate::server::http::endpoint::{Input, Output, Permission};
use crate::server::keys::token::AcceptedUses;
use crate::server::openapi::bodies::invitations::{
    AcceptedInvitation, CreatedInvitation, Invitation, InvitationAcceptance, InvitationSecret, InvitationSpec,
};
use crate::server::openapi::bodies::logins::{
    DeviceDecision, DeviceLogin, GrantedLogin, LoginGrantRequest, LoginRequest, NewPassword, PasswordChange, Program,
    Token, WaitingProgram,
};
use crate::server::openapi::bodies::security_keys::{
    NewSecurityKey, RecoveryCodes, RegisteredSecurityKey, SecurityKey, SecurityKeyChallenge,
};
use crate::server::openapi::bodies::tokens::{
    AccessTokenSpec, ApiKeyInfo, ClusterToken, CreatedApiKey, CreatedServiceAccountToken, CreatedToken,
    ServiceAccountToken, TokenInfo, TokenSpec,
};
use crate::server::openapi::bodies::{
    AccountSpec, AuditRow, Authenticated, Deletion, Lock, MemberSpec, Membership, Operator, OrganizationUsage, RoleChange,
    RuleOfRole, ScriptTemplate, UpgradeReport, user_body,
};
use crate::server::principal::OrgRole;
use crate::server::store::Action;

#[rustfmt::skip]
pub(super) fn accounts() -> Vec<Route> {
    let t = "Account";
    vec![
        entry(Method::POST, "/v3/login/{method}", t, Permission::Anyone, to!(login::log_in), json::<LoginRequest>(), one::<Token>(), "Log in with `password` (or `email`, which is the same), with what a person granted (`browser`, `device`), or, as a cluster, with `api_key`").refusing(StatusCode::UNAUTHORIZED),
        entry(Method::POST, "/v3/login/device/authorization", t, Permission::Anyone, to!(login_grants::begin_device), json::<Program>(), one::<DeviceLogin>(), "Begin the login of a program that shows a code to a person (RFC 8628)"),
        entry(Method::GET, "/v3/authenticate", t, Permission::Known, to!(accounts::authenticate), Input::Nothing, one::<Authenticated>(), "Show the identity that a token belongs to").with(&[]).accepting(AcceptedUses::Any),
        entry(Method::GET, "/v3/account", t, Permission::User, to!(accounts::get), Input::Nothing, one::<Account>(), "Get your own account"),
        entry(Method::PUT, "/v3/account", t, Permission::User, to!(accounts::change), json::<AccountSpec>(), one::<Account>(), "Replace your own account").with(IF_MATCH),
        entry(Method::PATCH, "/v3/account", t, Permission::User, to!(accounts::change), patch::<AccountSpec>(), one::<Account>(), "Change your own account").with(IF_MATCH),
        entry(Method::PUT, "/v3/account/password", t, Permission::User, to!(accounts::change_password), json::<PasswordChange>(), Output::Nothing, "Change your own password; all other logins end, and with `end_tokens` all tokens and links with providers"),
        entry(Method::GET, "/v3/account/ssh_keys", t, Permission::User, to!(lists::list), Input::Nothing, list::<SshKey>(), "List your own SSH keys").of(Kind::SshKey).with(PAGES),
        entry(Method::POST, "/v3/account/ssh_keys", t, Permission::User, to!(collection::create), json::<SshKeySpec>(), created::<SshKey>(), "Add an SSH key to your own account").of(Kind::SshKey),
        entry(Method::DELETE, "/v3/account/ssh_keys/{id}", t, Permission::User, to!(collection::delete), Input::Nothing, Output::Nothing, "Delete an SSH key of your own account").of(Kind::SshKey).with(IF_MATCH),
        entry(Method::GET, "/v3/account/tokens", t, Permission::User, to!(tokens::list), Input::Nothing, list::<TokenInfo>(), "List your own tokens"),
        entry(Method::POST, "/v3/account/tokens", t, Permission::User, to!(tokens::create, None), json::<TokenSpec>(), created::<CreatedToken>(), "Create a token; it is shown only once").shown_once(),
        entry(Method::DELETE, "/v3/account/tokens/{id}", t, Permission::User, to!(tokens::revoke), Input::Nothing, Output::Nothing, "Revoke a token; `current` is the one of the request"),
        entry(Method::POST, "/v3/account/login-grants", t, Permission::User, to!(login_grants::grant), json::<LoginGrantRequest>(), one::<GrantedLogin>(), "Grant your login to a program on your machine (RFC 8252); needs a login of the last ten minutes"),
        entry(Method::PUT, "/v3/account/login-grants/device", t, Permission::User, to!(login_grants::decide_device), json::<DeviceDecision>(), one::<WaitingProgram>(), "Show the program that shows a code, or grant it your login, which needs a login of the last ten minutes"),
        entry(Method::GET, "/v3/account/access_tokens", t, Permission::User, to!(tokens::list), Input::Nothing, list::<TokenInfo>(), "List your own tokens, as clients of the original service do"),
        entry(Method::POST, "/v3/account/access_tokens", t, Permission::User, to!(tokens::create, Some(tokens::LONGEST)), json::<AccessTokenSpec>(), created::<CreatedToken>(), "Create a token that is valid for a year by default; it is shown only once").shown_once(),
        entry(Method::GET, "/v3/account/access_tokens/{id}", t, Permission::User, to!(tokens::get), Input::Nothing, one::<TokenInfo>(), "Get one of your own tokens, without its text"),
        entry(Method::DELETE, "/v3/account/access_tokens/{id}", t, Permission::User, to!(tokens::revoke), Input::Nothing, Output::Nothing, "Revoke one of your own tokens"),
        entry(Method::POST, "/v3/account/invitations", t, Permission::User, to!(invitations::accept_with_account), json::<InvitationSecret>(), one::<AcceptedInvitation>(), "Accept an invitation with your own account, which has the e-mail address of the invitation"),
        entry(Method::POST, "/v3/invitations/accept", t, Permission::Anyone, to!(invitations::accept), json::<InvitationAcceptance>(), one::<AcceptedInvitation>(), "Accept an invitation as a new user, who logs in with the e-mail address of the invitation").refusing(StatusCode::FORBIDDEN),
        entry(Method::GET, "/v3/account/identities", t, Permission::User, to!(identities::list), Input::Nothing, list::<Identity>(), "List your accounts at sign-in providers"),
        entry(Method::DELETE, "/v3/account/identities/{id}", t, Permission::User, to!(identities::delete), Input::Nothing, Output::Nothing, "Unlink an account at a sign-in provider; the last way to sign in cannot be unlinked"),
        entry(Method::GET, "/v3/account/security-keys", t, Permission::User, to!(second_factor::list), Input::Nothing, list::<SecurityKey>(), "List your own security keys"),
        entry(Method::POST, "/v3/account/security-keys/challenge", t, Permission::User, to!(second_factor::begin_key), Input::Nothing, one::<SecurityKeyChallenge>(), "Begin to register a security key (WebAuthn); needs a login of the last ten minutes"),
        entry(Method::POST, "/v3/account/security-keys", t, Permission::User, to!(second_factor::add), json::<NewSecurityKey>(), one::<RegisteredSecurityKey>(), "Register a security key; with the first one, recovery codes are shown once"),
        entry(Method::DELETE, "/v3/account/security-keys/{id}", t, Permission::User, to!(second_factor::delete), Input::Nothing, Output::Nothing, "Remove a security key, with the last one the recovery codes too; needs a login of the last ten minutes"),
        entry(Method::POST, "/v3/account/recovery-codes", t, Permission::User, to!(second_factor::renew_codes), Input::Nothing, one::<RecoveryCodes>(), "Replace your recovery codes; they are shown once; needs a login of the last ten minutes"),
    ]
}

#[rustfmt::skip]
pub(super) fn organizations() -> Vec<Route> {
    let (t, u) = ("Organizations", "Users");
    let users = format!("{ORGANIZATION}/users");
    let user = format!("{users}/{{user_id}}");
    let invitations = format!("{ORGANIZATION}/invitations");
    let reads = organization(OrgRole::ReadOnly, false, false);
    let admin = organization(OrgRole::Admin, false, false);
    let owner = organization(OrgRole::Owner, false, false);
    vec![
        entry(Method::GET, "/v3/organizations", t, Permission::User, to!(organizations::organizations), Input::Nothing, list::<Organization>(), "List the organizations that you are a member of"),
        entry(Method::POST, "/v3/organizations", t, Permission::Operator, to!(organizations::create_organization), json::<OrganizationSpec>(), created::<Organization>(), "Create an organization; you become its owner"),
        entry(Method::GET, ORGANIZATION, t, organization(OrgRole::ReadOnly, true, false), to!(collection::get), Input::Nothing, one::<Organization>(), "Get an organization").of(Kind::Organization),
        entry(Method::PUT, ORGANIZATION, t, owner, to!(collection::change), json::<OrganizationSpec>(), one::<Organization>(), "Replace an organization").of(Kind::Organization).with(IF_MATCH),
        entry(Method::PATCH, ORGANIZATION, t, owner, to!(collection::change), patch::<OrganizationSpec>(), one::<Organization>(), "Change an organization").of(Kind::Organization).with(IF_MATCH),
        entry(Method::PUT, format!("{ORGANIZATION}/locked"), t, Permission::Operator, to!(organizations::lock), json::<Lock>(), one::<Organization>(), "Lock an organization against changes, or unlock it"),
        entry(Method::DELETE, ORGANIZATION, t, owner, to!(collection::delete), Input::Nothing, Output::Nothing, "Delete an organization and everything in it").of(Kind::Organization).with(IF_MATCH),
        entry(Method::GET, &*users, u, organization(OrgRole::ReadOnly, true, false), to!(members::list, false), Input::Nothing, Output::List(user_body()), "List the users of an organization and their SSH keys").of(Kind::User).with(PAGES),
        entry(Method::POST, &*users, u, admin, to!(members::create), json::<MemberSpec>(), Output::Made(user_body()), "Create a user whose home is this organization").of(Kind::User),
        entry(Method::GET, &*user, u, organization(OrgRole::ReadOnly, true, false), to!(members::get), Input::Nothing, Output::One(user_body()), "Get a user").of(Kind::User),
        entry(Method::PUT, &*user, u, admin, to!(members::change), json::<UserSpec>(), Output::One(user_body()), "Replace a user whose home is this organization").of(Kind::User).with(IF_MATCH),
        entry(Method::PATCH, &*user, u, admin, to!(members::change), patch::<UserSpec>(), Output::One(user_body()), "Change a user whose home is this organization").of(Kind::User).with(IF_MATCH),
        entry(Method::DELETE, &*user, u, admin, to!(members::delete), Input::Nothing, Output::Nothing, "Remove a user from the organization; in the user's home organization, delete the user").of(Kind::User).with(IF_MATCH),
        entry(Method::PUT, format!("{user}/role"), u, admin, to!(members::set_role), json::<RoleChange>(), one::<Membership>(), "Set the role of a user in the organization; an operator can also add a user of another organization").of(Kind::User),
        entry(Method::PUT, format!("{user}/password"), u, admin, to!(members::set_password), json::<NewPassword>(), Output::Nothing, "Set the password of a user whose home is this organization; the user's logins end, and with `end_tokens` all tokens and links with providers").of(Kind::User),
        entry(Method::DELETE, format!("{user}/tokens"), u, owner, to!(members::end_logins), Input::Nothing, Output::Nothing, "Revoke all tokens of a user whose home is this organization, and remove the links with providers").of(Kind::User),
        entry(Method::DELETE, format!("{user}/second-factor"), u, admin, to!(second_factor::reset), Input::Nothing, Output::Nothing, "Remove the security keys and recovery codes of a user whose home is this organization; needs a login of the last ten minutes").of(Kind::User),
        entry(Method::GET, &*invitations, u, admin, to!(invitations::list), Input::Nothing, list::<Invitation>(), "List invitations that nobody has accepted, without their links").of(Kind::Invitation),
        entry(Method::POST, &*invitations, u, admin, to!(invitations::create), json::<InvitationSpec>(), created::<CreatedInvitation>(), "Invite a person; the link is shown only once").of(Kind::Invitation).shown_once(),
        entry(Method::DELETE, format!("{invitations}/{{id}}"), u, admin, to!(invitations::revoke), Input::Nothing, Output::Nothing, "Revoke an invitation").of(Kind::Invitation),
        entry(Method::GET, format!("{ORGANIZATION}/audit"), t, admin, to!(organizations::audit), Input::Nothing, list::<AuditRow>(), "List changes, with author and time").with_query(AUDIT),
        entry(Method::GET, format!("{ORGANIZATION}/rules"), "Roles", organization(OrgRole::ReadOnly, true, false), to!(rules::list), Input::Nothing, list::<RuleOfRole>(), "List the rules of all roles").with(PAGES),
        entry(Method::GET, format!("{ORGANIZATION}/rules/{{id}}"), "Roles", organization(OrgRole::ReadOnly, true, false), to!(rules::get), Input::Nothing, one::<RuleOfRole>(), "Get a rule; it is changed with its role"),
        entry(Method::DELETE, format!("{ORGANIZATION}/rules/{{id}}"), "Roles", admin, to!(rules::delete), Input::Nothing, Output::Nothing, "Delete a rule: its role loses it, and the rules after it get other ids").with(IF_MATCH),
        entry(Method::GET, format!("{ORGANIZATION}/roles/{{id}}/rules"), "Roles", organization(OrgRole::ReadOnly, true, false), to!(rules::of_role), Input::Nothing, list::<RuleOfRole>(), "List the rules of a role").of(Kind::Role),
        entry(Method::GET, format!("{ORGANIZATION}/templates"), "Clusters", reads, to!(clusters::templates), Input::Nothing, Output::Json, "List provisioning templates: always empty, because nothing is provisioned here"),
    ]
}

#[rustfmt::skip]
pub(super) fn operators() -> Vec<Route> {
    let t = "Operators";
    let operator = "/v3/operators/{user_id}";
    vec![
        entry(Method::GET, "/v3/operators", t, Permission::Operator, to!(operators::list), Input::Nothing, list::<Operator>(), "List the operators of this server"),
        entry(Method::GET, "/v3/operators/organizations", t, Permission::Operator, to!(operators::organizations), Input::Nothing, list::<OrganizationUsage>(), "List all organizations with what they have of their limits, and nothing that is inside them").with(PAGES),
        entry(Method::PUT, operator, t, Permission::Operator, to!(operators::add), Input::Nothing, one::<Operator>(), "Make a user an operator, who administers all organizations"),
        entry(Method::GET, "/v3/audit", t, Permission::Operator, to!(organizations::audit), Input::Nothing, list::<AuditRow>(), "List changes of the catalogue, and which organizations were created and deleted, with author and time").with_query(AUDIT),
        entry(Method::DELETE, operator, t, Permission::Operator, to!(operators::remove), Input::Nothing, Output::Nothing, "Remove an operator; the last operator cannot be removed"),
    ]
}

#[rustfmt::skip]
pub(super) fn service_accounts() -> Vec<Route> {
    let t = ServiceAccountSpec::FACTS.tag;
    let tokens = format!("{ORGANIZATION}/service-accounts/{{service_account_id}}/tokens");
    let admin = organization(OrgRole::Admin, false, false);
    vec![
        entry(Method::GET, &*tokens, t, admin, to!(tokens::list), Input::Nothing, list::<ServiceAccountToken>(), "List the tokens of a service account").of(Kind::ServiceAccount),
        entry(Method::POST, &*tokens, t, admin, to!(tokens::create, None), json::<TokenSpec>(), created::<CreatedServiceAccountToken>(), "Create a token of a service account; it is shown only once").of(Kind::ServiceAccount).shown_once(),
        entry(Method::DELETE, format!("{tokens}/{{id}}"), t, admin, to!(tokens::revoke), Input::Nothing, Output::Nothing, "Revoke a token of a service account").of(Kind::ServiceAccount),
    ]
}

#[rustfmt::skip]
pub(super) fn clusters() -> Vec<Route> {
    let (t, p, n) = ("Clusters", "Autoscaling", "Node pools");
    let reads = organization(OrgRole::ReadOnly, true, false);
    let admin = organization(OrgRole::Admin, false, false);
    let member = organization(OrgRole::Member, false, false);
    let reports = organization(OrgRole::Admin, true, false);
    let keys = format!("{CLUSTER}/api-keys");
    let assigned = format!("{POOL}/autoscaling-policies");
    let upgrade = format!("{CLUSTER}/upgrades/{{upgrade_id}}");
    vec![
        entry(Method::PUT, format!("{CLUSTER}/status"), t, reports, to!(clusters::set_status), json::<NodeStatusReport>(), one::<Cluster>(), "Report the status of a cluster").of(Kind::Cluster),
        entry(Method::PUT, format!("{CLUSTER}/report"), t, Permission::Cluster, to!(clusters::set_report), json::<ClusterReport>(), one::<ReportedCluster>(), "Report what a cluster mirrors, holds and refuses, its plugins and its agents"),
        entry(Method::GET, format!("{CLUSTER}/report"), t, reads, to!(clusters::report), Input::Nothing, one::<ReportedCluster>(), "Get the last report of a cluster"),
        entry(Method::GET, format!("{ORGANIZATION}/reports"), t, organization(OrgRole::ReadOnly, false, false), to!(clusters::reports), Input::Nothing, list::<ReportedCluster>(), "List the last reports of all clusters, without the diffs of plugins"),
        entry(Method::POST, format!("{CLUSTER}/releases"), t, admin, to!(decisions::release), json::<ReleaseSpec>(), Output::Nothing, "Release what a cluster holds of a kind, if the cluster accepts it from the cloud; only owners release what takes access away"),
        entry(Method::POST, format!("{CLUSTER}/approvals"), t, admin, to!(decisions::approve), json::<ApprovalSpec>(), Output::Nothing, "Approve the version of a plugin that awaits approval, if the cluster accepts it from the cloud"),
        entry(Method::GET, format!("{CLUSTER}/decisions"), t, reads, to!(decisions::list), Input::Nothing, list::<ClusterDecision>(), "List the releases and approvals that a cluster has yet to take"),
        entry(Method::DELETE, format!("{CLUSTER}/decisions/{{id}}"), t, reports, to!(decisions::take), Input::Nothing, Output::Nothing, "Take a release or an approval: the cluster does so before it obeys, so that it obeys once; an admin withdraws it"),
        entry(Method::PUT, format!("{POOL}/status"), n, reports, to!(clusters::set_status), json::<NodeStatusReport>(), one::<NodePool>(), "Report the status of a node pool").of(Kind::NodePool),
        entry(Method::PUT, format!("{CLUSTER}/nodes/{{id}}/status"), n, reports, to!(clusters::set_status), json::<NodeStatusReport>(), one::<Node>(), "Report the status of a node").of(Kind::Node),
        entry(Method::PUT, format!("{upgrade}/status"), "Upgrades", reports, to!(clusters::set_status), json::<UpgradeReport>(), one::<Upgrade>(), "Report the status of an upgrade").of(Kind::Upgrade).limited_to(MAX_BODY),
        entry(Method::GET, &*keys, t, admin, to!(api_keys::list_keys), Input::Nothing, list::<ApiKeyInfo>(), "List a cluster's API keys, without the keys"),
        entry(Method::POST, &*keys, t, admin, to!(api_keys::create_key), Input::Nothing, created::<CreatedApiKey>(), "Create an API key for a cluster; it is shown only once").shown_once(),
        entry(Method::DELETE, format!("{keys}/{{id}}"), t, admin, to!(api_keys::delete_key), Input::Nothing, Output::Nothing, "Delete an API key"),
        entry(Method::POST, format!("{CLUSTER}/token"), t, organization(OrgRole::ReadOnly, false, false), to!(clusters::token), Input::Nothing, one::<ClusterToken>(), "Create a short-lived token for this cluster's kube-apiserver").revealing(Action::Issue, Kind::Cluster),
        entry(Method::GET, format!("{CLUSTER}/events"), t, reads, to!(stream::events), Input::Nothing, Output::Events, "Stream the kinds that change for a cluster").with(LAST_EVENT),
        entry(Method::GET, format!("{ORGANIZATION}/events"), "Organizations", organization(OrgRole::ReadOnly, false, false), to!(stream::events), Input::Nothing, Output::Events, "Stream the kinds that change in an organization and in all of its clusters").with(LAST_EVENT),
        entry(Method::GET, format!("{CLUSTER}/deletions"), t, reads, to!(clusters::deletions), Input::Nothing, list::<Deletion>(), "List the last 1,000 deletions of objects that a cluster mirrors, and of its nodes, newest first, and what has left its lists otherwise"),
        entry(Method::GET, format!("{CLUSTER}/roles"), "Roles", reads, to!(lists::list), Input::Nothing, list::<Role>(), "List the roles that a cluster mirrors").with_query(RoleSpec::FACTS.list_query).of(Kind::Role).with(PAGES),
        entry(Method::GET, format!("{CLUSTER}/ssh-users"), t, reads, to!(members::list, true), Input::Nothing, Output::List(user_body()), "List the users who may log in on the nodes of a cluster, and their SSH keys").of(Kind::User).with(PAGES),
        entry(Method::GET, format!("{CLUSTER}/nodes"), n, reads, to!(lists::nodes), Input::Nothing, list::<Node>(), "List the nodes of all node pools").with(PAGES),
        entry(Method::GET, format!("{CLUSTER}/nodes/{{id}}"), n, reads, to!(clusters::node), Input::Nothing, one::<Node>(), "Get a node of any node pool"),
        entry(Method::GET, format!("{CLUSTER}/nodes/{{id}}/upgrade/kubernetes"), "Upgrades", reports, to!(scripts::script), Input::Nothing, Output::Text("text/x-shellscript"), "Get the upgrade script of a node").with_query(SCRIPT).with(IF_NONE_MATCH).revealing(Action::Read, Kind::UpgradeScript),
        entry(Method::PUT, format!("{upgrade}/script"), "Upgrades", admin, to!(scripts::set_script), Input::Text, Output::Nothing, "Set the script of an upgrade for all nodes"),
        entry(Method::PUT, format!("{upgrade}/nodes/{{id}}/script"), "Upgrades", admin, to!(scripts::set_script), Input::Text, Output::Nothing, "Set the script of an upgrade for one node"),
        entry(Method::GET, format!("{CLUSTER}/script-templates"), "Upgrades", admin, to!(script_templates::list), Input::Nothing, list::<ScriptTemplate>(), "List the script templates of a cluster"),
        entry(Method::GET, format!("{CLUSTER}/script-templates/{{target}}"), "Upgrades", admin, to!(script_templates::get), Input::Nothing, Output::Text("text/x-shellscript"), "Get a script template of a cluster").with(IF_NONE_MATCH).revealing(Action::Read, Kind::ScriptTemplate),
        entry(Method::PUT, format!("{CLUSTER}/script-templates/{{target}}"), "Upgrades", admin, to!(script_templates::set), Input::Text, Output::Nothing, "Set the script of upgrades of a cluster to a version, or to `any`, that have none of their own").with(IF_MATCH),
        entry(Method::DELETE, format!("{CLUSTER}/script-templates/{{target}}"), "Upgrades", admin, to!(script_templates::delete), Input::Nothing, Output::Nothing, "Delete a script template of a cluster").with(IF_MATCH),
        entry(Method::GET, format!("{ORGANIZATION}/script-templates"), "Upgrades", admin, to!(script_templates::list), Input::Nothing, list::<ScriptTemplate>(), "List the script templates of all clusters"),
        entry(Method::GET, format!("{ORGANIZATION}/script-templates/{{target}}"), "Upgrades", admin, to!(script_templates::get), Input::Nothing, Output::Text("text/x-shellscript"), "Get a script template of all clusters").with(IF_NONE_MATCH).revealing(Action::Read, Kind::ScriptTemplate),
        entry(Method::PUT, format!("{ORGANIZATION}/script-templates/{{target}}"), "Upgrades", admin, to!(script_templates::set), Input::Text, Output::Nothing, "Set the script of upgrades of all clusters to a version, or to `any`, that have none of their own").with(IF_MATCH),
        entry(Method::DELETE, format!("{ORGANIZATION}/script-templates/{{target}}"), "Upgrades", admin, to!(script_templates::delete), Input::Nothing, Output::Nothing, "Delete a script template of all clusters").with(IF_MATCH),
        entry(Method::GET, &*assigned, p, reads, to!(clusters::list_assigned), Input::Nothing, list::<AutoscalingPolicy>(), "List the autoscaling policies of a node pool"),
        entry(Method::PUT, format!("{assigned}/{{id}}"), p, member, to!(clusters::assign), Input::Nothing, Output::Nothing, "Assign an autoscaling policy to a node pool"),
        entry(Method::DELETE, format!("{assigned}/{{id}}"), p, member, to!(clusters::unassign), Input::Nothing, Output::Nothing, "Unassign an autoscaling policy from a node pool"),
    ]
}

#[rustfmt::skip]
pub(super) fn catalogue() -> Vec<Route> {
    let t = "Catalogue";
    let definition = "/v3/plugins/{type}/implementations/{implementation}";
    let version = format!("{definition}/versions/{{version}}");
    vec![
        entry(Method::GET, "/v3/plugins", t, Permission::Known, to!(catalogue::get, Part::All), Input::Nothing, one::<Catalogue>(), "Get the catalogue of plugins"),
        entry(Method::GET, "/v3/plugins/{type}", t, Permission::Known, to!(catalogue::get, Part::Type), Input::Nothing, list::<PluginDefinition>(), "List the plugins of a type"),
        entry(Method::GET, definition, t, Permission::Known, to!(catalogue::get, Part::Definition), Input::Nothing, one::<PluginDefinition>(), "Get the definition of a plugin"),
        entry(Method::GET, &*version, t, Permission::Known, to!(catalogue::get, Part::Version), Input::Nothing, one::<PluginVersion>(), "Get a version of a plugin"),
        entry(Method::PUT, &*version, t, Permission::Operator, to!(catalogue::set_version), json::<PluginVersion>(), one::<PluginVersion>(), "Add a version to the catalogue").with(IF_MATCH),
        entry(Method::GET, format!("{version}/manifests"), t, Permission::Operator, to!(catalogue::manifests), Input::Nothing, one::<PluginManifests>(), "Get the manifests of a version in the catalogue"),
        entry(Method::PUT, format!("{version}/manifests"), t, Permission::Operator, to!(catalogue::set_manifests), json::<PluginManifests>(), Output::Nothing, "Set the manifests of a version in the catalogue; to replace those of a published version, send their ETag in If-Match").with(IF_MATCH).limited_to(MAX_MANIFESTS).refusing(StatusCode::PRECONDITION_REQUIRED),
        entry(Method::DELETE, &*version, t, Permission::Operator, to!(catalogue::delete_version), Input::Nothing, Output::Nothing, "Remove a version from the catalogue").with(IF_MATCH),
    ]
}

#[rustfmt::skip]
pub(super) fn documents() -> Vec<Route> {
    let t = "Server";
    vec![
        entry(Method::GET, "/.well-known/openid-configuration", t, Permission::Anyone, to!(documents::discovery), Input::Nothing, Output::Json, "Get the OpenID Connect discovery document").with(IF_NONE_MATCH),
        entry(Method::GET, "/.well-known/jwks.json", t, Permission::Anyone, to!(documents::jwks), Input::Nothing, Output::Json, "Get the keys that verify tokens of this server").with(IF_NONE_MATCH),
        entry(Method::GET, "/openapi.json", t, Permission::Anyone, to!(documents::openapi), Input::Nothing, Output::Json, "Get the description of this API for programs (OpenAPI 3.1)").with(IF_NONE_MATCH),
        entry(Method::GET, "/docs", t, Permission::Anyone, to!(documents::page), Input::Nothing, Output::Text("text/html; charset=utf-8"), "Get the description of this API as a web page").with(IF_NONE_MATCH),
    ]
}
