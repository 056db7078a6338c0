//! The settings of sign-in providers, and the rules that they must keep.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tidewaiter_api::values::quoted;
use url::{Host, Url};
use uuid::Uuid;

use crate::models::OrgRole;
use crate::models::values::{DisplayName, Slug};

/// The roles that a first sign-in may give: an owner is made by an owner.
const PROVISIONED: [OrgRole; 3] = [OrgRole::ReadOnly, OrgRole::Member, OrgRole::Admin];

/// How people sign in besides passwords.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SignInSettings {
    /// The providers of OpenID Connect at which people sign in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<ProviderSettings>,
}

/// A provider of OpenID Connect.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a mapping with name, title, issuer, clientId and clientSecretFile"
)]
pub struct ProviderSettings {
    /// The name in paths. The provider must permit the redirect to `/sign-in/callback` of `publicUrl`.
    pub name: String,
    /// The name on the button of the sign-in page.
    pub title: String,
    /// The issuer, exactly as its discovery document has it: `https://`, or `http://` on this machine.
    pub issuer: String,
    /// The id of this server at the provider.
    pub client_id: String,
    /// The file with the secret of this server at the provider, read at each sign-in.
    pub client_secret_file: PathBuf,
    /// The requested scopes; `openid` is always among them.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// The id of the only organization whose members may sign in with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// The claim `hd` that a person must have (Google Workspace).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted_domain: Option<String>,
    /// The claim `tid` that a person must have (Microsoft Entra ID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The claim with the groups of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_claim: Option<String>,
    /// Creates a user of `organization` at the first sign-in of a person whose e-mail address is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<ProvisionSettings>,
    /// The team of `organization` for each group: each sign-in adds the user to these teams or removes the user.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub teams: BTreeMap<String, String>,
    /// The file with the only trusted certificates (PEM); by default those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// The users that first sign-ins create.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a mapping with role")]
pub struct ProvisionSettings {
    /// The role in the organization: `read_only`, `member` or `admin`.
    pub role: String,
}

/// A setting of a provider that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("signIn.providers[{place}].{field} is {value}: {rule}")]
pub struct InvalidProvider {
    place: usize,
    field: &'static str,
    value: String,
    rule: &'static str,
}

fn default_scopes() -> Vec<String> {
    ["openid", "email", "profile"].map(str::to_owned).to_vec()
}

impl ProvisionSettings {
    /// The role of a new user; `None` if no first sign-in may give it.
    pub(crate) fn role(&self) -> Option<OrgRole> {
        OrgRole::of(&self.role).filter(|role| PROVISIONED.contains(role))
    }
}

impl SignInSettings {
    /// Checks the providers, without their files.
    ///
    /// # Errors
    /// The first setting that is invalid or contradicts another one.
    pub fn check(&self) -> Result<(), InvalidProvider> {
        let mut names = BTreeSet::new();
        for (place, provider) in self.providers.iter().enumerate() {
            let checked = provider.check().and_then(|()| {
                let rule = "is the name of an earlier provider too: choose another one";
                rule_of("name", &provider.name, names.insert(&provider.name), rule)
            });
            checked.map_err(|(field, value, rule)| InvalidProvider {
                place,
                field,
                value: quoted(&value),
                rule,
            })?;
        }
        Ok(())
    }
}

/// A field, its value and the rule that it breaks.
type Broken = (&'static str, String, &'static str);

fn rule_of(field: &'static str, value: &str, holds: bool, rule: &'static str) -> Result<(), Broken> {
    if holds {
        Ok(())
    } else {
        Err((field, value.to_owned(), rule))
    }
}

impl ProviderSettings {
    fn check(&self) -> Result<(), Broken> {
        let is_title = |text: &str| text.parse::<DisplayName>().is_ok();
        let is_token = |text: &str| (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        let rule = "must be 1 to 63 ASCII letters, digits, '_', '-' and '.', and begin with a letter or digit";
        rule_of("name", &self.name, self.name.parse::<Slug>().is_ok(), rule)?;
        let rule = "must be 1 to 128 visible characters";
        rule_of("title", &self.title, is_title(&self.title), rule)?;
        let rule = "must be an https URL without user, query and fragment, or an http URL of this machine";
        rule_of("issuer", &self.issuer, is_issuer(&self.issuer), rule)?;
        let rule = "must be 1 to 255 ASCII characters without spaces";
        rule_of("clientId", &self.client_id, is_token(&self.client_id), rule)?;
        for scope in &self.scopes {
            rule_of("scopes", scope, is_token(scope), rule)?;
        }
        for (field, text) in [
            ("hostedDomain", &self.hosted_domain),
            ("tenant", &self.tenant),
            ("groupsClaim", &self.groups_claim),
        ] {
            let text = text.as_deref().unwrap_or("-");
            rule_of(field, text, is_token(text), rule)?;
        }
        for team in self.teams.values() {
            rule_of("teams", team, is_title(team), "must be the name of a team")?;
        }
        self.check_organization()
    }

    /// Checks the settings that depend on each other.
    fn check_organization(&self) -> Result<(), Broken> {
        let organization = self.organization.as_deref().unwrap_or_default();
        let is_id = Uuid::try_parse(organization).is_ok_and(|id| id.to_string() == organization);
        let rule = "must be the id of an organization: tidewaiter cloud get organizations shows it";
        rule_of("organization", organization, self.organization.is_none() || is_id, rule)?;
        if let Some(provision) = &self.provision {
            let rule = "must be read_only, member or admin: an owner is made by an owner";
            rule_of("provision.role", &provision.role, provision.role().is_some(), rule)?;
            let rule = "must be set, because provision creates users there";
            rule_of("organization", "none", is_id, rule)?;
        }
        let (has_teams, has_claim) = (!self.teams.is_empty(), self.groups_claim.is_some());
        let rule = "must be set, because teams names teams of it";
        rule_of("organization", "none", is_id || !has_teams, rule)?;
        let rule = "must be set, because teams maps the groups in it";
        rule_of("groupsClaim", "none", has_claim || !has_teams, rule)?;
        let rule = "must name a team for at least one group, or groupsClaim has no effect: omit it";
        rule_of("teams", "empty", has_teams || !has_claim, rule)
    }
}

fn is_issuer(text: &str) -> bool {
    let Ok(url) = text.parse::<Url>() else { return false };
    let is_plain = url.username().is_empty() && url.password().is_none();
    is_plain && url.query().is_none() && url.fragment().is_none() && is_protected(&url)
}

/// Returns true if nobody else reads what is sent to this URL: it is `https`, or `http` of this machine.
pub(super) fn is_protected(url: &Url) -> bool {
    match (url.scheme(), url.host()) {
        ("https", Some(_)) => true,
        ("http", Some(Host::Domain(name))) => name == "localhost",
        ("http", Some(Host::Ipv4(address))) => address.is_loopback(),
        ("http", Some(Host::Ipv6(address))) => address.is_loopback(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ORGANIZATION: &str = "0b8a3f6e-5f0b-4b7e-9a52-3f1f6f5f0a11";

    fn checked(change: &Value) -> Result<(), String> {
        let mut provider = json!({"name": "corp", "title": "Corp", "issuer": "https://id.example.com",
            "clientId": "tidewaiter", "clientSecretFile": "/run/secret"});
        json_patch::merge(&mut provider, change);
        let settings: SignInSettings = serde_json::from_value(json!({ "providers": [provider] })).unwrap();
        settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn a_setting_that_cannot_be_meant_is_named_with_its_value_and_the_remedy() {
        for good in [
            json!({}),
            json!({"issuer": "http://127.0.0.1:3000", "scopes": ["groups"], "hostedDomain": "example.com"}),
            json!({"organization": ORGANIZATION, "provision": {"role": "member"}}),
            json!({"organization": ORGANIZATION, "groupsClaim": "groups", "teams": {"ops": "Night shift"}}),
        ] {
            assert_eq!(checked(&good), Ok(()), "{good}");
        }
        for (bad, parts) in [
            (json!({"name": "Corp/x"}), ["name", "Corp/x", "begin with a letter"]),
            (json!({"title": ""}), ["title", "\"\"", "visible"]),
            (
                json!({"issuer": "http://id.example.com"}),
                ["issuer", "http://id", "https URL"],
            ),
            (
                json!({"issuer": "https://id.example.com?a"}),
                ["issuer", "?a", "without user, query"],
            ),
            (json!({"clientId": ""}), ["clientId", "\"\"", "1 to 255"]),
            (json!({"scopes": ["a b"]}), ["scopes", "a b", "without spaces"]),
            (
                json!({"organization": "acme"}),
                ["organization", "acme", "must be the id"],
            ),
            (
                json!({"provision": {"role": "member"}}),
                ["organization", "none", "provision"],
            ),
            (
                json!({"organization": ORGANIZATION, "provision": {"role": "owner"}}),
                ["provision.role", "owner", "made by an owner"],
            ),
            (json!({"groupsClaim": "groups"}), ["teams", "empty", "omit it"]),
            (
                json!({"organization": ORGANIZATION, "teams": {"ops": "Ops"}}),
                ["groupsClaim", "none", "must be set"],
            ),
            (
                json!({"groupsClaim": "groups", "teams": {"ops": "Ops"}}),
                ["organization", "none", "teams"],
            ),
        ] {
            let error = checked(&bad).unwrap_err();
            for part in parts.into_iter().chain(["signIn.providers[0]."]) {
                assert!(error.contains(part), "no {part} in {error}");
            }
        }
    }
}
