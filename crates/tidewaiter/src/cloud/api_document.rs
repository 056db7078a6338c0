//! A document converted to the fields of the API: names are replaced by ids, and the whole is validated.

use std::collections::HashMap;

use anyhow::{Result, anyhow, bail};
use serde_json::{Map, Value};
use tidewaiter_api::values::EndTime;
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::server::keys::hash::Password;
use tidewaiter_cloud::server::principal::OrgRole;
use tidewaiter_coordinator::controllers;

use super::documents::{Document, string, strings};
use super::session::text;

/// A document converted to the fields of the API.
pub(super) struct ApiDocument {
    /// The spec, every field there.
    pub(super) spec: Value,
    /// Fields that only a create request accepts.
    beside: Map<String, Value>,
}

impl ApiDocument {
    /// The body that makes it.
    pub(super) fn for_creation(self) -> Value {
        let mut body = self.spec;
        if let Value::Object(body) = &mut body {
            body.extend(self.beside);
        }
        body
    }
}

/// The ids of the objects that documents name.
pub(super) type Ids = HashMap<(Kind, String), String>;

/// Validates a document as far as possible without the cloud.
pub(super) fn check(document: &Document) -> Result<()> {
    let kind = document.kind;
    if !kind.facts().is_declared {
        bail!(
            "the kind {} cannot be applied; create the object with: tidewaiter cloud create",
            kind.name()
        );
    }
    let placed = |given: &Option<String>, field: &str, allowed: bool, needed: bool| match (given, allowed, needed) {
        (Some(_), false, _) => Err(anyhow!("{field}: does not apply to the kind {}; omit it", kind.name())),
        (None, _, true) => Err(anyhow!(
            "{field} is missing: it is required for the kind {}",
            kind.name()
        )),
        _ => Ok(()),
    };
    let in_cluster = matches!(kind.parent(), Some(Kind::Cluster | Kind::NodePool));
    placed(
        &document.cluster,
        "cluster",
        in_cluster || document.kind == Kind::RoleBinding,
        false,
    )?;
    placed(
        &document.node_pool,
        "nodePool",
        kind.parent() == Some(Kind::NodePool),
        kind.parent() == Some(Kind::NodePool),
    )?;
    placed(
        &document.user,
        "user",
        kind.parent() == Some(Kind::User),
        kind.parent() == Some(Kind::User),
    )?;
    names(document).map(drop)
}

