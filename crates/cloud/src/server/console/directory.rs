//! The people, teams, roles and clusters of an organization, by whose names pages refer to them; and the role bindings
//! among them.

use std::collections::HashMap;

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::api::{Api, Problem};
use super::value::{list, text};
use crate::client::Path;
use crate::models::values::EndTime;

/// The fields of its objects that pages use. The last one, the rules of roles, is kept only where they are shown.
static FIELDS: [&str; 7] = ["id", "name", "email", "role", "user_ids", "user_ends", "rules"];

/// The path of an organization in the API.
pub(super) fn organization(id: &str) -> Path {
    Path::new(["organizations", id])
}

/// The objects that bindings and audit rows name.
pub(super) struct Directory {
    organization: String,
    pub(super) users: Vec<Value>,
    pub(super) teams: Vec<Value>,
    pub(super) roles: Vec<Value>,
    pub(super) clusters: Vec<Value>,
    /// The list and the index of each object, by its id.
    places: HashMap<String, (Section, usize)>,
}

/// A list of a directory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Section {
    People,
    Teams,
    Roles,
    Clusters,
}

/// Role bindings, and the time at which they are judged.
pub(super) struct Bindings {
    pub(super) all: Vec<Value>,
    now: Timestamp,
}

impl Directory {
    /// Reads the lists of an organization, with the rules of roles if `has_rules`.
    pub(super) async fn read(api: &Api, id: &str, has_rules: bool) -> Result<Self, Problem> {
        let fields = if has_rules { &FIELDS[..] } else { &FIELDS[..6] };
        let all = |segment| api.all_with(organization(id).below(segment), fields);
        let (users, teams) = futures::try_join!(all("users"), all("teams"))?;
        let (roles, clusters) = futures::try_join!(all("roles"), all("clusters"))?;
        Ok(Self::new(id, [users, teams, roles, clusters]))
    }

    fn new(id: &str, [users, teams, roles, clusters]: [Vec<Value>; 4]) -> Self {
        let mut places = HashMap::new();
        let sections = [Section::People, Section::Teams, Section::Roles, Section::Clusters];
        for (section, objects) in sections.into_iter().zip([&users, &teams, &roles, &clusters]) {
            let objects = objects.iter().enumerate();
            places.extend(objects.map(|(index, object)| (text(object, "id").to_owned(), (section, index))));
        }
        Self {
            organization: id.to_owned(),
            users,
            teams,
            roles,
            clusters,
            places,
        }
    }

    /// A directory of teams and roles.
    #[cfg(test)]
    pub(super) fn of(teams: Value, roles: Value) -> Self {
        let objects = |list: Value| serde_json::from_value(list).unwrap_or_default();
        Self::new("acme", [Vec::new(), objects(teams), objects(roles), Vec::new()])
    }

    /// Removes the people from their teams whose membership has ended at `now`: it gives nothing.
    #[must_use]
    pub(super) fn at(mut self, now: Timestamp) -> Self {
        self.teams.iter_mut().for_each(|team| remove_ended(team, now));
        self
    }

    fn find(&self, id: &str) -> Option<(Section, &Value)> {
        let (section, index) = *self.places.get(id)?;
        let objects = match section {
            Section::People => &self.users,
            Section::Teams => &self.teams,
            Section::Roles => &self.roles,
            Section::Clusters => &self.clusters,
        };
        Some((section, objects.get(index)?))
    }

    fn in_section(&self, section: Section, id: &str) -> Option<&Value> {
        self.find(id)
            .filter(|(found, _)| *found == section)
            .map(|(_, object)| object)
    }

    pub(super) fn user(&self, id: &str) -> Option<&Value> {
        self.in_section(Section::People, id)
    }

    pub(super) fn role(&self, id: &str) -> Option<&Value> {
        self.in_section(Section::Roles, id)
    }

