//! Objects that a page shows by their ids, names and references: the API has only whole lists of them. They are read
//! from the store, and only for a visit, whose person is a member of the organization: members may list all of them.

use std::collections::HashMap;

use maud::{Markup, html};
use serde_json::{Value, json};
use uuid::Uuid;

use super::api::Problem;
use super::controls::{ROWS, select};
use super::directory::{Bindings, Directory};
use super::value::text;
use super::visit::Visit;
use crate::models::Kind;
use crate::server::Error;
use crate::server::routes::clusters::reported;
use crate::server::routes::representation::shown;
use crate::server::store::{BindingFilter, Row, Source as _, membership_id};

/// The maximum number of names that a field offers.
const OFFERED: usize = 50;
/// The number of upgrades of a page, whose statuses name each node.
const UPGRADES: usize = 20;

/// The number of rows of a page and the one after it.
fn with_next(rows: usize) -> i64 {
    i64::try_from(rows + 1).unwrap_or(i64::MAX)
}

/// Leaves the first `limit` rows. Returns the position of the last, if there are more.
fn cut(rows: &mut Vec<Row>, limit: usize) -> Option<i64> {
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    rows.last().map(|row| row.position).filter(|_| has_more)
}

/// A pattern for texts that begin as `entered`. It may match others: a database does not know the case of all letters,
/// and a document has characters in another form.
fn pattern(entered: &str) -> String {
    let is_plain = |c: &char| !c.is_control() && !['"', '\\'].contains(c);
    let any_case = |c: char| {
        if c.is_ascii() && !['%', '_'].contains(&c) {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    let mut pattern: String = entered.chars().take_while(is_plain).map(any_case).collect();
    pattern.push('%');
    pattern
}

impl Visit {
    fn count(&self, rows: &[Row]) {
        for _ in rows {
            self.app.requests.rows.inc();
        }
    }

    /// The objects of the organization that have these ids.
    pub(super) async fn directory(&self, ids: &[&str]) -> Result<Directory, Problem> {
        let mut ids: Vec<&str> = ids.iter().copied().filter(|id| !id.is_empty()).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = self.app.store.named_objects(&self.place.id, &ids).await?;
        self.count(&found);
        Ok(Directory::new(&self.place.id, found).at(self.session.now))
    }

    /// The selected role bindings after the position `after`, at most `limit`.
    pub(super) async fn bindings(
        &self,
        selected: &BindingFilter<'_>,
        (after, limit): (i64, usize),
    ) -> Result<Bindings, Problem> {
        let range = (after, with_next(limit));
        let mut found = self.app.store.bindings(&self.place.id, selected, range).await?;
        self.count(&found);
        let next = cut(&mut found, limit);
        let all: Result<Vec<_>, Error> = found.iter().map(|row| self.shown(row)).collect();
        Ok(Bindings {
            all: all?,
            next,
            now: self.session.now,
        })
    }

    fn shown(&self, row: &Row) -> Result<Value, Error> {
        Ok(Value::Object(shown(&self.app, row, false)?))
    }

    /// The id of the object with this name; of a user, with this e-mail address. What is an id, or the name of nothing
    /// in the organization, is returned as it is; a text that no database accepts, as an id of nothing.
    pub(super) async fn id_of(&self, kind: Kind, name: &str) -> Result<String, Problem> {
        if let Ok(id) = Uuid::try_parse(name) {
            return Ok(id.to_string());
        }
        if name.is_empty() {
            return Ok(String::new());
        }
        if name.contains('\0') {
            return Ok(Uuid::nil().to_string());
        }
        let mut source = &self.app.store;
        let found = if kind == Kind::User {
            source.named(kind, "", &name.to_lowercase()).await?
        } else {
            source.named(kind, &self.place.id, name).await?
        };
        let Some(found) = found else {
            return Ok(name.to_owned());
        };
        if kind == Kind::User {
            // Nobody learns the ids of other organizations' users.
            let membership = membership_id(&self.place.id, &found.id);
            if self.app.store.get(Kind::Membership, &membership).await?.is_none() {
                return Ok(name.to_owned());
            }
        }
        Ok(found.id)
    }

    /// The ids and names of objects whose names begin as `entered`: those that a field offers, and one more.
    async fn names(&self, kind: Kind, entered: &str) -> Result<Vec<(String, String)>, Problem> {
        let (store, organization) = (&self.app.store, &self.place.id);
        let mut found = store
            .names(kind, organization, &pattern(entered), with_next(OFFERED))
            .await?;
        let entered = entered.to_lowercase();
        found.retain(|(_, name)| name.to_lowercase().starts_with(&entered));
        Ok(found)
    }

    /// A field for an object: a list of all while they are few. Otherwise a text for the name, which offers names that
    /// begin as `entered`. `none` is the choice of no object.
    pub(super) async fn object_field(
        &self,
        kind: Kind,
        (label, name, none): (&str, &str, &str),
        entered: &str,
    ) -> Result<Markup, Problem> {
        let (all, selected) = (self.names(kind, "").await?, self.id_of(kind, entered).await?);
        if all.len() <= OFFERED {
            let options = all.iter().map(|(id, name)| (&**id, &**name));
            return Ok(select(label, name, [("", none)].into_iter().chain(options), &selected));
        }
        let directory = self.directory(&[&selected]).await?;
        let entered = directory.name(&selected).unwrap_or(entered);
        let offered = self.names(kind, entered).await?;
        let list = format!("{name}-names");
        Ok(html! {
            label { (label) " " input name=(name) value=(entered) list=(list) placeholder=(none); }
            datalist id=(list) {
                @for (_, name) in offered.iter().take(OFFERED) { option value=(name) {} }
            }
        })
    }

    /// The people of the organization after the position `after`, whose names or e-mail addresses contain `wanted`, and
    /// the position after which the next ones begin.
    pub(super) async fn people(&self, wanted: &str, after: i64) -> Result<(Vec<Value>, Option<i64>), Problem> {
        let (store, organization) = (&self.app.store, &self.place.id);
        let pattern = format!("%{}", pattern(wanted));
        let range = (after, with_next(ROWS));
        let mut memberships = store.memberships(organization, &pattern, range).await?;
        self.count(&memberships);
        let next = cut(&mut memberships, ROWS);
        let ids: Vec<&str> = memberships.iter().filter_map(|row| row.text("user_id")).collect();
        let users = store.named_objects(organization, &ids).await?;
        self.count(&users);
        let keys = store.numbers_of_keys(&ids).await?;
        let users: HashMap<&str, &Row> = users.iter().map(|user| (&*user.id, user)).collect();
        let wanted = wanted.to_lowercase();
        let person = |membership: &Row| {
            let user = users.get(membership.text("user_id")?)?;
            let names = ["name", "email"].map(|field| user.text(field).unwrap_or_default());
            let is_wanted = names.iter().any(|name| name.to_lowercase().contains(&wanted));
            let shown = json!({
                "id": user.id,
                "name": names[0],
                "email": names[1],
                "role": membership.text("role"),
                "keys": keys.get(&user.id).copied().unwrap_or_default(),
                "expires_at": user.text("expires_at"),
                "role_expires_at": membership.text("expires_at"),
            });
            is_wanted.then_some(shown)
        };
        Ok((memberships.iter().filter_map(person).collect(), next))
    }

    /// The teams of each of these users, with their ids and names.
    pub(super) async fn teams_of(&self, users: &[&str]) -> Result<HashMap<String, Vec<Value>>, Problem> {
        let mut found: HashMap<String, Vec<Value>> = HashMap::new();
        for [user, id, name] in self.app.store.teams_of(&self.place.id, users).await? {
            found.entry(user).or_default().push(json!({ "id": id, "name": name }));
        }
        Ok(found)
    }

    /// The last report of each of these clusters of the organization.
    pub(super) async fn reports(&self, clusters: &[&str]) -> Result<HashMap<String, Value>, Problem> {
        let found = self.app.store.reports_of(clusters).await?;
        self.count(&found);
        let report = |row: &Row| (row.parent_id.clone(), Value::Object(reported(row)));
        Ok(found.iter().map(report).collect())
    }

    /// The last upgrade that has not ended of each of these clusters of the organization.
    pub(super) async fn open_upgrades(&self, clusters: &[&str]) -> Result<HashMap<String, Value>, Problem> {
        let found = self.app.store.open_upgrades_of(clusters).await?;
        self.count(&found);
        let upgrades: Result<HashMap<_, _>, Error> = found
            .iter()
            .map(|row| Ok((row.parent_id.clone(), self.shown(row)?)))
            .collect();
        Ok(upgrades?)
    }

    /// The upgrades of a cluster of the organization before the position in the query of the page, the last one first,
    /// and the position before which there are more.
    pub(super) async fn upgrades(&self, cluster: &str) -> Result<(Vec<Value>, Option<i64>), Problem> {
        let before = self.query.get("older").and_then(|before| before.parse().ok());
        let range = (before.unwrap_or(i64::MAX), with_next(UPGRADES));
        let mut found = self.app.store.upgrades_before(cluster, range).await?;
        self.count(&found);
        let older = cut(&mut found, UPGRADES);
        let upgrades: Result<Vec<_>, Error> = found.iter().map(|row| self.shown(row)).collect();
        Ok((upgrades?, older))
    }

    /// The plugins of these clusters of the organization whose documents contain `word`, each with the id of its
    /// cluster.
    pub(super) async fn plugins(&self, clusters: &[&str], word: &str) -> Result<Vec<(String, Value)>, Problem> {
        let pattern = format!("%{}", pattern(word));
        let found = self.app.store.plugins_of(clusters, &pattern).await?;
        self.count(&found);
        let plugins: Result<Vec<_>, Error> = found
            .iter()
            .map(|row| Ok((row.parent_id.clone(), self.shown(row)?)))
            .collect();
        Ok(plugins?)
    }
}

/// The ids of the objects that role bindings name.
pub(super) fn named_ids<'a>(bindings: impl IntoIterator<Item = &'a Value>) -> Vec<&'a str> {
    let fields = ["user_id", "team_id", "authorization_role_id", "cluster_id", "owner_id"];
    let ids = |binding: &'a Value| fields.map(|field| text(binding, field));
    bindings.into_iter().flat_map(ids).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_no_wildcard_that_a_person_entered() {
        for (entered, expected) in [
            ("Alice@Example.org", "alice@example.org%"),
            ("50% _a", "50_ _a%"),
            ("Jürgen", "j_rgen%"),
            ("a\"b", "a%"),
            ("", "%"),
        ] {
            assert_eq!(pattern(entered), expected);
        }
    }
}
