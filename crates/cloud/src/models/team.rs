//! Teams: users who get roles together.

use std::collections::BTreeMap;

use super::fields::model;
use super::values::{Description, DisplayName, EndTime, OrganizationId, TeamId, UnixMillis, UserId};
use super::{Facts, Fields, InvalidField, Kind, Resource, Use, schema};

/// The maximum number of teams of a user in one organization. Each is named in the user's tokens for kube-apiservers.
pub const MAX_TEAMS: i64 = 80;

model! {
    /// The settings of a team.
    TeamSpec, "a team", check =>
    required name: DisplayName,
    or_default description: Description,
    /// Without duplicates.
    or_default user_ids: Vec<UserId> as Option<BTreeSet<UserId>>,
    /// The ends of memberships, by the id of the user: from this second on, the team gives the user nothing. If absent,
    /// a change keeps the ends of the users who stay.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    or_default user_ends: BTreeMap<UserId, EndTime> as Option<BTreeMap<UserId, schema::EndTime>>,
}

model! {
    /// A team.
    Team, TeamSpec::KIND =>
    required id: TeamId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    required organization_id: OrganizationId,
    flatten spec: TeamSpec,
}

impl Resource for TeamSpec {
    type Object = Team;

    const FACTS: Facts = Facts {
        quota: 5_000,
        tag: "Users",
        is_for_clusters: false,
        columns: &["name", "description"],
        about: "Groups of users that roles can be granted to",
        aliases: &["team"],
        ..Facts::of::<Self>(Kind::Team, "teams", &[Kind::Organization])
    };

    fn uses(&self) -> Vec<Use> {
        let users = self.user_ids.iter().enumerate();
        users
            .map(|(index, id)| Use::new(format!("user_ids[{index}]"), Kind::User, id))
            .collect()
    }
}

impl TeamSpec {
    fn check(&self, fields: &Fields<'_>) -> Result<(), InvalidField> {
        fields.unique("user_ids", &self.user_ids)
    }
}
