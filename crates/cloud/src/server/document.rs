//! Parses request bodies strictly, and extracts unique names and references.

use serde::Serialize;
use serde_json::{Map, Value};
use tidewaiter_api::values::quoted;
use zeroize::Zeroizing;

use super::kind::Kind;
use super::store::Name;
use crate::models::{
    AutoscalingPolicySpec, BindingSubject, ClusterLabelSpec, ClusterSpec, Credentials, InvalidField, Model,
    NodePoolLabelSpec, NodePoolSpec, NodeSpec, OrganizationSpec, PluginSpec, PluginVersion, ProviderSpec, RegistrySpec,
    RoleBindingSpec, RoleSpec, SshKeySpec, TeamSpec, Unknown, UpgradeSpec, UserSpec, parse,
};

/// A parsed document.
#[derive(Debug)]
pub(super) struct Document {
    /// The fields that are stored and returned.
    pub(super) spec: Map<String, Value>,
    /// Credentials as JSON, which are stored encrypted; `None` if there are none.
    pub(super) credentials: Option<Credential>,
    /// What must be unique among its siblings.
    pub(super) name: Option<UniqueName>,
    /// The objects that it refers to.
    pub(super) uses: Vec<Use>,
}

/// A name that must be unique among siblings: the value of one field, or of several together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UniqueName {
    /// The field that a message names.
    pub(super) field: &'static str,
    /// The name in the store.
    pub(super) name: String,
    /// Every field of the name with its value, for a message.
    pub(super) key: String,
}

impl UniqueName {
    /// The values of `fields`, of which `field` is the one that a message names.
    fn of(field: &'static str, fields: &[(&str, &str)]) -> Self {
        let values: Vec<_> = fields.iter().map(|(_, value)| *value).collect();
        Self {
            field,
            name: values.join(" "),
            key: key(fields),
        }
    }

    /// The name among the objects of `scope`.
    pub(super) fn within(self, scope: String) -> Name {
        Name {
            scope,
            name: self.name,
            field: self.field,
            key: self.key,
        }
    }
}