    /// The user with this e-mail address or id.
    pub(super) fn named_user(&self, name: &str) -> Option<&Value> {
        let has_name = |user: &&Value| text(user, "email").eq_ignore_ascii_case(name);
        self.user(name).or_else(|| self.users.iter().find(has_name))
    }

    /// The name of an object, which leads to its page.
    pub(super) fn link(&self, id: &str) -> Markup {
        let Some((section, object)) = self.find(id) else {
            return html! { code { (id) } };
        };
        let section = match section {
            Section::People => "people",
            Section::Teams => "teams",
            Section::Roles => "roles",
            Section::Clusters => "clusters",
        };
        let path = format!("/organizations/{}/{section}/{id}", self.organization);
        html! { a href=(path) title=(id) { (text(object, "name")) } }
    }

    /// The cluster and the namespace of a binding.
    pub(super) fn place(&self, binding: &Value) -> Markup {
        let (cluster, namespace) = (text(binding, "cluster_id"), text(binding, "namespace"));
        html! {
            @if cluster.is_empty() { "all clusters" } @else { (self.link(cluster)) }
            @if !namespace.is_empty() { ", namespace " (namespace) }
        }
    }

    /// The team of a binding, if it is one of a team.
    fn team(&self, binding: &Value) -> Option<&Value> {
        self.in_section(Section::Teams, text(binding, "team_id"))
    }

    /// The people to whom a binding gives its role.
    pub(super) fn people_of<'a>(&'a self, binding: &'a Value) -> impl Iterator<Item = &'a str> {
        let members = self.team(binding).into_iter().flat_map(|team| list(team, "user_ids"));
        let user = binding.get("user_id").into_iter().chain(members);
        user.filter_map(Value::as_str).filter(|user| !user.is_empty())
    }

    /// Returns true if a binding gives its role to this person.
    pub(super) fn concerns(&self, binding: &Value, user: &str) -> bool {
        self.people_of(binding).any(|other| other == user)
    }
}

impl Bindings {
    /// Reads the role bindings of an organization, as they are at `now`.
    pub(super) async fn read(api: &Api, id: &str, now: Timestamp) -> Result<Self, Problem> {
        let all = api.all(organization(id).below("role-bindings")).await?;
        Ok(Self { all, now })
    }

    /// The bindings as they are in the year 2030.
    #[cfg(test)]
    pub(super) fn of(all: Vec<Value>) -> Self {
        Self {
            all,
            now: Timestamp::from_second(1_900_000_000).unwrap_or_default(),
        }
    }

    /// The bindings that have not ended.
    pub(super) fn live(&self) -> impl Iterator<Item = &Value> {
        let live = |binding: &&Value| !has_passed(text(binding, "expires_at"), self.now);
        self.all.iter().filter(live)
    }
}

/// Removes the people from a team whose membership has ended at `now`.
fn remove_ended(team: &mut Value, now: Timestamp) {
    let ends = team.get("user_ends").cloned().unwrap_or_default();
    let has_ended = |user: &Value| has_passed(text(&ends, user.as_str().unwrap_or_default()), now);
    if let Some(users) = team.get_mut("user_ids").and_then(Value::as_array_mut) {
        users.retain(|user| !has_ended(user));
    }
}

/// Returns true if the end of an access has passed at `now`.
pub(super) fn has_passed(end: &str, now: Timestamp) -> bool {
    EndTime::of_field(end).is_some_and(|end| end.has_passed(now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_team_gives_nothing_to_a_person_whose_membership_has_ended() {
        let ends = json!({"alice": "2099-01-01T00:00:00Z", "bob": "2020-01-01T00:00:00Z"});
        let team = json!({"id": "night", "user_ids": ["alice", "bob", "carol"], "user_ends": ends});
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let directory = Directory::of(json!([team]), json!([])).at(now);
        let binding = json!({"team_id": "night"});
        let people: Vec<&str> = directory.people_of(&binding).collect();
        assert_eq!(people, ["alice", "carol"]);
    }
}
