//! What the cloud deletes with an object, and who loses access by that. For people: the cloud decides it again.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;
use tidewaiter_cloud::client::Path;
use tidewaiter_cloud::models::Kind;

use super::Planner;
use crate::cloud::plan::Change;
use crate::cloud::session::{Session, text};

/// Describes what goes with an object of a list in lines; empty if nothing does.
pub(in crate::cloud) async fn effects(session: &Session, kind: Kind, list: Path, object: &Value) -> Result<String> {
    let mut planner = Planner::new(session);
    let id = text(object, "id");
    planner.delete_bindings(kind, id).await?;
    let mut shown = planner.plan.changes()?;
    shown += &planner.below(kind, &list.clone().below(id)).await?;
    planner.push(kind, String::new(), list, deletion(id));
    let impact = planner.impact().await?;
    shown.extend(impact.map(|impact| impact.shown()));
    Ok(shown)
}

fn deletion(id: &str) -> Change {
    Change::Delete {
        id: id.to_owned(),
        etag: None,
    }
}

impl Planner<'_> {
    /// Adds the bindings that go with the object.
    async fn delete_bindings(&mut self, kind: Kind, id: &str) -> Result<()> {
        let field = match kind {
            Kind::User => "user_id",
            Kind::Team => "team_id",
            Kind::Cluster => "cluster_id",
            _ => return Ok(()),
        };
        let list = self.session.organization()?.below(Kind::RoleBinding.facts().segment);
        let bindings = self.all(Kind::RoleBinding).await?;
        for binding in bindings.iter().filter(|binding| text(binding, field) == id) {
            let title = self.title(binding).await?;
            let change = deletion(text(binding, "id"));
            self.push(Kind::RoleBinding, title, list.clone(), change);
        }
        Ok(())
    }

    /// Describes a binding with names, as documents do.
    async fn title(&mut self, binding: &Value) -> Result<String> {
        let mut title = self.name(Kind::Role, text(binding, "authorization_role_id")).await?;
        for (word, kind, field) in [
            ("for", Kind::User, "user_id"),
            ("for", Kind::Team, "team_id"),
            ("in cluster", Kind::Cluster, "cluster_id"),
        ] {
            let id = text(binding, field);
            if !id.is_empty() {
                let name = self.name(kind, id).await?;
                // A String takes everything.
                let _ = write!(title, " {word} {name}");
            }
        }
        let namespace = text(binding, "namespace");
        if !namespace.is_empty() {
            let _ = write!(title, " in namespace {namespace}");
        }
        Ok(title)
    }

    /// The name of an object of the organization; its id if it has none.
    async fn name(&mut self, kind: Kind, id: &str) -> Result<String> {
        let list = self.session.organization()?.below(kind.facts().segment);
        let all = self.objects(&list).await?;
        let found = all.iter().find(|object| text(object, "id") == id);
        let names = found.map(|object| [text(object, "email"), text(object, "name")]);
        let mut names = names.into_iter().flatten().filter(|name| !name.is_empty());
        Ok(names.next().unwrap_or(id).to_owned())
    }

    /// Counts the objects below one: its lists are those of the kinds whose parent it is.
    async fn below(&mut self, kind: Kind, path: &Path) -> Result<String> {
        let mut counts = Vec::new();
        for below in Kind::resources().filter(|below| below.parent() == Some(kind)) {
            let number = self.objects(&path.clone().below(below.facts().segment)).await?.len();
            if number > 0 {
                counts.push(format!("{} ({number})", below.word()));
            }
        }
        Ok(if counts.is_empty() {
            String::new()
        } else {
            format!("With it go: {}\n", counts.join(", "))
        })
    }
}