/// The fields that have a value, in words.
fn key(fields: &[(&str, &str)]) -> String {
    let set = fields.iter().filter(|(_, value)| !value.is_empty());
    let set: Vec<_> = set.map(|(field, value)| format!("{field} {}", quoted(value))).collect();
    set.join(" and ")
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
        Kind::ClusterLabel => read_as::<ClusterLabelSpec>(bytes),
        Kind::NodePoolLabel => read_as::<NodePoolLabelSpec>(bytes),
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

/// A stored spec in the form in which this version writes it, which may differ from that of the version that stored it.
pub(super) fn current(kind: Kind, stored: Map<String, Value>) -> Map<String, Value> {
    match kind {
        Kind::Cluster => current_as::<ClusterSpec>(stored),
        Kind::NodePool => current_as::<NodePoolSpec>(stored),
        Kind::Node => current_as::<NodeSpec>(stored),
        Kind::Role => current_as::<RoleSpec>(stored),
        Kind::PluginVersion => current_as::<PluginVersion>(stored),
        _ => stored,
    }
}

fn current_as<S: Model + Serialize>(stored: Map<String, Value>) -> Map<String, Value> {
    let spec: Option<S> = parse(super::call::text(&stored).as_bytes(), Unknown::Ignore).ok();
    match serde_json::to_value(spec) {
        Ok(Value::Object(spec)) => spec,
        _ => stored,
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
    /// What must be unique among its siblings.
    fn name(&self) -> Option<UniqueName> {
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
impl SpecModel for UpgradeSpec {}

impl SpecModel for UserSpec {
    /// Addresses that differ only in case reach the same mailbox nearly everywhere, so they must not belong to
    /// different users.
    fn name(&self) -> Option<UniqueName> {
        Some(UniqueName::of(
            "email",
            &[("email", &self.email.as_str().to_lowercase())],
        ))
    }
}

impl SpecModel for SshKeySpec {
    fn name(&self) -> Option<UniqueName> {
        Some(UniqueName::of(
            "key",
            &[("fingerprint", &self.key.fingerprint().to_string())],
        ))
    }
}

impl SpecModel for TeamSpec {
    fn name(&self) -> Option<UniqueName> {
        Some(UniqueName::of("name", &[("name", self.name.as_str())]))
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
    fn name(&self) -> Option<UniqueName> {
        let address = self.serveraddress.to_string();
        let fields = [("serveraddress", &*address), ("description", self.description.as_str())];
        Some(UniqueName::of("description", &fields))
    }

    fn credentials(&self) -> Option<&Credentials> {
        Some(&self.credentials)
    }
}

impl SpecModel for ProviderSpec {
    fn name(&self) -> Option<UniqueName> {
        let fields = [
            ("provider", self.provider.as_str()),
            ("description", self.description.as_str()),
        ];
        Some(UniqueName::of("description", &fields))
    }

    fn credentials(&self) -> Option<&Credentials> {
        Some(&self.credentials)
    }
}

impl SpecModel for ClusterSpec {
    fn name(&self) -> Option<UniqueName> {
        Some(UniqueName::of("name", &[("name", self.name.as_str())]))
    }

    fn uses(&self) -> Vec<Use> {
        self.provider_id
            .iter()
            .map(|id| one("provider_id", Kind::Provider, id))
            .collect()
    }
}

impl SpecModel for PluginSpec {
    fn name(&self) -> Option<UniqueName> {
        let fields = [
            ("type", self.plugin_type.as_str()),
            ("implementation", self.implementation.as_str()),
        ];
        Some(UniqueName::of("implementation", &fields))
    }

    fn uses(&self) -> Vec<Use> {
        let id = format!("{}/{}/{}", self.plugin_type, self.implementation, self.version);
        vec![one("version", Kind::PluginVersion, &id)]
    }
}

impl SpecModel for ClusterLabelSpec {
    fn name(&self) -> Option<UniqueName> {
        Some(UniqueName::of("key", &[("key", self.key.as_str())]))
    }
}

impl SpecModel for NodePoolLabelSpec {
    fn name(&self) -> Option<UniqueName> {
        Some(UniqueName::of("key", &[("key", self.key.as_str())]))
    }
}

impl SpecModel for NodeSpec {
    fn name(&self) -> Option<UniqueName> {
        let name = self.name.as_ref()?;
        Some(UniqueName::of("name", &[("name", name.as_str())]))
    }
}

impl SpecModel for NodePoolSpec {
    fn name(&self) -> Option<UniqueName> {
        Some(UniqueName::of("name", &[("name", self.name.as_str())]))
    }
}

impl SpecModel for AutoscalingPolicySpec {
    fn name(&self) -> Option<UniqueName> {
        Some(UniqueName::of("name", &[("name", self.name.as_str())]))
    }
}

impl SpecModel for RoleSpec {
    fn name(&self) -> Option<UniqueName> {
        Some(UniqueName::of("name", &[("name", self.name.as_str())]))
    }
}

impl SpecModel for RoleBindingSpec {
    fn name(&self) -> Option<UniqueName> {
        let (field, word, id) = match self.subject {
            BindingSubject::User(id) => ("user_id", "user", id.to_string()),
            BindingSubject::Team(id) => ("team_id", "team", id.to_string()),
        };
        let cluster = self.cluster_id.map_or_else(String::new, |id| id.to_string());
        let namespace = self.namespace.as_ref().map_or("", |namespace| namespace.as_str());
        let role = self.authorization_role_id.to_string();
        Some(UniqueName {
            field: "authorization_role_id",
            name: format!("{word} {id} {role} {cluster} {namespace}"),
            key: key(&[
                (field, &id),
                ("authorization_role_id", &role),
                ("cluster_id", &cluster),
                ("namespace", namespace),
            ]),
        })
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
