//! Parses request bodies strictly, and extracts unique names and references.

use serde::Serialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::kind::Kind;
use crate::models::{
    AutoscalingPolicySpec, BindingSubject, ClusterSpec, Credentials, InvalidField, LabelSpec, Model, NodePoolSpec,
    NodeSpec, OrganizationSpec, PluginSpec, ProviderSpec, RegistrySpec, RoleBindingSpec, RoleSpec, SshKeySpec,
    TeamSpec, Unknown, UpgradeSpec, UserSpec, parse,
};

/// A parsed document.
#[derive(Debug)]
pub(super) struct Document {
    /// The fields that are stored and returned.
    pub(super) spec: Map<String, Value>,
    /// Credentials as JSON, which are stored encrypted; `None` if there are none.
    pub(super) credentials: Option<Credential>,
    /// The field that must be unique among its siblings, and its value.
    pub(super) name: Option<(&'static str, String)>,
    /// The objects that it refers to.
    pub(super) uses: Vec<Use>,
}

/// The text of credentials, cleared when it is dropped.
pub(super) struct Credential(pub(super) Zeroizing<String>);

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not shown")
    }
}

/// A reference of a field to an object of the same organization.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Use {
    /// The field, for the message.
    pub(super) field: String,
    /// The kind of the object; [`Kind::User`] means a member of the organization.
    pub(super) kind: Kind,
    /// The id of the object.
    pub(super) id: String,
}

/// Parses `bytes` as a spec of `kind`.
///
/// # Errors
/// The first invalid field.
pub(super) fn read(kind: Kind, bytes: &[u8]) -> Result<Document, InvalidField> {
    match kind {
        Kind::Organization => read_as::<OrganizationSpec>(bytes),
        Kind::User => read_as::<UserSpec>(bytes),
        Kind::SshKey => read_as::<SshKeySpec>(bytes),
        Kind::Team => read_as::<TeamSpec>(bytes),
        Kind::Registry => read_as::<RegistrySpec>(bytes),
        Kind::Provider => read_as::<ProviderSpec>(bytes),
        Kind::Cluster => read_as::<ClusterSpec>(bytes),
        Kind::Plugin => read_as::<PluginSpec>(bytes),
        Kind::ClusterLabel | Kind::NodePoolLabel => read_as::<LabelSpec>(bytes),
        Kind::NodePool => read_as::<NodePoolSpec>(bytes),
        Kind::Node => read_as::<NodeSpec>(bytes),
        Kind::AutoscalingPolicy => read_as::<AutoscalingPolicySpec>(bytes),
        Kind::Role => read_as::<RoleSpec>(bytes),
        Kind::RoleBinding => read_as::<RoleBindingSpec>(bytes),
        Kind::Upgrade => read_as::<UpgradeSpec>(bytes),
        Kind::Membership
        | Kind::Password
        | Kind::Operator
        | Kind::Token
        | Kind::ApiKey
        | Kind::PolicyAssignment
        | Kind::UpgradeScript
        | Kind::PluginVersion
        | Kind::PluginManifests => Err(InvalidField {
            field: String::new(),
            reason: format!("cannot be written as {}", kind.singular()),
        }),
    }
}

fn read_as<S: SpecModel>(bytes: &[u8]) -> Result<Document, InvalidField> {
    let said: S = parse(bytes, Unknown::Refuse)?;
    let invalid = |reason: String| InvalidField {
        field: String::new(),
        reason,
    };
    let spec = match serde_json::to_value(&said) {
        Ok(Value::Object(spec)) => spec,
        Ok(_) => return Err(invalid("must be an object".to_owned())),
        Err(error) => return Err(invalid(format!("cannot be written: {error}"))),
    };
    let credentials = match said.credentials().map(Credentials::revealed) {
        Some(shown) if !shown.is_empty() => {
            let text = serde_json::to_string(&shown)
                .map_err(|_| invalid("has credentials that cannot be written".to_owned()))?;
            Some(Credential(Zeroizing::new(text)))
        }
        _ => None,
    };
    Ok(Document {
        spec,
        credentials,
        name: said.name(),
        uses: said.uses(),
    })
}

