//! Role bindings: a role for a user or a team, in a cluster or a namespace of it.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::fields::model;
use super::values::{
    ClusterId, EndTime, Namespace, OrganizationId, RoleBindingId, RoleId, TeamId, UnixMillis, UserId, words,
};
use super::{Facts, Fields, InvalidField, Kind, Model, Parameter, ParameterType, Resource, UniqueName, Use, schema};

words! {
    /// Which of the two ids applies.
    BindingType, "type of a role binding" {
        /// `user_id`.
        User = "UserBinding",
        /// `team_id`.
        Team = "TeamBinding",
    }
}

/// The subject of a role binding. On the wire: `type`, `user_id` and `team_id`; the id that does not apply is `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingSubject {
    User(UserId),
    Team(TeamId),
}

/// The fields in which a [`BindingSubject`] stands on the wire.
#[derive(Serialize, ToSchema)]
struct SubjectFields {
    #[serde(rename = "type")]
    binding_type: BindingType,
    /// Only in a `UserBinding`.
    user_id: Option<UserId>,
    /// Only in a `TeamBinding`.
    team_id: Option<TeamId>,
}

impl Serialize for BindingSubject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (binding_type, user_id, team_id) = match *self {
            Self::User(id) => (BindingType::User, Some(id), None),
            Self::Team(id) => (BindingType::Team, None, Some(id)),
        };
        let fields = SubjectFields {
            binding_type,
            user_id,
            team_id,
        };
        fields.serialize(serializer)
    }
}

model! {
    /// The settings of a role binding.
    #[schema(examples(json!({"type": "UserBinding", "user_id": "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e",
        "authorization_role_id": "0b8e4a52-13f7-4f0e-9d3c-7a6b5c4d3e2f"})))]
    RoleBindingSpec, "a role binding" =>
    flatten subject: BindingSubject as SubjectFields,
    required authorization_role_id: RoleId,
    /// If absent, all clusters of the organization.
    optional cluster_id: Option<ClusterId>,
    /// If absent, all namespaces.
    optional namespace: Option<Namespace>,
    /// From this second on, the binding gives nothing. If absent, the binding does not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    nullable expires_at: Option<EndTime> as Option<schema::EndTime>,
}

model! {
    /// A role binding.
    RoleBinding, RoleBindingSpec::KIND =>
    required id: RoleBindingId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    required organization_id: OrganizationId,
    optional owner_id: Option<UserId>,
    flatten spec: RoleBindingSpec,
}

impl Resource for RoleBindingSpec {
    type Object = RoleBinding;

    const FACTS: Facts = Facts {
        quota: 20_000,
        tag: "Roles",
        list_query: &[Parameter {
            name: "cluster_id",
            description: "only those of this cluster and those that apply to all clusters",
            form: ParameterType::Id,
            required: false,
        }],
        key: &[
            "type",
            "user_id",
            "team_id",
            "authorization_role_id",
            "cluster_id",
            "namespace",
        ],
        columns: &[
            "type",
            "authorization_role_id",
            "user_id",
            "team_id",
            "cluster_id",
            "namespace",
            "expires_at",
        ],
        about: "Grants of roles to users and teams",
        aliases: &["role-binding", "bindings"],
        ..Facts::of::<Self>(Kind::RoleBinding, "role-bindings", &[Kind::Organization])
    };

    fn name(&self, _: &Map<String, Value>) -> Option<UniqueName> {
        let (field, word, id) = match self.subject {
            BindingSubject::User(id) => ("user_id", "user", id.to_string()),
            BindingSubject::Team(id) => ("team_id", "team", id.to_string()),
        };
        let cluster = self.cluster_id.map_or_else(String::new, |id| id.to_string());
        let namespace = self.namespace.as_ref().map_or("", |namespace| namespace.as_str());
        let role = self.authorization_role_id.to_string();
        let fields = [
            (field, &*id),
            ("authorization_role_id", &role),
            ("cluster_id", &cluster),
            ("namespace", namespace),
        ];
        let name = UniqueName::of("authorization_role_id", &fields);
        Some(UniqueName {
            name: format!("{word} {}", name.name),
            ..name
        })
    }

    fn uses(&self) -> Vec<Use> {
        let role = Use::new("authorization_role_id", Kind::Role, &self.authorization_role_id);
        let subject = match self.subject {
            BindingSubject::User(id) => Use::new("user_id", Kind::User, &id),
            BindingSubject::Team(id) => Use::new("team_id", Kind::Team, &id),
        };
        let cluster = self.cluster_id.map(|id| Use::new("cluster_id", Kind::Cluster, &id));
        [role, subject].into_iter().chain(cluster).collect()
    }
}

impl Model for BindingSubject {
    const KIND: &'static str = "the subject of a role binding";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let binding_type = fields.required("type")?;
        let user_id: Option<UserId> = fields.optional("user_id")?;
        let team_id: Option<TeamId> = fields.optional("team_id")?;
        let other = |key| fields.invalid(key, format!("is not allowed in a {binding_type}; omit it"));
        let missing = |key| fields.invalid(key, format!("is missing: must be set in a {binding_type}"));
        match (binding_type, user_id, team_id) {
            (BindingType::User, Some(id), None) => Ok(Self::User(id)),
            (BindingType::Team, None, Some(id)) => Ok(Self::Team(id)),
            (BindingType::User, _, Some(_)) => Err(other("team_id")),
            (BindingType::Team, Some(_), _) => Err(other("user_id")),
            (BindingType::User, None, None) => Err(missing("user_id")),
            (BindingType::Team, None, None) => Err(missing("team_id")),
        }
    }
}
