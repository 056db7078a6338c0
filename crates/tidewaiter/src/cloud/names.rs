//! Names in tables, in the place of the ids of other objects. An id that the cloud does not resolve for this user
//! stays.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use tidewaiter_cloud::client::Path;
use tidewaiter_cloud::models::Kind;

use super::api_document::name_of;
use super::session::{Session, text};

/// The columns with an id of another object, the columns with its name, and its kind.
const REFERENCES: [(&str, &str, Kind); 6] = [
    ("user_id", "user", Kind::User),
    ("owner_id", "owner", Kind::User),
    ("team_id", "team", Kind::Team),
    ("authorization_role_id", "role", Kind::Role),
    ("cluster_id", "cluster", Kind::Cluster),
    ("node_pool_id", "node_pool", Kind::NodePool),
];

/// The names of objects by their ids.
pub(super) struct Names {
    names: HashMap<String, String>,
    /// True if the id follows the name.
    with_ids: bool,
}

impl Names {
    pub(super) fn new(with_ids: bool) -> Self {
        Self {
            names: HashMap::new(),
            with_ids,
        }
    }

    /// Adds the objects of a list, as far as the cloud shows it.
    async fn load(&mut self, session: &Session, kind: Kind, list: Path) {
        if let Ok(objects) = session.list(list).await {
            for object in &objects {
                self.add(kind, object);
            }
        }
    }

    fn add(&mut self, kind: Kind, object: &Value) {
        let fields: Vec<&str> = kind.facts().key.iter().map(|field| text(object, field)).collect();
        let name = match kind {
            Kind::User => text(object, "email").to_owned(),
            _ if is_named(kind) => name_of(object, &fields),
            _ => String::new(),
        };
        if !name.is_empty() {
            self.names.insert(text(object, "id").to_owned(), name);
        }
    }

    /// The name of the object. The id of a membership ends with the user's.
    fn of(&self, id: &str) -> String {
        let own = id.rsplit('.').next().unwrap_or_default();
        match self.names.get(id).or_else(|| self.names.get(own)) {
            Some(name) if self.with_ids => format!("{name} ({id})"),
            Some(name) => name.clone(),
            None => id.to_owned(),
        }
    }

    /// Adds the names of the objects that the rows refer to, and returns the columns with these names.
    pub(super) async fn resolve<'a>(
        mut self,
        session: &Session,
        columns: &[&'a str],
        rows: &mut [Value],
    ) -> Vec<&'a str> {
        let mut loaded = BTreeSet::new();
        let mut shown = columns.to_vec();
        for (field, column, kind) in REFERENCES {
            let is_used = rows.iter().any(|row| row.get(field).is_some_and(Value::is_string));
            let Some(place) = columns.iter().position(|column| *column == field) else {
                continue;
            };
            if is_used
                && loaded.insert(kind)
                && let Some(list) = list(session, kind).await
            {
                self.load(session, kind, list).await;
            }
            shown[place] = column;
            for row in rows.iter_mut() {
                if let Some(id) = row.get(field).and_then(Value::as_str) {
                    row[column] = self.of(id).into();
                }
            }
        }
        shown
    }

    /// Adds the names of authors and objects to the rows of the audit log, as `by` and `object`.
    pub(super) async fn resolve_audit(mut self, session: &Session, rows: &mut [Value]) {
        for row in rows.iter() {
            // An update has only the fields that have changed.
            let object = match text(row, "action") {
                "create" => &row["after"],
                "delete" => &row["before"],
                _ => continue,
            };
            if let Some(kind) = Kind::of(text(row, "kind")) {
                let mut object = object.clone();
                if object.is_object() {
                    object["id"] = row["object_id"].clone();
                    self.add(kind, &object);
                }
            }
        }
        for (kind, list) in lists(session, rows, &self.names) {
            self.load(session, kind, list).await;
        }
        for row in rows.iter_mut().filter(|row| row.is_object()) {
            let actor = text(row, "actor").to_owned();
            row["by"] = match actor.split_once(':') {
                Some(("user", id)) => self.of(id),
                Some(("service_account", id)) => format!("service account {}", self.of(id)),
                Some(("cluster", id)) => format!("cluster {}", self.of(id)),
                _ => actor,
            }
            .into();
            row["object"] = self.of(text(row, "object_id")).into();
        }
    }
}

/// Returns true if the objects have names of their own, and not only ids.
fn is_named(kind: Kind) -> bool {
    kind.code().is_some() && !matches!(kind, Kind::RoleBinding | Kind::Upgrade)
}

/// The list of a kind to which others refer.
async fn list(session: &Session, kind: Kind) -> Option<Path> {
    let parent = match kind.parent() {
        Some(Kind::Cluster) => session.cluster(None).await,
        _ => session.organization(),
    };
    Some(parent.ok()?.below(kind.facts().segment))
}

/// The lists with the names that the rows of the audit log lack.
fn lists(session: &Session, rows: &[Value], known: &HashMap<String, String>) -> Vec<(Kind, Path)> {
    let mut wanted = BTreeSet::new();
    for row in rows {
        match text(row, "actor").split_once(':') {
            Some(("user", _)) => wanted.insert((Kind::User, "")),
            Some(("service_account", _)) => wanted.insert((Kind::ServiceAccount, "")),
            Some(("cluster", _)) => wanted.insert((Kind::Cluster, "")),
            _ => false,
        };
        if known.contains_key(text(row, "object_id")) {
            continue;
        }
        let cluster = text(row, "cluster_id");
        match Kind::of(text(row, "kind")).map(|kind| (kind, kind.parent())) {
            Some((Kind::Membership, _)) => wanted.insert((Kind::User, "")),
            Some((kind, _)) if !is_named(kind) => false,
            Some((kind, Some(Kind::Organization))) => wanted.insert((kind, "")),
            Some((kind, Some(Kind::Cluster))) if !cluster.is_empty() => wanted.insert((kind, cluster)),
            _ => false,
        };
    }
    let Ok(organization) = session.organization() else {
        return Vec::new();
    };
    let path = |(kind, cluster): (Kind, &str)| {
        let parent = match cluster {
            "" => organization.clone(),
            cluster => organization.clone().below("clusters").below(cluster),
        };
        (kind, parent.below(kind.facts().segment))
    };
    wanted.into_iter().map(path).collect()
}
