//! What the cloud deletes with an object, and who loses access by that. For people: the cloud decides it again.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use serde_json::Value;
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::Path;
use tidewaiter_cloud::models::Kind;

use super::Planner;
use crate::cloud::offboard::permitted;
use crate::cloud::plan::{Change, red};
use crate::cloud::session::{Session, text};

/// Describes what goes with an object of a list in lines; empty if nothing does.
///
/// # Errors
/// If the object is a role that is bound: the cloud does not delete it.
pub(in crate::cloud) async fn effects(session: &Session, kind: Kind, list: Path, object: &Value) -> Result<String> {
    let mut planner = Planner::new(session);
    let id = text(object, "id");
    if kind == Kind::Role {
        planner.refuse_bound(id).await?;
    }
    planner.delete_bindings(kind, id).await?;
    let mut shown = planner.plan.changes()?;
    if kind == Kind::User {
        shown += &planner.teams_of(id).await?;
    }
    if kind == Kind::User && object.get("home") == Some(&Value::Bool(false)) {
        shown +=
            "The account stays, with its SSH keys, password, logins and tokens: its home is another organization.\n";
    } else {
        shown += &planner.below(kind, &list.clone().below(id)).await?;
        shown += account(kind);
    }
    planner.push(kind, String::new(), list, deletion(id));
    let impact = planner.impact().await?;
    shown.extend(impact.map(|impact| impact.shown()));
    Ok(shown)
}

/// The effects on accounts, as far as they are in no list.
const fn account(kind: Kind) -> &'static str {
    match kind {
        Kind::User => {
            "The account goes: password, logins, tokens, and memberships of and invitations to all organizations.\n"
        }
        Kind::Organization => {
            "So do the SSH keys, passwords, logins and tokens of the users. Members of another organization keep them.\n"
        }
        _ => "",
    }
}

/// The kinds of which a list exists below this one, besides those of documents.
const fn listed_below(kind: Kind) -> &'static [Kind] {
    match kind {
        Kind::Organization => &[Kind::Invitation],
        Kind::ServiceAccount => &[Kind::Token],
        Kind::Cluster => &[Kind::ApiKey],
        _ => &[],
    }
}

fn deletion(id: &str) -> Change {
    Change::Delete {
        id: id.to_owned(),
        etag: None,
    }
}

impl Planner<'_> {
    /// Refuses to delete a role that is bound, as the cloud would after the confirmation.
    async fn refuse_bound(&mut self, id: &str) -> Result<()> {
        let mut bindings = self.all(Kind::RoleBinding).await?;
        bindings.retain(|binding| text(binding, "authorization_role_id") == id);
        if let Some(first) = bindings.first() {
            let title = self.title(first).await?;
            let (number, example) = (bindings.len(), printable(&format!("{title} ({})", text(first, "id"))));
            bail!(
                "the role is used by role-bindings ({number}), for example {example}: delete them first, with tidewaiter \
                 cloud delete role-binding ID"
            );
        }
        Ok(())
    }

    /// The teams that a user leaves, as lines.
    async fn teams_of(&mut self, id: &str) -> Result<String> {
        let mut teams = self.all(Kind::Team).await?;
        let is_user = |user: &Value| user.as_str() == Some(id);
        teams.retain(|team| {
            team["user_ids"]
                .as_array()
                .is_some_and(|users| users.iter().any(is_user))
        });
        let line = |team: &Value| red(&format!("- membership of the team {}", printable(text(team, "name")))) + "\n";
        Ok(teams.iter().map(line).collect())
    }

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

    /// Counts the objects below one, as far as the caller may list them.
    async fn below(&mut self, kind: Kind, path: &Path) -> Result<String> {
        let mut counts = Vec::new();
        let resources = Kind::resources().filter(|below| below.parent() == Some(kind));
        for below in resources.chain(listed_below(kind).iter().copied()) {
            let list = path.clone().below(below.facts().segment);
            let number = permitted(self.session, list).await?.len();
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
