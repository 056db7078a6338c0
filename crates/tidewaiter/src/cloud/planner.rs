//! From documents to a plan: names become ids, and documents are compared with existing objects.
//!
//! The plan is complete before the first change. Deletions come last, in reverse order, and only within the scope.

mod access;
mod deletion;
mod prune;

use std::collections::{HashMap, HashSet};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use tidewaiter_cloud::client::Path;
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::models::values::UserId;

use super::api_document::{Ids, name_of, names, said_by, stand_in, title};
use super::cluster_reports::Made;
use super::documents::{Document, Documents, by_kind};
use super::plan::{Change, Plan, Step, fields_of, patch, touched};
use super::session::{Session, is_called, text};

pub(super) use deletion::effects;

/// Makes the plan of valid documents.
///
/// # Errors
/// If a name has no object, or several.
pub(super) async fn plan(session: &Session, documents: &Documents, prune: bool) -> Result<Plan> {
    let scope = match (&documents.scope, prune) {
        (Some(scope), true) => Some(scope),
        (None, true) => bail!(
            "--prune deletes the objects that no document names, of the kinds listed in a Scope document: add one, for example {{kind: Scope, prune: [Role, …]}}"
        ),
        (_, false) => None,
    };
    let mut planner = Planner::new(session);
    for documents in by_kind(&documents.documents).into_values() {
        for document in documents {
            planner.add(document).await.with_context(|| document.origin.clone())?;
        }
    }
    if let Some(scope) = scope {
        planner
            .prune(scope, &documents.documents)
            .await
            .context("the kinds to prune")?;
    }
    planner.plan.impact = planner.impact().await.context("who gains and who loses access")?;
    Ok(planner.plan)
}

