//! Teams: users who get roles together.

use serde::Serialize;
use utoipa::ToSchema;

use super::Kind;
use super::document::InvalidField;
use super::fields::{Fields, Model, model};
use super::resource::{Facts, Resource, Use};
use super::values::{Description, DisplayName, OrganizationId, TeamId, UnixMillis, UserId};

/// The settings of a team.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct TeamSpec {
    pub name: DisplayName,
    #[schema(value_type = Option<Description>)]
    pub description: Description,
    /// Without duplicates.
    #[schema(value_type = Option<BTreeSet<UserId>>)]
    pub user_ids: Vec<UserId>,
}

/// A team.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Team {
    pub id: TeamId,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    pub organization_id: OrganizationId,
    #[serde(flatten)]
    pub spec: TeamSpec,
}

impl Resource for TeamSpec {
    type Object = Team;

    const FACTS: Facts = Facts {
        quota: 5_000,
        tag: "Users",
        is_for_clusters: false,
        generated: &["id", "created_at", "updated_at", "organization_id"],
        columns: &["name", "description"],
        about: "Groups of users that roles can be granted to",
        aliases: &["team"],
        ..Facts::of(Kind::Team, "teams", Self::KIND, &[Kind::Organization])
    };

    fn uses(&self) -> Vec<Use> {
        let users = self.user_ids.iter().enumerate();
        users
            .map(|(index, id)| Use::new(format!("user_ids[{index}]"), Kind::User, id))
            .collect()
    }
}

impl Model for TeamSpec {
    const KIND: &'static str = "a team";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let spec = Self {
            name: fields.required("name")?,
            description: fields.or_default("description")?,
            user_ids: fields.or_default("user_ids")?,
        };
        fields.unique("user_ids", &spec.user_ids)?;
        Ok(spec)
    }
}

model! { Team, TeamSpec::KIND => required { id, created_at, updated_at, organization_id } flatten { spec } }
