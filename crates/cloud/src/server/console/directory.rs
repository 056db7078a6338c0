//! The people, teams, roles and clusters of an organization, by whose names pages refer to them; and the role bindings
//! among them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::value::{list, text};
use crate::client::Path;
use crate::models::Kind;
use crate::models::values::EndTime;
use crate::server::store::Row;

/// The fields of its objects that pages use.
static FIELDS: [&str; 5] = ["name", "email", "user_ids", "user_ends", "rules"];

/// The path of an organization in the API.
pub(super) fn organization(id: &str) -> Path {
    Path::new(["organizations", id])
}

/// The objects that a page names, by their ids.
pub(super) struct Directory {
    organization: String,
    objects: BTreeMap<String, (Kind, Value)>,
}

/// Role bindings, and the time at which they are judged.
pub(super) struct Bindings {
    pub(super) all: Vec<Value>,
    /// The position after which more of them begin.
    pub(super) next: Option<i64>,
    pub(super) now: Timestamp,
}

impl Directory {
    /// The objects in `rows`.
    pub(super) fn new(organization: &str, rows: Vec<Row>) -> Self {
        let object = |row: Row| {
            let mut spec = row.kind.current(row.spec);
            spec.retain(|field, _| FIELDS.contains(&field.as_str()));
            spec.insert("id".to_owned(), Value::from(&*row.id));
            (row.id, (row.kind, Value::Object(spec)))
        };
        Self {
            organization: organization.to_owned(),
            objects: rows.into_iter().map(object).collect(),
        }
    }

    /// A directory of teams and roles.
    #[cfg(test)]
    pub(super) fn of(teams: Value, roles: Value) -> Self {
        let objects = |kind, list: Value| {
            let list: Vec<Value> = serde_json::from_value(list).unwrap_or_default();
            list.into_iter()
                .map(move |object| (text(&object, "id").to_owned(), (kind, object)))
        };
        Self {
            organization: "acme".to_owned(),
            objects: objects(Kind::Team, teams).chain(objects(Kind::Role, roles)).collect(),
        }
    }

    /// Removes the people from their teams whose membership has ended at `now`: it gives nothing.
    #[must_use]
    pub(super) fn at(mut self, now: Timestamp) -> Self {
        self.objects
            .values_mut()
            .for_each(|(_, object)| remove_ended(object, now));
        self
    }

    fn of_kind(&self, kind: Kind, id: &str) -> Option<&Value> {
        let (found, object) = self.objects.get(id)?;
        (*found == kind).then_some(object)
    }

    /// The name of an object.
    pub(super) fn name(&self, id: &str) -> Option<&str> {
        self.objects.get(id).map(|(_, object)| text(object, "name"))
    }

    pub(super) fn role(&self, id: &str) -> Option<&Value> {
        self.of_kind(Kind::Role, id)
    }

    pub(super) fn teams(&self) -> impl Iterator<Item = &Value> {
        let teams = self.objects.values().filter(|(kind, _)| *kind == Kind::Team);
        teams.map(|(_, team)| team)
    }

    /// The name of an object, which leads to its page.
    pub(super) fn link(&self, id: &str) -> Markup {
        let Some((kind, object)) = self.objects.get(id) else {
            return html! { code { (id) } };
        };
        let section = match kind {
            Kind::User => "people",
            Kind::Team => "teams",
            Kind::Role => "roles",
            _ => "clusters",
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
        self.of_kind(Kind::Team, text(binding, "team_id"))
    }

    /// The people to whom a binding gives its role.
    pub(super) fn people_of<'a>(&'a self, binding: &'a Value) -> impl Iterator<Item = &'a str> {
        let members = self.team(binding).into_iter().flat_map(|team| list(team, "user_ids"));
        let user = binding.get("user_id").into_iter().chain(members);
        user.filter_map(Value::as_str).filter(|user| !user.is_empty())
    }
}

impl Bindings {
    /// The bindings as they are in the year 2030.
    #[cfg(test)]
    pub(super) fn of(all: Vec<Value>) -> Self {
        Self {
            all,
            next: None,
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
