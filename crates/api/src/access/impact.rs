//! The gains and losses of each subject when roles, bindings and teams change. Pure.
//!
//! - Teams and users are separate: what a team gains, its users gain, and a user is named only for what the user's
//!   own bindings and changes of teams make. So a change for a team of a hundred users is one change.
//! - Nobody gains what they have by another binding, and nobody loses what another binding still gives.
//! - What is left of a wildcard has no end, so a difference is what was given, except what stays.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::grant::{Access, Grant, Subject};
use super::{Action, list};

/// The change for one subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The subject that gains or loses.
    pub subject: Subject,
    /// Actions that were not permitted before.
    pub gains: Vec<Difference>,
    /// Actions that are no longer permitted.
    pub loses: Vec<Difference>,
}

/// Actions that are permitted on one side of a change and not on the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The grant of the one side.
    pub grant: Grant,
    /// The parts of it that both sides permit.
    pub except: Vec<Grant>,
}

impl Difference {
    /// Returns true if the action in the namespace is permitted on one side only; the namespace is as in
    /// [`Grant::permits`].
    #[must_use]
    pub fn permits(&self, action: Action<'_>, namespace: Option<&str>) -> bool {
        let stays = |grant: &Grant| grant.permits(action, namespace);
        self.grant.permits(action, namespace) && !self.except.iter().any(stays)
    }

    /// Returns true if its parts have the same verbs.
    fn is_uniform(&self) -> bool {
        self.except
            .iter()
            .all(|stays| stays.rule.verbs == self.grant.rule.verbs)
    }

    fn with_verbs(&self, verbs: &[String]) -> Self {
        let with = |grant: &Grant| {
            let mut grant = grant.clone();
            grant.rule.verbs = verbs.to_vec();
            grant
        };
        Self {
            grant: with(&self.grant),
            except: self.except.iter().map(with).collect(),
        }
    }
}

/// The changes for each subject for whom there are any: users, then teams.
#[must_use]
pub fn changes(before: &Access, after: &Access) -> Vec<Change> {
    let subjects = subjects(before, after);
    let changes = subjects.into_iter().map(|subject| {
        let (had, has) = (before.given(&subject), after.given(&subject));
        match &subject {
            Subject::Team(_) => Change {
                gains: difference(has.clone(), &had),
                loses: difference(had, &has),
                subject,
            },
            Subject::User(user) => Change {
                gains: difference(with_changed_teams(has, user, after, before), &before.of_user(user)),
                loses: difference(with_changed_teams(had, user, before, after), &after.of_user(user)),
                subject,
            },
        }
    });
    changes
        .filter(|change| !change.gains.is_empty() || !change.loses.is_empty())
        .collect()
}

/// Everybody whom a binding or a team names.
fn subjects(before: &Access, after: &Access) -> BTreeSet<Subject> {
    let of = |access: &Access| {
        let bound = access.bindings.iter().map(|binding| binding.subject.clone());
        let users = access.teams.values().flatten().cloned().map(Subject::User);
        bound.chain(users).collect::<Vec<_>>()
    };
    of(before).into_iter().chain(of(after)).collect()
}

/// `grants`, and those of the teams in which the user is on `this` side only. The change of a team that is not there at
/// all on the `other` side is a change for the team.
fn with_changed_teams(mut grants: Vec<Grant>, user: &str, this: &Access, other: &Access) -> Vec<Grant> {
    for team in this.teams_of(user) {
        let subject = Subject::Team(team.clone());
        let changed = match other.teams.get(team) {
            Some(users) => !users.contains(user),
            None => !other.given(&subject).is_empty(),
        };
        if changed {
            grants.extend(this.given(&subject));
        }
    }
    grants
}

/// The grants of `ours` that `others` lack.
fn difference(ours: Vec<Grant>, others: &[Grant]) -> Vec<Difference> {
    let missing = ours
        .into_iter()
        .filter(|grant| !others.iter().any(|other| other.includes(grant)));
    let (mut whole, mut partial) = (Vec::new(), Vec::new());
    for grant in widest(missing.collect()) {
        let common = others.iter().filter_map(|other| grant.common(other)).collect();
        let except = merged(widest(common));
        if except.is_empty() {
            whole.push(grant);
        } else {
            partial.push(Difference { grant, except });
        }
    }
    let whole = merged(whole).into_iter().map(|grant| Difference {
        grant,
        except: Vec::new(),
    });
    whole.chain(merged_partial(partial)).collect()
}

/// Makes one of those that differ in their verbs only.
fn merged_partial(differences: Vec<Difference>) -> Vec<Difference> {
    let mut merged: Vec<Difference> = Vec::new();
    for difference in differences {
        let same = |other: &&mut Difference| {
            let both = other.is_uniform() && difference.is_uniform();
            both && other.with_verbs(&[]) == difference.with_verbs(&[])
        };
        match merged.iter_mut().find(same) {
            Some(other) => {
                let verbs = [&other.grant.rule.verbs[..], &difference.grant.rule.verbs[..]].concat();
                *other = other.with_verbs(&verbs);
            }
            None => merged.push(difference),
        }
    }
    merged
}

/// Without those that another one includes.
fn widest(grants: Vec<Grant>) -> Vec<Grant> {
    let mut widest: Vec<Grant> = Vec::new();
    for grant in grants {
        if !widest.iter().any(|other| other.includes(&grant)) {
            widest.retain(|other| !grant.includes(other));
            widest.push(grant);
        }
    }
    widest
}

/// Merges `grants` into fewer rules, for people: names, then verbs, then resources and paths of what is otherwise equal
/// become one.
fn merged(grants: Vec<Grant>) -> Vec<Grant> {
    let grants = merge(grants, |rule| &mut rule.resource_names);
    let mut by_verbs: Vec<Grant> = Vec::new();
    for mut grant in grants {
        let verbs = std::mem::take(&mut grant.rule.verbs);
        let same = |other: &&mut Grant| {
            let verbs = other.rule.verbs.clone();
            let rule = PolicyRule {
                verbs,
                ..grant.rule.clone()
            };
            other.namespace == grant.namespace && other.rule == rule
        };
        if let Some(other) = by_verbs.iter_mut().find(same) {
            other.rule.verbs.extend(verbs);
        } else {
            grant.rule.verbs = verbs;
            by_verbs.push(grant);
        }
    }
    let grants = merge(by_verbs, |rule| &mut rule.resources);
    merge(grants, |rule| &mut rule.non_resource_urls)
}

/// Makes one of those that differ in this list only. An absent list is no list: it is all names, or no resource.
fn merge(grants: Vec<Grant>, field: fn(&mut PolicyRule) -> &mut Option<Vec<String>>) -> Vec<Grant> {
    let mut merged: Vec<(Grant, Option<Vec<String>>)> = Vec::new();
    for mut grant in grants {
        let texts = field(&mut grant.rule).take();
        let is_list = |texts: &Option<Vec<String>>| !list(texts.as_ref()).is_empty();
        let same = merged
            .iter_mut()
            .find(|(other, others)| *other == grant && is_list(others) && is_list(&texts));
        match same {
            Some((_, Some(others))) => others.extend(texts.into_iter().flatten()),
            _ => merged.push((grant, texts)),
        }
    }
    let whole = merged.into_iter().map(|(mut grant, texts)| {
        *field(&mut grant.rule) = texts;
        grant
    });
    whole.collect()
}

#[cfg(test)]
mod tests;