/// The spec of a kind.
trait SpecModel: Model + Serialize {
    /// The field that must be unique among its siblings, and its value.
    fn name(&self) -> Option<(&'static str, String)> {
        None
    }

    /// The objects that it refers to.
    fn uses(&self) -> Vec<Use> {
        Vec::new()
    }

    /// The credentials to encrypt.
    fn credentials(&self) -> Option<&Credentials> {
        None
    }
}

fn one(field: impl Into<String>, kind: Kind, id: &impl ToString) -> Use {
    Use {
        field: field.into(),
        kind,
        id: id.to_string(),
    }
}

impl SpecModel for OrganizationSpec {}
impl SpecModel for NodeSpec {}
impl SpecModel for UpgradeSpec {}

impl SpecModel for UserSpec {
    /// Addresses that differ only in case reach the same mailbox nearly everywhere, so they must not belong to
    /// different users.
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("email", self.email.as_str().to_lowercase()))
    }
}

impl SpecModel for SshKeySpec {
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("key", self.key.fingerprint().to_string()))
    }
}

impl SpecModel for TeamSpec {
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("name", self.name.to_string()))
    }

    fn uses(&self) -> Vec<Use> {
        let users = self.user_ids.iter().enumerate();
        users
            .map(|(index, id)| one(format!("user_ids[{index}]"), Kind::User, id))
            .collect()
    }
}

impl SpecModel for RegistrySpec {
    /// Several credentials of one address are permitted: the description distinguishes them.
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("description", format!("{} {}", self.serveraddress, self.description)))
    }

    fn credentials(&self) -> Option<&Credentials> {
        Some(&self.credentials)
    }
}

impl SpecModel for ProviderSpec {
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("description", format!("{} {}", self.provider, self.description)))
    }

    fn credentials(&self) -> Option<&Credentials> {
        Some(&self.credentials)
    }
}

impl SpecModel for ClusterSpec {
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("name", self.name.to_string()))
    }

    fn uses(&self) -> Vec<Use> {
        self.provider_id
            .iter()
            .map(|id| one("provider_id", Kind::Provider, id))
            .collect()
    }
}

impl SpecModel for PluginSpec {
    fn name(&self) -> Option<(&'static str, String)> {
        Some((
            "implementation",
            format!("{} {}", self.plugin_type, self.implementation),
        ))
    }

    fn uses(&self) -> Vec<Use> {
        let id = format!("{}/{}/{}", self.plugin_type, self.implementation, self.version);
        vec![one("version", Kind::PluginVersion, &id)]
    }
}

impl SpecModel for LabelSpec {
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("key", self.key.to_string()))
    }
}

impl SpecModel for NodePoolSpec {
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("name", self.name.to_string()))
    }
}

impl SpecModel for AutoscalingPolicySpec {
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("name", self.name.to_string()))
    }
}

impl SpecModel for RoleSpec {
    fn name(&self) -> Option<(&'static str, String)> {
        Some(("name", self.name.to_string()))
    }
}

impl SpecModel for RoleBindingSpec {
    fn name(&self) -> Option<(&'static str, String)> {
        let subject = match self.subject {
            BindingSubject::User(id) => format!("user {id}"),
            BindingSubject::Team(id) => format!("team {id}"),
        };
        let cluster = self.cluster_id.map_or_else(String::new, |id| id.to_string());
        let namespace = self.namespace.as_ref().map_or("", |namespace| namespace.as_str());
        let role = self.authorization_role_id;
        Some((
            "authorization_role_id",
            format!("{subject} {role} {cluster} {namespace}"),
        ))
    }

    fn uses(&self) -> Vec<Use> {
        let mut uses = vec![one("authorization_role_id", Kind::Role, &self.authorization_role_id)];
        uses.push(match self.subject {
            BindingSubject::User(id) => one("user_id", Kind::User, &id),
            BindingSubject::Team(id) => one("team_id", Kind::Team, &id),
        });
        uses.extend(self.cluster_id.iter().map(|id| one("cluster_id", Kind::Cluster, id)));
        uses
    }
}