/// A valid id that nothing has.
pub(super) fn stand_in(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// The objects that a valid document names.
pub(super) fn names(document: &Document) -> Result<Vec<(Kind, String)>> {
    let mut names = Vec::new();
    read(document, &mut |kind, name| {
        names.push((kind, name.to_owned()));
        // Two names are two ids.
        Ok(stand_in(names.len()))
    })?;
    Ok(names)
}

/// Converts a document, with the ids of the objects that it names.
pub(super) fn said_by(document: &Document, ids: &Ids) -> Result<ApiDocument> {
    read(document, &mut |kind, name| {
        let found = ids.get(&(kind, name.to_owned())).cloned();
        found.ok_or_else(|| anyhow!("there is no {} {name:?}", kind.name()))
    })
}

fn read(document: &Document, id: &mut dyn FnMut(Kind, &str) -> Result<String>) -> Result<ApiDocument> {
    let (mut spec, mut beside) = (document.spec.clone(), Map::new());
    let mut named = |spec: &mut Map<String, Value>, from: &str, to: &str, kind| -> Result<bool> {
        match spec.remove(from) {
            None => Ok(false),
            Some(name) => {
                let name = string(&format!("spec.{from}"), name)?;
                spec.insert(to.to_owned(), id(kind, &name)?.into());
                Ok(true)
            }
        }
    };
    match document.kind {
        Kind::User => {
            for field in ["role", "role_expires_at", "password"] {
                beside.extend(spec.remove(field).map(|value| (field.to_owned(), value)));
            }
            check_member(&beside)?;
        }
        Kind::Team => {
            if let Some(users) = spec.remove("users") {
                let users = strings("spec.users", users)?;
                let ids = users.iter().map(|user| id(Kind::User, user));
                spec.insert("user_ids".to_owned(), ids.collect::<Result<Vec<_>>>()?.into());
            }
            if let Some(ends) = spec.remove("ends") {
                let Value::Object(ends) = ends else {
                    bail!("spec.ends must be a mapping of users to the ends of their memberships");
                };
                let ends = ends.into_iter().map(|(user, end)| Ok((id(Kind::User, &user)?, end)));
                spec.insert("user_ends".to_owned(), ends.collect::<Result<Map<_, _>>>()?.into());
            }
        }
        Kind::RoleBinding => {
            named(&mut spec, "role", "authorization_role_id", Kind::Role)?;
            if named(&mut spec, "user", "user_id", Kind::User)? {
                spec.insert("type".to_owned(), "UserBinding".into());
            }
            if named(&mut spec, "team", "team_id", Kind::Team)? {
                spec.insert("type".to_owned(), "TeamBinding".into());
            }
            if let Some(cluster) = &document.cluster {
                spec.insert("cluster_id".to_owned(), id(Kind::Cluster, cluster)?.into());
            }
        }
        _ => {}
    }
    let spec = super::kinds::check(document.kind, &spec.into()).map_err(|error| anyhow!("spec: {error}"))?;
    if document.kind == Kind::Registry {
        check_registry(&document.spec)?;
    }
    Ok(ApiDocument { spec, beside })
}

/// Checks what only the creation of a user accepts, as the cloud does.
fn check_member(fields: &Map<String, Value>) -> Result<()> {
    if let Some(role) = fields.get("role")
        && role.as_str().and_then(OrgRole::of).is_none()
    {
        let allowed = OrgRole::ALL.map(OrgRole::word).join(", ");
        bail!("spec.role is {role}: must be one of {allowed}");
    }
    if let Some(end) = fields.get("role_expires_at") {
        let end = string("spec.role_expires_at", end.clone())?;
        end.parse::<EndTime>()
            .map_err(|error| anyhow!("spec.role_expires_at {error}"))?;
    }
    match fields.get("password") {
        None => Ok(()),
        Some(Value::String(password)) => Password::new(password)
            .map(drop)
            .map_err(|error| anyhow!("spec.password {error}")),
        Some(other) => string("spec.password", other.clone()).map(drop),
    }
}

/// Checks what the coordinator makes of a registry. Without credentials, the cloud keeps those that it has.
fn check_registry(spec: &Map<String, Value>) -> Result<()> {
    let Some(credentials) = spec.get("credentials").filter(|given| !given.is_null()) else {
        return Ok(());
    };
    let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default();
    let checked = controllers::check_registry(text("provider"), text("serveraddress"), credentials);
    checked.map_err(|error| anyhow!("spec: {error}"))
}

/// The title of a document's object, for messages.
pub(super) fn title(document: &Document, name: &str) -> String {
    let given = |field: &str| document.spec.get(field).and_then(Value::as_str);
    let name = match (document.kind, given("role"), given("user").or_else(|| given("team"))) {
        (Kind::RoleBinding, Some(role), Some(subject)) => format!("{role} for {subject}"),
        _ => name.to_owned(),
    };
    let places = [
        ("cluster", &document.cluster),
        ("pool", &document.node_pool),
        ("user", &document.user),
    ];
    let places: Vec<String> = places
        .iter()
        .filter_map(|(word, place)| Some(format!("{word} {}", place.as_ref()?)))
        .collect();
    if places.is_empty() {
        name
    } else {
        format!("{name} in {}", places.join(", "))
    }
}

/// Its name, else what it is called by.
pub(super) fn name_of(object: &Value, called: &[&str]) -> String {
    if !text(object, "name").is_empty() {
        return text(object, "name").to_owned();
    }
    let api_document: Vec<&str> = called.iter().copied().filter(|word| !word.is_empty()).collect();
    api_document.join(" ")
}
