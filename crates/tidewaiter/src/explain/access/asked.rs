//! The queried subjects: names become ids.

use anyhow::{Result, bail};
use k8s_openapi::api::rbac::v1::Subject as RbacSubject;
use tidewaiter_api::access::{RBAC_GROUP, Subject};
use tidewaiter_api::containership::AuthorizationRoleBinding;
use tidewaiter_api::values::{printable, quoted};
use tidewaiter_coordinator::mirror::is_id;

use super::Question;
use super::answer::UserExplained;
use super::live::Live;

/// The group of everybody who is authenticated.
const EVERYBODY: &str = "system:authenticated";

/// Names and ids that an error lists.
const LISTED: usize = 10;

/// The queried subjects.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) user: Option<UserExplained>,
    pub(super) teams: Vec<String>,
    pub(super) namespace: Option<String>,
    /// The subjects of the cluster, and how the answer calls them.
    subjects: Vec<(RbacSubject, String)>,
}

impl Asked {
    pub(super) fn find(live: &Live, question: &Question) -> Result<Self> {
        let user = question.user.as_deref().map(|asked| user(live, asked)).transpose()?;
        let mut subjects = Vec::new();
        if let Some(user) = &user {
            subjects.push((Subject::User(user.id.clone()).of_rbac(), "user".to_owned()));
        }
        for asked in &question.teams {
            check_team(live, asked)?;
            subjects.push((Subject::Team(asked.clone()).of_rbac(), format!("team {asked}")));
        }
        let everybody = RbacSubject {
            api_group: Some(RBAC_GROUP.to_owned()),
            kind: "Group".to_owned(),
            name: EVERYBODY.to_owned(),
            namespace: None,
        };
        subjects.push((everybody, "everybody".to_owned()));
        Ok(Self {
            user,
            teams: question.teams.clone(),
            namespace: question.namespace.clone(),
            subjects,
        })
    }

    /// The first queried subject in the binding.
    pub(super) fn named_in(&self, subjects: &[RbacSubject]) -> Option<&str> {
        let mut own = self.subjects.iter();
        let found = own.find(|(subject, _)| subjects.contains(subject))?;
        Some(&found.1)
    }

    /// Returns true if the binding of the cloud is about them, here.
    pub(super) fn concerns(&self, binding: &AuthorizationRoleBinding) -> bool {
        let namespace = binding.spec.namespace.as_str();
        let here = self
            .namespace
            .as_ref()
            .is_none_or(|asked| namespace.is_empty() || asked == namespace);
        here && self.named_in(&[Subject::from(&binding.spec).of_rbac()]).is_some()
    }
}

fn user(live: &Live, asked: &str) -> Result<UserExplained> {
    let users = || live.users.iter().map(|user| (&user.spec.id, &user.spec.name));
    let explained = |(id, name): (&String, &String)| UserExplained {
        id: id.clone(),
        name: (!name.is_empty()).then(|| name.clone()),
        expires_at: live.end_of_user(id),
    };
    if let Some(found) = users().find(|(id, _)| id.eq_ignore_ascii_case(asked)) {
        return Ok(explained(found));
    }
    let named: Vec<_> = users().filter(|(_, name)| *name == asked).collect();
    match named[..] {
        [found] => return Ok(explained(found)),
        [] => {}
        _ => {
            let ids: Vec<String> = named.iter().map(|(id, _)| printable(id)).collect();
            bail!(
                "{} Users are named {}: give one of the ids {}",
                ids.len(),
                quoted(asked),
                ids.join(", ")
            );
        }
    }
    // Somebody without access to the nodes.
    if is_id(asked) || live.bindings.iter().any(|binding| binding.spec.user_id == asked) {
        return Ok(UserExplained {
            id: asked.to_owned(),
            name: None,
            expires_at: None,
        });
    }
    let known = users().map(|(id, name)| format!("{name} ({id})"));
    bail!(
        "there is no User {} in this cluster ({}): give the id, which tidewaiter cloud get users -o wide shows. Users \
         without access to the nodes have no name in the cluster",
        quoted(asked),
        listed("it has", known, "it has none")
    )
}

fn check_team(live: &Live, asked: &str) -> Result<()> {
    let teams = || live.bindings.iter().map(|binding| &binding.spec.team_id);
    if is_id(asked) || teams().any(|team| team == asked) {
        return Ok(());
    }
    let bound = teams().filter(|team| !team.is_empty()).cloned();
    bail!(
        "{} is no id of a team, and the cluster does not know the names of teams ({}): give the id, which tidewaiter cloud get teams -o wide shows",
        quoted(asked),
        listed("its bindings name", bound, "no binding names a team")
    )
}

/// The first of the names, for an error.
fn listed(words: &str, all: impl Iterator<Item = String>, none: &str) -> String {
    let mut all: Vec<String> = all.map(|text| printable(&text)).collect();
    all.sort();
    all.dedup();
    let more = all.len().saturating_sub(LISTED);
    all.truncate(LISTED);
    match (&all[..], more) {
        ([], _) => none.to_owned(),
        (_, 0) => format!("{words} {}", all.join(", ")),
        _ => format!("{words} {} and {more} more", all.join(", ")),
    }
}