struct Planner<'a> {
    session: &'a Session,
    /// The existing objects, by path.
    lists: HashMap<String, Vec<Value>>,
    /// The objects to be created: by path and name, the placeholder of the id.
    pending: HashMap<(String, String), String>,
    /// The ids that documents name.
    kept: HashSet<(Kind, String)>,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn new(session: &'a Session) -> Self {
        Self {
            session,
            lists: HashMap::new(),
            pending: HashMap::new(),
            kept: HashSet::new(),
            plan: Plan::default(),
        }
    }

    async fn add(&mut self, document: &Document) -> Result<()> {
        let kind = document.kind;
        let list = self.list_of(document).await?;
        let mut ids = Ids::new();
        for (kind, name) in names(document)? {
            let list = self.session.organization()?.below(kind.facts().segment);
            let id = self.id(kind, &list, &name).await?;
            let new = if self.pending.values().any(|pending| *pending == id) {
                "new"
            } else {
                id.as_str()
            };
            self.plan.names.insert(id.clone(), format!("{name} ({new})"));
            ids.insert((kind, name), id);
        }
        let api_document = said_by(document, &ids)?;
        let called: Vec<&str> = kind
            .facts()
            .key
            .iter()
            .map(|field| text(&api_document.spec, field))
            .collect();
        let title = title(document, &name_of(&api_document.spec, &called));
        match self.existing(document, &list, &api_document.spec).await? {
            None => {
                if self.pending.contains_key(&(list.to_string(), called.join("\0"))) {
                    bail!("{} {title} occurs twice", kind.name());
                }
                let stand_in = stand_in(self.pending.len() + 1);
                for name in called.iter().copied().chain([called.join("\0").as_str()]) {
                    self.pending
                        .insert((list.to_string(), name.to_owned()), stand_in.clone());
                }
                let body = api_document.for_creation();
                let change = Change::Create { stand_in, body };
                self.push(document.kind, title, list, change);
            }
            Some(found) => {
                let id = text(&found, "id").to_owned();
                if !self.kept.insert((document.kind, id.clone())) {
                    bail!("{} {title} occurs twice", kind.name());
                }
                if patch(&fields_of(&found, &api_document.spec), &api_document.spec).is_none() {
                    self.plan.unchanged.push(Made::before(kind, &list, &found));
                    return Ok(());
                }
                // The object itself, with the version that the change will be of.
                let (object, etag) = self.session.get(list.clone().below(&id)).await?;
                match patch(&fields_of(&object, &api_document.spec), &api_document.spec) {
                    None => self.plan.unchanged.push(Made::before(kind, &list, &object)),
                    Some(patch) => {
                        let before = touched(&fields_of(&object, &api_document.spec), &patch);
                        let change = Change::Update {
                            id,
                            etag,
                            before,
                            patch,
                        };
                        self.push(document.kind, title, list, change);
                    }
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, kind: Kind, title: String, list: Path, change: Change) {
        self.plan.steps.push(Step {
            kind,
            title,
            list,
            change,
        });
    }

    /// The existing object of a document, if there is one.
    async fn existing(&mut self, document: &Document, list: &Path, spec: &Value) -> Result<Option<Value>> {
        let kind = document.kind;
        let objects = self.objects(list).await?;
        if let Some(id) = &document.id {
            let found = objects.iter().find(|object| text(object, "id") == id);
            let found = found.ok_or_else(|| anyhow!("there is no {} with the id {id}", kind.name()))?;
            return Ok(Some(found.clone()));
        }
        let empty = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value == "");
        let same = |object: &&Value| {
            let fields = kind
                .facts()
                .key
                .iter()
                .map(|field| (object.get(*field), spec.get(*field)));
            let case = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_lowercase);
            let email = document.kind == Kind::User;
            fields
                .into_iter()
                .all(|(one, other)| one == other || (empty(one) && empty(other)) || (email && case(one) == case(other)))
        };
        let found: Vec<&Value> = objects.iter().filter(same).collect();
        match found[..] {
            [] => Ok(None),
            [object] => Ok(Some(object.clone())),
            _ => bail!(
                "{} objects of kind {} have this name: use an id",
                found.len(),
                kind.name()
            ),
        }
    }

    async fn objects(&mut self, list: &Path) -> Result<&[Value]> {
        let key = list.to_string();
        if !self.lists.contains_key(&key) {
            let pending = self.pending.values().any(|id| key.contains(id.as_str()));
            let objects = if pending {
                Vec::new()
            } else {
                self.session.list(list.clone()).await?
            };
            self.lists.insert(key.clone(), objects);
        }
        Ok(self.lists.get(&key).map_or(&[], Vec::as_slice))
    }

    /// The id of the object named `name` in a list, existing or to be created.
    async fn id(&mut self, kind: Kind, list: &Path, name: &str) -> Result<String> {
        if name.parse::<UserId>().is_ok() {
            return Ok(name.to_lowercase());
        }
        let called = |object: &&Value| is_called(kind, object, name);
        let objects = self.objects(list).await?;
        let found: Vec<String> = objects
            .iter()
            .filter(called)
            .map(|object| text(object, "id").to_owned())
            .collect();
        match &found[..] {
            [id] => Ok(id.clone()),
            [] => {
                let pending = self.pending.get(&(list.to_string(), name.to_owned())).cloned();
                pending.ok_or_else(|| {
                    anyhow!(
                        "there is no {} {name:?} in the cloud or in these documents",
                        kind.name()
                    )
                })
            }
            _ => bail!(
                "{} objects of kind {} are named {name:?}: use an id",
                found.len(),
                kind.name()
            ),
        }
    }

    async fn list_of(&mut self, document: &Document) -> Result<Path> {
        let kind = document.kind;
        let organization = self.session.organization()?;
        let parent = match (kind.parent(), &document.user, &document.node_pool) {
            (Some(Kind::User), Some(user), _) => {
                let list = organization.below("users");
                let id = self.id(Kind::User, &list, user).await?;
                list.below(id)
            }
            (Some(Kind::Cluster), ..) => self.cluster(document.cluster.as_deref()).await?,
            (Some(Kind::NodePool), _, Some(pool)) => {
                let list = self.cluster(document.cluster.as_deref()).await?.below("node-pools");
                let id = self.id(Kind::NodePool, &list, pool).await?;
                list.below(id)
            }
            _ => organization,
        };
        Ok(parent.below(kind.facts().segment))
    }

    async fn cluster(&mut self, named: Option<&str>) -> Result<Path> {
        let place = self.session.place().cluster.clone();
        let name = named.map(str::to_owned).or(place);
        let name = name.ok_or_else(|| anyhow!("cluster is missing, and the context has no cluster"))?;
        let list = self.session.organization()?.below("clusters");
        let id = self.id(Kind::Cluster, &list, &name).await?;
        Ok(list.below(id))
    }
}
